"""The table of tables: every task, plan and contender, cell by cell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from experiments.tables.contenders import PLAIN, PRIVATE, TablePlan, probabilities
from experiments.tables.data import TASKS, TableSplit, TableTask
from vicinal.reports._outcomes import balanced_accuracy

EPSILONS = (0.5, 1.0, 2.0, 4.0)
QUERIES = (500, 2000)


@dataclass(frozen=True, slots=True)
class TableCell:
    """One contender on one split: public figures of public data.

    Attributes
    ----------
    epsilon : float or None
        None without privacy.
    accuracy, balanced, auc : float
        Of the likelier class; of the class that is likelier than its share; of the probabilities.
    """

    task: str
    method: str
    epsilon: float | None
    n_queries: int
    run: int
    accuracy: float
    balanced: float
    auc: float


def cells(
    folder: Path, runs: int, queries: tuple[int, ...], epsilons: tuple[float, ...], kept: Path
) -> Iterator[TableCell]:
    """Yield all cells; those in the file of lines `kept` are read, others are added to it."""
    known = {_place(cell): cell for cell in _read(kept)}
    there = [task for task in TASKS if (folder / f"{task.file}.parquet").is_file()]
    for run, n_queries, task in product(range(runs), queries, there):
        yield from _cells(task, folder, run, n_queries, epsilons, known, kept)


def _cells(
    task: TableTask, folder: Path, run: int, n_queries: int, epsilons: tuple[float, ...],
    known: dict[Any, TableCell], kept: Path,
) -> Iterator[TableCell]:  # fmt: skip
    split = None
    asked: list[tuple[str, float | None]] = [(name, None) for name in PLAIN]
    asked += [(name, epsilon) for epsilon in epsilons for name in PRIVATE]
    for name, epsilon in asked:
        place = (task.name, name, epsilon, n_queries, run)
        if place not in known:
            split = split or TableSplit.of(task, folder, run, n_queries)
            found = _cell(split, place)
            if found is None:
                continue
            known[place] = found
            with kept.open("a") as lines:
                lines.write(json.dumps(asdict(found)) + "\n")
        yield known[place]


def _cell(split: TableSplit, place: tuple[str, str, float | None, int, int]) -> TableCell | None:
    _, name, epsilon, n_queries, run = place
    prior = round(float(split.cases.mean()), 2)  # what a statistics office would print
    chances = probabilities(name, TablePlan(split, prior, epsilon or 0.0, n_queries, run))
    if chances is None:
        return None
    truth = split.cases[split.queries]
    return TableCell(
        *place,
        float(((chances > 0.5) == truth).mean()),
        balanced_accuracy(chances > prior, truth),
        float(roc_auc_score(truth, chances)),
    )


def _place(cell: TableCell) -> tuple[str, str, float | None, int, int]:
    return cell.task, cell.method, cell.epsilon, cell.n_queries, cell.run


def _read(kept: Path) -> Iterator[TableCell]:
    if kept.is_file():
        for line in kept.read_text().splitlines():
            yield TableCell(**json.loads(line))


def as_text(found: list[TableCell]) -> str:
    """Return a Markdown table: a row a task, plan and contender, means over runs."""
    lines = [
        "| table, target | T | method | " + " | ".join(f"epsilon {e:g}" for e in EPSILONS) + " |",
        "|---|---|---|" + "---|" * len(EPSILONS),
    ]
    for task in TASKS:
        for n_queries in sorted({cell.n_queries for cell in found}):
            for name in (*PLAIN, *PRIVATE):
                mine = [
                    cell
                    for cell in found
                    if (cell.task, cell.n_queries, cell.method) == (task.name, n_queries, name)
                ]
                if mine:
                    figures = " | ".join(_figures(mine, epsilon) for epsilon in EPSILONS)
                    lines.append(f"| {task.name} | {n_queries} | {name} | {figures} |")
    return "\n".join(lines)


def _figures(mine: list[TableCell], epsilon: float) -> str:
    """Return accuracy / balanced accuracy / AUC."""
    there = [cell for cell in mine if cell.epsilon in (None, epsilon)]
    if not there:
        return ""
    means = (np.mean([getattr(c, what) for c in there]) for what in ("accuracy", "balanced", "auc"))
    return " / ".join(f"{mean:.3f}".removeprefix("0") for mean in means)
