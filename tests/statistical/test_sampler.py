"""Coins against their exact law, and the grid's slack against exact sums.

Every check is also run on a sampler that is wrong on purpose, and must notice.
"""

from functools import partial

import mpmath
import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binomtest, chi2

from statistical.laws import LAGS, two_sided
from statistical.power import COINS, P_VALUE
from vicinal.accounting import grid_excess, grid_slack
from vicinal.errors import InvalidInput
from vicinal.noise import bernoulli

pytestmark = pytest.mark.statistical


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
    assert frequency_p(bernoulli, probability, COINS) > P_VALUE


def test_certain_coins():
    """Fails if probability 0 ever comes up or 1 ever does not; 2^-65 is below the resolution."""
    assert not bernoulli(0.0, COINS).any()
    assert not bernoulli(2.0**-65, COINS).any()
    assert bernoulli(1.0, COINS).all()
    assert bernoulli(0.5, 0).shape == (0,)
    assert bernoulli(0.5, 3).dtype == np.bool_


def test_coins_are_independent():
    for probability in (0.03, 0.5):
        assert coin_dependence_p(bernoulli, probability, COINS) > P_VALUE
        assert dispersion_p(bernoulli, probability, 1000) > P_VALUE


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
    assert check(wrong_coins(kind), 0.03) < P_VALUE


@pytest.mark.parametrize("probability", [-0.1, 1.1, float("nan"), "0.5", True])
def test_coins_refuse_what_is_no_probability(probability):
    with pytest.raises(InvalidInput, match="probability"):
        bernoulli(probability, 3)


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
