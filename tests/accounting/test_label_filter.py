"""Labels in a Gaussian filter: charges against brute force over margins, losses and sequences."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy.special import log_ndtr, ndtr, ndtri

from loss_tools import exact_gaussian_divergence
from vicinal.accounting import account, label_filter
from vicinal.accounting.budget import UNITS, compute_unit_rate, gdp_epsilon, zcdp_budget
from vicinal.accounting.charges import (
    MAX_REDUCED_SHARE,
    compute_charge,
    compute_label_charge,
    find_affordable_norm,
)
from vicinal.accounting.gaussian import compute_grid_excess
from vicinal.accounting.label_filter import build_charge_table
from vicinal.errors import InvalidInput

TAIL = 5e-8
MARGINS = np.linspace(-9, 5, 281)


@pytest.fixture(scope="module", params=[1.0, 4.0])
def table(request):
    return build_charge_table(zcdp_budget(request.param, 0.99e-5), TAIL)


def gaussian_divergence(eps, mu):
    """Return the hockey-stick divergence of N(mu, 1) from N(0, 1) at losses `eps`."""
    return ndtr(mu / 2 - eps / mu) - np.exp(eps + log_ndtr(-mu / 2 - eps / mu))


def worst_test_divergence(eps, shift, residue_divergence):
    """Return the hockey-stick divergence of the worst threshold test and a release after it.

    The test has the shift `shift`; the release has the divergence `residue_divergence(eps)`. The
    result has the divergence at each of `eps`.
    """
    won = log_ndtr(MARGINS + shift)
    lost = log_ndtr(-MARGINS - shift)
    win, lose = log_ndtr(MARGINS) - won, log_ndtr(-MARGINS) - lost
    eps = np.asarray(eps)[:, None]
    return (
        np.exp(won) * residue_divergence(eps + win) + np.exp(lost) * residue_divergence(eps + lose)
    ).max(axis=1)


def compute_relative_excess(table, shift, remaining_budget, scaled=1.0):
    """Return the largest relative excess of a label's divergence over its charge, over all losses.

    `scaled` is a factor on the charge.
    """
    total_mu2 = 2 * table.budget
    mu = math.sqrt(remaining_budget * total_mu2)
    price = scaled * float(table.compute_share(shift, remaining_budget)) * shift**2
    eps = np.linspace(0, 9 * mu + mu**2, 400)
    residue_mu = math.sqrt(remaining_budget * total_mu2 - price)
    allowed = gaussian_divergence(eps, mu) + TAIL * price / total_mu2
    narrow_shift = math.sqrt(table.squared_shift_factor) * shift
    worst = worst_test_divergence(eps, narrow_shift, lambda e: gaussian_divergence(e, residue_mu))
    return float((worst / allowed).max()) - 1


def sample_corners(table, rng, count):
    """Yield (shift, remaining budget) at corners of cells, where the table has the least slack."""
    rows, width = table.shares.shape
    for _ in range(count):
        row, cell = rng.integers(1, rows), rng.integers(1, width - 1)
        shift = (cell + rng.choice([1 - 1e-9, 0.5, 1e-9])) * row / table.cells_per_shift
        spent = MAX_REDUCED_SHARE * table.squared_shift_factor * shift**2 / (2 * table.budget)
        remaining_budget = (row / rows) ** 2 * (1 + 1e-9) + spent
        if remaining_budget <= 1 and table.shares[row, cell] < 1:
            yield shift, remaining_budget


@pytest.mark.parametrize("classes", [None, 2])
def test_no_margin_and_no_loss_passes_the_price_but_a_price_a_tenth_lower(table, classes):
    table = build_charge_table(table.budget, TAIL, classes)
    corners = list(sample_corners(table, np.random.default_rng(1), 40))
    assert len(corners) > 12
    assert max(compute_relative_excess(table, *corner) for corner in corners) <= 1e-9
    assert max(compute_relative_excess(table, *corner, 0.9) for corner in corners) > 1e-3


def charge_labels(table, shifts, scaled=1.0):
    """Return (shift, charge) of successive labels, charges in mu^2, and the remaining mu^2."""
    total_mu2 = remaining_budget = 2 * table.budget
    charged = []
    for planned in shifts:
        shift = planned
        price = scaled * float(table.compute_share(shift, remaining_budget / total_mu2)) * shift**2
        if table.squared_shift_factor * shift**2 > remaining_budget:
            # The last label is cut to the remaining budget.
            shift, price = math.sqrt(remaining_budget), scaled * remaining_budget
        charged.append((shift, price))
        remaining_budget -= price
    return charged, remaining_budget


def compute_lifetime_excess(table, shifts, scaled=1.0):
    """Return the relative excess of a sequence of labels over the claimed guarantee, at any loss.

    A release of votes spends the budget that remains after the labels. The threshold of every label
    depends on the earlier answers, as that of an adversary would.
    """
    charged, remaining_budget = charge_labels(table, shifts, scaled)
    total_mu2 = 2 * table.budget
    mu = math.sqrt(total_mu2)
    grid = np.linspace(-8 * mu - mu**2, 12 * mu + mu**2, 3001)
    if remaining_budget > 1e-9 * total_mu2:
        values = gaussian_divergence(grid, math.sqrt(remaining_budget))
    else:
        values = np.maximum(-np.expm1(grid), 0)
    for shift, _ in reversed(charged):
        inner = values

        def residue_divergence(eps, inner=inner):
            # Convex in exp(eps): interpolation there is from above, and the line beyond is 1 - E.
            interpolated = np.interp(np.exp(eps), np.exp(grid), inner)
            return np.where(eps < grid[0], -np.expm1(eps), interpolated)

        values = worst_test_divergence(grid, shift, residue_divergence)
    allowed = gaussian_divergence(grid, mu) + TAIL
    is_checked = (grid >= 0) & (grid <= 8 * mu)
    return float((values / allowed)[is_checked].max()) - 1


SHIFT_SEQUENCES = {
    "even": [0.35] * 6,
    "one large": [0.8, 0.2, 0.2, 0.2],
    "to the end": [0.5] * 9,
    "small": [0.16] * 12,
}


@pytest.mark.parametrize("shifts", SHIFT_SEQUENCES.values(), ids=SHIFT_SEQUENCES)
def test_a_life_of_labels_keeps_the_budget_whatever_the_thresholds(table, shifts):
    mu = math.sqrt(2 * table.budget)
    assert compute_lifetime_excess(table, [mu * share for share in shifts]) <= 1e-4


@pytest.mark.parametrize("name", ["even", "small"])
def test_a_life_that_is_charged_a_tenth_less_passes_its_budget(table, name):
    mu = math.sqrt(2 * table.budget)
    assert (
        compute_lifetime_excess(table, [mu * share for share in SHIFT_SEQUENCES[name]], 0.9) > 0.01
    )


def test_shares_are_what_theory_says_they_are(table):
    """2 / pi for very small shifts; never below; not decreasing in the shift."""
    assert table.compute_share(0.0) == pytest.approx(2 / math.pi, rel=0.01)
    assert table.shares.min() > 2 / math.pi
    assert (np.diff(table.shares, axis=1) >= 0).all()
    assert (table.shares[0] == 1).all()
    assert (table.shares[:, -1] == 1).all()
    below = table.shares[table.shares < 1]
    assert below.max() <= MAX_REDUCED_SHARE


def compute_scaled_excess(root, shift, b, y):
    """Return the scaled excess a of a test by hockey-stick divergences in 40 digits, (8)."""
    mp.dps = 40
    root, shift, b, y = map(mpf, (root, shift, b, y))
    q, p = mp.ncdf(b), mp.ncdf(b + shift)
    eps = root * (root / 2 + y)
    won, lost = mp.log(q / p), mp.log((1 - q) / (1 - p))
    gained = p * exact_gaussian_divergence(root, eps + won)
    gained += (1 - p) * exact_gaussian_divergence(root, eps + lost)
    gained -= exact_gaussian_divergence(root, eps)
    return gained * 2 * root / (shift**2 * mp.npdf(y))


def list_weighted_terms(root, shift, b, y):
    """Return the terms of winning and of losing of the scaled excess, as the product has them."""
    log_ratios = [log_ndtr(b + shift) - log_ndtr(b), log_ndtr(-b - shift) - log_ndtr(-b)]
    integrals = [
        next(label_filter._iterate_integrals(np.array([[r]]), root, np.array([y])))[0, 0]
        for r in log_ratios
    ]
    return [
        2 * ndtr(margin) * (r / shift) ** 2 * integral
        for margin, r, integral in zip((b, -b), log_ratios, integrals, strict=True)
    ]


def test_a_price_to_40_digits():
    point = (0.2, 0.06, -1.1, 4.5)
    ours = sum(list_weighted_terms(*point))
    assert ours == pytest.approx(float(compute_scaled_excess(*point)), rel=1e-10)


def test_the_clip_of_steep_losses_cannot_lower_a_price():
    """Bounds of label_only.md, section 8.2, against hockey-stick divergences in 40 digits."""
    errors = []
    roots = (1.1, 2.0, 23 / 24 * label_filter._MAX_MU)
    for root, b, k in itertools.product(roots, (2.75, 3.0, 3.5, 4.0), (0.9, 1.2, 1.24)):
        shift = k * root
        v = float(log_ndtr(-b) - log_ndtr(-b - shift)) / root
        assert v <= 6 or (b >= 3 and shift > 1.2)
        for y in (-root / 2, -root / 4, 0.0, 1.5):
            truth = float(compute_scaled_excess(root, shift, b, y))
            win, loss = list_weighted_terms(root, shift, b, y)
            assert max(loss, truth - win) < 4 * ndtr(-b) / shift**2
            if v > 6:
                errors.append((truth - win) / loss)
                max_ratio = math.exp((v - 6) * y**2 / (2 * (v + 6))) if y < 0 else 1.0
                assert errors[-1] <= max_ratio * (1 + 1e-6)
                assert truth < 0.011  # far below s B > .06
    assert max(errors) > 1.01, "the clip is met, and makes the term too small"


@pytest.mark.parametrize("steep", [0.05, 2.0, label_filter._MAX_STEEPNESS])
@pytest.mark.parametrize("y", [-0.3, 5.0, label_filter._MAX_GRID_LOSS])
@pytest.mark.parametrize("root", [0.3, label_filter._MAX_MU])
def test_the_quadrature_is_as_exact_as_is_allowed_for(steep, y, root):
    mp.dps = 30
    for sign in (1, -1):
        r = sign * steep * root
        truth = mp.quad(
            lambda u, r=r, sign=sign: (
                (mp.exp(r) - mp.exp(r * u))
                / r
                * mp.exp(sign * y * steep * u - (steep * u) ** 2 / 2)
            ),
            np.linspace(0, 1, 9).tolist(),
        )
        integrals = label_filter._iterate_integrals(np.array([[r]]), root, np.array([y]))
        ours = next(integrals)[0, 0]
        assert ours == pytest.approx(float(truth), rel=5e-7)


@settings(deadline=None, max_examples=200)
@given(
    st.integers(0, 2**30),
    st.integers(0, UNITS),
    st.integers(2**22, 2**33),
    st.sampled_from([None, 2, 10]),
)
def test_a_charge_covers_the_share_and_no_more_than_is_left(norm, remaining, scale, classes):
    table = build_charge_table(zcdp_budget(1.0, 0.99e-5), TAIL, classes)
    rate = table.squared_shift_factor * compute_unit_rate(scale, table.budget)
    norm = int(find_affordable_norm(min(norm, scale), remaining, rate))
    units = int(
        compute_label_charge(norm, remaining, rate, table.cells_per_shift / scale, table.shares)
    )
    assert 0 <= units <= int(compute_charge(norm * norm, rate)) <= max(remaining, 0)
    share = float(table.compute_share(norm / scale, remaining / UNITS))
    exact = Fraction(norm, scale) ** 2 / 2 * Fraction(share) / Fraction(table.budget) * UNITS
    assert units >= exact * (1 - Fraction(1, 10**12))
    assert units <= exact * (1 + Fraction(1, 10**9)) + 1


def test_classes_narrow_a_shift_and_two_cost_half():
    budget = zcdp_budget(1.0, 0.99e-5)
    tables = [build_charge_table(budget, TAIL, c) for c in (2, 3, 10, 65536, None)]
    shares = [float(table.compute_share(0.05)) for table in tables]
    assert (np.diff(shares) >= 0).all()
    assert shares[0] == pytest.approx(shares[-1] / 2, rel=0.03)


def test_the_worth_of_a_budget_is_what_lives_of_its_shift_spend(table):
    for count in (10, 40, 200):
        shift = math.sqrt(2 * table.budget / count)
        charged, _ = charge_labels(table, [shift] * (2 * count))
        spent = sum(charged_shift**2 for charged_shift, price in charged if price > 0)
        assert table.compute_votes_budget(shift) == pytest.approx(spent / 2, rel=0.1)


@pytest.mark.parametrize("tail", [0, 5e-43, 5e-203, 5e-303])
def test_with_a_tail_too_small_for_the_certificate_labels_cost_what_votes_cost(tail):
    table = build_charge_table(0.03, tail)
    assert (table.shares == 1).all()
    assert table.compute_votes_budget(0.1) == pytest.approx(0.03)


def test_a_plan_prices_the_tail_that_a_label_makes_use_of():
    """One label exceeds the Gaussian of its budget at a delta far below the budget's own."""
    table = build_charge_table(zcdp_budget(1.0, 0.99e-5), TAIL)
    total_mu2, delta = 2 * table.budget, 1e-9
    shift = 0.5 * math.sqrt(total_mu2)
    residue_divergence = math.sqrt(total_mu2 - float(table.compute_share(shift)) * shift**2)
    eps = gdp_epsilon(math.sqrt(total_mu2), delta)
    assert (
        worst_test_divergence([eps], shift, lambda e: gaussian_divergence(e, residue_divergence))[0]
        > delta
    )
    label = {"kind": "ind_knn", "epsilon": 1.0, "delta": 1e-5, "release": "label"}
    with pytest.raises(InvalidInput, match="no method gives a bound"):
        account({"delta": delta, "releases": [label]})
    assert 1.0 <= account({"delta": 1e-5, "releases": [label]})["epsilon"] <= 1.001


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
        allowed = ndtr(ndtri(np.clip(q, 1e-300, 1 - 1e-16)) + shift / scale)
        assert (p - allowed).max() <= compute_grid_excess(scale, shift)
        assert (allowed - shift - p).max() < 1  # the control: the two are not far apart
        assert np.abs(p - allowed)[np.abs(at - 12 * scale) < 2 * scale].max() < 1e-3


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, "1", True, None])
def test_nonsense_is_refused_by_name(bad):
    with pytest.raises(InvalidInput, match="budget"):
        build_charge_table(bad, TAIL)
    with pytest.raises(InvalidInput, match="tail"):
        build_charge_table(0.03, bad)
    if bad is not None:
        with pytest.raises(InvalidInput, match="classes"):
            build_charge_table(0.03, TAIL, bad)
