"""`vicinal account`, `calibrate` and `smoothed`: costs of releases, computed before any release."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from vicinal.accounting.guarantee import format_rounded_up
from vicinal.cli.main import create_command_group
from vicinal.cli.options import Json
from vicinal.cli.output import as_json, echo, show_announced_progress

PlanFile = Annotated[Path, Argument(metavar="PLAN.json", help="The plan, as JSON.")]

_METHOD_NAMES = {
    "rdp_mironov": "RDP, conversion of Mironov 2017 (as older papers print it)",
    "rdp": "RDP, conversion of Balle et al. 2020",
    "gdp": "Gaussian DP, exact",
    "pld": "privacy loss distribution",
}


def account(plan: PlanFile, json: Json = False) -> None:
    """Compute epsilon of a plan of releases with every applicable accounting method.

    Reads no private data and charges no budget.
    """
    from vicinal.accounting.plan import Plan
    from vicinal.ledger.sealed_files import read_json

    price = Plan.from_dict(read_json(plan, "plan")).price()
    echo(as_json(price) if json else _format_price(price))


def calibrate(
    plan: PlanFile,
    epsilon: Annotated[float, Option(help="Target epsilon, at the plan's delta.")],
    field: Annotated[str, Option(help="Field to find, such as sigma, gamma, count or B.")],
    release: Annotated[int, Option(help="Number of the release, counted from 0.")] = 0,
    json: Json = False,
) -> None:
    """Find a plan's noise, or another field, for an epsilon."""
    from vicinal.accounting import calibration
    from vicinal.ledger.sealed_files import read_json

    calibrated = calibration.calibrate(read_json(plan, "plan"), epsilon, field, release)
    value = f"{field} of release {release}: {calibrated.value:.8g}"
    text = f"{value}\n\n{_format_price(calibrated.price)}"
    echo(as_json(asdict(calibrated)) if json else text)


smoothed = create_command_group(
    "Compute smoothed differential privacy of mechanisms that add no noise."
)


@smoothed.command()
def audit(
    spec: Annotated[Path, Argument(metavar="SPEC.json", help="Mechanism and population.")],
    json: Json = False,
) -> None:
    """Compare the smoothed delta of a mechanism on a population with the worst case.

    Mechanisms are counts of a sample, the winner or another decision by a rule on them (kind
    "decision"), averages and votes.
    """
    from vicinal.ledger.sealed_files import read_json
    from vicinal.reports import smoothed_audit

    with show_announced_progress(silent=json):
        report = smoothed_audit.audit_smoothed_dp(read_json(spec, "plan"))
    echo(as_json(report) if json else smoothed_audit.format_audit(report))


def _format_price(price: dict[str, Any]) -> str:
    """Return the text on a plan from the JSON object `price`: epsilons, releases, assumptions."""
    epsilon, delta = format_rounded_up(price["epsilon"]), format_rounded_up(price["delta"])
    lines = [f"epsilon {epsilon} at delta {delta}", ""]
    for method, method_epsilon in price["by_method"].items():
        best = "  <- best" if method == price["method"] else ""
        lines.append(f"  {format_rounded_up(method_epsilon):>10}  {_METHOD_NAMES[method]}{best}")
    if price["lower"] is not None:
        lower = math.floor(1000 * price["lower"]) / 1000  # a lower bound is rounded down
        lines.append(f"  {lower:>10g}  lower bound: no analysis can go below this")
    lines += ["", "  share  epsilon alone  release"]
    for release in price["releases"]:
        lines.append(_format_release(release, release["kind"], f"{release['share']:5.1%}"))
        for component in release.get("parts", []):
            lines.append(f"{_format_release(component, component['part'], '')} (in it)")
    lines += ["", f"Neighbouring data sets: {price['neighbouring']}.", "Assumed:"]
    return "\n".join([*lines, *(f"- {assumption};" for assumption in price["assumptions"])])


def _format_release(release: dict[str, Any], name: str, cost_share: str) -> str:
    """Return the line of a release, or of one component of a release, called `name`.

    `release` has its parameters, and under "alone" its epsilon if it were the only release.
    `cost_share`: its share of the plan's privacy cost as text; empty for a component.
    """
    parameters = ", ".join(
        f"{key} {value:.6g}" if isinstance(value, float) else f"{key} {value}"
        for key, value in release.items()
        if key not in ("kind", "part", "parts", "share", "alone")
    )
    return f"  {cost_share:5}  {format_rounded_up(release['alone']):>13}  {name}: {parameters}"
