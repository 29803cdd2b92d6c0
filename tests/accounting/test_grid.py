"""The slack of the grid: exact divergences of discrete against continuous Gaussian noise."""

from functools import cache

import mpmath
import numpy as np
import pytest
from scipy.special import ndtr

from loss_tools import exact_gaussian_divergence
from vicinal.accounting.gaussian import compute_grid_excess, compute_grid_slack
from vicinal.errors import InvalidInput

SMALL_SCALES = (1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
EPSILONS = np.linspace(-12, 12, 4801)


@cache
def compute_hockey_sticks(scale, shift):
    """Return the discrete divergences of both directions, (2, epsilons), and the continuous one."""
    x = np.arange(-int(45 * scale), int(45 * scale) + shift + 1)
    without, with_subject = (np.exp(-((x - c) ** 2) / (2 * scale**2)) for c in (0, shift))
    without, with_subject = without / without.sum(), with_subject / with_subject.sum()
    factor = np.exp(EPSILONS)[:, None]
    discrete = [
        np.maximum(p - factor * q, 0).sum(axis=1)
        for p, q in ((with_subject, without), (without, with_subject))
    ]
    mu = shift / scale
    upper, lower = ndtr(mu / 2 - EPSILONS / mu), ndtr(-mu / 2 - EPSILONS / mu)
    return np.array(discrete), upper - np.exp(EPSILONS) * lower


@pytest.mark.parametrize("scale", SMALL_SCALES)
def test_the_grid_costs_no_more_than_stated_and_not_far_less(scale):
    """Fails if the discrete Gaussian leaks more than the continuous one by more than tau."""
    ratios = []
    for shift in range(1, int(scale) + 1):
        discrete, continuous = compute_hockey_sticks(scale, shift)
        ratios.append(float((discrete - continuous).max()) / compute_grid_excess(scale, shift))
    assert max(ratios) <= 1
    assert max(ratios) > 1 / 15 or scale < 2


@pytest.mark.parametrize("scale", SMALL_SCALES)
def test_failing_openly_with_probability_eta_covers_the_grid(scale):
    """Fails if Gaussian(D/s) with failure probability eta does not dominate the discrete pair."""
    eta = compute_grid_slack(scale)
    for shift in range(1, int(scale) + 1):
        discrete, continuous = compute_hockey_sticks(scale, shift)
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
        assert true <= compute_grid_excess(scale, shift)
    discrete, gaussian = compute_hockey_sticks(scale, shift)
    index = np.abs(EPSILONS - epsilon).argmin()
    assert abs(discrete[0, index] - gaussian[index] - float(true)) < 1e-14


def exact_divergences(scale, shift, epsilon):
    support = range(-45 * scale, 45 * scale + shift + 1)
    weight = {
        x: mpmath.exp(-(mpmath.mpf(x) ** 2) / (2 * scale**2))
        for x in range(-50 * scale, 51 * scale)
    }
    total = mpmath.fsum(weight.values())
    factor = mpmath.exp(epsilon)
    discrete = mpmath.fsum(max(weight[x - shift] - factor * weight[x], 0) for x in support) / total
    return discrete, exact_gaussian_divergence(mpmath.mpf(shift) / scale, epsilon)


@pytest.mark.parametrize("shift", [1.01, 2.0, float("inf")])
def test_shifts_beyond_the_proof_are_refused(shift):
    """Fails if slack is computed for shifts above one scale, which the proof does not cover."""
    with pytest.raises(InvalidInput, match="shift"):
        compute_grid_excess(1.0, shift)
