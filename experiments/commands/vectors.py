"""`regression`, `several-labels`: private averages and labels of neighbours."""

from __future__ import annotations

import math
import time
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Annotated, Any

import typer

from experiments.commands.options import OUT, Out, with_notes, write_table
from vicinal.cli._options import Json
from vicinal.cli._output import output_folder, progress

if TYPE_CHECKING:
    from experiments.vectors.label_sets import LabelScore
    from experiments.vectors.numbers import NumberScore

EPSILONS = (0.5, 1.0, 2.0)
QUERIES = (500, 2000)
LABEL_EPSILONS = (0.5, 1.0, 2.0, 4.0)
_LABELS = (
    "Share of right answers, mean over labels, with its standard error over splits; by label at "
    "epsilon 1. T = 500, delta = 1e-5, 2,000 public rows without labels for Ind-KNN. Private-kNN "
    "has tau = the number of labels, which clips nobody, and the least noise that keeps epsilon. "
    "Simulated with seeded noise, without a guarantee."
)
_NUMBERS = (
    "R2 with its standard error over splits and, in brackets, root mean square error on the scale "
    "named, delta = 1e-5. All methods get the same columns, scaled by 2,000 public rows, and the "
    "declared bounds, to which predictions are cut. Simulated with seeded noise, without a "
    "guarantee. diffprivlib has a row where it is installed."
)


def regression(
    data: Annotated[Path, typer.Option(help="Folder with diamonds.parquet, gss_wages.parquet.")],
    runs: Annotated[int, typer.Option(help="Splits and seeds.", min=1)] = 2,
    only: Annotated[str, typer.Option(help="Methods whose names begin so.")] = "",
    table: Annotated[str, typer.Option(help="Tables whose names begin so.")] = "",
    json: Json = False,
    out: Out = OUT,
) -> None:
    """Predict prices and incomes privately, beside private linear models."""
    from experiments.vectors import numbers

    folder, start = output_folder(out), time.perf_counter()
    found: list[NumberScore] = []
    with progress(silent=json) as begin:
        every = (
            numbers.diamonds(data, "log"),
            numbers.diamonds(data, "linear"),
            numbers.wages(data),
        )
        tables = [each for each in every if each.name.startswith(table)]
        step = begin("splits", len(tables) * runs * len(QUERIES))
        for each in tables:
            for seed in range(runs):
                for n_queries in QUERIES:
                    found += numbers.scores(each, seed, n_queries, EPSILONS, only)
                    step(1)
    result = {"scores": [score.to_dict() for score in found], **_about("regression", start)}
    text = "\n\n".join(_number_table(found, each.name, n) for each in tables for n in QUERIES)
    write_table(folder, "regression", result, with_notes(text, _NUMBERS), json=json)


def _number_table(scores: list[NumberScore], table: str, n_queries: int) -> str:
    here = [score for score in scores if (score.table, score.n_queries) == (table, n_queries)]
    lines = [f"{table}, T = {n_queries}", f"{'':24}" + "".join(f"{e:>24g}" for e in EPSILONS)]
    for method in dict.fromkeys(score.method for score in here):
        cells = []
        for epsilon in (*EPSILONS,):
            mine = [s for s in here if s.method == method and s.epsilon in (epsilon, None)]
            cells.append(_number_cell(mine).rjust(24))
        lines.append(f"{method:24}" + "".join(cells))
    return "\n".join(lines)


def _number_cell(scores: list[NumberScore]) -> str:
    """Return mean R2, its standard error over splits, and mean error."""
    r2 = [score.r2 for score in scores]
    error = stdev(r2) / math.sqrt(len(r2)) if len(r2) > 1 else math.nan
    return f"{mean(r2):.3f} +- {error:.3f} ({mean(score.rmse for score in scores):.4g})"


def several_labels(
    data: Annotated[Path, typer.Option(help="Folder with nassCDS.parquet, gss_wages.parquet.")],
    runs: Annotated[int, typer.Option(help="Splits and seeds.", min=1)] = 2,
    json: Json = False,
    out: Out = OUT,
) -> None:
    """Answer several yes-or-no columns of real tables at once, beside Private-kNN."""
    from experiments.vectors import label_sets

    folder, start = output_folder(out), time.perf_counter()
    found: list[LabelScore] = []
    with progress(silent=json) as begin:
        tables = (label_sets.crashes(data), label_sets.households(data))
        step = begin("splits", len(tables) * runs)
        for table in tables:
            for seed in range(runs):
                found += label_sets.scores(table, seed, LABEL_EPSILONS)
                step(1)
    scores = [score.to_dict() for score in found]
    names = {table.name: list(table.labels) for table in tables}
    result = {"scores": scores, "labels": names, **_about("several-labels", start)}
    text = "\n\n".join(_label_table(found, name, labels) for name, labels in names.items())
    write_table(folder, "several-labels", result, with_notes(text, _LABELS), json=json)


def _label_table(scores: list[LabelScore], table: str, names: list[str]) -> str:
    here = [score for score in scores if score.table == table]
    lines = [f"{table}: {', '.join(names)}"]
    lines += [f"{'':32}" + "".join(f"{e:>16g}" for e in LABEL_EPSILONS)]
    for method in dict.fromkeys(score.method for score in here):
        mine = [score for score in here if score.method == method]
        cells = [
            _label_cell([float(s.right.mean()) for s in mine if s.epsilon in (epsilon, None)])
            for epsilon in LABEL_EPSILONS
        ]
        lines.append(f"{method:32}" + "".join(cell.rjust(16) for cell in cells))
        each = [s.right for s in mine if s.epsilon in (LABEL_EPSILONS[1], None)]
        by_label = [f"{mean(float(r[i]) for r in each):.3f}" for i in range(len(names))]
        lines.append(f"{'  by label':32}{' '.join(by_label)}")
    return "\n".join(lines)


def _label_cell(right: list[float]) -> str:
    error = stdev(right) / math.sqrt(len(right)) if len(right) > 1 else math.nan
    return f"{mean(right):.3f} +- {error:.3f}"


def _about(name: str, start: float) -> dict[str, Any]:
    from vicinal import __version__

    seconds = round(time.perf_counter() - start, 1)
    return {"experiment": name, "simulation": True, "seconds": seconds, "version": __version__}
