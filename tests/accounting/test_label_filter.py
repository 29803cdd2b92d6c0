"""Labels in a Gaussian filter: prices against brute force over margins, losses and whole lives."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy.special import log_ndtr, ndtr

from vicinal.accounting import account, label_filter
from vicinal.accounting.budget import UNITS, gdp_epsilon, unit_rate, zcdp_budget
from vicinal.accounting.charges import DEAREST, charge, find_affordable_norm, label_charge
from vicinal.accounting.gaussian import grid_excess
from vicinal.accounting.label_filter import charge_table
from vicinal.errors import InvalidInput

TAIL = 5e-8
MARGINS = np.linspace(-9, 5, 281)


@pytest.fixture(scope="module", params=[0.5, 1.0, 4.0])
def table(request):
    return charge_table(zcdp_budget(request.param, 0.99e-5), TAIL)


def gaussian(eps, mu):
    """Return the hockey-stick divergence of N(mu, 1) from N(0, 1) at losses `eps`."""
    return ndtr(mu / 2 - eps / mu) - np.exp(eps + log_ndtr(-mu / 2 - eps / mu))


def beside(eps, shift, after):
    """Return the worst threshold test of a shift followed by `after(eps)`, at each loss."""
    won = log_ndtr(MARGINS + shift)
    lost = log_ndtr(-MARGINS - shift)
    win, lose = log_ndtr(MARGINS) - won, log_ndtr(-MARGINS) - lost
    eps = np.asarray(eps)[:, None]
    return (np.exp(won) * after(eps + win) + np.exp(lost) * after(eps + lose)).max(axis=1)


def excess(table, shift, left, scaled=1.0):
    """Return how far a label passes what it is charged for, relative to that, at any loss."""
    whole = 2 * table.budget
    mu, price = math.sqrt(left * whole), scaled * float(table.share(shift, left)) * shift**2
    eps = np.linspace(0, 9 * mu + mu**2, 400)
    after = math.sqrt(left * whole - price)
    allowed = gaussian(eps, mu) + TAIL * price / whole
    narrow = math.sqrt(table.narrow) * shift
    return float((beside(eps, narrow, lambda e: gaussian(e, after)) / allowed).max()) - 1


def cells(table, rng, count):
    """Return shifts and residues at the corners where a share is dearest: (shift, left)."""
    rows, width = table.shares.shape
    for _ in range(count):
        row, cell = rng.integers(1, rows), rng.integers(1, width - 1)
        shift = (cell + rng.choice([1 - 1e-9, 0.5, 1e-9])) * row / table.density
        spent = DEAREST * table.narrow * shift**2 / (2 * table.budget)
        left = (row / rows) ** 2 * (1 + 1e-9) + spent
        if left <= 1 and table.shares[row, cell] < 1:
            yield shift, left


@pytest.mark.parametrize("classes", [None, 2])
def test_no_margin_and_no_loss_passes_the_price(table, classes):
    table, rng = charge_table(table.budget, TAIL, classes), np.random.default_rng(1)
    found = [excess(table, *case) for case in cells(table, rng, 75)]
    assert len(found) > 25
    assert max(found) <= 1e-9


def test_prices_a_tenth_lower_are_contradicted(table):
    """The share of a row covers a whole row of residues: at its own residue it is nearly exact."""
    rng = np.random.default_rng(2)
    rows = len(table.shares)
    caught = total = 0
    for shift, left in cells(table, rng, 60):
        share = float(table.share(shift, left))
        after = (left - DEAREST * shift**2 / (2 * table.budget)) + share * shift**2 / (
            2 * table.budget
        )
        if after <= 1 and rows * math.sqrt(left) > 3:
            cheaper = replace(table, shares=0.9 * table.shares)
            whole, price = 2 * table.budget, float(cheaper.share(shift, left)) * shift**2
            mu = math.sqrt(after * whole)
            eps = np.linspace(0, 9 * mu + mu**2, 400)
            rest = math.sqrt(after * whole - price)
            worst = beside(eps, shift, lambda e, rest=rest: gaussian(e, rest))
            caught += bool((worst > gaussian(eps, mu) + TAIL * price / whole).any())
            total += 1
    assert total > 10
    assert caught > 0.8 * total


def life(table, shifts, scaled=1.0):
    """Return the charges of labels, one after the other, as `mu^2`, and what is left of it."""
    whole = left = 2 * table.budget
    charged = []
    for planned in shifts:
        shift = planned
        price = scaled * float(table.share(shift, left / whole)) * shift**2
        if table.narrow * shift**2 > left:  # a last contribution is cut to what votes could afford
            shift, price = math.sqrt(left), scaled * left
        charged.append((shift, price))
        left -= price
    return charged, left


def worst_life(table, shifts, scaled=1.0):
    """Return how far a life of labels, and a vote of what is left, passes its claim at any loss.

    The threshold of every label follows the answers before it, as an adversary's would.
    """
    charged, left = life(table, shifts, scaled)
    whole = 2 * table.budget
    mu = math.sqrt(whole)
    grid = np.linspace(-8 * mu - mu**2, 12 * mu + mu**2, 3001)
    if left > 1e-9 * whole:
        values = gaussian(grid, math.sqrt(left))
    else:
        values = np.maximum(-np.expm1(grid), 0)
    for shift, _ in reversed(charged):
        inner = values

        def after(eps, inner=inner):
            # Convex in exp(eps): interpolation there is from above, and the line beyond is 1 - E.
            found = np.interp(np.exp(eps), np.exp(grid), inner)
            return np.where(eps < grid[0], -np.expm1(eps), found)

        values = beside(grid, shift, after)
    allowed = gaussian(grid, mu) + TAIL
    asked = (grid >= 0) & (grid <= 8 * mu)
    return float((values / allowed)[asked].max()) - 1


LIVES = {
    "even": [0.35] * 6,
    "one large": [0.8, 0.2, 0.2, 0.2],
    "growing": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
    "to the end": [0.5] * 9,
    "small": [0.16] * 12,
}


@pytest.mark.parametrize("shifts", LIVES.values(), ids=LIVES)
def test_a_life_of_labels_keeps_the_budget_whatever_the_thresholds(table, shifts):
    mu = math.sqrt(2 * table.budget)
    assert worst_life(table, [mu * share for share in shifts]) <= 1e-4


@pytest.mark.parametrize("name", ["even", "small"])
def test_a_life_that_is_charged_a_tenth_less_passes_its_budget(table, name):
    mu = math.sqrt(2 * table.budget)
    assert worst_life(table, [mu * share for share in LIVES[name]], 0.9) > 0.01


def test_shares_are_what_theory_says_they_are(table):
    """2 / pi for very small shifts; never below; not decreasing in the shift."""
    assert table.share(0.0) == pytest.approx(2 / math.pi, rel=0.01)
    assert table.shares.min() > 2 / math.pi
    assert (np.diff(table.shares, axis=1) >= 0).all()
    assert (table.shares[0] == 1).all()
    assert (table.shares[:, -1] == 1).all()
    below = table.shares[table.shares < 1]
    assert below.max() <= DEAREST


def test_a_price_to_40_digits():
    """The pieces of the certificate, at one point, against integrals to 40 digits."""
    mp.dps = 40
    left, shift, y, b = mpf("0.2"), mpf("0.06"), mpf("4.5"), mpf("-1.1")
    q, p = mp.ncdf(b), mp.ncdf(b + shift)
    eps = left * (left / 2 + y)

    def hockey(loss, mu):
        return mp.ncdf(mu / 2 - loss / mu) - mp.exp(loss) * mp.ncdf(-mu / 2 - loss / mu)

    lost, won = mp.log((1 - q) / (1 - p)), mp.log(q / p)
    gained = p * hockey(eps + won, left) + (1 - p) * hockey(eps + lost, left) - hockey(eps, left)
    truth = gained * 2 * left / (shift**2 * mp.npdf(y))
    gain, loss = (np.array([[float(r)]]) for r in (-won, -lost))
    ours = sum(
        2 * float(weight) * float(ratio) ** 2
        * label_filter._Terms(r, float(left), float(y)).next()[0, 0]
        for weight, ratio, r in ((q, won / shift, gain), (1 - q, lost / shift, loss))
    )  # fmt: skip
    assert ours == pytest.approx(float(truth), rel=1e-10)


@pytest.mark.parametrize("steep", [0.05, 1.0, 3.0, label_filter._STEEP])
@pytest.mark.parametrize("y", [-0.3, 2.0, 5.0, 9.0, 13.0, label_filter._FARTHEST])
@pytest.mark.parametrize("left", [0.3, label_filter._LARGEST])
def test_the_quadrature_is_as_exact_as_is_allowed_for(steep, y, left):
    mp.dps = 30
    for sign in (1, -1):
        r = sign * steep * left
        truth = mp.quad(
            lambda u, r=r, sign=sign: (mp.exp(r) - mp.exp(r * u)) / r
            * mp.exp(sign * y * steep * u - (steep * u) ** 2 / 2),
            np.linspace(0, 1, 9).tolist(),
        )  # fmt: skip
        ours = label_filter._Terms(np.array([[r]]), left, y).next()[0, 0]
        assert ours == pytest.approx(float(truth), rel=5e-7)


@settings(deadline=None, max_examples=200)
@given(
    st.integers(0, 2**30),
    st.integers(0, UNITS),
    st.integers(2**22, 2**33),
    st.sampled_from([None, 2, 10]),
)
def test_a_charge_covers_the_share_and_no_more_than_is_left(norm, remaining, scale, classes):
    table = charge_table(zcdp_budget(1.0, 0.99e-5), TAIL, classes)
    rate = table.narrow * unit_rate(scale, table.budget)
    norm = int(find_affordable_norm(min(norm, scale), remaining, rate))
    units = int(label_charge(norm, remaining, rate, table.density / scale, table.shares))
    assert 0 <= units <= int(charge(norm * norm, rate)) <= max(remaining, 0)
    share = float(table.share(norm / scale, remaining / UNITS))
    exact = Fraction(norm, scale) ** 2 / 2 * Fraction(share) / Fraction(table.budget) * UNITS
    assert units >= exact * (1 - Fraction(1, 10**12))
    assert units <= exact * (1 + Fraction(1, 10**9)) + 1


def test_classes_narrow_a_shift_and_two_cost_half():
    budget = zcdp_budget(1.0, 0.99e-5)
    shares = [float(charge_table(budget, TAIL, c).share(0.05)) for c in (2, 3, 10, 65536, None)]
    assert (np.diff(shares) >= 0).all()
    assert shares[0] == pytest.approx(shares[-1] / 2, rel=0.03)


def test_the_worth_of_a_budget_is_what_lives_of_its_shift_spend(table):
    for count in (10, 40, 200):
        shift = math.sqrt(2 * table.budget / count)
        charged, _ = life(table, [shift] * (2 * count))
        spent = sum(one**2 for one, price in charged if price > 0)
        assert table.worth(shift) == pytest.approx(spent / 2, rel=0.1)


@pytest.mark.parametrize("delta", [1e-40, 1e-200, 1e-300])
def test_beside_a_tail_too_small_for_the_certificate_labels_cost_what_votes_cost(delta):
    assert (charge_table(zcdp_budget(1.0, delta), 0.005 * delta).shares == 1).all()


def test_a_plan_prices_the_tail_that_a_label_makes_use_of():
    """One label passes the Gaussian of its budget at a delta far below the budget's own."""
    table = charge_table(zcdp_budget(1.0, 0.99e-5), TAIL)
    whole, delta = 2 * table.budget, 1e-9
    shift = 0.5 * math.sqrt(whole)
    after = math.sqrt(whole - float(table.share(shift)) * shift**2)
    eps = gdp_epsilon(math.sqrt(whole), delta)
    assert beside([eps], shift, lambda e: gaussian(e, after))[0] > delta
    label = {"kind": "ind_knn", "epsilon": 1.0, "delta": 1e-5, "release": "label"}
    with pytest.raises(InvalidInput, match="no method gives a bound"):
        account({"delta": delta, "releases": [label]})
    assert 1.0 <= account({"delta": 1e-5, "releases": [label]})["epsilon"] <= 1.001


def test_without_a_tail_labels_cost_what_votes_cost():
    table = charge_table(0.03, 0.0)
    assert table.share(0.1) == 1
    assert table.worth(0.1) == pytest.approx(0.03)


@pytest.mark.parametrize("scale", [300, 3000])
@pytest.mark.parametrize("centre", [0.0, 0.37])
def test_a_test_of_discrete_noise_is_one_of_continuous_noise_up_to_the_grids_excess(scale, centre):
    """Over all thresholds: power by the exact sums, against the trade-off of the shift."""
    z = np.arange(-12 * scale, 12 * scale + 1)
    mass = np.exp(-((z - centre) ** 2) / (2 * scale**2))
    mass /= mass.sum()
    above = np.concatenate([np.cumsum(mass[::-1])[::-1], [0]])
    for shift in (1, scale // 10, scale):
        at = np.arange(2 * scale, 22 * scale, max(1, scale // 50))
        q, p = above[at], above[at - shift]
        allowed = ndtr(np.asarray(_ndtri(q)) + shift / scale)
        assert (p - allowed).max() <= grid_excess(scale, shift)
        assert (allowed - shift - p).max() < 1  # the control: the two are not far apart
        assert np.abs(p - allowed)[np.abs(at - 12 * scale) < 2 * scale].max() < 1e-3


def _ndtri(q):
    from scipy.special import ndtri

    return ndtri(np.clip(q, 1e-300, 1 - 1e-16))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, "1", True, None])
def test_nonsense_is_refused_by_name(bad):
    with pytest.raises(InvalidInput, match="budget"):
        charge_table(bad, TAIL)
    with pytest.raises(InvalidInput, match="tail"):
        charge_table(0.03, bad)
    if bad is not None:
        with pytest.raises(InvalidInput, match="classes"):
            charge_table(0.03, TAIL, bad)
