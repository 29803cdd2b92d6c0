"""Plausible worlds: from which distributions the records of a database may come, independently.

Expected delta is affine in the distribution of every single record, so of a convex set only its
corners matter (Proposition 7 of LWX23).
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp, xlogy

from vicinal import checks
from vicinal.arrays import Floats, Ints
from vicinal.errors import InvalidInput
from vicinal.smoothed.intervals import LOG_10, MACHINE_EPSILON, power_of_ten

_SUM_TO = 1e-9
_SAME = 1e-15
_MOST_TYPES_OF_A_BOX = 16


class Population:
    """A set of distributions over types, fixed before anybody looks at the data.

    `vertices` (l, m) are distributions among which the worst are: without copies, those given, the
    corners of a box, or that of every group in the order given.
    """

    vertices: Floats

    @property
    def types(self) -> int:
        """Number of types m."""
        return int(self.vertices.shape[1])

    @property
    def least(self) -> Floats:
        """The smallest probability of every type, float64 (m,)."""
        return np.asarray(self.vertices.min(axis=0))

    def check_records(self, n: int) -> None:
        """Refuse databases of n records that cannot come from here; any n is fine by default."""
        checks.check_integer("n", n, least=1)


@dataclass(frozen=True, eq=False)
class Vertices(Population):
    """Every record comes from one of the given distributions, whichever is worst for it.

    Parameters
    ----------
    rows : array-like, shape (l, m)
        Distributions over m >= 2 types; every row sums to 1.

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
        rows = _distributions("rows", self.rows)
        firsts = np.sort(np.unique(rows, axis=0, return_index=True)[1])
        object.__setattr__(self, "vertices", rows[firsts])


@dataclass(frozen=True, eq=False)
class Hull(Population):
    """Every record comes from some mixture of the given distributions.

    Of two types only the two ends are kept. Of more types all points are: one inside the hull of
    the others costs time and changes nothing.

    Parameters
    ----------
    points : array-like, shape (p, m)
        Distributions over m >= 2 types.

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
        points = np.unique(_distributions("points", self.points), axis=0)
        if points.shape[1] == 2:
            points = np.unique(points[[0, -1]], axis=0)
        object.__setattr__(self, "vertices", points)


@dataclass(frozen=True, eq=False)
class Interval(Population):
    """Every record comes from some distribution between two bounds for every type.

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
        low, high = (_chances(name, getattr(self, name)) for name in ("low", "high"))
        if low.shape != high.shape or not 2 <= len(low) <= _MOST_TYPES_OF_A_BOX:
            raise InvalidInput(
                "The 'low' and 'high' parameters must have the same length, 2 to "
                f"{_MOST_TYPES_OF_A_BOX}. Got {len(low)} and {len(high)}."
            )
        corners: list[Floats] = []
        for corner in _box_corners(low, high):
            if all(np.abs(corner - other).max() > _SAME for other in corners):
                corners.append(corner)
        if (low > high).any() or not corners:
            raise InvalidInput("There must be a distribution between 'low' and 'high'.")
        object.__setattr__(self, "vertices", np.array(corners))


@dataclass(frozen=True, eq=False)
class Heterogeneous(Population):
    """One world whose records have different distributions: groups of known sizes.

    For ``KNNVotes`` the groups follow one another from the nearest record on.

    Parameters
    ----------
    groups : sequence of (int, array-like)
        How many records, and their distribution over m types.

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
        groups = _pairs(self.groups)
        counts = [checks.check_integer("groups", count, least=0) for count, _ in groups]
        object.__setattr__(self, "counts", np.array(counts, dtype=np.int64))
        rows = _distributions("groups", [row for _, row in groups])
        object.__setattr__(self, "vertices", rows)
        checks.check_integer("groups", sum(counts), least=1)

    def check_records(self, n: int) -> None:
        if checks.check_integer("n", n, least=1) != self.counts.sum():
            raise InvalidInput(
                f"The 'n' parameter must be the sum of the groups, {self.counts.sum()}. Got {n}."
            )


def _pairs(groups: Iterable[Any]) -> list[tuple[int, Any]]:
    try:
        return [(count, row) for count, row in groups]
    except (TypeError, ValueError):
        raise InvalidInput(
            "The 'groups' parameter must be pairs of a count and a distribution. Got others."
        ) from None


def _chances(name: str, values: npt.ArrayLike) -> Floats:
    """Return probabilities as float64; fractions are welcome."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"The {name!r} parameter must hold numbers, in equal rows.") from None
    if not np.isfinite(array).all() or (array < 0).any() or (array > 1).any() or not array.size:
        raise InvalidInput(f"The {name!r} parameter must hold probabilities, 0 to 1. Got others.")
    return array


def _distributions(name: str, rows: npt.ArrayLike) -> Floats:
    array = _chances(name, rows)
    if array.ndim != 2 or array.shape[1] < 2:
        raise InvalidInput(
            f"The {name!r} parameter must be distributions (l, m) over m >= 2 types. Got shape "
            f"{array.shape}."
        )
    wrong = np.abs(array.sum(axis=1) - 1)
    if (wrong > _SUM_TO).any():
        raise InvalidInput(
            f"The {name!r} parameter must have rows that sum to 1. Got one that is off by "
            f"{wrong.max():.3g}."
        )
    return array


def _box_corners(low: Floats, high: Floats) -> Iterable[Floats]:
    m = len(low)
    for free in range(m):
        for choice in itertools.product((0, 1), repeat=m - 1):
            corner = np.insert(
                np.where(choice, np.delete(high, free), np.delete(low, free)), free, 0
            )
            corner[free] = 1 - corner.sum()
            if low[free] - _SUM_TO <= corner[free] <= high[free] + _SUM_TO:
                yield np.clip(corner, 0.0, 1.0)


# ----------- theorems about publishing the counts of T of n records: bounds above and a floor below

_GRID = 64
_SLACK = 64


@dataclass(frozen=True)
class Bounds:
    """Natural logarithms of the bounds of one setting; `upper` is the smallest upper one.

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
        """The best of the upper bounds, each of them valid."""
        return min(self.log_one_sided, self.log_two_sided, self.log_worst_case)

    def to_dict(self) -> dict[str, float | None]:
        """Return powers of ten for JSON; None is the logarithm of 0."""
        logs = vars(self) | {"log_upper": self.log_upper}
        return {
            name.replace("log_", "log10_"): log / LOG_10 if math.isfinite(log) else None
            for name, log in logs.items()
        }

    def __str__(self) -> str:
        words = [f"{name[4:]} {power_of_ten(log)}" for name, log in vars(self).items()]
        return ", ".join(words)


def bounds(population: Population, n: int, size: int, epsilon: float) -> Bounds:
    """Return all bounds for ``Histogram(FixedSize(size))`` on n records of a population.

    Raises
    ------
    InvalidInput
        If the sample is larger than the database, or epsilon is not a number >= 0.

    Examples
    --------
    >>> from vicinal.smoothed import Hull, bounds
    >>> voters = Hull([[0.4, 0.6], [0.6, 0.4]])
    >>> bounds(voters, n=10_000, size=5_000, epsilon=1.0).log_upper < -100
    True
    """
    count = checks.check_integer("n", n, least=1)
    drawn = checks.check_integer("size", size, least=0, most=count)
    eps = checks.check_real("epsilon", epsilon, least=0)
    if not isinstance(population, Population):
        raise InvalidInput(f"The 'population' parameter must be a Population. Got {population!r}.")
    population.check_records(count)
    shares, vertices = population.least, population.vertices
    # The floor holds at the probabilities of some world, for all its records.
    floors = vertices.max(axis=0) if isinstance(population, Heterogeneous) else vertices.ravel()
    return Bounds(
        min(one_sided(shares, count, drawn, eps), 0.0),
        min(two_sided(shares, count, drawn, eps), 0.0),
        max(floor(float(f), count, drawn) for f in floors),
        math.log(drawn / count) + 4 * MACHINE_EPSILON if drawn else -math.inf,
    )


def one_sided(shares: Floats, n: int, size: int, epsilon: float) -> float:
    """Return the logarithm of the one-sided bound; 0 where it does not apply."""
    unsampled = 1 - size / n
    if unsampled <= 0 or epsilon <= -math.log(unsampled) or size == 0:
        return 0.0 if size else -math.inf
    return _raised(_mean(shares, n, compute_binary_kl(-math.expm1(-epsilon), size / n)), n)


def two_sided(shares: Floats, n: int, size: int, epsilon: float) -> float:
    """Return the logarithm of the two-sided bound at the best c'; infinite at epsilon 0."""
    if size == 0:
        return -math.inf
    if size == n or epsilon == 0:
        return math.inf
    unsampled = (n - size) / n
    highest = min(epsilon, -math.log(unsampled))

    def at(step: float) -> float:
        return two_sided_at(shares, n, unsampled, epsilon, step * highest)

    grid = np.linspace(0, 1, _GRID + 1)[1:]
    best = int(np.argmin([at(float(step)) for step in grid]))
    around = (float(grid[max(best - 1, 0)]), float(grid[min(best + 1, _GRID - 1)]))
    polished = minimize_scalar(at, bounds=around, method="bounded", options={"xatol": 1e-9})
    return _raised(min(at(float(grid[best])), float(polished.fun)), n)


def two_sided_at(shares: Floats, n: int, unsampled: float, epsilon: float, log_c: float) -> float:
    """Return the logarithm of the two-sided bound for c' = exp(`log_c`), left = 1 - T/n."""
    k1, k2, a = compute_exponents(unsampled, epsilon, log_c)
    first = _mean(shares, n, k1)
    return first if math.isinf(k2) else float(np.logaddexp(first, a + k2 + _mean(shares, n, k2)))


def compute_exponents(unsampled: float, epsilon: float, log_c: float) -> tuple[float, float, float]:
    """Return K1, K2 and A of the two-sided bound; K2 infinite where its part vanishes."""
    k1 = compute_binary_kl(unsampled * math.exp(log_c - epsilon), unsampled)
    sampled = 1 - unsampled * math.exp(log_c)
    if sampled <= 1e-15:
        return k1, math.inf, 0.0
    k2 = compute_binary_kl(unsampled * math.exp(log_c), unsampled)
    return k1, k2, sampled * (log_c + math.log(1 - unsampled) - math.log(sampled))


def floor(share: float, n: int, size: int) -> float:
    """Return the logarithm of the floor, rounded down, for a type of probability `share`."""
    if size == 0 or share == 1:
        return math.log(size / n) - 4 * MACHINE_EPSILON if share == 1 and size == n else -math.inf
    absent = (n - size) * math.log1p(-share)
    # (1-f)^(n-T) (1 - (1 - T/n) (1-f)^T), the bracket without cancellation.
    bracket = math.log((n - size) / n) + size * math.log1p(-share) if size < n else -math.inf
    value = absent + (math.log(-math.expm1(bracket)) if bracket < 0 else -math.inf)
    return value - _SLACK * MACHINE_EPSILON * (1 + abs(absent))


def compute_binary_kl(a: float, b: float) -> float:
    """Return KL(a || b) of two coins, b strictly between 0 and 1."""
    return float(xlogy(a, a / b) + xlogy(1 - a, (1 - a) / (1 - b)))


def _mean(shares: Floats, n: int, rate: float) -> float:
    """Return log of the sum over types of E[e^(-h K)] for h ~ Bin(n, f)."""
    return float(logsumexp(n * np.log1p(np.maximum(shares * np.expm1(-rate), -1 + 1e-300))))


def _raised(log: float, n: int) -> float:
    """Round a bound up: exponents are good to a few units, and are multiplied by n."""
    return log + _SLACK * MACHINE_EPSILON * (1 + abs(log) + n * MACHINE_EPSILON)
