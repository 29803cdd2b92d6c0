r"""Rényi bounds for releasing only the label with the most noisy votes.

Proof note: label_only.md. The noise of each vote count is Gaussian: continuous, or discrete with a
scale of at least :data:`LINE_GRID` or :data:`MIN_PLANE_SCALE` grid steps. The label of discrete
noise is not a function of the label of continuous noise, so both are proven, and every bound here
includes the difference.

One vote enters and one leaves (Private-kNN), so that two counts move apart. The bound is the worst
three-way comparison, exactly Poisson-subsampled; for two classes the worst threshold test. One
moving count in an individual filter (Ind-KNN) is `label_filter.py`.

Arguments: `mu`, the shift of a moving count (one vote) in noise scales; `gamma`, the probability of
Poisson sampling; `order`, one Rényi order alpha > 1, and `alphas` (n,), several.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from vicinal.accounting._divergence import MAX_ORDER, GaussianPair
from vicinal.accounting._label_divergence import ThreeWayComparisons, ThresholdTests
from vicinal.accounting.gaussian import SubsampledGaussian
from vicinal.arrays import Floats

LINE_GRID = 1 << 22  # The smallest noise scale, in grid steps, for the bounds of one moving count
# The smallest noise scale, in grid steps, for the bounds of two moving counts.
MIN_PLANE_SCALE = 1 << 30
# Above this value of order times shift the bound of the unsampled noisy votes is taken: without
# sampling it is at most 6 % higher, with sampling far higher.
_MAX_ORDER_TIMES_SHIFT = 12.0
# Relative allowance for rounding errors: differences of logarithms, a quadrature, and the
# trapezoidal rule for shifts below 1e-3.
_ROUNDING = 1e-6


def compute_two_coordinate_rdp(
    sigma: float, gamma: float, orders: Floats, classes: int | None = None
) -> Floats:
    """Return the RDP of a noisy argmax of vote counts under Poisson sampling, rounded up, (n,).

    A sampled subject adds one vote to its class and removes one from another class (the neighbour
    that it displaces), or displaces no neighbour. The bound holds in both directions and for all
    votes, and is within 0.2 % of the supremum. For orders above 12 sigma / sqrt(2) it is that of
    the unsampled noisy votes, alpha / sigma^2. Proof: label_only.md, sections 4 and 5.

    `sigma` > 0: the noise scale in votes. `gamma` > 0: the sampling probability. `orders` (n,) > 1:
    the Rényi orders alpha. `classes`: the number of classes; two cost less, all other numbers the
    same.
    """
    mu = 1 / sigma
    votes_rdp = orders * mu**2 * (1 + _ROUNDING)
    bound = votes_rdp.copy()
    is_tighter = orders * mu * math.sqrt(2) <= _MAX_ORDER_TIMES_SHIFT
    if not is_tighter.any():
        return bound
    compute_rdp = _compute_two_class_rdp if classes == 2 else _compute_multiclass_rdp
    bound[is_tighter] = compute_rdp(mu, gamma, orders[is_tighter])
    return np.minimum(bound, votes_rdp)


def bound_discrete_rdp_excess(scale: float, order: float, mu: float) -> float:
    """Return an upper bound on the relative excess of a label's RDP under discrete noise.

    The excess is over continuous noise, for one moving count: noise `scale` >= 1 in grid steps,
    mu <= 1 and order * mu <= 64. At the coarsest grid, 2^22, it is below 2e-6 (section 5).
    """
    depth = 2 * order * mu + 40
    cell = (depth**2 + 1) / (8 * scale**2) + 2 * math.exp(2 - depth)
    cell += 5 * math.exp(-2 * math.pi**2 * scale)
    return math.expm1(cell * (6 + 2.1 * order * mu * depth))


def _bound_discrete_rdp_excess_of_two(order: float, mu: float) -> float:
    """Return the bound of :func:`bound_discrete_rdp_excess` for two moving counts, any shift `mu`.

    The noise scale is at least :data:`MIN_PLANE_SCALE`.
    """
    depth = 4 * math.sqrt(2) * order * mu + 60
    offset = 0.5 / MIN_PLANE_SCALE
    cell = 2 * (depth + 40) ** 2 / MIN_PLANE_SCALE**2
    gain = 2 * mu * (depth + 2)
    ratio = (4 * cell + 4 * offset * (depth + 2)) * (1 + gain)
    return math.expm1(4 * cell + offset * (depth + 2) + (2 + order * gain) * ratio)


def _compute_two_class_rdp(mu: float, gamma: float, alphas: Floats) -> Floats:
    """Return upper bounds on D_alpha at `alphas` (n,), as (n,), for a label of two classes."""
    # The difference of the two counts moves by sqrt(2) mu of its noise scales: a threshold test.
    shift = math.sqrt(2) * mu
    excess = np.array([bound_discrete_rdp_excess(LINE_GRID, alpha, shift) for alpha in alphas])
    return np.asarray(_bound_rdp(ThresholdTests, shift, gamma, alphas) * (1 + excess))


def _compute_multiclass_rdp(mu: float, gamma: float, alphas: Floats) -> Floats:
    """Return upper bounds on D_alpha at `alphas` (n,), as (n,), for three or more classes."""
    bound = np.empty_like(alphas)
    # Orders of similar magnitude are searched together.
    octaves = np.maximum(np.ceil(np.log2(alphas * mu)), 0)
    for octave in np.unique(octaves):
        is_chosen = octaves == octave
        bound[is_chosen] = _bound_rdp(ThreeWayComparisons, mu, gamma, alphas[is_chosen])
    excess = np.array([_bound_discrete_rdp_excess_of_two(alpha, mu) for alpha in alphas])
    return np.asarray(bound * (1 + excess))


def _bound_rdp(
    comparisons: type[ThresholdTests] | type[ThreeWayComparisons],
    mu: float,
    gamma: float,
    alphas: Floats,
) -> Floats:
    """Return upper bounds on D_alpha = log(1 + G) / (alpha - 1) in both directions, (n,).

    `comparisons`: the class that bounds log G. Without sampling the two directions are equal.
    """
    log_g = comparisons(mu, gamma, alphas, reverse=False).bound_log_g()
    if gamma < 1:
        log_g = np.maximum(log_g, comparisons(mu, gamma, alphas, reverse=True).bound_log_g())
    return np.asarray(np.logaddexp(0, log_g) / (alphas - 1) * (1 + _ROUNDING))


@dataclass(frozen=True)
class NoisyLabel:
    """The label with the most noisy votes, under Poisson sampling; the votes are not released.

    `sigma` is the noise scale in votes, `gamma` the sampling probability. With `classes` = 2 the
    bound is lower; without it, it holds for any number of classes.
    """

    sort_name: ClassVar[str] = "noisy_label"

    sigma: float
    gamma: float = 1.0
    classes: int | None = None

    def rdp(self, orders: Floats) -> Floats:
        """Return the RDP at `orders` (m,), as (m,), rounded up."""
        # The label is a function of the noisy votes, so their RDP is a bound as well; at the
        # highest orders under sampling it is the smaller one.
        multiplier = math.nextafter(self.sigma / math.sqrt(2), 0.0)
        values = SubsampledGaussian(multiplier, self.gamma).rdp(orders) * (1 + 1e-9)
        is_accepted = orders <= MAX_ORDER
        label_rdp = compute_two_coordinate_rdp(
            self.sigma, self.gamma, orders[is_accepted], self.classes
        )
        values[is_accepted] = np.minimum(values[is_accepted], label_rdp)
        return values

    def build_dominating_pair(self) -> GaussianPair:
        """Return the dominating pair of the noisy votes, of which the label is a function."""
        return GaussianPair(math.nextafter(math.sqrt(2), 2) / self.sigma, self.gamma)
