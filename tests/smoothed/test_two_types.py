"""Counts of two and more types at large n: deep tails, enclosing intervals and the pmfs beneath."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from scipy.stats import binom

from vicinal.smoothed import (
    FixedSize,
    Heterogeneous,
    Histogram,
    Poisson,
    RadiusVotes,
    Vertices,
    WithReplacement,
    _expectation,
    bounds,
    intervals,
    profile,
    quantiles,
    smooth,
    smoothed_delta,
)
from vicinal.smoothed._expectation import bound_single_type_mean
from vicinal.smoothed._pairs import DIVERGENCE, compute_pair_divergence
from vicinal.smoothed._several_types import bound_multitype_mean
from vicinal.smoothed.knn import bound_radius_mean

DC = 18586 / 335909


def log_choose(n, k):
    return mpmath.loggamma(n + 1) - mpmath.loggamma(k + 1) - mpmath.loggamma(n - k + 1)


def assert_holds_its_stated_error(found, exact):
    error = intervals.LOG_ABSOLUTE_ERROR + intervals.LOG_RELATIVE_ERROR * abs(found)
    assert abs(found - exact) <= error


@pytest.mark.parametrize(("n", "p"), [(10, 0.3), (10_000, 0.05), (10**8, 0.4)])
def test_binomial_probabilities_hold_their_stated_error(n, p):
    with mpmath.workdps(50):
        for k in {0, 1, n // 3, round(n * p), n - 1, n}:
            exact = log_choose(n, k) + k * mpmath.log(p) + (n - k) * mpmath.log(1 - mpmath.mpf(p))
            assert_holds_its_stated_error(
                float(intervals.log_binomial_pmf(n, p, k, k + 1)[0]), exact
            )


@pytest.mark.parametrize(
    ("kind", "others", "size"), [(7, 9, 5), (50_000, 60_000, 109_000), (5 * 10**7, 10**8, 10**8)]
)
def test_hypergeometric_probabilities_hold_their_stated_error(kind, others, size):
    low, high = max(0, size - others), min(kind, size)
    with mpmath.workdps(50):
        for o in {low, (low + high) // 2, high, round(size * kind / (kind + others))}:
            exact = log_choose(kind, o) + log_choose(others, size - o)
            exact -= log_choose(kind + others, size)
            found = float(intervals.log_hypergeometric(o, kind, others, size))
            assert_holds_its_stated_error(found, exact)


@pytest.mark.parametrize(
    ("a", "b", "size", "e"),
    [(3000, 5000, 7900, 1.04), (40, 9000, 9000, 7.5), (10**5, 10**5, 10**5, 1.5), (0, 50, 20, 3.0)],
)
def test_an_edge_holds_its_stated_error(a, b, size, e):
    with mpmath.workdps(40):
        n, total = a + b + 1, mpmath.mpf(0)
        for o in range(max(0, size - b), min(a + 1, size) + 1):
            gap = (a + 1) * (b + 1 - size + o) - mpmath.mpf(e) * (b + 1) * (a + 1 - o)
            if gap > 0:
                log_p = log_choose(a + 1, o) + log_choose(b, size - o) - log_choose(n, size)
                term = mpmath.exp(log_p) * gap / ((a + 1) * (b + 1 - size + o))
                total += term
                if term < total * mpmath.mpf(10) ** -35:
                    break
        low, high = compute_pair_divergence(a, b, size, e, DIVERGENCE)
        assert low <= mpmath.log(total) <= high
        assert high - low < 1e-8


def test_poisson_binomials_agree_with_convolution_and_with_binomials():
    rng = np.random.default_rng(0)
    counts, probabilities = rng.integers(1, 9, 7), rng.uniform(0, 1, 7)
    pmf = np.ones(1)
    for count, probability in zip(counts, probabilities, strict=True):
        for _ in range(count):
            pmf = np.convolve(pmf, [1 - probability, probability])
    logs, errors = _expectation.compute_poisson_binomial_log_pmf(counts, probabilities, 0, len(pmf))
    assert np.exp(logs) == pytest.approx(pmf, rel=1e-9)
    two_groups = np.array([20_000, 30_000]), np.array([0.2, 0.2])
    logs, errors = _expectation.compute_poisson_binomial_log_pmf(*two_groups, 4_000, 15_000)
    binomial_logs = intervals.log_binomial_pmf(50_000, 0.2, 4_000, 15_000)
    slack = (
        errors + intervals.LOG_ABSOLUTE_ERROR + intervals.LOG_RELATIVE_ERROR * np.abs(binomial_logs)
    )
    assert (np.abs(logs - binomial_logs) <= slack).all()
    assert logs.min() < -2000
    assert errors.max() < 1e-6


def bound_two_type_delta(mechanism, population, n, epsilon):
    return _expectation.bound_mixed_worlds(
        _expectation.create_log_delta_getter(mechanism, n, epsilon),
        _expectation.list_extreme_worlds(population, n),
        _expectation.make_log_delta_bound(mechanism, n, epsilon),
    )


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 7.0])
def test_windows_leave_out_nothing_that_matters(epsilon):
    """The windowed sum against the sum over the whole profile."""
    n, mechanism = 5000, Histogram(FixedSize(4950))
    all_terms = profile(mechanism, n, epsilon) + intervals.log_binomial_pmf(n, 0.1)
    ends = [float(np.logaddexp.reduce(row)) for row in all_terms]
    found = smoothed_delta(mechanism, Vertices([[0.1, 0.9]]), n, epsilon)
    assert [found.log_lower, found.log_upper] == pytest.approx(ends, abs=1e-9)


def test_deltas_far_below_the_smallest_float():
    found = smoothed_delta(Histogram(FixedSize(50_000)), Vertices([[DC, 1 - DC]]), 10**5, 2.0)
    assert found.log10_upper == pytest.approx(-890.2, abs=0.05)
    assert found.log10_upper - found.log10_lower < 1e-6
    assert 0 < found.upper < 1e-300
    assert found.lower == 0
    assert "e-891" in str(found)


def test_a_true_maximum_in_the_middle_is_enclosed():
    """With n = 40, T = 3, E = 1: neither pure world is the worst (theory.md, section 8c)."""
    mechanism, population = Histogram(FixedSize(3)), Vertices([[0.4, 0.6], [0.6, 0.4]])
    exact = smoothed_delta(mechanism, population, 40, 0.0)
    assert exact.value == pytest.approx(0.0378802, abs=1e-7)
    around = bound_two_type_delta(mechanism, population, 40, 0.0)
    assert math.exp(around.low) == pytest.approx(0.0377284, abs=1e-7)
    assert math.exp(around.high) >= exact.upper
    assert math.exp(around.high) <= 0.03884


@pytest.mark.parametrize("seed", range(8))
def test_sandwiches_enclose_algorithm_1(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(5, 60))
    mechanism, epsilon = Histogram(FixedSize(int(rng.integers(1, n + 1)))), float(rng.uniform(0, 2))
    p, q = sorted(rng.uniform(0.05, 0.95, 2).tolist())
    population = Vertices([[p, 1 - p], [q, 1 - q]])
    around = bound_two_type_delta(mechanism, population, n, epsilon)
    exact = smoothed_delta(mechanism, population, n, epsilon)
    assert exact.method == "exact"
    assert around.low <= exact.log_upper
    assert exact.log_lower <= around.high


@pytest.mark.parametrize("mechanism", [Histogram(FixedSize(13)), Histogram(Poisson(0.8))])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_the_mean_of_one_type_is_below_algorithm_1(mechanism, epsilon):
    population = Vertices([[0.3, 0.3, 0.4], [0.35, 0.35, 0.3]])
    exact = smoothed_delta(mechanism, population, 16, epsilon)
    assert exact.method == "exact"
    assert bound_single_type_mean(mechanism, population, 16, epsilon).low <= exact.log_upper


@pytest.mark.parametrize("epsilon", [0.2, 2.5])
@pytest.mark.parametrize("sampler", [FixedSize(5), FixedSize(7), Poisson(0.6), WithReplacement(5)])
def test_means_over_several_types_enclose_algorithm_1(sampler, epsilon):
    """All databases are listed; fails if ties, absent types or tails are weighed wrongly."""
    for probabilities in (
        [1 / 3, 1 / 3, 1 / 3],
        [0.05, 0.15, 0.8],
        [0.0, 0.3, 0.7],
        [0.45, 0.45, 0.1],
        [0.25, 0.25, 0.25, 0.25],
        [0.02, 0.08, 0.3, 0.6],
    ):
        n = 12 if len(probabilities) == 3 else 8
        exact = smoothed_delta(Histogram(sampler), Vertices([probabilities]), n, epsilon)
        assert exact.method == "exact"
        found = bound_multitype_mean(sampler, np.array(probabilities), n, epsilon)
        assert found.low <= exact.log_upper
        assert exact.log_lower <= found.high
        if len(probabilities) == 3:
            assert found.high - found.low < 0.02


def test_worlds_that_mix_are_below_the_mean_of_the_least_chances():
    """Every multiset of worlds is enumerated; fails if a mixture is worse than its upper end."""
    for vertices in ([[0.1, 0.2, 0.7], [0.3, 0.1, 0.6]], [[0.2, 0.4, 0.4], [0.4, 0.4, 0.2]]):
        population = Vertices(vertices)
        for sampler in (FixedSize(10), Poisson(0.5)):
            exact = smoothed_delta(Histogram(sampler), population, 14, 0.7)
            assert exact.method == "exact"
            assert (
                exact.log_lower
                <= bound_multitype_mean(sampler, population.min_probabilities, 14, 0.7).high
            )


TRIPLES = [[0.3, 0.3, 0.4], [0.2, 0.3, 0.5]]


@pytest.mark.parametrize(
    ("mechanism", "rows", "n", "epsilon", "max_ratio"),
    [
        (Histogram(FixedSize(70)), TRIPLES, 140, 1.0, 1.05),
        (Histogram(FixedSize(70)), TRIPLES[:1], 140, 1.0, 1.05),
        (Histogram(FixedSize(470)), TRIPLES, 500, 0.5, 1.05),
        (RadiusVotes(0.1, 2), [[0.02, 0.03, 0.95]], 1000, 1.0, 7.4),
    ],
)
def test_three_types_are_known_to_a_small_factor(mechanism, rows, n, epsilon, max_ratio):
    found = smoothed_delta(mechanism, Vertices(rows), n, epsilon)
    assert found.method == "sandwich"
    assert found.log_upper - found.log_lower < math.log(max_ratio)


def test_every_loss_falls_when_a_count_grows():
    """The steps between corners rely on it: a third type is relabelled after sampling."""
    for sampler in (FixedSize(7), Poisson(0.3), WithReplacement(6)):
        for a, b in itertools.product(range(6), repeat=2):
            lower_end = sampler.compute_divergence(a, b, 14, 0.4).low
            for larger in ((a + 1, b), (a, b + 1)):
                assert sampler.compute_divergence(*larger, 14, 0.4).low <= lower_end + 1e-9


@pytest.mark.parametrize(
    "rows",
    [
        [[0.3, 0.3, 0.4], [0.4, 0.35, 0.25]],
        [[0.5, 0.5, 0.0]],
        [[0.1, 0.85, 0.05], [0.2, 0.7, 0.1]],
        [[0.1, 0.2, 0.3, 0.4]],
    ],
)
def test_radius_votes_are_enclosed(rows):
    population = Vertices(rows)
    for gamma, epsilon in ((0.1, 1.0), (0.8, 0.3)):
        mechanism = RadiusVotes(gamma, population.types - 1)
        exact = smoothed_delta(mechanism, population, 10, epsilon)
        around = bound_radius_mean(mechanism, population, 10, epsilon)
        assert exact.method == "exact"
        assert around.low <= exact.log_upper
        assert exact.log_lower <= around.high


def test_groups_of_voters():
    """Two groups of the same distribution equal one; a mixed world is between the pure ones."""
    mechanism = Histogram(FixedSize(990))

    def compute_log_delta(second_group):
        world = Heterogeneous([(400, [0.1, 0.9]), (600, second_group)])
        return smoothed_delta(mechanism, world, 1000, 1.0).log_upper

    pure, other_pure = (
        smoothed_delta(mechanism, Vertices([row]), 1000, 1.0).log_upper
        for row in ([0.1, 0.9], [0.4, 0.6])
    )
    assert compute_log_delta([0.1, 0.9]) == pytest.approx(pure, abs=1e-6)
    assert other_pure < compute_log_delta([0.4, 0.6]) < pure


def test_a_single_database_with_a_delta_is_enclosed_in_all_mixtures_of_worlds():
    """Each pure world is needed for the upper end: of databases above n // 2, or below."""
    n = 20
    worlds = [_expectation.TwoTypeWorld((n,), (probability,)) for probability in (0.3, 0.9)]
    mixtures = [
        np.convolve(binom.pmf(range(j + 1), j, 0.3), binom.pmf(range(n - j + 1), n - j, 0.9))
        for j in range(n + 1)
    ]
    for k, probability in enumerate(np.max(mixtures, axis=0)):
        logs = np.where(np.arange(n + 1) == k, 0.0, -np.inf)
        stored = _expectation.StoredLogDeltas(np.stack([logs, logs]))
        found = _expectation.bound_mixed_worlds(stored, worlds, lambda _: 0.0)
        assert found.low <= math.log(probability) + 1e-9
        assert math.log(probability) <= found.high + 1e-9


@pytest.mark.parametrize("n", [12, 40])
def test_quantiles_enclose_all_mixtures_of_worlds(n):
    """The last row in ascending order is the worst; the one between does not matter."""
    mechanism = Histogram(FixedSize(n - 3))
    rows = np.array([[0.9, 0.1], [0.6, 0.4], [0.7, 0.3]])
    logs = profile(mechanism, n, 0.5)
    for level in (0.5, 0.1, 0.02):
        (found,) = quantiles(mechanism, Vertices(rows), n, 0.5, [level])
        above = np.where(logs > math.log(level), 0.0, -np.inf)
        exact = smooth.maximize_over_worlds(above, rows, n)
        assert found.log_lower <= exact.high
        assert exact.low <= found.log_upper


@pytest.mark.parametrize("seed", range(30))
def test_bounds_are_never_violated(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 60))
    size, epsilon = int(rng.integers(1, n)), float(rng.uniform(0.01, 6))
    p, q = sorted(rng.uniform(0.02, 0.98, 2).tolist())
    population = Vertices([[p, 1 - p], [q, 1 - q]])
    exact = smoothed_delta(Histogram(FixedSize(size)), population, n, epsilon)
    theorem_bounds = bounds(population, n, size, epsilon)
    assert exact.log_lower <= min(theorem_bounds.log_one_sided, theorem_bounds.log_two_sided)
    assert exact.log_lower <= theorem_bounds.log_worst_case
    assert theorem_bounds.log_floor <= exact.log_upper


def test_bounds_bite():
    """The bounds are close to the exact values, not trivially 1."""
    theorem_bounds = bounds(Vertices([[DC, 1 - DC]]), 5 * 10**5, 499_000, 2.0)
    assert theorem_bounds.log_two_sided / math.log(10) == pytest.approx(-8.51, abs=0.35)
    assert theorem_bounds.log_one_sided == 0
    half = bounds(Vertices([[DC, 1 - DC]]), 10**5, 50_000, 2.0)
    assert half.log_one_sided / math.log(10) == pytest.approx(-621.1, abs=0.5)
