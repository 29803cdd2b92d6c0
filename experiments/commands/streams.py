"""`stream`, `churn`: answers without end, and people who come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from experiments.commands.options import (
    OUT,
    Data,
    Out,
    Runs,
    benchmark,
    result_of,
    with_notes,
    write_table,
)
from vicinal.cli._options import Json
from vicinal.cli._output import output_folder, progress
from vicinal.errors import InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

    from vicinal._progress import Begin
    from vicinal.reports._trials import Trial

STREAM, CHURN = "stream", "churn"

SEEDED = (
    "Simulated with seeded noise on public data, without a guarantee. HOG features, half-whitened, "
    "100 components of 2,000 public rows; labels alone leave; delta 1e-5."
)
CHURN_NOTE = (
    "Half of the records are there at first. Each month 5 % of the first number leave and as many "
    "come, who were never there; one budget for the year, whatever is trained. Run r has split and "
    "noise seed r; ± is the standard deviation of one run."
)
DRIFT_NOTE = (
    "Drift: a tenth of the first people are of the later half of the classes, nine tenths of those "
    "who come; queries are as the people of their month are."
)

N_REFERENCE = 2000

Epsilon = Annotated[float, typer.Option(help="The guarantee.")]


def stream(
    data: Data = None,
    epsilon: Epsilon = 1.0,
    planned: Annotated[str, typer.Option(help="Answers planned for, as 4000,100000.")] = (
        "4000,100000"
    ),
    total: Annotated[int, typer.Option(help="Answers given, whole thousands.", min=1000)] = 100_000,
    json: Json = False,
    out: Out = OUT,
) -> None:
    """Accuracy by thousand answers, after all budgets are spent."""
    from experiments.accuracy import stream as streams

    if total % streams.WINDOW:
        raise InvalidInput(f"The 'total' option must be whole thousands. Got {total}.")
    plans = [int(part) for part in planned.split(",")]
    folder = output_folder(out)
    with progress(silent=json) as begin:
        (trial,) = _trials(data, 1, begin)
        step = begin("answers", streams.work(plans, total))
        rows = streams.measure(trial, epsilon, plans, total, 0, step)
    text = with_notes(streams.text_table(rows), SEEDED)
    write_table(folder, STREAM, result_of(STREAM, SEEDED, rows), text, json=json)


def churn(
    data: Data = None,
    epsilon: Epsilon = 1.0,
    queries: Annotated[int, typer.Option(help="Queries of a month.", min=1)] = 450,
    runs: Runs = 1,
    drift: Annotated[bool, typer.Option("--drift", help="Other people come than leave.")] = False,
    json: Json = False,
    out: Out = OUT,
) -> None:
    """A year in which 5 % leave and 5 % come each month, beside NoisySGD trained anew."""
    from experiments.accuracy import churn as years

    folder, name = output_folder(out), f"{CHURN}-drift" if drift else CHURN
    with progress(silent=json) as begin:
        trials = _trials(data, runs, begin)
        step = begin("years", years.work(runs))
        rows = years.measure(trials, epsilon, queries, step, drift=drift)
    notes = (SEEDED, CHURN_NOTE, *((DRIFT_NOTE,) if drift else ()))
    text = with_notes(years.text_table(rows), *notes)
    write_table(folder, name, result_of(name, " ".join(notes), rows), text, json=json)


def _trials(data: Path | None, runs: int, begin: Begin) -> list[Trial]:
    from vicinal.features import PublicMap
    from vicinal.reports._trials import split

    found = benchmark(data, begin)
    rest = len(found.test) - N_REFERENCE
    parts = [split(len(found.test), N_REFERENCE, rest, seed) for seed in range(runs)]
    return [found.trial(PublicMap(), part) for part in parts]
