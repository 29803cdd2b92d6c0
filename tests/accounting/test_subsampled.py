"""The sampled Gaussian against 50-digit integrals and an independent accountant."""

import math
from fractions import Fraction

import numpy as np
import pytest
from mpmath import mp, mpf

from vicinal.accounting import _divergence
from vicinal.accounting.composition import Composition
from vicinal.accounting.gaussian import SubsampledGaussian
from vicinal.accounting.kinds import PlannedMultilabel

pytestmark = pytest.mark.quick


def sample_parameters(count):
    """Return (sigma, gamma), log-uniform."""
    rng = np.random.default_rng(11)
    sigma = np.exp(rng.uniform(math.log(0.4), math.log(300), count))
    gamma = np.exp(rng.uniform(math.log(1e-3), 0, count))
    return list(zip(sigma.tolist(), gamma.tolist(), strict=True))


def exact_rdp(sigma, gamma, alpha):
    """Return the RDP by quadrature in 40 digits, of terms that do not cancel."""
    mp.dps = 40
    mu, rate, order = 1 / mpf(sigma), mpf(gamma), mpf(alpha)

    def integrand(z):
        excess = rate * mp.expm1(mu * z - mu**2 / 2)
        return mp.npdf(z) * ((1 + excess) ** order - 1 - order * excess)

    end = 14 + float(alpha / sigma)
    points = np.linspace(-14, end, math.ceil((end + 14) / 4) + 1).tolist()
    # 24 points of Gauss and Legendre in steps of at most 4: within 1e-14 of tanh-sinh in 40 digits.
    return mp.log1p(mp.quad(integrand, points, method="gauss-legendre", maxdegree=4)) / (order - 1)


def test_rdp_equals_an_independent_accountant_at_300_settings():
    from dp_accounting.rdp import rdp_privacy_accountant  # takes long to import

    orders = [2, 3, 5, 17, 64]
    for sigma, gamma in sample_parameters(300):
        oracle = rdp_privacy_accountant._compute_rdp_poisson_subsampled_gaussian(
            gamma, sigma, orders
        )
        ours = SubsampledGaussian(sigma, gamma).rdp(np.array(orders, dtype=float))
        # The oracle forms log(1 + x) from rounded sums, which costs it 1e-15 / x.
        noise = 4e-15 / (np.array(orders) - 1)
        assert (abs(ours - oracle) <= 1e-9 * ours + noise).all(), (sigma, gamma)


@pytest.mark.parametrize("alpha", [1.0001, 1.5, 4.3, 40.7])
@pytest.mark.parametrize(("sigma", "gamma"), [(0.3, 0.2), (1.0, 0.01), (14.0, 0.2), (1e5, 1e-4)])
def test_fractional_orders_equal_quadrature(sigma, gamma, alpha):
    ours = SubsampledGaussian(sigma, gamma).rdp(np.array([alpha]))[0]
    assert mpf(ours) == pytest.approx(exact_rdp(sigma, gamma, alpha), rel=1e-11)


def test_gamma_one_is_no_sampling_and_gamma_zero_is_free():
    orders = np.array([1.1, 2.0, 30.0])
    unsampled = SubsampledGaussian(2.0).rdp(orders)
    assert unsampled == pytest.approx(orders / 8, rel=1e-15)
    assert SubsampledGaussian(2.0, 1 - 1e-13).rdp(orders) == pytest.approx(unsampled, rel=1e-9)
    assert (SubsampledGaussian(2.0, 1e-9).rdp(orders[:2]) < 1e-17).all()


@pytest.mark.parametrize("mu", [1e-5, 0.03, 0.49, 0.51, 4.0])
@pytest.mark.parametrize("gamma", [1.0, 0.3, 1e-3])
def test_excess_equals_50_digits(mu, gamma):
    mp.dps = 50
    pair = _divergence.GaussianPair(mu, gamma)
    bound = math.log1p(-gamma) if gamma < 1 else -math.inf
    for loss in np.array([-3.0, -0.8, -0.01, 0.0, 1e-3, 0.4, 2.5]) * gamma * mu:
        if loss <= bound:
            continue
        x = mp.exp(mpf(float(loss)))
        inner = (x - 1 + mpf(gamma)) / mpf(gamma)
        cut = (mp.log(inner) + mpf(mu) ** 2 / 2) / mpf(mu)
        truth = mpf(gamma) * (mp.ncdf(mpf(mu) - cut) - inner * mp.ncdf(-cut)) - max(0, 1 - x)
        ours = pair.compute_excess(np.array([loss]))[0]
        assert mpf(ours) == pytest.approx(truth, rel=1e-9, abs=1e-25)


@pytest.mark.parametrize("power", [1 + 2e-6, 1 + 1e-3, 1.5, 40.0, 1e4, -1e-6, -0.5, -300.0])
def test_sums_of_renyi_keep_13_digits_at_every_order(power):
    """Fails for e^bL - 1 - b (e^L - 1) as it stands: near b = 1 that keeps 9 digits, or none."""
    sizes = np.array([1e-9, 1e-4, 0.049, 0.051, 0.2, 1.0, 7.0, 29.0, 31.0, 300.0])
    log_ratio = np.concatenate([sizes, -sizes])
    with mp.workdps(80):
        b = mpf(power)
        exact = [mp.log(mp.expm1(b * mpf(x)) - b * mp.expm1(mpf(x))) for x in log_ratio.tolist()]
        gaps = [
            abs(mpf(x) - y)
            for x, y in zip(
                _divergence.compute_log_tangent_gap(power, log_ratio), exact, strict=True
            )
        ]
        assert all(gap <= 1e-13 * max(1, abs(y)) for gap, y in zip(gaps, exact, strict=True))


def test_pld_agrees_with_an_independent_accountant():
    from dp_accounting.pld import privacy_loss_distribution  # takes long to import

    for sigma, gamma in sample_parameters(15):
        count = max(1, int(min(2000.0, (sigma / gamma) ** 2 / 3)))
        oracle = privacy_loss_distribution.from_gaussian_mechanism(
            sigma, value_discretization_interval=1e-3, sampling_prob=gamma, use_connect_dots=True
        ).self_compose(count)
        theirs = oracle.get_epsilon_for_delta(1e-6)
        ours = Composition.from_release(SubsampledGaussian(sigma, gamma), count).to_epsilon(
            1e-6, "pld"
        )
        # Both are upper bounds; its grid of 1e-3 widens each of `count` losses by up to 1e-6/4.
        max_difference = 10 * 1e-3 * math.sqrt(count) / 2
        assert ours <= theirs * (1 + 2e-4) + 1e-6
        assert theirs - ours <= max_difference, (sigma, gamma, count)


def test_multilabel_is_theorem_5():
    orders = np.array([2.0, 10.0])
    component = PlannedMultilabel(tau=10.0, sigma=100.0).build_component()
    assert component.rdp(orders) == pytest.approx(orders * 10 / 100**2, rel=1e-12)
    assert (100 / Fraction(component.sigma)) ** 2 >= 20
