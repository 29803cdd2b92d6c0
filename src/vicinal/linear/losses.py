"""Training losses of a private model: softmax regression for classes, least squares for vectors.

A loss covers everything that depends on the kind of record targets: gradients' curvature and
clipping, predictions, and how they are pooled with noisy votes, that is, averaged with weights
proportional to precision. Everything here is public, except the record targets.

Arguments of the methods:

- `scores`, float64 (n, c): those of n rows, one for each class or predicted coordinate.
- `feature_norms`, (n, 1), `feature_squares`, (n,): norms and squared norms of these rows' features,
  in units of the clipping norm.
- `predicted`, `values`, (q, c): class probabilities or vectors for q queries.
- `votes`, (q, w): the same as votes, with the w coordinates of a record's vote.
- `released`, (r, w): noisy sums of model and private votes of the r queries that went to the
  private vote; `is_queried`, bool (q,): whether a query did.
- `noise_std`, (q,) or one number: standard deviation of the noise on a sum of private votes.
- `n_expected`, (q,) or one number: expected number of private votes.
- `score_std`, (q,) or one number: posterior standard deviation of the model's scores.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from vicinal.arrays import Bools, Floats, Indices, Ints32
from vicinal.linear.class_intercepts import ReleasedGradients, fit_intercepts
from vicinal.linear.model_features import compute_residual_squares, softmax
from vicinal.mechanisms.subject_table import RecordTargets, RecordVectors

AnyFloats = Floats | float

# Chosen on ten plans of six data sets, and on eight tuning tables (decisions 0057 and 0073).
_DIRICHLET_VOTES = 40.0  # a model's probabilities vary like a Dirichlet distribution of these votes
_TABLE_DIRICHLET_VOTES = 160.0  # the same for a model of a table's columns and trees
# Standard deviations from the query's own class probabilities or target vector: of the class shares
# or the mean vector of its neighbours, and of the model's vector if trained without noise.
_NEIGHBOUR_MISMATCH_STD = 0.1
_VECTOR_MISFIT_STD = 0.04
_MAX_VOTES_PER_NOISE = 1e4  # model votes per noise scale, at most: grid steps must fit into int64
_MIN_PROBABILITY = 1e-9  # lower bound of probabilities and variances before logarithm or division
_MIN_MODEL_VOTE_SHARE = 0.01  # share of the model's votes that noise cannot remove
_OFFSET_ITERATIONS = 50  # fixed-point iterations that match mean probabilities to class shares


@dataclass(frozen=True, slots=True, eq=False)
class Predictions:
    """Predictions of a private model for a batch of queries; public.

    `values`, float64 (q, c): class probabilities, or vectors. `score_std`, float64 (q,): posterior
    standard deviation of each query's score. `uses_columns`: whether the model uses a table's
    columns and trees, to which neighbours add little information.
    """

    values: Floats
    score_std: Floats
    uses_columns: bool = False

    def __getitem__(self, selection: Bools | Indices | slice) -> Predictions:
        """Return the predictions for the queries of a `selection`: indices, mask or slice."""
        return Predictions(self.values[selection], self.score_std[selection], self.uses_columns)


class TrainingLoss(ABC):
    """A loss of scores (n, c) and record targets; public.

    - `n_scores`: c, the number of classes, or of predicted coordinates of a vector.
    - `typical_residual_norm`: norm of the derivative of a typical record's loss by its scores.
    - `prior_score_std`: prior standard deviation, over public rows, of the scores from columns and
      of those from trees.
    - `prior_component_score_std`: the same from kernel components, which replace both.
    - `sampling_to_noise_variance`: ratio of the sampling variance of mean gradients to the variance
      of their privacy noise at which the clip is set.
    - `n_variance_directions`: posterior directions of largest variance, for which the variance of
      a score is computed per query; that of the remaining ones is averaged over public rows.
    - `fits_intercepts`: whether intercepts of classes are fitted to the released gradients.
    """

    n_scores: int
    typical_residual_norm: float
    fits_intercepts: bool = False
    prior_score_std: ClassVar[tuple[float, float]] = 0.5, 0.2
    prior_component_score_std: ClassVar[tuple[float]]
    sampling_to_noise_variance: ClassVar[float] = 8.0  # measured for vectors in decision 0053
    n_variance_directions: ClassVar[int] = 0

    def count_variance_columns(self, width: int) -> int:
        """Return the number of columns that store the posterior variance of a score.

        One for each of the :attr:`n_variance_directions`, of which a model of `width` features with
        the bias has at most `width`, and one for the average of the rest.
        """
        return min(self.n_variance_directions, width) + 1

    @abstractmethod
    def convert_targets(self, targets: RecordTargets) -> Ints32:
        """Return the targets of the loss: class indices, int32 (n,), or vectors, int32 (n, c).

        Vectors are without their first coordinate, in steps of 2^-30. `targets`: class indices,
        int32 (n,), or sparse vectors of 1 + c coordinates, of n records; private.
        """

    @abstractmethod
    def compute_curvature(self, scores: Floats, feature_norms: Floats) -> float:
        """Return the mean second derivative of the loss with clipped gradients.

        The mean is over rows and independent scores.
        """

    @abstractmethod
    def compute_gradient_squares(self, scores: Floats, feature_squares: Floats) -> Floats:
        """Return the expected squared norm of each row's clipped gradient, (n,).

        The expectation is over possible targets; the unit is the squared clipping norm.
        """

    def compute_intercepts(self, released: ReleasedGradients) -> Floats | None:  # noqa: ARG002
        """Return the intercepts (c,) fitted to `released` gradients; None if none are fitted."""
        return None

    def compute_score_offsets(self, scores: Floats) -> Floats:
        """Return offsets (c,) to add to all scores, from `scores` of public rows: here zeros."""
        return np.zeros(scores.shape[1])

    @abstractmethod
    def predict(self, scores: Floats) -> Floats:
        """Return class probabilities, or vectors, float64 (n, c), for rows with these `scores`."""

    @abstractmethod
    def compute_margins(self, predicted: Floats) -> Floats:
        """Return the margin of each prediction, float64 (q,): its certainty."""

    @abstractmethod
    def convert_to_votes(
        self, predictions: Predictions, noise_std: AnyFloats, n_expected: AnyFloats
    ) -> Floats:
        """Return the model's predictions as votes, float64 (q, w), to be added to private votes.

        Each prediction is multiplied by its effective number of votes: `n_expected` times the
        variance of the mean private vote, noise included, over the variance of the prediction.
        """

    @abstractmethod
    def pool_votes(
        self, values: Floats, votes: Floats, released: Floats, is_queried: Bools, n_expected: Floats
    ) -> tuple[Floats, Floats | None]:
        """Return the pooled votes (q, w) and class probabilities (q, c), None for vectors.

        Pooled votes are scaled to about `n_expected` votes.
        """

    def compute_pooled_std(
        self,
        noise_std: AnyFloats,
        n_expected: AnyFloats,  # noqa: ARG002
        score_std: AnyFloats,  # noqa: ARG002
    ) -> AnyFloats:
        """Return the standard deviation of pooled votes' error, in votes: here of noise alone."""
        return noise_std


@dataclass(frozen=True, slots=True, eq=False)
class ClassLoss(TrainingLoss):
    """The loss of softmax regression.

    - `shares`, float64 (c,): class shares, declared or equal; equal ones count as not declared.
    - `fits_intercepts`: True for plans that release probabilities, False for labels alone.
    """

    shares: Floats
    fits_intercepts: bool = False
    typical_residual_norm = 1.0
    prior_component_score_std = (2.0,)  # embeddings separate classes better than columns do
    sampling_to_noise_variance = 2.0  # a rare class has the longest gradients: a larger clip

    @property
    def n_scores(self) -> int:  # type: ignore[override]
        """Number of classes c."""
        return len(self.shares)

    def convert_targets(self, targets: RecordTargets) -> Ints32:
        """Return the `targets`, which are class indices, int32 (n,)."""
        assert not isinstance(targets, RecordVectors)  # noqa: S101 (narrows the type)
        return targets

    def compute_curvature(self, scores: Floats, feature_norms: Floats) -> float:
        """Return the mean second derivative of the loss, if labels are distributed as predicted.

        The mean is over rows and the c - 1 degrees of freedom of class probabilities.
        """
        probabilities = softmax(scores)
        gradient_norms = np.sqrt(compute_residual_squares(probabilities)) * feature_norms
        clip_factors = (probabilities / np.maximum(gradient_norms, 1.0)).sum(axis=1)
        curvatures = (probabilities * (1 - probabilities)).sum(axis=1) * clip_factors
        return float(curvatures.mean() / max(probabilities.shape[1] - 1, 1))

    def compute_gradient_squares(self, scores: Floats, feature_squares: Floats) -> Floats:
        """Return expected squared norms of clipped gradients, (n,), with labels as predicted."""
        probabilities = softmax(scores)
        squares = compute_residual_squares(probabilities) * feature_squares[:, None]
        return np.asarray((probabilities * np.minimum(squares, 1.0)).sum(axis=1))

    def compute_intercepts(self, released: ReleasedGradients) -> Floats | None:
        """Return the intercepts (c,) that agree with the gradients and the declared shares.

        Fitted intercepts give the base rates of the private records. Declared shares are applied
        once, as the ratio to these rates: to shares that agree with the records, little is added.
        """
        if not self.fits_intercepts:
            return None
        intercepts = fit_intercepts(released)
        if np.ptp(self.shares) == 0:
            return intercepts
        base_rates = softmax(released.scores + intercepts).mean(axis=0)
        ratios = self.shares / np.maximum(base_rates, _MIN_PROBABILITY)
        return np.asarray(intercepts + np.log(ratios))

    def compute_score_offsets(self, scores: Floats) -> Floats:
        """Return offsets (c,) with which mean class probabilities of public rows equal `shares`.

        Zeros for equal shares, since these also stand for shares that were not declared.
        """
        offsets = np.zeros(scores.shape[1])
        for _ in range(_OFFSET_ITERATIONS if np.ptp(self.shares) else 0):
            means = softmax(scores + offsets).mean(axis=0)
            offsets += np.log(self.shares / np.maximum(means, _MIN_PROBABILITY))
        return offsets

    def predict(self, scores: Floats) -> Floats:
        """Return class probabilities (n, c), at least 1e-9."""
        return np.maximum(softmax(scores), _MIN_PROBABILITY)

    def compute_margins(self, predicted: Floats) -> Floats:
        """Return the lead of the best class's log probability over the second best's, (q,)."""
        return subtract_second_best(np.log(predicted))

    def convert_to_votes(
        self, predictions: Predictions, noise_std: AnyFloats, n_expected: AnyFloats
    ) -> Floats:
        """Return the model's class probabilities times their effective number of votes, (q, c).

        The variance of the probabilities is that of a Dirichlet distribution.
        """
        probabilities = predictions.values
        dirichlet_votes = _TABLE_DIRICHLET_VOTES if predictions.uses_columns else _DIRICHLET_VOTES
        variance = (1 - np.square(probabilities).sum(axis=1)) / (2 * (dirichlet_votes + 1))
        n_votes = _compute_model_votes(variance, noise_std, n_expected)
        return np.asarray(probabilities * n_votes[:, None])

    def pool_votes(
        self, values: Floats, votes: Floats, released: Floats, is_queried: Bools, n_expected: Floats
    ) -> tuple[Floats, Floats]:
        """Return the pooled votes, `n_expected` times probabilities, and these, both (q, c).

        Probabilities are the model's `values`, or the normalized `released` sums, where they exist;
        these are set to at least a small share of the model's `votes`.
        """
        # Noise can make pooled votes negative; the model then decides the order of classes.
        pooled = np.maximum(released, votes[is_queried] * _MIN_MODEL_VOTE_SHARE)
        probabilities = values.copy()
        probabilities[is_queried] = pooled / pooled.sum(axis=1, keepdims=True)
        # Scaled to the expected number of neighbours: the number of model votes grows with the
        # noise, so unscaled leads of two queries would not be comparable.
        return probabilities * n_expected[:, None], probabilities


@dataclass(frozen=True, slots=True, eq=False)
class VectorLoss(TrainingLoss):
    """Half the squared distance of scores from a record's vector, without its first coordinate.

    `n_scores`: number of the other coordinates. `weight`: the first coordinate, equal in all
    records. `typical_residual_norm`: typical distance of a record's vector from the mean of all.
    """

    n_scores: int
    weight: float
    typical_residual_norm: float
    prior_component_score_std = (0.5,)
    n_variance_directions = 64  # a single mean variance gave the votes of queries wrong weights

    def convert_targets(self, targets: RecordTargets) -> Ints32:
        """Return the `targets` without their first coordinate, int32 (n, c), in steps of 2^-30."""
        assert isinstance(targets, RecordVectors)  # noqa: S101 (narrows the type)
        return np.ascontiguousarray(targets.to_dense_steps()[:, 1:])

    def compute_curvature(self, scores: Floats, feature_norms: Floats) -> float:  # noqa: ARG002
        """Return the mean second derivative: 1, or less where typical gradients are clipped."""
        return float((1 / np.maximum(self.typical_residual_norm * feature_norms, 1.0)).mean())

    def compute_gradient_squares(self, scores: Floats, feature_squares: Floats) -> Floats:  # noqa: ARG002
        """Return the squared norms of clipped gradients of a typical residual, (n,)."""
        return np.minimum(self.typical_residual_norm**2 * feature_squares, 1.0)

    def predict(self, scores: Floats) -> Floats:
        """Return the predicted coordinates (n, c): the `scores`, clipped to [-1, 1]."""
        return np.clip(scores, -1.0, 1.0)

    def compute_margins(self, predicted: Floats) -> Floats:
        """Return zeros (q,): least squares give no certainty, so all queries go to the vote."""
        return np.zeros(len(predicted))

    def convert_to_votes(
        self, predictions: Predictions, noise_std: AnyFloats, n_expected: AnyFloats
    ) -> Floats:
        """Return the predicted vectors times their effective number of votes, (q, 1 + c).

        The constant first coordinate, which models do not predict, is inserted.
        """
        vectors = np.insert(predictions.values, 0, self.weight, axis=1)
        n_votes = self._compute_vote_count(noise_std, n_expected, predictions.score_std)
        return np.asarray(vectors * n_votes[:, None])

    def pool_votes(
        self,
        values: Floats,  # noqa: ARG002 (`votes` contain the predictions)
        votes: Floats,
        released: Floats,
        is_queried: Bools,
        n_expected: Floats,
    ) -> tuple[Floats, None]:
        """Return the pooled votes (q, 1 + c), and None.

        They are the model's `votes`, or the `released` sums, where they exist.
        """
        pooled = votes.copy()
        pooled[is_queried] = released
        # All coordinates are scaled alike, so averages (ratios to the first one) do not change.
        n_votes = n_expected + votes[:, 0] / self.weight
        return pooled * (n_expected / n_votes)[:, None], None

    def compute_pooled_std(
        self, noise_std: AnyFloats, n_expected: AnyFloats, score_std: AnyFloats
    ) -> AnyFloats:
        """Return the standard deviation of noise and of the model's posterior uncertainty, joined.

        The latter includes the prior's: it exceeds the effect of noise on a model that fits
        (fourfold for linear targets with 1,100 records and 5 features).
        """
        n_votes = self._compute_vote_count(noise_std, n_expected, score_std)
        private_share = n_expected / (n_expected + n_votes)
        return np.hypot(noise_std, n_votes * score_std) * private_share

    def _compute_vote_count(
        self, noise_std: AnyFloats, n_expected: AnyFloats, score_std: AnyFloats
    ) -> Floats:
        """Return the effective number of votes of a predicted vector, (q,) or one number."""
        variance = _VECTOR_MISFIT_STD**2 + np.square(score_std)
        return _compute_model_votes(variance, noise_std, n_expected)


def _compute_model_votes(
    variance: AnyFloats, noise_std: AnyFloats, n_expected: AnyFloats
) -> Floats:
    """Return the effective number of votes (:meth:`TrainingLoss.convert_to_votes`) of a prediction.

    It is (q,) or one number, not always whole, and limited to a multiple of `noise_std`.
    `variance`, (q,) or one number: of a predicted probability or coordinate.
    """
    neighbour_variance = np.square(noise_std / n_expected) + _NEIGHBOUR_MISMATCH_STD**2
    n_votes = n_expected * neighbour_variance / np.maximum(variance, _MIN_PROBABILITY)
    return np.asarray(np.minimum(n_votes, np.multiply(_MAX_VOTES_PER_NOISE, noise_std)))


def subtract_second_best(scores: Floats) -> Floats:
    """Return the largest minus the second largest of each row's `scores` (n, c), as (n,)."""
    best = np.partition(scores, -2, axis=1)
    return np.asarray(best[:, -1] - best[:, -2])
