"""Noisy counts, stated RDP curves and stated losses, against dp-accounting and exact values."""

import math

import mpmath
import numpy as np
import pytest

from loss_tools import exact_binomial_delta, pld_delta
from vicinal.accounting import account, calibrate
from vicinal.accounting._counts import (
    DiscreteGaussian,
    DiscreteLaplace,
    FiniteLosses,
    LaplaceNumber,
    RenyiCurve,
)
from vicinal.accounting.composition import Composition
from vicinal.errors import InvalidInput

DP_ACCOUNTING = {
    "laplace": (LaplaceNumber(3 / 40), 40.0, 3.0),
    "discrete_laplace": (DiscreteLaplace(40.0, 3), 1 / 40, 3),
    "discrete_gaussian": (DiscreteGaussian(40.0, 3), 40.0, 3),
}
"""By mechanism: our release, and the parameters that dp-accounting takes for it."""


@pytest.mark.parametrize("name", DP_ACCOUNTING)
@pytest.mark.parametrize("count", [10, 300])
def test_losses_compose_as_those_of_dp_accounting(name, count):
    from dp_accounting.pld import privacy_loss_distribution as pld  # takes long to import

    release, *parameters = DP_ACCOUNTING[name]
    build_reference = getattr(pld, f"from_{name}_mechanism")
    reference = build_reference(*parameters, value_discretization_interval=2e-5)
    ours = Composition.from_release(release, count).to_epsilon(1e-6, "pld")
    assert ours == pytest.approx(
        reference.self_compose(count).get_epsilon_for_delta(1e-6), rel=5e-3
    )


@pytest.mark.parametrize("size", [1e-7, 1e-3, 0.04, 0.3, 2.0, 40.0])
def test_divergences_of_laplace_noise_are_exact(size):
    with mpmath.workdps(60):
        for order in (1.0001, 2, 3.7, 500):
            a, e = mpmath.mpf(order), mpmath.mpf(size)
            value = a * mpmath.exp((a - 1) * e) + (a - 1) * mpmath.exp(-a * e)
            exact = mpmath.log(value / (2 * a - 1)) / (a - 1)
            (ours,) = LaplaceNumber(size).rdp(np.array([order]))
            assert abs(ours / exact - 1) < 1e-11


def hockey_stick(losses, masses, epsilon):
    """Return the divergence of a finite pair at `epsilon`, with many digits."""
    with mpmath.workdps(40):
        terms = zip(map(mpmath.mpf, losses), map(mpmath.mpf, masses), strict=True)
        return mpmath.fsum(p * -mpmath.expm1(epsilon - x) for x, p in terms if x > epsilon)


@pytest.mark.parametrize(
    "release", [DiscreteLaplace(2.0, 5), DiscreteLaplace(300.0, 40), DiscreteGaussian(7.0, 3)]
)
def test_profiles_of_finite_laws_are_exact_in_both_directions(release):
    pair = release.build_dominating_pair()
    for epsilon in (0.0, 1e-6, 0.1, float(pair.losses[-2]) * 0.999):
        exact = hockey_stick(pair.losses, pair.masses, epsilon)
        assert abs(pair.compute_excess(np.array([epsilon]))[0] - exact) < 1e-11 * exact + 1e-39
        below = pair.compute_excess(np.array([-epsilon]))[0]
        assert below == pytest.approx(math.exp(-epsilon) * float(exact), rel=1e-9)


def test_a_pair_that_is_not_symmetric_is_read_in_both_directions():
    losses, masses = (-0.2, 0.05, 0.4), (0.3, 0.45, 0.25)
    stated = FiniteLosses(losses, masses)
    pair = stated.build_dominating_pair()
    masses_without = np.array(masses) * np.exp(-np.array(losses))
    mirrored = hockey_stick([-x for x in losses], masses_without, 0.1) + (1 - masses_without.sum())
    assert math.exp(0.1) * pair.compute_excess(np.array([-0.1]))[0] == pytest.approx(
        float(mirrored)
    )
    assert np.isinf(stated.rdp(np.array([2.0]))).all()  # infinite loss in the other direction
    assert math.isfinite(
        account(
            {
                "delta": 0.2,
                "releases": [
                    {"kind": "pld", "losses": list(losses), "probabilities": list(masses)}
                ],
            }
        )["epsilon"]
    )


@pytest.mark.parametrize(("size", "count"), [(0.1, 50), (0.03, 200), (0.5, 17), (2.0, 2), (2.0, 1)])
def test_randomised_response_by_its_losses_is_exact(size, count):
    delta, chance = 1e-5, 1 / (1 + math.exp(-size))
    release = {"kind": "pld", "losses": [-size, size], "probabilities": [1 - chance, chance]}
    price = account({"delta": delta, "releases": [{**release, "count": count}]})
    assert exact_binomial_delta(1 - chance, chance, count, price["epsilon"]) <= delta
    assert exact_binomial_delta(1 - chance, chance, count, price["epsilon"] * 0.999) > delta
    assert 0.99 * price["epsilon"] < price["lower"] <= price["epsilon"]
    pair = FiniteLosses((-size, size), (1 - chance, chance)).build_dominating_pair()
    for epsilon in (0.0, 0.3 * size * math.sqrt(count), 1.4 * size * math.sqrt(count)):
        truth = exact_binomial_delta(1 - chance, chance, count, epsilon)
        assert truth * (1 - 1e-12) <= pld_delta([(pair, count)], epsilon) <= truth + 2e-3


def test_a_stated_curve_costs_what_its_release_does():
    orders = np.concatenate([np.linspace(1.1, 12, 60), np.arange(13, 80)])
    true_rdp = Composition.from_release(LaplaceNumber(0.2), 1).rdp(orders)
    stated = {"kind": "renyi", "orders": orders.tolist(), "rdp": true_rdp.tolist(), "count": 30}
    real = {"kind": "laplace", "scale": 5.0, "count": 30}
    curve, truth = (account({"delta": 1e-5, "releases": [release]}) for release in (stated, real))
    assert (
        truth["by_method"]["rdp"] <= curve["by_method"]["rdp"] <= truth["by_method"]["rdp"] * 1.01
    )
    assert set(curve["by_method"]) == {"rdp", "rdp_mironov"}
    interpolated = RenyiCurve((2.0, 4.0), (0.1, 0.3)).rdp(np.array([1.5, 2.0, 3.0, 4.0, 5.0]))
    assert interpolated == pytest.approx([0.1, 0.1, (0.1 + 0.9) / 2 / 2, 0.3, math.inf])


def test_a_programme_is_cheaper_than_its_parts():
    programme = [
        {"kind": "ind_knn", "epsilon": 0.5},
        {"kind": "laplace", "scale": 20.0, "count": 12},
        {"kind": "discrete_gaussian", "sigma": 40.0, "cells": 8},
    ]
    price = account({"delta": 1e-6, "releases": programme})
    assert (
        price["lower"] <= price["epsilon"] < sum(release["alone"] for release in price["releases"])
    )
    calibrated = calibrate({"delta": 1e-6, "releases": programme}, 1.0, "scale", 1)
    assert calibrated.price["epsilon"] <= 1.0 < calibrated.price["epsilon"] * 1.01


@pytest.mark.parametrize(
    "changes", [{"probabilities": [0.5, 0.6]}, {"losses": [-2.0, 0.1]}, {"infinite": 0.2}]
)
def test_probabilities_of_no_law_are_refused(changes):
    good = {"kind": "pld", "losses": [-0.1, 0.1], "probabilities": [0.475, 0.525]}
    assert account({"delta": 0.1, "releases": [good]})["epsilon"] < 0.1
    with pytest.raises(InvalidInput, match="probabilities"):
        account({"delta": 0.1, "releases": [{**good, **changes}]})


def test_releases_of_which_nothing_is_known_together_are_refused():
    """A curve determines no losses, and losses that may be infinite have no RDP curve."""
    losses = {"kind": "pld", "losses": [0.0], "probabilities": [1 - 1e-7], "infinite": 1e-7}
    assert account({"delta": 1e-5, "releases": [losses]})["method"] == "pld"
    curve = {"kind": "renyi", "orders": [2.0], "rdp": [0.1]}
    with pytest.raises(InvalidInput, match="no method gives a bound for these releases together"):
        account({"delta": 1e-5, "releases": [losses, curve]})
