r"""Expected delta of sampled counts of several types: bounds that meet, by monotone steps.

One record of another type can be relabelled after the sample is published: a coin says whether it
was in it. So the loss e(a, b) of a swap falls when a or b grows and n stays, and delta(h) is
g(x, y), the larger loss of the swaps between the two smallest counts x <= y; g falls in both.

The databases in which type i is the smallest (of equal ones the first) with count x, and the next
count is y, have no more probability than P(h_i = x) times the sum over j of P(h_j = y | h_i = x);
for three types just that. Rectangles of (x, y) are cut where the values of g at their corners
differ most, weighted by probability, until the two sums are close.
"""

from __future__ import annotations

import heapq
import math
from functools import cache

import numpy as np

from vicinal.arrays import Floats
from vicinal.smoothed._expectation import TwoTypeWorld, window
from vicinal.smoothed.intervals import MACHINE_EPSILON, LogInterval, log_binomial_pmf, log_or_minus_inf
from vicinal.smoothed.mechanism import Sampler

_CLOSE = 0.01
_MOST_CORNERS = 4000
_MAX_RECORDS = 30_000
_ROUNDING = 1e-8
"""Relative error of a sum of a few million weights, each good to 1e-11, rounded up."""
_LEAST = 1e-250

Block = tuple[int, int, int, int]
"""First and last row, first and last column."""


def bound_multitype_mean(sampler: Sampler, chances: Floats, n: int, epsilon: float) -> LogInterval | None:
    """Return the mean of delta(h), h multinomial; None where this is no help.

    `chances` (m,): of each type; what they lack of 1 is one more type, of which no swap is
    considered, and then only the upper end holds. The upper end also holds where every record has
    its own chances, none of them smaller: relabelling can only lower delta.
    """
    if len(chances) < 2 or n > _MAX_RECORDS or chances.max() > 1 - 1e-9:
        return None
    corners, depth = _Corners(sampler, n, epsilon), 20.0
    while True:
        tables = [_weights(chances, n, i, depth) for i in range(len(chances))]
        left_out = 2 * len(chances) ** 2 * math.exp(-depth) * corners.most
        low, high = _sums(tables, corners, left_out)
        if left_out <= _CLOSE / 4 * high or depth > -math.log(_LEAST):
            break
        depth *= 2
    low, high = low * (1 - _ROUNDING) - _LEAST, (high + left_out) * (1 + _ROUNDING) + _LEAST
    return LogInterval(log_or_minus_inf(low), log_or_minus_inf(high)).cap_log()


class _Corners:
    """The function g, each value computed once."""

    def __init__(self, sampler: Sampler, n: int, epsilon: float) -> None:
        self.most = sampler.touched(n)
        self._n = n
        self._ends = cache(lambda a, b: self._swap(sampler, a, b, epsilon))
        self.value = cache(self._value)
        self.known = 0

    def _swap(self, sampler: Sampler, a: int, b: int, epsilon: float) -> tuple[float, float]:
        self.known += 1
        ways = [sampler.pair(*pair, self._n, epsilon) for pair in {(a, b), (b, a)}]
        low, high = max(way.low for way in ways), max(way.high for way in ways)
        return math.exp(low - 1e-12), math.exp(high + 1e-12) + 1e-300

    def _value(self, x: int, y: int) -> tuple[float, float]:
        """Return lower and upper g of counts x <= y, or y <= x."""
        if x + y > self._n:
            return 0.0, 1e-300
        if x == y == 0:
            return 0.0, self.most
        swaps = [(x - 1, y)] * (x > 0) + [(x, y - 1)] * (y > 0)
        ends = [self._ends(min(pair), max(pair)) for pair in swaps]
        return max(end[0] for end in ends), min(self.most, max(end[1] for end in ends))


def _weights(chances: Floats, n: int, i: int, depth: float) -> tuple[int, int, Floats, Floats]:
    """Return first x, first y, and bounds of the chances of (x, y) with type i the smallest.

    What is farther out than exp(-depth) is left out. The lower ones miss ties of more than three
    types, and are bounds where g falls: mass is moved to larger y.
    """
    own, others = float(chances[i]), [j for j in range(len(chances)) if j != i]
    given = [min(float(chances[j]) / (1 - own), 1.0) for j in others]
    low, high = window(TwoTypeWorld((n,), (own,)), -depth)
    most, least = ([_span(n - x, q, depth) for q in given] for x in (low, high))
    first, last = min(span[0] for span in least), max(span[1] for span in most)
    high, exact = (
        max(min(high, last), low - 1),
        len(chances) == 3 and abs(float(chances.sum()) - 1) < 1e-12,
    )
    upper, lower = np.zeros((2, high - low + 1, last - first + 1))
    columns = np.arange(first, last + 1, dtype=np.int64)
    ties = np.array([j < i for j in others])[:, None]  # they come first where counts are equal
    for place, chance in enumerate(np.exp(log_binomial_pmf(n, own, low, high + 1)).tolist()):
        x, laws = low + place, np.zeros((len(others), last - first + 1))
        stop = max(min(last, n - x) + 1, first)
        for law, q in zip(laws, given, strict=True):
            law[: stop - first] = np.exp(log_binomial_pmf(n - x, q, first, stop))
        above = np.where(columns >= x + ties, laws, 0.0)
        # Pr[i is the smallest]: of three types, where the second count leaves enough to the third;
        # of more at most the product, as counts are negatively associated.
        alive = float(np.prod(np.minimum(above.sum(1), 1.0)))
        if exact:
            alive = float(above[0][columns <= n - 2 * x - ties[1]].sum())
        within = np.minimum(np.cumsum(above.sum(0)), alive)
        upper[place] = chance * np.diff(within, prepend=0.0)
        if not exact:  # Pr[x < all others, and one <= y], at least
            upto = np.cumsum(laws, 1)
            one = -np.expm1(np.log1p(-np.minimum(upto, 1 - MACHINE_EPSILON)).sum(0))
            lost = (1 + 1e-9) * float(laws[:, columns <= x].sum()) + len(others) * math.exp(-depth)
            within = np.where(columns > x, np.maximum((1 - 1e-9) * one - lost, 0.0), 0.0)
        lower[place] = chance * np.diff(np.maximum.accumulate(within), prepend=0.0)
    return low, first, lower, upper


def _span(n: int, chance: float, depth: float) -> tuple[int, int]:
    return window(TwoTypeWorld((n,), (chance,)), -depth) if n else (0, 0)


def _sums(
    tables: list[tuple[int, int, Floats, Floats]], corners: _Corners, left_out: float
) -> tuple[float, float]:
    """Return lower and upper sums of weights times g, of rectangles cut until they are close."""
    blocks = [
        _weighed(tables, corners, which, (0, upper.shape[0] - 1, 0, upper.shape[1] - 1))
        for which, (_, _, _, upper) in enumerate(tables)
        if upper.size
    ]
    heapq.heapify(blocks)
    while True:
        # Anew each time: sums that shrink by many orders would keep the error of their first.
        gap, high = math.fsum(b[0] for b in blocks), math.fsum(b[4] for b in blocks)
        if -gap <= _CLOSE / 2 * high or corners.known > _MOST_CORNERS or high < left_out:
            return math.fsum(block[3] for block in blocks), high
        for _ in range(1 + len(blocks) // 8):
            _, which, (top, bottom, left, right), _, _ = heapq.heappop(blocks)
            for rows in _halves(top, bottom):
                for side in _halves(left, right):
                    heapq.heappush(blocks, _weighed(tables, corners, which, (*rows, *side)))
            if blocks[0][0] == 0:
                break


def _weighed(
    tables: list[tuple[int, int, Floats, Floats]], corners: _Corners, which: int, block: Block
) -> tuple[float, int, Block, float, float]:
    """Return what a cut would gain, negative, and lower and upper sums of a rectangle."""
    x, y, lower, upper = tables[which]
    top, bottom, left, right = block
    part = np.s_[top : bottom + 1, left : right + 1]
    weight = float(upper[part].sum())
    if not weight:
        return 0.0, which, block, 0.0, 0.0
    high, low = corners.value(x + top, y + left)[1], corners.value(x + bottom, y + right)[0]
    gap = weight * (low - high) if (top, left) != (bottom, right) else 0.0
    return gap, which, block, float(lower[part].sum()) * low, weight * high


def _halves(first: int, last: int) -> list[tuple[int, int]]:
    middle = (first + last) // 2
    return [(first, middle), (middle + 1, last)] if first < last else [(first, last)]
