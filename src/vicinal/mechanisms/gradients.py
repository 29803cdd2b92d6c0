"""Noisy gradients of softmax regression: Poisson batches, clipping by subject, exact noise.

Proof note: gradients.md. Sources: Abadi et al. 2016 (NoisySGD); Goodfellow 2015 (norms of gradients
that are outer products).

Everything that is summed is a whole number. A record's features are an integer row u, the
derivatives of its loss by the scores a vector e, and its gradient is the outer product of the two,
of norm |u| |e|: e is scaled down to the clipping bound, rounded towards zero, and the outer product
is exact.
"""

import math

import numpy as np

from vicinal import checks
from vicinal.arrays import Bools, Floats, Floats32, Ints, Ints32
from vicinal.compiled import compiled
from vicinal.errors import InvalidInput
from vicinal.mechanisms.noise_sources import BernoulliSource
from vicinal.mechanisms.planned_releases import FINEST, ReleaseCounter
from vicinal.noise.source import NoiseSource

MOST_SUBJECTS = 1 << 24  # with more subjects a sum of clipped gradients could overflow

# Steps in a clipping bound, at most: sums of MOST_SUBJECTS of them fit into int64.
_MOST_STEPS = 1 << 38

# Whole numbers below this are exact in float64, and so are their sums in any order.
_EXACT = 1 << 53

WEIGHT_STEPS = 1 << 18  # grid of the public weights: scores of integer rows are exact

_LARGEST_WEIGHT = 1 << 30

_INSIDE = 1 - 1e-9  # keeps the roundings of the clipping below the bound


class SubjectRows:
    """Integer records, those of a subject side by side. Private.

    - `rows`, float32 (n, d): integer features, of norm at most 8191, none all zero; kept as int16.
    - `labels`, int32: class index of every record, (n,), or its vector in steps of 2^-30, (n, c).
    - `slots`, int32 (n,): subject of every record, 0 <= slot < `n_subjects`; every subject has a
      record.
    - `n_subjects`: number of subjects.

    Raises InvalidInput if there are more than :data:`MOST_SUBJECTS`.
    """

    def __init__(self, rows: Floats32, labels: Ints32, slots: Ints32, n_subjects: int) -> None:
        if n_subjects > MOST_SUBJECTS:
            raise InvalidInput(f"The records must belong to at most {MOST_SUBJECTS} subjects.")
        order = np.argsort(slots, kind="stable")
        self.rows = rows.astype(np.int16)[order]
        self.labels = labels[order]
        counts = np.bincount(slots, minlength=n_subjects)
        self.starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
        self.norms = np.sqrt(np.einsum("ij,ij->i", self.rows, self.rows, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.starts) - 1


def whole_weights(weights: Floats) -> Floats:
    """Return public weights in steps of 2^-18, whole numbers in float64, in exact range."""
    return np.asarray(np.clip(np.rint(weights * WEIGHT_STEPS), -_LARGEST_WEIGHT, _LARGEST_WEIGHT))


class NoisyGradient:
    """The sum of the clipped gradients of a fresh Poisson batch, with Gaussian noise.

    Contribution: a subject in the batch adds the gradient summed over its records, clipped to
    Euclidean norm `clip`. Noise of scale `sigma` times `clip` is added to every coordinate.

    - `records`: who takes part.
    - `n_classes`: number of classes c.
    - `unit`: a feature of 1 is so many integer steps.
    - `gamma`: the probability with which each subject is in a batch.
    - `clip`: the clipping bound, in the features' own units.
    - `sigma`: the noise multiplier, 0.01 <= sigma <= 10^9.
    - `quota`: how many steps were planned.
    - `noise`, `source`: where randomness comes from.
    """

    def __init__(
        self,
        records: SubjectRows,
        n_classes: int,
        unit: float,
        gamma: float,
        clip: float,
        sigma: float,
        quota: ReleaseCounter,
        noise: NoiseSource,
        source: BernoulliSource,
    ) -> None:
        self.gamma = checks.check_real("gamma", gamma, above=0, most=1)
        self.clip = checks.check_real("clip", clip, above=0)
        self.steps, self.scale = gradient_grid(sigma)
        self.quota = quota
        self.records = records
        self.n_classes = n_classes
        self._unit = unit
        self._noise = noise
        self._source = source

    def publish(self, weights: Floats) -> Floats:
        """Take from the quota and return a noisy sum of gradients, float64 (d, c), over `clip`.

        `weights`, float64 (d, c): public weights, finite; rounded to a grid of 2^-18 here. Raises
        PrivacyRefused before any record is looked at, if another step was not planned.
        """
        self.quota.note_releases(1)
        sums = self.clip_and_sum(weights, self._source.bernoulli(self.gamma, len(self.records)))
        return np.asarray(self._noise.add_to(sums, self.scale) / self.steps)

    def clip_and_sum(self, weights: Floats, batch: Bools) -> Ints:
        """Return the sum of clipped gradients of a batch, int64 (d, c), in steps; still private.

        `batch`, bool (subjects,), says who is in it; `weights` as in :meth:`publish`.
        """
        integer_weights = whole_weights(weights)
        sums = np.zeros((self.records.rows.shape[1], self.n_classes), dtype=np.int64)
        counts = np.diff(self.records.starts)
        single = self.records.starts[:-1][batch & (counts == 1)]
        # So few at a time that sums of their whole numbers are exact in float64, in any order.
        chunk = max(1, min(_EXACT // self.steps, 1 << 14))
        for start in range(0, len(single), chunk):
            self._add_single(single[start : start + chunk], integer_weights, sums)
        for subject in np.flatnonzero(batch & (counts > 1)):
            self._add_several(int(subject), integer_weights, sums)
        return sums

    def _add_single(self, places: Ints, integer_weights: Floats, sums: Ints) -> None:
        """Add subjects of one record each, at `places`, by one product of whole numbers."""
        rows = self.records.rows[places].astype(np.float64)
        residuals = rows @ integer_weights
        norms = self.records.norms[places]
        clipped_residuals(
            residuals, self.records.labels[places], norms, 1 / (self._unit * WEIGHT_STEPS),
            self.steps / (self.clip * self._unit), float(self.steps),
        )  # fmt: skip
        sums += (rows.T @ residuals).astype(np.int64)

    def _add_several(self, subject: int, integer_weights: Floats, sums: Ints) -> None:
        """Add a subject with several records."""
        part = slice(self.records.starts[subject], self.records.starts[subject + 1])
        rows = self.records.rows[part]
        residuals = rows.astype(np.float64) @ integer_weights
        add_clipped(
            residuals, rows, self.records.labels[part], 1 / (self._unit * WEIGHT_STEPS),
            self.steps / (self.clip * self._unit), float(self.steps), sums,
        )  # fmt: skip


def gradient_grid(sigma: float) -> tuple[int, int]:
    """Return steps in a clipping bound, a power of two, and the noise scale in steps; public."""
    sigma = checks.check_real("sigma", sigma, least=1e-2, most=1e9)
    steps = min(_MOST_STEPS, 1 << math.floor(math.log2(FINEST / sigma)))
    # The logarithm may have been rounded up to a whole number.
    steps = steps if math.ceil(sigma * steps) <= FINEST else steps >> 1
    return steps, math.ceil(sigma * steps)


@compiled
def softmax_residuals(scores, label, per_score):  # type: ignore[no-untyped-def]
    """Turn the scores of one record into derivatives of its loss, in place."""
    top = scores.max()  # taken off, so that no exponential overflows
    total = 0.0
    for c in range(len(scores)):
        scores[c] = np.exp((scores[c] - top) * per_score)
        total += scores[c]
    for c in range(len(scores)):
        scores[c] /= total
    scores[label] -= 1.0


@compiled
def clipped_residuals(scores, labels, norms, per_score, factor, bound):  # type: ignore[no-untyped-def]
    """Turn scores (n, c) into whole numbers e, in place, with norms * |e| <= bound.

    Unclipped, e is `factor` times the derivative.
    """
    for i in range(len(scores)):
        softmax_residuals(scores[i], labels[i], per_score)
        square = 0.0
        for c in range(scores.shape[1]):
            square += scores[i, c] * scores[i, c]
        size = norms[i] * math.sqrt(square)
        scaled = factor if factor * size <= bound else bound / size
        for c in range(scores.shape[1]):
            scores[i, c] = np.trunc(scores[i, c] * scaled * _INSIDE)


@compiled
def summed_gradient(residuals, rows):  # type: ignore[no-untyped-def]
    """Return the gradient summed over one subject's records, float64 (d, c), in any order alike.

    `residuals`, float64 (n, c): derivatives of each record's loss by its scores; changed in place.

    A sum of any doubles would depend on the order of the records, which other subjects' erasures
    can set: a store fills holes with its last records. Derivatives are whole numbers of 2^-30 here,
    so that every partial sum is exact (linear_model.md, "What u adds").
    """
    grain = float(1 << 30)
    # Times entries of rows, below 2^13, that is at most 2^53. Coarser steps of a longer sum are as
    # good, and follow from the number of records alone.
    while len(residuals) * grain > 2.0**40:
        grain /= 2
    gradient = np.zeros((rows.shape[1], residuals.shape[1]))
    for i in range(len(residuals)):
        for c in range(residuals.shape[1]):
            residuals[i, c] = np.rint(residuals[i, c] * grain)
        for j in range(rows.shape[1]):
            for c in range(residuals.shape[1]):
                gradient[j, c] += rows[i, j] * residuals[i, c]
    return gradient / grain


@compiled
def add_clipped(scores, rows, labels, per_score, factor, bound, sums):  # type: ignore[no-untyped-def]
    """Add the clipped sum of all gradients of one subject to `sums` (d, c)."""
    for i in range(len(scores)):
        softmax_residuals(scores[i], labels[i], per_score)
    gradient = summed_gradient(scores, rows)
    size = math.sqrt((gradient * gradient).sum())
    scaled = factor if factor * size <= bound else bound / size
    for j in range(rows.shape[1]):
        for c in range(scores.shape[1]):
            sums[j, c] += np.int64(gradient[j, c] * scaled * _INSIDE)


class NoisySize:
    """How many subjects there are, once, with noise of scale `sigma` subjects.

    `sigma`: noise scale; one subject moves the number by 1. `noise`: where noise comes from.
    """

    def __init__(self, sigma: float, noise: NoiseSource) -> None:
        self.steps, self.scale = gradient_grid(sigma)
        self._quota = ReleaseCounter(1, "sizes")
        self._noise = noise

    def publish(self, size: int) -> float:
        """Take from the quota and return the noisy number."""
        self._quota.note_releases(1)
        (noisy,) = self._noise.add_to(np.array([size * self.steps], dtype=np.int64), self.scale)
        return int(noisy) / self.steps


class NoisyTraining:
    """Softmax regression by planned noisy steps; its weights may be published.

    `gradient`: a step, and how many were planned. `size`: the public number of subjects, or what
    releases it once. `learning_rate`, `momentum`: step on the mean gradient in units of the
    clipping bound, and how much of the last is kept.
    """

    def __init__(
        self, gradient: NoisyGradient, size: int | NoisySize, learning_rate: float, momentum: float
    ) -> None:
        self._gradient, self._size = gradient, size
        self._learning_rate, self._momentum = learning_rate, momentum

    def publish(self) -> tuple[float, Floats]:
        """Take all steps; return the number that means are taken by, and weights, float64 (d, c).

        The weights are averaged over the second half of the steps. All that follows from the noisy
        sums is post-processing.
        """
        gradient, expected = self._gradient, self._size
        records = gradient.records
        noisy_size = (
            float(expected) if isinstance(expected, int) else expected.publish(len(records))
        )
        size, planned = max(1.0, noisy_size), gradient.quota.planned
        rate = self._learning_rate / (gradient.gamma * size)
        weights = np.zeros((records.rows.shape[1], gradient.n_classes))
        velocity, total = np.zeros_like(weights), np.zeros_like(weights)
        for step in range(planned):
            velocity = self._momentum * velocity + gradient.publish(weights)
            weights = weights - rate * velocity
            if step >= planned // 2:
                total += weights
        return size, total / (planned - planned // 2)
