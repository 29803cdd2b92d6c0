"""Compositions and their conversion to epsilon by every method."""

import itertools
import math

import numpy as np
import pytest
from mpmath import mp, mpf

from loss_tools import exact_binomial_delta, pld_delta
from vicinal.accounting import _certificate
from vicinal.accounting._counts import (
    DiscreteGaussian,
    DiscreteLaplace,
    FiniteLosses,
    LaplaceNumber,
    ProbabilisticDisclosure,
    RenyiCurve,
)
from vicinal.accounting._divergence import GaussianPair
from vicinal.accounting.budget import gdp_delta, gdp_epsilon, zcdp_epsilon
from vicinal.accounting.composition import METHODS, Composition, compose
from vicinal.accounting.gaussian import SubsampledGaussian
from vicinal.accounting.label_only import NoisyLabel
from vicinal.accounting.pld import compute_pld_epsilon
from vicinal.accounting.screening import Screening
from vicinal.errors import InvalidInput

RELEASES = [
    SubsampledGaussian(3.0, 0.2),
    SubsampledGaussian(9.0),
    Screening(30, 18, 4.0, 0.3),
    Screening(30, 18, 9.0),
]
SAMPLED = RELEASES[0]


@pytest.mark.parametrize("method", ["rdp", "rdp_mironov", "pld"])
@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_repeat_equals_adding(release, method):
    single = Composition.from_release(release)
    added = compose([single] * 7)
    assert added == single.repeat(7)
    assert added.to_epsilon(1e-5, method) == single.repeat(7).to_epsilon(1e-5, method)


@pytest.mark.parametrize("method", ["rdp", "rdp_mironov", "pld"])
def test_the_order_of_composition_is_irrelevant_to_the_last_bit(method):
    compositions = [Composition.from_release(release, 3) for release in RELEASES]
    epsilons = {
        compose(compositions[index] for index in order).to_epsilon(1e-5, method)
        for order in itertools.permutations(range(4))
    }
    assert len(epsilons) == 1


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 4.0, 12.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9])
def test_one_gaussian_by_every_method(mu, delta):
    cost = Composition.from_release(SubsampledGaussian(1 / mu))
    exact = gdp_epsilon(mu, delta)
    assert cost.to_epsilon(delta, "gdp") == pytest.approx(exact, rel=1e-12)
    assert exact <= cost.to_epsilon(delta, "pld") <= exact * (1 + 2e-4) + 1e-6
    assert cost.to_epsilon(delta, "rdp") == pytest.approx(zcdp_epsilon(mu**2 / 2, delta), rel=1e-6)
    lowest = _certificate.compute_lower_epsilon(
        [_certificate.build_gaussian_pair(mu, 1.0, 1)], delta
    )
    assert exact * (1 - 2e-3) - 1e-4 <= lowest <= exact


def test_a_finer_search_over_orders_changes_epsilon_by_less_than_1e_4():
    orders = 1 + 10 ** np.linspace(-3, 6, 4_001)
    for release in RELEASES:
        single_curve = Composition.from_release(release, 1).rdp(orders)
        for count in (1, 300):
            cost, dense = Composition.from_release(release, count), count * single_curve
            fine = np.log1p(-1 / orders) - (math.log(1e-5) + np.log(orders)) / (orders - 1)
            assert cost.to_epsilon(1e-5) <= float((dense + fine).min()) + 1e-4 * 0.1
            mironov = dense + math.log(1e5) / (orders - 1)
            assert cost.to_epsilon(1e-5, "rdp_mironov") <= float(mironov.min()) + 1e-4 * 0.1


def delta_of(cost, epsilon):
    """Return delta by the privacy loss distribution; without batches if it is beyond their grid."""
    batched = pld_delta(cost._build_batched_pairs(), epsilon)
    return batched if batched < 1 else pld_delta(cost.list_dominating_pairs(), epsilon)


@pytest.mark.parametrize("orders", [(37.0, 41.7), (2.0, 8.0, 99.0), (3.3,)])
def test_a_curve_is_converted_at_the_orders_that_it_states(orders):
    """Between two of them the curve is interpolated, which costs more at every other order."""
    rdp, delta = 0.05, 1e-5
    stated = [
        rdp + math.log1p(-1 / alpha) - (math.log(delta) + math.log(alpha)) / (alpha - 1)
        for alpha in orders
    ]
    found = Composition.from_release(RenyiCurve(orders, (rdp,) * len(orders))).to_epsilon(delta)
    assert found <= min(stated) * (1 + 1e-10)


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_delta_and_epsilon_are_inverse(release):
    cost = Composition.from_release(release, 50)
    epsilon = cost.to_epsilon(1e-5, "pld")
    assert delta_of(cost, epsilon) <= 1.0005e-5
    assert delta_of(cost, epsilon * 0.98) > 1e-5


def test_a_threshold_witness_is_the_exact_binomial_divergence():
    witness = _certificate.build_threshold_test_pair(-0.2, 1 / 3, 0.4, 60)
    mp.dps = 50
    q = mp.ncdf(mpf(-0.2))
    r = mpf(0.6) * q + mpf(0.4) * mp.ncdf(mpf(-0.2) + mpf(1) / 3)
    lowest = _certificate.compute_lower_epsilon([witness], 1e-4)
    assert exact_binomial_delta(q, r, 60, lowest) >= mpf(1e-4)
    assert exact_binomial_delta(q, r, 60, lowest * 1.01) < mpf(1e-4)


@pytest.mark.parametrize(
    ("sigma", "gamma", "count"),
    [(1.0, 0.01, 1000), (14.0, 0.2, 4000), (0.6, 0.3, 3), (20.0, 0.3, 100_000), (400.0, 1e-3, 9)],
)
def test_certificates_of_sampled_gaussians_leave_little(sigma, gamma, count):
    upper = Composition.from_release(SubsampledGaussian(sigma, gamma), count).to_epsilon(
        1e-5, "pld"
    )
    lower = _certificate.compute_lower_epsilon(
        [_certificate.build_gaussian_pair(1 / sigma, gamma, count)], 1e-5
    )
    assert upper * 0.99 - 1e-3 <= lower <= upper


def test_methods_are_those_that_hold():
    assert Composition.from_release(SubsampledGaussian(2.0)).list_methods() == METHODS
    assert Composition.from_release(SAMPLED).list_methods() == ("rdp_mironov", "rdp", "pld")
    assert Composition.from_release(RenyiCurve((2.0,), (0.1,))).list_methods() == (
        "rdp_mironov",
        "rdp",
    )
    with pytest.raises(InvalidInput, match="'method'"):
        Composition.from_release(RenyiCurve((2.0,), (0.1,))).to_epsilon(1e-5, "pld")
    with pytest.raises(InvalidInput, match="'method'"):
        Composition.from_release(SAMPLED).to_epsilon(1e-5, "moments")


def test_the_order_of_terms_is_declared_and_survives_a_renaming():
    renamed = type("Gaussian", (SubsampledGaussian,), {})
    releases = [
        DiscreteGaussian(8.0, 1),
        DiscreteLaplace(8.0, 1),
        FiniteLosses((-0.1, 0.1), (0.475, 0.525)),
        LaplaceNumber(0.1),
        NoisyLabel(20.0),
        ProbabilisticDisclosure(1e-9),
        RenyiCurve((2.0,), (0.1,)),
        Screening(9, 5.0, 20.0),
        SubsampledGaussian(10.0, 0.5),
        SubsampledGaussian(9.0, 0.5),
        SubsampledGaussian(9.0),
    ]
    assert sorted(releases, key=repr) == releases, "the order of earlier versions"
    releases[-1] = renamed(9.0)
    for order in (releases, releases[::-1]):
        terms = compose(map(Composition.from_release, order)).terms
        assert [release for release, _ in terms] == releases


def test_a_curve_of_nan_is_refused_and_never_free():
    class Broken:
        sort_name = "broken"

        def rdp(self, orders):
            return orders * math.nan

        def build_dominating_pair(self):
            return None

    cost = Composition.from_release(SubsampledGaussian(1.0)).add(Composition(((Broken(), 1),)))
    with pytest.raises(InvalidInput, match="no valid RDP curve"):
        cost.to_epsilon(1e-5)


@pytest.mark.parametrize("delta", [0, 1, -0.1, math.nan, math.inf, "x"])
def test_bad_delta_is_refused(delta):
    with pytest.raises(InvalidInput, match="'delta'"):
        Composition.from_release(SAMPLED).to_epsilon(delta)


def test_gaussians_merge_exactly_in_the_pld():
    merged = compute_pld_epsilon([(GaussianPair(0.1), 400), (GaussianPair(0.5), 4)], 1e-5)
    assert merged == pytest.approx(gdp_epsilon(math.sqrt(5), 1e-5), rel=1e-4)
    assert gdp_delta(math.sqrt(5), merged) <= 1e-5


class Mirrored:
    """A dominating pair with its two distributions exchanged."""

    is_symmetric, infinite_masses = False, (0.0, 0.0)

    def __init__(self, pair):
        self.pair = pair

    def get_gaussian_mu(self):
        return None

    def compute_excess(self, losses):
        inside = np.minimum(losses, 50.0)
        return np.exp(inside) * self.pair.compute_excess(-inside) * (losses < 50)


@pytest.mark.parametrize("gamma", [0.05, 0.6])
def test_both_directions_are_composed(gamma):
    pair = GaussianPair(0.7, gamma)
    forward = compute_pld_epsilon([(pair, 30)], 1e-5)
    backward = compute_pld_epsilon([(Mirrored(pair), 30)], 1e-5)
    assert backward == pytest.approx(forward, rel=1e-3)
