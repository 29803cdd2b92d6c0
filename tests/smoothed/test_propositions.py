"""Theorems of LWX23 on random small instances, computed exactly."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog

from smoothed import brute
from vicinal import smoothed
from vicinal.smoothed.mechanism import compute_listed_divergence

SEEDS = range(12)


def sample_distribution(rng, outcomes):
    weights = [Fraction(int(w)) for w in rng.integers(0, 12, outcomes)]
    weights[0] += 1
    return {i: w / sum(weights) for i, w in enumerate(weights)}


def sample_distributions(rng, rows, types):
    weights = rng.integers(1, 9, (rows, types)).astype(object)
    return [[Fraction(int(w), int(row.sum())) for w in row] for row in weights]


def take_logs(distribution):
    return {o: math.log(p) if p else -math.inf for o, p in distribution.items()}


@pytest.mark.parametrize("n", [1, 2, 5, 7])
@pytest.mark.parametrize(
    "sampler", [smoothed.FixedSize(1), smoothed.Poisson(0.4), smoothed.WithReplacement(3)]
)
@pytest.mark.parametrize("epsilon", [0.0, 0.7, 20.0])
def test_theorem_1_the_worst_database_is_the_worst_case(n, sampler, epsilon):
    mechanism = smoothed.Histogram(sampler)
    worst = max(
        smoothed.database_delta(mechanism, (a, b, n - a - b), epsilon).upper
        for a in range(n + 1)
        for b in range(n + 1 - a)
    )
    assert worst == pytest.approx(smoothed.worst_case_delta(mechanism, n, epsilon).value, rel=1e-11)


@pytest.mark.parametrize("mechanism", [smoothed.Average(range(3), 3), smoothed.RadiusVotes(0.3, 2)])
def test_no_database_is_above_the_worst_case(mechanism):
    worst = smoothed.worst_case_delta(mechanism, 5, 0.2).upper
    for a, b in itertools.product(range(4), range(2)):
        assert smoothed.database_delta(mechanism, (a, b, 5 - a - b), 0.2).lower <= worst


@pytest.mark.parametrize("seed", SEEDS)
def test_proposition_5_composition_of_independent_releases(seed):
    rng = np.random.default_rng(seed)
    population = smoothed.Vertices(sample_distributions(rng, 2, 2))
    sizes, epsilons = rng.integers(1, 6, 2), rng.uniform(0, 1, 2)
    releases = [smoothed.Histogram(smoothed.FixedSize(int(size))) for size in sizes]
    joint = smoothed.compose(
        [smoothed.NamedMechanism(release, index) for index, release in enumerate(releases)]
    )
    deltas = [
        smoothed.smoothed_delta(release, population, 5, epsilon).upper
        for release, epsilon in zip(releases, epsilons, strict=True)
    ]
    assert smoothed.smoothed_delta(joint, population, 5, float(sum(epsilons))).lower <= sum(deltas)


@pytest.mark.parametrize("seed", SEEDS)
def test_proposition_7_only_vertices_matter(seed):
    rng = np.random.default_rng(seed)
    rows = np.array(sample_distributions(rng, 3, 3), dtype=np.float64)
    inside = rng.dirichlet(np.ones(3), size=4) @ rows
    mechanism = smoothed.Histogram(smoothed.FixedSize(3))
    largest = smoothed.smoothed_delta(mechanism, smoothed.Hull([*rows, *inside]), 4, 0.4)
    assert largest.upper == pytest.approx(
        smoothed.smoothed_delta(mechanism, smoothed.Vertices(rows), 4, 0.4).upper, rel=1e-9
    )
    mixed = smoothed.Heterogeneous([(1, row) for row in inside])
    assert smoothed.smoothed_delta(mechanism, mixed, 4, 0.4).lower <= largest.upper


@pytest.mark.parametrize("seed", range(20))
def test_vertices_of_an_interval_are_those_of_its_linear_programs(seed):
    """In every direction a vertex attains the maximum over all distributions of the box."""
    rng = np.random.default_rng(seed)
    n_types = int(rng.integers(2, 6))
    center = rng.dirichlet(np.ones(n_types))
    low = np.maximum(0, center - rng.uniform(0, 0.4, n_types))
    high = np.minimum(1, center + rng.uniform(0, 0.4, n_types))
    vertices = smoothed.Interval(low, high).vertices
    np.testing.assert_allclose(vertices.sum(axis=1), 1)
    box = np.stack([low, high], axis=1)
    for direction in rng.normal(size=(10, n_types)):
        program = linprog(-direction, A_eq=np.ones((1, n_types)), b_eq=[1], bounds=box)
        assert (vertices @ direction).max() == pytest.approx(-program.fun, abs=1e-9)


def test_lemma_10_with_its_sharp_constants():
    rng = np.random.default_rng(0)
    for _ in range(200):
        p, q = sample_distribution(rng, 5), sample_distribution(rng, 5)
        e = Fraction(int(rng.integers(4, 30)), 4)
        losses = [brute.compute_divergence(p, q, e), brute.compute_divergence(q, p, e)]
        gains = [brute.compute_gain(p, q, e), brute.compute_gain(q, p, e)]
        assert sum(gains) == sum(losses)
        assert e / (1 + e) * max(losses) <= max(gains) <= (e + 2) / (e + 1) * max(losses)
        found = compute_listed_divergence(take_logs(p), take_logs(q), math.log(e))
        assert math.exp(found.low) <= float(losses[0]) + 1e-300
        assert math.exp(found.high) >= float(losses[0])
