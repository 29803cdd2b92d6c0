"""How good released numbers and sets of labels were, in noisy counts of people.

A person's row adds to one cell of every table, as for classes; src/vicinal/mechanisms/tally.md has
the proof. Numbers are counted by how far the answer was off, in bins up to a declared largest
error, so that no error counts for more than that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from vicinal._arrays import AnyArray, Bools, Floats, Places
from vicinal.store._noisy_figures import NoisyFigures
from vicinal.targets import LABELS, LOG, NUMBERS, LabelSets, Numbers, label_sets, numbers

LARGEST_ERROR = 0.25
"""Of the distance between the bounds: errors beyond count as this large."""

_SIDE = 8
"""Bins of errors on each side of 0, narrow near it: their squares are told with little noise."""


@dataclass(frozen=True, eq=False)
class NumberEvaluation(NoisyFigures):
    """Noisy counts of people by how far numbers were off, and what follows from them.

    Attributes
    ----------
    targets : list of str
        Names of p numbers.
    scale : {"linear", "log"}
        What errors are differences of: the numbers, or their logarithms.
    errors : float64 (p, b)
        People by answer less truth, with noise; may be below 0. Errors beyond the outer edges
        count in the outer bins.
    deviations : float64 (p, b)
        People by truth less `centre`, for the variance.
    error_edges, deviation_edges : float64 (p, b + 1)
        Edges of the bins.
    centre : float64 (p,)
        Means of the answers, which are public.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.store import NumberEvaluation
    >>> counts, edges = np.array([[1.8, 498.0, 503.1, -0.9]]), np.array([[-8.0, -2, 0, 2, 8]])
    >>> result = NumberEvaluation(
    ...     ["age"], "linear", counts, counts, edges, 2 * edges, np.zeros(1), 3.0, 0.05
    ... )
    >>> round(result.people)
    1002
    """

    targets: list[Any]
    scale: str
    errors: Floats
    deviations: Floats
    error_edges: Floats
    deviation_edges: Floats
    centre: Floats
    noise: float
    share: float

    @property
    def counts(self) -> Sequence[Floats]:
        """Errors and deviations."""
        return [self.errors, self.deviations]

    @property
    def people_and_error(self) -> tuple[float, float]:
        """The mean of the sums of all tables."""
        tables = np.concatenate([self.errors, self.deviations])
        return float(tables.sum(axis=1).mean()), self.noise * np.sqrt(tables.shape[1] / len(tables))

    def figures_of(self, counts: Sequence[Floats]) -> dict[str, float]:
        """Return RMSE, mean error and R2 of each target; R2 against the best constant."""
        people = max(float(np.concatenate(counts).sum(axis=1).mean()), 1e-9)
        figures = {}
        for i, target in enumerate(self.targets):
            bias, square = _moments(counts[0][i], self.error_edges[i], people)
            mean, spread = _moments(counts[1][i], self.deviation_edges[i], people)
            variance = spread - mean**2
            hidden = 3 * self.noise * _square_length(self.deviation_edges[i]) / people
            figures[f"{target} rmse"] = float(np.sqrt(square)) if square > 0 else np.nan
            figures[f"{target} mean_error"] = bias
            figures[f"{target} r2"] = (
                1 - max(square, 0.0) / variance if variance > hidden else np.nan
            )
        return figures


@dataclass(frozen=True, eq=False)
class LabelSetEvaluation(NoisyFigures):
    """Noisy counts of people by whether a label was true and whether it was given.

    Attributes
    ----------
    labels : list
        Names of c labels.
    tables : float64 (c, 2, 2)
        People by truth (rows) and answer (columns) of each label, with noise; may be below 0.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.store import LabelSetEvaluation
    >>> tables = np.array([[[700.4, 99.6], [50.2, 149.8]], [[448.0, 52.0], [103.0, 397.0]]])
    >>> result = LabelSetEvaluation(["left", "up"], tables, noise=4.0, share=0.1)
    >>> round(result.figures["up accuracy"][0], 2)
    0.84
    """

    labels: list[Any]
    tables: Floats
    noise: float
    share: float

    @property
    def counts(self) -> Sequence[Floats]:
        """All of them."""
        return [self.tables]

    @property
    def people_and_error(self) -> tuple[float, float]:
        """The mean of the sums of all tables."""
        return float(self.tables.sum() / len(self.tables)), self.noise * 2 / np.sqrt(
            len(self.tables)
        )

    def figures_of(self, counts: Sequence[Floats]) -> dict[str, float]:
        """Return the accuracy of all labels together, and accuracy and balanced one of each."""
        (tables,) = counts
        people = max(float(tables.sum() / len(tables)), 1e-9)
        right = np.clip((tables[:, 0, 0] + tables[:, 1, 1]) / people, 0, 1)
        figures = {"accuracy": float(right.mean())}
        for name, table, share in zip(self.labels, tables, right, strict=True):
            figures[f"{name} accuracy"] = float(share)
            sizes = table.sum(axis=1)
            enough = (sizes > 3 * np.sqrt(2) * self.noise).all()
            both = np.clip(np.diag(table) / np.where(enough, sizes, 1.0), 0, 1)
            figures[f"{name} balanced_accuracy"] = float(both.mean()) if enough else np.nan
        return figures


@dataclass(frozen=True, eq=False)
class ReleasedNumbers:
    """Predictions (a, p) that left, on the scale on which records are averaged; public."""

    target: Numbers
    targets: list[Any]
    answers: Floats
    largest: float

    @classmethod
    def of(cls, target: Numbers, answers: Floats, largest: float) -> Self:
        """Return predictions in units of the targets, put on that scale."""
        log = target.scale == LOG
        return cls(target, target.names, np.log(answers) if log else answers, largest)

    def checked(self, y: npt.ArrayLike | None, size: int) -> Floats:
        """Return true numbers (size, p), cut to the bounds, or raise InvalidInput. Private."""
        target, bounds = self.target, self.target.scaled_bounds
        scaled = numbers(y, size, target.bounds, log=target.scale == LOG)
        return bounds.low + (scaled + 1) / 2 * (bounds.high - bounds.low)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Errors, then deviations, of every target."""
        return (2 * _SIDE,) * (2 * len(self.targets))

    def cells(self, truth: AnyArray, places: Places) -> Places:
        """Return the cells of rows with true numbers (n, p), int64 (n, 2 p)."""
        error_edges, deviation_edges, centre = self._bins
        errors, deviations = self.answers[places] - truth, truth - centre
        columns = [
            np.searchsorted(edges[i, 1:-1], values[:, i], side="right")
            for values, edges in ((errors, error_edges), (deviations, deviation_edges))
            for i in range(len(self.targets))
        ]
        return np.stack(columns, axis=1).astype(np.int64).reshape(len(places), -1)

    def evaluation(self, tables: Sequence[Floats], noise: float, share: float) -> NumberEvaluation:
        """Return noisy tables by what they count."""
        counts, p = np.stack(tables), len(self.targets)
        return NumberEvaluation(
            self.targets, self.target.scale, counts[:p], counts[p:], *self._bins, noise, share
        )

    @property
    def _bins(self) -> tuple[Floats, Floats, Floats]:
        bounds = self.target.scaled_bounds
        ranges = bounds.high - bounds.low
        sides = np.arange(-_SIDE, _SIDE + 1) / _SIDE
        unit = np.sign(sides) * sides**2
        middle = (bounds.low + bounds.high) / 2
        centre = self.answers.mean(axis=0) if len(self.answers) else middle
        errors = np.outer(self.largest * ranges, unit)
        return errors, np.minimum(2 * self.largest, 1.0) / self.largest * errors, centre


@dataclass(frozen=True, eq=False)
class ReleasedLabelSets:
    """Sets of labels, int64 (a, c), that left; public."""

    labels: list[Any]
    answers: Places

    @classmethod
    def of(cls, target: LabelSets, answers: Places, _largest: float) -> Self:
        """Return sets of labels as they left."""
        return cls(target.names, answers)

    def checked(self, y: npt.ArrayLike | None, size: int) -> Bools:
        """Return true labels, bool (size, c), or raise InvalidInput. Private."""
        return label_sets(y, (size, len(self.labels)))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Truth and answer of every label."""
        return (4,) * len(self.labels)

    def cells(self, truth: AnyArray, places: Places) -> Places:
        """Return the cells of rows with true labels (n, c), int64 (n, c)."""
        return 2 * truth.astype(np.int64) + self.answers[places]

    def evaluation(
        self, tables: Sequence[Floats], noise: float, share: float
    ) -> LabelSetEvaluation:
        """Return noisy tables by what they count."""
        return LabelSetEvaluation(self.labels, np.reshape(tables, (-1, 2, 2)), noise, share)


RELEASED: dict[str, Callable[[Any, AnyArray, float], ReleasedNumbers | ReleasedLabelSets]] = {
    NUMBERS: ReleasedNumbers.of,
    LABELS: ReleasedLabelSets.of,
}
"""What left, by what records carry, of the target, all answers and the largest error."""


def _moments(counts: Floats, edges: Floats, people: float) -> tuple[float, float]:
    """Return mean and mean square of what was counted, as if even within a bin."""
    low, high = edges[:-1], edges[1:]
    squares = (low**2 + low * high + high**2) / 3
    return float(counts @ (low + high) / 2 / people), float(counts @ squares / people)


def _square_length(edges: Floats) -> float:
    """Return by how much unit noise on every count moves the sum of squares."""
    low, high = edges[:-1], edges[1:]
    return float(np.linalg.norm((low**2 + low * high + high**2) / 3))
