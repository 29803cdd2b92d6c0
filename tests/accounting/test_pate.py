"""PATE: costs against enumeration, exact integrals and 50 digits."""

import math

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy.special import log_ndtr

from vicinal.accounting._label_only import two_coordinate_rdp
from vicinal.accounting._pate import (
    gnmax_rdp,
    private_gnmax_log_error,
    private_gnmax_rdp,
)
from vicinal.errors import InvalidInput

ORDERS = np.array([1.01, 1.5, 2.0, 4.0, 8.0, 32.0, 128.0])
NODES, WEIGHTS = np.polynomial.legendre.leggauss(300)


def gaussian_winners(votes, sigma):
    low, high = votes.max() - 9.5 * sigma, votes.max() + 9.5 * sigma
    x = (low + high) / 2 + (high - low) / 2 * NODES
    z = (x[:, None] - votes) / sigma
    below = log_ndtr(z)
    exponent = below.sum(axis=1, keepdims=True) - below - z**2 / 2
    weights = WEIGHTS * (high - low) / 2 / sigma
    return weights @ np.exp(exponent) / math.sqrt(2 * math.pi)


def renyi(p, q, order):
    keep = (p > 1e-14) & (q > 1e-14)
    ratio = p[keep] / q[keep] - 1
    terms = q[keep] * (np.expm1(order * np.log1p(ratio)) - order * ratio)
    return float(np.log1p(terms.sum()) / (order - 1))


def histograms(seed, count, teachers=60):
    generator = np.random.default_rng(seed)
    for _ in range(count):
        classes = int(generator.choice([2, 3, 5]))
        shares = generator.dirichlet(np.full(classes, generator.choice([0.1, 1.0])))
        yield generator.multinomial(teachers, shares).astype(float)


def neighbours(votes):
    for source in np.flatnonzero(votes > 0):
        for target in range(len(votes)):
            if target != source:
                moved = votes.copy()
                moved[source] -= 1
                moved[target] += 1
                yield moved


def test_no_histogram_and_no_neighbour_costs_more():
    noise = 8.0
    orders = ORDERS[:6]
    useful = 0
    for votes in histograms(1, 25):
        p = gaussian_winners(votes, noise)
        log_error = float(private_gnmax_log_error(votes[None], noise)[0])
        assert 1 - p[votes.argmax()] <= math.exp(log_error) * (1 + 1e-6) + 1e-12
        bound = private_gnmax_rdp(log_error, noise, orders)
        assert (bound <= gnmax_rdp(noise, orders)).all()
        useful += bool((bound < 0.5 * gnmax_rdp(noise, orders)).any())
        for moved in neighbours(votes):
            q = gaussian_winners(moved, noise)
            truth = np.array([renyi(p, q, order) for order in orders])
            back = np.array([renyi(q, p, order) for order in orders])
            assert (truth <= bound * (1 + 1e-6) + 1e-12 / (orders - 1)).all()
            assert (back <= gnmax_rdp(noise, orders) * (1 + 1e-9) + 1e-12 / (orders - 1)).all()
    assert useful > 3


def test_gnmax_is_the_gaussian_at_sensitivity_root_two():
    assert gnmax_rdp(40, ORDERS) == pytest.approx(ORDERS * 2 / (2 * 40**2), rel=1e-8)
    assert (two_coordinate_rdp(40, 1, ORDERS[:4]) < 0.66 * gnmax_rdp(40, ORDERS[:4])).all()


def test_private_costs_rise_with_doubt_until_the_general_cost():
    for noise in (40.0, 1.0):
        errors = np.linspace(-300, -0.2, 600)
        curve = np.array([private_gnmax_rdp(x, noise, ORDERS) for x in errors])
        assert (np.diff(curve, axis=0) >= -1e-12 * curve[:-1]).all()
        assert curve[-1] == pytest.approx(gnmax_rdp(noise, ORDERS))
        assert (private_gnmax_rdp(-math.inf, noise, ORDERS) == 0).all()


def test_theorem_6_to_50_digits():
    mp.dps = 50
    sigma, log_q, order = 40.0, -12.0, 6.0
    q = mp.exp(mpf(log_q))
    mu2 = mpf(sigma) * mp.sqrt(-mpf(log_q))
    mu1 = mu2 + 1
    e1, e2 = mu1 / mpf(sigma) ** 2, mu2 / mpf(sigma) ** 2
    a = (1 - q) / (1 - (q * mp.exp(e2)) ** ((mu2 - 1) / mu2))
    b = mp.exp(e1) / q ** (1 / (mu1 - 1))
    truth = mp.log((1 - q) * a ** (order - 1) + q * b ** (order - 1)) / (order - 1)
    ours = private_gnmax_rdp(log_q, sigma, [order])[0]
    assert mpf(float(ours)) >= truth
    assert mpf(float(ours)) <= truth * (1 + mpf("1e-6"))


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0, "1", True, None])
def test_nonsense_is_refused_by_name(bad):
    with pytest.raises(InvalidInput, match="sigma"):
        gnmax_rdp(bad, [2])
    with pytest.raises(InvalidInput, match="orders"):
        gnmax_rdp(1, [bad])


@pytest.mark.parametrize("bad", [[1, 2], [[1]], [[1, -1]], [[1, math.nan]], [["a", "b"]]])
def test_bad_votes_are_refused_without_being_quoted(bad):
    with pytest.raises(InvalidInput, match="'votes' parameter must be a table") as refusal:
        private_gnmax_log_error(bad, 4)
    assert "Got" not in str(refusal.value)
