"""Populations: the sets of distributions from which the records of a database may come.

Records are independent. The expected delta is affine in the distribution of each single record, so
of a convex set only the vertices matter (Proposition 7 of LWX23).

The end of the module has bounds of the smoothed delta at `epsilon` if the counts of T of n records
are published: `min_probabilities` (m,) are lower bounds of the types' probabilities, `n` is the
number of records, `size` the sample size T.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp, xlogy

from vicinal import checks
from vicinal.arrays import Floats, Ints
from vicinal.errors import InvalidInput
from vicinal.smoothed.intervals import LOG_10, MACHINE_EPSILON, format_power_of_ten

_SUM_TOLERANCE = 1e-9  # largest distance from 1 of the sum of a distribution
_VERTEX_TOLERANCE = 1e-15
"""Vertices with probabilities that differ by at most this (a few roundings) are the same."""
_MAX_BOX_TYPES = 16
"""Types of an `Interval`: m types have up to m 2^(m - 1) vertices, which are all computed."""


class Population:
    """A set of distributions over types, fixed before the data is seen.

    `vertices` (l, m) are l distributions over m types that include the worst one for every record:
    the given distributions without duplicates, the vertices of an `Interval`, or the distribution
    of each group in the given order.
    """

    vertices: Floats

    @property
    def types(self) -> int:
        """Number of types m."""
        return int(self.vertices.shape[1])

    @property
    def min_probabilities(self) -> Floats:
        """Smallest probability of each type over all vertices, float64 (m,)."""
        return np.asarray(self.vertices.min(axis=0))

    def check_record_count(self, n: int) -> None:
        """Raise InvalidInput if no database of `n` records can come from this population."""
        checks.check_integer("n", n, minimum=1)


@dataclass(frozen=True, eq=False)
class Vertices(Population):
    """Each record comes from one of the given distributions, in the worst case for delta.

    Parameters
    ----------
    rows : array-like, shape (l, m)
        Distributions over m >= 2 types; every row sums to 1, or holds whole counts of public data.

    Examples
    --------
    >>> from vicinal.smoothed import FixedSize, Histogram, Vertices, smoothed_delta
    >>> voters = Vertices([[0.4, 0.6], [0.6, 0.4]])
    >>> smoothed_delta(Histogram(FixedSize(50)), voters, 100, epsilon=1.0).upper < 0.01
    True
    """

    rows: npt.ArrayLike
    vertices: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rows = _read_distributions("rows", self.rows)
        first_indices = np.sort(np.unique(rows, axis=0, return_index=True)[1])
        object.__setattr__(self, "vertices", rows[first_indices])


@dataclass(frozen=True, eq=False)
class Hull(Population):
    """Each record comes from a mixture of the given distributions (their convex hull).

    For two types only the two extreme points are kept. For more types all points are kept: a point
    inside the hull of the rest costs time and does not change the result.

    Parameters
    ----------
    points : array-like, shape (p, m)
        Distributions over m >= 2 types, or whole counts of public data.

    Examples
    --------
    >>> from vicinal.smoothed import Hull
    >>> voters = Hull([[0.05, 0.95], [0.47, 0.53]])
    >>> len(voters.points)
    2
    """

    points: npt.ArrayLike
    vertices: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        points = np.unique(_read_distributions("points", self.points), axis=0)
        if points.shape[1] == 2:
            points = np.unique(points[[0, -1]], axis=0)
        object.__setattr__(self, "vertices", points)


@dataclass(frozen=True, eq=False)
class Interval(Population):
    """Each record comes from a distribution within given bounds for each type.

    Parameters
    ----------
    low, high : sequence of float, length m
        Bounds of the probabilities, 0 <= low <= high <= 1; at most 16 types.

    Examples
    --------
    >>> from vicinal.smoothed import FixedSize, Histogram, Interval, smoothed_delta
    >>> voters = Interval([0.4, 0.4], [0.6, 0.6])
    >>> smoothed_delta(Histogram(FixedSize(50)), voters, 100, epsilon=1.0).upper < 0.01
    True
    """

    low: Sequence[float]
    high: Sequence[float]
    vertices: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        low = _read_probabilities("low", self.low)
        high = _read_probabilities("high", self.high)
        if low.shape != high.shape or not 2 <= len(low) <= _MAX_BOX_TYPES:
            raise InvalidInput(
                "The 'low' and 'high' parameters must have the same length, 2 to "
                f"{_MAX_BOX_TYPES}. Got {len(low)} and {len(high)}."
            )
        vertices: list[Floats] = []
        for vertex in _iterate_vertices(low, high):
            if all(np.abs(vertex - previous).max() > _VERTEX_TOLERANCE for previous in vertices):
                vertices.append(vertex)
        if (low > high).any() or not vertices:
            raise InvalidInput("There must be a distribution between 'low' and 'high'.")
        object.__setattr__(self, "vertices", np.array(vertices))


@dataclass(frozen=True, eq=False)
class Heterogeneous(Population):
    """A single assignment of distributions to the records (a world): groups of known sizes.

    For ``KNNVotes`` the groups follow one another in order of distance, the nearest records first.

    Parameters
    ----------
    groups : sequence of (int, array-like)
        The number of records of each group, and their distribution over m types, perhaps as whole
        counts of public data.

    Examples
    --------
    >>> from vicinal.smoothed import FixedSize, Heterogeneous, Histogram, smoothed_delta
    >>> world = Heterogeneous([(60, [0.4, 0.6]), (40, [0.7, 0.3])])
    >>> smoothed_delta(Histogram(FixedSize(50)), world, 100, epsilon=1.0).upper < 0.01
    True
    """

    groups: Sequence[tuple[int, Sequence[float]]]
    counts: Ints = field(init=False, repr=False)
    vertices: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        try:
            groups = [(count, row) for count, row in self.groups]
        except (TypeError, ValueError):
            raise InvalidInput(
                "The 'groups' parameter must be pairs of a count and a distribution. Got others."
            ) from None
        counts = [checks.check_integer("groups", count, minimum=0) for count, _ in groups]
        object.__setattr__(self, "counts", np.array(counts, dtype=np.int64))
        rows = _read_distributions("groups", [row for _, row in groups])
        object.__setattr__(self, "vertices", rows)
        checks.check_integer("groups", sum(counts), minimum=1)

    def check_record_count(self, n: int) -> None:
        """Raise InvalidInput if `n` is not the sum of the group sizes."""
        if checks.check_integer("n", n, minimum=1) != self.counts.sum():
            raise InvalidInput(
                f"The 'n' parameter must be the sum of the groups, {self.counts.sum()}. Got {n}."
            )


def _read_probabilities(name: str, values: npt.ArrayLike) -> Floats:
    """Return `values`, probabilities of any shape, also as fractions, as float64.

    `name` is the parameter's name in error messages.
    """
    array = _read_numbers(name, values)
    if not np.isfinite(array).all() or (array < 0).any() or (array > 1).any() or not array.size:
        raise InvalidInput(f"The {name!r} parameter must hold probabilities, 0 to 1. Got others.")
    return array


def _read_numbers(name: str, values: npt.ArrayLike) -> Floats:
    """Return `values`, numbers or fractions of any shape, as float64; see _read_probabilities."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"The {name!r} parameter must hold numbers, in equal rows.") from None


def _read_distributions(name: str, rows: npt.ArrayLike) -> Floats:
    """Return distributions as float64 (l, m); raise InvalidInput unless they sum to 1.

    `rows` (l, m): probabilities, or whole counts, which are divided by their sum. `name` is the
    parameter's name in error messages.
    """
    numbers = _read_numbers(name, rows)
    if numbers.ndim == 2 and np.isfinite(numbers).all():
        sums = numbers.sum(axis=1, keepdims=True)
        are_counts = (numbers >= 0).all(axis=1) & (numbers % 1 == 0).all(axis=1)
        # A row of probabilities 0 and 1 has the sum 1, and stays as it is.
        numbers = np.where(are_counts[:, None] & (sums > 1), numbers / np.maximum(sums, 1), numbers)
    array = _read_probabilities(name, numbers)
    if array.ndim != 2 or array.shape[1] < 2:
        raise InvalidInput(
            f"The {name!r} parameter must be distributions (l, m) over m >= 2 types. Got shape "
            f"{array.shape}."
        )
    sum_error = np.abs(array.sum(axis=1) - 1)
    if (sum_error > _SUM_TOLERANCE).any():
        raise InvalidInput(
            f"The {name!r} parameter must have rows that sum to 1. Got one that is off by "
            f"{sum_error.max():.3g}."
        )
    return array


def _iterate_vertices(low: Floats, high: Floats) -> Iterable[Floats]:
    """Yield the vertices (m,) of the set of distributions p with low <= p <= high, some repeatedly.

    `low` and `high` (m,) are the bounds of each type's probability.
    """
    # At a vertex all types but one have their lower or upper bound; the free type has the rest.
    n_types = len(low)
    for free_type in range(n_types):
        for takes_high in itertools.product((0, 1), repeat=n_types - 1):
            vertex = np.where(np.insert(takes_high, free_type, 0), high, low)
            vertex[free_type] = 0
            remainder = 1 - vertex.sum()
            vertex[free_type] = remainder
            min_remainder = low[free_type] - _SUM_TOLERANCE
            if min_remainder <= remainder <= high[free_type] + _SUM_TOLERANCE:
                yield np.clip(vertex, 0.0, 1.0)


# ----------- theorems about publishing the counts of T of n records: upper bounds and a lower bound

_N_GRID_STEPS = 64  # values of log c' between which the minimum of the two-sided bound is located
_ROUNDING_UNITS = 64
"""Rounding error of the logarithm of a bound in units of 2^-52 of its size, rounded up."""


@dataclass(frozen=True)
class Bounds:
    """Natural logarithms of bounds of the smoothed delta of sampled counts.

    Attributes
    ----------
    log_one_sided, log_two_sided : float
        Upper bounds (theory.md, section 8b); 0 where they give nothing.
    log_floor : float
        Lower bound: the probability that a type is revealed, at every epsilon.
    log_worst_case : float
        Upper bound T / n, the delta of differential privacy.

    Examples
    --------
    >>> from vicinal.smoothed import Hull, bounds
    >>> voters = Hull([[0.4, 0.6], [0.6, 0.4]])
    >>> found = bounds(voters, n=10_000, size=5_000, epsilon=1.0)
    >>> found.log_floor <= found.log_upper
    True
    """

    log_one_sided: float
    log_two_sided: float
    log_floor: float
    log_worst_case: float

    @property
    def log_upper(self) -> float:
        """The smallest of the upper bounds, each of which is valid."""
        return min(self.log_one_sided, self.log_two_sided, self.log_worst_case)

    def to_dict(self) -> dict[str, float | None]:
        """Return the decimal logarithms for JSON; None stands for an infinite logarithm."""
        logs = vars(self) | {"log_upper": self.log_upper}
        return {
            name.replace("log_", "log10_"): log / LOG_10 if math.isfinite(log) else None
            for name, log in logs.items()
        }

    def __str__(self) -> str:
        """Return all bounds with their names as text, as decimal numbers."""
        return ", ".join(
            f"{name[4:]} {format_power_of_ten(log, round_up=name != 'log_floor')}"
            for name, log in vars(self).items()
        )


def bounds(population: Population, n: int, size: int, epsilon: float) -> Bounds:
    """Return lower and upper bounds of the smoothed delta of ``Histogram(FixedSize(size))``.

    Raises InvalidInput if the sample is larger than the database, or epsilon is not a number >= 0.

    Parameters
    ----------
    population : Population
        The plausible distributions of the records.
    n : int
        Number of records.
    size : int
        Sample size T, at most n.
    epsilon : float
        Privacy parameter, at least 0.

    Examples
    --------
    >>> from vicinal.smoothed import Hull, bounds
    >>> voters = Hull([[0.4, 0.6], [0.6, 0.4]])
    >>> bounds(voters, n=10_000, size=5_000, epsilon=1.0).log_upper < -100
    True
    """
    n_records = checks.check_integer("n", n, minimum=1)
    sample_size = checks.check_integer("size", size, minimum=0, maximum=n_records)
    checked_epsilon = checks.check_real("epsilon", epsilon, minimum=0)
    if not isinstance(population, Population):
        raise InvalidInput(f"The 'population' parameter must be a Population. Got {population!r}.")
    population.check_record_count(n_records)
    min_probabilities, vertices = population.min_probabilities, population.vertices
    # The floor decreases in the probability of a type: of several groups the largest is valid.
    type_probabilities = (
        vertices.max(axis=0) if isinstance(population, Heterogeneous) else vertices.ravel()
    )
    log_one_sided = compute_log_one_sided_bound(
        min_probabilities, n_records, sample_size, checked_epsilon
    )
    log_two_sided = minimize_log_two_sided_bound(
        min_probabilities, n_records, sample_size, checked_epsilon
    )
    return Bounds(
        min(log_one_sided, 0.0),
        min(log_two_sided, 0.0),
        max(compute_log_floor(float(f), n_records, sample_size) for f in type_probabilities),
        math.log(sample_size / n_records) + 4 * MACHINE_EPSILON if sample_size else -math.inf,
    )


def compute_log_one_sided_bound(
    min_probabilities: Floats, n: int, size: int, epsilon: float
) -> float:
    """Return the log of the one-sided upper bound of the smoothed delta; -inf without a sample.

    It is 0, which says nothing, unless `epsilon` > -log(1 - T/n).
    """
    unsampled = 1 - size / n
    if unsampled <= 0 or epsilon <= -math.log(unsampled) or size == 0:
        return 0.0 if size else -math.inf
    exponent = compute_binary_kl(-math.expm1(-epsilon), size / n)
    return _round_up(_log_sum_over_types(min_probabilities, n, exponent), n)


def minimize_log_two_sided_bound(
    min_probabilities: Floats, n: int, size: int, epsilon: float
) -> float:
    """Return the log of the two-sided upper bound of the smoothed delta.

    It is minimised over its free parameter c', and infinite at epsilon 0.
    """
    if size == 0:
        return -math.inf
    if size == n or epsilon == 0:
        return math.inf
    unsampled = (n - size) / n
    max_log_c = min(epsilon, -math.log(unsampled))

    def evaluate_bound(fraction: float) -> float:
        """Return the log of the bound where log c' is this `fraction` of its maximum."""
        return compute_log_two_sided_bound(
            min_probabilities, n, unsampled, epsilon, fraction * max_log_c
        )

    grid = np.linspace(0, 1, _N_GRID_STEPS + 1)[1:]
    best_index = int(np.argmin([evaluate_bound(float(fraction)) for fraction in grid]))
    bracket = (
        float(grid[max(best_index - 1, 0)]),
        float(grid[min(best_index + 1, _N_GRID_STEPS - 1)]),
    )
    options = {"xatol": 1e-9}
    polished = minimize_scalar(evaluate_bound, bounds=bracket, method="bounded", options=options)
    return _round_up(min(evaluate_bound(float(grid[best_index])), float(polished.fun)), n)


def compute_log_two_sided_bound(
    min_probabilities: Floats, n: int, unsampled: float, epsilon: float, log_c: float
) -> float:
    """Return the log of the two-sided upper bound for its free parameter c' = exp(`log_c`).

    `unsampled` is lambda = 1 - T/n, the share of records that are not sampled.
    """
    k1, k2, a = compute_exponents(unsampled, epsilon, log_c)
    first_term = _log_sum_over_types(min_probabilities, n, k1)
    if math.isinf(k2):
        return first_term
    return float(np.logaddexp(first_term, a + k2 + _log_sum_over_types(min_probabilities, n, k2)))


def compute_exponents(unsampled: float, epsilon: float, log_c: float) -> tuple[float, float, float]:
    """Return the exponents K1, K2 and A of the two-sided bound (theory.md, section 8b).

    They are for lambda = `unsampled` = 1 - T/n and the free parameter c' = exp(`log_c`). K2 is
    infinite where lambda c' = 1 and its term vanishes.
    """
    k1 = compute_binary_kl(unsampled * math.exp(log_c - epsilon), unsampled)
    sampled = 1 - unsampled * math.exp(log_c)
    if sampled <= 1e-15:  # 0 up to rounding
        return k1, math.inf, 0.0
    k2 = compute_binary_kl(unsampled * math.exp(log_c), unsampled)
    return k1, k2, sampled * (log_c + math.log(1 - unsampled) - math.log(sampled))


def compute_log_floor(probability: float, n: int, size: int) -> float:
    """Return the log of a lower bound of the smoothed delta, rounded down.

    The bound is (1 - f)^(n - T) - (1 - T/n) (1 - f)^n, where f = `probability` is that of a type:
    its count is revealed at every epsilon if all its records are sampled.
    """
    if probability == 1 and size == n:
        return -4 * MACHINE_EPSILON
    if size == 0 or probability == 1:
        return -math.inf
    log_absent = (n - size) * math.log1p(-probability)
    # The bound is (1-f)^(n-T) (1 - (1 - T/n) (1-f)^T), whose second factor has no cancellation.
    log_subtracted = (
        math.log((n - size) / n) + size * math.log1p(-probability) if size < n else -math.inf
    )
    log_floor = log_absent + (
        math.log(-math.expm1(log_subtracted)) if log_subtracted < 0 else -math.inf
    )
    return log_floor - _ROUNDING_UNITS * MACHINE_EPSILON * (1 + abs(log_absent))


def compute_binary_kl(a: float, b: float) -> float:
    """Return KL(a || b), the relative entropy of Bernoulli(a) and Bernoulli(b), 0 < b < 1."""
    return float(xlogy(a, a / b) + xlogy(1 - a, (1 - a) / (1 - b)))


def _log_sum_over_types(min_probabilities: Floats, n: int, exponent: float) -> float:
    """Return the log of the sum over types i of E[exp(-h `exponent`)], h ~ Bin(n, p_i).

    p_i is the smallest probability of the type.
    """
    means = np.maximum(min_probabilities * np.expm1(-exponent), -1 + 1e-300)
    return float(logsumexp(n * np.log1p(means)))


def _round_up(log_bound: float, n: int) -> float:
    """Return `log_bound`, the log of a bound for `n` records, increased by its rounding error."""
    # The exponents of a bound are accurate to a few units of 2^-52 and are multiplied by n.
    return log_bound + _ROUNDING_UNITS * MACHINE_EPSILON * (
        1 + abs(log_bound) + n * MACHINE_EPSILON
    )
