r"""The charge of a released label in an individual filter under Gaussian DP.

Budgets z are in units of mu^2, unless called zCDP budgets (mu^2 / 2). A subject has z' of its
budget remaining. A label is charged p, fixed before the label is sampled, so that z = z' - p
remains after the charge: the *residue*. The charge is valid if every threshold test of the
subject's shift m, composed with a Gaussian release of z, has at most the hockey-stick divergence of
a Gaussian release of z', up to a tail proportional to p, a delta.
Then the whole interaction has at most the divergence of the Gaussian release of the whole budget,
up to the tail. Proof, and every bound used here, by its number: label_only.md, sections 6 and 8
(with the symbols of 8).

Released votes would be charged m^2; a label is charged the *share* s <= 1 of it. For one residue z
:func:`_find_certified_shares` finds the smallest s on cells of k = m / sqrt(z) for which
a - s (B + t) <= 0 at all margins b and all losses eps = sqrt(z) (sqrt(z) / 2 + y). Here a is the
excess of the test's divergence over that of the Gaussian of z, B that of the Gaussian of z' over
the Gaussian of z, and t the tail, all *scaled*: divided by m^2 phi(y) / (2 sqrt(z)), B and t also
by s. Values are computed on a grid of (b, k, y); between its points bounds of second derivatives
apply. Arguments of the functions: `sqrt_residue` is sqrt(z), `losses` (n,) the grid of y in
ascending steps of `_LOSS_STEP`, `tail_scale` the scaled tail t at y = 0.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import exprel, log_ndtr, ndtr

from vicinal import checks
from vicinal.accounting._divergence import compute_hazard
from vicinal.arrays import Bools, Floats

MAX_CLASSES = 1 << 16  # The largest number of classes for which a bound may depend on their number
# The largest share s below 1. A label is charged at most this share of the charge of its votes, or
# all of it, so that a lower bound on the residue is known before the share is.
MAX_REDUCED_SHARE = 0.875
_N_ROWS = 24  # Rows of the table: residues sqrt(z) of equal width
_N_CELLS = 30  # Cells of a row: relative shifts k of equal width, from 0 to `_MAX_RELATIVE_SHIFT`
# The largest relative shift k; larger shifts are charged as where votes are released.
_MAX_RELATIVE_SHIFT = 1.2
# Grid steps of margins b (noise scales): between -4 and 1, and outside.
_MARGIN_STEP = 0.075
_OUTER_MARGIN_STEP = 0.25
_LOSS_STEP = 0.15  # Grid step of losses, in y
# Numbers in parentheses are sections of label_only.md.
_MAX_MARGIN = 4.0  # The largest margin b of the grid; beyond, a < .002 is far below s B > .06 (8.1)
# The largest mu of a budget for which (8.1) is proven; above, labels are charged as votes are.
_MAX_MU = 3.0
# *Steepness*: an outcome's log likelihood ratio over sqrt(z). Up to this one, and up to the loss y
# below, 24 nodes integrate within `_ROUNDING` (8.2).
_MAX_STEEPNESS = 6.0
# The largest loss y of the grid. Budgets of a delta so small that a larger y is needed are charged
# as where votes are released.
_MAX_GRID_LOSS = 18.0
# Bisections of the interval [0.6, 1], from `MAX_REDUCED_SHARE`: shares are exact to about .001.
_N_BISECTIONS = 9
# Relative allowance for quadratures, rounding, and the edges of rows and cells (section 6).
_ROUNDING = 1e-6

# Gauss-Legendre nodes and weights for integrals over u in [0, 1], along the first axis.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_U = (_NODES[:, None, None] + 1) / 2
_WEIGHTS = _WEIGHTS / 2
_SQRT_2_PI = math.sqrt(2 * math.pi)


@dataclass(frozen=True, slots=True)
class ChargeTable:
    """Charges of released labels, as shares of the charge where the votes are released.

    `budget`: the zCDP of a full budget, mu^2 / 2; ``UNITS`` units of the filter stand for it.
    `classes`: the number of classes c, if charges use it: a shift of mu then counts as
    mu sqrt(1 - 1/c). `shares` (rows, cells): the shares, by the square root of the residue (rows,
    from 0 to the full budget) and by the shift over that root (cells).
    """

    budget: float
    classes: int | None
    shares: Floats

    @property
    def squared_shift_factor(self) -> float:
        """The factor 1 - 1/c of a squared shift, rounded up; 1 without a number of classes."""
        return 1.0 if self.classes is None else math.nextafter(1 - 1 / self.classes, 1)

    @property
    def cells_per_shift(self) -> float:
        """Number of cells per noise scale of shift in row 1; in row r it is this number over r."""
        rows, cells = self.shares.shape
        return float(
            (cells - 1)
            * rows
            / _MAX_RELATIVE_SHIFT
            * math.sqrt(self.squared_shift_factor / (2 * self.budget))
        )

    def compute_share(self, mu: float, remaining: float | Floats = 1.0) -> Floats:
        """Return the charge of a shift of `mu` noise scales, as a share of mu^2 / 2.

        `remaining` (a number or an array): the fraction of the budget before the release. The
        look-up is that of the compiled `charges.compute_label_charge`. For plans and audits.
        """
        rows, cells = self.shares.shape
        residue = np.maximum(
            remaining - MAX_REDUCED_SHARE * self.squared_shift_factor * mu**2 / (2 * self.budget), 0
        )
        row = np.minimum(np.sqrt(residue) * rows, rows - 1).astype(np.int64)
        cell = np.minimum(mu * self.cells_per_shift / np.maximum(row, 1), cells - 1).astype(
            np.int64
        )
        return np.asarray(self.squared_shift_factor * self.shares[row, cell])

    def compute_votes_budget(self, mu: float, remaining: float = 1.0) -> float:
        """Return the zCDP budget that would pay for as many votes as this budget pays for labels.

        `mu`: the shift of each release in noise scales. `remaining`: the fraction of this budget
        that is unspent. Computed as a mean over 256 residues.
        """
        fractions = (np.arange(256) + 0.5) / 256
        shares = self.compute_share(mu, remaining * fractions)
        return float(remaining * self.budget * np.mean(1 / shares))


def build_charge_table(budget: float, tail: float, classes: int | None = None) -> ChargeTable:
    """Return the charges of labels in a filter with a zCDP `budget` > 0.

    The whole interaction then satisfies Gaussian DP of mu = sqrt(2 budget), up to `tail` and the
    cost of the grid, which add to delta; 0 <= tail < 1. Without a tail labels are charged as votes
    are, which is also valid in Rényi DP. `classes`: the number of classes, if charges are to use
    it: fewer classes cost less.
    """
    budget = checks.check_real("budget", budget, above=0)
    tail = checks.check_real("tail", tail, minimum=0, below=1)
    if classes is not None:
        classes = checks.check_integer("classes", classes, minimum=2, maximum=MAX_CLASSES)
    shares = _compute_shares(budget, tail) if tail else np.ones((1, 1))
    return ChargeTable(budget, classes, shares)


@lru_cache(maxsize=16)
def _compute_shares(budget: float, tail: float) -> Floats:
    """Return the certified shares s, float64 (rows, cells + 1), by residue and relative shift.

    `budget`: zCDP budget, mu^2 / 2. `tail` > 0: the tail of the whole budget, which adds to delta.
    The first row (no residue) and the last cell (larger shifts) are 1; shares increase along rows.
    """
    mu = math.sqrt(2 * budget)
    shares = np.ones((_N_ROWS, _N_CELLS + 1))
    for row in range(1, _N_ROWS if mu <= _MAX_MU else 0):
        certified = _find_certified_shares(row / _N_ROWS * mu, tail / (2 * budget)) * (
            1 + _ROUNDING
        )
        shares[row, :-1] = np.maximum.accumulate(
            np.where(certified > MAX_REDUCED_SHARE, 1.0, certified)
        )
    shares.flags.writeable = False
    return shares


def _find_certified_shares(sqrt_residue: float, tail_per_charge: float) -> Floats:
    """Return the smallest share in [0.6, 1] proven valid for each cell of shifts k, (cells,).

    1 if none is proven. `sqrt_residue` is the lower end of the row of residues; `tail_per_charge`
    the delta that a charge adds, divided by the charge p.
    """
    # The scaled tail t at loss y is tail_scale exp(y^2 / 2).
    tail_scale = 2 * sqrt_residue * tail_per_charge * _SQRT_2_PI
    max_loss = _find_max_loss(sqrt_residue, tail_scale)
    if max_loss > _MAX_GRID_LOSS:
        return np.ones(_N_CELLS)
    losses = np.arange(-sqrt_residue / 2, max_loss + _LOSS_STEP, _LOSS_STEP)
    low_bounds, high_bounds = _bound_scaled_excess(sqrt_residue, losses, tail_scale)
    low, high = np.full(_N_CELLS, 0.6), np.ones(_N_CELLS)
    middle = np.full(_N_CELLS, MAX_REDUCED_SHARE)
    for _ in range(_N_BISECTIONS):
        is_uncertified = _find_uncertified_cells(
            middle, sqrt_residue, losses, tail_scale, low_bounds, high_bounds
        )
        low, high = np.where(is_uncertified, middle, low), np.where(is_uncertified, high, middle)
        middle = (low + high) / 2
    return high


def _find_max_loss(sqrt_residue: float, tail_scale: float) -> float:
    """Return the end of the grid of losses y: beyond it the tail alone keeps a <= s t (8.1).

    It is above `_MAX_GRID_LOSS` if no loss on the grid is large enough.
    """
    y = sqrt_residue
    x = _MAX_RELATIVE_SHIFT**2 * _U
    while y <= _MAX_GRID_LOSS:
        gain = _integrate_over_nodes((y + sqrt_residue / 2) ** 2 * x / (1 + x) / 2, x**0)
        if gain.max() <= 0.5 * tail_scale * math.exp(y**2 / 2):
            break
        y += _LOSS_STEP
    return y


def _build_margin_grid(sqrt_residue: float, tail_scale: float) -> Floats:
    """Return the ascending grid of margins b, (m,), beyond which a <= s (B + t) holds (8.1)."""
    max_shift = _MAX_RELATIVE_SHIFT * sqrt_residue
    start = -4 - max_shift
    while True:
        hazard = float(compute_hazard(np.asarray(start)))
        if ndtr(start) * hazard**2 * math.exp(max_shift * hazard) <= 0.1 * tail_scale:
            break
        start -= _OUTER_MARGIN_STEP
    low_margins = np.arange(start, -4, _OUTER_MARGIN_STEP)
    central_margins = np.arange(-4, 1, _MARGIN_STEP)
    high_margins = np.arange(1, _MAX_MARGIN + _OUTER_MARGIN_STEP, _OUTER_MARGIN_STEP)
    return np.concatenate([low_margins, central_margins, high_margins])


def _bound_mean_hazard(start: Floats, width: Floats) -> Floats:
    """Return an upper bound on the mean of phi/Phi over [start, start + width], elementwise.

    The mean is (log Phi(start + width) - log Phi(start)) / width.
    """
    # The quotient would cancel for small widths; there the trapezium of the convex hazard is taken.
    divisor = np.where(width < 1e-3, 1.0, width)
    mean = (log_ndtr(start + divisor) - log_ndtr(start)) / divisor
    trapezium = (compute_hazard(start) + compute_hazard(start + width)) / 2
    return np.asarray(np.where(width < 1e-3, trapezium, mean))


def _bound_scaled_excess(
    sqrt_residue: float, losses: Floats, tail_scale: float
) -> tuple[Floats, Floats]:
    """Return upper bounds on the largest scaled excess a over all margins, on each cell of shifts.

    Both results are (cells, n), by cell and loss: bounds at the lower and at the upper end of the
    cell, raised so that the chord between them lies above a in the whole cell (8.2). There
    `win_rate` is r_1 / m, `win_slope` and `loss_slope` are g_1 and g_2, `tilt` is b_ m, and
    `win_strip` a bound on (r_1 / m) J; `growth` is kappa / (1 - kappa).
    """
    step = _MAX_RELATIVE_SHIFT * sqrt_residue / _N_CELLS
    margins = _build_margin_grid(sqrt_residue, tail_scale)
    m, b = np.meshgrid(step * np.arange(_N_CELLS + 2), margins, indexing="ij")
    # Log ratios of the probabilities of passing and failing the test, with over without the
    # subject, divided by the shift.
    win_rate, loss_rate = _bound_mean_hazard(b, m), _bound_mean_hazard(-b - m, m)
    win_weight, loss_weight = 2 * ndtr(b) * win_rate**2, 2 * ndtr(-b) * loss_rate**2
    steepness = win_rate * m / sqrt_residue
    win_integrals = _iterate_integrals(m * win_rate, sqrt_residue, losses)
    loss_integrals = _iterate_integrals(-m * loss_rate, sqrt_residue, losses)
    # The following bounds hold on whole cells, from m[:-1] to m[1:].
    high, margin = m[1:], b[1:]
    win_slope = high + margin + compute_hazard(high + margin)
    loss_slope = compute_hazard(-margin) - margin
    max_hazard = np.maximum(compute_hazard(margin), compute_hazard(-margin - high))
    concavity_along_m = (
        np.maximum(win_slope**2 / 2, 2 * loss_slope**2)
        + 1
        + max_hazard * (max_hazard + high) / sqrt_residue**2
    )
    tilt = np.maximum(-margin[:, :-1], 0) * high[:, :-1]
    distance = np.maximum(np.maximum(margin[:, :-1], -margin[:, 1:]), 0)
    chord_excess_along_b = (
        2 / _SQRT_2_PI * np.exp(tilt - distance**2 / 2) * (2 + tilt) * np.diff(margin) ** 2 / 8
    )
    loss_strip = loss_rate[1:, 1:] * np.exp(loss_rate[1:, 1:] * high[:, 1:] / 2)
    shift_ratio = np.divide(high, m[:-1], where=m[:-1] > 0, out=np.full_like(high, np.inf))[:, :-1]
    low_bounds, high_bounds = np.empty((2, _N_CELLS, len(losses)))
    for j, (y, win_integral, loss_integral) in enumerate(
        zip(losses, win_integrals, loss_integrals, strict=True)
    ):
        # Beyond the exact range of the quadrature the winner's integral has a closed bound.
        steep_bound = (
            _SQRT_2_PI * np.exp(m * win_rate + y**2 / 2) / np.maximum(steepness, _MAX_STEEPNESS)
        )
        win_term = np.where(steepness > _MAX_STEEPNESS, steep_bound, win_integral)
        a = (win_weight * win_term + loss_weight * loss_integral)[:-1]
        max_of_margins = np.maximum(a[:, :-1], a[:, 1:])
        positive_y = max(y, 0.0)
        steep = steepness[1:, :-1]
        win_strip = np.minimum(
            win_rate[:-1, :-1] * exprel(positive_y * steep),
            shift_ratio * win_rate[1:, :-1] * _bound_mean_exponential_tilt(positive_y, steep),
        )
        kappa = step**2 / 8 * (concavity_along_m + positive_y / sqrt_residue)
        kappa = np.maximum(kappa[:, :-1], kappa[:, 1:])[:-1]
        growth = np.where(kappa < 0.5, kappa / (1 - np.minimum(kappa, 0.5)), np.inf)
        chord_excess = (chord_excess_along_b * (win_strip + loss_strip))[:-1] + growth * np.maximum(
            max_of_margins[:-1], max_of_margins[1:]
        )
        low_bounds[:, j] = (max_of_margins[:-1] + chord_excess).max(1)
        high_bounds[:, j] = (max_of_margins[1:] + chord_excess).max(1)
    return low_bounds, high_bounds


def _iterate_integrals(log_ratio: Floats, sqrt_residue: float, losses: Floats) -> Iterator[Floats]:
    """Yield the function g of section 8 of label_only.md, (shifts, margins), at each of `losses`.

    The excess a is the sum, over winning and losing, of a weight times g. `log_ratio` (shifts,
    margins) is r: of winning (> 0) or losing (< 0). With root = `sqrt_residue`, g is the integral
    over u in [0, 1] of (e^r - e^(ru)) / r exp(y r u / root - (r u / root)^2/2). In the second
    factor r / root is clipped to +-`_MAX_STEEPNESS`; beyond, the result is not g: for winning a
    closed bound replaces it, and for losing a is far below s B there, whatever the result is (8.2).
    """
    steepness = np.clip(log_ratio / sqrt_residue, -_MAX_STEEPNESS, _MAX_STEEPNESS) * _U
    integrand = (1 - _U) * exprel(log_ratio * (1 - _U)) * np.exp(log_ratio * _U - steepness**2 / 2)
    terms = integrand * np.exp(losses[0] * steepness) * _WEIGHTS[:, None, None]
    factor_per_step = np.exp(_LOSS_STEP * steepness)  # of the integrand, from one loss to the next
    for _ in losses:
        yield np.asarray(terms.sum(axis=0))
        terms *= factor_per_step


def _bound_mean_exponential_tilt(y: float, steepness: Floats) -> Floats:
    """Return an upper bound on the mean of exp(y x - x^2 / 2) over x in [0, steepness], y >= 0."""
    # The exponent lies below its tangents.
    tangent_point = np.minimum(steepness, y)
    inside = np.exp(tangent_point * (y - tangent_point / 2)) * exprel(
        -tangent_point * (y - tangent_point)
    )
    beyond = math.exp(y**2 / 2) * np.minimum(1, _SQRT_2_PI / np.maximum(steepness, 1))
    return np.where(steepness < y, inside, beyond)


def _find_uncertified_cells(
    share: Floats,
    sqrt_residue: float,
    losses: Floats,
    tail_scale: float,
    low_bounds: Floats,
    high_bounds: Floats,
) -> Bools:
    """Return whether a - s (B + t) may be positive on each cell of shifts, (cells,) (8.3).

    `share` (cells,) is s; `low_bounds`, `high_bounds` (cells, n): from `_bound_scaled_excess`.
    """
    share = share[:, None]
    edges = _MAX_RELATIVE_SHIFT * np.arange(_N_CELLS + 1)[:, None] / _N_CELLS
    low_x, high_x = share * edges[:-1] ** 2 * _U, share * edges[1:] ** 2 * _U
    square_loss = (losses + sqrt_residue / 2) ** 2
    max_square_loss = (losses[1:] + sqrt_residue / 2) ** 2
    tail = tail_scale * np.exp(losses**2 / 2)
    max_abs_loss = np.maximum(losses[1:], -losses[:-1])
    # Between grid points the tail is above its chord less `sag`, and above its smallest value.
    sag = _LOSS_STEP**2 / 8 * tail_scale * np.exp(max_abs_loss**2 / 2) * (1 + max_abs_loss**2)
    min_tail = tail_scale * np.exp(np.maximum(losses[:-1], 0) ** 2 / 2)
    uses_min_tail = 2 * sag > tail[:-1]
    excess = np.asarray(-np.inf)
    for scaled_excess, x in ((low_bounds, low_x), (high_bounds, high_x)):
        gain = _integrate_over_nodes(
            square_loss * x / (1 + x) / 2 - sqrt_residue**2 * x / 8, (1 + x) ** -0.5
        )
        for end in (slice(None, -1), slice(1, None)):
            bound = gain[:, end] + np.where(uses_min_tail, min_tail, tail[end] - sag)
            excess = np.maximum(excess, scaled_excess[:, end] - share * bound)
    # Upper bounds on the second derivatives of B, along k and along y.
    xi = high_x / (1 + high_x)
    base = 1 / (1 + low_x)
    slope = max_square_loss * base**2 / 2
    square = slope**2 + (sqrt_residue**2 / 8 + base / 2) ** 2 + base**2 / 2
    along_k = 4 * share * high_x * _U * square + 2 * share * _U * slope
    slack = _integrate_over_nodes(
        max_square_loss * xi / 2,
        (_MAX_RELATIVE_SHIFT / _N_CELLS) ** 2 / 8 * along_k
        + _LOSS_STEP**2 / 8 * (xi + max_square_loss * xi**2),
    )
    return np.asarray((excess + share * slack > 0).any(axis=1))


def _integrate_over_nodes(exponent: Floats, factor: Floats) -> Floats:
    """Return the integral of exp(`exponent`) `factor` over u in [0, 1], the nodes of axis 0."""
    return np.asarray(np.tensordot(_WEIGHTS, np.exp(exponent) * factor, 1))
