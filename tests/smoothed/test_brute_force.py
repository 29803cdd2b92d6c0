"""Every mechanism and sampler against enumeration with exact fractions, n <= 8, m <= 3."""

import itertools
import math
from fractions import Fraction
from functools import cache

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


def assert_encloses(found, exact, width=1e-11):
    """The interval contains the exact value, up to the last bit, and is narrow."""
    assert Fraction(found.lower) <= exact <= Fraction(found.upper)
    assert found.upper - found.lower <= width


def epsilon_of(e):
    return math.log(e)


@pytest.mark.parametrize(("sampler", "samples"), SAMPLERS)
@pytest.mark.parametrize("counts", [(3, 0), (1, 4), (4, 4), (2, 1, 1), (0, 3, 3), (1, 1, 4)])
def test_histograms(sampler, samples, counts):
    records, publish = brute.list_records(counts), brute.make_histogram_publisher(len(counts))
    for e in BOUNDARIES:
        exact = brute.compute_delta(records, len(counts), samples, publish, e)
        assert_encloses(database_delta(Histogram(sampler), counts, epsilon_of(e)), exact)
        gain = brute.compute_utility(records, len(counts), samples, publish, e)
        t = float((e - 1) / (e + 1))
        assert_encloses(adjusted_utility(Histogram(sampler), counts, t), gain)


@pytest.mark.parametrize("size", range(9))
def test_every_size_of_sample(size):
    samples, publish = brute.sample_fixed_size(size), brute.make_histogram_publisher(2)
    for ones in range(9):
        exact = brute.compute_delta(
            brute.list_records((ones, 8 - ones)), 2, samples, publish, Fraction(3, 2)
        )
        found = database_delta(Histogram(FixedSize(size)), (ones, 8 - ones), math.log(1.5))
        assert_encloses(found, exact)


def test_profiles_are_the_deltas_of_all_databases():
    for mechanism in (Histogram(FixedSize(5)), Histogram(Poisson(0.3))):
        columns = profile(mechanism, 7, 0.4)
        for ones in range(8):
            single = database_delta(mechanism, (ones, 7 - ones), 0.4)
            assert columns[:, ones] == pytest.approx([single.log_lower, single.log_upper])


def make_rounded_mean(levels, size):
    def publish(sample):
        total = sum(levels[type_index] for type_index in sample)
        whole = (2 * abs(total) + size) // (2 * size)
        return whole if total >= 0 else -whole

    return publish


@pytest.mark.parametrize("counts", [(2, 1, 3), (0, 2, 2), (5, 0, 1), (1, 1, 1)])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_averages(counts, size):
    levels, records = (-3, 0, 2), brute.list_records(counts)
    samples = brute.sample_fixed_size(size)
    publishers = {
        "half away": make_rounded_mean(levels, size),
        "none": lambda sample: sum(levels[type_index] for type_index in sample),
    }
    for (rounding, publish), e in itertools.product(publishers.items(), BOUNDARIES):
        mechanism = Average(levels, size, rounding)
        exact = brute.compute_delta(records, 3, samples, publish, e)
        assert_encloses(database_delta(mechanism, counts, epsilon_of(e)), exact)
        gain = brute.compute_utility(records, 3, samples, publish, e)
        assert_encloses(adjusted_utility(mechanism, counts, float((e - 1) / (e + 1))), gain)


@pytest.mark.parametrize("counts", [(2, 1, 2), (0, 3, 1), (4, 0, 0), (1, 1, 3)])
def test_radius_votes(counts):
    records, samples = brute.list_records(counts), brute.sample_poisson(QUARTER)
    inside = brute.make_histogram_publisher(2)
    for e in BOUNDARIES:
        mechanism = RadiusVotes(0.25, 2)
        exact = brute.compute_delta(records, 3, samples, inside, e)
        assert_encloses(database_delta(mechanism, counts, epsilon_of(e)), exact)
        gain = brute.compute_utility(records, 3, samples, inside, e)
        assert_encloses(adjusted_utility(mechanism, counts, float((e - 1) / (e + 1))), gain)


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("labels", [[0, 1, 0, 1, 1], [1, 1, 1, 1], [0, 0, 1, 2, 0], [2, 1]])
def test_nearest_neighbours(k, labels):
    classes = max(2, *(label + 1 for label in labels))
    publish_histogram = brute.make_histogram_publisher(classes)
    for e in BOUNDARIES:
        arguments = (
            labels,
            classes,
            brute.sample_poisson(QUARTER),
            lambda s: publish_histogram(s[:k]),
            e,
        )
        mechanism = KNNVotes(k, 0.25, classes)
        exact = brute.compute_delta(*arguments, brute.iterate_moves)
        assert_encloses(database_delta(mechanism, labels, epsilon_of(e)), exact)
        gain = brute.compute_utility(*arguments, brute.iterate_moves)
        assert_encloses(adjusted_utility(mechanism, labels, float((e - 1) / (e + 1))), gain)


def test_custom_mechanisms_with_fractions():
    publish = brute.make_histogram_publisher(2)

    def law_of(counts):
        return brute.compute_distribution(
            brute.list_records(counts), brute.sample_fixed_size(2), publish
        )

    found = database_delta(ListedMechanism(law_of, 2), (3, 2), 0.3)
    other = database_delta(Histogram(FixedSize(2)), (3, 2), 0.3)
    assert found.log_upper == pytest.approx(other.log_upper, abs=1e-12)


WORLDS = [
    (2, 6, [(Fraction(1, 4), Fraction(3, 4)), (Fraction(2, 5), Fraction(3, 5))]),
    (3, 4, [(2 * QUARTER, QUARTER, QUARTER), tuple(Fraction(k, 10) for k in (1, 6, 3))]),
]


@pytest.mark.parametrize(("types", "n", "vertices"), WORLDS)
@pytest.mark.parametrize(("sampler", "samples"), SAMPLERS)
def test_smoothed_deltas(types, n, vertices, sampler, samples):
    publish, e = brute.make_histogram_publisher(types), Fraction(3, 2)

    @cache
    def as_delta(records):
        return brute.compute_delta(list(records), types, samples, publish, e)

    def sorted_delta(records):
        return as_delta(tuple(sorted(records)))

    found = smoothed_delta(Histogram(sampler), Vertices(vertices), n, epsilon_of(e))
    assert_encloses(found, brute.compute_smoothed_delta(sorted_delta, vertices, n))
    assert found.method == "exact"
    groups = [(n - 1, vertices[0]), (1, vertices[1])]
    single = smoothed_delta(Histogram(sampler), Heterogeneous(groups), n, epsilon_of(e))
    rows = [vertices[0]] * (n - 1) + [vertices[1]]
    assert_encloses(single, brute.compute_mean(sorted_delta, rows))
