"""The closed bound on screening: above the exact value wherever its conditions hold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from mpmath import mp, mpf

from experiments.accounting.asymptotic import asymptotic_rdp, exponent, leading_rdp
from vicinal.accounting._screening import Screening
from vicinal.errors import InvalidInput

RNG = np.random.default_rng(8)


def random_screening() -> Screening:
    k = int(math.exp(RNG.uniform(0, math.log(900))))
    sigma = math.exp(RNG.uniform(0, math.log(3000)))
    gamma = min(1.0, math.exp(RNG.uniform(-9, 0.5)))
    return Screening(k, k * RNG.uniform(-0.3, 1.3), sigma, gamma)


def test_the_bound_is_above_the_exact_value_and_comes_down_to_it():
    orders = 1 + np.geomspace(1e-3, 1e4, 40)
    checked, ratios = 0, []
    for _ in range(800):
        screening = random_screening()
        inside = orders[exponent(screening, orders) <= 1]
        if not len(inside):
            continue
        checked += 1
        bound, exact = asymptotic_rdp(screening, inside), screening.rdp(inside)
        # The exact value carries a relative 1e-6 and 1e-11 of rounding up.
        assert (bound * (1 + 2e-11) >= exact).all(), screening
        ratios.append(float((bound / exact).min()))
    assert checked > 400
    # And it is no empty bound: in some settings nothing is left between them.
    assert min(ratios) < 1.01


def test_it_is_above_enumeration_in_50_digits():
    mp.dps = 50
    screening, alpha = Screening(12, 7.0, 40.0, 0.3), 6.0
    passes = [mp.ncdf((t - mpf(7)) / 40) for t in range(13)]
    truth = mpf(0)
    for before, after in [(t, t + d) for t in range(13) for d in (1, -1) if 0 <= t + d <= 12]:
        q = passes[before]
        r = mpf(0.7) * q + (1 - mpf(0.7)) * passes[after]
        for one, two in ((r, q), (q, r)):
            total = one**6 * two**-5 + (1 - one) ** 6 * (1 - two) ** -5
            truth = max(truth, mp.log(total) / 5)
    bound = asymptotic_rdp(screening, np.array([alpha]))[0]
    assert truth <= mpf(bound) <= truth * mpf("1.2")


@pytest.mark.parametrize("gamma", [1.0, 0.2, 1e-3])
def test_the_leading_term_is_attained_as_the_noise_grows(gamma):
    orders = np.array([1.5, 4.0])
    ratios = []
    for sigma in (1e2, 1e3, 1e4):
        # Threshold and votes grow with the noise, so that they stay as many deviations apart.
        screening = Screening(int(sigma), sigma / 2, sigma, gamma)
        ratios.append(screening.rdp(orders) / leading_rdp(screening, orders))
    assert np.abs(np.array(ratios)[-1] - 1).max() < 1e-3
    assert (np.abs(np.array(ratios)[2] - 1) < np.abs(np.array(ratios)[0] - 1) + 1e-9).all()


def test_figure_5_lies_within_the_conditions_at_the_orders_that_matter():
    screening = Screening(300, 210, 85.0, 0.25)
    orders = np.array([2.0, 10.0, 20.0])
    bound, exact = asymptotic_rdp(screening, orders), screening.rdp(orders)
    assert (exact <= bound).all()
    assert (bound < 1.4 * exact).all()


@pytest.mark.parametrize(
    ("screening", "order"),
    [
        (Screening(300, 210, 2.0, 0.1), 2.0),  # thresholds 100 deviations away
        (Screening(5, 3.0, 0.5), 2.0),  # noise of half a vote
        (Screening(300, 210, 85.0, 0.25), 1e4),  # an order at which sampling no longer helps
    ],
)
def test_outside_its_conditions_it_is_refused(screening, order):
    with pytest.raises(InvalidInput, match="z <= 1"):
        asymptotic_rdp(screening, np.array([order]))


@pytest.mark.parametrize("order", [1.0, 0.5, math.nan, math.inf])
def test_bad_orders_are_refused(order):
    with pytest.raises(InvalidInput, match="'orders'"):
        asymptotic_rdp(Screening(3, 2.0, 30.0), np.array([order]))
