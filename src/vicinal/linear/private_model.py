"""A linear model, trained privately, that improves the answers of Ind-KNN.

The noisy gradients are releases of the same individual filter that charges for the votes: one
ledger, one guarantee. The trained model is public and has three uses without a further charge: a
metric for the neighbour search, votes that are added to the private votes, and the selection of
uncertain queries, which alone go to the private vote (*gate*).

Everywhere in this module: encoded rows, such as `X` (n, d), are integer features of a cosine
kernel, by which neighbours are searched. Model features are the D features of
:class:`ModelFeatures`, in integer steps; `model_features`, (n, D), are those of `X`, computed if
None. c is the number of scores: classes, or coordinates of a vector. A step of the training is one
gradient at the current `weights`, float64 (D, c), reals that are not yet rounded to the steps of
:class:`LinearModel`; its `release` has the noise scale and the charge rate. The grid steps of sums
are units of the integer noise. `slack` is the accountant of the delta that rounding to this grid
costs.

docs/decisions/0053-private-model.md has the measurements behind the constants.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np

from vicinal.arrays import AnyArray, Bools, FloatMatrix, Floats, Floats32, Ints16, Steps
from vicinal.errors import InvalidInput
from vicinal.ledger.memory import Account
from vicinal.linear.class_intercepts import ReleasedGradients, choose_row_stride
from vicinal.linear.descent import STEPS, KalmanWeights
from vicinal.linear.kernel_map import KERNEL_ARRAYS, IntegerRows
from vicinal.linear.losses import Predictions, TrainingLoss
from vicinal.linear.model_features import CHUNK, ModelFeatures, compute_scores, limit_blas_threads
from vicinal.mechanisms.gradients import WEIGHT_STEPS, SubjectRows, round_weights
from vicinal.mechanisms.linear_model import GradientRelease, IndividualGradient
from vicinal.mechanisms.noise_sources import NoiseSource, create_noise_source
from vicinal.mechanisms.subject_table import SubjectTable
from vicinal.mechanisms.votes import DeltaSlackAccountant
from vicinal.neighbours.kernels import FLOAT32, Cosine, int8_precision, quantise_directions
from vicinal.neighbours.scan import get_thread_count, map_in_threads

MAX_TRAINING_SHARE = 0.9
"""Maximum share of a subject's budget for training; chosen on the tuning set (decision 0053)."""

PRIVATE_VOTE_SHARE = 0.1
"""Share of queries that go to the private vote, those with the smallest margins."""

MIN_PUBLIC_ROWS = 10
"""Minimum public rows for "auto": the gate's margin is a quantile over them."""

MIN_CLIP, MAX_CLIP = 0.25, 1.0
"""Minimum and maximum clip, relative to a typical gradient norm (at most 1.5). Almost all gradients
are longer than the minimum, so a smaller clip would scale noise and signal equally."""

RECORDS_EXPONENT = 1.5
"""Planned charge of a subject with r records: r to this power times the charge of one record, as
the square of a gradient's or vote's norm grows.

Half-way between independent records, or ones that are never near the same query (1), and equal ones
(2). See docs/decisions/0008-automatic-plan.md for measurements on the data set `rwm5yr`.
"""

_OWN_ARRAYS = ("weights", "used", "doubts")
_INTERCEPTS = "intercepts"

MODEL_ARRAYS = (*_OWN_ARRAYS, _INTERCEPTS, *KERNEL_ARRAYS)
"""Names of the stored arrays of a trained model. Intercepts exist only if they were fitted, and the
last ones only with a kernel map."""

_METRIC_SCORE_NORM = 0.25  # mean norm of the centered scores, appended to features of norm 1

_ARRAYS_MISMATCH = (
    "The stored private model belongs to other public rows, or some of its arrays are missing."
)


@dataclass(frozen=True, slots=True, eq=False)
class LinearModel:
    """A linear model with public weights; the scores of a row depend on that row alone.

    `weights`, float64 (D, c): whole numbers, in steps of 2^-18. `features`: computes the D model
    features of a row.
    """

    weights: Floats
    features: ModelFeatures

    def __post_init__(self) -> None:
        """Raise InvalidInput unless the weights are whole numbers, one row per model feature."""
        # The compiled kernels do not check array bounds.
        if self.weights.ndim != 2 or len(self.weights) != self.features.width:
            raise InvalidInput("The weights must be those of a model of these features.")
        if not (round_weights(self.weights / WEIGHT_STEPS) == self.weights).all():
            raise InvalidInput("The weights must be whole numbers, in the range of exact sums.")

    def compute_scores(self, X: FloatMatrix) -> Floats:
        """Return the scores of `X`, float64 (n, c)."""
        empty = np.zeros((0, self.weights.shape[1]))
        return np.concatenate([empty, *(scores for *_, scores in self.iterate_scores(X))])

    def iterate_scores(
        self, X: FloatMatrix, model_features: Ints16 | None = None
    ) -> Iterator[tuple[int, IntegerRows, Floats]]:
        """Yield for each chunk of k rows its first index, unit vectors (k, d) and scores (k, c).

        The unit vectors, the rows of `X` in integer steps, are part of the metric.
        """

        def score_chunk(start: int) -> tuple[int, IntegerRows, Floats]:
            """Return the values to yield for the chunk of rows from index `start` on."""
            chunk = slice(start, start + CHUNK)
            rows: IntegerRows | Ints16
            if model_features is None:
                rows = self.features.encode_chunk_rows(X[chunk])
            else:
                rows = model_features[chunk]
            scores = compute_scores(rows, self.weights, self.features.steps_per_unit)
            return start, quantise_directions(X[chunk]), scores

        starts = range(0, len(X), CHUNK)
        n_threads = get_thread_count()
        for first in range(0, len(starts), n_threads):
            yield from map_in_threads(score_chunk, starts[first : first + n_threads])


class PrivateModel:
    """A trained model, calibrated on public rows; everything in it is public.

    - `public`, array (m, d): encoded public rows.
    - `spent_shares`, float64 (m,): share of a budget that each public row would have spent on the
      training if it were a private record.
    - `variance_directions`, float64 (D, r): posterior uncertainty of the weights, in whole steps,
      see :attr:`KalmanWeights.variance_directions`.
    - `intercepts`, float64 (c,): added to the scores of classes, see :mod:`.class_intercepts`. If
      None, class probabilities average the declared shares of `loss` over public rows.

    `score_std`: root mean square of the posterior standard deviation of public rows' scores.
    `typical_spent_share`: mean of `spent_shares` over the public rows that would go to the vote.
    """

    def __init__(
        self,
        model: LinearModel,
        public: FloatMatrix,
        spent_shares: Floats,
        loss: TrainingLoss,
        variance_directions: Floats,
        intercepts: Floats | None = None,
    ) -> None:
        self.model = model
        self.loss = loss
        self.variance_directions = variance_directions
        self.spent_shares = spent_shares
        self._n_scores = model.weights.shape[1]
        extended_weights = np.hstack([model.weights, variance_directions])
        self._extended_model = LinearModel(extended_weights, model.features)
        scores, posterior_std = self._split_scores(self._extended_model.compute_scores(public))
        self.score_std = math.sqrt(float(np.square(posterior_std).mean()))
        self._center = scores.mean(axis=0)
        norms = np.sqrt(np.square(scores - self._center).sum(axis=1))
        self._mean_norm = max(float(norms.mean()), 1e-12)
        self._intercepts = intercepts
        self._score_offsets = (
            loss.compute_score_offsets(scores) if intercepts is None else intercepts
        )
        margins = loss.compute_margins(loss.predict(scores + self._score_offsets))
        self._max_queried_margin = float(np.quantile(margins, PRIVATE_VOTE_SHARE))
        self.typical_spent_share = float(spent_shares[margins <= self._max_queried_margin].mean())

    @classmethod
    def from_arrays(
        cls,
        arrays: Mapping[str, AnyArray],
        public: FloatMatrix,
        loss: TrainingLoss,
        *,
        lifted: bool,
    ) -> Self:
        """Return the model restored from its stored :meth:`to_arrays`.

        `public`, `loss`: encoded public rows (m, d) and loss of its training. `lifted`: whether the
        last column of these rows was appended to give all of them the same norm. Raises
        InvalidInput if the arrays do not fit.
        """
        features = ModelFeatures.from_arrays(public, arrays, lifted=lifted)
        if not set(_OWN_ARRAYS) <= arrays.keys():
            raise InvalidInput(_ARRAYS_MISMATCH)
        weights, spent_shares, variance_directions = (arrays[name] for name in _OWN_ARRAYS)
        intercepts = arrays.get(_INTERCEPTS)
        width = features.width
        expected_shapes = [
            (weights, (width, loss.n_scores)),
            (spent_shares, (len(public),)),
            (variance_directions, (width, loss.count_variance_columns(width))),
        ]
        if intercepts is not None:
            expected_shapes.append((intercepts, (loss.n_scores,)))
        fits = (
            loss.fits_intercepts == (intercepts is not None)
            # The next comparisons fail for text and dates, later arithmetic for complex numbers.
            and all(
                array.dtype == np.float64 and array.shape == shape
                for array, shape in expected_shapes
            )
            and ((spent_shares >= 0) & (spent_shares <= 1)).all()
            and (intercepts is None or np.isfinite(intercepts).all())
        )
        if not fits:
            raise InvalidInput(_ARRAYS_MISMATCH)
        model = LinearModel(weights, features)
        return cls(model, public, spent_shares, loss, variance_directions, intercepts)

    def to_arrays(self) -> dict[str, AnyArray]:
        """Return the arrays from which :meth:`from_arrays` restores the model, by name."""
        own_arrays = self.model.weights, self.spent_shares, self.variance_directions
        named_arrays = dict(zip(_OWN_ARRAYS, own_arrays, strict=True))
        if self._intercepts is not None:
            named_arrays[_INTERCEPTS] = self._intercepts
        return {**named_arrays, **self.model.features.to_arrays()}

    def compute_metric_rows(self, X: FloatMatrix, model_features: Ints16 | None = None) -> Floats32:
        """Return `X` in the learned metric, float32 (n, d + c), see :meth:`map_rows`."""
        return self.map_rows(X, model_features)[0]

    def map_rows(
        self, X: FloatMatrix, model_features: Ints16 | None = None
    ) -> tuple[Floats32, Predictions]:
        """Return `X` in the learned metric, float32 (n, d + c), and the model's predictions.

        A row in the metric consists of the row's unit vector and its scaled scores.
        """
        n_features = X.shape[1]
        features = np.empty((len(X), n_features + self._n_scores), dtype=np.float32)
        values = np.empty((len(X), self._n_scores))
        posterior_std = np.empty(len(X))
        for start, rows, extended_scores in self._extended_model.iterate_scores(X, model_features):
            chunk = slice(start, start + len(rows))
            scores, posterior_std[chunk] = self._split_scores(extended_scores)
            features[chunk, :n_features] = rows / np.float32(FLOAT32.compute_unit_norm(n_features))
            metric_scale = _METRIC_SCORE_NORM / self._mean_norm
            features[chunk, n_features:] = (scores - self._center) * metric_scale
            values[chunk] = self.loss.predict(scores + self._score_offsets)
        uses_columns = self.model.features.kernel is None
        return features, Predictions(values, posterior_std, uses_columns)

    def predict(self, X: FloatMatrix) -> Floats:
        """Return class probabilities, above 0, or vectors, float64 (n, c), of `X`."""
        return self.loss.predict(self.model.compute_scores(X) + self._score_offsets)

    def _split_scores(self, extended_scores: Floats) -> tuple[Floats, Floats]:
        """Return scores (n, c), and one posterior standard deviation per row (n,).

        `extended_scores`, (n, c + r): scores, and products of features and `variance_directions`.
        """
        scores, deviations = np.split(extended_scores, [self._n_scores], axis=1)
        return scores, np.sqrt(np.square(deviations).sum(axis=1))

    def is_certain(self, predicted: Floats) -> Bools:
        """Return whether each of n predictions is certain enough without a private vote, bool (n,).

        It is if its margin (:meth:`TrainingLoss.compute_margins`) is above a quantile of those of
        public rows. `predicted`, (n, c): the result of :meth:`predict`.
        """
        return np.asarray(self.loss.compute_margins(predicted) > self._max_queried_margin)


def build_metric_kernel(public: FloatMatrix) -> Cosine:
    """Return the similarity kernel of the neighbour search in a model's metric.

    `public`, (m, d + c): public rows in the metric, which set the precision of integer features.
    """
    return Cosine(int8_precision(public))


@dataclass(eq=False)
class ModelGate:
    """Decides which queries go to the private vote, and which the public model answers alone.

    The decision depends on queries and public weights only. At most `max_private_queries` go to the
    vote, the number for which its noise was planned; `n_private_queries` have gone to it.
    """

    model: PrivateModel
    max_private_queries: int
    n_private_queries: int = 0

    def select_queries(self, predicted: Floats) -> Bools:
        """Return whether each query goes to the vote, bool (q,), and count those that do.

        `predicted`, (q, c): the model's class probabilities or vectors for the queries.
        """
        is_uncertain = ~self.model.is_certain(predicted)
        is_queried = is_uncertain & (
            np.cumsum(is_uncertain) <= self.max_private_queries - self.n_private_queries
        )
        self.n_private_queries += int(is_queried.sum())
        return np.asarray(is_queried)


@dataclass(frozen=True, slots=True, eq=False)
class TrainingBudget:
    """Budget and loss of the training of a private model; public.

    The scales of gradients: `clip` is the norm C to which a subject's gradient is clipped, and
    `record_clip` = C / `subject_norm_ratio` the part of it for each record of a typical subject.
    `step_noise` is the noise standard deviation sigma of a step's sum of gradients, in units of C,
    and `noise_std` = sigma C / n that of the mean gradient, in its own units.

    - `n_records`: public size estimate by which sums of gradients are divided.
    - `budget`: privacy budget of every subject, in zCDP.
    - `share`: maximum share of the budget that a subject spends on all trainings together.
    - `n_trainings`: number of planned trainings, each with an equal part of `share`.
    - `typical_charge_ratio`: charge of a typical subject, as a multiple of that of a single record.
    - `records_per_subject`: declared number of records of a subject.
    """

    n_records: int
    budget: float
    share: float
    n_trainings: int
    loss: TrainingLoss
    typical_charge_ratio: float
    records_per_subject: float

    @property
    def training_budget(self) -> float:
        """Maximum cost of one training for a subject, in zCDP."""
        return self.share / self.n_trainings * self.budget

    @property
    def subject_norm_ratio(self) -> float:
        """Typical norm of a subject's gradient, as a multiple of that of one of its records."""
        return float(math.sqrt(self.records_per_subject**RECORDS_EXPONENT))

    @property
    def step_noise(self) -> float:
        """Noise standard deviation of a gradient, in units of the clipping norm.

        It covers the worst case, a gradient of full length in every step. With less noise, subjects
        of rare classes would exhaust their budget early and be missing from the model.
        """
        return math.sqrt(STEPS / (2 * self.training_budget))

    def compute_clip(self, width: int) -> float:
        """Return the norm to which gradients of `width` features, bias included, are clipped."""
        # With clip C, the mean over all steps has noise variance C^2 / (2 training_budget n^2) on
        # each of width * n_scores entries, and its sampling variance is about
        # typical_residual_norm^2 / n over all entries. The loss fixes the ratio of the two.
        loss = self.loss
        n_entries = width * loss.n_scores
        equal_variance_clip = math.sqrt(2 * self.training_budget * self.n_records / n_entries)
        relative_clip = equal_variance_clip / math.sqrt(loss.sampling_to_noise_variance)
        return loss.typical_residual_norm * min(max(relative_clip, MIN_CLIP), MAX_CLIP)

    def build_mechanism(
        self, records: SubjectRows, unit: float, noise: NoiseSource, slack: DeltaSlackAccountant
    ) -> IndividualGradient:
        """Return the mechanism that charges subjects for gradients and adds the noise.

        `records`: private rows of model features; none on a coordinator. `unit`: integer steps per
        feature value of 1.
        """
        # Retrainings may use a subject's whole remaining budget, since none of it is reserved.
        max_share = self.share if self.n_trainings == 1 else 1.0
        n_scores = self.loss.n_scores
        clip = self.compute_clip(records.rows.shape[1])
        return IndividualGradient(
            records, n_scores, unit, clip, self.step_noise, max_share, self.budget, noise, slack
        )

    def check_delta_slack(
        self, width: int, slack: DeltaSlackAccountant, n_further_trainings: int
    ) -> None:
        """Raise PrivacyRefused if further trainings would exceed the limit of the `slack`.

        `width`: number of features with the bias. `n_further_trainings`: those to check, which the
        `slack` has not been charged for.
        """
        empty = build_empty_records(width)
        mechanism = self.build_mechanism(empty, 1.0, create_noise_source(), slack)
        mechanism.check_slack(self.step_noise, STEPS * n_further_trainings)


def build_empty_records(width: int) -> SubjectRows:
    """Return an empty set of records of `width` model features: its mechanism adds noise alone."""
    empty = np.zeros(0, dtype=np.int32)
    return SubjectRows(np.zeros((0, width), dtype=np.float32), empty, empty, 0)


class Gradients(Protocol):
    """A source of noisy gradients of all subjects, in this process or on shards."""

    mechanism: IndividualGradient
    """Determines the charge and the noise of a step."""

    def charge_and_publish(self, release: GradientRelease, weights: Floats) -> Floats:
        """Charge all subjects and return the noisy sum of their clipped gradients, (D, c).

        The sum is in units of the clipping norm.
        """


class LocalGradients:
    """Gradients of the records in this process; private.

    - `X`, `table`: encoded rows of the private records, and their targets and subjects.
    - `account`: the account that is charged; `table.remaining` is its array of budgets.
    """

    def __init__(
        self,
        training: TrainingBudget,
        features: ModelFeatures,
        X: FloatMatrix,
        table: SubjectTable,
        account: Account,
        noise: NoiseSource,
        slack: DeltaSlackAccountant,
    ) -> None:
        targets = training.loss.convert_targets(table.targets)
        rows = features.compute_rows(X)
        self._records = SubjectRows(rows, targets, table.slots, len(table.remaining))
        self.mechanism = training.build_mechanism(
            self._records, features.steps_per_unit, noise, slack
        )
        self._remaining = table.remaining
        self._account = account
        self._slots = table.slots

    @property
    def model_features(self) -> Ints16:
        """Model features of `X`, (n, D), in the order of `X`; they are stored by subject."""
        return self._records.rows[np.argsort(np.argsort(self._slots, kind="stable"))]

    def charge_and_sum(self, release: GradientRelease, weights: Floats) -> Steps:
        """Charge the subjects and return the sum of their clipped gradients, int64 (D, c).

        The sum is in grid steps, and private, as it has no noise yet.
        """
        sums, spent = release.contribute_and_charge(weights, self._remaining)
        self._account.note_charged_total(spent)
        return sums

    def charge_and_publish(self, release: GradientRelease, weights: Floats) -> Floats:
        """Charge the subjects and return the noisy sum; see :class:`Gradients`."""
        return release.publish(self.charge_and_sum(release, weights))


def train_private_model(
    training: TrainingBudget, features: ModelFeatures, public: FloatMatrix, gradients: Gradients
) -> PrivateModel:
    """Return a model trained on private records, whose subjects are charged for the gradients.

    `public`, (m, d): encoded public rows, which set the prior scales.
    """
    mechanism = gradients.mechanism

    def release_gradient(weights: Floats) -> tuple[Floats, float]:
        """Charge all subjects; return the noisy mean gradient, and the noise scale of the sum."""
        release = mechanism.prepare_release(training.step_noise)
        gradient = gradients.charge_and_publish(release, weights)
        return gradient * (mechanism.clip / training.n_records), release.noise

    return train_on_gradients(training, features, public, release_gradient)


def train_on_gradients(
    training: TrainingBudget,
    features: ModelFeatures,
    public: FloatMatrix,
    release_gradient: Callable[[Floats], tuple[Floats, float]],
) -> PrivateModel:
    """Return the model trained on :data:`STEPS` noisy gradients by a Kalman filter.

    `public`, (m, d): encoded public rows. `release_gradient`: called with the weights at every
    step; returns the public, noisy mean gradient, (D, c), and the noise standard deviation of the
    sum of gradients in units of the clipping norm.
    """
    with limit_blas_threads():  # threads gain nothing on such thin products
        rows = features.compute_rows(public)
        spent = np.zeros(len(rows))  # zCDP that each public row would have spent
        float_rows = rows.astype(np.float64)
        clip = training.compute_clip(features.width)
        n_records = training.n_records
        loss = training.loss
        # A subject's gradient is longer than that of one of its records: `typical_charge_ratio`.
        steps_per_unit = features.steps_per_unit
        squares_per_clip = training.typical_charge_ratio / (steps_per_unit * clip) ** 2
        feature_squares = np.square(float_rows).sum(axis=1) * squares_per_clip
        noise_std = training.step_noise * clip / n_records
        uses_kernel = features.kernel is not None
        score_std = loss.prior_component_score_std if uses_kernel else loss.prior_score_std
        blocks = list(zip(features.block_sizes, score_std, strict=True))
        # The longer the gradients of subjects are, the more clipping shortens those of records.
        record_clip = clip / training.subject_norm_ratio
        kalman = KalmanWeights(
            rows, steps_per_unit, blocks, loss, n_records, record_clip, noise_std
        )
        stride = choose_row_stride(len(rows), loss.n_scores, STEPS)
        bias = float(rows[0, -1]) / steps_per_unit
        step_scores = []
        intercept_gradients = []
        for _ in range(STEPS):
            scores = compute_scores(float_rows, round_weights(kalman.weights), steps_per_unit)
            gradient, noise_scale = release_gradient(kalman.weights)
            step_scores.append(scores[::stride].copy())  # a view would keep all scores
            intercept_gradients.append(gradient[-1] / bias)
            spent += loss.compute_gradient_squares(scores, feature_squares) / (2 * noise_scale**2)
            kalman.update(gradient)
        model = LinearModel(round_weights(kalman.weights), features)
        sampled_rows = float_rows[::stride]
        released = ReleasedGradients(
            np.array(intercept_gradients),
            noise_std / bias,
            np.array(step_scores),
            compute_scores(sampled_rows, model.weights, steps_per_unit),
            np.sqrt(np.square(sampled_rows).sum(axis=1)) / (steps_per_unit * clip),
            training.records_per_subject,
        )
        intercepts = loss.compute_intercepts(released)
    shares = np.minimum(spent / training.budget, training.share / training.n_trainings)
    variance_directions = round_weights(kalman.variance_directions)
    return PrivateModel(model, public, shares, loss, variance_directions, intercepts)
