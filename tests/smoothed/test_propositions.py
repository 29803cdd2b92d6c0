"""The theorems of the paper, exactly, on random small instances."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from smoothed import brute
from vicinal.smoothed import (
    Average,
    FixedSize,
    Heterogeneous,
    Histogram,
    Hull,
    ListedMechanism,
    NamedMechanism,
    Poisson,
    RadiusVotes,
    Vertices,
    WithReplacement,
    compose,
    database_delta,
    smoothed_delta,
    worst_case_delta,
)  # fmt: skip
from vicinal.smoothed._mechanism import law_excess

SEEDS = range(12)
NARROW = 1e-12


def random_law(rng, outcomes):
    weights = [Fraction(int(w)) for w in rng.integers(0, 12, outcomes)]
    weights[0] += 1
    return {i: w / sum(weights) for i, w in enumerate(weights)}


def random_rows(rng, rows, types):
    weights = rng.integers(1, 9, (rows, types)).astype(object)
    return [[Fraction(int(w), int(row.sum())) for w in row] for row in weights]


def logs(law):
    return {o: math.log(p) if p else -math.inf for o, p in law.items()}


@pytest.mark.parametrize("n", [1, 2, 5, 7])
@pytest.mark.parametrize("sampler", [FixedSize(1), Poisson(0.4), WithReplacement(3)])
@pytest.mark.parametrize("epsilon", [0.0, 0.7, 20.0])
def test_theorem_1_the_worst_database_is_the_worst_case(n, sampler, epsilon):
    mechanism = Histogram(sampler)
    worst = max(
        database_delta(mechanism, (a, b, n - a - b), epsilon).upper
        for a in range(n + 1)
        for b in range(n + 1 - a)
    )
    assert worst == pytest.approx(worst_case_delta(mechanism, n, epsilon).value, rel=1e-11)


@pytest.mark.parametrize("mechanism", [Average(range(3), 3), RadiusVotes(0.3, 2)])
def test_no_database_is_above_the_worst_case(mechanism):
    worst = worst_case_delta(mechanism, 5, 0.2).upper
    for a, b in itertools.product(range(4), range(2)):
        assert database_delta(mechanism, (a, b, 5 - a - b), 0.2).lower <= worst


@pytest.mark.parametrize("seed", SEEDS)
def test_proposition_4_post_processing(seed):
    rng = np.random.default_rng(seed)
    merged = {o: int(rng.integers(0, 3)) for o in itertools.product(range(5), repeat=3)}

    def coarser(counts):
        law: dict[int, float] = {}
        for outcome, log_p in FixedSize(4).outcomes(np.array(counts)):
            law[merged[outcome]] = law.get(merged[outcome], 0.0) + math.exp(log_p)
        return law

    counts = rng.multinomial(6, [0.3, 0.3, 0.4])
    fine = database_delta(Histogram(FixedSize(4)), counts, 0.3)
    assert database_delta(ListedMechanism(coarser, 3), counts, 0.3).lower <= fine.upper + NARROW


@pytest.mark.parametrize("seed", SEEDS)
def test_proposition_5_composition_of_independent_releases(seed):
    rng = np.random.default_rng(seed)
    population = Vertices(random_rows(rng, 2, 2))
    sizes, epsilons = rng.integers(1, 6, 2), rng.uniform(0, 1, 2)
    releases = [Histogram(FixedSize(int(size))) for size in sizes]
    joint = compose([NamedMechanism(release, place) for place, release in enumerate(releases)])
    parts = [
        smoothed_delta(release, population, 5, epsilon).upper
        for release, epsilon in zip(releases, epsilons, strict=True)
    ]
    assert smoothed_delta(joint, population, 5, float(sum(epsilons))).lower <= sum(parts)


@pytest.mark.parametrize("seed", SEEDS)
def test_proposition_6_a_function_of_every_record(seed):
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, 2, 3)

    def coarser(counts):
        merged = np.array([counts[0], counts[1] + counts[2]])
        return {o: math.exp(log_p) for o, log_p in FixedSize(3).outcomes(merged)}

    whole = smoothed_delta(ListedMechanism(coarser, 3), Vertices(rows), 5, 0.4)
    image = Vertices([[row[0], row[1] + row[2]] for row in rows])
    assert whole.lower <= smoothed_delta(Histogram(FixedSize(3)), image, 5, 0.4).upper + NARROW


@pytest.mark.parametrize("seed", SEEDS)
def test_proposition_7_only_vertices_matter(seed):
    rng = np.random.default_rng(seed)
    rows = np.array(random_rows(rng, 3, 3), dtype=np.float64)
    inside = rng.dirichlet(np.ones(3), size=4) @ rows
    mechanism = Histogram(FixedSize(3))
    largest = smoothed_delta(mechanism, Hull([*rows, *inside]), 4, 0.4)
    assert largest.upper == pytest.approx(
        smoothed_delta(mechanism, Vertices(rows), 4, 0.4).upper, rel=1e-9
    )
    mixed = Heterogeneous([(1, row) for row in inside])
    assert smoothed_delta(mechanism, mixed, 4, 0.4).lower <= largest.upper


@pytest.mark.parametrize("seed", range(6))
def test_proposition_9_distributional_privacy(seed):
    """Given x_i = X, the simulator that draws x_i anew is as close as the smoothed delta says."""
    rng = np.random.default_rng(seed)
    n, e, samples, publish = 3, Fraction(3, 2), brute.fixed(2), brute.histogram(2)
    rows = random_rows(rng, n, 2)
    groups = Heterogeneous([(1, row) for row in rows])
    delta = smoothed_delta(Histogram(FixedSize(2)), groups, n, math.log(e)).upper

    def law_given(place, fixed_to):
        """Law of the outcome when one record is fixed, or drawn anew if `fixed_to` is None."""
        found: dict[object, Fraction] = {}
        choices = [
            [(t, p) for t, p in enumerate(row)]
            if r != place or fixed_to is None
            else [(fixed_to, Fraction(1))]
            for r, row in enumerate(rows)
        ]
        for world in itertools.product(*choices):
            chance = math.prod((p for _, p in world), start=Fraction(1))
            for outcome, p in brute.law([t for t, _ in world], samples, publish).items():
                found[outcome] = found.get(outcome, Fraction(0)) + chance * p
        return found

    for place, kind in itertools.product(range(n), range(2)):
        real, simulated = law_given(place, kind), law_given(place, None)
        assert brute.excess(real, simulated, e) <= Fraction(delta)
        assert brute.excess(simulated, real, e) <= Fraction(delta)


@pytest.mark.parametrize("seed", range(200))
def test_lemma_10_with_its_sharp_constants(seed):
    rng = np.random.default_rng(seed)
    p, q = random_law(rng, 5), random_law(rng, 5)
    e = Fraction(int(rng.integers(4, 30)), 4)
    losses = [brute.excess(p, q, e), brute.excess(q, p, e)]
    gains = [brute.gain(p, q, e), brute.gain(q, p, e)]
    assert sum(gains) == sum(losses)
    assert e / (1 + e) * max(losses) <= max(gains) <= (e + 2) / (e + 1) * max(losses)
    found = law_excess(logs(p), logs(q), math.log(e))
    assert math.exp(found.low) <= float(losses[0]) + 1e-300
    assert math.exp(found.high) >= float(losses[0])


def test_the_gain_alone_may_vanish_while_the_loss_does_not():
    """Why the lower constant of Lemma 10 needs the larger of both gains."""
    p, q, e = {0: Fraction(1)}, {0: Fraction(1, 2), 1: Fraction(1, 2)}, Fraction(3)
    assert brute.gain(p, q, e) == 0
    assert brute.excess(q, p, e) == Fraction(1, 2)
