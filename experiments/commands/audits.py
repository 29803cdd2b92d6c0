"""`tightness` and other figures of audits: claims, faults, services."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from experiments.commands.options import OUT, Out, with_notes, write_table
from vicinal.cli._options import Epsilon, Json
from vicinal.cli._output import output_folder
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
    folder = output_folder(out)
    measured = cases.measured(makers, runs, seconds, _run_folder(keep, classes, epsilon))
    text, rows = _table(
        cases.text_row(""),
        ((cases.text_row(name, row), (name, row.to_dict())) for name, row in measured),
    )
    result = {"experiment": TIGHTNESS, "note": TIGHTNESS_NOTE, "rows": dict(rows)}
    write_table(folder, TIGHTNESS, result, with_notes(text, TIGHTNESS_NOTE), json=json)


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

    makers, folder = _chosen(tightness.cases(classes, epsilon), only), output_folder(out)
    wrong = power.wrong(makers, audits, runs, confidence, _run_folder(keep, classes, epsilon))
    text, rows = _table(power.WRONG_HEAD, ((row.text(), row.to_dict()) for row in wrong))
    result = {"experiment": ERRORS, "note": ERRORS_NOTE, "runs": runs, "rows": rows}
    write_table(folder, ERRORS, result, with_notes(text, ERRORS_NOTE), json=json)


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
    epsilon: Epsilon = 4.0,
    keep: Keep = None,
    json: Json = False,
    out: Out = OUT,
) -> None:
    """How often, and how soon, an audit catches each version that is broken on purpose."""
    from experiments.audits import power, tightness

    makers, folder = _chosen(tightness.cases(classes, epsilon), only), output_folder(out)
    caught = power.caught(makers, audits, runs, 1 - 1e-6, _run_folder(keep, classes, epsilon))
    text, rows = _table(power.CAUGHT_HEAD, ((row.text(), row.to_dict()) for row in caught))
    result = {"experiment": CONTROLS, "note": CONTROLS_NOTE, "rows": rows}
    write_table(folder, CONTROLS, result, with_notes(text, CONTROLS_NOTE), json=json)


SERVICE = "audit-service"

SERVICE_NOTE = (
    "A made-up store behind the real service, on this machine, every commit durable; chance puts "
    "the subject into half of the universes. Votes: a lower bound on mu, wrong with probability at "
    "most .05, against the claim. Times: how likely a request about somebody who is there takes "
    "longer than one about somebody who is not; .5 if times tell nothing. Other load on the "
    "machine adds noise to times."
)


def audit_service(
    pace: Annotated[
        str, typer.Option(help="Response intervals in ms, comma-separated; 0 for none.")
    ] = "0,25",
    universes: Annotated[int, typer.Option(help="Of a store.", min=50, max=500)] = 500,
    rounds: Annotated[int, typer.Option(help="How often each is asked.", min=1)] = 2,
    stores: Annotated[int, typer.Option(help="One after the other.", min=1)] = 1,
    epsilon: Epsilon = 4.0,
    json: Json = False,
    out: Out = OUT,
) -> None:
    """Two worlds over HTTP: what votes and response times of a real service give away."""
    from experiments.audits import service
    from vicinal.audit import IndKNNAudit

    folder = output_folder(out)
    try:
        paces = [float(part) for part in pace.split(",")]
    except ValueError:
        raise InvalidInput("The 'pace' parameter must hold numbers, comma-separated.") from None
    audit = IndKNNAudit(2, epsilon)
    found = [service.attacked(audit, each, universes, rounds, stores, 0.95) for each in paces]
    rows = [seen.to_dict() for seen in found]
    result = {"experiment": SERVICE, "note": SERVICE_NOTE, "rows": rows}
    write_table(
        folder, SERVICE, result, with_notes(service.text_table(found), SERVICE_NOTE), json=json
    )


ADVERSARIES = "audit-adversaries"

ADVERSARIES_NOTE = (
    "Adversaries in the manner of Chadha et al. 2024, on the installed code: what each chooses of "
    "the others' data, the neighbours and the queries; the rest is natural. Two queries whose "
    "votes leave. Private-kNN: gamma .15, k 8, noise .7; PATE: 50 teachers, noise 2. The claim "
    "is the same for all of them. Lower bounds are wrong with probability at most 1e-6."
)


def audit_adversaries(
    runs: Annotated[int, typer.Option(help="Of each world of each attack.", min=100)] = 50_000,
    seconds: Annotated[float, typer.Option(help="For one attack, at most.")] = 120.0,
    json: Json = False,
    out: Out = OUT,
) -> None:
    """What adversaries get of Private-kNN and PATE by what they choose, against the claim."""
    from experiments.audits import adversaries

    folder, measured = output_folder(out), adversaries.measured(runs, seconds)
    text, rows = _table(
        adversaries.text_row(), ((adversaries.text_row(row), row.to_dict()) for row in measured)
    )
    result = {"experiment": ADVERSARIES, "note": ADVERSARIES_NOTE, "rows": rows}
    write_table(folder, ADVERSARIES, result, with_notes(text, ADVERSARIES_NOTE), json=json)


ONE_RUN = "audit-one-run"

ONE_RUN_NOTE = (
    "Lower bounds at 95 %. Printed: Steinke, Nasr & Jagielski 2023; their rule, with delta, "
    "computed here; delta = 0: their rule without, which is ours there. Epsilon and mu: ours, by "
    "the recursion of Mahloujifar, Melis & Chaudhuri 2024 for the curve of (epsilon, delta), and "
    "of mu. Recursion: the latter, written a second time."
)


def audit_one_run(json: Json = False, out: Out = OUT) -> None:
    """What guesses of canaries prove, beside published figures and a second implementation."""
    from experiments.audits import one_run

    rows = one_run.compared()
    result = {
        "experiment": ONE_RUN,
        "note": ONE_RUN_NOTE,
        "rows": [row.to_dict() for row in rows],
    }
    text = with_notes(one_run.text_table(rows), ONE_RUN_NOTE)
    write_table(output_folder(out), ONE_RUN, result, text, json=json)
