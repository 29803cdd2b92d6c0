"""Every mechanism and sampler against enumeration with exact fractions, n <= 8, m <= 3."""

import math
from fractions import Fraction

import pytest

from smoothed import brute
from vicinal.smoothed import (
    Average,
    FixedSize,
    Heterogeneous,
    Histogram,
    KNNVotes,
    ListedMechanism,
    Poisson,
    RadiusVotes,
    Vertices,
    WithReplacement,
    adjusted_utility,
    database_delta,
    profile,
    smoothed_delta,
)

BOUNDARIES = [Fraction(1), Fraction(5, 4), Fraction(3), Fraction(100)]
QUARTER = Fraction(1, 4)
SAMPLERS = [
    pytest.param(FixedSize(3), brute.sample_fixed_size(3), id="fixed"),
    pytest.param(Poisson(0.25), brute.sample_poisson(QUARTER), id="poisson"),
    pytest.param(WithReplacement(3), brute.sample_with_replacement(3), id="with replacement"),
]
# Numbers of types and records, and two distributions from which a record may come.
WORLDS = [
    (2, 5, [(Fraction(1, 4), Fraction(3, 4)), (Fraction(3, 5), Fraction(2, 5))]),
    (3, 4, [(2 * QUARTER, QUARTER, QUARTER), tuple(Fraction(k, 10) for k in (1, 6, 3))]),
]


def assert_encloses(found, exact, width=1e-11):
    """The interval contains the exact value, up to the last bit, and is narrow."""
    assert Fraction(found.lower) <= exact <= Fraction(found.upper)
    assert found.upper - found.lower <= width


def assert_equals_enumeration(mechanism, database, enumeration, records):
    """Delta and gain of a database, at every boundary."""
    for e in BOUNDARIES:
        delta = database_delta(mechanism, database, math.log(e))
        assert_encloses(delta, enumeration.compute_delta(records, e))
        gain = adjusted_utility(mechanism, database, float((e - 1) / (e + 1)))
        assert_encloses(gain, enumeration.compute_utility(records, e))


def assert_smoothed_equals_enumeration(mechanism, vertices, n, enumeration, e):
    """Smoothed deltas of all worlds, and of one with a record from another distribution."""
    found = smoothed_delta(mechanism, Vertices(vertices), n, math.log(e))
    assert found.method == "exact"
    assert_encloses(found, enumeration.compute_smoothed_delta(vertices, n, e))
    world = Heterogeneous([(n - 1, vertices[0]), (1, vertices[1])])
    mean = enumeration.compute_mean_delta([vertices[0]] * (n - 1) + [vertices[1]], e)
    assert_encloses(smoothed_delta(mechanism, world, n, math.log(e)), mean)


@pytest.mark.parametrize(("sampler", "samples"), SAMPLERS)
@pytest.mark.parametrize("counts", [(3, 0), (1, 4), (4, 4), (2, 1, 1), (0, 3, 3), (1, 1, 4)])
def test_histograms(sampler, samples, counts):
    n_types = len(counts)
    enumeration = brute.Enumeration(n_types, samples, brute.publish_histogram(n_types))
    assert_equals_enumeration(Histogram(sampler), counts, enumeration, brute.list_records(counts))


@pytest.mark.parametrize("size", range(9))
def test_every_size_of_sample(size):
    enumeration = brute.Enumeration(2, brute.sample_fixed_size(size), brute.publish_histogram(2))
    for counts in brute.list_histograms(8, 2):
        exact = enumeration.compute_delta(brute.list_records(counts), Fraction(3, 2))
        assert_encloses(database_delta(Histogram(FixedSize(size)), counts, math.log(1.5)), exact)


def test_profiles_are_the_deltas_of_all_databases():
    for mechanism in (Histogram(FixedSize(5)), Histogram(Poisson(0.3))):
        columns = profile(mechanism, 7, 0.4)
        for ones in range(8):
            single = database_delta(mechanism, (ones, 7 - ones), 0.4)
            assert columns[:, ones] == pytest.approx([single.log_lower, single.log_upper])


@pytest.mark.parametrize("counts", [(2, 1, 3), (0, 2, 2), (5, 0, 1), (1, 1, 1)])
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("rounding", ["half away", "none"])
def test_averages(counts, size, rounding):
    levels, records = (-3, 0, 2), brute.list_records(counts)

    def publish(sample):
        total = sum(levels[type_index] for type_index in sample)
        if rounding == "none":
            return {total: 1}
        return {math.copysign((2 * abs(total) + size) // (2 * size), total): 1}

    enumeration = brute.Enumeration(3, brute.sample_fixed_size(size), publish)
    assert_equals_enumeration(Average(levels, size, rounding), counts, enumeration, records)


@pytest.mark.parametrize("counts", [(2, 1, 2), (0, 3, 1), (4, 0, 0), (1, 1, 3)])
def test_radius_votes(counts):
    """The last type is outside the radius, and its count is not published."""
    samples, records = brute.sample_poisson(QUARTER), brute.list_records(counts)
    enumeration = brute.Enumeration(3, samples, brute.publish_histogram(2))
    assert_equals_enumeration(RadiusVotes(0.25, 2), counts, enumeration, records)


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("labels", [(0, 1, 0, 1, 1), (1, 1, 1, 1), (0, 0, 1, 2, 0), (2, 1)])
def test_nearest_neighbours(k, labels):
    classes = max(2, *(label + 1 for label in labels))
    enumeration = brute.Enumeration(
        classes,
        brute.sample_poisson(QUARTER),
        lambda sample: {brute.count_types(sample[:k], classes): 1},
        brute.iterate_moves,
    )
    assert_equals_enumeration(KNNVotes(k, 0.25, classes), labels, enumeration, labels)


def test_custom_mechanisms_with_fractions():
    enumeration = brute.Enumeration(2, brute.sample_fixed_size(2), brute.publish_histogram(2))
    listed = ListedMechanism(
        lambda counts: enumeration.get_distribution(brute.list_records(counts)), 2
    )
    found = database_delta(listed, (3, 2), 0.3)
    other = database_delta(Histogram(FixedSize(2)), (3, 2), 0.3)
    assert found.log_upper == pytest.approx(other.log_upper, abs=1e-12)


@pytest.mark.parametrize(("n_types", "n", "vertices"), WORLDS)
@pytest.mark.parametrize(("sampler", "samples"), SAMPLERS)
def test_smoothed_deltas(n_types, n, vertices, sampler, samples):
    enumeration = brute.Enumeration(n_types, samples, brute.publish_histogram(n_types))
    assert_smoothed_equals_enumeration(Histogram(sampler), vertices, n, enumeration, Fraction(3, 2))
