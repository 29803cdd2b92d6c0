"""Bounds of the expected delta of sampled counts of several types, by monotonicity in the counts.

Let e(a, b) be the larger divergence, of both directions, of neighbours that differ in one record of
two types and share a and b records of them. Relabelling a record of a third type as one of the two
is post-processing of the sampled counts. So e(a, b) decreases in a and in b at constant n. Delta of
a histogram is therefore g(x, y), the largest divergence from replacing a record of one of the two
types with the smallest counts x <= y by one of the other, and g decreases in both arguments.

Consider the databases in which type i has the smallest count x (the first type, if counts are
equal) and the next smallest count is y. Their probability is at most P(h_i = x) times the sum over
j of P(h_j = y | h_i = x), with equality for three types. In a rectangle of (x, y), g is between its
values at two corners. Rectangles where these differ most, weighted by probability, are split until
the lower and the upper sum are close.

The probabilities of (x, y) are differences, along y, of bounds of the distribution function of y.
As g decreases, an upper bound of that function gives an upper bound of the mean of g (it moves
probability to smaller y), and a lower bound a lower one. `depth`: tails of counts with a
probability below exp(-depth) are left out of the tables.
"""

from __future__ import annotations

import heapq
import math
from functools import cache
from typing import NamedTuple

import numpy as np

from vicinal.arrays import Floats, Ints
from vicinal.progress import begin_progress
from vicinal.smoothed._expectation import TwoTypeWorld, find_window
from vicinal.smoothed.intervals import (
    MACHINE_EPSILON,
    LogInterval,
    log_binomial_pmf,
    log_or_minus_inf,
)
from vicinal.smoothed.mechanism import Sampler

_TOLERANCE = 0.01  # relative difference of the two sums at which no rectangle is split any more
_MAX_CORNERS = 4000
"""Maximal number of computed divergences; then the sums are returned as they are."""
_MAX_RECORDS = 30_000
"""Maximal number of records: the tables of weights must fit in memory and time."""
_ROUNDING = 1e-8  # relative error of a sum of a few million weights, each good to 1e-11, rounded up
MIN_MEAN = 1e-250
"""Smallest mean that is resolved; smaller means have it as their upper end."""


class Rectangle(NamedTuple):
    """A range of rows (x) and columns (y) of a :class:`_WeightTable`, ends included."""

    first_row: int
    last_row: int
    first_column: int
    last_column: int


class _WeightTable(NamedTuple):
    """Weights of (x, y) that give lower and upper bounds of the mean of g, float64 (rows, columns).

    Row r is the smallest count x = `min_x` + r, column c the next smallest y = `min_y` + c.
    """

    min_x: int
    min_y: int
    lower: Floats
    upper: Floats


class _RectangleSum(NamedTuple):
    """Lower and upper bounds of the sum of probability times g over a rectangle of a table.

    Heaps return the smallest `negated_gap` first: minus the difference of the two sums that is due
    to g, which splitting the rectangle reduces. `table_index` is the type with the smallest count.
    """

    negated_gap: float
    table_index: int
    rectangle: Rectangle
    lower_sum: float
    upper_sum: float


def bound_multitype_mean(
    sampler: Sampler, probabilities: Floats, n: int, epsilon: float
) -> LogInterval | None:
    """Return an interval of the expected delta of sampled counts for a multinomial histogram.

    `sampler` selects the records that are counted. Each of `n` records has type i with probability
    `probabilities[i]`; delta is at `epsilon`. If the sum of the probabilities is below 1, the rest
    is one more type in which neighbours never differ, and only the upper end is valid. The
    upper end is also valid for records with different distributions that have at least these
    probabilities. The result is None if n is too large, or for one type or one almost certain type.
    """
    if len(probabilities) < 2 or n > _MAX_RECORDS or probabilities.max() > 1 - 1e-9:
        return None
    corner_deltas = _CornerDeltas(sampler, n, epsilon)
    depth = 20.0
    while True:
        report_progress = begin_progress(f"sums to depth {depth:.0f}", len(probabilities))
        tables = []
        for type_index in range(len(probabilities)):
            tables.append(_tabulate_weights(probabilities, n, type_index, depth))
            if report_progress is not None:
                report_progress(1)
        left_out = 2 * len(probabilities) ** 2 * math.exp(-depth) * corner_deltas.max_delta
        low, high = _bound_weighted_sum(tables, corner_deltas, left_out)
        if left_out <= _TOLERANCE / 4 * high or depth > -math.log(MIN_MEAN):
            break
        depth *= 2
    low = low * (1 - _ROUNDING) - MIN_MEAN
    high = (high + left_out) * (1 + _ROUNDING) + MIN_MEAN
    return LogInterval(log_or_minus_inf(low), log_or_minus_inf(high)).cap_at_one()


class _CornerDeltas:
    """The function g of the two smallest counts of `n` records, with each value computed once.

    `max_delta` is the probability that a record is sampled, an upper bound of g; `n_computed` is
    the number of values of e computed up to now.
    """

    def __init__(self, sampler: Sampler, n: int, epsilon: float) -> None:
        """Create g for the published counts of `n` records, of which `sampler` samples some.

        Divergences are at `epsilon`.
        """
        self.max_delta = sampler.compute_inclusion_probability(n)
        self._n = n
        self._get_divergence_bounds = cache(
            lambda a, b: self._bound_replacement_divergence(sampler, a, b, epsilon)
        )
        self.get_delta_bounds = cache(self._bound_delta)
        self.n_computed = 0

    def _bound_replacement_divergence(
        self, sampler: Sampler, a: int, b: int, epsilon: float
    ) -> tuple[float, float]:
        """Return lower and upper bounds of e(`a`, `b`), the larger divergence of both directions.

        It is that at `epsilon` of counts of records that `sampler` samples. The bounds are no
        logarithms. Each call adds 1 to `n_computed`.
        """
        self.n_computed += 1
        directions = [
            sampler.compute_divergence(*counts, self._n, epsilon) for counts in {(a, b), (b, a)}
        ]
        low = max(direction.low for direction in directions)
        high = max(direction.high for direction in directions)
        return math.exp(low - 1e-12), math.exp(high + 1e-12) + 1e-300

    def _bound_delta(self, x: int, y: int) -> tuple[float, float]:
        """Return lower and upper bounds of g(`x`, `y`), no logarithms; g is symmetric."""
        if x + y > self._n:
            return 0.0, 1e-300
        if x == y == 0:
            return 0.0, self.max_delta
        shared_counts = [(x - 1, y)] * (x > 0) + [(x, y - 1)] * (y > 0)
        bounds = [self._get_divergence_bounds(min(counts), max(counts)) for counts in shared_counts]
        return max(low for low, _ in bounds), min(self.max_delta, max(high for _, high in bounds))


def _tabulate_weights(
    probabilities: Floats, n: int, smallest_type: int, depth: float
) -> _WeightTable:
    """Return bounds of Pr[type `smallest_type` has the smallest count x, the next smallest is y].

    Each of `n` records has type i with probability `probabilities[i]`. Of types with equal counts
    the first one is called the smallest. For three types with probabilities of sum 1 the two bounds
    are equal. Otherwise the lower one leaves out ties, where y = x.
    """
    own_probability = float(probabilities[smallest_type])
    rest_types = [index for index in range(len(probabilities)) if index != smallest_type]
    rest_probabilities = [float(probabilities[rest_type]) for rest_type in rest_types]
    conditionals = [min(p / (1 - own_probability), 1.0) for p in rest_probabilities]
    min_x, max_x = find_window(TwoTypeWorld((n,), (own_probability,)), -depth)
    # The more records have the smallest type, the fewer have the remaining types.
    min_y = min(first for first, _ in _find_count_ranges(conditionals, n - max_x, depth))
    max_y = max(last for _, last in _find_count_ranges(conditionals, n - min_x, depth))
    max_x = max(min(max_x, max_y), min_x - 1)
    is_exact = len(probabilities) == 3 and abs(float(probabilities.sum()) - 1) < 1e-12
    upper, lower = np.zeros((2, max_x - min_x + 1, max_y - min_y + 1))
    y_values = np.arange(min_y, max_y + 1, dtype=np.int64)
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
        upper_cdf = np.minimum(np.cumsum(larger_pmfs.sum(0)), p_smallest)
        lower_cdf = upper_cdf if is_exact else _bound_cdf_below(x, y_values, y_pmfs, depth)
        upper[row] = x_probability * np.diff(upper_cdf, prepend=0.0)
        lower[row] = x_probability * np.diff(lower_cdf, prepend=0.0)
    return _WeightTable(min_x, min_y, lower, upper)


def _find_count_ranges(probabilities: list[float], n: int, depth: float) -> list[tuple[int, int]]:
    """Return the first and last likely count of each type of these probabilities in `n` records."""
    if n <= 0:
        return [(0, 0)] * len(probabilities)
    return [find_window(TwoTypeWorld((n,), (p,)), -depth) for p in probabilities]


def _bound_cdf_below(x: int, y_values: Ints, y_pmfs: Floats, depth: float) -> Floats:
    """Return lower bounds of Pr[all remaining counts > x, and the smallest is <= y], (columns,).

    `y_values` (columns,): ascending y. `y_pmfs` (types, columns): Pr[count = y] of each remaining
    type, given `x`. Each type has a smaller count than the first y with at most exp(-`depth`).
    """
    # Pr[smallest <= y] - Pr[smallest <= x]. Negatively associated counts have at least the first
    # probability of independent ones; the second one is at most the sum over the types.
    y_cdfs = np.cumsum(y_pmfs, 1)
    p_at_most_y = -np.expm1(np.log1p(-np.minimum(y_cdfs, 1 - MACHINE_EPSILON)).sum(0))
    p_at_most_x = (1 + 1e-9) * float(y_pmfs[:, y_values <= x].sum())  # 1e-9 covers rounding
    p_at_most_x = p_at_most_x + len(y_pmfs) * math.exp(-depth)
    bounds = np.maximum((1 - 1e-9) * p_at_most_y - p_at_most_x, 0.0)
    return np.asarray(np.maximum.accumulate(np.where(y_values > x, bounds, 0.0)))


def _bound_weighted_sum(
    tables: list[_WeightTable], corner_deltas: _CornerDeltas, left_out: float
) -> tuple[float, float]:
    """Return lower and upper bounds of the sum of probability times g over all (x, y) of `tables`.

    `tables` has one table for each type with the smallest count; `corner_deltas` is g. `left_out`
    is an upper bound of the sum outside of the tables: if the upper bound is smaller, it needs no
    further precision.
    """
    rectangles = []
    for index, table in enumerate(tables):
        if table.upper.size:
            n_rows, n_columns = table.upper.shape
            full_table = Rectangle(0, n_rows - 1, 0, n_columns - 1)
            rectangles.append(_bound_rectangle(tables, corner_deltas, index, full_table))
    heapq.heapify(rectangles)
    while True:
        # Summed anew each time: updated sums would keep the rounding error of their first values,
        # which can be many orders of magnitude larger.
        negated_gap = math.fsum(rectangle.negated_gap for rectangle in rectangles)
        upper_sum = math.fsum(rectangle.upper_sum for rectangle in rectangles)
        if (
            -negated_gap <= _TOLERANCE / 2 * upper_sum
            or corner_deltas.n_computed > _MAX_CORNERS
            or upper_sum < left_out
        ):
            return math.fsum(rectangle.lower_sum for rectangle in rectangles), upper_sum
        for _ in range(1 + len(rectangles) // 8):
            _, table_index, widest, _, _ = heapq.heappop(rectangles)
            for rows in _halve_range(widest.first_row, widest.last_row):
                for columns in _halve_range(widest.first_column, widest.last_column):
                    smaller = Rectangle(*rows, *columns)
                    heapq.heappush(
                        rectangles, _bound_rectangle(tables, corner_deltas, table_index, smaller)
                    )
            if rectangles[0].negated_gap == 0:
                break


def _bound_rectangle(
    tables: list[_WeightTable], corner_deltas: _CornerDeltas, table_index: int, rectangle: Rectangle
) -> _RectangleSum:
    """Return bounds of the sum of probability times g over a `rectangle` of `tables[table_index]`.

    `tables`: weights of (x, y), a table for each type with the smallest count.
    `corner_deltas`: computes g, which is between its values at two corners of the `rectangle`.
    """
    min_x, min_y, lower, upper = tables[table_index]
    first_row, last_row, first_column, last_column = rectangle
    cells = np.s_[first_row : last_row + 1, first_column : last_column + 1]
    weight = float(upper[cells].sum())
    if not weight:
        return _RectangleSum(0.0, table_index, rectangle, 0.0, 0.0)
    upper_delta = corner_deltas.get_delta_bounds(min_x + first_row, min_y + first_column)[1]
    lower_delta = corner_deltas.get_delta_bounds(min_x + last_row, min_y + last_column)[0]
    is_single_cell = (first_row, first_column) == (last_row, last_column)
    negated_gap = 0.0 if is_single_cell else weight * (lower_delta - upper_delta)
    lower_sum = float(lower[cells].sum()) * lower_delta
    return _RectangleSum(negated_gap, table_index, rectangle, lower_sum, weight * upper_delta)


def _halve_range(first: int, last: int) -> list[tuple[int, int]]:
    """Return the first and last index of both halves of `first` .. `last`, or of the only index."""
    middle = (first + last) // 2
    return [(first, middle), (middle + 1, last)] if first < last else [(first, last)]
