"""What a private model is trained for: classes by softmax regression, vectors by least squares.

Everything that depends on what records carry stands here; features, steps and charges do not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from vicinal.arrays import Bools, Floats, Ints32, Places
from vicinal.linear.model_features import softmax
from vicinal.mechanisms.subject_table import RecordTargets, RecordVectors

AnyFloats = Floats | float
_KNOWN = 40.0  # votes that a model's probabilities are worth, were there no noise
_KNOWN_OF_COLUMNS = 160.0  # the same of a model of columns and trees
_UNLIKE = 0.1  # standard deviation of what neighbours are unlike a query, in shares
_ASTRAY = 0.04  # of what a model's vectors miss that neighbours could tell
_MOST = 1e4  # noise scales of votes that a model stands for: in grid steps these stay inside int64
_LEAST_SHARE = 1e-9
_LEAST_TOLD = 0.01  # of a model's votes, which noise does not take away
_ROUNDS = 50


@dataclass(frozen=True, slots=True, eq=False)
class Predictions:
    """What a model says of queries; public.

    `values`, float64 (q, c): probabilities, or vectors. `doubts`, float64 (q,): the standard
    deviation that training has left in a query's score. `of_columns`: whether the model is one of a
    table's columns and trees, whose neighbours tell little more.
    """

    values: Floats
    doubts: Floats
    of_columns: bool = False

    def __getitem__(self, some: Bools | Places | slice) -> Predictions:
        return Predictions(self.values[some], self.doubts[some], self.of_columns)


class TrainingLoss(ABC):
    """What is learnt of scores (n, c) and records; all of it public.

    `n_scores`: c. `residual`: how long the derivative of a typical record's loss by its scores is.
    `spread`: standard deviation of scores over public rows before anything is known, by columns and
    by trees. `spread_of_components`: by these alone. `scatter`: the variance that
    records have by themselves, over that of noise; the clip follows from it. `n_doubts`: directions
    whose part in what is not known of a score is told query by query, those with most of it.
    """

    n_scores: int
    residual: float
    spread: ClassVar[tuple[float, float]] = 0.5, 0.2
    spread_of_components: ClassVar[tuple[float]]
    scatter: ClassVar[float] = 8.0
    n_doubts: ClassVar[int] = 0

    def doubts_of(self, width: int) -> int:
        """Return how many doubts a model of so many features has; the last is of the rest."""
        return min(self.n_doubts, width) + 1

    @abstractmethod
    def targets(self, carried: RecordTargets) -> Ints32:
        """Return the targets of records as :class:`~vicinal.mechanisms.gradients.SubjectRows`."""

    @abstractmethod
    def curvature(self, scores: Floats, lengths: Floats) -> float:
        """Return the mean curvature of losses whose gradients are cut, in a score.

        `scores`, float64 (m, c), and `lengths`, float64 (m, 1), over the clip: of public rows.
        """

    @abstractmethod
    def squares(self, scores: Floats, squares: Floats) -> Floats:
        """Return mean squared lengths of cut gradients, float64 (m,); `squares`, (m,), of rows."""

    def shift(self, scores: Floats) -> Floats:
        """Return what is added to scores, float64 (c,), given those of public rows, (m, c)."""
        return np.zeros(scores.shape[1])

    @abstractmethod
    def predicted(self, scores: Floats) -> Floats:
        """Return what scores say of a query: probabilities, or a vector; float64 (q, c)."""

    @abstractmethod
    def margins(self, predicted: Floats) -> Floats:
        """Return how sure that is, float64 (q,): who is least sure asks the records."""

    @abstractmethod
    def votes(self, predicted: Predictions, noise: AnyFloats, expected: AnyFloats) -> Floats:
        """Return the votes that the model stands for, float64 (q, coordinates of a record).

        `noise`, float64 (q,): scales, in votes. `expected`, float64 (q,): records that take part.
        """

    @abstractmethod
    def joined(
        self, predicted: Floats, votes: Floats, released: Floats, queried: Bools, expected: Floats
    ) -> tuple[Floats, Floats | None]:
        """Return votes as if as many had voted as are expected, and probabilities.

        `votes` (q, w): of the model. `released`: with those of the records, where `queried`.
        """

    def noise_left(self, noise: AnyFloats, expected: AnyFloats, doubt: AnyFloats) -> AnyFloats:  # noqa: ARG002
        """Return the standard deviation of noise, that of training too, in :meth:`joined` votes."""
        return noise


@dataclass(frozen=True, slots=True, eq=False)
class ClassLoss(TrainingLoss):
    """The loss of softmax regression. `shares`, float64 (c,): of classes, declared or equal."""

    shares: Floats
    residual = 1.0
    spread_of_components = (2.0,)  # columns of a table say less of a class than embeddings do
    scatter = 2.0  # a rare class has the longest gradients

    @property
    def n_scores(self) -> int:  # type: ignore[override]
        return len(self.shares)

    def targets(self, carried: RecordTargets) -> Ints32:
        assert not isinstance(carried, RecordVectors)  # noqa: S101 (narrows the type)
        return carried

    def curvature(self, scores: Floats, lengths: Floats) -> float:
        chances = softmax(scores)
        # Labels are as the model expects them.
        uncut = (chances / np.maximum(np.sqrt(_missed(chances)) * lengths, 1.0)).sum(axis=1)
        curved = (chances * (1 - chances)).sum(axis=1) * uncut
        return float(curved.mean() / max(chances.shape[1] - 1, 1))

    def squares(self, scores: Floats, squares: Floats) -> Floats:
        chances = softmax(scores)
        cut = np.minimum(_missed(chances) * squares[:, None], 1.0)
        return np.asarray((chances * cut).sum(axis=1))

    def shift(self, scores: Floats) -> Floats:
        """Return what makes probabilities average the shares; nothing for equal ones.

        These are what is taken where none are declared.
        """
        shift = np.zeros(scores.shape[1])
        for _ in range(_ROUNDS if np.ptp(self.shares) else 0):
            means = softmax(scores + shift).mean(axis=0)
            shift += np.log(self.shares / np.maximum(means, _LEAST_SHARE))
        return shift

    def predicted(self, scores: Floats) -> Floats:
        return np.maximum(softmax(scores), _LEAST_SHARE)

    def margins(self, predicted: Floats) -> Floats:
        return margins_of(np.log(predicted))

    def votes(self, predicted: Predictions, noise: AnyFloats, expected: AnyFloats) -> Floats:
        """Return votes by what is known of both witnesses of how a query's class is distributed.

        The model's p is off as a Dirichlet distribution of :data:`_KNOWN` votes is; that of
        neighbours by their noise over their number, and by :data:`_UNLIKE`, as they are not the
        query. Each counts by its precision.
        """
        chances, known = predicted.values, _KNOWN_OF_COLUMNS if predicted.of_columns else _KNOWN
        spread = (1 - np.square(chances).sum(axis=1)) / (2 * (known + 1))
        return np.asarray(chances * _weight(spread, noise, expected)[:, None])

    def joined(
        self, predicted: Floats, votes: Floats, released: Floats, queried: Bools, expected: Floats
    ) -> tuple[Floats, Floats]:
        # Noise can outvote both; then the order of classes is the model's.
        both, chances = np.maximum(released, votes[queried] * _LEAST_TOLD), predicted.copy()
        chances[queried] = both / both.sum(axis=1, keepdims=True)
        # What as many neighbours would say as are expected: the model's own votes weigh more the
        # louder the noise is, so that leads of two queries could not be compared.
        return chances * expected[:, None], chances


@dataclass(frozen=True, slots=True, eq=False)
class VectorLoss(TrainingLoss):
    """Half the squared distance of scores from what a record's vector holds but for its weight.

    `n_scores`: what it holds. `weight`: the first coordinate of every record's vector. `residual`:
    how far a typical record's vector is from the mean of all.
    """

    n_scores: int
    weight: float
    residual: float
    spread_of_components = (0.5,)
    n_doubts = 64

    def targets(self, carried: RecordTargets) -> Ints32:
        assert isinstance(carried, RecordVectors)  # noqa: S101 (narrows the type)
        return np.ascontiguousarray(carried.steps()[:, 1:])

    def curvature(self, scores: Floats, lengths: Floats) -> float:  # noqa: ARG002
        return float((1 / np.maximum(self.residual * lengths, 1.0)).mean())

    def squares(self, scores: Floats, squares: Floats) -> Floats:  # noqa: ARG002
        return np.minimum(self.residual**2 * squares, 1.0)

    def predicted(self, scores: Floats) -> Floats:
        return np.clip(scores, -1.0, 1.0)

    def margins(self, predicted: Floats) -> Floats:
        return np.zeros(len(predicted))  # a square says nothing of how sure it is: all are asked

    def votes(self, predicted: Predictions, noise: AnyFloats, expected: AnyFloats) -> Floats:
        vectors = np.insert(predicted.values, 0, self.weight, axis=1)
        return np.asarray(vectors * self._weight(noise, expected, predicted.doubts)[:, None])

    def joined(
        self,
        predicted: Floats,  # noqa: ARG002 (votes say it, too)
        votes: Floats,
        released: Floats,
        queried: Bools,
        expected: Floats,
    ) -> tuple[Floats, None]:
        both = votes.copy()
        both[queried] = released
        # Averages stay what they are.
        return both * (expected / (expected + votes[:, 0] / self.weight))[:, None], None

    def noise_left(self, noise: AnyFloats, expected: AnyFloats, doubt: AnyFloats) -> AnyFloats:
        weight = self._weight(noise, expected, doubt)
        return np.hypot(noise, weight * doubt) * (expected / (expected + weight))

    def _weight(self, noise: AnyFloats, expected: AnyFloats, doubt: AnyFloats) -> Floats:
        return _weight(_ASTRAY**2 + np.square(doubt), noise, expected)


def _missed(chances: Floats) -> Floats:
    """Return squared lengths of the derivatives of softmax's loss, for each label, (m, c)."""
    return np.asarray(np.square(chances).sum(axis=1, keepdims=True) - 2 * chances + 1)


def _weight(spread: AnyFloats, noise: AnyFloats, expected: AnyFloats) -> Floats:
    """Return how many votes a model counts for beside neighbours, by both variances."""
    error = np.square(noise / expected) + _UNLIKE**2
    most = np.multiply(_MOST, noise)
    return np.asarray(np.minimum(expected * error / np.maximum(spread, _LEAST_SHARE), most))


def margins_of(scores: Floats) -> Floats:
    """Return the best score less the second best, (n,)."""
    best = np.partition(scores, -2, axis=1)
    return np.asarray(best[:, -1] - best[:, -2])
