"""`vicinal account` and `vicinal calibrate`: what a plan costs, before anything is spent."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vicinal._lazy import load_when_used
from vicinal.cli._options import Json
from vicinal.cli._output import as_json, picture_format, read_json, write_file
from vicinal.errors import InvalidInput

PlanFile = Annotated[Path, typer.Argument(metavar="PLAN.json", help="The plan, as JSON.")]

_UNUSED = ("ctypeslib", "f2py", "random", "testing")
"""What scipy.special loads of numpy, to list its names, and pricing has no use for."""

_METHOD_WORDS = {
    "rdp_mironov": "RDP, conversion of Mironov 2017 (as older papers print it)",
    "rdp": "RDP, conversion of Balle et al. 2020",
    "gdp": "Gaussian DP, exact",
    "pld": "privacy loss distribution",
}


def account(
    plan: PlanFile,
    json: Json = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw epsilon against count and gamma into this file.")
    ] = None,
) -> None:
    """Price a plan by every valid method. Nothing is spent, and no private data is read."""
    load_when_used("numpy", *_UNUSED)
    from vicinal.accounting import Plan

    kind = picture_format(plot, "png", "svg", "pdf")
    checked = Plan.from_dict(read_plan(plan))
    price = checked.price()
    if plot is not None:
        from vicinal.reports import draw_costs

        write_file(plot, draw_costs(checked, kind))
    typer.echo(as_json(price) if json else describe(price))


def calibrate(
    plan: PlanFile,
    epsilon: Annotated[float, typer.Option(help="The target, at the delta of the plan.")],
    field: Annotated[str, typer.Option(help="What to find: sigma, gamma, count, B, ...")],
    release: Annotated[int, typer.Option(help="Of which release, counted from 0.")] = 0,
    json: Json = False,
) -> None:
    """Find the value of one field with which a plan just keeps a target; never more than it."""
    load_when_used("numpy", *_UNUSED)
    from vicinal.accounting import calibrate as search

    answer = search(read_plan(plan), epsilon, field, release)
    fields = {"field": answer.field, "release": answer.release, "value": answer.value}
    if json:
        typer.echo(as_json({**fields, "price": answer.price}))
        return
    typer.echo(f"{field} of release {release}: {answer.value:.8g}\n\n{describe(answer.price)}")


def read_plan(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; NaN and infinities are refused with the rest.

    A string in place of a release's votes names a CSV file of them, beside the plan.
    """
    plan = read_json(path, "plan")
    releases = plan.get("releases") if isinstance(plan, dict) else None
    for place, release in enumerate(releases if isinstance(releases, list) else []):
        if isinstance(release, dict) and isinstance(release.get("votes"), str):
            release["votes"] = _votes(f"releases[{place}].votes", path.parent / release["votes"])
    return plan  # type: ignore[no-any-return]


def _votes(name: str, path: Path) -> list[Any]:
    """Return the rows of a CSV file without a header, which a plan names in place of votes."""
    import csv

    try:
        with path.open(encoding="utf-8", newline="") as lines:
            rows = [[float(count) for count in row] for row in csv.reader(lines) if row]
    except OSError as error:
        raise InvalidInput(f"The '{name}' parameter: {path}: {error.strerror}.") from None
    except ValueError:
        raise InvalidInput(
            f"The '{name}' parameter: {path} must hold rows of counts, separated by commas."
        ) from None
    # One number a row is the largest vote of every query.
    return [row[0] for row in rows] if all(len(row) == 1 for row in rows) else rows


def describe(price: dict[str, Any]) -> str:
    """Return a price as text: the bound, every method, the shares, the assumptions."""
    lines = [f"epsilon {price['epsilon']:.4g} at delta {price['delta']:g}", ""]
    for name, value in price["by_method"].items():
        best = "  <- best" if name == price["method"] else ""
        lines.append(f"  {value:10.4f}  {_METHOD_WORDS[name]}{best}")
    if price["lower"] is not None:
        lines.append(f"  {price['lower']:10.4f}  no analysis of these releases can go below this")
    lines += ["", "  share  alone   release"]
    for release in price["releases"]:
        lines.append(_release_line(release, "kind", f"{release['share']:5.1%}"))
        parts = release.get("parts", [])
        lines += [f"{_release_line(part, 'part', '')} (in it)" for part in parts]
    lines += ["", f"Neighbouring data sets: {price['neighbouring']}.", "Assumed:"]
    lines += [f"- {words};" for words in price["assumptions"]]
    return "\n".join(lines)


def _release_line(release: dict[str, Any], name: str, share: str) -> str:
    hidden = ("kind", "part", "parts", "share", "alone")
    fields = {key: value for key, value in release.items() if key not in hidden}
    words = ", ".join(f"{key} {_short(value)}" for key, value in fields.items())
    return f"  {share:5}  {release['alone']:6.4g}  {release[name]}: {words}"


def _short(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
