"""Training losses of a private model: softmax regression for classes, least squares for vectors.

A loss covers everything that depends on the kind of record targets: gradients' curvature and
clipping, predictions, and how they are joined with noisy votes. Everything here is public.
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

# Chosen on ten plans of six data sets, and on eight tuning tables (decisions 0053 and 0073).
_DIRICHLET_VOTES = 40.0  # a model's probabilities vary like a Dirichlet distribution of these votes
_TABLE_DIRICHLET_VOTES = 160.0  # the same for a model of a table's columns and trees
_NEIGHBOUR_MISMATCH_STD = 0.1  # of neighbours' class shares or mean vector from the query's own
_VECTOR_MISFIT_STD = 0.04  # of a model's vectors from the query's own, without training noise
_MAX_VOTES_PER_NOISE = 1e4  # model votes per noise scale, at most: grid steps must fit into int64
_MIN_PROBABILITY = 1e-9  # lower bound of probabilities and variances before logarithm or division
_MIN_MODEL_VOTE_SHARE = 0.01  # share of the model's votes that noise cannot remove
_SHIFT_ITERATIONS = 50  # fixed-point iterations that match mean probabilities to class shares


@dataclass(frozen=True, slots=True, eq=False)
class Predictions:
    """Predictions of a private model for a batch of queries; public.

    `values`, float64 (q, c): class probabilities, or vectors. `doubts`, float64 (q,): posterior
    standard deviation of each query's score. `of_columns`: whether the model uses a table's columns
    and trees, to which neighbours add little information.
    """

    values: Floats
    doubts: Floats
    of_columns: bool = False

    def __getitem__(self, selection: Bools | Places | slice) -> Predictions:
        return Predictions(self.values[selection], self.doubts[selection], self.of_columns)


class TrainingLoss(ABC):
    """A loss of scores (n, c) and record targets; public.

    - `n_scores`: c.
    - `residual`: norm of the derivative of a typical record's loss by its scores.
    - `spread`: prior standard deviation of scores over public rows, by columns and by trees.
    - `prior_component_score_std`: the same by kernel components, which replace columns and trees.
    - `scatter`: ratio of the sampling variance of mean gradients to their noise variance, from
      which the clip follows.
    - `n_variance_directions`: posterior directions of largest variance, for which the variance of
      a score is computed per query; that of the remaining ones is averaged over public rows.
    """

    n_scores: int
    residual: float
    spread: ClassVar[tuple[float, float]] = 0.5, 0.2
    prior_component_score_std: ClassVar[tuple[float]]
    scatter: ClassVar[float] = 8.0  # an eighth: gradients of vectors are much alike (decision 0053)
    n_variance_directions: ClassVar[int] = 0

    def count_variance_columns(self, width: int) -> int:
        """Return the columns of :attr:`KalmanWeights.variance_directions` for `width` features."""
        return min(self.n_variance_directions, width) + 1

    @abstractmethod
    def convert_targets(self, targets: RecordTargets) -> Ints32:
        """Return targets in the form of :class:`~vicinal.mechanisms.gradients.SubjectRows`."""

    @abstractmethod
    def compute_curvature(self, scores: Floats, lengths: Floats) -> float:
        """Return the mean curvature, per score, of the loss with clipped gradients.

        `scores`, float64 (m, c): of public rows. `lengths`, float64 (m, 1): row norms in clips.
        """

    @abstractmethod
    def compute_gradient_squares(self, scores: Floats, row_squares: Floats) -> Floats:
        """Return the expected squared norm of each row's clipped gradient, in clips, float64 (m,).

        `scores`, (m, c), and `row_squares`, (m,): scores of rows and their squared norms in clips.
        """

    def compute_shift(self, scores: Floats) -> Floats:
        """Return the shift to add to all scores, float64 (c,), from public rows' scores, (m, c)."""
        return np.zeros(scores.shape[1])

    @abstractmethod
    def predict(self, scores: Floats) -> Floats:
        """Return class probabilities, or vectors, of scores; float64 (q, c)."""

    @abstractmethod
    def compute_margins(self, predicted: Floats) -> Floats:
        """Return the certainty of predictions, float64 (q,): the least certain go to the vote."""

    @abstractmethod
    def votes(self, predictions: Predictions, noise: AnyFloats, expected: AnyFloats) -> Floats:
        """Return the votes that represent the model's prediction, float64 (q, w).

        w: coordinates of a record's vote. `noise`: noise scales of the private votes, in votes.
        `expected`: expected number of neighbours. Both (q,) or one number.
        """

    @abstractmethod
    def join_votes(
        self, predicted: Floats, votes: Floats, released: Floats, queried: Bools, expected: Floats
    ) -> tuple[Floats, Floats | None]:
        """Return joined votes (q, w), scaled to the expected number of votes, and probabilities.

        `predicted`, (q, c): of the model. `votes`, (q, w): the model's. `released`: noisy sums of
        the model's and private votes, rows of the queries where `queried`, (q,), is true.
        `expected`, (q,): expected number of neighbours. Probabilities are None for vectors.
        """

    def noise_left(self, noise: AnyFloats, expected: AnyFloats, score_std: AnyFloats) -> AnyFloats:  # noqa: ARG002
        """Return the noise scale of :meth:`join_votes`; `score_std`: of scores, from training."""
        return noise


@dataclass(frozen=True, slots=True, eq=False)
class ClassLoss(TrainingLoss):
    """The loss of softmax regression. `shares`, float64 (c,): class shares, declared or equal."""

    shares: Floats
    residual = 1.0
    prior_component_score_std = (2.0,)  # larger than for columns: embeddings separate classes better
    scatter = 2.0  # a half: a rare class has the longest gradients and needs a larger clip

    @property
    def n_scores(self) -> int:  # type: ignore[override]
        return len(self.shares)

    def convert_targets(self, targets: RecordTargets) -> Ints32:
        assert not isinstance(targets, RecordVectors)  # noqa: S101 (narrows the type)
        return targets

    def compute_curvature(self, scores: Floats, lengths: Floats) -> float:
        probabilities = softmax(scores)
        # Labels are assumed to follow the model's probabilities.
        gradient_norms = np.sqrt(_compute_residual_squares(probabilities)) * lengths
        clip_factors = (probabilities / np.maximum(gradient_norms, 1.0)).sum(axis=1)
        curvatures = (probabilities * (1 - probabilities)).sum(axis=1) * clip_factors
        return float(curvatures.mean() / max(probabilities.shape[1] - 1, 1))

    def compute_gradient_squares(self, scores: Floats, row_squares: Floats) -> Floats:
        probabilities = softmax(scores)
        squares = _compute_residual_squares(probabilities) * row_squares[:, None]
        return np.asarray((probabilities * np.minimum(squares, 1.0)).sum(axis=1))

    def compute_shift(self, scores: Floats) -> Floats:
        """Return the shift with which mean probabilities over public rows equal `shares`.

        No shift for equal shares, since these also stand for shares that were not declared.
        """
        shift = np.zeros(scores.shape[1])
        for _ in range(_SHIFT_ITERATIONS if np.ptp(self.shares) else 0):
            means = softmax(scores + shift).mean(axis=0)
            shift += np.log(self.shares / np.maximum(means, _MIN_PROBABILITY))
        return shift

    def predict(self, scores: Floats) -> Floats:
        return np.maximum(softmax(scores), _MIN_PROBABILITY)

    def compute_margins(self, predicted: Floats) -> Floats:
        return subtract_second_best(np.log(predicted))

    def votes(self, predictions: Predictions, noise: AnyFloats, expected: AnyFloats) -> Floats:
        """Return the model's probabilities, weighted by their precision relative to the votes'.

        The model's probabilities have the variance of a Dirichlet distribution of
        :data:`_DIRICHLET_VOTES`. The shares of neighbours have the variance of their noise over
        their number, plus :data:`_NEIGHBOUR_MISMATCH_STD` squared.
        """
        probabilities = predictions.values
        dirichlet_votes = _TABLE_DIRICHLET_VOTES if predictions.of_columns else _DIRICHLET_VOTES
        variance = (1 - np.square(probabilities).sum(axis=1)) / (2 * (dirichlet_votes + 1))
        n_votes = _compute_model_votes(variance, noise, expected)
        return np.asarray(probabilities * n_votes[:, None])

    def join_votes(
        self, predicted: Floats, votes: Floats, released: Floats, queried: Bools, expected: Floats
    ) -> tuple[Floats, Floats]:
        # Noise can make joined votes negative; the model then decides the order of classes.
        joined = np.maximum(released, votes[queried] * _MIN_MODEL_VOTE_SHARE)
        probabilities = predicted.copy()
        probabilities[queried] = joined / joined.sum(axis=1, keepdims=True)
        # Scaled to the expected number of neighbours: the number of model votes grows with the
        # noise, so unscaled leads of two queries would not be comparable.
        return probabilities * expected[:, None], probabilities


@dataclass(frozen=True, slots=True, eq=False)
class VectorLoss(TrainingLoss):
    """Half the squared distance of scores from a record's vector, without its first coordinate.

    `n_scores`: number of the other coordinates. `weight`: the first coordinate, equal in all
    records. `residual`: typical distance of a record's vector from the mean of all.
    """

    n_scores: int
    weight: float
    residual: float
    prior_component_score_std = (0.5,)
    n_variance_directions = 64  # one mean variance for all queries misjudged the weight of votes

    def convert_targets(self, targets: RecordTargets) -> Ints32:
        assert isinstance(targets, RecordVectors)  # noqa: S101 (narrows the type)
        return np.ascontiguousarray(targets.steps()[:, 1:])

    def compute_curvature(self, scores: Floats, lengths: Floats) -> float:  # noqa: ARG002
        return float((1 / np.maximum(self.residual * lengths, 1.0)).mean())

    def compute_gradient_squares(self, scores: Floats, row_squares: Floats) -> Floats:  # noqa: ARG002
        return np.minimum(self.residual**2 * row_squares, 1.0)

    def predict(self, scores: Floats) -> Floats:
        return np.clip(scores, -1.0, 1.0)

    def compute_margins(self, predicted: Floats) -> Floats:
        return np.zeros(len(predicted))  # least squares give no certainty, so all go to the vote

    def votes(self, predictions: Predictions, noise: AnyFloats, expected: AnyFloats) -> Floats:
        vectors = np.insert(predictions.values, 0, self.weight, axis=1)
        n_votes = self._compute_vote_count(noise, expected, predictions.doubts)
        return np.asarray(vectors * n_votes[:, None])

    def join_votes(
        self,
        predicted: Floats,  # noqa: ARG002 (`votes` contain the predictions)
        votes: Floats,
        released: Floats,
        queried: Bools,
        expected: Floats,
    ) -> tuple[Floats, None]:
        joined = votes.copy()
        joined[queried] = released
        # All coordinates are scaled alike, so averages (ratios to the first one) do not change.
        return joined * (expected / (expected + votes[:, 0] / self.weight))[:, None], None

    def noise_left(self, noise: AnyFloats, expected: AnyFloats, score_std: AnyFloats) -> AnyFloats:
        n_votes = self._compute_vote_count(noise, expected, score_std)
        return np.hypot(noise, n_votes * score_std) * (expected / (expected + n_votes))

    def _compute_vote_count(self, noise: AnyFloats, expected: AnyFloats, score_std: AnyFloats) -> Floats:
        """Return how many votes the model counts for, given its scores' posterior deviation."""
        variance = _VECTOR_MISFIT_STD**2 + np.square(score_std)
        return _compute_model_votes(variance, noise, expected)


def _compute_residual_squares(probabilities: Floats) -> Floats:
    """Return squared norms of softmax's residual p - onehot(label) for each label, (m, c)."""
    norms = np.square(probabilities).sum(axis=1, keepdims=True)
    return np.asarray(norms - 2 * probabilities + 1)


def _compute_model_votes(variance: AnyFloats, noise: AnyFloats, expected: AnyFloats) -> Floats:
    """Return the number of votes of a model, by its precision relative to the neighbours'.

    `variance`: of the model's predictions. `noise`, `expected`: see :meth:`TrainingLoss.votes`.
    """
    neighbour_variance = np.square(noise / expected) + _NEIGHBOUR_MISMATCH_STD**2
    n_votes = expected * neighbour_variance / np.maximum(variance, _MIN_PROBABILITY)
    return np.asarray(np.minimum(n_votes, np.multiply(_MAX_VOTES_PER_NOISE, noise)))


def subtract_second_best(scores: Floats) -> Floats:
    """Return the lead of the best score over the second best in each row, (n,)."""
    best = np.partition(scores, -2, axis=1)
    return np.asarray(best[:, -1] - best[:, -2])
