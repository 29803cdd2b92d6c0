"""The table of tables: every task, plan and contender, cell by cell."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.tables.contenders import (
    MADE_UP,
    OURS,
    PLAIN,
    PRIVATE,
    RIVALS,
    TablePlan,
    probabilities,
)
from experiments.tables.data import TASKS, TableSplit, TableTask
from vicinal.reports import auc_with_error, balanced_accuracy


@dataclass(frozen=True, slots=True)
class TableCell:
    """One contender on one split: public figures of public data.

    Attributes
    ----------
    epsilon : float or None
        None without privacy.
    accuracy, balanced, auc : float
        Of the likelier class; of the class that is likelier than its share; of the probabilities.
    auc_error : float
        Standard error of the AUC, for the choice of queries.
    """

    task: str
    method: str
    epsilon: float | None
    n_queries: int
    run: int
    accuracy: float
    balanced: float
    auc: float
    auc_error: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)


def cells(
    folder: Path, runs: int, queries: tuple[int, ...], epsilons: tuple[float, ...],
    methods: tuple[str, ...], kept: Path, others: Iterable[Path] = (),
) -> Iterator[TableCell]:  # fmt: skip
    """Yield all cells: read from files of lines, or measured and added to the one `kept`."""
    known = known_cells([*others, kept])
    there = [task for task in TASKS if (folder / f"{task.file}.parquet").is_file()]
    for run, n_queries, task in product(range(runs), queries, there):
        asked: list[tuple[str, float | None]] = [(name, None) for name in PLAIN if name in methods]
        asked += [(name, epsilon) for epsilon in epsilons for name in PRIVATE if name in methods]
        yield from _cells(task, folder, run, n_queries, asked, known, kept)


def _cells(
    task: TableTask, folder: Path, run: int, n_queries: int, asked: list[tuple[str, float | None]],
    known: dict[Any, TableCell], kept: Path,
) -> Iterator[TableCell]:  # fmt: skip
    split = None
    for name, epsilon in asked:
        place = (task.name, name, epsilon, n_queries, run)
        if place not in known:
            split = split or TableSplit.of(task, folder, run, n_queries)
            found = _cell(split, place)
            if found is None:
                continue
            known[place] = found
            with kept.open("a") as lines:
                lines.write(json.dumps(found.to_dict()) + "\n")
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
        *auc_with_error(chances, truth),
    )


def known_cells(files: Iterable[Path]) -> dict[Any, TableCell]:
    """Return the cells of files of lines, by place; of two the later, and no line that was cut."""
    return {_place(cell): cell for file in files for cell in _read(file)}


def _place(cell: TableCell) -> tuple[str, str, float | None, int, int]:
    return cell.task, cell.method, cell.epsilon, cell.n_queries, cell.run


def _read(kept: Path) -> Iterator[TableCell]:
    text = kept.read_text() if kept.is_file() else ""
    for line in text.splitlines(keepends=True):
        if line.endswith("\n"):
            yield TableCell(**json.loads(line))


def as_text(found: list[TableCell]) -> str:
    """Return a Markdown table: a row a task, plan and contender, means over runs."""
    epsilons = sorted({cell.epsilon for cell in found if cell.epsilon is not None}) or [1.0]
    lines = [
        "| table, target | T | method | " + " | ".join(f"epsilon {e:g}" for e in epsilons) + " |",
        "|---|---|---|" + "---|" * len(epsilons),
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
                    figures = " | ".join(_figures(mine, epsilon) for epsilon in epsilons)
                    lines.append(f"| {task.name} | {n_queries} | {name} | {figures} |")
    return "\n".join(lines)


def ahead_as_text(found: list[TableCell]) -> str:
    """Return a Markdown table of the AUC beside the best private rival, on the same splits.

    A cell: ours / the rival's, and the mean difference with 1.96 of its standard errors over the
    splits, which share people. Splits are counted where not all were measured.
    """
    epsilons = sorted({cell.epsilon for cell in found if cell.epsilon is not None})
    runs = len({cell.run for cell in found if cell.method == OURS})
    lines = [
        "| table, target | T | " + " | ".join(f"epsilon {e:g}" for e in epsilons) + " |",
        "|---|---|" + "---|" * len(epsilons),
    ]
    places = dict.fromkeys((cell.task, cell.n_queries) for cell in found if cell.method == OURS)
    for task, size in sorted(places, key=_order):
        mine = [cell for cell in found if (cell.task, cell.n_queries) == (task, size)]
        shown = " | ".join(_ahead(mine, epsilon, runs) for epsilon in epsilons)
        lines.append(f"| {task} | {size} | {shown} |")
    return "\n".join(lines)


def references_as_text(found: list[TableCell]) -> str:
    """Return a Markdown table: what made-up references change of AUC, less real rows, same splits.

    A cell: the mean over all numbers of queries and epsilons, and its range over these.
    """
    aucs: dict[tuple[str, str], dict[Any, dict[int, float]]] = {}
    for cell in found:
        plan = aucs.setdefault((cell.task, cell.method), {})
        plan.setdefault((cell.n_queries, cell.epsilon), {})[cell.run] = cell.auc
    lines = [
        "| table, target | " + " | ".join(MADE_UP) + " |",
        "|---" * (1 + len(MADE_UP)) + "|",
    ]
    for task in dict.fromkeys(task.name for task in TASKS):
        pairs = [
            (aucs.get((task, base), {}), aucs.get((task, name), {}))
            for name, base in MADE_UP.items()
        ]
        if any(known and other for known, other in pairs):
            lines.append(f"| {task} | " + " | ".join(_changed(*pair) for pair in pairs) + " |")
    return "\n".join(lines)


def _changed(known: dict[Any, dict[int, float]], other: dict[Any, dict[int, float]]) -> str:
    changes = []
    for plan in known.keys() & other.keys():
        pairs = _pairs(other[plan], known[plan])
        if len(pairs):
            changes.append(float(np.mean(pairs[:, 0] - pairs[:, 1])))
    if not changes:
        return ""
    return f"{np.mean(changes):+.3f} ({min(changes):+.3f} to {max(changes):+.3f})"


def _order(place: tuple[str, int]) -> tuple[int, int]:
    return [task.name for task in TASKS].index(place[0]), place[1]


def _ahead(mine: list[TableCell], epsilon: float, runs: int) -> str:
    by_method: dict[str, dict[int, float]] = {name: {} for name in (OURS, *RIVALS)}
    for cell in mine:
        if cell.epsilon == epsilon and cell.method in by_method:
            by_method[cell.method][cell.run] = cell.auc
    ours = by_method.pop(OURS)
    pairs = [_pairs(ours, rival) for rival in by_method.values() if ours.keys() & rival.keys()]
    if not pairs:
        return ""
    closest = min(pairs, key=lambda pair: float(np.mean(pair[:, 0] - pair[:, 1])))
    apart = closest[:, 0] - closest[:, 1]
    told = " / ".join(f"{mean:.3f}".removeprefix("0") for mean in closest.mean(axis=0))
    if len(apart) == 1:
        return f"{told}: {apart[0]:+.3f} (one split)"
    reach = f"{1.96 * np.std(apart, ddof=1) / np.sqrt(len(apart)):.3f}".removeprefix("0")
    counted = "" if len(apart) == runs else f" ({len(apart)} splits)"
    return f"{told}: {np.mean(apart):+.3f} +- {reach}{counted}"


def _pairs(ours: dict[int, float], rival: dict[int, float]) -> npt.NDArray[np.float64]:
    """Return both AUCs, (runs, 2), of the splits that both were measured on."""
    return np.array([(ours[run], rival[run]) for run in sorted(ours.keys() & rival.keys())])


def _figures(mine: list[TableCell], epsilon: float) -> str:
    """Return accuracy / balanced accuracy / AUC, and the reach of its 95 % interval."""
    there = [cell for cell in mine if cell.epsilon in (None, epsilon)]
    if not there:
        return ""
    means = (np.mean([getattr(c, what) for c in there]) for what in ("accuracy", "balanced", "auc"))
    reach = 1.96 * np.sqrt(np.sum([cell.auc_error**2 for cell in there])) / len(there)
    figures = " / ".join(f"{mean:.3f}".removeprefix("0") for mean in means)
    return f"{figures} +- {reach:.3f}".replace("+- 0.", "+- .")
