"""Charges in integer units: always enough, never more than is left."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from vicinal.accounting.budget import UNITS, gdp_delta, unit_rate
from vicinal.accounting.charges import charge, find_affordable_norm
from vicinal.mechanisms.charging import OnePrice, scale_down

pytestmark = pytest.mark.quick

scales = st.integers(2, 2**33)
budgets = st.floats(1e-12, 10)


@settings(deadline=None, max_examples=500)
@given(st.integers(0, 2**31), scales, budgets)
def test_a_charge_is_never_below_the_true_cost_and_barely_above(norm, scale, budget):
    truth = Fraction(norm) ** 2 * UNITS / (2 * Fraction(scale) ** 2 * Fraction(budget))
    if truth > 2**61:
        assert charge(norm * norm, unit_rate(scale, budget)) > 2**60
        return
    units = int(charge(norm * norm, unit_rate(scale, budget)))
    assert truth <= units <= truth * (1 + Fraction(1, 2**48)) + 1


@settings(deadline=None, max_examples=500)
@given(st.integers(0, 2**30), st.integers(0, UNITS), scales, budgets)
def test_afford_is_the_largest_norm_that_can_be_paid(norm, remaining, scale, budget):
    rate = unit_rate(scale, budget)
    allowed = int(find_affordable_norm(norm, remaining, rate))
    assert 0 <= allowed <= norm
    assert charge(allowed * allowed, rate) <= remaining
    if allowed < norm:
        assert charge((allowed + 1) ** 2, rate) > remaining


def _price(scale, rate):
    return OnePrice(scale, rate, rate, 0.0, np.ones((1, 1)), label_only=False)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.integers(0, 2**29), min_size=1, max_size=12),
    st.integers(0, UNITS),
    st.integers(2**22, 2**40),
    st.floats(1e-9, 2),
)
def test_scaled_down_vectors_are_paid_for(values, remaining, scale, budget):
    rate = unit_rate(scale, budget)
    vector = np.array(values, dtype=np.int64)
    cost = scale_down(vector, np.arange(len(vector)), remaining, _price(scale, rate))
    assert 0 <= cost <= remaining
    assert cost == charge(int((vector.astype(object) ** 2).sum()), rate)
    assert (vector <= values).all()
    assert (vector >= 0).all()
    assert (vector.astype(object) ** 2).sum() <= scale**2


def test_a_rate_that_rounds_down_would_be_caught():
    """The plain quotient undercharges by a hair; the property above sees it."""
    scale, budget, norm = 3 * 2**21, 0.1, 2**21 + 1
    exact = UNITS / (2 * Fraction(scale) ** 2 * Fraction(budget))
    assert float(exact) < unit_rate(scale, budget)
    assert Fraction(unit_rate(scale, budget)) > exact
    assert charge(norm * norm, unit_rate(scale, budget)) >= norm * norm * exact


def test_a_cost_beyond_any_budget_does_not_wrap_around():
    rate = unit_rate(2**22, 1e-9)
    assert charge(2**60, rate) == 2**62
    assert find_affordable_norm(2**30, UNITS, rate) < 2**22
    vector = np.array([2**29, 2**29], dtype=np.int64)
    assert 0 <= scale_down(vector, np.arange(2), UNITS, _price(2**30, rate)) <= UNITS


def adaptive_delta(first, left, stop, epsilon):
    """Return delta of a Gaussian step of `first`, and one of `left` unless a draw passes `stop`.

    The analyst sees the first draw z, whose loss is first z - first^2 / 2, and goes on where it
    likes. By quadrature over z; a Gaussian step's own delta is exact.
    """
    nodes, width = np.linspace(-12, 12, 24_001, retstep=True)
    density = np.exp(-(nodes**2) / 2) / np.sqrt(2 * np.pi)
    loss = first * nodes - first**2 / 2
    rest = epsilon - loss
    alone = np.maximum(0.0, -np.expm1(rest))
    on = ndtr(left / 2 - rest / left) - np.exp(rest) * ndtr(-left / 2 - rest / left)
    return float((density * np.exp(loss) * np.where(nodes > stop, alone, on)).sum() * width)


@pytest.mark.parametrize("stop", [-1.0, 0.0, 0.7, 13.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_an_analyst_who_stops_where_it_likes_gets_no_more_than_the_whole_budget(stop, epsilon):
    """Squares of mu that sum to at most M^2 along each path are M-GDP: proof note of votes."""
    whole, first = 1.2, 0.8
    left = np.sqrt(whole**2 - first**2)
    found, allowed = adaptive_delta(first, left, stop, epsilon), gdp_delta(whole, epsilon)
    assert found <= allowed + 1e-9
    assert (found > allowed - 1e-9) == (stop > 12), "all of it where nobody stops"


def test_a_refill_on_one_path_is_seen_by_that_quadrature():
    assert adaptive_delta(0.8, 1.2, 1.5, 0.5) > gdp_delta(1.2, 0.5)
