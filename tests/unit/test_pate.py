"""PATE: costs against enumeration, exact integrals and 50 digits."""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy.special import log_ndtr

from vicinal.accounting._label_only import two_coordinate_rdp
from vicinal.accounting._pate import (
    gnmax_rdp,
    lnmax_rdp,
    private_gnmax_log_error,
    private_gnmax_rdp,
    private_lnmax_log_error,
    private_lnmax_rdp,
)
from vicinal.accounting._smooth_cost import SmoothCost, smooth_release_rdp
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


def laplace_winners(votes, scale):
    """Return P[class wins] under Laplace noise, by quadrature between the kinks."""
    kinks = np.sort(np.concatenate([votes, [votes.min() - 45 * scale, votes.max() + 45 * scale]]))
    kinks = np.unique(np.concatenate([np.linspace(a, b, 12) for a, b in pairwise(kinks)]))
    half = np.diff(kinks) / 2
    x = ((kinks[:-1] + half)[:, None] + half[:, None] * NODES).ravel()
    weights = (half[:, None] * WEIGHTS).ravel()
    z = (x[:, None] - votes) / scale
    cdf = np.where(z < 0, np.exp(np.minimum(z, 0)) / 2, 1 - np.exp(-np.maximum(z, 0)) / 2)
    density = np.exp(-np.abs(z)) / (2 * scale)
    others = np.exp(np.log(cdf).sum(axis=1, keepdims=True) - np.log(cdf))
    return weights @ (density * others)


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


MECHANISMS = [
    (gaussian_winners, 8.0, gnmax_rdp, private_gnmax_log_error, private_gnmax_rdp),
    (laplace_winners, 5.0, lnmax_rdp, private_lnmax_log_error, private_lnmax_rdp),
]


@pytest.mark.parametrize(("winners", "noise", "general", "error", "private"), MECHANISMS)
def test_no_histogram_and_no_neighbour_costs_more(winners, noise, general, error, private):
    orders = ORDERS[:6]
    useful = 0
    for votes in histograms(1, 25):
        p = winners(votes, noise)
        log_error = float(error(votes[None], noise)[0])
        assert 1 - p[votes.argmax()] <= math.exp(log_error) * (1 + 1e-6) + 1e-12
        bound = private(log_error, noise, orders)
        assert (bound <= general(noise, orders)).all()
        useful += bool((bound < 0.5 * general(noise, orders)).any())
        for moved in neighbours(votes):
            q = winners(moved, noise)
            truth = np.array([renyi(p, q, order) for order in orders])
            back = np.array([renyi(q, p, order) for order in orders])
            assert (truth <= bound * (1 + 1e-6) + 1e-12 / (orders - 1)).all()
            assert (back <= general(noise, orders) * (1 + 1e-9) + 1e-12 / (orders - 1)).all()
    assert useful > 3


def test_gnmax_is_the_gaussian_at_sensitivity_root_two():
    assert gnmax_rdp(40, ORDERS) == pytest.approx(ORDERS * 2 / (2 * 40**2), rel=1e-8)
    assert (two_coordinate_rdp(40, 1, ORDERS[:4]) < 0.66 * gnmax_rdp(40, ORDERS[:4])).all()


@pytest.mark.parametrize("scale", [0.5, 3.0, 20.0, 1e5])
def test_lnmax_to_50_digits(scale):
    mp.dps = 50
    for order, ours in zip(ORDERS, lnmax_rdp(scale, ORDERS), strict=True):
        a, e = mpf(float(order)), 1 / mpf(scale)
        laplace = a / (2 * a - 1) * mp.exp((a - 1) * e) + (a - 1) / (2 * a - 1) * mp.exp(-a * e)
        yes = 1 / (1 + mp.exp(-2 * e))
        response = yes**a * (1 - yes) ** (1 - a) + (1 - yes) ** a * yes ** (1 - a)
        truth = min(2 * mp.log(laplace), mp.log(response)) / (a - 1)
        assert mpf(float(ours)) >= truth * (1 - mpf("1e-12"))
        assert mpf(float(ours)) <= truth * (1 + mpf("1e-6"))
        assert ours <= 2 / scale * (1 + 1e-8)


def test_laplace_at_two_classes_is_attained():
    # All votes far apart except two: the worst case of pure epsilon is nearly reached.
    votes, moved = np.array([10.0, 40.0]), np.array([11.0, 39.0])
    p, q = laplace_winners(moved, 2.0), laplace_winners(votes, 2.0)
    assert math.log(p[0] / q[0]) == pytest.approx(2 / 2.0, rel=0.15)


def test_private_costs_rise_with_doubt_until_the_general_cost():
    for private, general, noise in [
        (private_gnmax_rdp, gnmax_rdp, 40.0),
        (private_gnmax_rdp, gnmax_rdp, 1.0),
        (private_lnmax_rdp, lnmax_rdp, 20.0),
        (private_lnmax_rdp, lnmax_rdp, 0.5),
    ]:
        curve = np.array([private(x, noise, ORDERS) for x in np.linspace(-300, -0.2, 600)])
        assert (np.diff(curve, axis=0) >= -1e-12 * curve[:-1]).all()
        assert curve[-1] == pytest.approx(general(noise, ORDERS))
        assert (private(-math.inf, noise, ORDERS) == 0).all()


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


def normal_divergence(gap, first, second, order):
    mp.dps = 50
    spread = (1 - mpf(order)) * mpf(first) ** 2 + mpf(order) * mpf(second) ** 2
    if spread <= 0:
        return mpf("inf")
    shape = mp.sqrt(spread) / (mpf(first) ** (1 - mpf(order)) * mpf(second) ** mpf(order))
    return mpf(order) * mpf(gap) ** 2 / (2 * spread) + mp.log(shape) / (1 - mpf(order))


@settings(deadline=None, max_examples=150)
@given(st.floats(1e-3, 0.3), st.floats(0.5, 30), st.floats(1.05, 30), st.floats(-1, 1))
def test_smooth_release_covers_every_pair_of_scales(beta, sigma, order, where):
    smooth, other = 1.0, math.exp(where * beta)
    gap = min(smooth, other)
    truth = normal_divergence(gap, sigma * smooth, sigma * other, order)
    ours = smooth_release_rdp(beta, sigma, [order])[0]
    assert mpf(float(ours)) >= truth * (1 - mpf("1e-9"))


def test_smooth_release_is_attained_and_stops_where_it_must():
    ours = smooth_release_rdp(0.01, 10, [8.0])[0]
    ends = [
        normal_divergence(min(1, r), 10, 10 * r, 8.0) for r in (math.exp(-0.01), math.exp(0.01))
    ]
    assert float(max(ends)) == pytest.approx(ours, rel=1e-7)
    assert smooth_release_rdp(0.5, 10, [2.0])[0] == math.inf


@pytest.fixture(scope="module")
def cost():
    return SmoothCost.at(sigma=4.0, order=5.0, classes=3)


def test_published_cost_is_an_upper_bound_on_the_private_one(cost):
    votes = np.array(list(all_histograms(20)))
    exact = [
        private_gnmax_rdp(float(e), 4.0, [5.0])[0] for e in private_gnmax_log_error(votes, 4.0)
    ]
    ours = cost.private_costs(votes)
    assert (ours >= np.array(exact) * (1 - 1e-9)).all()
    assert ours.sum() <= 1.2 * sum(exact)


def all_histograms(teachers):
    for a in range(teachers + 1):
        for b in range(teachers + 1 - a):
            yield (float(a), float(b), float(teachers - a - b))


@pytest.mark.parametrize("beta", [0.3, 4.0])
def test_smooth_sensitivity_by_enumeration(cost, beta):
    costs, smooth = {}, {}
    for votes in all_histograms(12):
        costs[votes] = cost.private_costs([votes])[0]
        smooth[votes] = cost.private_sensitivity([votes], beta)
    for votes, value in costs.items():
        for moved in map(tuple, neighbours(np.array(votes))):
            assert abs(value - costs[moved]) <= smooth[votes]
            assert smooth[moved] <= smooth[votes] * math.exp(beta) * (1 + 1e-8)


@pytest.mark.parametrize("where", [5, 20, 40, 80])
def test_smooth_sensitivity_of_a_single_jump(cost, where):
    table = np.where(np.arange(len(cost.table)) < where, 1.0, 0.0)
    jump = dataclasses.replace(cost, table=table)
    for votes in all_histograms(12):
        smooth = jump.private_sensitivity([votes], 4.0)
        here = jump.private_costs([votes])[0]
        for moved in neighbours(np.array(votes)):
            assert abs(here - jump.private_costs([moved])[0]) <= smooth


def test_smooth_sensitivity_adds_queries_and_falls_with_beta(cost):
    votes = np.array([[12.0, 0, 0], [6, 5, 1], [9, 2, 1]])
    single = [cost.private_sensitivity(row[None], 0.2) for row in votes]
    together = cost.private_sensitivity(votes, 0.2)
    assert max(single) <= together <= sum(single) * (1 + 1e-8)
    assert cost.private_sensitivity(votes, 1.0) < cost.private_sensitivity(votes, 0.05)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0, "1", True, None])
def test_nonsense_is_refused_by_name(bad):
    with pytest.raises(InvalidInput, match="scale"):
        lnmax_rdp(bad, [2])
    with pytest.raises(InvalidInput, match="sigma"):
        gnmax_rdp(bad, [2])
    with pytest.raises(InvalidInput, match="orders"):
        gnmax_rdp(1, [bad])
    with pytest.raises(InvalidInput, match="beta"):
        smooth_release_rdp(bad, 1, [2])
    with pytest.raises(InvalidInput, match="sigma"):
        smooth_release_rdp(0.1, bad, [2])
    with pytest.raises(InvalidInput, match="sigma"):
        SmoothCost.at(bad, 2, 3)


@pytest.mark.parametrize("bad", [math.nan, 0.0, 1.0, math.inf, "1"])
def test_impossible_errors_are_refused(bad):
    with pytest.raises(InvalidInput, match="log_error"):
        private_gnmax_rdp(bad, 4, [2])
    with pytest.raises(InvalidInput, match="log_error"):
        private_lnmax_rdp(bad, 4, [2])


@pytest.mark.parametrize("bad", [[1, 2], [[1]], [[1, -1]], [[1, math.nan]], [["a", "b"]]])
def test_bad_votes_are_refused_without_being_quoted(bad):
    with pytest.raises(InvalidInput, match="'votes' parameter must be a table") as refusal:
        private_gnmax_log_error(bad, 4)
    assert "Got" not in str(refusal.value)


def test_votes_with_other_classes_are_refused(cost):
    with pytest.raises(InvalidInput, match="3 columns"):
        cost.private_costs([[1, 2]])
