"""Noisy gradients of a linear model in the individual filter, charged by each subject's own norm.

The loss is that of softmax regression for records with classes, and half the squared distance for
records with vectors.

Proof note: linear_model.md. Sources: Feldman & Zrnic 2021, section 4 (full-batch gradients charged
by their own norm); Goodfellow 2015 (norms of gradients that are outer products).

All summed quantities are integers. A record's features are an integer row x, the derivatives of its
loss with respect to the scores are scaled to an integer vector e, and its gradient in grid steps is
the outer product x e^T, of norm |x| |e|. The *slot* of a subject is its index in the array
`remaining`. The *delta slack* of a step is the part of delta that pays for rounding its noise to
the grid; `slack_accountant` is its account, and `noise` the source of the noise.

Arguments that several functions have:

- `noise_std`: noise scale of a step, in clipping bounds; public.
- `scores`, (n, c): integer scores of n records.
- `rows`, int16 (n, d): their integer features; `squares`, int64 (n,): the squared norms of these.
- `sums`, int64 (d, c): sums of gradients in grid steps.
- `score_unit`, float: value of one step of an integer score.
- `targets`, int32 (n, 1) or (n, c): class indices, or target vectors in steps of 2^-30.
- `is_squared_loss`, bool: whether the targets are vectors.
- `remaining`, int64 (subjects,): remaining budget units by slot, charged in place.
- `unclipped_factor`, float: factor from derivatives of the loss to the integers e, and from the
  gradient of several records to grid steps, if the gradient is not clipped.
- `max_norm`, float: largest norm of a contribution, in grid steps.
- `rate`, float: units charged for a squared grid step of a contribution.
- `reserve`, int: units that training leaves to every subject.
- `prepared_weights`: integer weights in the layout of the engine of int16 products.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from vicinal import checks
from vicinal.accounting.budget import MAX_SCALE, UNITS, compute_unit_rate
from vicinal.accounting.charges import compute_charge
from vicinal.accounting.gaussian import compute_grid_slack
from vicinal.arrays import Floats, Ints, Ints32, Steps, Units
from vicinal.compiled import compiled
from vicinal.mechanisms.charging import LOW_BITS
from vicinal.mechanisms.gradients import SubjectRows, compute_softmax_residuals, sum_gradient
from vicinal.mechanisms.subject_table import UNIT
from vicinal.mechanisms.votes import MIN_SCALE, DeltaSlackAccountant
from vicinal.neighbours.engines.int16 import MAX_SUMMED_PRODUCTS, Int16Matrix, get_int16_products
from vicinal.neighbours.scan import get_thread_count, map_in_threads
from vicinal.noise.source import NoiseSource

# Largest number of grid steps in a clipping bound: the contributions that an int16 product adds up
# at once fit into int32.
_MAX_STEPS = (1 << 31) // MAX_SUMMED_PRODUCTS

# Rows of a block: both matrix products of a block find their data in the cache of a core.
_BLOCK_ROWS = 1024

# Largest norm of the integer weights of a class. With rows of norm up to 2^13 the scores stay below
# 2^30 and fit into int32.
_MAX_WEIGHT_NORM = 1 << 17

# Weights are rounded to steps of 2^-18 or coarser, since the model stores them in steps of 2^-18.
_MAX_WEIGHT_BITS = 18

# Subjects with several records that are processed at once. Their charges add up to less than 2^59.
_SUBJECT_BLOCK = 1 << 10

STEP = 1.0 / UNIT  # grid step of the records' target vectors

# Margin for the rounding errors of norms and quotients, which are below (c d + 8) 2^-53.
_ROUNDING_MARGIN = 1 - 1e-9

# Bound on the norm of a derivative vector, and so on its entries, which are stored as int16.
_MAX_INT16 = 32767.0

_LOG2_E = math.log2(math.e)
_LN_2 = math.log(2)


class IndividualGradient:
    """Mechanism that releases the noisy sum of all subjects' gradients, charged by their norms.

    The contribution of a subject is the gradient summed over its records, scaled down to norm
    `clip` and to its remaining budget for training, and rounded towards zero to whole grid steps.

    - `records`: the private records.
    - `n_scores`: number of scores c: of classes, or of coordinates of the target vectors.
    - `unit`: number of integer steps of a feature with value 1.
    - `clip`: the clipping bound, the largest norm of a contribution, in the features' units.
    - `max_noise`: the largest noise scale of any step, in clipping bounds; determines the grid.
    - `share`: largest share of a full budget that training may use, 0 < share <= 1.
    - `budget`: the zCDP that a subject's full budget stands for.

    Attributes: `steps_per_clip`, grid steps in a clipping bound; `reserve`, units of a full budget
    that training leaves to the subject; `squared_norms`, int64 (n,), of the integer rows;
    `single_record_slots` and `multirecord_slots`, int64: slots of the subjects with one and with
    several records.
    """

    def __init__(
        self,
        records: SubjectRows,
        n_scores: int,
        unit: float,
        clip: float,
        max_noise: float,
        share: float,
        budget: float,
        noise: NoiseSource,
        slack_accountant: DeltaSlackAccountant,
    ) -> None:
        self.clip = checks.check_real("clip", clip, above=0)
        max_noise = checks.check_real("max_noise", max_noise, above=0, maximum=MAX_SCALE)
        # A power of two, as fine as the integer arithmetic allows.
        self.steps_per_clip = min(
            _MAX_STEPS, 1 << math.floor(math.log2(MAX_SCALE / max(max_noise, 1.0)))
        )
        self.reserve = UNITS - math.floor(
            checks.check_real("share", share, above=0, maximum=1) * UNITS
        )
        self.n_scores = n_scores
        self.n_features = records.rows.shape[1]
        # Exact, because the norm of a row is at most 8191.
        self.squared_norms = np.rint(np.square(records.norms)).astype(np.int64)
        self._records = records
        self._is_squared_loss = records.targets.ndim > 1
        self._products = get_int16_products()
        counts = np.diff(records.starts)
        self.single_record_slots = np.flatnonzero(counts == 1)
        self.multirecord_slots = np.flatnonzero(counts > 1)
        self._single_rows = records.starts[self.single_record_slots]
        self.unit = unit
        self._budget = budget
        self._noise = noise
        self._slack_accountant = slack_accountant

    def prepare_release(self, noise_std: float) -> GradientRelease:
        """Return the prepared release of one training step, after charging its delta slack.

        Raises PrivacyRefused, before any subject is charged, if the slack exceeds its limit.
        """
        scale = self._convert_noise(noise_std)
        self._slack_accountant.charge([scale], self.n_features * self.n_scores)
        return GradientRelease(self, scale, compute_unit_rate(scale, self._budget))

    def check_slack(self, noise_std: float, n_releases: int) -> None:
        """Raise PrivacyRefused if the delta slack of `n_releases` steps would exceed the limit."""
        slack_per_coordinate = compute_grid_slack(self._convert_noise(noise_std))
        slack_per_release = self.n_features * self.n_scores * slack_per_coordinate
        self._slack_accountant.check_slack(n_releases * slack_per_release)

    def _convert_noise(self, noise_std: float) -> int:
        """Return the noise scale in grid steps, rounded up and within the limits of arithmetic."""
        noise_steps = checks.check_real("noise", noise_std, above=0) * self.steps_per_clip
        return max(MIN_SCALE, math.ceil(min(noise_steps, MAX_SCALE)))


@dataclass(frozen=True, slots=True)
class GradientRelease:
    """Release of one training step: contribution, charge and noise from the same scale.

    `mechanism`: the private records and the grid. `scale`: noise scale in grid steps. `rate`: units
    charged for a squared step at that scale, rounded up.
    """

    mechanism: IndividualGradient
    scale: int
    rate: float

    @property
    def noise(self) -> float:
        """The noise scale in clipping bounds, on the grid and within its limits; public."""
        return self.scale / self.mechanism.steps_per_clip

    def contribute_and_charge(self, weights: Floats, remaining: Units) -> tuple[Steps, int]:
        """Return the sum of all gradients and the sum of all charges; both private.

        The gradients, int64 (d, c), are in grid steps and may be released only through
        :meth:`publish`; the charges are in units. `weights`, float64 (d, c): public, finite
        weights; rounded to a grid here.
        """
        mechanism = self.mechanism
        integer_weights, weight_step = _round_weights(weights)
        prepared_weights = mechanism._products.prepare(integer_weights)
        score_unit = weight_step / mechanism.unit
        tasks = np.array_split(
            np.arange(0, len(mechanism.single_record_slots), _BLOCK_ROWS), get_thread_count()
        )
        results = map_in_threads(
            lambda starts: self._charge_single_record_subjects(
                starts, prepared_weights, score_unit, remaining
            ),
            [task for task in tasks if len(task)],
        )
        zeros = np.zeros(weights.shape[::-1], dtype=np.int64)
        transposed_sums = sum((task_sums for task_sums, _ in results), zeros)
        sums = np.ascontiguousarray(transposed_sums.T)
        spent = sum(cost for _, cost in results)
        for start in range(0, len(mechanism.multirecord_slots), _SUBJECT_BLOCK):
            slots = mechanism.multirecord_slots[start : start + _SUBJECT_BLOCK]
            spent += self._charge_multirecord_subjects(
                slots, prepared_weights, score_unit, remaining, sums
            )
        return sums, spent

    def publish(self, sums: Steps) -> Floats:
        """Return the noisy sum of gradients in clipping bounds, float64 (d, c); it may be released.

        `sums`, int64 (d, c): result of :meth:`contribute_and_charge`, added up over all shards.
        """
        return np.asarray(
            self.mechanism._noise.add_to(sums, self.scale) / self.mechanism.steps_per_clip
        )

    def _charge_single_record_subjects(
        self, starts: Ints, prepared_weights: Any, score_unit: float, remaining: Units
    ) -> tuple[Steps, int]:
        """Charge subjects with one record; return the sums of their clipped gradients and charges.

        The gradients are in grid steps, int64 (c, d), the charges in units. `starts`: first indices
        of blocks of `_BLOCK_ROWS` subjects in ``mechanism.single_record_slots``.
        """
        mechanism = self.mechanism
        records = mechanism._records
        sums = np.zeros((mechanism.n_scores, mechanism.n_features), dtype=np.int64)
        spent = 0
        for start in starts:
            block = slice(start, start + _BLOCK_ROWS)
            slots = mechanism.single_record_slots[block]
            row_indices = mechanism._single_rows[block]
            # Where the rows are adjacent, the common case, a view avoids a copy.
            are_adjacent = row_indices[-1] - row_indices[0] == len(row_indices) - 1
            rows = records.rows[
                slice(row_indices[0], row_indices[-1] + 1) if are_adjacent else row_indices
            ]
            scores = mechanism._products.multiply(rows, prepared_weights)
            derivatives = np.empty(scores.shape[::-1], dtype=np.int16)
            squares = mechanism.squared_norms[row_indices]
            targets = self._select_targets(row_indices)
            loss_and_price = self._loss_and_price
            high, low = charge_records(
                scores, derivatives, squares, targets, slots, remaining, score_unit, *loss_and_price
            )
            mechanism._products.add_product(derivatives, rows, sums)
            spent += (int(high) << 24) + int(low)
        return sums, spent

    def _charge_multirecord_subjects(
        self, slots: Ints, prepared_weights: Any, score_unit: float, remaining: Units, sums: Steps
    ) -> int:
        """Charge subjects with several records and add their clipped gradients to `sums`.

        Returns the sum of the charges, in units. `slots`, int64 (k,): slots of the subjects.
        """
        records = self.mechanism._records
        counts = records.starts[slots + 1] - records.starts[slots]
        starts = np.concatenate([[0], np.cumsum(counts)])
        row_indices = np.arange(starts[-1]) + np.repeat(records.starts[slots] - starts[:-1], counts)
        rows = records.rows[row_indices]
        scores = self.mechanism._products.multiply(rows, prepared_weights).astype(np.float64)
        targets = self._select_targets(row_indices)
        spent = charge_multirecord_subjects(
            scores, rows, targets, starts, slots, remaining, score_unit, *self._loss_and_price, sums
        )
        return int(spent)

    def _select_targets(self, row_indices: Ints) -> Ints32:
        """Return the `targets`, int32 (k, 1) or (k, c), of the records at `row_indices`, (k,)."""
        return self.mechanism._records.targets[row_indices].reshape(len(row_indices), -1)

    @property
    def _loss_and_price(self) -> tuple[bool, float, float, float, int]:
        """Loss and price: `is_squared_loss`, `unclipped_factor`, `max_norm`, `rate`, `reserve`."""
        mechanism = self.mechanism
        unclipped_factor = mechanism.steps_per_clip / (mechanism.clip * mechanism.unit)
        max_norm = float(min(mechanism.steps_per_clip, self.scale))
        return mechanism._is_squared_loss, unclipped_factor, max_norm, self.rate, mechanism.reserve


def _round_weights(weights: Floats) -> tuple[Int16Matrix, float]:
    """Return public `weights`, (d, c), as int16 multiples of a step, and that step, a power of two.

    The step, >= 2^-18, is the finest with exact int32 scores and with weights within int16.
    """
    largest = max(float(np.abs(weights).max(initial=0.0)), 2.0**-100)
    norm = largest * math.sqrt(float(np.square(weights / largest).sum(axis=0).max(initial=0.0)))
    max_norm = _MAX_WEIGHT_NORM - math.sqrt(len(weights))  # rounding can lengthen a column
    max_multiplier = min(_MAX_INT16 / largest, max_norm / norm if norm else math.inf)
    step = 2.0 ** -min(_MAX_WEIGHT_BITS, math.floor(math.log2(max_multiplier)))
    return np.rint(weights / step).astype(np.int16), step


@compiled
def charge_records(  # type: ignore[no-untyped-def]
    scores, derivatives, squares, targets, slots, remaining,
    score_unit, is_squared_loss, unclipped_factor, max_norm, rate, reserve,
):  # fmt: skip
    """Compute and charge the clipped integer derivatives e of subjects with one record.

    The contribution of record i is the outer product of its row with ``derivatives[:, i]``, of
    squared norm ``squares[i] * |derivatives[:, i]|^2``.

    `derivatives`, int16 (c, n): the derivatives e, written here. `slots`, int64 (n,): slots of the
    subjects. Returns the sum of all charges as (high, low), in units ``high * 2^24 + low``.
    """
    high = 0
    low = 0
    n_scores = scores.shape[1]
    block_size = MAX_SUMMED_PRODUCTS
    # Classes come first, so that the inner loops run over records and are vectorized.
    residuals = np.empty((n_scores, block_size))
    sizes = np.empty(block_size)
    squared_norms = np.empty(block_size)
    power_bits = np.empty(block_size, np.int64)
    for first in range(0, len(scores), block_size):
        count = min(block_size, len(scores) - first)
        block_scores = scores[first : first + count]
        if is_squared_loss:
            _compute_vector_residuals(block_scores, targets[first:], score_unit, residuals)
        else:
            _compute_class_residuals(
                block_scores, targets[first:, 0], score_unit, residuals, power_bits, sizes
            )
        block_squares = squares[first : first + count]
        _clip_to_integers(
            residuals, block_squares, unclipped_factor, max_norm, sizes, squared_norms
        )
        for i in range(count):
            # Exact: |e|^2 is an integer below 2^30, and |x|^2 |e|^2 is below 2^50.
            cost = compute_charge(np.int64(squared_norms[i]) * squares[first + i], rate)
            slot = slots[first + i]
            available = max(remaining[slot] - reserve, 0)
            if cost > available:
                cost = _shrink_to_charge(residuals[:, i], available, cost, squares[first + i], rate)
            remaining[slot] -= cost
            high += cost >> 24
            low += cost & LOW_BITS
        for c in range(n_scores):
            for i in range(count):
                derivatives[c, first + i] = np.int16(residuals[c, i])
    return high, low


@compiled
def _compute_class_residuals(scores, labels, score_unit, residuals, power_bits, totals):  # type: ignore[no-untyped-def]
    """Write the derivatives of the softmax loss with respect to the scores, (c, n).

    All operations are elementwise, so that the result of a record does not depend on other records.

    - `labels`, int32 (at least n,): class indices.
    - `residuals`, float64 (c, at least n): the derivatives, written here.
    - `power_bits`, `totals`: scratch, int64 and float64 (at least n,).
    """
    count, n_scores = scores.shape
    max_scores = np.empty(count, np.int64)
    for i in range(count):
        max_scores[i] = scores[i, 0]
        totals[i] = 0.0
    for c in range(1, n_scores):
        for i in range(count):
            max_scores[i] = max(max_scores[i], np.int64(scores[i, c]))
    for c in range(n_scores):
        _compute_exponentials(scores[:, c], max_scores, score_unit, power_bits, residuals[c])
        for i in range(count):
            totals[i] += residuals[c, i]
    for i in range(count):
        totals[i] = 1.0 / totals[i]
    for c in range(n_scores):
        for i in range(count):
            residuals[c, i] *= totals[i]
    for i in range(count):
        residuals[labels[i], i] -= 1.0


@compiled
def _compute_vector_residuals(scores, targets, score_unit, residuals):  # type: ignore[no-untyped-def]
    """Write the derivatives of half the squared distance with respect to the scores, (c, n).

    They are scores, int32 (n, c), minus targets, int32 (at least n, c), limited to -1..1;
    `residuals`, float64 (c, at least n), is written here.
    """
    for c in range(scores.shape[1]):
        for i in range(len(scores)):
            residuals[c, i] = _subtract_target(scores[i, c] * score_unit, targets[i, c])


@compiled
def _subtract_target(score, target):  # type: ignore[no-untyped-def]
    """Return `score`, a float, minus a `target` coordinate in steps of 2^-30, limited to -1..1.

    Derivatives of softmax have the same range, so sums over a subject's records are exact for both
    losses (:func:`vicinal.mechanisms.gradients.sum_gradient`).
    """
    return max(-1.0, min(1.0, score - target * STEP))


@compiled
def _compute_exponentials(scores, max_scores, score_unit, power_bits, results):  # type: ignore[no-untyped-def]
    """Write exp((scores - max_scores) * score_unit) with a relative error of at most 3e-10.

    Exponents below -700 count as -700. The operations are the same for every record
    (linear_model.md, "Other records"). Those of compiled `np.exp` are not: a contribution would
    depend on the position of its record.

    - `scores`, `max_scores`, int (n,): integer scores of one class, and the largest of all classes.
    - `power_bits`, int64 (at least n,): scratch. `results`, float64 (n,): written here.
    """
    powers_of_two = power_bits.view(np.float64)
    for i in range(len(scores)):
        # exp(-700) is a normal double; an exponent below -1022 would overflow into the sign bit.
        x = max(np.float64(scores[i] - max_scores[i]) * score_unit, -700.0)
        exponent = np.rint(x * _LOG2_E)
        power_bits[i] = (np.int64(exponent) + 1023) << 52  # the bits of the double 2^exponent
        results[i] = x - exponent * _LN_2
    for i in range(len(scores)):
        x = results[i]
        # Taylor series up to x^8, for |x| <= log(2) / 2.
        y = 1 / 24 + x * (1 / 120 + x * (1 / 720 + x * (1 / 5040 + x * (1 / 40320))))
        results[i] = (1 + x * (1 + x * (1 / 2 + x * (1 / 6 + x * y)))) * powers_of_two[i]


@compiled
def _clip_to_integers(residuals, squares, unclipped_factor, max_norm, scratch, squared_norms):  # type: ignore[no-untyped-def]
    """Scale derivatives to integers e in place, so that the gradients x e^T are clipped.

    - `residuals`, float64 (c, at least n): derivatives of the loss; integers afterwards.
    - `scratch`, float64 (at least n,): buffer.
    - `squared_norms`, float64 (at least n,): squared norms of the resulting columns, written here.
    """
    # Clipping comes after all other roundings, and truncation cannot lengthen a vector, so the
    # bound holds for the integers that are summed (linear_model.md, "No rounding makes v longer
    # than the bound").
    scratch[:] = 0.0
    squared_norms[:] = 0.0
    for c in range(len(residuals)):
        for i in range(len(squares)):
            scratch[i] += residuals[c, i] * residuals[c, i]
    for i in range(len(squares)):
        largest = min(max_norm / math.sqrt(np.float64(squares[i])), _MAX_INT16)
        # 1e-300 avoids a division by zero where a record is fitted perfectly; zeros remain zeros.
        max_factor = largest / max(math.sqrt(scratch[i]), 1e-300)
        scratch[i] = min(unclipped_factor, max_factor) * _ROUNDING_MARGIN
    for c in range(len(residuals)):
        for i in range(len(squares)):
            residuals[c, i] = np.trunc(residuals[c, i] * scratch[i])
            squared_norms[i] += residuals[c, i] * residuals[c, i]


@compiled
def _shrink_to_charge(vector, available, cost, square, rate):  # type: ignore[no-untyped-def]
    """Shrink a vector in place until its charge is at most `available` units; return the charge.

    `cost`: charge of the vector on entry, in units; above `available`. `vector`, `square`: see
    :func:`_scale_and_charge`.
    """
    cost = _scale_and_charge(vector, math.sqrt(available / cost) * _ROUNDING_MARGIN, square, rate)
    # The loop is needed for charges beyond 2^62, which are reported as 2^62. It ends, because a
    # factor of 0.999 reduces every nonzero entry by at least one step.
    while cost > available:
        cost = _scale_and_charge(vector, 0.999, square, rate)
    return cost


@compiled
def charge_multirecord_subjects(  # type: ignore[no-untyped-def]
    scores, rows, targets, starts, slots, remaining,
    score_unit, is_squared_loss, unclipped_factor, max_norm, rate, reserve, sums,
):  # fmt: skip
    """Clip, charge to `remaining` and add to `sums` the gradients of subjects with several records.

    A gradient is the sum over the subject's records, clipped to `max_norm` and scaled down until
    its charge leaves at least `reserve` units. Returns the sum of all charges, in units.

    The `scores`, float64, are overwritten. `starts`, int64 (subjects + 1,): the records of subject
    i are those from ``starts[i]`` to ``starts[i + 1] - 1``; ``slots[i]`` is its slot.
    """
    spent = 0
    width = sums.shape[1]
    for i in range(len(slots)):
        first, last, slot = starts[i], starts[i + 1], slots[i]
        residuals = scores[first:last]
        for j in range(last - first):
            if is_squared_loss:
                for c in range(width):
                    residuals[j, c] = _subtract_target(
                        residuals[j, c] * score_unit, targets[first + j, c]
                    )
            else:
                compute_softmax_residuals(residuals[j], targets[first + j, 0], score_unit)
        gradient = sum_gradient(residuals, rows[first:last]).ravel()
        size = math.sqrt((gradient * gradient).sum())
        factor = unclipped_factor if unclipped_factor * size <= max_norm else max_norm / size
        cost = _scale_and_charge(gradient, factor * _ROUNDING_MARGIN, 1, rate)
        available = max(remaining[slot] - reserve, 0)
        if cost > available:
            cost = _shrink_to_charge(gradient, available, cost, 1, rate)
        remaining[slot] -= cost
        spent += cost
        for j in range(rows.shape[1]):
            for c in range(width):
                sums[j, c] += np.int64(gradient[j * width + c])
    return spent


@compiled
def _scale_and_charge(vector, factor, square, rate):  # type: ignore[no-untyped-def]
    """Multiply a vector by `factor` in place, rounding towards zero; return its charge in units.

    `vector`: integers stored as float64, in grid steps: a gradient, or its factor e beside a row x.
    `square`: squared norm of the row x; 1 for a whole gradient.
    """
    total = 0  # an exact integer below 2^62: the charge is computed from the integers to be summed
    for c in range(len(vector)):
        vector[c] = np.trunc(vector[c] * factor)
        total += int(vector[c]) * int(vector[c])
    return compute_charge(total * square, rate)
