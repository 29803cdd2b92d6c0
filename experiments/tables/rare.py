"""What class shares, costs and a private model do for a rare class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.tables.data import DELTA, TASKS, TableSplit, TableTask
from vicinal.predictors import IndKNNClassifier
from vicinal.reports._outcomes import ClassFigures

SHARES = "shares"
"""Stands for the class shares of the table, to two digits."""

RULES: dict[str, dict[str, Any]] = {
    "most votes": {},
    "class_prior": {"class_prior": SHARES},
    "class_prior, cost='balanced'": {"class_prior": SHARES, "cost": "balanced"},
    "the same, labels alone": {"class_prior": SHARES, "cost": "balanced", "release": "label"},
    "model: its scores join the votes": {"model_share": "auto"},
    "model, class_prior": {"model_share": "auto", "class_prior": SHARES},
    "model, class_prior, cost='balanced'": {
        "model_share": "auto",
        "class_prior": SHARES,
        "cost": "balanced",
    },
}
"""Parameters of the classifier, by what the table calls them."""


@dataclass(frozen=True, slots=True)
class RuleCell:
    """One rule on one split: public figures of public data; None where labels alone leave."""

    task: str
    rule: str
    run: int
    accuracy: float
    balanced: float
    auc: float | None
    mean_probability: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)


def rule_cells(
    folder: Path, names: Iterable[str], runs: int, n_queries: int, epsilon: float
) -> Iterator[RuleCell]:
    """Yield the figures of all rules on the named tasks."""
    for task in TASKS:
        if task.name in names and (folder / f"{task.file}.parquet").is_file():
            for run in range(runs):
                yield from _of_split(
                    task, TableSplit.of(task, folder, run, n_queries), run, epsilon
                )


def _of_split(task: TableTask, split: TableSplit, run: int, epsilon: float) -> Iterator[RuleCell]:
    features = split.features("real", run)
    share = round(float(split.cases.mean()), 2)
    for name, options in RULES.items():
        given = {key: _meant(value, share) for key, value in options.items()}
        yield _cell(split, features, (task.name, name, run), epsilon, given)


def _meant(value: Any, share: float) -> Any:
    return (1 - share, share) if value is SHARES else value


def _cell(
    split: TableSplit, features: Any, place: tuple[str, str, int], epsilon: float, given: Any
) -> RuleCell:
    X, R, Q = features
    classifier = IndKNNClassifier(
        [0, 1], epsilon, DELTA, len(Q), n_records=len(X), simulation_seed=place[2],
        records_per_subject=split.records_per_subject, **{"model_share": 0, **given},
    )  # fmt: skip
    classifier.fit(X, split.cases[split.private].astype(int), split.subjects[split.private], R)
    answers = classifier.query(Q)
    truth = split.cases[split.queries].astype(int)
    chances = None if answers.votes is None else classifier.probabilities(answers)
    found = ClassFigures.of(answers.labels, truth, [0, 1], chances)
    auc = None if found.auc is None else found.auc.value
    mean = None if chances is None else float(chances[:, 1].mean())
    return RuleCell(*place, found.overall.accuracy, found.balanced.value, auc, mean)


def as_text(found: list[RuleCell]) -> str:
    """Return a Markdown table: a row a task and rule, means over runs."""
    lines = [
        "| table, target | rule | accuracy | balanced accuracy | AUC | mean probability |",
        "|---|---|---|---|---|---|",
    ]
    for task, rule in dict.fromkeys((cell.task, cell.rule) for cell in found):
        mine = [cell for cell in found if (cell.task, cell.rule) == (task, rule)]
        shown = ("accuracy", "balanced", "auc", "mean_probability")
        figures = " | ".join(_mean([getattr(cell, what) for cell in mine]) for what in shown)
        lines.append(f"| {task} | {rule} | {figures} |")
    return "\n".join(lines)


def _mean(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{np.mean(known):.3f}".removeprefix("0") if known else ""
