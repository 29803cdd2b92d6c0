"""`vicinal smoothed`: what a mechanism without noise leaks in plausible worlds."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option, echo

from vicinal import ledger, reports, smoothed
from vicinal.cli._main import group_of
from vicinal.cli._options import Json
from vicinal.cli._output import as_json
from vicinal.errors import InvalidInput

app = group_of("Price mechanisms that add no noise. See smoothed differential privacy.")

Epsilons = Annotated[list[float], Option("--epsilon", help="Repeat for more.")]

_PAIRS = (("first_votes", "second_votes"), ("dem_votes", "rep_votes"))


@app.command()
def election(
    table: Annotated[Path, Argument(metavar="FILE.csv", help="Table with a row per electorate.")],
    lost: Annotated[float, Option(help="Share of ballots that are not counted.")],
    accuracy: Annotated[float, Option(help="Count guesses that are right more often.")] = 0.51,
    columns: Annotated[str, Option(help="Columns of votes, separated by commas.")] = "",
    records: Annotated[int, Option(help="Voters; 0 for the smallest electorate's.")] = 0,
    epsilon: Epsilons = [0.5, 1.0, 2.0, 7.0],  # noqa: B006 - typer reads the default once
    json: Json = False,
) -> None:
    """Show what published vote counts give away when a share of the ballots is lost.

    It prints the delta of each row as a database of its own, and then the smoothed delta of an
    electorate in which everybody is like the voters of some row.
    """
    from vicinal import _checks

    share = _checks.real("lost", lost, least=0, below=1)
    likely = _checks.real("accuracy", accuracy, least=0.5, below=1)
    names, votes = _votes(table, columns)
    rows = [
        reports.election_row(name, v, share, likely) for name, v in zip(names, votes, strict=True)
    ]
    n = records or min(sum(v) for v in votes)
    report = reports.audit({
        "mechanism": {
            "kind": "histogram",
            "sampler": {"kind": "fixed_size", "size": round((1 - share) * n)},
        },
        "population": {"kind": "hull", "points": [[v / sum(row) for v in row] for row in votes]},
        "n": n,
        "epsilons": list(epsilon),
    })  # fmt: skip
    if json:
        echo(as_json({"private": True, "rows": rows, "smoothed": report}))
    else:
        echo("PRIVATE unless these counts are public already: the deltas of the rows")
        echo(f"{'row':>24} {'votes':>12} {'delta':>12} {'utility':>12}")
        for row in rows:
            ends = [reports.end_text(row[name]) for name in ("log10_delta", "log10_utility")]
            echo(f"{row['election']:>24} {row['votes']:>12,} {ends[0]:>12} {ends[1]:>12}")
        echo()
        echo(reports.audit_text(report))


@app.command()
def audit(
    spec: Annotated[Path, Argument(metavar="SPEC.json", help="Mechanism and population.")],
    json: Json = False,
) -> None:
    """Compare the smoothed delta of a mechanism on a population with the worst case."""
    _show(reports.audit(ledger.read_json(spec, "plan")), json=json)


@app.command()
def gradients(
    records: Annotated[int, Option(help="Records in a database.", min=2)] = 250,
    sample: Annotated[int, Option(help="Records in a sample; 0 for the root.", min=0)] = 0,
    law: Annotated[str, Option(help="Law of the gradients: gaussian or laplace.")] = "gaussian",
    mean: Annotated[float, Option(help="Centre of the gradients.")] = 0.0,
    scale: Annotated[float, Option(help="Spread of the gradients.")] = 0.12,
    epsilon: Epsilons = [2.0],  # noqa: B006 - typer reads the default once
    databases: Annotated[int, Option(help="How many databases to draw.", min=2)] = 20,
    seed: Annotated[int, Option(help="Seed for the databases.", min=0)] = 0,
    json: Json = False,
) -> None:
    """Show what a step of SGD with 8-bit gradients and no noise gives away."""
    gradient_law = smoothed.gradient_law(law, mean, scale)
    result = reports.audit({
        "mechanism": {
            "kind": "average",
            "levels": list(smoothed.LEVELS),
            "size": sample or round(records**0.5),
        },
        "population": {"kind": "vertices", "rows": [gradient_law.tolist()]},
        "n": records,
        "epsilons": list(epsilon),
        "draws": databases,
        "seed": seed,
    })  # fmt: skip
    _show(result, json=json)


def _votes(path: Path, columns: str) -> tuple[list[str], list[list[int]]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"The table {path} cannot be read: {error}.") from None
    if not rows:
        raise InvalidInput(f"The table {path} must have a header and at least one row.")
    names = _vote_columns(list(rows[0]), columns)
    try:
        votes = [[int(row[name]) for name in names] for row in rows]
    except (TypeError, ValueError):
        raise InvalidInput(f"The columns {names} must hold whole numbers of votes.") from None
    if any(min(row) < 0 or sum(row) < 1 for row in votes):
        raise InvalidInput(f"The columns {names} must hold votes >= 0, and some in every row.")
    return [str(next(iter(row.values()))) for row in rows], votes


def _vote_columns(header: list[str], listing: str) -> list[str]:
    listed = [name.strip() for name in listing.split(",") if name.strip()]
    pairs = [list(pair) for pair in _PAIRS if set(pair) <= set(header)]
    names = listed or (pairs[0] if pairs else [])
    if len(names) < 2 or not set(names) <= set(header):
        raise InvalidInput(
            "The 'columns' parameter must name at least two columns of the table. Got "
            f"{listing!r}; the table has {', '.join(header)}."
        )
    return names


def _show(report: dict[str, Any], *, json: bool) -> None:
    echo(as_json(report) if json else reports.audit_text(report))
