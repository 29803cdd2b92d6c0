"""Noisy screening: never below the truth, and close to it, from single answers to batches."""

import itertools
import math
from functools import cache

import numpy as np
import pytest
from mpmath import mp, mpf

from loss_tools import pld_delta
from vicinal.accounting import screening as _screening
from vicinal.accounting._divergence import compute_log_tangent_gap
from vicinal.accounting.composition import Composition, compose
from vicinal.accounting.gaussian import SubsampledGaussian
from vicinal.accounting.screening import Screening, ScreeningBatchPair
from vicinal.errors import InvalidInput

ORDERS = np.array([1.001, 1.5, 2.0, 7.7, 32.0, 300.0, 1e4])
RNG = np.random.default_rng(3)

TINY = [
    Screening(
        int(RNG.integers(1, 7)),
        float(RNG.uniform(-1, 8)),
        float(math.exp(RNG.uniform(math.log(0.5), math.log(50)))),
        float(RNG.choice([1.0, 0.9, 0.3, 1e-3])),
    )
    for _ in range(60)
]


@pytest.fixture(autouse=True)
def fifty_digits():
    with mp.workdps(50):
        yield


def compute_answer_probabilities(screening, votes, sign):
    """Return (q, r), the chances to pass with `votes`, and if a sampled subject adds `sign`."""
    threshold, gamma = mpf(screening.threshold), mpf(screening.gamma)
    q, p = (mp.ncdf((t - threshold) / mpf(screening.sigma)) for t in (votes, votes + sign))
    return q, (1 - gamma) * q + gamma * p


@cache
def list_answer_probabilities(screening):
    """Return (q, r) for every number of votes and sign, by enumeration."""
    steps = [(t, 1) for t in range(screening.k)] + [(t + 1, -1) for t in range(screening.k)]
    return [compute_answer_probabilities(screening, *step) for step in steps]


def compute_renyi(p, q, alpha):
    alpha = mpf(alpha)
    total = p**alpha * q ** (1 - alpha) + (1 - p) ** alpha * (1 - q) ** (1 - alpha)
    return mp.log(total) / (alpha - 1)


def hockey_stick(p, q, x):
    return max(mpf(0), p - x * q) + max(mpf(0), (1 - p) - x * (1 - q))


@pytest.mark.parametrize("screening", TINY, ids=str)
def test_rdp_in_each_direction_is_never_below_enumeration_and_close(screening):
    pairs = list_answer_probabilities(screening)
    forward, backward = screening.compute_rdp_by_direction(ORDERS)
    for index, alpha in enumerate(ORDERS):
        for ours, truth in (
            (forward[index], max(compute_renyi(r, q, alpha) for q, r in pairs)),
            (backward[index], max(compute_renyi(q, r, alpha) for q, r in pairs)),
        ):
            assert mpf(ours) >= truth
            # One part in 10^6 of the sum inside the logarithm, over alpha - 1.
            assert mpf(ours) <= truth * (1 + mpf("2e-6")) + mpf("2e-6") / (alpha - 1) * -mp.expm1(
                (1 - alpha) * truth
            )


@pytest.mark.parametrize("screening", TINY[:30], ids=str)
def test_pair_is_the_largest_hockey_stick(screening):
    losses = np.concatenate([[-3.0, -0.4, -1e-3, 0.0, 1e-9, 1e-3, 0.02, 0.3, 2.0]])
    ours = screening.build_dominating_pair().compute_excess(losses)
    for loss, value in zip(losses, ours, strict=True):
        x = mp.exp(mpf(loss))
        trivial = max(mpf(0), 1 - x)
        truth = (
            max(hockey_stick(r, q, x) for q, r in list_answer_probabilities(screening)) - trivial
        )
        assert mpf(value) == pytest.approx(truth, rel=1e-9, abs=1e-40)


@pytest.mark.parametrize("k", [1, 5, 70, 300, 2000])
@pytest.mark.parametrize(("sigma", "gamma"), [(0.5, 1.0), (3.0, 0.2), (85.0, 0.25), (1e6, 0.5)])
def test_branch_and_bound_finds_the_maximum_over_all_votes(k, sigma, gamma):
    screening = Screening(k, 0.7 * k, sigma, gamma)
    index = np.arange(k)
    every = np.concatenate([screening.compute_margin(index, np.full(k, side)) for side in (0, 1)])
    log_q, log_miss, up, down = screening.compute_answers(every)
    for alpha in (1.5, 20.0):
        gains = [
            np.logaddexp(
                log_q + compute_log_tangent_gap(power, up),
                log_miss + compute_log_tangent_gap(power, down),
            ).max()
            for power in (np.float64(alpha), np.float64(1 - alpha))
        ]
        best = float(np.logaddexp(0, max(gains))) / (alpha - 1)
        value = float(screening.rdp(np.array([alpha]))[0])
        assert best * (1 - 1e-9) <= value <= best * (1 + 3e-6)


@pytest.mark.parametrize("sigma", [0.5, 10.0, 1e3, 1e6])
def test_many_votes_are_stable(sigma):
    screening = Screening(100_000, 60_000, sigma, 0.3)
    values = screening.rdp(ORDERS)
    assert np.isfinite(values).all()
    assert (np.diff(values) >= 0).all()
    unsplit = SubsampledGaussian(sigma, 0.3).rdp(ORDERS)
    assert (values <= unsplit * (1 + 1e-9)).all(), "a threshold cannot cost more than its Gaussian"
    votes, sign = screening.find_worst_votes(8.0)
    q, r = compute_answer_probabilities(screening, votes, sign)
    truth = max(compute_renyi(r, q, 8.0), compute_renyi(q, r, 8.0))
    assert mpf(screening.rdp(np.array([8.0]))[0]) == pytest.approx(truth, rel=3e-6)


def compute_adaptive_divergence(answers, x):
    """Return the hockey-stick divergence of answers made in this order, each chosen anew, exactly.

    `answers`: for each one the pairs (q, r) of its probabilities to choose from. `x`: exp(epsilon).
    """
    if not answers:
        return max(0, 1 - x)
    return max(
        r * compute_adaptive_divergence(answers[1:], x * q / r)
        + (1 - r) * compute_adaptive_divergence(answers[1:], x * (1 - q) / (1 - r))
        for q, r in answers[0]
    )


@pytest.mark.parametrize(
    "screening",
    [Screening(2, 1.0, 1.5), Screening(2, 1.3, 2.0, 0.4), Screening(3, 2.0, 8.0, 0.2)],
    ids=str,
)
@pytest.mark.parametrize("answers", [1, 2, 3])
def test_a_batch_dominates_every_adaptive_choice(screening, answers):
    pair = ScreeningBatchPair(screening, answers)
    scale = screening.gamma / screening.sigma
    choices = list_answer_probabilities(screening)
    for loss in (-2 * scale, -0.3 * scale, 0.0, 0.2 * scale, 1.1 * scale, 2.5 * scale):
        x = mp.exp(mpf(loss))
        truth = compute_adaptive_divergence([choices] * answers, x) - max(mpf(0), 1 - x)
        value = mpf(pair.compute_excess(np.array([loss]))[0])
        assert value >= truth * (1 - mpf("1e-12")) - mpf("1e-45")
        assert value <= truth + mpf(0.01 * scale)


def test_the_hull_of_a_block_dominates_each_of_its_votes():
    screening = Screening(400, 200, 12.0, 0.3)
    positions = _screening._list_margins(screening)
    losses = np.linspace(-0.3, 0.3, 61)
    for low, high in itertools.pairwise(range(0, len(positions), 37)):
        hull = _screening._build_cover(screening, positions[low], positions[high])
        bound = _screening._compute_cover_excess(hull, losses)
        for index in range(low, high + 1, 5):
            single = _screening._build_cover(screening, positions[index], positions[index])
            assert (_screening._compute_cover_excess(single, losses) <= bound + 1e-15).all()


@pytest.mark.parametrize(
    ("k", "threshold", "sigma", "gamma"),
    [(60, 30.5, 0.5, 1.0), (60, 30.5, 0.5, 0.1), (5, 40.0, 1.0, 0.4), (5, -40.0, 1.0, 1.0),
     (400, 200.0, 2.0, 0.2), (3000, 100.0, 30.0, 0.6), (300, 210.0, 85.0, 0.25)],
)  # fmt: skip
def test_a_batch_of_one_dominates_the_pair_of_one_answer(k, threshold, sigma, gamma):
    screening = Screening(k, threshold, sigma, gamma)
    losses = np.concatenate([-np.geomspace(1e-4, 3, 40), [0], np.geomspace(1e-4, 9, 60)])
    single = screening.build_dominating_pair().compute_excess(losses)
    batch = ScreeningBatchPair(screening, 1).compute_excess(losses)
    assert (batch >= single * (1 - 1e-12) - 1e-300).all()
    # And it is no looser than the hulls and the grid make it.
    assert (batch <= single * 1.1 + 0.01 * gamma / max(sigma, 1) + 1e-12).all()


def test_a_batch_beside_a_faint_release_keeps_its_mass():
    # The far end of the batch's grid, where its profile is all rounding, must not be used.
    cost = Composition.from_release(Screening(367, 112.873, 7.448, 0.6138), 1584)
    combined = cost.add(Composition.from_release(SubsampledGaussian(145.4, 0.0081), 1776))
    # Two grids, each above the truth by some parts in 10^5.
    assert combined.to_epsilon(1e-5, "pld") == pytest.approx(cost.to_epsilon(1e-5, "pld"), rel=1e-3)


INTERLEAVED = [
    (Screening(2, 1.2, 1.5), Screening(1, 0.4, 2.0, 0.3)),
    (Screening(3, 2.6, 2.5, 0.4), Screening(2, 0.3, 1.2)),
    (Screening(1, 0.9, 0.9), Screening(3, 0.2, 3.0)),
]


@pytest.mark.parametrize(("first", "second"), INTERLEAVED, ids=str)
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 0.9, 1.6])
def test_two_adaptive_batches_may_be_interleaved(first, second, epsilon):
    a, b = (
        [(float(q), float(r)) for q, r in list_answer_probabilities(screening)]
        for screening in (first, second)
    )
    bound = pld_delta(
        [(ScreeningBatchPair(first, 2), 1), (ScreeningBatchPair(second, 2), 1)], epsilon
    )
    for order in ([a, b, a, b], [a, b, b, a], [b, a, a, b], [b, a, b, a], [a, a, b, b]):
        assert compute_adaptive_divergence(order, math.exp(epsilon)) <= bound * (1 + 1e-9)


def test_every_screening_of_a_plan_is_batched():
    unsplit = Composition.from_release(Screening(300, 210, 85.0, 0.25), 2000)
    first_half = Composition.from_release(Screening(300, 210, 85.0, 0.25), 1000)
    second_half = Composition.from_release(Screening(300, 210.5, 85.0, 0.25), 1000)
    split = compose([first_half, second_half])
    assert split.to_epsilon(1e-5, "pld") == pytest.approx(
        unsplit.to_epsilon(1e-5, "pld"), rel=0.005
    )


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        *(("sigma", bad) for bad in (0, math.nan, -1, math.inf, "3", None)),
        *(("gamma", bad) for bad in (0, math.nan, 1.1, True)),
    ],
)
def test_invalid_noise_and_sampling_of_a_gaussian_are_refused_by_name(name, bad):
    with pytest.raises(InvalidInput, match=f"'{name}'"):
        SubsampledGaussian(**{"sigma": 2.0, "gamma": 0.5, name: bad})
