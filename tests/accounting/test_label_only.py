"""Label-only releases: bounds against brute force, 50 digits and exact sums on a grid."""

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy.special import log_ndtr

from vicinal.accounting import _label_divergence
from vicinal.accounting._label_divergence import (
    ThreeWayComparisons,
    ThresholdTests,
    compute_log_psi,
    compute_log_win_probability,
)
from vicinal.accounting.gaussian import SubsampledGaussian
from vicinal.accounting.label_only import (
    MIN_PLANE_SCALE,
    NoisyLabel,
    bound_discrete_rdp_excess,
    compute_two_coordinate_rdp,
)

NODES, WEIGHTS = np.polynomial.legendre.leggauss(200)
ORDERS = np.array([1.01, 1.3, 2.0, 5.0, 10.0, 20.0, 40.0])


def compute_win_probabilities(means):
    """Return the probability of each class to have the most votes; `means` plus N(0, 1) noise."""
    low, high = means.max() - 9.5, means.max() + 9.5
    x = (low + high) / 2 + (high - low) / 2 * NODES
    below = log_ndtr(x[:, None] - means)
    exponent = below.sum(axis=1, keepdims=True) - below - (x[:, None] - means) ** 2 / 2
    return (WEIGHTS * (high - low) / 2) @ np.exp(exponent) / math.sqrt(2 * math.pi)


def compute_renyi(p, q, order):
    """Return D_order(p | q) of two vectors of probabilities, without cancellation."""
    ratio = p / q - 1
    terms = q * (np.expm1(order * np.log1p(ratio)) - order * ratio)
    return float(np.log1p(terms.sum()) / (order - 1))


def exact_test(a, mu, order, reverse=False):
    """Return D_order of the threshold test at margin `a`, to 50 digits."""
    mp.dps = 50
    q, p = mp.ncdf(mpf(a)), mp.ncdf(mpf(a) + mpf(mu))
    lost_q, lost_p = mp.ncdf(-mpf(a)), mp.ncdf(-mpf(a) - mpf(mu))
    if reverse:
        p, q, lost_p, lost_q = q, p, lost_q, lost_p
    order = mpf(order)
    return mp.log(p**order * q ** (1 - order) + lost_p**order * lost_q ** (1 - order)) / (order - 1)


@cache
def cached_two_coordinate_rdp(sigma, gamma, orders=tuple(ORDERS), classes=None):
    """Return the bound of two moving counts; cached, as several tests use it."""
    return compute_two_coordinate_rdp(sigma, gamma, np.array(orders), classes)


def one_coordinate_rdp(mu, orders):
    """Return the RDP of the worst threshold test of shift `mu`, as that of two classes."""
    return compute_two_coordinate_rdp(math.sqrt(2) / mu, 1, np.array(orders, float), classes=2)


def compute_log_g(contest, outcomes):
    """Return log G at the centres of `outcomes`, (..., orders)."""
    log_psi = compute_log_psi(outcomes.log_ratio[..., None], contest.orders)
    return np.logaddexp.reduce(outcomes.log_weight[..., None] + log_psi, axis=0)


@pytest.mark.parametrize(("order", "share"), [(10, 0.647), (20, 0.685), (40, 0.827)])
def test_shares_of_the_gaussian_at_a_tenth(order, share):
    gaussian_rdp = order * 0.1**2 / 2
    assert one_coordinate_rdp(0.1, [order])[0] / gaussian_rdp == pytest.approx(share, abs=6e-4)


@settings(deadline=None, max_examples=60)
@given(
    st.floats(-12, 8),
    st.floats(-5.5, 0.4).map(lambda e: 10**e),
    st.floats(-2, 2).map(lambda e: 1 + 10**e),
    st.booleans(),
)
def test_no_margin_costs_more_to_50_digits(a, mu, order, reverse):
    ours = one_coordinate_rdp(mu, [order])[0]
    assert mpf(float(ours)) >= exact_test(a, mu, order, reverse)


@pytest.mark.parametrize("mu", [1e-6, 1e-3, 0.1, 1.0, 3.0])
@pytest.mark.parametrize("order", [1.01, 2.0, 10.0, 60.0])
def test_the_bound_is_attained(mu, order):
    ours = one_coordinate_rdp(mu, [order])[0]
    if order * mu > 12:  # the Gaussian's own bound is taken
        assert ours == pytest.approx(order * mu**2 / 2, rel=2e-6)
        return
    margins = np.linspace(-order * mu - 4, 4, 1500)
    terms = np.logaddexp(
        log_ndtr(margins)
        + compute_log_psi(_label_divergence.bound_log_gain(margins, np.asarray(mu)), order),
        log_ndtr(-margins)
        + compute_log_psi(
            -_label_divergence.bound_log_gain(-margins - mu, np.asarray(mu)), np.asarray(order)
        ),
    )
    at = margins[np.argmax(terms)]
    assert ours == pytest.approx(float(exact_test(at, mu, order)), rel=2e-4)


def sample_vote_means(seed, count):
    generator = np.random.default_rng(seed)
    for _ in range(count):
        classes = int(generator.choice([2, 3, 4, 10, 30]))
        spread = float(generator.choice([0.0, 0.3, 1.0, 3.0]))
        means = generator.normal(size=classes) * spread
        means[0] += generator.normal() * 1.5
        yield classes, means


def discrete_divergence(scale, shift, order, centre=0.0):
    """Return the largest D over integer thresholds for discrete Gaussian noise, exact sums."""
    reach = 30 * scale
    z = np.arange(-reach, reach + 1)
    mass = np.exp(-((z - centre) ** 2) / (2 * scale**2))
    mass /= mass.sum()
    lower = np.concatenate([[0], np.cumsum(mass)])
    upper = np.concatenate([np.cumsum(mass[::-1])[::-1], [0]])
    at = np.arange(reach - 10 * scale, reach + 10 * scale)
    q, p = upper[at], upper[at - shift]
    q0, p0 = lower[at], lower[at - shift]
    gain = np.log1p((p - q) / q)
    loss = np.log1p((p0 - q0) / q0)
    log_g = np.logaddexp(
        np.log(q) + compute_log_psi(gain, order), np.log(q0) + compute_log_psi(loss, order)
    )
    return float(np.logaddexp(0, log_g.max()) / (order - 1))


@pytest.mark.parametrize("scale", [1000, 10_000])
@pytest.mark.parametrize("order", [1.5, 5.0, 20.0])
@pytest.mark.parametrize("centre", [0.0, 0.37])
def test_discrete_noise_stays_below_the_bound_with_the_grid_s_excess(scale, order, centre):
    for shift in (1, 7, scale // 10, scale // 3):
        mu = shift / scale
        continuous = one_coordinate_rdp(mu, [order])[0]
        discrete = discrete_divergence(scale, shift, np.asarray(order), centre)
        assert discrete <= continuous * (1 + bound_discrete_rdp_excess(scale, order, mu))
        assert discrete == pytest.approx(continuous, rel=2e-3)


@pytest.mark.parametrize("gamma", [1.0, 0.15])
@pytest.mark.parametrize("sigma", [2.0, 25.0])
def test_brute_force_over_votes_never_exceeds_the_bound_of_two(sigma, gamma):
    orders = ORDERS[ORDERS / sigma * math.sqrt(2) < 12]
    bound = cached_two_coordinate_rdp(sigma, gamma, tuple(orders))
    closest = 0.0
    for classes, means in sample_vote_means(2, 75):
        moves = [(1 / sigma, 0.0), (1 / sigma, -1 / sigma)]
        for gain, loss in moves:
            moved = means.copy()
            moved[0] += gain
            moved[-1] += loss
            q = compute_win_probabilities(means)
            p = (1 - gamma) * q + gamma * compute_win_probabilities(moved)
            for order, max_rdp in zip(orders, bound, strict=True):
                truth = max(compute_renyi(p, q, order), compute_renyi(q, p, order))
                assert truth <= max_rdp * (1 + 1e-9) + 1e-13 / (order - 1)
                closest = max(closest, truth / max_rdp)
        if classes == 2:
            assert (
                cached_two_coordinate_rdp(sigma, gamma, (2.0,), 2) >= compute_renyi(p, q, 2.0)
            ).all()
    assert closest > 0.9


def test_two_classes_under_sampling_are_a_duel():
    ours = compute_two_coordinate_rdp(25, 0.15, ORDERS, classes=2)
    assert (ours <= cached_two_coordinate_rdp(25.0, 0.15) * (1 + 1e-3)).all()
    duel = one_coordinate_rdp(math.sqrt(2) / 25, ORDERS)
    assert compute_two_coordinate_rdp(25, 1, ORDERS, classes=2) == pytest.approx(duel, rel=1e-4)


@pytest.mark.parametrize(
    ("u", "v"), [(0.3, 0.2), (-3, 4), (5, -2), (-12, 3), (-12, 20), (-8, -8), (2, 9)]
)
def test_the_probability_of_winning_to_30_digits(u, v):
    """The quadrature stops at an absolute error, so that the integrand is scaled to about 1."""
    mp.dps = 30
    cuts = list(range(25))
    height = max(mp.npdf(x - u) * mp.ncdf(x - v) for x in cuts)
    scaled = mp.quad(lambda x: mp.npdf(x - u) * mp.ncdf(x - v) / height, cuts)
    truth = mp.log(scaled) + mp.log(height)
    ours = mpf(float(compute_log_win_probability(np.array([float(u)]), np.array([float(v)]))[0]))
    assert abs(ours - truth) < 1e-12 * max(1, abs(truth)) + 1e-13


@pytest.mark.parametrize("reverse", [False, True])
def test_squares_are_bounded_by_all_three_arguments(reverse):
    contest = ThreeWayComparisons(0.2, 0.3, np.array([1.5, 6.0, 20.0]), reverse)
    lead = ThresholdTests(0.2 * math.sqrt(2), 0.3, contest.orders, reverse).bound_log_g()
    generator = np.random.default_rng(3)
    for size in (2.0, 0.3, 0.02):
        u, v = np.rint(generator.uniform(-5, 5, (2, 60)) / size) * size
        upper, attained = contest._bound_on_squares(u, v, size, lead)
        inside = contest.compute_outcomes(
            u[:, None] + size * generator.random((60, 40)),
            v[:, None] + size * generator.random((60, 40)),
        )
        values = compute_log_g(contest, inside)
        assert (values.max(axis=1) <= upper + 1e-9).all()
        assert (attained <= upper + 1e-12).all()


@pytest.mark.parametrize(("gamma", "reverse"), [(1.0, False), (0.3, False), (0.3, True)])
def test_bends_bound_the_second_derivatives(gamma, reverse):
    contest = ThreeWayComparisons(0.2, gamma, np.array([1.5, 6.0, 60.0]), reverse)
    u, v = np.random.default_rng(4).uniform(-6, 6, (2, 300))
    outcomes, step = contest.compute_outcomes(u, v), 2e-3
    concavity = contest._bound_log_concavity(
        outcomes.log_weight,
        outcomes.log_ratio,
        contest._bound_log_term_concavity(outcomes.log_ratio),
    )
    tightest = np.full(3, np.inf)
    for i, j in [(step, 0.0), (0.0, step)]:
        middle = compute_log_g(contest, outcomes)
        sides = [
            compute_log_g(contest, contest.compute_outcomes(u + s * i, v + s * j)) for s in (-1, 1)
        ]
        fall = -sum(np.expm1(side - middle) for side in sides) / step**2
        steep = fall > 1e-4
        slack = concavity[steep] - middle[steep] - np.log(fall[steep])
        assert (slack > -0.02).all()
        columns = np.nonzero(steep)[1]
        tightest = [slack[columns == k].min(initial=tightest[k]) for k in range(3)]
    assert min(tightest) < math.log(100)


def discrete_contest(scale, shift, order, thresholds):
    """Return the RDP by exact sums over the lattice, maximised over `thresholds`.

    Ties go to the gaining class, then to the other classes.
    """
    z = np.arange(-6 * scale, 6 * scale + 1)
    mass = np.exp(-(z**2) / (2 * scale**2))
    mass /= mass.sum()
    below = np.concatenate([[0], np.cumsum(mass)])

    def outcome_probabilities(u, v):
        # x = u + z wins at x >= max(0, y); y = v + z wins at y > 0 and y > x.
        cut = np.clip(z + u - v + len(z) // 2 + 1, 0, len(z))
        gain = (mass * below[cut])[z + u >= 0].sum()
        other = below[np.clip(-u + len(z) // 2, 0, len(z))]
        other *= below[np.clip(-v + 1 + len(z) // 2, 0, len(z))]
        return np.array([gain, 1 - gain - other, other])

    return max(
        compute_renyi(
            outcome_probabilities(u + shift, v - shift), outcome_probabilities(u, v), order
        )
        for u, v in thresholds
    )


def test_discrete_noise_on_a_lattice_stays_near_the_bound_of_two():
    scale, shift = 600, 60
    grid = [(u, v) for u in range(-900, 1500, 150) for v in range(-900, 1500, 150)]
    for order in (2.0, 8.0):
        ours = compute_two_coordinate_rdp(scale / shift, 1, np.array([order]))[0]
        truth = discrete_contest(scale, shift, order, grid)
        assert truth <= ours * 1.001
        assert truth >= 0.97 * ours
    assert MIN_PLANE_SCALE >= 1 << 30


def test_a_label_never_costs_more_than_the_votes_it_is_taken_from():
    orders = np.array([1.5, 2.0, 8.0, 64.0, 400.0, 5000.0])
    for sigma, gamma in ((25.0, 0.15), (5.0, 0.05), (25.0, 1.0)):
        votes = SubsampledGaussian(sigma / math.sqrt(2), gamma).rdp(orders)
        labels = NoisyLabel(sigma, gamma, 10).rdp(orders)
        assert (labels <= votes * (1 + 1e-8)).all()
        assert (labels[:3] < 0.9 * votes[:3]).all()
