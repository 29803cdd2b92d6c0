r"""Noisy screening: is the largest vote, with noise, at least the threshold? Exact.

The vote counts of the k nearest records (of a Poisson sample at rate gamma) have a maximum t, and
the answer is Bernoulli(q), q = Phi((t - T)/sigma). A subject in the sample moves t by at most one,
to p = Phi((t +- 1 - T)/sigma); so with the subject in the data the answer is Bernoulli(r),
r = (1 - gamma) q + gamma p, given the sample of the others. Divergences are jointly convex (Rényi's
exponentiated, hockey-stick as it is), so the worst case over all data is the maximum over t in
0..k-1 (up) or 1..k (down), both directions. It is attained: this is no amplification bound.
Source: Zhu, Yu, Chandraker & Wang 2020, Theorem 7, made tight.

Position. With a = (t - T)/sigma and m = 1/sigma an upward step compares Phi(a) with Phi(a + m); a
downward step is an upward one of the complement, at a = (T - t)/sigma. All cases are therefore
upward steps at two arithmetic progressions of positions a, k in each.

RDP for many votes. With U = log(r/q) > 0 and V = log((1-r)/(1-q)) < 0,
(alpha - 1) D = log(1 + q G_b(U) + (1-q) G_b(V)), b = alpha or 1 - alpha, G of `_divergence`. As a
grows, q grows, U falls (Phi is log-concave) and V falls; G_b grows with |U| and |V|. So over a
block of positions [a0, a1] the sum is at most q(a1) G_b(U(a0)) + (1 - q(a0)) G_b(V(a1)): a bound
for all t in the block from its two ends. Blocks whose bound does not exceed the best value found at
first positions are left out; in the others every t is looked at. What is returned is the maximum.

PLD. The points (q, r) lie on one concave curve (the ROC curve of N(m, 1) against N(0, 1), mixed
with the diagonal), so H_x = max over t of r - x q, x = e^eps, is attained at one of the two
positions next to the a where the curve has slope x: a = -(log((x - 1 + gamma)/gamma) + m^2/2)/m.
The same holds for the complement below x = 1. So any k costs two evaluations.

Batches of screening answers, worst case over adaptive choices: a tighter dominating pair.

The dominating pair of one answer takes the worst t separately for every eps, so composing it lets
the adversary use all t at once; it is as dear as the Gaussian it thresholds. In truth one t is
chosen for each answer, if after seeing the earlier answers. For a batch of m answers the worst case
over such strategies satisfies, with C_0 = 0 and C the excess of pairs,

    C_j(eps) = max over t of  C^t(eps) + r C_{j-1}(eps - U) + (1 - r) C_{j-1}(eps - V),

where r is the chance to pass with the subject and U, V the losses of passing and failing: the
hockey-stick divergence after the first answer is r H(eps - U) + (1 - r) H(eps - V). C_m is a
maximum of divergences, so it is the profile of a pair that dominates the batch, whatever came
before; batches compose like releases (Zhu, Dong & Wang 2022, Theorem 10). The worst t is nearly the
same for all eps once m is large, and the price of taking it separately for every eps falls like
1/m.

*Other releases in between.* A batch is an interactive mechanism: in every round an adversary
chooses t and sees an answer; C_m is the profile that no strategy exceeds. Whoever interleaves its
rounds with other releases, batches of other screenings among them, runs a concurrent composition,
and for hypothesis tests that costs no more than the composition of the non-interactive dominating
pairs (Vadhan & Zhang 2023: an interactive mechanism can be simulated by interactive post-processing
of such a pair). So every screening of a plan is batched, whatever the order of the releases.

*Arithmetic.* C_{j-1} is kept on a uniform grid and joined by straight lines in e^eps, which lies
above a convex function; 0 is a grid point. Beyond the grid the value at its end is taken, which is
larger. Far from the threshold many t are served by one option that dominates all of them: the hull
of the points (q, r) of the block's ends and of the intersection of the tangents of the curve there.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.special import log_ndtr

from vicinal import checks
from vicinal.accounting._divergence import Pair, log_gap, mixed_ratio, tail_ratios
from vicinal.arrays import Floats, Ints, Places

MAX_VOTES = 10**6

# Logarithm of the least cost there is: what is smaller is rounded up to it.
_LEAST = -690.0
# Positions looked at together, and how many such blocks there are on a side at most.
_SCANNED, _MOST_BLOCKS = 16, 4096


@dataclasses.dataclass(frozen=True)
class Screening:
    """One screening answer of k voting records: whether the largest count passes, with noise."""

    k: int
    threshold: float
    sigma: float
    gamma: float = 1.0

    def __post_init__(self) -> None:
        checks.check_integer("k", self.k, least=1, most=MAX_VOTES)
        checks.check_real("threshold", self.threshold, least=-1e7, most=1e7)
        checks.check_real("sigma", self.sigma, least=1e-2, most=1e9)
        checks.check_real("gamma", self.gamma, above=0, most=1)

    def rdp(self, orders: Floats) -> Floats:
        """Return the RDP at `orders` (m,): the maximum over t, sign and direction."""
        return np.maximum(*self.rdp_by_direction(orders))

    def rdp_by_direction(self, orders: Floats) -> tuple[Floats, Floats]:
        """Return D(with | without) and D(without | with) at `orders` (m,), as two (m,)."""
        excess = self._largest(np.concatenate([orders, 1 - orders]))
        both = _log_one_plus(excess)
        return both[: len(orders)] / (orders - 1), both[len(orders) :] / (orders - 1)

    def worst_votes(self, order: float) -> tuple[int, int]:
        """Return (t, sign) at which the RDP of this `order` is attained; for a certificate."""
        order = checks.check_real("order", order, above=1)
        sums = _log_sums(np.array([[order], [1 - order]]), *_all_laws(self)).max(axis=0)
        down, place = divmod(int(np.argmax(sums)), len(sums) // 2)
        index = min(place, self.k - 1)
        return (self.k - index, -1) if down else (index, 1)

    def pair(self) -> ScreeningPair:
        """Return the dominating pair: at every eps the worst t; exact."""
        return ScreeningPair(self)

    def position(self, index: Places, side: Places) -> Floats:
        """Return a, growing with `index` in 0..k-1, of upward steps (side 0) or downward (1)."""
        start = np.where(side == 0, -self.threshold, self.threshold - self.k)
        return np.asarray((start + index) / self.sigma)

    def laws(self, position: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Return log q, log(1-q), log(r/q), log((1-r)/(1-q)) at `position`."""
        up, down = tail_ratios(position, 1 / self.sigma)
        return (
            log_ndtr(position),
            log_ndtr(-position),
            mixed_ratio(up, self.gamma),
            mixed_ratio(down, self.gamma),
        )

    def _largest(self, powers: Floats) -> Floats:
        """Return, for every power b (m,), log of the largest sum over t and sign, rounded up."""
        answer = _largest_sums(powers, _all_laws(self), _block(self.k))
        return np.asarray(answer + 1e-11 + 1e-12 * np.abs(answer))


def _block(k: int) -> int:
    return max(_SCANNED, -(-k // _MOST_BLOCKS))


def _log_one_plus(log_excess: Floats) -> Floats:
    """Return log(1 + e^x), never 0 however small."""
    result = np.logaddexp(0.0, log_excess)
    small = log_excess < -30
    result[small] = np.exp(np.maximum(log_excess[small], _LEAST))
    return np.asarray(result)


@functools.lru_cache(maxsize=8)
def _all_laws(screening: Screening) -> tuple[Floats, ...]:
    """Return the laws at all positions, ascending on either side; see :meth:`Screening.laws`.

    The number of positions on a side is made a multiple of the blocks that are scanned together,
    by repeating the last one.
    """
    block = _block(screening.k)
    index = np.minimum(np.arange(-(-screening.k // block) * block), screening.k - 1)
    positions = [screening.position(index, np.full_like(index, side)) for side in (0, 1)]
    return screening.laws(np.concatenate(positions))


@dataclasses.dataclass(frozen=True)
class ScreeningPair(Pair):
    """The pointwise maximum, over t and sign, of the hockey-stick divergences of a screening."""

    screening: Screening

    @property
    def symmetric(self) -> bool:
        return self.screening.gamma == 1

    def excess(self, losses: Floats) -> Floats:
        """Return H_eps(P|Q) - max(0, 1 - e^eps) at real `losses` eps (m,), as (m,) >= 0.

        At eps >= 0 it is q (e^U - x) with x = e^eps, at eps < 0 it is (1 - q)(x - e^V), see the
        module's text; both written as differences from 1 by expm1.
        """
        steepest = self._steepest(losses)
        result = np.zeros_like(losses)
        for side in (0, 1):
            for offset in (0, 1):
                position = self._nearest(steepest, side, offset)
                result = np.maximum(result, self._excess_at(position, losses))
        return result

    def _steepest(self, losses: Floats) -> Floats:
        """Return the real position where the curve (q, r) has slope e^eps; infinite if nowhere."""
        gamma, shift = self.screening.gamma, 1 / self.screening.sigma
        with np.errstate(divide="ignore", over="ignore"):
            near = np.log1p(np.maximum(np.expm1(losses) / gamma, -1.0))
        inner = np.where(losses > 30, losses - math.log(gamma), near)
        return np.asarray(-(inner + shift**2 / 2) / shift)

    def _nearest(self, targets: Floats, side: int, offset: int) -> Floats:
        """Return the last position at or below `targets` (offset 0), or the next one (offset 1)."""
        screening = self.screening
        first = screening.position(np.array(0), np.array(side))
        steps = np.floor((targets - first) * screening.sigma) + offset
        index = np.clip(steps, 0, screening.k - 1).astype(np.int64)
        return screening.position(index, np.array(side))

    def _excess_at(self, position: Floats, losses: Floats) -> Floats:
        log_q, log_miss, up, down = self.screening.laws(position)
        with np.errstate(over="ignore", invalid="ignore"):
            above = np.exp(log_q + up) * -np.expm1(np.minimum(losses - up, 0.0))
            size = np.minimum(losses, 0.0)
            below = np.exp(log_miss + size) * -np.expm1(np.minimum(down - size, 0.0))
        return np.where(losses >= 0, above, below)


BATCH = 64

_CELLS = 20
_DEVIATIONS = 10.0
_WIDTH = 0.02
_GROWTH = 0.3
_CENTRE = 0.7
# Beyond this position (plus the shift) an answer is all but certain.
_FAR = 9.0
_UNBOUNDED = 600.0
_SMALLEST_SIGMA = 0.1
_SMALLEST_STEP = 1e-5


@dataclasses.dataclass(frozen=True)
class ScreeningBatchPair(Pair):
    """The worst adaptive choice of votes in a batch of `size` screening answers."""

    screening: Screening
    size: int

    @property
    def symmetric(self) -> bool:
        return self.screening.gamma == 1

    def excess(self, losses: Floats) -> Floats:
        step, values = _profiles(self.screening, BATCH)
        return np.asarray(interpolate(values[self.size], step, losses))


def worth_it(screening: Screening) -> bool:
    """Return whether batches are within the reach of double precision."""
    step = screening.gamma / screening.sigma
    return screening.sigma >= _SMALLEST_SIGMA and step >= _SMALLEST_STEP


def batches(screening: Screening, count: int) -> list[tuple[ScreeningBatchPair, int]]:
    """Return pairs, with counts, that dominate `count` >= 1 answers of one screening."""
    n_batches, n_single = divmod(count, BATCH)
    parts = [
        (ScreeningBatchPair(screening, BATCH), n_batches),
        (ScreeningBatchPair(screening, n_single), 1),
    ]
    return [(pair, times) for pair, times in parts if pair.size and times]


@dataclasses.dataclass(frozen=True)
class _Option:
    """One choice of votes, or a bound for many: outcomes with masses and losses, and its excess."""

    masses: Floats
    losses: Floats


@functools.lru_cache(maxsize=8)
def _profiles(screening: Screening, size: int) -> tuple[float, Floats]:
    """Return the grid step and C_0 ... C_size on the grid, as (size + 1, 2 n + 1)."""
    options = _options(screening)
    spread = max(
        math.sqrt(float(o.masses @ np.where(abs(o.losses) < _UNBOUNDED, o.losses, 0) ** 2))
        for o in options
    )
    step = spread / _CELLS
    reach = np.ceil(_DEVIATIONS * np.sqrt(np.arange(size + 1)) * _CELLS + 4).astype(np.int64)
    half = int(reach[-1])
    epsilon = np.asarray(step * np.arange(-half, half + 1), dtype=np.float64)
    own = np.stack([_banded_excess(option, epsilon, step) for option in options])
    values = _largest_profiles(own, *_shifts(options, step, half), reach)
    return step, values * (1 + 1e-9)


def _banded_excess(option: _Option, epsilon: Floats, step: float) -> Floats:
    """Return the excess of one option on the grid; it is zero beyond its largest loss."""
    half = len(epsilon) // 2
    band = min(half, math.ceil(float(np.abs(option.losses).max()) / step) + 1)
    excess = np.zeros_like(epsilon)
    near = slice(half - band, half + band + 1)
    excess[near] = _own_excess(option, epsilon[near])
    return excess


def _own_excess(option: _Option, epsilon: Floats) -> Floats:
    """Return the excess of one option: its mass above eps, less 1 - e^eps below 0."""
    gain = np.zeros_like(epsilon)
    for mass, loss in zip(option.masses, option.losses, strict=True):
        above = -np.expm1(np.minimum(epsilon - loss, 0.0))
        # Below 0 the part of 1 - e^eps that this outcome does not give; the masses sum to 1.
        below = np.exp(np.minimum(epsilon, 0.0) - loss) * -np.expm1(np.minimum(loss - epsilon, 0.0))
        gain += mass * np.where(epsilon >= 0, above, below)
    return gain


def _shifts(options: Sequence[_Option], step: float, half: int) -> tuple[Ints, Floats, Floats]:
    """Return where every outcome shifts a profile to, and the weights of the points around it.

    A profile is joined by lines in e^eps between its points; three arrays (options, outcomes).
    """
    most = max(len(option.masses) for option in options)
    masses = np.array([np.pad(option.masses, (0, most - len(option.masses))) for option in options])
    losses = np.array([np.pad(option.losses, (0, most - len(option.losses))) for option in options])
    places = -losses / step
    cells = np.clip(np.floor(places), -half, half - 1)
    far = np.expm1(step * np.clip(places - cells, 0.0, 1.0)) / math.expm1(step)
    return cells.astype(np.int64), masses * (1 - far), masses * far


def interpolate(values: Floats, step: float, losses: Floats) -> Floats:
    """Return `values` of the grid at any losses, joined by straight lines in e^eps."""
    half = len(values) // 2
    place = np.clip(losses / step, -half, half)
    cell = np.minimum(np.floor(place), half - 1)
    weight = np.expm1(step * (place - cell)) / math.expm1(step)
    index = cell.astype(np.int64) + half
    return np.asarray((1 - weight) * values[index] + weight * values[index + 1])


def _options(screening: Screening) -> list[_Option]:
    """Return options that dominate every choice of votes."""
    far = _FAR + 1 / screening.sigma
    everywhere = _positions(screening)
    options = _certain(screening, far, everywhere)
    positions, low = everywhere[np.abs(everywhere) <= far], 0
    while low < len(positions):
        spacing = _WIDTH + _GROWTH * max(0.0, abs(positions[low]) - _CENTRE)
        high = int(np.searchsorted(positions, positions[low] + spacing, side="right")) - 1
        high = max(high, low)
        options.append(_option(screening, positions[low], positions[high]))
        low = high + 1
    return options


def _certain(screening: Screening, far: float, positions: Floats) -> list[_Option]:
    """Return options that dominate the positions beyond `far` on either side.

    Below, the chance r to pass is at most that at -far: all of it may be loss without bound. Above,
    the chance to fail without the subject is at most that at far, and may vanish with the subject.
    """
    log_q, log_miss, up, _ = screening.laws(np.array([-far, far]))
    options = []
    if positions[0] < -far:
        passed = math.exp(log_q[0] + up[0])
        losses = np.array([_UNBOUNDED, math.log1p(-passed)])
        options.append(_Option(np.array([passed, 1 - passed]), losses))
    if positions[-1] > far:
        missed = math.exp(log_miss[1])
        losses = np.array([-math.log1p(-missed), -_UNBOUNDED])
        options.append(_Option(np.array([1.0, missed * math.exp(-_UNBOUNDED)]), losses))
    return options


def _positions(screening: Screening) -> Floats:
    """Return all positions of upward steps, in ascending order; nearly equal ones once."""
    index = np.arange(screening.k)
    both = np.concatenate([screening.position(index, np.full_like(index, s)) for s in (0, 1)])
    both.sort()
    return both[np.diff(both, prepend=-np.inf) > 1e-9 / screening.sigma]


def _option(screening: Screening, low: float, high: float) -> _Option:
    """Return the option for the positions between `low` and `high`."""
    log_q, log_miss, up, down = screening.laws(np.array([low, high]))
    if high == low:
        masses = np.array([math.exp(log_q[0] + up[0]), math.exp(log_miss[0] + down[0])])
        return _Option(masses, np.array([up[0], down[0]]))
    # Slopes of the curve at both ends: the losses of the two pieces of the hull between them.
    shift = 1 / screening.sigma
    slopes = mixed_ratio(-np.array([low, high]) * shift - shift**2 / 2, screening.gamma)
    without = math.exp(log_q[1]) - math.exp(log_q[0])
    with_ = math.exp(log_q[1] + up[1]) - math.exp(log_q[0] + up[0])
    steep, flat = math.exp(slopes[0]), math.exp(slopes[1])
    # Slopes that are equal in double precision leave one piece.
    share = (with_ - flat * without) / (steep - flat) if steep > flat else without
    share = min(max(share, 0.0), without)
    masses = np.array(
        [
            math.exp(log_q[0] + up[0]),
            steep * share,
            flat * (without - share),
            math.exp(log_miss[1] + down[1]),
        ]
    )
    return _Option(masses, np.array([up[0], slopes[0], slopes[1], down[1]]))


def _largest_sums(powers: Floats, laws: tuple[Floats, ...], block: int) -> Floats:
    """Return, for every power b (m,), the largest log(q G_b(U) + (1-q) G_b(V)) over positions.

    `laws` are log q, log(1 - q), U and V at the n positions, see `Screening.laws`.
    Positions ascend within blocks of `block`, of which n is a multiple; a block is left out where
    the bound above for all of it, from its two ends, does not exceed what was found at
    the first positions of blocks.
    """
    log_q, log_miss, up, down = laws
    low = np.arange(0, len(log_q), block)
    high, b = low + block - 1, powers[:, None]
    answer = _log_sums(b, log_q[low], log_miss[low], up[low], down[low]).max(axis=1)
    bound = _log_sums(b, log_q[high], log_miss[low], up[low], down[high])
    row, blocks = np.nonzero(bound > answer[:, None])
    if len(row):
        inside = low[blocks][:, None] + np.arange(block)
        values = _log_sums(powers[row][:, None], *(law[inside] for law in laws))
        np.maximum.at(answer, row, values.max(axis=1))
    return np.asarray(answer)


def _log_sums(power: Floats, log_q: Floats, log_miss: Floats, up: Floats, down: Floats) -> Floats:
    return np.logaddexp(log_q + log_gap(power, up), log_miss + log_gap(power, down))


def _largest_profiles(
    own: Floats, cells: Places, near: Floats, far: Floats, reach: Places
) -> Floats:
    """Return C_0 ... C_m of the text above, as (m + 1, 2 h + 1).

    `own` (o, 2 h + 1) is the excess of every option alone. `cells`, `near`, `far` (o, k) are, for
    each outcome of an option, the shift of the profile in grid steps, -h <= cell < h, and the
    weights of the two grid points around it. `reach` (m + 1,) is how far from the middle C_j is
    worked out; beyond, the value there, which is larger, stands.
    """
    half = own.shape[1] // 2
    values = np.zeros((len(reach), own.shape[1]))
    weights = np.concatenate([near, far], axis=1)
    starts = half + np.concatenate([cells, cells + 1], axis=1)
    shifts = [
        (start[some], part[some])
        for start, part, some in zip(starts, weights, weights != 0, strict=True)
    ]
    for j in range(1, len(reach)):
        low, high = half - int(reach[j]), half + int(reach[j]) + 1
        windows = sliding_window_view(np.pad(values[j - 1], half, mode="edge"), high - low)
        best = values[j, low:high]
        for alone, (start, weight) in zip(own, shifts, strict=True):
            np.maximum(best, alone[low:high] + weight @ windows[low + start], out=best)
        values[j, :low], values[j, high:] = best[0], best[-1]
    return values
