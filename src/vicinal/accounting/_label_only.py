r"""What a release costs when only the label with the most noisy votes leaves.

Proof note: label_only.md. Gaussian noise per vote, continuous, or discrete on a grid that is as
fine as :data:`LINE_GRID` and :data:`PLANE_GRID` say: the label of discrete noise is not a function
of the label of continuous noise, so both are proven, and every bound here contains the difference.

- One coordinate moves (Ind-KNN): the worst threshold test, :func:`one_coordinate_rdp`. With c
  classes the shift counts as mu sqrt(1 - 1/c), because a label ignores what all votes share.
- Two coordinates move apart (Private-kNN): the worst three-way comparison,
  :func:`two_coordinate_rdp`, exactly Poisson-subsampled.
- :func:`label_budget` and :func:`charge_table` are the individual filter at one fixed order
  (Feldman & Zrnic 2021, Theorem 3.1); what it charges by the table stands in `_charges.py`.
- :class:`NoisyLabel` is the same as a term of a composition.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vicinal import _checks
from vicinal._arrays import Floats
from vicinal.accounting._divergence import LARGEST_ORDER, GaussianPair, checked_orders
from vicinal.accounting._gaussian import SubsampledGaussian
from vicinal.accounting._label_divergence import ShiftCells, ThreeWayComparison, Thresholds
from vicinal.errors import InvalidInput

LINE_GRID = 1 << 22  # least noise scale, in grid steps, for the bounds of one moving coordinate
PLANE_GRID = 1 << 30  # least noise scale, in grid steps, for the bounds of two moving coordinates
MAX_CLASSES = 1 << 16  # most classes for which a bound uses their number

# Above these values of order times shift the unsampled Gaussian's own bound is taken: without
# sampling 1 % and 6 % higher at most, with sampling far higher.
_LINE_LIMIT = 64.0
_PLANE_LIMIT = 12.0
# Arithmetic: differences of logarithms, a quadrature, and the trapezium below 1e-3.
_SAFETY = 1e-6
_CELL_TOLERANCE = 1e-3
# The best order lies near 1 + 2 log(1/delta)/epsilon; this is a grid around it.
_EXCESSES = 2 * np.exp(np.linspace(-3, 3, 145))


@dataclass(frozen=True, slots=True)
class LabelBudget:
    """A Renyi budget at one order > 1, fixed before anything is released.

    The interaction is (order, budget)-RDP; the budget bounds the sum of D_alpha over all releases
    that a subject may reach.
    """

    order: float
    budget: float

    def epsilon(self, delta: float) -> float:
        """Return epsilon at `delta`, rounded up (Balle et al. 2020, Theorem 21)."""
        delta = _checks.real("delta", delta, above=0, below=1)
        return max(0.0, self.budget - _conversion(self.order, delta)) * (1 + 1e-12)


@dataclass(frozen=True, slots=True)
class ChargeTable:
    """Charges of label releases at one order, as shares of the Gaussian's alpha mu^2 / 2.

    ``UNITS`` units stand for the target's budget. `density` counts cells per unit of shift
    over noise scale; `shares` (m,) do not decrease, and the last is 1 and covers all larger shifts.
    """

    target: LabelBudget
    classes: int | None
    density: float
    shares: Floats

    @property
    def zcdp(self) -> float:
        """Return R / alpha, rounded down: what ``unit_rate`` takes as its budget."""
        return math.nextafter(self.target.budget / self.target.order, 0)

    def share(self, mu: float) -> float:
        """Return the share that a shift of `mu` noise scales costs."""
        return float(self.shares[int(min(mu * self.density, len(self.shares) - 1))])


def one_coordinate_rdp(mu: float, orders: npt.ArrayLike, classes: int | None = None) -> Floats:
    """Return D_alpha (n,) of a label when one subject moves one class by `mu`, rounded up.

    Valid for any votes of all others, in both directions; within a share of 2e-5 of the supremum
    over votes and numbers of classes. Proof: label_only.md, sections 1 to 3 and 5. The shift `mu`
    is in units of the noise scale. A known number of classes, 2 to 65536, lowers mu to mu sqrt(1 -
    1/c). Orders (n,) are from 1 + 1e-6 to 1e12; the grid needs mu <= 1.
    """
    mu = _checks.real("mu", mu, least=0)
    alphas = checked_orders(orders)
    narrow = mu * _class_factor(classes)
    if narrow == 0:
        return np.zeros_like(alphas)
    gaussian = alphas * narrow**2 / 2 * (1 + _SAFETY)
    near = alphas * narrow <= _LINE_LIMIT
    bound = gaussian.copy()
    if near.any():
        bound[near] = _line(narrow, 1.0, alphas[near], mu)
    return np.minimum(bound, gaussian)


def two_coordinate_rdp(
    sigma: float, gamma: float, orders: npt.ArrayLike, classes: int | None = None
) -> Floats:
    """Return D_alpha (n,) of a noisy argmax of counts under Poisson sampling, rounded up.

    One subject, sampled with probability gamma, adds one vote to its class and takes one from
    another (the neighbour that it displaces), or displaces none. Both directions, any votes,
    within a share of 2e-3 of the supremum. Proof: label_only.md, sections 4 and 5.

    `sigma` is in votes. For orders above 12 sigma / sqrt(2) the unsampled Gaussian's alpha /
    sigma^2 is returned. Two classes are cheaper; more count as any number.
    """
    mu = 1 / _checks.real("sigma", sigma, above=0, most=1e9)
    gamma = _checks.real("gamma", gamma, least=0, most=1)
    alphas = checked_orders(orders)
    gaussian = alphas * mu**2 * (1 + _SAFETY)
    bound = np.zeros_like(alphas) if gamma == 0 else gaussian.copy()
    near = alphas * mu * math.sqrt(2) <= _PLANE_LIMIT
    if gamma == 0 or not near.any():
        return bound
    two_only = classes is not None and _checked_classes(classes) == 2
    curve = _two_classes if two_only else _plane
    bound[near] = curve(mu, gamma, alphas[near])
    return np.minimum(bound, gaussian)


def label_budget(
    epsilon: float, delta: float, mu: float = 0.0, classes: int | None = None
) -> LabelBudget:
    """Return the order and budget under which most releases of shift `mu` can be afforded.

    Any order is valid; the best one is searched for on a grid. R is rounded down. `mu` is the
    typical shift over noise scale of one release, as planned; 0 for very many releases.
    """
    epsilon = _checks.real("epsilon", epsilon, above=0)
    delta = _checks.real("delta", delta, above=0, below=1)
    mu = _checks.real("mu", mu, least=0)
    orders = np.minimum(1 + _EXCESSES * math.log(1 / delta) / epsilon, LARGEST_ORDER)
    cost = one_coordinate_rdp(mu, orders, classes) if mu > 0 else orders
    allowed = np.array([epsilon + _conversion(order, delta) for order in orders])
    best = int(np.argmax(allowed / cost))
    budget = float(allowed[best]) - 1e-12 * (epsilon + abs(float(allowed[best]) - epsilon))
    if budget <= 0:
        raise InvalidInput(
            "The 'epsilon' and 'delta' parameters leave no budget at any Renyi order. "
            "Take a larger epsilon or delta."
        )
    return LabelBudget(float(orders[best]), budget)


def charge_table(target: LabelBudget, classes: int | None = None, cells: int = 1024) -> ChargeTable:
    """Return the shares by which `_charges.label_charge` charges label releases.

    Every share bounds D_alpha / (alpha mu^2 / 2) over its whole cell of shifts, from mu = 0 on;
    1,024 cells cost less than 1 % above the bound itself. Shifts that cost more than the budget
    share one cell. Proof: label_only.md, section 6.
    """
    order = float(checked_orders([target.order])[0])
    budget = _checks.real("budget", target.budget, above=0)
    cells = _checks.integer("cells", cells, least=1, most=1 << 16)
    factor = _class_factor(classes)
    top = min(1.0, math.sqrt(math.pi * budget / order) / factor, _LINE_LIMIT / order)
    edges = np.linspace(0, top, cells + 1) * factor
    low, high = edges[:-1] * (1 - 1e-12), edges[1:] * (1 + 1e-12)
    log_ratio = ShiftCells(low, high, order).log_supremum(_CELL_TOLERANCE)
    excess = order - 1
    start = np.where(low > 0, low, 1.0)
    # log(1 + x) / x decreases: the lower end of a cell bounds the rest of it.
    ratio = np.logaddexp(0, log_ratio + 2 * np.log(start)) / start**2
    ratio = np.where(low > 0, ratio, np.exp(log_ratio)) / (excess * order / 2)
    upward = (1 + grid_excess(LINE_GRID, order, top)) * (1 + _SAFETY) * factor**2
    shares = np.maximum.accumulate(np.minimum(ratio * upward, 1.0))
    return ChargeTable(target, classes, cells / top, np.append(shares, 1.0))


def grid_excess(scale: float, order: float, mu: float) -> float:
    """Return the share by which a discrete Gaussian may cost more than the continuous one.

    For one moving coordinate, scale >= 1 grid steps, mu <= 1 and order * mu <= 64; at the coarsest
    grid allowed, 2^22, it is below 2e-6. Proof: label_only.md, section 5.
    """
    scale = _checks.real("scale", scale, least=1)
    order = _checks.real("order", order, above=1)
    mu = _checks.real("mu", mu, least=0)
    depth = 2 * order * mu + 40
    cell = (depth**2 + 1) / (8 * scale**2) + 2 * math.exp(2 - depth)
    cell += 5 * math.exp(-2 * math.pi**2 * scale)
    return math.expm1(cell * (6 + 2.1 * order * mu * depth))


def _plane_excess(order: float, mu: float) -> float:
    """Return the same for two coordinates on :data:`PLANE_GRID`, at any mu."""
    depth = 4 * math.sqrt(2) * order * mu + 60
    offset = 0.5 / PLANE_GRID
    cell = 2 * (depth + 40) ** 2 / PLANE_GRID**2
    gain = 2 * mu * (depth + 2)
    ratio = (4 * cell + 4 * offset * (depth + 2)) * (1 + gain)
    return math.expm1(4 * cell + offset * (depth + 2) + (2 + order * gain) * ratio)


def _line(narrow: float, gamma: float, alphas: Floats, mu: float) -> Floats:
    """Return D_alpha of threshold tests of shift `narrow`, grid included."""
    excess = np.array([grid_excess(LINE_GRID, alpha, mu) for alpha in alphas])
    log_g = Thresholds(narrow, gamma, alphas, reverse=False).log_supremum()
    if gamma < 1:
        log_g = np.maximum(log_g, Thresholds(narrow, gamma, alphas, reverse=True).log_supremum())
    return np.asarray(_divergence(log_g, alphas) * (1 + excess))


def _two_classes(mu: float, gamma: float, alphas: Floats) -> Floats:
    return _line(math.sqrt(2) * mu, gamma, alphas, math.sqrt(2) * mu)


def _plane(mu: float, gamma: float, alphas: Floats) -> Floats:
    """Return D_alpha of three-way comparisons, orders of like magnitude searched together."""
    bound = np.empty_like(alphas)
    octave = np.maximum(np.ceil(np.log2(alphas * mu)), 0)
    for value in np.unique(octave):
        chosen = octave == value
        some = alphas[chosen]
        log_g = ThreeWayComparison(mu, gamma, some, reverse=False).log_supremum()
        if gamma < 1:
            log_g = np.maximum(
                log_g, ThreeWayComparison(mu, gamma, some, reverse=True).log_supremum()
            )
        bound[chosen] = _divergence(log_g, some)
    return np.asarray(bound * (1 + np.array([_plane_excess(alpha, mu) for alpha in alphas])))


def _divergence(log_g: Floats, alphas: Floats) -> Floats:
    return np.asarray(np.logaddexp(0, log_g) / (alphas - 1) * (1 + _SAFETY))


def _conversion(order: float, delta: float) -> float:
    """Return R - epsilon of (order, R)-RDP at `delta`."""
    excess = order - 1
    return (math.log(delta) + math.log(order)) / excess - math.log1p(-1 / order)


def _class_factor(classes: int | None) -> float:
    if classes is None:
        return 1.0
    return math.nextafter(math.sqrt(1 - 1 / _checked_classes(classes)), 1)


def _checked_classes(classes: int) -> int:
    return _checks.integer("classes", classes, least=2, most=MAX_CLASSES)


@dataclass(frozen=True)
class NoisyLabel:
    """The label with the most noisy votes, under Poisson sampling; no votes leave.

    `sigma` is in votes. `classes` is given only if it is to be made use of: two are cheaper.
    """

    sigma: float
    gamma: float = 1.0
    classes: int | None = None

    def rdp(self, orders: Floats) -> Floats:
        """Return the RDP at `orders` (m,), rounded up.

        The label is a function of the noisy votes, so their RDP is a bound as well: at the highest
        orders under sampling it is the smaller one.
        """
        multiplier = math.nextafter(self.sigma / math.sqrt(2), 0.0)
        values = SubsampledGaussian(multiplier, self.gamma).rdp(orders) * (1 + 1e-9)
        near = orders <= LARGEST_ORDER
        labels = two_coordinate_rdp(self.sigma, self.gamma, orders[near], self.classes)
        values[near] = np.minimum(values[near], labels)
        return values

    def pair(self) -> GaussianPair:
        """Return the pair of the noisy votes, of which the label is a function."""
        return GaussianPair(math.nextafter(math.sqrt(2), 2) / self.sigma, self.gamma)
