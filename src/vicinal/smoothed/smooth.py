"""The delta of smoothed differential privacy: the worst plausible world, over its data."""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from vicinal import checks
from vicinal.arrays import Counts, Floats
from vicinal.errors import InvalidInput
from vicinal.smoothed import _expectation as expectation
from vicinal.smoothed._several_types import bound_multitype_mean
from vicinal.smoothed.databases import check_mechanism, compute_log_delta, worst_case_delta
from vicinal.smoothed.intervals import (
    BOUND,
    EXACT,
    MONTE_CARLO,
    SANDWICH,
    MACHINE_EPSILON,
    ZERO,
    Delta,
    LogInterval,
    as_delta,
    largest,
    log_or_minus_inf,
)
from vicinal.smoothed.knn import KNNVotes, RadiusVotes, bound_radius_mean
from vicinal.smoothed.mechanism import CountMechanism, FixedSize, Histogram, Mechanism
from vicinal.smoothed.populations import Heterogeneous, Population, bounds

# Algorithm 1 of LWX23, for databases small enough to list: the exact maximum over all worlds

_MAX_RECORDS = 200
_MOST_WORK = 2 * 10**7
_MOST_DATABASES = 20_000
_DEEPEST = 600.0


def can_list_all(n: int, types: int, worlds: int) -> bool:
    """Return whether all histograms and all multisets of worlds can be gone through."""
    if n > _MAX_RECORDS:
        return False
    databases = math.comb(n + types - 1, types - 1)
    work = math.comb(n + worlds, worlds) * (n + 1) ** (types - 1) * types
    return databases <= _MOST_DATABASES and work <= _MOST_WORK


def histograms(n: int, types: int) -> Iterator[Counts]:
    """Yield all histograms of n records."""
    for bars in itertools.combinations(range(n + types - 1), types - 1):
        edges = np.array([-1, *bars, n + types - 1])
        yield np.diff(edges) - 1


def list_log_deltas(mechanism: Mechanism, n: int, types: int, epsilon: float) -> Floats:
    """Return log deltas of all histograms, (2, n + 1, ..., n + 1) by all counts but one."""
    table = np.full((2,) + (n + 1,) * (types - 1), -np.inf)
    for database in histograms(n, types):
        place = tuple(database[:-1].tolist())
        value = compute_log_delta(mechanism, database, epsilon)
        table[(0, *place)], table[(1, *place)] = value.low, value.high
    return table


def maximum(table: Floats, vertices: Floats, n: int) -> LogInterval:
    """Return the largest expected delta over multisets of vertices (l, m)."""
    scale = float(table[1].max())
    if scale == -math.inf:
        return ZERO
    # What is 600 below the largest cannot be held beside it; it is rounded up to that, or to 0.
    shifted = np.stack([table[0] - scale, np.maximum(table[1] - scale, -_DEEPEST)])
    shifted[1][table[1] == -np.inf] = -np.inf
    means = np.array([world.ravel() for world in _worlds(np.exp(shifted), vertices, n)])
    slack = MACHINE_EPSILON * (4 * n * vertices.shape[1] + 64) + 4 * MACHINE_EPSILON * abs(scale)
    low, high = (log_or_minus_inf(float(value)) for value in means.max(axis=0))
    return LogInterval(scale + low - slack, scale + high + slack)


def _worlds(means: Floats, vertices: Floats, remaining: int) -> Iterator[Floats]:
    """Yield the expected deltas of every multiset of vertices."""
    if not remaining:
        yield means
        return
    for vertex in range(len(vertices)):
        # Vertices before this one have had their turn: each multiset comes once.
        yield from _worlds(draw(means, vertices[vertex]), vertices[vertex:], remaining - 1)


def draw(means: Floats, distribution: Floats) -> Floats:
    """Return means over one more record that comes from a distribution."""
    inside = tuple(slice(None, -1) for _ in range(means.ndim - 1))
    drawn = distribution[-1] * means[(slice(None), *inside)]
    for kind, chance in enumerate(distribution[:-1]):
        moved = tuple(
            slice(1, None) if axis == kind else slice(None, -1) for axis in range(means.ndim - 1)
        )
        drawn = drawn + chance * means[(slice(None), *moved)]
    return np.asarray(drawn)


def mean(table: Floats, rows: Floats) -> LogInterval:
    """Return the expected delta when record r comes from row r, in the form of `maximum`."""
    scaled = np.exp(table)
    for row in rows:
        scaled = draw(scaled, row)
    slack = MACHINE_EPSILON * (4 * len(rows) * rows.shape[1] + 64)
    low, high = (log_or_minus_inf(float(scaled[end].ravel()[0])) for end in (0, 1))
    return LogInterval(low - slack, high + slack)


WARNINGS = (
    "The population must be fixed before the data is seen; the delta of a database is private.",
    "A mean over databases hides rare groups: look at the quantiles, and at each type's delta.",
    "Records must be independent of each other.",
    "Publishing more finely (precincts, many queries) makes types rarer: rare types are revealed.",
    "Neighbours replace one record.",
)
"""What has to be said with every smoothed delta (theory.md, section 8d)."""

_CLOSE = 1e-6
_MOST_COLUMNS = 3000


def smoothed_delta(
    mechanism: Mechanism, population: Population, n: int, epsilon: float, *, draws: int = 0,
    seed: int = 0,
) -> Delta:  # fmt: skip
    """Return the smoothed delta: the maximum over plausible worlds of the expected delta(x).

    Definition 3 of LWX23 as a certified interval. Small databases are listed (Algorithm 1); two
    types are summed in log space up to n = 10^9; more types are put between two sums or under the
    bounds of :func:`bounds`; anything else is answered by the worst case, or, if asked for draws,
    by an interval from drawn databases.

    Parameters
    ----------
    mechanism : Mechanism
        What is published.
    population : Population
        Which worlds are plausible: `types` must be those of the mechanism.
    n : int
        Number of records, public.
    epsilon : float
        At least 0.
    draws : int
        Databases to draw where nothing else is sharp; 0 for none. The interval then holds with
        confidence .999, and for several vertices only its lower end uses the draws.
    seed : int
        Which databases are drawn.

    Raises
    ------
    InvalidInput
        If the population has other types or other counts than the mechanism and n, or a sample
        is larger than n.

    Examples
    --------
    >>> from vicinal.smoothed import FixedSize, Histogram, Hull, smoothed_delta
    >>> counts = Histogram(FixedSize(499_000))  # 1,000 of 500,000 ballots are lost
    >>> voters = Hull([[0.0553, 0.9447], [0.466, 0.534]])
    >>> print(smoothed_delta(counts, voters, 500_000, epsilon=2.0))
    1.288e-17 (exact)
    """
    eps, count = (
        checks.check_real("epsilon", epsilon, least=0),
        _check_worlds(mechanism, population, n),
    )
    checks.check_integer("draws", draws, least=0)
    checks.check_integer("seed", seed, least=0)
    worst = worst_case_delta(mechanism, count, eps)
    answer = _without_draws(mechanism, population, count, eps)
    if answer is None and draws:
        answer = _by_draws(mechanism, population, count, eps, draws, seed)
    if answer is None:
        return Delta(-math.inf, worst.log_upper, BOUND, "no better than the worst case")
    return Delta(
        answer.log_lower, min(answer.log_upper, worst.log_upper), answer.method, answer.note
    )


def _check_worlds(mechanism: Mechanism, population: Population, n: int) -> int:
    if not isinstance(population, Population):
        raise InvalidInput(f"The 'population' parameter must be a Population. Got {population!r}.")
    population.check_records(n)
    m = population.types
    if isinstance(check_mechanism(mechanism), KNNVotes):
        mechanism.check(np.full(n, m - 1))
    else:
        mechanism.check([n, *[0] * (m - 1)])
    return n


def _without_draws(
    mechanism: Mechanism, population: Population, n: int, epsilon: float
) -> Delta | None:
    """Return the best answer that no draws are needed for; None if there is none."""
    if isinstance(mechanism, KNNVotes):
        return None
    m = population.types
    columns = m == 2 and _has_columns(mechanism, n)
    if isinstance(population, Heterogeneous) and columns:
        (world,) = expectation.list_unmixed_worlds(population, n, 0)
        return as_delta(expectation.compute_mean_delta(expectation.make_log_deltas(mechanism, n, epsilon), world))
    worlds = 1 if isinstance(population, Heterogeneous) else len(population.vertices)
    if can_list_all(n, m, worlds) and _quick(mechanism, n, m):
        table = list_log_deltas(mechanism, n, m, epsilon)
        if isinstance(population, Heterogeneous):
            return as_delta(mean(table, np.repeat(population.vertices, population.counts, axis=0)))
        return as_delta(maximum(table, population.vertices, n))
    if columns:
        return _two_types(mechanism, population, n, epsilon)
    if isinstance(mechanism, Histogram):
        return _many_types(mechanism, population, n, epsilon)
    if isinstance(mechanism, RadiusVotes) and (
        interval := bound_radius_mean(mechanism, population, n, epsilon)
    ):
        return as_delta(interval, SANDWICH, "the largest single label below, all together above")
    return None


def _quick(mechanism: Mechanism, n: int, m: int) -> bool:
    """Return whether every delta of a listing takes little time."""
    fast = isinstance(mechanism, Histogram) and isinstance(mechanism.sampler, FixedSize)
    return math.comb(n + m - 1, m - 1) <= (20_000 if fast and m == 2 else 2_000)


def _has_columns(mechanism: Mechanism, n: int) -> bool:
    fast = isinstance(mechanism, Histogram) and isinstance(mechanism.sampler, FixedSize)
    return fast or (isinstance(mechanism, CountMechanism) and n <= _MOST_COLUMNS)


def _two_types(mechanism: Mechanism, population: Population, n: int, epsilon: float) -> Delta:
    chances = population.vertices[:, 0]
    p, q = float(chances.min()), float(chances.max())
    if p == q:
        return as_delta(
            expectation.compute_mean_delta(
                expectation.make_log_deltas(mechanism, n, epsilon), expectation.TwoTypeWorld((n,), (p,))
            )
        )
    interval = expectation.bound_smoothed_delta(mechanism, n, epsilon, p, q)
    close = interval.high - interval.low < _CLOSE
    return as_delta(interval, EXACT if close else SANDWICH, "mixtures of worlds enclosed")


def _many_types(
    mechanism: Histogram, population: Population, n: int, epsilon: float
) -> Delta | None:
    """Return what sums and theorems say of counts of many types."""
    sampler = mechanism.sampler
    fixed = isinstance(sampler, FixedSize)
    if not fixed and n > _MOST_COLUMNS:
        return None
    lower = expectation.bound_from_below(mechanism, population, n, epsilon).low
    upper, method = 0.0, BOUND
    if isinstance(sampler, FixedSize):
        known = bounds(population, n, sampler.size, epsilon)
        lower, upper = max(lower, known.log_floor), known.log_upper
    # Worlds of one distribution have a lower end, too; mixtures are enclosed by the least chances.
    single = not isinstance(population, Heterogeneous)
    worlds = [bound_multitype_mean(sampler, row, n, epsilon) for row in population.vertices if single]
    lower = max([lower, *(world.low for world in worlds if world)])
    summed = worlds[0] if len(worlds) == 1 else bound_multitype_mean(sampler, population.least, n, epsilon)
    if summed and summed.high < upper:
        upper, method = summed.high, SANDWICH
    note = "mixtures of worlds enclosed" if len(population.vertices) > 1 else ""
    return Delta(lower, upper, method, note)


def _by_draws(
    mechanism: Mechanism, population: Population, n: int, epsilon: float, draws: int, seed: int
) -> Delta:
    estimated = estimate(mechanism, population, n, epsilon, draws, seed)
    single = isinstance(population, Heterogeneous) or len(population.vertices) == 1
    low = log_or_minus_inf(estimated.lower)
    high = math.log(estimated.upper) if single and estimated.upper > 0 else 0.0
    note = (
        f"mean of {draws} drawn databases {estimated.mean:.3g}, "
        f"standard error {estimated.error:.2g}; the interval holds with confidence {CONFIDENCE}"
    )
    return Delta(low, high, MONTE_CARLO, note)


def quantiles(
    mechanism: Mechanism, population: Population, n: int, epsilon: float, levels: Floats
) -> list[Delta]:
    """Return for every level s an interval of Pr[delta(x) > s], for the world worst for that s.

    For two types. A mean over databases hides rare ones; this is how rare they are.

    Parameters
    ----------
    mechanism, population, n, epsilon
        As for :func:`smoothed_delta`; the population has two types.
    levels : sequence of float
        Deltas s in (0, 1].

    Raises
    ------
    InvalidInput
        If there are more than two types, or more records than can be gone through.

    Examples
    --------
    >>> from vicinal.smoothed import FixedSize, Histogram, Vertices, quantiles
    >>> voters = Vertices([[0.4, 0.6], [0.6, 0.4]])
    >>> (rare,) = quantiles(Histogram(FixedSize(50)), voters, 100, 1.0, levels=[1e-3])
    >>> rare.upper < 1e-3  # databases with a delta above .001 are rarer than one in a thousand
    True
    """
    eps, count = (
        checks.check_real("epsilon", epsilon, least=0),
        _check_worlds(mechanism, population, n),
    )
    if population.types != 2 or not _has_columns(mechanism, count):
        raise InvalidInput("The 'population' parameter must have two types for quantiles.")
    column = expectation.make_log_deltas(mechanism, count, eps)
    cuts = [math.log(checks.check_real("levels", level, above=0, most=1)) for level in levels]
    bound_of_rest = expectation.make_rest_bound(mechanism, count, eps)
    return [_above(column, population, count, cut, bound_of_rest) for cut in cuts]


def _above(
    column: expectation.LogDeltas,
    population: Population,
    n: int,
    cut: float,
    bound_of_rest: Callable[[int], float],
) -> Delta:
    """Return the chance that log delta is above `cut`: an expected value of zeros and ones."""

    def indicator(low: int, high: int) -> Floats:
        return np.where(column(low, high) > cut, 0.0, -np.inf)

    def beyond(k: int) -> float:
        return 0.0 if bound_of_rest(k) > cut else -math.inf

    if isinstance(population, Heterogeneous):
        return as_delta(expectation.compute_mean_delta(indicator, *expectation.list_unmixed_worlds(population, n, 0)))
    chances = population.vertices[:, 0].tolist()
    worlds = [expectation.TwoTypeWorld((n,), (p,)) for p in {min(chances), max(chances)}]
    interval = largest(expectation.compute_mean_delta(indicator, world) for world in worlds)
    if len(worlds) == 1:
        return as_delta(interval)
    upper = max(expectation.bound_majorant_mean(indicator, world, beyond) for world in worlds)
    return as_delta(
        LogInterval(interval.low, max(interval.high, upper)),
        SANDWICH,
        "mixtures of worlds enclosed",
    )


CONFIDENCE = 1 - 1e-3


@dataclass(frozen=True)
class Estimate:
    """A mean over drawn databases, its standard error, and an interval that holds the expectation.

    `deltas` are upper ends, one a database. The databases are invented: nothing about them is
    private.
    """

    mean: float
    error: float
    lower: float
    upper: float
    deltas: Floats


def estimate(
    mechanism: Mechanism, population: Population, n: int, epsilon: float, draws: int, seed: int,
    share: float = 0.0,
) -> Estimate:  # fmt: skip
    """Return the mean delta over databases drawn from one world.

    `share` is that of the records from the second of two vertices. The interval is the empirical
    Bernstein inequality's (Maurer and Pontil 2009), which needs no assumption about the tail:
    deltas are between 0 and the chance of being sampled.
    """
    deltas = np.array(
        [
            [math.exp(value.low), math.exp(value.high)]
            for database in drawn(mechanism, population, n, draws, seed, share)
            for value in [compute_log_delta(mechanism, mechanism.check(database), epsilon)]
        ]
    )
    most = min(mechanism.touched(n), 1.0)
    miss = math.log(4 / (1 - CONFIDENCE))
    ends = []
    for row, sign in ((0, -1), (1, 1)):
        values = deltas[:, row]
        spread = float(values.var(ddof=1)) if draws > 1 else most**2
        reach = math.sqrt(2 * spread * miss / draws) + 7 * most * miss / (3 * max(draws - 1, 1))
        ends.append(float(values.mean()) + sign * reach)
    high = deltas[:, 1]
    error = float(high.std(ddof=1)) / math.sqrt(draws) if draws > 1 else math.inf
    return Estimate(float(high.mean()), error, max(ends[0], 0.0), min(ends[1], most), high)


def drawn(
    mechanism: Mechanism, population: Population, n: int, draws: int, seed: int, share: float = 0.0
) -> Iterator[Counts]:
    """Yield databases of n records: histograms, or labels by rank for ``KNNVotes``."""
    # Invented databases of a public model: no guarantee hangs on these draws.
    rng = np.random.default_rng(seed)  # noqa: TID251
    groups = _groups(population, n, share)
    for _ in range(draws):
        if isinstance(mechanism, KNNVotes):
            rows = [rng.choice(len(row), size=count, p=row) for count, row in groups]
            yield np.concatenate(rows)
        else:
            yield np.sum([rng.multinomial(count, row) for count, row in groups], axis=0)


def _groups(population: Population, n: int, share: float) -> list[tuple[int, Floats]]:
    rows = [row / row.sum() for row in population.vertices]
    if isinstance(population, Heterogeneous):
        return list(zip(population.counts.tolist(), rows, strict=True))
    second = round(share * n) if len(rows) > 1 else 0
    return [(count, row) for count, row in zip((n - second, second), rows, strict=False) if count]
