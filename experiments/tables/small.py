"""Small data: what the default does beside neighbours alone, where it trains a private model."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.tables.data import DELTA, TASKS, TableSplit, TableTask
from vicinal.predictors import IndKNNClassifier
from vicinal.reports._outcomes import auc_with_error


@dataclass(frozen=True, slots=True)
class SmallPlan:
    """A plan for few records.

    Attributes
    ----------
    n_records, n_public, n_queries : int
        Private records, public rows, answers planned for and asked.
    epsilon : float
        Of the guarantee.
    """

    n_records: int
    n_public: int
    n_queries: int
    epsilon: float


@dataclass(frozen=True, slots=True)
class SmallCell:
    """The default beside neighbours alone on one task and plan: public figures of public data.

    Attributes
    ----------
    share : float
        What "auto" gave the model; 0 where both are the same.
    accuracy, auc : float
        Of neighbours alone, over all runs; no AUC where all queries are of one class.
    accuracy_gain, auc_gain : float
        Of the default, less that.
    error : float
        Standard error of the gain in accuracy, from the spread over runs.
    """

    task: str
    plan: SmallPlan
    runs: int
    share: float
    accuracy: float
    accuracy_gain: float
    error: float
    auc: float | None
    auc_gain: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)


def small_cells(
    folder: Path, plans: Iterable[SmallPlan], n_answers: int, share: float | str = "auto"
) -> Iterator[SmallCell]:
    """Yield the cells of all plans; each has so many runs that about `n_answers` are judged."""
    listed = list(plans)
    for task in TASKS:
        if (folder / f"{task.file}.parquet").is_file():
            yield from _of_task(task, folder, listed, n_answers, share)


def _of_task(
    task: TableTask, folder: Path, plans: list[SmallPlan], n_answers: int, share: float | str
) -> Iterator[SmallCell]:
    splits: dict[tuple[int, int], TableSplit] = {}
    for plan in plans:
        runs = -(-n_answers // plan.n_queries)
        found = []
        for run in range(runs):
            place = run, plan.n_queries
            if place not in splits:
                splits[place] = TableSplit.of(task, folder, run, plan.n_queries)
            found.append(_compared(splits[place], plan, share, run))
            if not found[-1][0]:
                break
        yield _cell(task.name, plan, found)


def _compared(
    split: TableSplit, plan: SmallPlan, share: float | str, run: int
) -> tuple[float, npt.NDArray[Any]]:
    """Return the model's share, and (3, q): cases, and chances of neighbours and of the default."""
    part = replace(
        split,
        private=split.private[: plan.n_records],
        reference=split.reference[: plan.n_public],
    )
    X, R, Q = part.features("real", run)
    labels, people = part.cases[part.private].astype(int), part.subjects[part.private]
    chances, shares = [], []
    for trained in (0, share):
        classifier = IndKNNClassifier(
            [0, 1], plan.epsilon, DELTA, plan.n_queries, n_records=len(X),
            records_per_subject=split.records_per_subject, model_share=trained,
            simulation_seed=run,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # few public rows are the experiment's
            chances.append(classifier.fit(X, labels, people, R).predict_proba(Q)[:, 1])
        shares.append(classifier.model_share_)
    return shares[1], np.array([part.cases[part.queries], *chances])


def _cell(task: str, plan: SmallPlan, found: list[tuple[float, npt.NDArray[Any]]]) -> SmallCell:
    right = np.array([[((one[i] > 0.5) == one[0]).mean() for i in (1, 2)] for _, one in found])
    together = np.hstack([one for _, one in found])
    cases = together[0] > 0
    both = 0 < cases.sum() < len(cases)
    aucs = [auc_with_error(chances, cases)[0] for chances in together[1:] if both]
    gains = right[:, 1] - right[:, 0]
    error = float(gains.std(ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else 0.0
    return SmallCell(
        task, plan, len(found), found[0][0], float(right[:, 0].mean()), float(gains.mean()), error,
        *((aucs[0], aucs[1] - aucs[0]) if both else (None, None)),
    )  # fmt: skip


def every_plan(
    records: Iterable[int], public: Iterable[int], queries: Iterable[int], epsilons: Iterable[float]
) -> list[SmallPlan]:
    """Return all combinations."""
    return [SmallPlan(*each) for each in product(records, public, queries, epsilons)]


def _auc(cell: SmallCell) -> str:
    if cell.auc is None:
        return " | "
    return f"{cell.auc:.3f} | {cell.auc_gain:+.3f}"


def as_text(found: list[SmallCell]) -> str:
    """Return a Markdown table of the plans for which the default trains a model."""
    heads = (
        "table, target|records|public rows|T|epsilon|runs|share|accuracy|change|error|AUC|change"
    )
    lines = [f"| {heads.replace('|', ' | ')} |", "|---" * 12 + "|"]
    for cell in found:
        if cell.share:
            plan = cell.plan
            lines.append(
                f"| {cell.task} | {plan.n_records:,} | {plan.n_public} | {plan.n_queries} | "
                f"{plan.epsilon:g} | {cell.runs} | {cell.share:g} | {cell.accuracy:.3f} | "
                f"{cell.accuracy_gain:+.3f} | {cell.error:.3f} | {_auc(cell)} |"
            )
    without = sum(not cell.share for cell in found)
    return (
        "\n".join(lines) + f"\n\nNo model, so nothing changes, in {without} of {len(found)} cells."
    )
