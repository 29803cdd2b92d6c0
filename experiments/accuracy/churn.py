"""A year in which people leave and come every month, under one budget for the whole year.

Ind-KNN erases who leaves and takes in who comes. A private model keeps what it learnt when it was
trained; trained anew now and then (`interactions` that share the budget, planned from the start) it
learns of newcomers, from smaller parts of everybody's budget. NoisySGD is trained anew from parts
of one budget: who stays is in every training.

With drift, a tenth of the first people are of the later half of the classes, and nine tenths of
those who come; queries are as the people of their month are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.accuracy.methods import silenced
from experiments.accuracy.retraining import share_of_each
from experiments.accuracy.table import pipes
from experiments.spread import mean_and_spread
from vicinal._progress import Step
from vicinal.errors import InvalidInput
from vicinal.predictors import IndKNNClassifier, NoisySGDClassifier
from vicinal.reports._trials import Trial

Places = npt.NDArray[np.int64]

MONTHS = 12
MOVING = 0.05
"""Share of the first people that leaves each month; as many come."""

EARLY, LATE = 0.1, 0.9
"""With drift, shares of the later classes: at first, and among those who come."""

TRAININGS = (1, 4, 12)
"""How often NoisySGD is trained in a year."""

REFRESHES = (1, 2, 4)
"""How often a private model is."""


@dataclass(frozen=True, slots=True, eq=False)
class Month:
    """Who is there, who left and came since the last month, and what is asked.

    Attributes
    ----------
    present, left, came, asked : int64 (n,)
        Places of records, and of queries.
    """

    present: Places
    left: Places
    came: Places
    asked: Places


@dataclass(frozen=True, slots=True)
class ChurnRow:
    """One way to keep up for a year, over all runs.

    Attributes
    ----------
    way : str
        What is done.
    accuracies, last : tuple of float
        Of all months, and of the last, one for every run.
    """

    way: str
    accuracies: tuple[float, ...]
    last: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values with means."""
        return {**asdict(self), "accuracy_mean": mean_and_spread(self.accuracies)[0]}


def year(trial: Trial, n_queries: int, seed: int, *, drift: bool) -> list[Month]:
    """Return the months of a year; half of the records are there at first, others come later."""
    generator = np.random.default_rng(seed)  # noqa: TID251 (public data)
    later = np.asarray(trial.classes)[len(trial.classes) // 2 :]
    people, queries = (_Pool(np.isin(y, later), generator) for y in (trial.labels, trial.truth))
    natural = float(people.late.mean())
    first, coming = (EARLY, LATE) if drift else (natural, natural)
    size = len(trial.labels) // 2
    present, none = people.drawn(size, first), np.zeros(0, dtype=np.int64)
    asked = queries.drawn(n_queries, float(people.late[present].mean()))
    months = [Month(present, none, none, asked)]
    for _ in range(MONTHS - 1):
        left = generator.choice(present, round(MOVING * size), replace=False)
        came = people.drawn(len(left), coming)
        present = np.sort(np.concatenate([np.setdiff1d(present, left), came]))
        asked = queries.drawn(n_queries, float(people.late[present].mean()))
        months.append(Month(present, left, came, asked))
    return months


class _Pool:
    """Rows of early and late classes, each drawn once."""

    def __init__(self, late: npt.NDArray[np.bool_], generator: Any) -> None:
        self.late = late
        self._waiting = [generator.permutation(np.flatnonzero(late == kind)) for kind in (0, 1)]

    def drawn(self, size: int, late: float) -> Places:
        """Return rows, sorted, of which so large a share is late; refuse if there are too few."""
        counts = (size - round(late * size), round(late * size))
        if any(len(rows) < n for rows, n in zip(self._waiting, counts, strict=True)):
            raise InvalidInput(
                "The 'queries' option must be smaller: the test part has too few queries of some "
                "classes for a year, each asked once."
            )
        found = [rows[:count] for rows, count in zip(self._waiting, counts, strict=True)]
        self._waiting = [r[count:] for r, count in zip(self._waiting, counts, strict=True)]
        return np.sort(np.concatenate(found))


def work(runs: int) -> int:
    """Return how many years :func:`measure` goes through, for a progress bar."""
    return runs * (1 + len(REFRESHES) + len(TRAININGS))


def measure(
    trials: Sequence[Trial], epsilon: float, n_queries: int, step: Step, *, drift: bool
) -> list[ChurnRow]:
    """Go through a year of each trial in every way; run r has noise seed r."""
    ways: list[tuple[str, Any]] = [("neighbours alone", (0, 1))]
    ways += [(f"private model, {_times(n)}", ("auto", n)) for n in REFRESHES]
    ways += [(f"NoisySGD, {_times(n)}", n) for n in TRAININGS]
    rows = []
    for way, what in ways:
        found = []
        for seed, trial in enumerate(trials):
            months = year(trial, n_queries, seed, drift=drift)
            run = _trained if isinstance(what, int) else _erased
            found.append([float(right.mean()) for right in run(trial, months, epsilon, what, seed)])
            step(1)
        means = tuple(float(np.mean(one)) for one in found)
        rows.append(ChurnRow(way, means, tuple(one[-1] for one in found)))
    return rows


def _times(trainings: int) -> str:
    return "trained once" if trainings == 1 else f"trained {trainings} times"


def _erased(
    trial: Trial, months: Sequence[Month], epsilon: float, how: tuple[Any, int], seed: int
) -> Iterator[npt.NDArray[np.bool_]]:
    """Yield which answers of each month are right, from Ind-KNN."""
    share, fits = how
    each = len(months) // fits
    classifier = None
    for place, month in enumerate(months):
        if place % each == 0:
            classifier = IndKNNClassifier(
                trial.classes, epsilon, n_queries=each * len(month.asked), release="label",
                n_records=len(month.present), interactions=fits, model_share=share,
                simulation_seed=seed + place,
            )  # fmt: skip
            records, labels = trial.records[month.present], trial.labels[month.present]
            with silenced():
                classifier.fit(records, labels, month.present, public=trial.reference)
        else:
            assert classifier is not None  # noqa: S101 (narrows the type)
            classifier.erase(month.left)
            classifier.add(trial.records[month.came], trial.labels[month.came], month.came)
        with silenced():
            yield classifier.predict(trial.queries[month.asked]) == trial.truth[month.asked]


def _trained(
    trial: Trial, months: Sequence[Month], epsilon: float, trainings: int, seed: int
) -> Iterator[npt.NDArray[np.bool_]]:
    """Yield the same from NoisySGD, trained so many times."""
    each = share_of_each(epsilon, 1e-5, trainings)
    model = None
    for place, month in enumerate(months):
        if place % (len(months) // trainings) == 0:
            size = len(month.present)
            model = NoisySGDClassifier(
                trial.classes, each, n_records=size, simulation_seed=seed + place
            ).fit(trial.records[month.present], trial.labels[month.present])
        assert model is not None  # noqa: S101 (narrows the type)
        yield model.predict(trial.queries[month.asked]) == trial.truth[month.asked]


def text_table(rows: Sequence[ChurnRow]) -> str:
    """Return rows as plain text that Markdown reads, too."""
    lines = [["way", "mean of the year", "last month"]]
    for row in rows:
        cells = [mean_and_spread(found) for found in (row.accuracies, row.last)]
        lines.append([row.way, *(f"{mean:.4f} ± {spread:.4f}" for mean, spread in cells)])
    return pipes(lines)
