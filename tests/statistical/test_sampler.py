"""Noise and coins against their exact laws, and the grid's slack against exact sums.

Every check is also run on a sampler that is wrong on purpose, and must notice.
"""

from __future__ import annotations

from functools import partial

import mpmath
import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import binomtest, chi2, norm

from statistical.power import (
    COINS,
    LAW_DRAWS,
    LEAST_EXPECTED,
    P_VALUE,
    SPREAD_DRAWS,
)
from vicinal.accounting.gaussian import grid_excess, grid_slack
from vicinal.errors import InvalidInput
from vicinal.noise import NoiseSource, SimulatedNoise, SystemNoise, coins
from vicinal.noise.source import MAX_SCALE

pytestmark = pytest.mark.statistical

FINE = 1 << 22
LAGS = (1, 2, 10)


# ---------------------------------------------------------------- the law of the noise


def integer_law(scale):
    """Return cells of single integers, tails merged: (upper ends, probabilities)."""
    x = np.arange(-40 * scale, 40 * scale + 1)
    law = np.exp(-(x**2) / (2.0 * scale**2))
    law /= law.sum()
    inside = law * LAW_DRAWS >= LEAST_EXPECTED
    ends = x[inside]
    return ends[:-1], cell_probabilities(ends[:-1], lambda end: law[x <= end].sum())


def quantile_law(scale, cells=64):
    """Return `cells` cells of about equal probability at a large scale.

    By Euler and Maclaurin, P(X <= e) is Phi((e + 1/2) / scale) up to scale^-2.
    """
    ends = np.round(scale * ndtri(np.arange(1, cells) / cells)).astype(np.int64)
    return ends, cell_probabilities(ends, lambda end: float(ndtr((end + 0.5) / scale)))


def cell_probabilities(ends, cumulative):
    below = np.array([0.0, *(cumulative(end) for end in ends), 1.0])
    return np.diff(below)


def cells_p(draws, law):
    """Return the p-value of Pearson's chi-square over the cells of `law`."""
    ends, probabilities = law
    found = np.bincount(np.searchsorted(ends, draws), minlength=len(probabilities))
    expected = probabilities * len(draws)
    assert expected.min() >= LEAST_EXPECTED / 2
    return float(chi2.sf(((found - expected) ** 2 / expected).sum(), len(expected) - 1))


def moments_p(draws, scale):
    """Return the smaller p-value of the first two moments.

    The law's are 0 and scale^2, up to a share of 80 exp(-2 pi^2 scale^2) < 3e-7 of the latter.
    """
    unit = draws / scale
    centre = unit.mean() * np.sqrt(len(unit))
    spread = (np.square(unit).mean() - 1) * np.sqrt(len(unit) / 2)
    return min(two_sided(centre), two_sided(spread))


def two_sided(z):
    return float(2 * norm.sf(abs(z)))


def low_bits_p(draws):
    """Return the p-value of a uniform lowest byte, as at any scale far above 256."""
    found = np.bincount(draws & 255, minlength=256)
    expected = len(draws) / 256
    return float(chi2.sf(((found - expected) ** 2 / expected).sum(), 255))


def law_p(source, scale, size):
    """Return the smallest p-value of all checks of one scale, after checking the type."""
    draws = source.discrete_gaussian(scale, size)
    assert draws.dtype == np.int64, "draws live on the integer grid"
    assert draws.shape == (size,)
    if scale < 100:
        return min(cells_p(draws, integer_law(scale)), moments_p(draws, scale))
    return min(cells_p(draws, quantile_law(scale)), moments_p(draws, scale), low_bits_p(draws))


class Wrong(NoiseSource):
    """A source made wrong on purpose; seeded, so that it is caught every time."""

    exact = False

    def __init__(self, law):
        self._law = law
        self._generator = np.random.default_rng(20)

    def discrete_gaussian(self, scale, size):
        return np.rint(self._law(self._generator, scale, size)).astype(np.int64)


def rounded_normal(rng, scale, size):
    return rng.standard_normal(size) * scale


def scale_off_by_2_percent(rng, scale, size):
    return rng.standard_normal(size) * scale * 0.98


def coarse(rng, scale, size):
    return np.rint(rng.standard_normal(size) * scale / 16) * 16


def shifted_by_a_fiftieth(rng, scale, size):
    return rng.standard_normal(size) * scale + scale / 50


@pytest.mark.parametrize("scale", [1, 2, 3, 7, FINE, MAX_SCALE])
def test_noise_follows_the_exact_law(scale):
    """Fails if probabilities, spread or lowest bits are not those of the discrete Gaussian."""
    assert law_p(SystemNoise(), scale, LAW_DRAWS) > P_VALUE


@pytest.mark.slow
@pytest.mark.parametrize("scale", [7, FINE])
def test_the_scale_is_right_to_2_percent(scale):
    """Fails if the noise is 2 % too small (or large): the charges would not pay for it."""
    assert law_p(SystemNoise(), scale, SPREAD_DRAWS) > P_VALUE


@pytest.mark.parametrize(
    ("law", "scale", "size"),
    [
        pytest.param(rounded_normal, 1, LAW_DRAWS, id="rounded normal at scale 1"),
        pytest.param(scale_off_by_2_percent, 7, SPREAD_DRAWS, id="scale off by 2 % at 7"),
        pytest.param(scale_off_by_2_percent, FINE, SPREAD_DRAWS, id="scale off by 2 %"),
        pytest.param(coarse, FINE, LAW_DRAWS, id="a grid 16 times too coarse"),
        pytest.param(shifted_by_a_fiftieth, FINE, SPREAD_DRAWS, id="off centre"),
    ],
)
def test_a_wrong_law_is_caught(law, scale, size):
    """Fails if the checks above are too weak to notice these."""
    assert law_p(Wrong(law), scale, size) < P_VALUE


def test_simulated_noise_passes_at_the_scales_in_use():
    """Fails if experiments in simulation mode see other noise than the real one."""
    assert law_p(SimulatedNoise(1), FINE, SPREAD_DRAWS) > P_VALUE


# ---------------------------------------------------------------- independence


def dependence_p(source, size):
    """Return the smallest p-value of correlations: neighbours, and the same place in two calls.

    Values and their squares; under independence every mean of products is normal, 0 on average.
    """
    first, second = (source.discrete_gaussian(FINE, size) / FINE for _ in range(2))
    pairs = [(first[:-lag], first[lag:]) for lag in LAGS] + [(first, second)]
    found = []
    for a, b in pairs:
        found.append(two_sided((a * b).mean() * np.sqrt(len(a))))
        found.append(two_sided(((a**2 - 1) * (b**2 - 1)).mean() / 2 * np.sqrt(len(a))))
    return min(found)


def coincidence_p(source, size):
    """Return the p-value of equal draws at any distance, within and between two calls.

    At scale 2^40 two of `size` independent draws agree with probability 1/(2 sqrt(pi) 2^40) a
    pair, so hardly ever; whatever repeats a stretch of noise agrees thousands of times.
    """
    draws = np.concatenate([source.discrete_gaussian(MAX_SCALE, size // 2) for _ in range(2)])
    agreeing = len(draws) - len(np.unique(draws))
    pairs = len(draws) * (len(draws) - 1) / 2
    expected = pairs / (2 * np.sqrt(np.pi) * MAX_SCALE)
    return 1.0 if agreeing == 0 else float(expected**agreeing)


def each_twice(rng, scale, size):
    return np.repeat(rng.standard_normal(size) * scale, 2)[:size]


def in_stretches(rng, scale, size):
    return np.tile(rng.standard_normal(size // 7 + 1) * scale, 7)[:size]


def anew_every_call(_, scale, size):
    return np.random.default_rng(3).standard_normal(size) * scale


def shared_spread(rng, scale, size):
    """Uncorrelated, with the right law on average over calls, but neighbours share a size."""
    factors = np.repeat(rng.choice([0.5, np.sqrt(1.75)], size=size // 2 + 1), 2)[:size]
    return rng.standard_normal(size) * scale * factors


def test_draws_are_independent():
    """Fails if draws repeat or are correlated, inside a call or from call to call."""
    assert dependence_p(SystemNoise(), LAW_DRAWS) > P_VALUE
    assert coincidence_p(SystemNoise(), LAW_DRAWS) > P_VALUE


@pytest.mark.parametrize("law", [each_twice, anew_every_call, shared_spread])
def test_dependent_draws_are_caught(law):
    """Fails if the correlations are too weak a check."""
    assert dependence_p(Wrong(law), LAW_DRAWS) < P_VALUE


@pytest.mark.parametrize("law", [each_twice, in_stretches, anew_every_call])
def test_repeated_draws_are_caught(law):
    """Fails if noise that comes again, at whatever distance, would pass."""
    assert coincidence_p(Wrong(law), LAW_DRAWS) < P_VALUE


def test_simulated_noise_repeats_and_is_marked():
    """Fails if a seed does not fix the noise, or if such noise passed for the real one."""
    first, again, other = (SimulatedNoise(s).discrete_gaussian(FINE, 50) for s in (4, 4, 5))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert first.dtype == np.int64
    assert SimulatedNoise(4).exact is False
    assert SystemNoise().exact is True


@pytest.mark.parametrize("source", [SystemNoise(), SimulatedNoise(1)], ids=["system", "simulated"])
@pytest.mark.parametrize("scale", [0, -1, 0.5, 1e7, MAX_SCALE + 1, float("nan"), True])
def test_only_whole_scales_in_range_are_drawn_from(source, scale):
    """Fails if a scale is silently rounded, or large enough to overflow."""
    with pytest.raises(InvalidInput, match="scale"):
        source.discrete_gaussian(scale, 1)


# ---------------------------------------------------------------- coins


def frequency_p(toss, probability, size):
    """Return the p-value of the number of true coins."""
    return float(binomtest(int(toss(probability, size).sum()), size, probability).pvalue)


def coin_dependence_p(toss, probability, size):
    """Return the smallest p-value of correlations of neighbouring coins and of two calls."""
    deviation = np.sqrt(probability * (1 - probability))
    first, second = ((toss(probability, size) - probability) / deviation for _ in range(2))
    pairs = [(first[:-lag], first[lag:]) for lag in LAGS] + [(first, second)]
    return min(two_sided((a * b).mean() * np.sqrt(len(a))) for a, b in pairs)


def dispersion_p(toss, probability, size, calls=500):
    """Return the p-value of the spread of counts over calls: a fixed-size draw has none."""
    counts = np.array([toss(probability, size).sum() for _ in range(calls)])
    index = np.square(counts - size * probability).sum() / (size * probability * (1 - probability))
    return float(2 * min(chi2.cdf(index, calls), chi2.sf(index, calls)))


def wrong_coins(kind):
    rng = np.random.default_rng(8)

    def toss(probability, size):
        if kind == "5 % too many":
            return rng.random(size) < probability * 1.05
        if kind == "each twice":
            return np.repeat(rng.random(size) < probability, 2)[:size]
        if kind == "same stream in every call":
            return np.random.default_rng(1).random(size) < probability
        return rng.permutation(size) < round(probability * size)  # a fixed-size draw

    return toss


@pytest.mark.parametrize("probability", [1e-9, 1e-6, 0.001, 0.03, 0.5, 0.9, 1 - 1e-6])
def test_coins_have_their_probability(probability):
    """Fails if amplification by sampling is claimed for another probability than is tossed."""
    assert frequency_p(coins, probability, COINS) > P_VALUE


def test_certain_coins():
    """Fails if probability 0 ever comes up or 1 ever does not; 2^-65 is below the resolution."""
    assert not coins(0.0, COINS).any()
    assert not coins(2.0**-65, COINS).any()
    assert coins(1.0, COINS).all()
    assert coins(0.5, 0).shape == (0,)
    assert coins(0.5, 3).dtype == np.bool_


def test_coins_are_independent():
    """Fails if coins depend on their neighbours, on the last call, or on a fixed total."""
    for probability in (0.03, 0.5):
        assert coin_dependence_p(coins, probability, COINS) > P_VALUE
        assert dispersion_p(coins, probability, 1000) > P_VALUE


@pytest.mark.parametrize(
    ("check", "kind"),
    [
        (partial(frequency_p, size=COINS), "5 % too many"),
        (partial(coin_dependence_p, size=COINS), "each twice"),
        (partial(coin_dependence_p, size=COINS), "same stream in every call"),
        (partial(dispersion_p, size=1000), "fixed size"),
    ],
    ids=["5 % too many", "each twice", "same stream in every call", "fixed size"],
)
def test_wrong_coins_are_caught(check, kind):
    """Fails if the checks of coins are too weak."""
    assert check(wrong_coins(kind), 0.03) < P_VALUE


@pytest.mark.parametrize("probability", [-0.1, 1.1, float("nan"), "0.5", True])
def test_coins_refuse_what_is_no_probability(probability):
    """Fails if a bad probability becomes a threshold that wraps around."""
    with pytest.raises(InvalidInput, match="probability"):
        coins(probability, 3)


# ---------------------------------------------------------------- the slack of the grid

SMALL_SCALES = (1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
EPSILONS = np.linspace(-12, 12, 4801)


def hockey_sticks(scale, shift, epsilons):
    """Return discrete and continuous divergences at every epsilon, both directions stacked."""
    x = np.arange(-int(45 * scale), int(45 * scale) + shift + 1)
    near, far = (np.exp(-((x - c) ** 2) / (2 * scale**2)) for c in (0, shift))
    near, far = near / near.sum(), far / far.sum()
    factor = np.exp(epsilons)[:, None]
    discrete = [np.maximum(p - factor * q, 0).sum(axis=1) for p, q in ((far, near), (near, far))]
    mu = shift / scale
    upper, lower = ndtr(mu / 2 - epsilons / mu), ndtr(-mu / 2 - epsilons / mu)
    return np.array(discrete), upper - np.exp(epsilons) * lower


def excess(scale, shift, epsilons):
    """Return how far the discrete divergence exceeds the continuous one, (2, epsilons)."""
    discrete, continuous = hockey_sticks(scale, shift, epsilons)
    return discrete - continuous


def largest_ratio(scale, bound=grid_excess):
    """Return the largest excess over its bound, over all shifts, epsilons and directions."""
    return max(
        float((excess(scale, shift, EPSILONS) / bound(scale, shift)).max())
        for shift in range(1, int(scale) + 1)
    )


@pytest.mark.parametrize("scale", SMALL_SCALES)
def test_the_grid_costs_no_more_than_stated(scale):
    """Fails if the discrete Gaussian leaks more than the continuous one by more than tau."""
    assert largest_ratio(scale) <= 1


@pytest.mark.parametrize("scale", [2.0, 3.0, 5.0, 10.0])
def test_the_bound_on_the_grid_is_not_vacuous(scale):
    """Fails if tau is far above the truth; a tau fifteen times smaller would be wrong."""
    assert largest_ratio(scale, lambda s, d: grid_excess(s, d) / 15) > 1


@pytest.mark.parametrize("scale", SMALL_SCALES)
def test_failing_openly_with_probability_eta_covers_the_grid(scale):
    """Fails if Gaussian(D/s) with failure probability eta does not dominate the discrete pair."""
    eta = grid_slack(scale)
    for shift in range(1, int(scale) + 1):
        discrete, continuous = hockey_sticks(scale, shift, EPSILONS)
        # Where e^epsilon is tiny both sides are 1 - e^epsilon up to rounding.
        assert (discrete <= (1 - eta) * continuous + eta + 1e-15).all()


@pytest.mark.parametrize(
    ("scale", "shift", "epsilon"), [(2, 1, 0.0), (3, 3, 1.25), (5, 2, -0.7), (10, 10, 4.5)]
)
def test_the_sums_agree_with_50_digits(scale, shift, epsilon):
    """Fails if the double-precision sums that judge the bound are themselves wrong."""
    with mpmath.workdps(50):
        divergence, continuous = exact_divergences(scale, shift, mpmath.mpf(epsilon))
        true = divergence - continuous
        assert true <= grid_excess(scale, shift)
    ours = excess(float(scale), shift, np.array([epsilon]))[0, 0]
    assert abs(ours - float(true)) < 1e-14


def exact_divergences(scale, shift, epsilon):
    support = range(-45 * scale, 45 * scale + shift + 1)
    weight = {
        x: mpmath.exp(-(mpmath.mpf(x) ** 2) / (2 * scale**2))
        for x in range(-50 * scale, 51 * scale)
    }
    total = mpmath.fsum(weight.values())
    factor = mpmath.exp(epsilon)
    discrete = mpmath.fsum(max(weight[x - shift] - factor * weight[x], 0) for x in support) / total
    mu = mpmath.mpf(shift) / scale
    continuous = mpmath.ncdf(mu / 2 - epsilon / mu) - factor * mpmath.ncdf(-mu / 2 - epsilon / mu)
    return discrete, continuous


@pytest.mark.parametrize("shift", [1.01, 2.0, float("inf")])
def test_shifts_beyond_the_proof_are_refused(shift):
    """Fails if slack is computed for shifts above one scale, where the proof says nothing."""
    with pytest.raises(InvalidInput, match="shift"):
        grid_excess(1.0, shift)
