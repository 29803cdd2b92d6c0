"""Noisy counts, and stated curves, beside dp-accounting and exact values."""

import math

import mpmath
import numpy as np
import pytest
from dp_accounting import LaplaceDpEvent, SelfComposedDpEvent
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.rdp import RdpAccountant

from vicinal.accounting import account, calibrate
from vicinal.accounting._composition import Composition
from vicinal.accounting._counts import LaplaceNumber, RenyiCurve

FINE = {"value_discretization_interval": 2e-5}
THEIRS = {
    "laplace": (LaplaceNumber(3 / 40), pld.from_laplace_mechanism(40.0, 3.0, **FINE)),
}


@pytest.mark.parametrize("name", THEIRS)
@pytest.mark.parametrize("count", [10, 300])
def test_losses_compose_as_those_of_dp_accounting(name, count):
    release, theirs = THEIRS[name]
    ours = Composition.of(release, count).to_epsilon(1e-6, "pld")
    assert ours == pytest.approx(theirs.self_compose(count).get_epsilon_for_delta(1e-6), rel=5e-3)


@pytest.mark.parametrize("count", [1, 7])
def test_divergences_of_laplace_noise_are_those_of_dp_accounting(count):
    """Their count of an event is compared with ours: it has been dropped for other events."""
    orders = [1.5, 2, 5, 40]
    theirs = RdpAccountant(orders).compose(SelfComposedDpEvent(LaplaceDpEvent(40 / 3), count))
    ours = Composition.of(LaplaceNumber(3 / 40), count).rdp(orders)
    assert ours == pytest.approx(theirs._rdp, rel=1e-8)


@pytest.mark.parametrize("size", [1e-7, 1e-3, 0.04, 0.3, 2.0, 40.0])
def test_divergences_of_laplace_noise_are_exact(size):
    with mpmath.workdps(60):
        for order in (1.0001, 2, 3.7, 500):
            a, e = mpmath.mpf(order), mpmath.mpf(size)
            value = a * mpmath.exp((a - 1) * e) + (a - 1) * mpmath.exp(-a * e)
            exact = mpmath.log(value / (2 * a - 1)) / (a - 1)
            (ours,) = LaplaceNumber(size).rdp(np.array([order]))
            assert abs(ours / exact - 1) < 1e-11


def test_a_histogram_is_its_cells():
    one = {"kind": "laplace", "scale": 30.0, "count": 6}
    rows = {"kind": "laplace", "scale": 30.0, "count": 2, "cells": 3}
    prices = [account({"delta": 1e-6, "releases": [each]}) for each in (one, rows)]
    assert prices[0]["by_method"] == prices[1]["by_method"]


def test_a_stated_curve_costs_what_its_release_does():
    orders = np.concatenate([np.linspace(1.1, 12, 60), np.arange(13, 80)])
    known = Composition.of(LaplaceNumber(0.2), 1).rdp(orders)
    stated = {"kind": "renyi", "orders": orders.tolist(), "rdp": known.tolist(), "count": 30}
    real = {"kind": "laplace", "scale": 5.0, "count": 30}
    curve, truth = (account({"delta": 1e-5, "releases": [each]}) for each in (stated, real))
    assert (
        truth["by_method"]["rdp"] <= curve["by_method"]["rdp"] <= truth["by_method"]["rdp"] * 1.01
    )
    assert set(curve["by_method"]) == {"rdp", "rdp_mironov"}
    between = RenyiCurve((2.0, 4.0), (0.1, 0.3)).rdp(np.array([1.5, 2.0, 3.0, 4.0, 5.0]))
    assert between == pytest.approx([0.1, 0.1, (0.1 + 0.9) / 2 / 2, 0.3, math.inf])


def test_a_programme_is_cheaper_than_its_parts():
    programme = [
        {"kind": "ind_knn", "epsilon": 0.5},
        {"kind": "laplace", "scale": 20.0, "count": 12},
        {"kind": "gaussian", "sigma": 40.0, "count": 8},
    ]
    price = account({"delta": 1e-6, "releases": programme})
    assert price["lower"] <= price["epsilon"] < sum(each["alone"] for each in price["releases"])
    found = calibrate({"delta": 1e-6, "releases": programme}, 1.0, "scale", 1)
    assert found.price["epsilon"] <= 1.0 < found.price["epsilon"] * 1.01
