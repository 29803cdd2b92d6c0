"""Charges in integer units: never below the true cost, never above the remaining budget."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from vicinal.accounting.budget import UNITS, compute_unit_rate, gdp_delta
from vicinal.accounting.charges import compute_charge, find_affordable_norm
from vicinal.mechanisms.charging import QueryPrice, scale_down_to_budget

pytestmark = pytest.mark.quick

scales = st.integers(2, 2**33)
budgets = st.floats(1e-12, 10)


@settings(deadline=None, max_examples=500)
@given(st.integers(0, 2**31), scales, budgets)
def test_a_charge_is_never_below_the_true_cost_and_barely_above(norm, scale, budget):
    truth = Fraction(norm) ** 2 * UNITS / (2 * Fraction(scale) ** 2 * Fraction(budget))
    if truth > 2**61:
        assert compute_charge(norm * norm, compute_unit_rate(scale, budget)) > 2**60
        return
    units = int(compute_charge(norm * norm, compute_unit_rate(scale, budget)))
    assert truth <= units <= truth * (1 + Fraction(1, 2**48)) + 1


@settings(deadline=None, max_examples=500)
@given(st.integers(0, 2**30), st.integers(0, UNITS), scales, budgets)
def test_afford_is_the_largest_norm_that_can_be_paid(norm, remaining, scale, budget):
    rate = compute_unit_rate(scale, budget)
    allowed = int(find_affordable_norm(norm, remaining, rate))
    assert 0 <= allowed <= norm
    assert compute_charge(allowed * allowed, rate) <= remaining
    if allowed < norm:
        assert compute_charge((allowed + 1) ** 2, rate) > remaining


def _price(scale, rate):
    return QueryPrice(scale, rate, rate, 0.0, np.ones((1, 1)), label_only=False)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.integers(0, 2**29), min_size=1, max_size=12),
    st.integers(0, UNITS),
    st.integers(2**22, 2**40),
    st.floats(1e-9, 2),
)
def test_scaled_down_vectors_are_paid_for(values, remaining, scale, budget):
    rate = compute_unit_rate(scale, budget)
    vector = np.array(values, dtype=np.int64)
    cost = scale_down_to_budget(vector, np.arange(len(vector)), remaining, _price(scale, rate))
    assert 0 <= cost <= remaining
    assert cost == compute_charge(int((vector.astype(object) ** 2).sum()), rate)
    assert (vector <= values).all()
    assert (vector >= 0).all()
    assert (vector.astype(object) ** 2).sum() <= scale**2


def test_a_rate_that_rounds_down_would_be_caught():
    """The unrounded quotient undercharges in the last bits; the property above detects it."""
    scale, budget, norm = 3 * 2**21, 0.1, 2**21 + 1
    exact = UNITS / (2 * Fraction(scale) ** 2 * Fraction(budget))
    assert float(exact) < compute_unit_rate(scale, budget)
    assert Fraction(compute_unit_rate(scale, budget)) > exact
    assert compute_charge(norm * norm, compute_unit_rate(scale, budget)) >= norm * norm * exact


def test_a_cost_beyond_any_budget_does_not_wrap_around():
    rate = compute_unit_rate(2**22, 1e-9)
    assert compute_charge(2**60, rate) == 2**62
    assert find_affordable_norm(2**30, UNITS, rate) < 2**22
    vector = np.array([2**29, 2**29], dtype=np.int64)
    assert 0 <= scale_down_to_budget(vector, np.arange(2), UNITS, _price(2**30, rate)) <= UNITS


def adaptive_delta(first_mu, remaining_mu, stop, epsilon):
    """Return delta of a Gaussian release of `first_mu`, followed by one of `remaining_mu`.

    The analyst sees the first released value z, whose loss is first_mu z - first_mu^2 / 2, and
    stops if z > `stop`. By quadrature over z; the delta of one Gaussian release is exact.
    """
    nodes, width = np.linspace(-12, 12, 24_001, retstep=True)
    density = np.exp(-(nodes**2) / 2) / np.sqrt(2 * np.pi)
    loss = first_mu * nodes - first_mu**2 / 2
    rest = epsilon - loss
    alone = np.maximum(0.0, -np.expm1(rest))
    on = ndtr(remaining_mu / 2 - rest / remaining_mu) - np.exp(rest) * ndtr(
        -remaining_mu / 2 - rest / remaining_mu
    )
    return float((density * np.exp(loss) * np.where(nodes > stop, alone, on)).sum() * width)


@pytest.mark.parametrize("stop", [-1.0, 0.0, 0.7, 13.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_an_analyst_who_stops_where_it_likes_gets_no_more_than_the_whole_budget(stop, epsilon):
    """Squares of mu that sum to at most M^2 along each path are M-GDP: proof note of votes."""
    total_mu, first_mu = 1.2, 0.8
    remaining_mu = np.sqrt(total_mu**2 - first_mu**2)
    delta, allowed = (
        adaptive_delta(first_mu, remaining_mu, stop, epsilon),
        gdp_delta(total_mu, epsilon),
    )
    assert delta <= allowed + 1e-9
    assert (delta > allowed - 1e-9) == (stop > 12), (
        "the whole budget is used if the analyst never stops"
    )


def test_a_refill_on_one_path_is_seen_by_that_quadrature():
    assert adaptive_delta(0.8, 1.2, 1.5, 0.5) > gdp_delta(1.2, 0.5)
