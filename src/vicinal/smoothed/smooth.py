"""The smoothed delta: the largest expected delta over the plausible distributions of the records.

An assignment of one of the population's distributions to each record is a *world*. Records are
independent of each other.

Arguments of the functions: the outcome of `mechanism` is published; `population` holds the
plausible distributions of each of the `n` records over m types; deltas are at `epsilon`. A table of
deltas (2, k, ..., k) has lower (0) and upper (1) bounds on its first axis; the remaining axes are
the counts 0 to k - 1 of all types but the last.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from vicinal import checks
from vicinal.arrays import Counts, Floats
from vicinal.errors import InvalidInput
from vicinal.smoothed import _expectation as expectation
from vicinal.smoothed._several_types import MIN_MEAN, bound_multitype_mean
from vicinal.smoothed.databases import compute_log_delta, validate_mechanism, worst_case_delta
from vicinal.smoothed.intervals import (
    BOUND,
    EXACT,
    MACHINE_EPSILON,
    MONTE_CARLO,
    SANDWICH,
    ZERO,
    Delta,
    LogInterval,
    log_or_minus_inf,
    make_delta,
)
from vicinal.smoothed.knn import KNNVotes, RadiusVotes, bound_radius_mean
from vicinal.smoothed.mechanism import (
    CountMechanism,
    Histogram,
    Mechanism,
    get_published_sample_size,
)
from vicinal.smoothed.populations import Heterogeneous, Population, bounds
from vicinal.smoothed.rules import Decision

# ------------- Algorithm 1 of LWX23 for small databases: the exact maximum over all worlds

_MAX_RECORDS = 200  # maximal number of records for which enumeration is tried
_MAX_UPDATES = 2 * 10**7
"""Maximal number of multisets of vertices, times entries of a table of deltas, for enumeration."""
_MAX_DATABASES = 20_000  # maximal number of histograms for which deltas are enumerated
_MAX_SLOW_DATABASES = 2_000
"""Maximal number of histograms for mechanisms whose deltas are slow: sums over sample sizes or
outcomes."""
_MAX_LISTED_SAMPLES = 4 * 10**6
"""Maximal number of samples that are listed for the outcomes of a rule, some ten seconds."""
_UNDERFLOW = 1e-300
"""Added to an upper mean. It exceeds the total underflow error of products of probabilities below
2.2e-308: at most 5e-324 in each of at most some 10^9 steps. Larger means do not change."""
_MAX_LOG_RATIO = 600.0  # deltas below exp(-600) of the largest would underflow beside it


def _can_enumerate(mechanism: Mechanism, n: int, n_types: int, n_vertices: int) -> bool:
    """Return whether the deltas of all databases and the means of all worlds are quick to compute.

    `n`, `n_types` and `n_vertices` are the numbers of records, types and vertices of a population.
    """
    if n > _MAX_RECORDS:
        return False
    n_databases = math.comb(n + n_types - 1, n_types - 1)
    n_updates = math.comb(n + n_vertices, n_vertices) * (n + 1) ** (n_types - 1) * n_types
    is_closed_form = n_types == 2 and get_published_sample_size(mechanism) is not None
    max_databases = _MAX_DATABASES if is_closed_form else _MAX_SLOW_DATABASES
    if n_databases > max_databases or n_updates > _MAX_UPDATES:
        return False
    if isinstance(mechanism, Decision):
        return n_databases * mechanism.bound_listed_samples(n, n_types) <= _MAX_LISTED_SAMPLES
    return True


def tabulate_log_deltas(mechanism: Mechanism, n: int, n_types: int, epsilon: float) -> Floats:
    """Return bounds of the log deltas of all histograms of `n` records, by their counts.

    The result, float64 (2, n + 1, ..., n + 1), has lower and upper bounds, and axes for the counts
    of all `n_types` types but the last. Entries that are no histogram of n records are -inf.
    """
    table = np.full((2,) + (n + 1,) * (n_types - 1), -np.inf)
    # The counts of a histogram are the numbers of stars between bars (stars and bars).
    for bar_positions in itertools.combinations(range(n + n_types - 1), n_types - 1):
        database = np.diff(np.array([-1, *bar_positions, n + n_types - 1])) - 1
        index = tuple(database[:-1].tolist())
        delta = compute_log_delta(mechanism, database, epsilon)
        table[(0, *index)], table[(1, *index)] = delta.low, delta.high
    return table


def maximize_over_worlds(log_deltas: Floats, vertices: Floats, n: int) -> LogInterval:
    """Return the largest expected delta over all worlds of `n` records: Algorithm 1 of LWX23.

    `log_deltas` (2, n + 1, ..., n + 1): lower and upper bounds of all log deltas, by counts of all
    types but the last. `vertices` (l, m): vertices of the convex hull of the distributions that a
    record may come from. Worlds with the same multiset of vertices have the same mean.
    """
    max_log = float(log_deltas[1].max())
    if max_log == -math.inf:
        return ZERO
    # Upper ends are raised to exp(-600) of the largest delta, lower ends may underflow to 0.
    shifted = np.stack(
        [log_deltas[0] - max_log, np.maximum(log_deltas[1] - max_log, -_MAX_LOG_RATIO)]
    )
    shifted[1][log_deltas[1] == -np.inf] = -np.inf
    means = np.array(
        [world_mean.ravel() for world_mean in _iterate_world_means(np.exp(shifted), vertices, n)]
    )
    largest = means.max(axis=0)
    return _enclose_mean(largest[0], largest[1], n * vertices.shape[1], max_log)


def _iterate_world_means(deltas: Floats, vertices: Floats, n_remaining: int) -> Iterator[Floats]:
    """Yield the expected delta, lower and upper, for every multiset of `n_remaining` vertices.

    Each of the remaining records comes from one of the `vertices` (l, m). `deltas`: table of
    expected deltas, by the counts among the remaining records.
    """
    if not n_remaining:
        yield deltas
        return
    for index in range(len(vertices)):
        # Earlier vertices are excluded from here on, so that each multiset is yielded once.
        yield from _iterate_world_means(
            average_over_record(deltas, vertices[index]), vertices[index:], n_remaining - 1
        )


def average_over_record(deltas: Floats, distribution: Floats) -> Floats:
    """Return the expected deltas over one further record whose type has `distribution` (m,).

    `deltas` (2, k, ..., k): table of deltas. The result is (2, k - 1, ..., k - 1), as its counts no
    longer include the record.
    """
    unchanged = tuple(slice(None, -1) for _ in range(deltas.ndim - 1))
    averaged = distribution[-1] * deltas[(slice(None), *unchanged)]
    for type_index, probability in enumerate(distribution[:-1]):
        raised = tuple(
            slice(1, None) if axis == type_index else slice(None, -1)
            for axis in range(deltas.ndim - 1)
        )
        averaged = averaged + probability * deltas[(slice(None), *raised)]
    return np.asarray(averaged)


def average_over_world(log_deltas: Floats, distributions: Floats) -> LogInterval:
    """Return the expected delta if record r comes from row r of `distributions` (n, m).

    `log_deltas` (2, n + 1, ..., n + 1): table of the logs of all deltas.
    """
    if log_deltas[1].max() == -math.inf:
        return ZERO
    deltas = np.exp(log_deltas)
    for distribution in distributions:
        deltas = average_over_record(deltas, distribution)
    return _enclose_mean(deltas[0].item(), deltas[1].item(), distributions.size)


def _enclose_mean(low: float, high: float, n_terms: int, max_log: float = 0.0) -> LogInterval:
    """Return the interval of a mean of positive deltas, computed in `n_terms` steps.

    `low`, `high`: computed bounds of the mean, divided by exp(`max_log`). Products of probabilities
    may underflow.
    """
    log_low = log_or_minus_inf(low)
    log_high = math.log(high + _UNDERFLOW)
    slack = MACHINE_EPSILON * (4 * n_terms + 64 + 4 * abs(max_log) + abs(log_high))
    return LogInterval(max_log + log_low - slack, max_log + log_high + slack)


_MAX_PROFILE_RECORDS = 10**7
"""Maximal number of records of a profile: its two rows of n + 1 float64 take 160 MB then."""


def profile(mechanism: Mechanism, n: int, epsilon: float) -> Floats:
    """Return log delta of each database with two types, float64 (2, n + 1).

    Row 0 holds lower and row 1 upper ends; column k is the database with k records of the first
    type and n - k of the second. -inf is a delta of 0. Raises InvalidInput if n is above 10^7, or
    the mechanism needs more than two types.

    Parameters
    ----------
    mechanism : Mechanism
        A mechanism on histograms of two types.
    n : int
        Number of records, at most 10^7.
    epsilon : float
        At least 0.

    Examples
    --------
    >>> from vicinal.smoothed import FixedSize, Histogram, profile
    >>> lower, upper = profile(Histogram(FixedSize(5)), n=10, epsilon=1.0)
    >>> upper.shape
    (11,)
    """
    epsilon = checks.check_real("epsilon", epsilon, minimum=0)
    n_records = checks.check_integer("n", n, minimum=1, maximum=_MAX_PROFILE_RECORDS)
    validate_mechanism(mechanism).validate_database([n_records, 0])
    return expectation.create_log_delta_getter(mechanism, n_records, epsilon)(0, n_records)


WARNINGS = (
    "The population must be fixed before the data is seen; the delta of a database is private.",
    "A mean over databases hides rare groups: look at the quantiles, and at each type's delta.",
    "Records must be independent of each other.",
    "Publishing more finely (precincts, many queries) makes types rarer: rare types are revealed.",
    "Neighbours replace one record.",
)
"""Assumptions to be printed with every smoothed delta (theory.md, section 8d)."""

BOUND_BY_COUNTS = "the delta of the counts, an upper bound for every rule on them"
"""Note of a delta that is the upper bound of all post-processings of the sampled counts."""

_EXACT_WIDTH = 1e-6
"""Largest width of a log interval that is called exact; rounding alone gives up to 2e-8 at n = 10^8
(decision 0020)."""
_MAX_LISTED_RECORDS = 3000
"""Maximal number of records for which deltas without a closed form are computed one by one."""


def smoothed_delta(
    mechanism: Mechanism,
    population: Population,
    n: int,
    epsilon: float,
    *,
    draws: int = 0,
    seed: int = 0,
) -> Delta:
    """Return the smoothed delta: the maximum over plausible worlds of the expected delta(x).

    Definition 3 of LWX23 as a certified interval. Small databases are enumerated (Algorithm 1). Two
    types are summed in log space up to n = 10^9. More types are enclosed between two sums or by the
    theorems of :func:`bounds`. For everything else the result is the worst case or, if `draws` is
    given, an interval from sampled databases. Raises InvalidInput if the population has other types
    or other counts than the mechanism and n, or a sample is larger than n.

    Parameters
    ----------
    mechanism : Mechanism
        The mechanism whose outcome is published.
    population : Population
        The plausible worlds: `types` must be those of the mechanism.
    n : int
        Number of records, public.
    epsilon : float
        At least 0.
    draws : int
        Number of databases to sample where no other method is sharp; 0 for none. The interval then
        holds with confidence .999. With several vertices, only its lower end uses the samples.
    seed : int
        Seed of the sampled databases.

    Examples
    --------
    >>> from vicinal.smoothed import FixedSize, Histogram, Hull, smoothed_delta
    >>> counts = Histogram(FixedSize(499_000))  # 1,000 of 500,000 ballots are lost
    >>> voters = Hull([[0.0553, 0.9447], [0.466, 0.534]])
    >>> print(smoothed_delta(counts, voters, 500_000, epsilon=2.0))
    1.288e-17 (exact)
    """
    checked_epsilon = checks.check_real("epsilon", epsilon, minimum=0)
    _check_population_fits(mechanism, population, n)
    checks.check_integer("draws", draws, minimum=0)
    checks.check_integer("seed", seed, minimum=0)
    worst_case = worst_case_delta(mechanism, n, checked_epsilon, n_types=population.types)
    answer = _compute_certified_delta(mechanism, population, n, checked_epsilon)
    if answer is None and draws:
        answer = _estimate_by_sampling(mechanism, population, n, checked_epsilon, draws, seed)
    max_log = worst_case.log_upper
    limit = "no better than the worst case"
    if isinstance(mechanism, Decision) and (answer is None or answer.method == MONTE_CARLO):
        counts = Histogram(mechanism.get_sampler(n))
        counts_delta = smoothed_delta(counts, population, n, checked_epsilon)
        max_log = min(max_log, counts_delta.log_upper)
        limit = BOUND_BY_COUNTS
    if answer is None:
        return Delta(-math.inf, max_log, BOUND, limit)
    return Delta(answer.log_lower, min(answer.log_upper, max_log), answer.method, answer.note)


def _check_population_fits(mechanism: Mechanism, population: Population, n: int) -> None:
    """Raise InvalidInput unless the mechanism accepts `n` records of the population."""
    if not isinstance(population, Population):
        raise InvalidInput(f"The 'population' parameter must be a Population. Got {population!r}.")
    population.check_record_count(n)
    n_types = population.types
    if isinstance(validate_mechanism(mechanism), KNNVotes):
        mechanism.validate_database(np.full(n, n_types - 1))
    else:
        mechanism.validate_database([n, *[0] * (n_types - 1)])


def _compute_certified_delta(
    mechanism: Mechanism, population: Population, n: int, epsilon: float
) -> Delta | None:
    """Return the best smoothed delta that needs no sampled databases; None if no method applies."""
    if isinstance(mechanism, KNNVotes):
        return None
    n_types = population.types
    has_log_deltas = n_types == 2 and _can_compute_any_delta(mechanism, n)
    if isinstance(population, Heterogeneous) and has_log_deltas:
        return _bound_two_types(mechanism, population, n, epsilon)
    n_vertices = 1 if isinstance(population, Heterogeneous) else len(population.vertices)
    if _can_enumerate(mechanism, n, n_types, n_vertices):
        table = tabulate_log_deltas(mechanism, n, n_types, epsilon)
        if isinstance(population, Heterogeneous):
            rows = np.repeat(population.vertices, population.counts, axis=0)
            enumerated = average_over_world(table, rows)
        else:
            enumerated = maximize_over_worlds(table, population.vertices, n)
        is_close = enumerated == ZERO or enumerated.high - enumerated.low < _EXACT_WIDTH
        if is_close or not has_log_deltas:
            return make_delta(enumerated, EXACT if is_close else SANDWICH)
    if has_log_deltas:
        return _bound_two_types(mechanism, population, n, epsilon)
    if isinstance(mechanism, Histogram):
        return _bound_many_types(mechanism, population, n, epsilon)
    if isinstance(mechanism, RadiusVotes):
        interval = bound_radius_mean(mechanism, population, n, epsilon)
        if interval:
            note = "the largest single label below, all together above"
            return make_delta(interval, SANDWICH, note)
    return None


def _can_compute_any_delta(mechanism: Mechanism, n: int) -> bool:
    """Return whether delta can be computed for any database of `n` records of two types."""
    if isinstance(mechanism, Decision):
        return mechanism.can_tabulate(n, 2)
    is_listable = isinstance(mechanism, CountMechanism) and n <= _MAX_LISTED_RECORDS
    return is_listable or get_published_sample_size(mechanism) is not None


def _bound_two_types(mechanism: Mechanism, population: Population, n: int, epsilon: float) -> Delta:
    """Return the smoothed delta of `n` records of two types from sums over all databases."""
    get_log_deltas = expectation.create_log_delta_getter(mechanism, n, epsilon)
    worlds = expectation.list_extreme_worlds(population, n)
    if len(worlds) == 1:
        return make_delta(expectation.compute_mean_delta(get_log_deltas, worlds[0]))
    bound_log_delta = expectation.make_log_delta_bound(mechanism, n, epsilon)
    interval = expectation.bound_mixed_worlds(get_log_deltas, worlds, bound_log_delta)
    if isinstance(mechanism, Decision):
        p, q = (world.probabilities[0] for world in worlds)
        unimodal = expectation.bound_decision_delta(mechanism, n, epsilon, p, q)
        interval = LogInterval(max(interval.low, unimodal.low), min(interval.high, unimodal.high))
    is_close = interval.high - interval.low < _EXACT_WIDTH
    return make_delta(interval, EXACT if is_close else SANDWICH, "mixtures of worlds enclosed")


def _bound_many_types(
    mechanism: Histogram, population: Population, n: int, epsilon: float
) -> Delta | None:
    """Return the smoothed delta of sampled counts of `n` records of three or more types.

    It is enclosed by sums over databases and by the theorems of :func:`bounds`. The result is None
    if the sampler is not ``FixedSize`` and there are too many records.
    """
    size = get_published_sample_size(mechanism)
    if size is None and n > _MAX_LISTED_RECORDS:
        return None
    lower = expectation.bound_single_type_mean(mechanism, population, n, epsilon).low
    upper, method = 0.0, BOUND
    if size is not None:
        theorem_bounds = bounds(population, n, size, epsilon)
        lower, upper = max(lower, theorem_bounds.log_floor), theorem_bounds.log_upper
    note = "mixtures of worlds enclosed" if len(population.vertices) > 1 else ""
    if upper <= math.log(MIN_MEAN):  # the sums have a larger upper end, and a lower end of 0
        return Delta(lower, upper, method, note)
    # A world of one distribution has a lower end, too. The upper end for the smallest probabilities
    # is valid for mixtures.
    is_multinomial = not isinstance(population, Heterogeneous)
    vertices = list(population.vertices) if is_multinomial else []
    sampler = mechanism.sampler
    means = [bound_multitype_mean(sampler, vertex, n, epsilon) for vertex in vertices]
    lower = max([lower, *(mean.low for mean in means if mean)])
    if len(means) == 1:
        upper_mean = means[0]
    else:
        upper_mean = bound_multitype_mean(sampler, population.min_probabilities, n, epsilon)
    if upper_mean and upper_mean.high < upper:
        upper, method = upper_mean.high, SANDWICH
    return Delta(lower, upper, method, note)


def _estimate_by_sampling(
    mechanism: Mechanism, population: Population, n: int, epsilon: float, draws: int, seed: int
) -> Delta:
    """Return an interval of the smoothed delta with confidence .999.

    `draws`: number of databases to sample. `seed`: seed of their random generator.
    """
    estimated = estimate_mean_delta(mechanism, population, n, epsilon, draws, seed)
    is_single_world = isinstance(population, Heterogeneous) or len(population.vertices) == 1
    low = log_or_minus_inf(estimated.lower)
    # With several vertices the worst world is unknown, so the upper end is 1.
    high = math.log(estimated.upper) if is_single_world and estimated.upper > 0 else 0.0
    note = (
        f"mean of {draws} drawn databases {estimated.mean:.3g}, "
        f"standard error {estimated.error:.2g}; the interval holds with confidence {CONFIDENCE}"
    )
    return Delta(low, high, MONTE_CARLO, note)


def quantiles(
    mechanism: Mechanism, population: Population, n: int, epsilon: float, levels: Floats
) -> list[Delta]:
    """Return for every level s an interval of Pr[delta(x) > s] in the worst world for that s.

    For two types. A mean over databases hides rare databases; these probabilities show how rare
    databases with a large delta are. Raises InvalidInput if there are more than two types, or more
    records than can be enumerated.

    Parameters
    ----------
    mechanism, population, n, epsilon
        As for :func:`smoothed_delta`; the population has two types.
    levels : sequence of float
        Deltas s in (0, 1].

    Examples
    --------
    >>> from vicinal.smoothed import FixedSize, Histogram, Vertices, quantiles
    >>> voters = Vertices([[0.4, 0.6], [0.6, 0.4]])
    >>> (rare,) = quantiles(Histogram(FixedSize(50)), voters, 100, 1.0, levels=[1e-3])
    >>> rare.upper < 1e-3  # databases with a delta above .001 are rarer than one in a thousand
    True
    """
    checked_epsilon = checks.check_real("epsilon", epsilon, minimum=0)
    _check_population_fits(mechanism, population, n)
    if population.types != 2 or not _can_compute_any_delta(mechanism, n):
        raise InvalidInput("The 'population' parameter must have two types for quantiles.")
    get_log_deltas = expectation.create_log_delta_getter(mechanism, n, checked_epsilon)
    log_levels = [
        math.log(checks.check_real("levels", level, above=0, maximum=1)) for level in levels
    ]
    bound_log_delta = expectation.make_log_delta_bound(mechanism, n, checked_epsilon)
    return [
        _bound_exceedance(get_log_deltas, population, n, log_level, bound_log_delta)
        for log_level in log_levels
    ]


def _bound_exceedance(
    get_log_deltas: expectation.LogDeltaGetter,
    population: Population,
    n: int,
    log_level: float,
    bound_log_delta: Callable[[int], float],
) -> Delta:
    """Return the largest probability over worlds that log delta is above `log_level`.

    The databases have `n` records of two types, k of the first. `get_log_deltas(low, high)` returns
    the bounds (2, high - low + 1) of log delta for low <= k <= high; `bound_log_delta(k)` is an
    upper bound of log delta of databases k to n - k.
    """
    # The probability is the expectation of an indicator, which takes the place of delta.

    def compute_indicators(low: int, high: int) -> Floats:
        """Return bounds of the log of the indicator, 0 or -inf, (2, high - low + 1)."""
        return np.where(get_log_deltas(low, high) > log_level, 0.0, -np.inf)

    get_indicators: expectation.LogDeltaGetter = compute_indicators
    if isinstance(get_log_deltas, expectation.StoredLogDeltas):
        get_indicators = expectation.StoredLogDeltas(compute_indicators(0, n))

    def bound_indicator(k: int) -> float:
        """Return an upper bound of the log of the indicator of databases k to n - k."""
        return 0.0 if bound_log_delta(k) > log_level else -math.inf

    worlds = expectation.list_extreme_worlds(population, n)
    if len(worlds) == 1:
        return make_delta(expectation.compute_mean_delta(get_indicators, worlds[0]))
    interval = expectation.bound_mixed_worlds(get_indicators, worlds, bound_indicator)
    return make_delta(interval, SANDWICH, "mixtures of worlds enclosed")


CONFIDENCE = 1 - 1e-3
"""Probability that a Monte Carlo interval contains the expected delta."""


@dataclass(frozen=True)
class Estimate:
    """The mean delta of sampled databases, its standard error, and a confidence interval.

    `lower` and `upper` enclose the expected delta with confidence :data:`CONFIDENCE`; `error` is
    the standard error. Nothing here is private, because the databases are synthetic.
    """

    mean: float
    error: float
    lower: float
    upper: float


def estimate_mean_delta(
    mechanism: Mechanism, population: Population, n: int, epsilon: float, draws: int, seed: int
) -> Estimate:
    """Return the mean delta of `draws` >= 1 random databases, with a confidence interval.

    The databases are those of :func:`sample_databases`. The interval uses the empirical Bernstein
    inequality (Maurer and Pontil 2009), which needs no assumption about the tail: deltas are
    between 0 and the probability of being sampled.
    """
    log_deltas = [
        compute_log_delta(mechanism, mechanism.validate_database(database), epsilon)
        for database in sample_databases(mechanism, population, n, draws, seed)
    ]
    deltas = np.array([[math.exp(delta.low), math.exp(delta.high)] for delta in log_deltas])
    max_delta = min(mechanism.compute_inclusion_probability(n), 1.0)
    # Four events share the probability of an error: two ends, each with mean and variance.
    log_inverse_error = math.log(4 / (1 - CONFIDENCE))
    ends = []
    # The lower end of the interval is computed from lower deltas, the upper from upper ones.
    for row, sign in ((0, -1), (1, 1)):
        values = deltas[:, row]
        variance = float(values.var(ddof=1)) if draws > 1 else max_delta**2
        half_width = math.sqrt(
            2 * variance * log_inverse_error / draws
        ) + 7 * max_delta * log_inverse_error / (3 * max(draws - 1, 1))
        ends.append(float(values.mean()) + sign * half_width)
    upper_deltas = deltas[:, 1]
    error = float(upper_deltas.std(ddof=1)) / math.sqrt(draws) if draws > 1 else math.inf
    mean = float(upper_deltas.mean())
    return Estimate(mean, error, max(ends[0], 0.0), min(ends[1], max_delta))


def sample_databases(
    mechanism: Mechanism, population: Population, n: int, draws: int, seed: int
) -> Iterator[Counts]:
    """Yield `draws` random databases of `n` records from one world of `population`.

    A database is a histogram (m,), or labels (n,) by rank for ``KNNVotes``. All records come from
    the first vertex, unless the population is ``Heterogeneous``. `seed`: seed of the random
    generator.
    """
    # Synthetic databases from a public model: no guarantee depends on these draws.
    rng = np.random.default_rng(seed)  # noqa: TID251
    rows = [row / row.sum() for row in population.vertices]
    groups = [(n, rows[0])]
    if isinstance(population, Heterogeneous):
        groups = list(zip(population.counts.tolist(), rows, strict=True))
    for _ in range(draws):
        if isinstance(mechanism, KNNVotes):
            labels = [rng.choice(len(row), size=count, p=row) for count, row in groups]
            yield np.concatenate(labels)
        else:
            yield np.sum([rng.multinomial(count, row) for count, row in groups], axis=0)
