"""Bounds of the expected delta of sampled counts of several types, computed from monotone steps.

A record of a third type can be relabelled after the sample is published: a coin decides whether it
was sampled. This is post-processing, so the divergence e(a, b) of a swap falls when a or b grows
and n stays. Delta of a histogram h is therefore g(x, y), the larger divergence of the swaps between
the two smallest counts x <= y, and g falls in both arguments.

Consider the databases in which type i has the smallest count x (the first type, if counts are
equal) and the next smallest count is y. Their probability is at most P(h_i = x) times the sum over
j of P(h_j = y | h_i = x), with equality for three types. Rectangles of (x, y) are cut where the
values of g at their corners differ most, weighted by probability, until the lower and the upper sum
are close.
"""

from __future__ import annotations

import heapq
import math
from functools import cache

import numpy as np

from vicinal.arrays import Floats
from vicinal.smoothed._expectation import TwoTypeWorld, find_window
from vicinal.smoothed.intervals import (
    MACHINE_EPSILON,
    LogInterval,
    log_binomial_pmf,
    log_or_minus_inf,
)
from vicinal.smoothed.mechanism import Sampler

_TOLERANCE = 0.01
"""Relative difference of the two sums at which no rectangle is cut any more."""
_MAX_CORNERS = 4000
"""Divergences computed before the sums are returned as they are."""
_MAX_RECORDS = 30_000
"""Records for which the tables of weights fit in memory and time."""
_ROUNDING = 1e-8
"""Relative error of a sum of a few million weights, each good to 1e-11, rounded up."""
_MIN_MEAN = 1e-250
"""Smallest mean that is resolved; smaller means have it as their upper end."""

Rectangle = tuple[int, int, int, int]
"""First and last row, first and last column."""


def bound_multitype_mean(
    sampler: Sampler, probabilities: Floats, n: int, epsilon: float
) -> LogInterval | None:
    """Return the expected delta of sampled counts with a multinomial histogram; None if too large.

    `probabilities` (m,) are those of the types of each of n records. If their sum is below 1, the
    rest is one more type that no swap involves, and only the upper end holds. The upper end also
    holds for records with different distributions that have at least these probabilities, as
    relabelling can only lower delta.
    """
    if len(probabilities) < 2 or n > _MAX_RECORDS or probabilities.max() > 1 - 1e-9:
        return None
    corners, depth = _CornerDeltas(sampler, n, epsilon), 20.0
    while True:
        tables = [
            _tabulate_weights(probabilities, n, type_index, depth)
            for type_index in range(len(probabilities))
        ]
        left_out = 2 * len(probabilities) ** 2 * math.exp(-depth) * corners.max_delta
        low, high = _sum_rectangles(tables, corners, left_out)
        if left_out <= _TOLERANCE / 4 * high or depth > -math.log(_MIN_MEAN):
            break
        depth *= 2
    low, high = low * (1 - _ROUNDING) - _MIN_MEAN, (high + left_out) * (1 + _ROUNDING) + _MIN_MEAN
    return LogInterval(log_or_minus_inf(low), log_or_minus_inf(high)).cap_log()


class _CornerDeltas:
    """The function g of two counts, with each value computed once.

    `max_delta` is the inclusion probability; `n_computed` the number of computed divergences.
    """

    def __init__(self, sampler: Sampler, n: int, epsilon: float) -> None:
        self.max_delta = sampler.compute_inclusion_probability(n)
        self._n = n
        self._get_swap_ends = cache(lambda a, b: self._compute_swap(sampler, a, b, epsilon))
        self.get_delta = cache(self._compute_delta)
        self.n_computed = 0

    def _compute_swap(
        self, sampler: Sampler, a: int, b: int, epsilon: float
    ) -> tuple[float, float]:
        """Return lower and upper divergence e(a, b), the larger of both directions."""
        self.n_computed += 1
        directions = [
            sampler.compute_divergence(*counts, self._n, epsilon) for counts in {(a, b), (b, a)}
        ]
        low = max(direction.low for direction in directions)
        high = max(direction.high for direction in directions)
        return math.exp(low - 1e-12), math.exp(high + 1e-12) + 1e-300

    def _compute_delta(self, x: int, y: int) -> tuple[float, float]:
        """Return lower and upper g for the two smallest counts x and y, in either order."""
        if x + y > self._n:
            return 0.0, 1e-300
        if x == y == 0:
            return 0.0, self.max_delta
        swaps = [(x - 1, y)] * (x > 0) + [(x, y - 1)] * (y > 0)
        ends = [self._get_swap_ends(min(counts), max(counts)) for counts in swaps]
        return max(end[0] for end in ends), min(self.max_delta, max(end[1] for end in ends))


def _tabulate_weights(
    probabilities: Floats, n: int, smallest_type: int, depth: float
) -> tuple[int, int, Floats, Floats]:
    """Return first x, first y, and lower and upper probabilities of (x, y), each (rows, columns).

    Type `smallest_type` has the smallest count x, and y is the next smallest count. Tails below
    exp(-depth) are left out. The lower probabilities neglect ties of more than three types. They
    are valid bounds for the mean of the falling function g only: mass is moved to larger y.
    """
    own_probability = float(probabilities[smallest_type])
    rest_types = [index for index in range(len(probabilities)) if index != smallest_type]
    rest_probabilities = [float(probabilities[rest_type]) for rest_type in rest_types]
    conditionals = [min(p / (1 - own_probability), 1.0) for p in rest_probabilities]
    min_x, max_x = find_window(TwoTypeWorld((n,), (own_probability,)), -depth)
    spans_at_min, spans_at_max = (
        [_find_span(n - x, conditional, depth) for conditional in conditionals]
        for x in (min_x, max_x)
    )
    min_y, max_y = min(span[0] for span in spans_at_max), max(span[1] for span in spans_at_min)
    max_x = max(min(max_x, max_y), min_x - 1)
    is_exact = len(probabilities) == 3 and abs(float(probabilities.sum()) - 1) < 1e-12
    upper, lower = np.zeros((2, max_x - min_x + 1, max_y - min_y + 1))
    y_values = np.arange(min_y, max_y + 1, dtype=np.int64)
    # Of types with equal counts the first one is called the smallest.
    loses_tie = np.array([rest_type < smallest_type for rest_type in rest_types])[:, None]
    x_pmf = np.exp(log_binomial_pmf(n, own_probability, min_x, max_x + 1)).tolist()
    for row, x_probability in enumerate(x_pmf):
        x = min_x + row
        y_pmfs = np.zeros((len(rest_types), max_y - min_y + 1))
        y_stop = max(min(max_y, n - x) + 1, min_y)
        for y_pmf, conditional in zip(y_pmfs, conditionals, strict=True):
            y_pmf[: y_stop - min_y] = np.exp(log_binomial_pmf(n - x, conditional, min_y, y_stop))
        larger_pmfs = np.where(y_values >= x + loses_tie, y_pmfs, 0.0)
        # Pr[smallest_type has the smallest count | x]. For three types: the second count leaves the
        # third one large enough. For more types at most the product, as counts are negatively
        # associated.
        p_smallest = float(np.prod(np.minimum(larger_pmfs.sum(1), 1.0)))
        if is_exact:
            p_smallest = float(larger_pmfs[0][y_values <= n - 2 * x - loses_tie[1]].sum())
        cumulative = np.minimum(np.cumsum(larger_pmfs.sum(0)), p_smallest)
        upper[row] = x_probability * np.diff(cumulative, prepend=0.0)
        if not is_exact:  # a lower bound of Pr[all remaining counts > x, and one of them <= y]
            y_cdfs = np.cumsum(y_pmfs, 1)
            p_next_at_most = -np.expm1(np.log1p(-np.minimum(y_cdfs, 1 - MACHINE_EPSILON)).sum(0))
            p_excluded = (1 + 1e-9) * float(y_pmfs[:, y_values <= x].sum())
            p_excluded = p_excluded + len(rest_types) * math.exp(-depth)
            cumulative = np.where(
                y_values > x, np.maximum((1 - 1e-9) * p_next_at_most - p_excluded, 0.0), 0.0
            )
        lower[row] = x_probability * np.diff(np.maximum.accumulate(cumulative), prepend=0.0)
    return min_x, min_y, lower, upper


def _find_span(n: int, probability: float, depth: float) -> tuple[int, int]:
    """Return the range of Bin(n, probability) without tails below exp(-depth)."""
    return find_window(TwoTypeWorld((n,), (probability,)), -depth) if n else (0, 0)


def _sum_rectangles(
    tables: list[tuple[int, int, Floats, Floats]], corners: _CornerDeltas, left_out: float
) -> tuple[float, float]:
    """Return lower and upper sums of weights times g, over rectangles cut until they are close.

    `tables` are the results of :func:`_tabulate_weights` for each smallest type, `corners` is g.
    Mass of `left_out` is not in the tables, so smaller sums need no further precision.
    """
    rectangles = []
    for index, (_, _, _, upper) in enumerate(tables):
        if upper.size:
            full_table = (0, upper.shape[0] - 1, 0, upper.shape[1] - 1)
            rectangles.append(_weigh_rectangle(tables, corners, index, full_table))
    heapq.heapify(rectangles)
    while True:
        # Summed anew each time: updated sums would keep the rounding error of their first values,
        # which can be many orders of magnitude larger.
        gap = math.fsum(rectangle[0] for rectangle in rectangles)
        upper_sum = math.fsum(rectangle[4] for rectangle in rectangles)
        if (
            -gap <= _TOLERANCE / 2 * upper_sum
            or corners.n_computed > _MAX_CORNERS
            or upper_sum < left_out
        ):
            return math.fsum(rectangle[3] for rectangle in rectangles), upper_sum
        for _ in range(1 + len(rectangles) // 8):
            _, table_index, widest, _, _ = heapq.heappop(rectangles)
            first_row, last_row, first_column, last_column = widest
            for rows in _halve_range(first_row, last_row):
                for columns in _halve_range(first_column, last_column):
                    smaller = _weigh_rectangle(tables, corners, table_index, (*rows, *columns))
                    heapq.heappush(rectangles, smaller)
            if rectangles[0][0] == 0:
                break


def _weigh_rectangle(
    tables: list[tuple[int, int, Floats, Floats]],
    corners: _CornerDeltas,
    table_index: int,
    rectangle: Rectangle,
) -> tuple[float, int, Rectangle, float, float]:
    """Return the heap entry of a rectangle of one table.

    Its items are minus the difference of the sums that a cut would reduce, the index of the table,
    the rectangle, and lower and upper sums of weights times g.
    """
    min_x, min_y, lower, upper = tables[table_index]
    first_row, last_row, first_column, last_column = rectangle
    cells = np.s_[first_row : last_row + 1, first_column : last_column + 1]
    weight = float(upper[cells].sum())
    if not weight:
        return 0.0, table_index, rectangle, 0.0, 0.0
    upper_delta = corners.get_delta(min_x + first_row, min_y + first_column)[1]
    lower_delta = corners.get_delta(min_x + last_row, min_y + last_column)[0]
    is_single_cell = (first_row, first_column) == (last_row, last_column)
    gap = 0.0 if is_single_cell else weight * (lower_delta - upper_delta)
    lower_sum = float(lower[cells].sum()) * lower_delta
    return gap, table_index, rectangle, lower_sum, weight * upper_delta


def _halve_range(first: int, last: int) -> list[tuple[int, int]]:
    """Return both halves of the indices first .. last, or the only index."""
    middle = (first + last) // 2
    return [(first, middle), (middle + 1, last)] if first < last else [(first, last)]
