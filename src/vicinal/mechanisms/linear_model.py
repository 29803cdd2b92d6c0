"""Noisy gradients of a linear model in the individual filter: each subject pays for its own.

The loss is that of softmax regression where records carry classes, half a squared distance where
they carry vectors.

Proof note: linear_model.md. Sources: Feldman & Zrnic 2021, section 4 (full-batch gradients charged
by their own norm); Goodfellow 2015 (norms of gradients that are outer products).

Everything that is summed is a whole number. A record's features are an integer row u, the
derivatives of its loss by the scores a vector e of whole numbers, and its gradient is the outer
product of the two, of norm |u| |e|.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from vicinal import checks
from vicinal.accounting.budget import MAX_SCALE, UNITS, unit_rate
from vicinal.accounting.charges import charge
from vicinal.accounting.gaussian import grid_slack
from vicinal.arrays import Floats, Ints, Ints32, Steps, Units
from vicinal.compiled import compiled
from vicinal.mechanisms.gradients import SubjectRows, softmax_residuals, summed_gradient
from vicinal.mechanisms.subject_table import UNIT
from vicinal.mechanisms.votes import FINE, DeltaSlackAccountant
from vicinal.neighbours.engines.int16 import MOST_TOGETHER, Int16Matrix, int16_products
from vicinal.neighbours.scan import THREADS, map_in_threads
from vicinal.noise.source import NoiseSource

# Steps in a clipping bound, at most: so many contributions together fit into int32.
_FINEST = (1 << 31) // MOST_TOGETHER

_CHUNK = 1024  # rows that both products find in a core's cache
_LARGEST_WEIGHTS = 1 << 17  # norm of a class's weights: with rows of 2^13 products reach 2^30
_FINEST_WEIGHT = 18  # weights are stored with the model in steps of 2^-18, not finer
_GROUP = 1 << 10  # with several records each; their charges together are below 2^59
_LOW = (1 << 24) - 1
STEP = 1.0 / UNIT  # of what stands in a vector
_INSIDE = 1 - 1e-9  # more than (c d + 8) 2^-53, what norms and quotients lose by rounding
_MOST_INT16 = 32767.0  # a norm: so is every entry
_LOG2_E, _LN_2 = math.log2(math.e), math.log(2)


class IndividualGradient:
    """The sum of the gradients of all subjects, with noise, charged to each by its length.

    Contribution: the gradient summed over a subject's records, scaled down to norm `clip` and to
    what the subject may still spend here, rounded towards zero to whole steps.

    - `records`: who takes part; `slots` given to it are places in the ledger.
    - `n_scores`: number of scores c: of classes, or of what vectors carry.
    - `unit`: a feature of 1 is so many integer steps.
    - `clip`: largest norm of a contribution, in the features' own units.
    - `most_noise`: no noise scale will be larger than this many clipping bounds; sets the grid.
    - `share`: the share of a full budget that training may take from a subject, 0 < share <= 1.
    - `budget`: the zCDP that a subject's full budget stands for.
    - `noise`: where noise comes from.
    - `slack`: meters what the grid costs.
    """

    def __init__(
        self,
        records: SubjectRows,
        n_scores: int,
        unit: float,
        clip: float,
        most_noise: float,
        share: float,
        budget: float,
        noise: NoiseSource,
        slack: DeltaSlackAccountant,
    ) -> None:
        self.clip = checks.check_real("clip", clip, above=0)
        most = checks.check_real("most_noise", most_noise, above=0, most=MAX_SCALE)
        # A power of two, as fine as arithmetic allows.
        self.steps = min(_FINEST, 1 << math.floor(math.log2(MAX_SCALE / max(most, 1.0))))
        self.reserve = UNITS - math.floor(
            checks.check_real("share", share, above=0, most=1) * UNITS
        )
        self.n_scores = n_scores
        self.n_features = records.rows.shape[1]
        # Exact: a row's norm is at most 8191.
        self.squares = np.rint(np.square(records.norms)).astype(np.int64)
        self._records = records
        self._squared = records.labels.ndim > 1
        self._products = int16_products()
        counts = np.diff(records.starts)
        self.single, self.several = np.flatnonzero(counts == 1), np.flatnonzero(counts > 1)
        self._places = records.starts[self.single]
        self.unit = unit
        self._budget = budget
        self._noise = noise
        self._slack = slack

    def release(self, noise: float) -> GradientRelease:
        """Return one release at a noise scale of `noise` clipping bounds; public.

        Raises PrivacyRefused before any subject is charged, if the grid's cost does not fit.
        """
        scale = self._scale(noise)
        self._slack.charge([scale], self.n_features * self.n_scores)
        return GradientRelease(self, scale, unit_rate(scale, self._budget))

    def check(self, noise: float, releases: int) -> None:
        """Raise PrivacyRefused unless what the grid costs fits, of so many releases."""
        each = self.n_features * self.n_scores * grid_slack(self._scale(noise))
        self._slack.check(releases * each)

    def _scale(self, noise: float) -> int:
        """Return a noise scale of `noise` clipping bounds in grid steps."""
        noise_steps = checks.check_real("noise", noise, above=0) * self.steps
        return max(FINE, math.ceil(min(noise_steps, MAX_SCALE)))


@dataclass(frozen=True, slots=True)
class GradientRelease:
    """Contribution, charge and noise of one step, which cannot disagree.

    `scale`: noise scale in grid steps. `rate`: units that a squared step costs under that scale,
    rounded up.
    """

    mechanism: IndividualGradient
    scale: int
    rate: float

    @property
    def noise(self) -> float:
        """The noise scale in clipping bounds, as it is paid for. Public."""
        return self.scale / self.mechanism.steps

    def collect(self, weights: Floats, remaining: Units) -> tuple[Steps, int]:
        """Charge every subject for its gradient and return the sum; still private.

        `weights`, float64 (d, c): public weights, finite; taken on their grid. `remaining`, int64
        (subjects,): units of budget left, by slot; charged in place. Returns sums in grid steps,
        which must not leave before :meth:`publish` has added noise, and all charges together, in
        units; private.
        """
        gradient = self.mechanism
        whole, step = _whole(weights)
        right = gradient._products.prepared(whole)
        per_score = step / gradient.unit
        tasks = np.array_split(np.arange(0, len(gradient.single), _CHUNK), THREADS)
        parts = map_in_threads(
            lambda starts: self._single_sums(starts, right, per_score, remaining),
            [task for task in tasks if len(task)],
        )
        sums = sum((part for part, _ in parts), np.zeros(weights.shape[::-1], dtype=np.int64))
        sums, spent = np.ascontiguousarray(sums.T), sum(cost for _, cost in parts)
        return sums, spent + sum(
            self._add_several(several, right, per_score, remaining, sums)
            for several in (
                gradient.several[start : start + _GROUP]
                for start in range(0, len(gradient.several), _GROUP)
            )
        )

    def publish(self, sums: Steps) -> Floats:
        """Add the noise that the charges paid for; return the noisy sum in clipping bounds."""
        return np.asarray(self.mechanism._noise.add_to(sums, self.scale) / self.mechanism.steps)

    def _single_sums(
        self, starts: Ints, right: Any, per_score: float, remaining: Units
    ) -> tuple[Steps, int]:
        """Return the sum over some subjects of one record each, (c, d), and their charges."""
        gradient, records = self.mechanism, self.mechanism._records
        sums = np.zeros((gradient.n_scores, gradient.n_features), dtype=np.int64)
        spent = 0
        for start in starts:
            some = slice(start, start + _CHUNK)
            slots, places = gradient.single[some], gradient._places[some]
            # A view where they lie side by side, the common case: nothing is copied.
            together = places[-1] - places[0] == len(places) - 1
            rows = records.rows[slice(places[0], places[-1] + 1) if together else places]
            scores = gradient._products.times(rows, right)
            derivatives = np.empty(scores.shape[::-1], dtype=np.int16)
            high, low = charge_rows(
                scores, derivatives, gradient.squares[places], self._targets(places), slots,
                remaining, per_score, *self._numbers,
            )  # fmt: skip
            gradient._products.add_outer(derivatives, rows, sums)
            spent += (int(high) << 24) + int(low)
        return sums, spent

    def _add_several(
        self, slots: Ints, right: Any, per_score: float, remaining: Units, sums: Steps
    ) -> int:
        """Add subjects with several records each; return their charges."""
        records = self.mechanism._records
        counts = records.starts[slots + 1] - records.starts[slots]
        starts = np.concatenate([[0], np.cumsum(counts)])
        places = np.arange(starts[-1]) + np.repeat(records.starts[slots] - starts[:-1], counts)
        rows = records.rows[places]
        scores = self.mechanism._products.times(rows, right).astype(np.float64)
        targets = self._targets(places)
        return int(
            charge_several(
                scores, rows, targets, starts, slots, remaining, per_score, *self._numbers, sums
            )
        )

    def _targets(self, places: Ints) -> Ints32:
        """Return what records carry, a row each: the index of a class, or a vector in steps."""
        return self.mechanism._records.labels[places].reshape(len(places), -1)

    @property
    def _numbers(self) -> tuple[bool, float, float, float, int]:
        """What the compiled loops need: loss, factor, bound, rate, reserve."""
        gradient = self.mechanism
        factor, bound = (
            gradient.steps / (gradient.clip * gradient.unit),
            min(gradient.steps, self.scale),
        )
        return gradient._squared, factor, float(bound), self.rate, gradient.reserve


def _whole(weights: Floats) -> tuple[Int16Matrix, float]:
    """Return weights in whole steps, int16, and the step: as fine as exact scores allow; public."""
    largest = max(float(np.abs(weights).max(initial=0.0)), 2.0**-100)
    norm = largest * math.sqrt(float(np.square(weights / largest).sum(axis=0).max(initial=0.0)))
    longest = _LARGEST_WEIGHTS - math.sqrt(len(weights))  # rounding makes columns longer
    most = min(_MOST_INT16 / largest, longest / norm if norm else math.inf)
    step = 2.0 ** -min(_FINEST_WEIGHT, math.floor(math.log2(most)))
    return np.rint(weights / step).astype(np.int16), step


@compiled
def charge_rows(  # type: ignore[no-untyped-def]
    scores, derivatives, squares, targets, slots, remaining,
    per_score, squared, factor, bound, rate, reserve,
):  # fmt: skip
    """Turn scores (n, c) of single records into charged whole numbers, int16 (c, n).

    The contribution of record i is the outer product of its row with ``derivatives[:, i]``, e, of
    squared norm squares[i] |e|^2. Returns all charges as (high, low), the low parts of 24 bits.
    """
    high, low = 0, 0
    n_scores, together = scores.shape[1], MOST_TOGETHER
    # Class by class, so that inner loops run over records and fill vectors.
    residuals = np.empty((n_scores, together))
    sizes, costs, powers = np.empty(together), np.empty(together), np.empty(together, np.int64)
    for first in range(0, len(scores), together):
        count = min(together, len(scores) - first)
        some = scores[first : first + count]
        if squared:
            _differences(some, targets[first:], per_score, residuals)
        else:
            _residuals(some, targets[first:, 0], per_score, residuals, powers, sizes)
        _clip(residuals, squares[first : first + count], factor, bound, sizes, costs)
        for i in range(count):
            # Exact: |e|^2 is a whole number below 2^30, and |x|^2 |e|^2 is below 2^50.
            cost = charge(np.int64(costs[i]) * squares[first + i], rate)
            slot = slots[first + i]
            allowed = max(remaining[slot] - reserve, 0)
            if cost > allowed:
                cost = _within(residuals[:, i], allowed, cost, squares[first + i], rate)
            remaining[slot] -= cost
            high += cost >> 24
            low += cost & _LOW
        for c in range(n_scores):
            for i in range(count):
                derivatives[c, first + i] = np.int16(residuals[c, i])
    return high, low


@compiled
def _residuals(scores, labels, per_score, residuals, power, totals):  # type: ignore[no-untyped-def]
    """Write derivatives of the loss by the scores (n, c), as (c, n), a class after the other.

    Each record by itself: sums and products are elementwise over records, and rounded alike.
    """
    count, n_scores = scores.shape
    top = np.empty(count, np.int64)
    for i in range(count):
        top[i] = scores[i, 0]
        totals[i] = 0.0
    for c in range(1, n_scores):
        for i in range(count):
            top[i] = max(top[i], np.int64(scores[i, c]))
    for c in range(n_scores):
        _exponentials(scores[:, c], top, per_score, power, residuals[c])
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
def _differences(scores, targets, per_score, residuals):  # type: ignore[no-untyped-def]
    """Write scores less vectors in steps of 2^-30, (n, c) both, as (c, n): elementwise as well."""
    for c in range(scores.shape[1]):
        for i in range(len(scores)):
            residuals[c, i] = _difference(scores[i, c] * per_score, targets[i, c])


@compiled
def _difference(score, target):  # type: ignore[no-untyped-def]
    """Return a score less what stands in a vector, cut to 1: as far as derivatives of softmax go.

    So sums over a subject's records are exact for both (`summed_gradient`).
    """
    return max(-1.0, min(1.0, score - target * STEP))


@compiled
def _exponentials(scores, top, per_score, power, results):  # type: ignore[no-untyped-def]
    """Write exp((scores - top) * per_score), each good to 3e-10 of itself; `power` is scratch.

    Not np.exp: compiled, that is one call a number, or one of a vector library, whose last numbers
    of a column differ in the last bit from the others: a contribution would follow from where its
    record stands. These are the same operations for every record (linear_model.md, "Other
    records"), and the compiler fills vectors with them.
    """
    two = power.view(np.float64)
    for i in range(len(scores)):
        # exp(-700) is a normal double; an exponent below -1022 would run into the sign bit.
        x = max(np.float64(scores[i] - top[i]) * per_score, -700.0)
        twos = np.rint(x * _LOG2_E)
        power[i] = (np.int64(twos) + 1023) << 52  # the bits of the double 2^twos
        results[i] = x - twos * _LN_2
    for i in range(len(scores)):
        x = results[i]
        # Taylor's series up to x^8, for |x| <= log(2) / 2.
        y = 1 / 24 + x * (1 / 120 + x * (1 / 720 + x * (1 / 5040 + x * (1 / 40320))))
        results[i] = (1 + x * (1 + x * (1 / 2 + x * (1 / 6 + x * y)))) * two[i]


@compiled
def _clip(residuals, squares, factor, bound, sizes, costs):  # type: ignore[no-untyped-def]
    """Shorten columns to `factor` times, to `bound` and to int16, as whole numbers.

    `costs` become their squared norms; `sizes` is scratch.
    """
    # In this order: the bound is on what is summed, after every rounding but truncation, which
    # cannot lengthen (linear_model.md, "No rounding makes v longer than the bound").
    sizes[:] = 0.0
    costs[:] = 0.0
    for c in range(len(residuals)):
        for i in range(len(squares)):
            sizes[i] += residuals[c, i] * residuals[c, i]
    for i in range(len(squares)):
        largest = min(bound / math.sqrt(np.float64(squares[i])), _MOST_INT16)
        # 1e-300 stands for the residuals of a record that is fitted perfectly: zeros stay zeros.
        sizes[i] = min(factor, largest / max(math.sqrt(sizes[i]), 1e-300)) * _INSIDE
    for c in range(len(residuals)):
        for i in range(len(squares)):
            residuals[c, i] = np.trunc(residuals[c, i] * sizes[i])
            costs[i] += residuals[c, i] * residuals[c, i]


@compiled
def _within(vector, allowed, cost, square, rate):  # type: ignore[no-untyped-def]
    """Shrink whole numbers until they cost at most `allowed`; return their charge."""
    # The loop is for charges that are given as 2^62, and ends: 0.999 takes a step off every entry.
    cost = _shrunk(vector, math.sqrt(allowed / cost) * _INSIDE, square, rate)
    while cost > allowed:
        cost = _shrunk(vector, 0.999, square, rate)
    return cost


@compiled
def charge_several(  # type: ignore[no-untyped-def]
    scores, rows, targets, starts, slots, remaining,
    per_score, squared, factor, bound, rate, reserve, sums,
):  # fmt: skip
    """Add the charged gradients of subjects, each with records starts[i] to starts[i + 1]."""
    spent, width = 0, sums.shape[1]
    for i in range(len(slots)):
        first, last, slot = starts[i], starts[i + 1], slots[i]
        some = scores[first:last]
        for j in range(last - first):
            if squared:
                for c in range(width):
                    some[j, c] = _difference(some[j, c] * per_score, targets[first + j, c])
            else:
                softmax_residuals(some[j], targets[first + j, 0], per_score)
        gradient = summed_gradient(some, rows[first:last]).ravel()
        size = math.sqrt((gradient * gradient).sum())
        shrink = (factor if factor * size <= bound else bound / size) * _INSIDE
        cost = _shrunk(gradient, shrink, 1, rate)
        allowed = max(remaining[slot] - reserve, 0)
        if cost > allowed:
            cost = _within(gradient, allowed, cost, 1, rate)
        remaining[slot] -= cost
        spent += cost
        for j in range(rows.shape[1]):
            for c in range(width):
                sums[j, c] += np.int64(gradient[j * width + c])
    return spent


@compiled
def _shrunk(vector, factor, square, rate):  # type: ignore[no-untyped-def]
    """Multiply in place, rounding towards zero; return the charge of `square` times its norm^2."""
    total = 0  # whole, below 2^62: the charge is that of the very numbers that are summed
    for c in range(len(vector)):
        vector[c] = np.trunc(vector[c] * factor)
        total += int(vector[c]) * int(vector[c])
    return charge(total * square, rate)
