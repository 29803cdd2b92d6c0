"""Epsilon and delta to budgets and back."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

from loss_tools import exact_gaussian_divergence
from vicinal.accounting.budget import METHODS, gdp_delta, gdp_epsilon, zcdp_epsilon
from vicinal.accounting.budget import zcdp_budget as budget
from vicinal.errors import InvalidInput

pytestmark = pytest.mark.quick

PUBLISHED = {0.5: (0.00851, 0.01011), 1: (0.03056, 0.03593), 1.5: (0.06420, 0.07497),
             2: (0.10826, 0.12578), 4: (0.37314, 0.42775)}  # fmt: skip


@pytest.mark.parametrize("epsilon", PUBLISHED)
def test_budgets_at_delta_1e5(epsilon):
    rdp, gdp = PUBLISHED[epsilon]
    assert budget(epsilon, 1e-5, "rdp") == pytest.approx(rdp, abs=6e-6)
    assert budget(epsilon, 1e-5, "gdp") == pytest.approx(gdp, abs=6e-6)


@settings(deadline=None, max_examples=300)
@given(st.floats(0.01, 12), st.floats(0, 30))
def test_gdp_delta_is_an_upper_bound_and_tight(mu, epsilon):
    mp.dps = 50
    truth = exact_gaussian_divergence(mu, epsilon)
    ours = gdp_delta(mu, epsilon)
    assert mpf(ours) >= truth
    if truth > mpf("1e-250"):
        first = mp.ncdf(mu / 2 - epsilon / mu)
        assert mpf(ours) <= truth + mpf("1.1e-10") * (1 + abs(mp.log(first))) * first


def epsilon_of(rho, delta, method):
    return gdp_epsilon(math.sqrt(2 * rho), delta) if method == "gdp" else zcdp_epsilon(rho, delta)


@settings(deadline=None, max_examples=50)
@given(st.floats(0.01, 20), st.floats(1e-12, 0.5), st.sampled_from(METHODS))
def test_a_budget_never_exceeds_its_target_and_comes_near(epsilon, delta, method):
    rho = budget(epsilon, delta, method)
    back = epsilon_of(rho, delta, method)
    assert back <= epsilon * (1 + 1e-12)
    assert epsilon_of(rho * 1.001, delta, method) >= epsilon * (1 - 1e-6)


@settings(deadline=None, max_examples=60)
@given(st.floats(1e-20, 20), st.floats(1e-15, 0.5))
def test_rdp_epsilon_is_an_upper_bound(rho, delta):
    """Any order bounds epsilon; the value returned is that of some order, in 50 digits."""
    mp.dps = 50

    def epsilon_at(log_excess):
        excess = mp.exp(log_excess)
        alpha = 1 + excess
        return rho * alpha + mp.log(excess / alpha) - (mp.log(delta) + mp.log(alpha)) / excess

    centre = mpf(math.log(math.log(1 / delta) / rho + 1) / 2)
    low, high = centre - 12, centre + 12
    for _ in range(60):  # ternary search: the function of log(alpha - 1) has one minimum
        third = (high - low) / 3
        low, high = (
            (low, high - third)
            if epsilon_at(low + third) < epsilon_at(high - third)
            else (low + third, high)
        )
    best = max(epsilon_at(low), mpf(0))
    assert mpf(zcdp_epsilon(rho, delta)) >= best
    assert mpf(zcdp_epsilon(rho, delta)) <= best * (1 + mpf("1e-6")) + mpf("1e-12")


def test_edges():
    assert gdp_delta(0, 1) == 0
    assert gdp_epsilon(0, 1e-5) == 0
    assert zcdp_epsilon(0, 1e-5) == 0
    assert gdp_delta(100, 0) == pytest.approx(1)
    assert math.isfinite(gdp_epsilon(50, 1e-300))


REFUSED = [
    *itertools.product(("epsilon", "delta"), (math.nan, math.inf, -1.0, 0.0, "1", True, None)),
    ("delta", 1.0),
    ("delta", 1.5),
]


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_invalid_arguments_are_refused_by_name(name, value):
    with pytest.raises(InvalidInput, match=f"'{name}' parameter must be a finite number > 0"):
        budget(**{"epsilon": 1.0, "delta": 1e-5, name: value})
