"""Answers without end: accuracy by thousand answers, long after budgets are spent.

Queries come from the test part, again and again in new orders; each counts as a new one, as an
estimator answers it (a store would repeat its answer, at no cost).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.accuracy.methods import silenced
from experiments.accuracy.table import pipes
from vicinal._progress import Step
from vicinal.predictors import IndKNNClassifier, NoisySGDClassifier
from vicinal.reports._trials import Setting, Trial

WINDOW = 1000
"""Answers that an accuracy is taken over."""

WAYS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "neighbours alone": {"model_share": 0},
        "gate of earlier answers": {"model_share": 0, "reuse_predictions": "gate"},
        "private model": {"model_share": "auto"},
    }
)
"""Ways of Ind-KNN, by what is set beside the release of labels alone."""


@dataclass(frozen=True, slots=True)
class StreamRow:
    """One way through the stream.

    Attributes
    ----------
    way : str
        How queries are answered.
    planned : int or None
        Answers that were planned for; None where it makes no difference.
    epsilon : float
        The guarantee, for all answers.
    accuracies, asked : tuple of float
        Of every thousand answers: shares that are right, and that private records were asked.
    """

    way: str
    planned: int | None
    epsilon: float
    accuracies: tuple[float, ...]
    asked: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def work(planned: Sequence[int], total: int) -> int:
    """Return how many answers :func:`measure` gives, for a progress bar."""
    return total * (len(planned) * len(WAYS) + 1)


def measure(
    trial: Trial, epsilon: float, planned: Sequence[int], total: int, seed: int, step: Step
) -> list[StreamRow]:
    """Answer `total` queries, a multiple of a thousand, by every way and plan; seeded."""
    places = _order(len(trial.truth), total, seed)
    rows = []
    for plan in planned:
        for way, options in WAYS.items():
            setting = Setting(epsilon, plan)
            rows.append(_streamed(trial, setting, way, options, places, seed))
            step(total)
    model = NoisySGDClassifier(
        trial.classes, epsilon, n_records=len(trial.records), simulation_seed=seed
    ).fit(trial.records, trial.labels)
    right = (model.predict(trial.queries) == trial.truth)[places]
    accuracies = _by_window(right)
    step(total)
    return [*rows, StreamRow("NoisySGD", None, epsilon, accuracies, (0.0,) * len(accuracies))]


def _order(n_queries: int, total: int, seed: int) -> npt.NDArray[np.int64]:
    """Return places of queries: all of them in a random order, again and again."""
    generator = np.random.default_rng(seed)  # noqa: TID251 (public queries)
    rounds = [generator.permutation(n_queries) for _ in range(-(-total // n_queries))]
    return np.concatenate(rounds)[:total]


def _streamed(
    trial: Trial,
    setting: Setting,
    way: str,
    options: Mapping[str, Any],
    places: npt.NDArray[np.int64],
    seed: int,
) -> StreamRow:
    classifier = IndKNNClassifier(
        trial.classes, setting.epsilon, setting.delta, setting.n_queries, release="label",
        n_records=len(trial.records), simulation_seed=seed, **options,
    )  # fmt: skip
    with silenced():
        classifier.fit(trial.records, trial.labels, public=trial.reference)
        answers = classifier.query(trial.queries[places])
    right = classifier.classes_[answers.labels] == trial.truth[places]
    return StreamRow(
        way, setting.n_queries, setting.epsilon, _by_window(right), _by_window(answers.asked)
    )


def _by_window(found: npt.NDArray[np.bool_]) -> tuple[float, ...]:
    return tuple(found.reshape(-1, WINDOW).mean(axis=1).tolist())


def text_table(rows: Sequence[StreamRow]) -> str:
    """Return the accuracy of some thousands of answers, first to last, as Markdown reads it."""
    size = len(rows[0].accuracies)
    shown = [place for place in (1, 2, 4, 8, 16, 32, 64, 100, 128) if place < size] + [size]
    heads = [f"{place}" if place > 1 else "thousand 1" for place in shown]
    lines = [["way", "planned for", *heads, "mean of all", "asked"]]
    for row in rows:
        planned = "any" if row.planned is None else f"{row.planned:,}"
        single = [f"{row.accuracies[place - 1]:.3f}" for place in shown]
        means = [f"{np.mean(row.accuracies):.4f}", f"{np.mean(row.asked):.1%}"]
        lines.append([f"{row.way}, epsilon {row.epsilon:g}", planned, *single, *means])
    return pipes(lines)
