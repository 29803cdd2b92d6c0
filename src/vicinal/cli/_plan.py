"""`vicinal account`, `calibrate` and `smoothed`: what releases cost, before anything is spent."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option, echo

from vicinal.cli.main import group_of
from vicinal.cli.options import Json
from vicinal.cli.output import as_json
from vicinal.lazy import load_when_used

PlanFile = Annotated[Path, Argument(metavar="PLAN.json", help="The plan, as JSON.")]

_UNUSED = ("ctypeslib", "f2py", "random", "testing")
"""What scipy.special loads of numpy, to list its names, and pricing has no use for."""

_METHOD_WORDS = {
    "rdp_mironov": "RDP, conversion of Mironov 2017 (as older papers print it)",
    "rdp": "RDP, conversion of Balle et al. 2020",
    "gdp": "Gaussian DP, exact",
    "pld": "privacy loss distribution",
}


def account(plan: PlanFile, json: Json = False) -> None:
    """Price a plan by every valid method. Reads nothing private and spends nothing."""
    load_when_used("numpy", *_UNUSED)
    from vicinal.accounting.plan import Plan
    from vicinal.ledger.sealed_files import read_json

    price = Plan.from_dict(read_json(plan, "plan")).price()
    echo(as_json(price) if json else _price_text(price))


def calibrate(
    plan: PlanFile,
    epsilon: Annotated[float, Option(help="The target, at the delta of the plan.")],
    field: Annotated[str, Option(help="Field to find: sigma, gamma, count, B and so on.")],
    release: Annotated[int, Option(help="Number of the release, counted from 0.")] = 0,
    json: Json = False,
) -> None:
    """Find the noise, or another field, that keeps an epsilon."""
    load_when_used("numpy", *_UNUSED)
    from vicinal.accounting import calibration
    from vicinal.ledger.sealed_files import read_json

    answer = calibration.calibrate(read_json(plan, "plan"), epsilon, field, release)
    fields = {"field": answer.field, "release": answer.release, "value": answer.value}
    text = f"{field} of release {release}: {answer.value:.8g}\n\n{_price_text(answer.price)}"
    echo(as_json({**fields, "price": answer.price}) if json else text)


smoothed = group_of("Price mechanisms that add no noise. See smoothed differential privacy.")


@smoothed.command()
def audit(
    spec: Annotated[Path, Argument(metavar="SPEC.json", help="Mechanism and population.")],
    json: Json = False,
) -> None:
    """Compare the smoothed delta of a mechanism on a population with the worst case."""
    from vicinal.ledger.sealed_files import read_json
    from vicinal.reports import smoothed_audit
    from vicinal.reports.smoothed_audit import audit_text

    report = smoothed_audit.audit(read_json(spec, "plan"))
    echo(as_json(report) if json else audit_text(report))


def _price_text(price: dict[str, Any]) -> str:
    lines = [f"epsilon {price['epsilon']:.4g} at delta {price['delta']:g}", ""]
    for name, value in price["by_method"].items():
        best = "  <- best" if name == price["method"] else ""
        lines.append(f"  {value:10.4f}  {_METHOD_WORDS[name]}{best}")
    if price["lower"] is not None:
        lines.append(f"  {price['lower']:10.4f}  lower bound: no analysis can go below this")
    lines += ["", "  share  alone   release"]
    for release in price["releases"]:
        lines.append(_release_line(release, "kind", f"{release['share']:5.1%}"))
        lines += [f"{_release_line(part, 'part', '')} (in it)" for part in release.get("parts", [])]
    lines += ["", f"Neighbouring data sets: {price['neighbouring']}.", "Assumed:"]
    return "\n".join([*lines, *(f"- {words};" for words in price["assumptions"])])


def _release_line(release: dict[str, Any], name: str, share: str) -> str:
    words = ", ".join(
        f"{key} {value:.6g}" if isinstance(value, float) else f"{key} {value}"
        for key, value in release.items()
        if key not in ("kind", "part", "parts", "share", "alone")
    )
    return f"  {share:5}  {release['alone']:6.4g}  {release[name]}: {words}"
