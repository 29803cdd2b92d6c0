"""Noisy gradients of softmax regression: Poisson batches, clipping per subject, exact noise.

Proof note: gradients.md. Sources: Abadi et al. 2016 (NoisySGD); Goodfellow 2015 (norms of gradients
that are outer products).

All summed quantities are integers. A record's features are an integer row u, the derivatives of its
loss with respect to the scores a vector e, and its gradient is the outer product of the two, of
norm |u| |e|. The vector e is scaled down to the clipping bound and rounded towards zero; the outer
product is exact.

Arguments of several functions: `integer_weights`, float64 (d, c), public weights in steps of 2^-18;
`sums`, int64 (d, c), sums of gradients in grid steps; `scores`, float64 (n, c), scores of n records
in integer steps; `score_unit`, value of one such step; `label` or `labels`, class indices, int32;
`rows`, int16 (n, d), integer features; `unclipped_factor`, the factor from derivatives to integers
e if a gradient is not clipped; `max_norm`, the clipping bound in grid steps. `noise` is the source
of the Gaussian noise.
"""

import math
from dataclasses import dataclass

import numpy as np

from vicinal import checks
from vicinal.arrays import Bools, Floats, Floats32, Ints, Ints32
from vicinal.compiled import compiled
from vicinal.errors import InvalidInput
from vicinal.mechanisms.noise_sources import BernoulliSource
from vicinal.mechanisms.planned_releases import FINE_SCALE, ReleaseCounter
from vicinal.noise.source import NoiseSource

# Largest number of subjects: with more, a sum of clipped gradients could overflow int64.
MAX_SUBJECTS = 1 << 24

# Largest number of grid steps in a clipping bound. MAX_SUBJECTS times this fits into int64.
_MAX_STEPS = 1 << 38

# Integers up to this are exact in float64, and so are their sums in any order.
_MAX_EXACT_FLOAT = 1 << 53

# Grid steps of a public weight of 1. Scores of integer rows are exact on this grid.
WEIGHT_STEPS = 1 << 18

# Bound on the size of a public weight, in steps of the grid: scores stay exact in float64.
_MAX_WEIGHT = 1 << 30

# Margin for the rounding errors of clipping, so that the bound is never exceeded.
_ROUNDING_MARGIN = 1 - 1e-9


class SubjectRows:
    """Integer features and targets of records, sorted by subject; private.

    - `rows`, float32 (n, d): integer features, of norm at most 8191, not all 0; stored as int16.
    - `targets`, int32: class index of every record, (n,), or vectors in steps of 2^-30, (n, c).
    - `slots`, int32 (n,): slot of every record's subject, 0 <= slot < `n_subjects`; a slot
      without records belongs to an erased subject.
    - `n_subjects`: number of subjects.

    Attributes: `starts`, int64 (n_subjects + 1,), the records of subject u are those from
    ``starts[u]`` to ``starts[u + 1] - 1``; `norms`, float64 (n,), Euclidean norms of the rows.

    Raises InvalidInput if there are more than :data:`MAX_SUBJECTS` subjects.
    """

    def __init__(self, rows: Floats32, targets: Ints32, slots: Ints32, n_subjects: int) -> None:
        if n_subjects > MAX_SUBJECTS:
            raise InvalidInput(f"The records must belong to at most {MAX_SUBJECTS} subjects.")
        order = np.argsort(slots, kind="stable")
        self.rows = rows.astype(np.int16)[order]
        self.targets = targets[order]
        counts = np.bincount(slots, minlength=n_subjects)
        self.starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
        self.norms = np.sqrt(np.einsum("ij,ij->i", self.rows, self.rows, dtype=np.int64))

    def __len__(self) -> int:
        """Return the number of subjects, also of those without records."""
        return len(self.starts) - 1


def round_weights(weights: Floats) -> Floats:
    """Return public `weights`, any shape, as integers in float64: steps of 2^-18, within +-2^30."""
    return np.asarray(np.clip(np.rint(weights * WEIGHT_STEPS), -_MAX_WEIGHT, _MAX_WEIGHT))


class NoisyGradient:
    """Mechanism that releases the noisy sum of clipped gradients of a new Poisson batch.

    The contribution of a subject in the batch is the gradient summed over its records, clipped to
    Euclidean norm `clip`. Gaussian noise of scale `sigma` times `clip` is added per coordinate.

    - `records`: the private records.
    - `n_classes`: number of classes c.
    - `unit`: number of integer steps of a feature with value 1.
    - `gamma`: probability with which each subject is in a batch.
    - `clip`: the clipping bound, for features in their own units.
    - `sigma`: the noise multiplier, 0.01 <= sigma <= 10^9.
    - `release_counter`: counter of the planned steps.
    - `sampler`: the source of the Poisson samples.

    Attributes: `steps`, grid steps in a clipping bound; `scale`, noise scale in grid steps.
    """

    def __init__(
        self,
        records: SubjectRows,
        n_classes: int,
        unit: float,
        gamma: float,
        clip: float,
        sigma: float,
        release_counter: ReleaseCounter,
        noise: NoiseSource,
        sampler: BernoulliSource,
    ) -> None:
        self.gamma = checks.check_real("gamma", gamma, above=0, maximum=1)
        self.clip = checks.check_real("clip", clip, above=0)
        self.steps, self.scale = choose_gradient_grid(sigma)
        self.release_counter = release_counter
        self.records = records
        self.n_classes = n_classes
        self._score_unit = 1 / (unit * WEIGHT_STEPS)
        self._unclipped_factor = self.steps / (self.clip * unit)
        self._noise = noise
        self._sampler = sampler

    def publish(self, weights: Floats) -> Floats:
        """Return a noisy sum of gradients in clipping bounds, float64 (d, c). It may be released.

        `weights`, float64 (d, c): public, finite weights; rounded to a grid of 2^-18 here. Raises
        PrivacyRefused, before any record is read, if all planned steps have been made.
        """
        self.release_counter.note_releases(1)
        sums = self.clip_and_sum(weights, self._sampler.bernoulli(self.gamma, len(self.records)))
        return np.asarray(self._noise.add_to(sums, self.scale) / self.steps)

    def clip_and_sum(self, weights: Floats, batch: Bools) -> Ints:
        """Return the sum of the clipped gradients of a batch, int64 (d, c), in grid steps; private.

        `weights`: see :meth:`publish`. `batch`, bool (subjects,): whether each subject is in it.
        """
        integer_weights = round_weights(weights)
        sums = np.zeros((self.records.rows.shape[1], self.n_classes), dtype=np.int64)
        counts = np.diff(self.records.starts)
        single_rows = self.records.starts[:-1][batch & (counts == 1)]
        # Few enough rows that sums of their integers are exact in float64, in any order.
        block_size = max(1, min(_MAX_EXACT_FLOAT // self.steps, 1 << 14))
        for start in range(0, len(single_rows), block_size):
            self._add_single_record_subjects(
                single_rows[start : start + block_size], integer_weights, sums
            )
        for subject in np.flatnonzero(batch & (counts > 1)):
            self._add_multirecord_subject(int(subject), integer_weights, sums)
        return sums

    def _add_single_record_subjects(
        self, row_indices: Ints, integer_weights: Floats, sums: Ints
    ) -> None:
        """Add the clipped gradients of subjects with one record each to `sums`.

        `row_indices`, int64 (k,): indices of their rows.
        """
        rows = self.records.rows[row_indices].astype(np.float64)
        residuals = rows @ integer_weights
        compute_clipped_residuals(
            residuals,
            self.records.targets[row_indices],
            self.records.norms[row_indices],
            self._score_unit,
            self._unclipped_factor,
            float(self.steps),
        )
        sums += (rows.T @ residuals).astype(np.int64)

    def _add_multirecord_subject(self, subject: int, integer_weights: Floats, sums: Ints) -> None:
        """Add the clipped gradient of the subject at slot `subject`, with several records."""
        own_records = slice(self.records.starts[subject], self.records.starts[subject + 1])
        rows = self.records.rows[own_records]
        residuals = rows.astype(np.float64) @ integer_weights
        add_clipped_gradient(
            residuals,
            rows,
            self.records.targets[own_records],
            self._score_unit,
            self._unclipped_factor,
            float(self.steps),
            sums,
        )


def choose_gradient_grid(sigma: float) -> tuple[int, int]:
    """Return the grid steps in a clipping bound, a power of two, and the noise scale in steps.

    `sigma`: noise scale in clipping bounds, 0.01 <= sigma <= 10^9; public, as is the result.
    """
    sigma = checks.check_real("sigma", sigma, minimum=1e-2, maximum=1e9)
    steps = min(_MAX_STEPS, 1 << math.floor(math.log2(FINE_SCALE / sigma)))
    # The logarithm may have been rounded up to an integer, which makes the grid too fine.
    steps = steps if math.ceil(sigma * steps) <= FINE_SCALE else steps >> 1
    return steps, math.ceil(sigma * steps)


@compiled
def compute_softmax_residuals(scores, label, score_unit):  # type: ignore[no-untyped-def]
    """Replace the scores of one record, (c,), by the derivatives of its softmax loss, in place."""
    max_score = scores.max()  # subtracted so that no exponential overflows
    total = 0.0
    for c in range(len(scores)):
        scores[c] = np.exp((scores[c] - max_score) * score_unit)
        total += scores[c]
    for c in range(len(scores)):
        scores[c] /= total
    scores[label] -= 1.0


@compiled
def compute_clipped_residuals(scores, labels, norms, score_unit, unclipped_factor, max_norm):  # type: ignore[no-untyped-def]
    """Replace scores by integer derivatives e of clipped gradients, in place.

    For each record the norm of the gradient, ``norms[i] * |e|``, is at most `max_norm`. The records
    belong to different subjects. `norms`, float64 (n,): norms of the integer rows.
    """
    for i in range(len(scores)):
        compute_softmax_residuals(scores[i], labels[i], score_unit)
        square = 0.0
        for c in range(scores.shape[1]):
            square += scores[i, c] * scores[i, c]
        size = norms[i] * math.sqrt(square)
        factor = unclipped_factor if unclipped_factor * size <= max_norm else max_norm / size
        for c in range(scores.shape[1]):
            scores[i, c] = np.trunc(scores[i, c] * factor * _ROUNDING_MARGIN)


@compiled
def sum_gradient(residuals, rows):  # type: ignore[no-untyped-def]
    """Return the gradient summed over one subject's records, float64 (d, c).

    `residuals`, float64 (n, c): derivatives of each record's loss with respect to its scores;
    overwritten by whole numbers of steps of 2^-30 or coarser ones.

    The sum is the same for every order of the records. A sum of arbitrary doubles would depend on
    the order, which erasures of other subjects can change: a store fills the rows of erased records
    with its last records. The derivatives are therefore rounded to multiples of 2^-30, so that
    every partial sum is exact (linear_model.md, "Contribution of u").
    """
    n_steps = float(1 << 30)
    # Times entries of rows, below 2^13, a sum of n derivatives stays below 2^53. For larger n the
    # steps are coarser, which depends on the number of the subject's records alone.
    while len(residuals) * n_steps > 2.0**40:
        n_steps /= 2
    gradient = np.zeros((rows.shape[1], residuals.shape[1]))
    for i in range(len(residuals)):
        for c in range(residuals.shape[1]):
            residuals[i, c] = np.rint(residuals[i, c] * n_steps)
        for j in range(rows.shape[1]):
            for c in range(residuals.shape[1]):
                gradient[j, c] += rows[i, j] * residuals[i, c]
    return gradient / n_steps


@compiled
def add_clipped_gradient(scores, rows, labels, score_unit, unclipped_factor, max_norm, sums):  # type: ignore[no-untyped-def]
    """Add the clipped gradient of a subject with several records to `sums`; overwrite `scores`."""
    for i in range(len(scores)):
        compute_softmax_residuals(scores[i], labels[i], score_unit)
    gradient = sum_gradient(scores, rows)
    size = math.sqrt((gradient * gradient).sum())
    factor = unclipped_factor if unclipped_factor * size <= max_norm else max_norm / size
    for j in range(rows.shape[1]):
        for c in range(scores.shape[1]):
            sums[j, c] += np.int64(gradient[j, c] * factor * _ROUNDING_MARGIN)


class NoisySize:
    """Mechanism that releases the number of subjects once, with Gaussian noise.

    `sigma`: standard deviation of the noise, in subjects; the sensitivity is 1.
    """

    def __init__(self, sigma: float, noise: NoiseSource) -> None:
        self.steps, self.scale = choose_gradient_grid(sigma)
        self._quota = ReleaseCounter(1, "sizes")
        self._noise = noise

    def publish(self, size: int) -> float:
        """Return the private number of subjects `size` with noise.

        Raises PrivacyRefused if called again.
        """
        self._quota.note_releases(1)
        (noisy,) = self._noise.add_to(np.array([size * self.steps], dtype=np.int64), self.scale)
        return int(noisy) / self.steps


@dataclass(frozen=True, slots=True, eq=False)
class NoisyTraining:
    """Training of softmax regression by a planned number of noisy gradient steps.

    - `gradient`: the mechanism of a step; its counter holds the number of planned steps.
    - `size`: the public number of subjects, or the mechanism that releases it.
    - `learning_rate`: length of a step for a mean gradient of one clipping bound.
    - `momentum`: fraction of the previous step that is added to the next.
    """

    gradient: NoisyGradient
    size: int | NoisySize
    learning_rate: float
    momentum: float

    def publish(self) -> tuple[float, Floats]:
        """Return the number of subjects used for means and the weights, float64 (d, c); public.

        Makes all planned steps. The weights are averaged over the second half of the steps; they
        are a function of the noisy sums, that is, post-processing.
        """
        gradient = self.gradient
        records = gradient.records
        if isinstance(self.size, NoisySize):
            released_size = self.size.publish(len(records))
        else:
            released_size = float(self.size)
        size = max(1.0, released_size)
        n_planned = gradient.release_counter.planned
        rate = self.learning_rate / (gradient.gamma * size)
        weights = np.zeros((records.rows.shape[1], gradient.n_classes))
        velocity = np.zeros_like(weights)
        weight_sum = np.zeros_like(weights)
        for step in range(n_planned):
            velocity = self.momentum * velocity + gradient.publish(weights)
            weights = weights - rate * velocity
            if step >= n_planned // 2:
                weight_sum += weights
        return size, weight_sum / (n_planned - n_planned // 2)
