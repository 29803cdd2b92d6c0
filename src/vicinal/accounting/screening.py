r"""Noisy screening: is the largest vote count, with noise, at least the threshold? Exact bounds.

Proof note: adaptive_screening.md. With the largest vote count t of the k nearest records the
answer is Bernoulli(q), q = Phi(a), at the *margin* a = (t - T)/sigma. A subject in the Poisson
sample moves t by at most one, so with the subject in the data the answer is Bernoulli(r). Upward
and downward steps of t are two arithmetic progressions of k margins each, the two *sides*.

*Batches.* One t is chosen for each answer, possibly after seeing the earlier answers. For a batch
of m answers the worst case over such strategies satisfies, with C the excess divergence, C_0 = 0,

    C_j(eps) = max over t of  C^t(eps) + r C_{j-1}(eps - U) + (1 - r) C_{j-1}(eps - V),

where U and V are the losses of passing and failing. C_m dominates the batch, and costs less than m
answers each with its own worst t for every eps. The *profile* of a batch is its C_j on a uniform
grid of eps. Far from the threshold many t are covered by one *cover* that dominates all of them.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.special import log_ndtr

from vicinal.accounting._divergence import (
    DominatingPair,
    compute_log_tail_ratios,
    compute_log_tangent_gap,
    invert_sampling,
    subsample_log_ratio,
)
from vicinal.arrays import Floats, Indices, Ints

MAX_VOTES = 10**6  # The largest number k of voting records
# Logarithm of the smallest divergence; smaller values are rounded up to it (e^-708 underflows).
_MIN_LOG_DIVERGENCE = -690.0
_MIN_BLOCK = 16  # Margins of one block of the branch and bound, at least
_MAX_BLOCKS = 4096  # Blocks of the branch and bound on one side, at most


@dataclasses.dataclass(frozen=True)
class Screening:
    """One screening answer: whether the largest vote count, with noise, reaches a threshold.

    `k` is the number of voting records, `threshold` (T) and `sigma`, the noise scale, are in votes,
    `gamma` is the probability of Poisson sampling.
    """

    sort_name: ClassVar[str] = "screening"

    k: int
    threshold: float
    sigma: float
    gamma: float = 1.0

    def rdp(self, orders: Floats) -> Floats:
        """Return the RDP at `orders` (m,), as (m,): the maximum over t, sign and direction."""
        return np.maximum(*self.compute_rdp_by_direction(orders))

    def compute_rdp_by_direction(self, orders: Floats) -> tuple[Floats, Floats]:
        """Return D(with | without) and D(without | with) at `orders`, (m,) each, rounded up."""
        powers = np.concatenate([orders, 1 - orders])
        largest = _maximize_log_gaps(powers, _compute_all_answers(self), _choose_block_size(self.k))
        log_gaps = largest + 1e-11 + 1e-12 * np.abs(largest)
        # log(1 + e^x), also where e^x is below double precision.
        scaled = np.logaddexp(0.0, log_gaps)
        is_small = log_gaps < -30
        scaled[is_small] = np.exp(np.maximum(log_gaps[is_small], _MIN_LOG_DIVERGENCE))
        return scaled[: len(orders)] / (orders - 1), scaled[len(orders) :] / (orders - 1)

    def find_worst_votes(self, order: float) -> tuple[int, int]:
        """Return (t, sign) at which the RDP of this Rényi `order` is attained.

        `t` is the largest vote count without the subject, `sign` (1 or -1) the subject's change.
        """
        powers = np.array([[order], [1 - order]])
        log_gaps = _compute_log_gaps(powers, *_compute_all_answers(self)).max(axis=0)
        side, offset = divmod(int(np.argmax(log_gaps)), len(log_gaps) // 2)
        index = min(offset, self.k - 1)
        return (self.k - index, -1) if side else (index, 1)

    def build_dominating_pair(self) -> ScreeningPair:
        """Return the dominating pair: at every eps the worst t; exact."""
        return ScreeningPair(self)

    def compute_margin(self, index: Indices, side: Ints) -> Floats:
        """Return the margins of steps of the largest vote count t, in noise scales.

        They are (t - T)/sigma for upward steps, `side` 0, at t = `index`; and, mirrored,
        (T - t)/sigma for downward steps, `side` 1, at t = k - `index`. `index` is in 0..k-1, and
        the margin increases with it. The arguments broadcast.
        """
        start = np.where(side == 0, -self.threshold, self.threshold - self.k)
        return np.asarray((start + index) / self.sigma)

    def compute_answers(self, margin: Floats) -> ScreeningAnswers:
        """Return the probabilities and privacy losses of an answer at each `margin`."""
        pass_ratio, fail_ratio = compute_log_tail_ratios(margin, 1 / self.sigma)
        return ScreeningAnswers(
            log_ndtr(margin),
            log_ndtr(-margin),
            subsample_log_ratio(pass_ratio, self.gamma),
            subsample_log_ratio(fail_ratio, self.gamma),
        )


class ScreeningAnswers(NamedTuple):
    """Probabilities and privacy losses of answers, arrays with one entry for each margin.

    `log_pass` and `log_fail` are log q and log(1-q), without the subject. `pass_loss` and
    `fail_loss` are U = log(r/q) and V = log((1-r)/(1-q)).
    """

    log_pass: Floats
    log_fail: Floats
    pass_loss: Floats
    fail_loss: Floats


def _choose_block_size(k: int) -> int:
    """Return the number of a side's margins that are bounded together; `k`: all of a side."""
    return max(_MIN_BLOCK, -(-k // _MAX_BLOCKS))


@functools.lru_cache(maxsize=8)
def _compute_all_answers(screening: Screening) -> ScreeningAnswers:
    """Return the answers at all margins, first of the upward and then of the downward side.

    Margins ascend on each side, and the last one is repeated up to a multiple of the block size.
    """
    block = _choose_block_size(screening.k)
    index = np.minimum(np.arange(-(-screening.k // block) * block), screening.k - 1)
    margins = [screening.compute_margin(index, np.full_like(index, side)) for side in (0, 1)]
    return screening.compute_answers(np.concatenate(margins))


@dataclasses.dataclass(frozen=True)
class ScreeningPair(DominatingPair):
    """The pointwise maximum, over t and sign, of the hockey-stick divergences of a screening."""

    screening: Screening

    @property
    def is_symmetric(self) -> bool:
        """Whether exchanging both distributions changes no divergence: without sampling."""
        return self.screening.gamma == 1

    def compute_excess(self, epsilons: Floats) -> Floats:
        """Return the hockey-stick divergence less max(0, 1 - e^eps) at `epsilons` (m,), as (m,)."""
        # At these real margins the curve (q, r) has slope e^eps; infinite if it has it nowhere.
        shift = 1 / self.screening.sigma
        inner_epsilons = invert_sampling(epsilons, self.screening.gamma)
        targets = np.asarray(-(inner_epsilons + shift**2 / 2) / shift)
        result = np.zeros_like(epsilons)
        for side in (0, 1):
            for offset in (0, 1):
                margin = self._round_margin(targets, side, offset)
                result = np.maximum(result, self._compute_excess_at(margin, epsilons))
        return result

    def _round_margin(self, targets: Floats, side: int, offset: int) -> Floats:
        """Return the margin of `side` (0 or 1) next to each real margin of `targets` (m,), as (m,).

        It is the last one at or below the target for `offset` 0, the next one for `offset` 1.
        """
        screening = self.screening
        first = screening.compute_margin(np.array(0), np.array(side))
        steps = np.floor((targets - first) * screening.sigma) + offset
        index = np.clip(steps, 0, screening.k - 1).astype(np.int64)
        return screening.compute_margin(index, np.array(side))

    def _compute_excess_at(self, margin: Floats, epsilons: Floats) -> Floats:
        """Return the excess divergence of an answer at each pair of `margin` and `epsilons`, (m,).

        At eps >= 0 it is q (e^U - x) with x = e^eps, at eps < 0 it is (1 - q)(x - e^V); both are
        written as differences from 1 by expm1.
        """
        log_pass, log_fail, pass_loss, fail_loss = self.screening.compute_answers(margin)
        with np.errstate(over="ignore", invalid="ignore"):
            if_positive = np.exp(log_pass + pass_loss) * -np.expm1(
                np.minimum(epsilons - pass_loss, 0.0)
            )
            negative = np.minimum(epsilons, 0.0)
            if_negative = np.exp(log_fail + negative) * -np.expm1(
                np.minimum(fail_loss - negative, 0.0)
            )
        return np.where(epsilons >= 0, if_positive, if_negative)


# Answers in one batch: a longer one is tighter (its excess cost falls like 1/m) and slower.
BATCH = 64
# Grid cells of a profile for the largest root mean square loss of one answer.
_CELLS_PER_DEVIATION = 20
# Standard deviations of the total loss that the grid of a profile covers on either side.
_GRID_DEVIATIONS = 10.0
# Width (in noise scales) of the interval of margins that one cover dominates near the threshold.
_MIN_BLOCK_WIDTH = 0.02
# Margins further than `_BLOCK_CENTRE` from the threshold share a cover with wider intervals: the
# width grows by `_BLOCK_GROWTH` for each noise scale of distance.
_BLOCK_GROWTH = 0.3
_BLOCK_CENTRE = 0.7
# Margin (plus the shift) beyond which an answer is all but certain: Phi(-9) = 1.1e-19.
_CERTAIN_MARGIN = 9.0
_MAX_LOSS = 600.0  # A loss that stands for an unbounded one: e^loss is still a double
# Screenings with a smaller sigma (votes), or a smaller gamma / sigma, are not batched: double
# precision does not suffice for their profiles.
_MIN_BATCHED_SIGMA = 0.1
_MIN_BATCHED_STEP = 1e-5


@dataclasses.dataclass(frozen=True)
class ScreeningBatchPair(DominatingPair):
    """The dominating pair of a batch of `size` screening answers with adaptively chosen votes."""

    screening: Screening
    size: int

    @property
    def is_symmetric(self) -> bool:
        """Whether exchanging both distributions changes no divergence: without sampling."""
        return self.screening.gamma == 1

    def compute_excess(self, epsilons: Floats) -> Floats:
        """Return the hockey-stick divergence less max(0, 1 - e^eps) at `epsilons` (m,), as (m,)."""
        # The profile C_size of the module's text, interpolated.
        step, profiles = _compute_profiles(self.screening, BATCH)
        return np.asarray(interpolate_profile(profiles[self.size], step, epsilons))


def can_be_batched(screening: Screening) -> bool:
    """Return whether double precision suffices for profiles of batches of this screening."""
    step = screening.gamma / screening.sigma
    return screening.sigma >= _MIN_BATCHED_SIGMA and step >= _MIN_BATCHED_STEP


def build_batch_pairs(screening: Screening, count: int) -> list[tuple[ScreeningBatchPair, int]]:
    """Return dominating pairs, with counts, of `count` >= 1 answers, in batches of `BATCH`."""
    n_batches, n_remaining = divmod(count, BATCH)
    pairs = [
        (ScreeningBatchPair(screening, BATCH), n_batches),
        (ScreeningBatchPair(screening, n_remaining), 1),
    ]
    return [(pair, n_pairs) for pair, n_pairs in pairs if pair.size and n_pairs]


@dataclasses.dataclass(frozen=True)
class _Cover:
    """A pair of distributions that dominates the answer at one or several vote counts t.

    `masses` (m,): probabilities of the outcomes with the subject; `losses` (m,): privacy losses.
    """

    masses: Floats
    losses: Floats


@functools.lru_cache(maxsize=8)
def _compute_profiles(screening: Screening, size: int) -> tuple[float, Floats]:
    """Return the grid step h, and the profiles C_0 ... C_size of batches on a grid of epsilons.

    The grid has the points -n h, ..., n h; the second result is (size + 1, 2 n + 1).
    """
    covers = _build_covers(screening)
    spread = max(
        math.sqrt(
            float(cover.masses @ np.where(abs(cover.losses) < _MAX_LOSS, cover.losses, 0) ** 2)
        )
        for cover in covers
    )
    step = spread / _CELLS_PER_DEVIATION
    n_answers = np.arange(size + 1)
    reach = np.ceil(_GRID_DEVIATIONS * np.sqrt(n_answers) * _CELLS_PER_DEVIATION + 4).astype(
        np.int64
    )
    half = int(reach[-1])
    epsilons = np.asarray(step * np.arange(-half, half + 1), dtype=np.float64)
    cover_excess = np.zeros((len(covers), len(epsilons)))
    for cover, excess in zip(covers, cover_excess, strict=True):
        # The excess is zero beyond the cover's largest loss.
        n_cells = min(half, math.ceil(float(np.abs(cover.losses).max()) / step) + 1)
        nonzero = slice(half - n_cells, half + n_cells + 1)
        excess[nonzero] = _compute_cover_excess(cover, epsilons[nonzero])
    profiles = _maximize_profiles(cover_excess, *_compute_shift_weights(covers, step, half), reach)
    return step, profiles * (1 + 1e-9)


def _compute_cover_excess(cover: _Cover, epsilons: Floats) -> Floats:
    """Return the excess divergence of one cover at `epsilons` (n,) of either sign, as (n,)."""
    excess = np.zeros_like(epsilons)
    for mass, loss in zip(cover.masses, cover.losses, strict=True):
        if_positive = -np.expm1(np.minimum(epsilons - loss, 0.0))
        # Below 0: the share of this outcome in H_eps - (1 - e^eps); the masses sum to 1.
        if_negative = np.exp(np.minimum(epsilons, 0.0) - loss) * -np.expm1(
            np.minimum(loss - epsilons, 0.0)
        )
        excess += mass * np.where(epsilons >= 0, if_positive, if_negative)
    return excess


def _compute_shift_weights(
    covers: Sequence[_Cover], step: float, max_cells: int
) -> tuple[Ints, Floats, Floats]:
    """Return the shift of the excess divergence C by each outcome, and interpolation weights.

    An outcome of mass r and loss U contributes r C(eps - U), interpolated between points of a grid
    of eps with cells of width `step`. Returned are three arrays (covers, outcomes): the shift -U in
    whole cells, rounded down and within +-`max_cells`; and r times the weights of the grid points
    at that shift and one above, for interpolation linear in e^eps.
    """
    n_outcomes = max(len(cover.masses) for cover in covers)
    # Covers with fewer outcomes are padded with masses of 0.
    masses, losses = np.zeros((2, len(covers), n_outcomes))
    for index, cover in enumerate(covers):
        masses[index, : len(cover.masses)] = cover.masses
        losses[index, : len(cover.losses)] = cover.losses
    shifts = -losses / step
    cells = np.clip(np.floor(shifts), -max_cells, max_cells - 1)
    upper_weights = np.expm1(step * np.clip(shifts - cells, 0.0, 1.0)) / math.expm1(step)
    return cells.astype(np.int64), masses * (1 - upper_weights), masses * upper_weights


def interpolate_profile(profile: Floats, step: float, epsilons: Floats) -> Floats:
    """Return a `profile` at any `epsilons` (m,), interpolated linearly in e^eps, as (m,).

    `profile` (2 n + 1,) is given at -n step, ..., n step; beyond, the value at the end is returned.
    """
    half = len(profile) // 2
    position = np.clip(epsilons / step, -half, half)
    cell = np.minimum(np.floor(position), half - 1)
    weight = np.expm1(step * (position - cell)) / math.expm1(step)
    index = cell.astype(np.int64) + half
    return np.asarray((1 - weight) * profile[index] + weight * profile[index + 1])


def _build_covers(screening: Screening) -> list[_Cover]:
    """Return covers that together dominate the answer at every largest vote count t."""
    max_margin = _CERTAIN_MARGIN + 1 / screening.sigma
    all_margins = _list_margins(screening)
    covers = _build_tail_covers(screening, max_margin, all_margins)
    margins = all_margins[np.abs(all_margins) <= max_margin]
    first = 0
    while first < len(margins):
        distance = max(0.0, abs(margins[first]) - _BLOCK_CENTRE)
        width = _MIN_BLOCK_WIDTH + _BLOCK_GROWTH * distance
        last = int(np.searchsorted(margins, margins[first] + width, side="right")) - 1
        last = max(last, first)
        covers.append(_build_cover(screening, margins[first], margins[last]))
        first = last + 1
    return covers


def _build_tail_covers(screening: Screening, max_margin: float, margins: Floats) -> list[_Cover]:
    """Return covers, at most two, that dominate all `margins` below -`max_margin` or above it.

    `margins` (m,): ascending. In these tails one outcome is almost certain. Below, the probability
    of passing is at most that at -max_margin, and passing is assigned the largest loss. Above, that
    of failing is at most that at max_margin, and failing is assigned the most negative loss.
    """
    log_pass, log_fail, pass_loss, _ = screening.compute_answers(
        np.array([-max_margin, max_margin])
    )
    covers = []
    if margins[0] < -max_margin:
        passed = math.exp(log_pass[0] + pass_loss[0])
        losses = np.array([_MAX_LOSS, math.log1p(-passed)])
        covers.append(_Cover(np.array([passed, 1 - passed]), losses))
    if margins[-1] > max_margin:
        failed = math.exp(log_fail[1])
        losses = np.array([-math.log1p(-failed), -_MAX_LOSS])
        covers.append(_Cover(np.array([1.0, failed * math.exp(-_MAX_LOSS)]), losses))
    return covers


def _list_margins(screening: Screening) -> Floats:
    """Return the margins of the steps of both sides in ascending order, nearly equal ones once."""
    index = np.arange(screening.k)
    margins = np.concatenate(
        [screening.compute_margin(index, np.full_like(index, side)) for side in (0, 1)]
    )
    margins.sort()
    return margins[np.diff(margins, prepend=-np.inf) > 1e-9 / screening.sigma]


def _build_cover(screening: Screening, low: float, high: float) -> _Cover:
    """Return the cover of the answers at all margins from `low` to `high`."""
    log_pass, log_fail, pass_loss, fail_loss = screening.compute_answers(np.array([low, high]))
    if high == low:
        masses = np.array(
            [math.exp(log_pass[0] + pass_loss[0]), math.exp(log_fail[0] + fail_loss[0])]
        )
        return _Cover(masses, np.array([pass_loss[0], fail_loss[0]]))
    # Log slopes of the curve at both ends: the losses of the hull's two segments between them.
    shift = 1 / screening.sigma
    log_slopes = subsample_log_ratio(-np.array([low, high]) * shift - shift**2 / 2, screening.gamma)
    mass_without = math.exp(log_pass[1]) - math.exp(log_pass[0])
    mass_with = math.exp(log_pass[1] + pass_loss[1]) - math.exp(log_pass[0] + pass_loss[0])
    low_slope, high_slope = math.exp(log_slopes[0]), math.exp(log_slopes[1])
    # The mass without the subject on the first segment, which has the larger slope. Slopes that are
    # equal in double precision leave one segment.
    if low_slope > high_slope:
        first_mass = (mass_with - high_slope * mass_without) / (low_slope - high_slope)
    else:
        first_mass = mass_without
    first_mass = min(max(first_mass, 0.0), mass_without)
    masses = np.array(
        [
            math.exp(log_pass[0] + pass_loss[0]),
            low_slope * first_mass,
            high_slope * (mass_without - first_mass),
            math.exp(log_fail[1] + fail_loss[1]),
        ]
    )
    return _Cover(masses, np.array([pass_loss[0], log_slopes[0], log_slopes[1], fail_loss[1]]))


def _maximize_log_gaps(powers: Floats, answers: ScreeningAnswers, block: int) -> Floats:
    """Return the maximum over margins of log(q G_b(U) + (1-q) G_b(V)), for every power b, (m,).

    `powers` (m,) are b, orders alpha or 1 - alpha. `answers` are those at n margins, which ascend
    within blocks of `block` margins, a divisor of n. Blocks without the maximum are skipped.
    """
    log_pass, log_fail, pass_loss, fail_loss = answers
    first = np.arange(0, len(log_pass), block)
    last = first + block - 1
    b = powers[:, None]
    largest = _compute_log_gaps(
        b, log_pass[first], log_fail[first], pass_loss[first], fail_loss[first]
    ).max(axis=1)
    bound = _compute_log_gaps(b, log_pass[last], log_fail[first], pass_loss[first], fail_loss[last])
    power_index, block_index = np.nonzero(bound > largest[:, None])
    if len(power_index):
        inside = first[block_index][:, None] + np.arange(block)
        values = _compute_log_gaps(
            powers[power_index][:, None], *(array[inside] for array in answers)
        )
        np.maximum.at(largest, power_index, values.max(axis=1))
    return np.asarray(largest)


def _compute_log_gaps(
    power: Floats, log_pass: Floats, log_fail: Floats, pass_loss: Floats, fail_loss: Floats
) -> Floats:
    """Return log(q G_b(U) + (1-q) G_b(V)) of answers elementwise, b = `power`; all broadcast.

    `log_pass`, `log_fail`: log q and log(1-q). `pass_loss`, `fail_loss`: U and V.
    """
    return np.logaddexp(
        log_pass + compute_log_tangent_gap(power, pass_loss),
        log_fail + compute_log_tangent_gap(power, fail_loss),
    )


def _maximize_profiles(
    cover_excess: Floats, cells: Indices, lower_weights: Floats, upper_weights: Floats, reach: Ints
) -> Floats:
    """Return the profiles C_0 ... C_m of batches on the grid of epsilons, as (m + 1, 2 h + 1).

    `cover_excess` (o, 2 h + 1) is the excess divergence of every cover; `cells`, `lower_weights`
    and `upper_weights` (o, k) are the results of :func:`_compute_shift_weights`. `reach` (m + 1,)
    is the distance from the centre, in grid steps, up to which C_j is computed; beyond, the value
    at that distance is taken, which is larger.
    """
    half = cover_excess.shape[1] // 2
    profiles = np.zeros((len(reach), cover_excess.shape[1]))
    weights = np.concatenate([lower_weights, upper_weights], axis=1)
    starts = half + np.concatenate([cells, cells + 1], axis=1)
    shifts = [
        (start[is_nonzero], weight[is_nonzero])
        for start, weight, is_nonzero in zip(starts, weights, weights != 0, strict=True)
    ]
    for j in range(1, len(reach)):
        low, high = half - int(reach[j]), half + int(reach[j]) + 1
        windows = sliding_window_view(np.pad(profiles[j - 1], half, mode="edge"), high - low)
        largest = profiles[j, low:high]
        for excess, (start, weight) in zip(cover_excess, shifts, strict=True):
            np.maximum(largest, excess[low:high] + weight @ windows[low + start], out=largest)
        profiles[j, :low] = largest[0]
        profiles[j, high:] = largest[-1]
    return profiles
