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
for all t in the block from its two ends. Blocks whose bound does not exceed the best value found by
more than one part in 10^6 are dropped, the others split; what is returned is never below the
maximum, and above it by that part at most. With at most 1,024 votes the blocks are scanned instead,
and what is returned is the maximum.

PLD. The points (q, r) lie on one concave curve (the ROC curve of N(m, 1) against N(0, 1), mixed
with the diagonal), so H_x = max over t of r - x q, x = e^eps, is attained at one of the two
positions next to the a where the curve has slope x: a = -(log((x - 1 + gamma)/gamma) + m^2/2)/m.
The same holds for the complement below x = 1. So any k costs two evaluations.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np
from scipy.special import log_ndtr

from vicinal import _checks
from vicinal._arrays import Bools, Floats, Places
from vicinal.accounting import _kernels
from vicinal.accounting._divergence import Pair, log_gap, mixed_ratio, tail_ratios

MAX_VOTES = 10**6

_TOLERANCE = 1e-6
_BLOCKS = 64
_BRANCHES = 4
# Logarithm of the least cost there is: what is smaller is rounded up to it.
_LEAST = -690.0
# Up to so many votes all positions are looked at, in blocks of so many.
_FEW = 1024
_SCANNED = 16


@dataclasses.dataclass(frozen=True)
class VoteBlocks:
    """Blocks low..high of positions on a side, each for one power (row); all arrays are (b,)."""

    low: Places
    high: Places
    row: Places
    side: Places

    def only(self, mask: Bools) -> VoteBlocks:
        """Return the blocks where `mask` (b,) is true."""
        return VoteBlocks(self.low[mask], self.high[mask], self.row[mask], self.side[mask])

    def branch(self) -> VoteBlocks:
        """Return every block cut into up to four."""
        sizes = (self.high - self.low + 1)[:, None]
        cuts = self.low[:, None] + sizes * np.arange(_BRANCHES + 1) // _BRANCHES
        row, side = np.repeat(self.row, _BRANCHES), np.repeat(self.side, _BRANCHES)
        cut = VoteBlocks(cuts[:, :-1].ravel(), cuts[:, 1:].ravel() - 1, row, side)
        return cut.only(cut.high >= cut.low)


@dataclasses.dataclass(frozen=True)
class Screening:
    """One screening answer of k voting records: whether the largest count passes, with noise."""

    k: int
    threshold: float
    sigma: float
    gamma: float = 1.0

    def __post_init__(self) -> None:
        _checks.integer("k", self.k, least=1, most=MAX_VOTES)
        _checks.real("threshold", self.threshold, least=-1e7, most=1e7)
        _checks.real("sigma", self.sigma, least=1e-2, most=1e9)
        _checks.real("gamma", self.gamma, above=0, most=1)

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
        order = _checks.real("order", order, above=1)
        powers = np.array([order, 1 - order])
        blocks = self._frontier(powers)
        while (blocks.high > blocks.low).any():
            ends, bound = self._ends_and_bound(powers, blocks)
            blocks = blocks.only(bound >= ends.max()).branch()
        values, _ = self._ends_and_bound(powers, blocks)
        place = int(np.argmax(values))
        index, down = int(blocks.low[place]), bool(blocks.side[place])
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
        if self.k <= _FEW:
            answer = _kernels.largest_sums(powers, _all_laws(self), _SCANNED)
        else:
            answer = self._searched(powers)
        return np.asarray(answer + 1e-11 + 1e-12 * np.abs(answer))

    def _searched(self, powers: Floats) -> Floats:
        """Return the same by branch and bound, not rounded up."""
        blocks = self._frontier(powers)
        answer = np.full(len(powers), -np.inf)
        while len(blocks.low):
            ends, bound = self._ends_and_bound(powers, blocks)
            np.maximum.at(answer, blocks.row, ends)
            done = bound <= answer[blocks.row] + _TOLERANCE
            np.maximum.at(answer, blocks.row[done], bound[done])
            blocks = blocks.only(~done & (blocks.high > blocks.low)).branch()
        return answer

    def _frontier(self, powers: Floats) -> VoteBlocks:
        blocks = min(_BLOCKS, self.k)
        edges = np.linspace(0, self.k, blocks + 1).astype(np.int64)
        row, side, block = (axis.ravel() for axis in np.indices((len(powers), 2, blocks)))
        return VoteBlocks(edges[block], edges[block + 1] - 1, row, side)

    def _ends_and_bound(self, powers: Floats, blocks: VoteBlocks) -> tuple[Floats, Floats]:
        """Return the larger value at the two ends of every block, and a bound for all in it."""
        power = powers[blocks.row]
        log_q, log_miss, up, down = self._laws_at(blocks.low, blocks.side)
        value = np.logaddexp(log_q + log_gap(power, up), log_miss + log_gap(power, down))
        if (blocks.low == blocks.high).all():
            return value, value
        log_q_end, log_miss_end, up_end, down_end = self._laws_at(blocks.high, blocks.side)
        gain_end = log_gap(power, down_end)
        other = np.logaddexp(log_q_end + log_gap(power, up_end), log_miss_end + gain_end)
        bound = np.logaddexp(log_q_end + log_gap(power, up), log_miss + gain_end)
        return np.maximum(value, other), bound

    def _laws_at(self, index: Places, side: Places) -> tuple[Floats, ...]:
        """Return the laws at every (index, side), worked out once for each different one."""
        different, place = np.unique(2 * index + side, return_inverse=True)
        laws = self.laws(self.position(different // 2, different % 2))
        return tuple(law[place] for law in laws)


def _log_one_plus(log_excess: Floats) -> Floats:
    """Return log(1 + e^x), never 0 however small."""
    result = np.logaddexp(0.0, log_excess)
    small = log_excess < -30
    result[small] = np.exp(np.maximum(log_excess[small], _LEAST))
    return np.asarray(result)


@functools.lru_cache(maxsize=64)
def _all_laws(screening: Screening) -> tuple[Floats, ...]:
    """Return the laws at all positions, ascending on either side; see :meth:`Screening.laws`.

    The number of positions on a side is made a multiple of the blocks that are scanned together,
    by repeating the last one.
    """
    index = np.minimum(np.arange(-(-screening.k // _SCANNED) * _SCANNED), screening.k - 1)
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


@dataclasses.dataclass(frozen=True)
class ScreeningAt:
    """One unsampled screening answer at its own largest vote: a cost that is itself private.

    The cost depends on the data through `votes`; publishing it, or deciding by it, needs a release
    of its own. It must not be combined with Poisson sampling: amplification of a data-dependent
    bound is an open problem (Zhu et al. 2020, supplement E), so there is no gamma here.
    """

    votes: int
    k: int
    threshold: float
    sigma: float

    def __post_init__(self) -> None:
        Screening(self.k, self.threshold, self.sigma)
        _checks.integer("votes", self.votes, least=0, most=self.k)

    def rdp(self, orders: Floats) -> Floats:
        """Return the RDP at `orders` (m,): the maximum over both signs and directions at t."""
        screening = Screening(self.k, self.threshold, self.sigma)
        up = (self.votes - self.threshold) / self.sigma
        positions = np.array([up] * (self.votes < self.k) + [-up] * (self.votes > 0))
        powers = np.concatenate([orders, 1 - orders])
        log_q, log_miss, up_ratio, down_ratio = screening.laws(positions)
        gains = np.logaddexp(
            log_q + log_gap(powers[:, None], up_ratio),
            log_miss + log_gap(powers[:, None], down_ratio),
        )
        both = _log_one_plus(gains.max(axis=1)).reshape(2, -1)
        return np.asarray(both.max(axis=0) / (orders - 1))

    def pair(self) -> None:
        """Return None: the cost of one data set's votes is no dominating pair of a mechanism."""
