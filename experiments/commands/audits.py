"""`tightness`, `audit-errors`, `audit-controls`: claims, and faults that audits find."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from experiments.commands.options import OUT, Out, write_csv, write_table
from vicinal.cli.options import Epsilon, Json
from vicinal.cli.output import create_output_folder
from vicinal.errors import InvalidInput

if TYPE_CHECKING:
    from experiments.audits.kept import Makers, RunFolder

Row = TypeVar("Row")

Only = Annotated[str | None, typer.Option(help="Attacks, comma-separated.")]
Classes = Annotated[int, typer.Option(help="Of Ind-KNN.", min=2, max=100)]

Keep = Annotated[
    Path | None,
    typer.Option(help="Folder of runs: those in it count, new ones are added. tightness and "
                      "audit-errors share theirs."),
]  # fmt: skip


def _run_folder(keep: Path | None, classes: int, epsilon: float) -> RunFolder:
    from experiments.audits.kept import RunFolder
    from vicinal import __version__

    return RunFolder(keep, {"version": __version__, "classes": classes, "epsilon": epsilon})


def _table(head: str, measured: Iterable[tuple[str, Row]]) -> tuple[str, list[Row]]:
    """Return a table, and its rows for JSON; each line is shown as soon as it is known."""
    lines, rows = [head], []
    for line, row in measured:
        lines.append(line)
        rows.append(row)
        typer.echo(line, err=True)
    return "\n".join(lines), rows


TIGHTNESS = "tightness"

TIGHTNESS_NOTE = (
    "Installed code, exact noise, no versions broken on purpose. Claim and lower bound as a "
    "Gaussian shift mu at the test that was made, the lower bound wrong with probability at most "
    "1e-6; epsilon of both at delta 1e-5. Possible: the ratio that a Gaussian shift of that mu, "
    "which meets its claim, would show in as many runs. Ind-KNN at the epsilon asked for; the "
    "other mechanisms in the settings of `vicinal audit`."
)


def tightness(
    runs: Annotated[int, typer.Option(help="Of each world of each attack.", min=100)] = 1_000_000,
    seconds: Annotated[float, typer.Option(help="For one attack, at most.")] = 600.0,
    only: Only = None,
    classes: Classes = 10,
    epsilon: Epsilon = 1.0,
    keep: Keep = None,
    json: Json = False,
    out: Out = OUT,
) -> None:
    """For every mechanism: its claim, the best lower bound, their ratio and the time it took."""
    from experiments.audits import tightness as cases

    makers = _chosen(cases.cases(classes, epsilon), only)
    folder = create_output_folder(out)
    measured = cases.measured(makers, runs, seconds, _run_folder(keep, classes, epsilon))
    text, rows = _table(
        cases.text_row(""), ((cases.text_row(name, row), (name, row)) for name, row in measured)
    )
    write_csv(folder, TIGHTNESS, [cases.flat_row(name, row) for name, row in rows])
    plain = {name: row.to_dict() for name, row in rows}
    write_table(folder, TIGHTNESS, text, TIGHTNESS_NOTE, json=json, rows=plain)


def _chosen(makers: Makers, only: str | None) -> Makers:
    names = list(makers) if only is None else [name.strip() for name in only.split(",")]
    if not set(names) <= set(makers):
        raise InvalidInput(f"The 'only' parameter must name attacks among: {', '.join(makers)}.")
    return {name: makers[name] for name in names}


ERRORS = "audit-errors"

ERRORS_NOTE = (
    "Small audits of the installed code with its real noise, in worlds that meet the claim. Above: "
    "audits whose lower bound passed the claim, wrongly, on mu or on epsilon. Allowed: what the "
    "confidence allows. At most: Clopper and Pearson's bound on the rate at 95 %. No two audits "
    "share a run."
)


def audit_errors(
    audits: Annotated[int, typer.Option(help="Of each attack.", min=1)] = 10_000,
    runs: Annotated[int, typer.Option(help="Of each world of an audit.", min=20)] = 100,
    confidence: Annotated[float, typer.Option(help="Of an audit.")] = 0.9,
    only: Only = "votes,count,private-knn-all,private-knn,pate,noisy-sgd",
    classes: Classes = 2,
    epsilon: Epsilon = 4.0,
    keep: Keep = None,
    json: Json = False,
    out: Out = OUT,
) -> None:
    """How often small audits of honest mechanisms put them above their claims, wrongly."""
    from experiments.audits import power, tightness

    makers, folder = _chosen(tightness.cases(classes, epsilon), only), create_output_folder(out)
    wrong = power.wrong(makers, audits, runs, confidence, _run_folder(keep, classes, epsilon))
    text, rows = _table(power.WRONG_HEAD, ((row.text(), row.to_dict()) for row in wrong))
    write_table(folder, ERRORS, text, ERRORS_NOTE, json=json, runs=runs, rows=rows)


CONTROLS = "audit-controls"

CONTROLS_NOTE = (
    "Versions broken on purpose, each audited so often until it is caught, wrong with probability "
    "at most 1e-6, or its runs are used up. No two audits share a run, nothing is resampled. At "
    "least: Clopper and Pearson's bound on the rate at 95 %. Runs of each world: median, and the "
    "most of any audit. Seconds of a processor for one audit on average, without compiling."
)


def audit_controls(
    audits: Annotated[int, typer.Option(help="Of each broken version.", min=1)] = 100,
    runs: Annotated[int, typer.Option(help="Of each world of an audit, at most.", min=512)] = 65536,
    only: Only = None,
    classes: Classes = 2,
    epsilon: Epsilon = 1.0,
    keep: Keep = None,
    json: Json = False,
    out: Out = OUT,
) -> None:
    """How often, and how soon, an audit catches each version that is broken on purpose."""
    from experiments.audits import power, tightness

    makers, folder = _chosen(tightness.cases(classes, epsilon), only), create_output_folder(out)
    caught = power.caught(makers, audits, runs, 1 - 1e-6, _run_folder(keep, classes, epsilon))
    text, rows = _table(power.CAUGHT_HEAD, ((row.text(), row.to_dict()) for row in caught))
    write_csv(folder, CONTROLS, rows)
    write_table(folder, CONTROLS, text, CONTROLS_NOTE, json=json, rows=rows)
