r"""What a release costs when only the label with the most noisy votes leaves.

Proof note: label_only.md. Gaussian noise per vote, continuous, or discrete on a grid that is as
fine as :data:`LINE_GRID` and :data:`PLANE_GRID` say: the label of discrete noise is not a function
of the label of continuous noise, so both are proven, and every bound here contains the difference.

- Two coordinates move apart (Private-kNN): the worst three-way comparison,
  :func:`two_coordinate_rdp`, exactly Poisson-subsampled; of two classes the worst threshold test.
- :class:`NoisyLabel` is the same as a term of a composition.

One coordinate in an individual filter (Ind-KNN) is `label_filter.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vicinal import checks
from vicinal.accounting._divergence import LARGEST_ORDER, GaussianPair, checked_orders
from vicinal.accounting._label_divergence import ThreeWayComparison, Thresholds
from vicinal.accounting.gaussian import SubsampledGaussian
from vicinal.accounting.label_filter import MAX_CLASSES
from vicinal.arrays import Floats

LINE_GRID = 1 << 22  # least noise scale, in grid steps, for the bounds of one moving coordinate
PLANE_GRID = 1 << 30  # least noise scale, in grid steps, for the bounds of two moving coordinates

# Above these values of order times shift the unsampled Gaussian's own bound is taken: without
# sampling 1 % and 6 % higher at most, with sampling far higher.
_LINE_LIMIT = 64.0
_PLANE_LIMIT = 12.0
# Arithmetic: differences of logarithms, a quadrature, and the trapezium below 1e-3.
_SAFETY = 1e-6


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
    mu = 1 / checks.check_real("sigma", sigma, above=0, most=1e9)
    gamma = checks.check_real("gamma", gamma, least=0, most=1)
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


def grid_excess(scale: float, order: float, mu: float) -> float:
    """Return the share by which a discrete Gaussian may cost more than the continuous one.

    For one moving coordinate, scale >= 1 grid steps, mu <= 1 and order * mu <= 64; at the coarsest
    grid allowed, 2^22, it is below 2e-6. Proof: label_only.md, section 5.
    """
    scale = checks.check_real("scale", scale, least=1)
    order = checks.check_real("order", order, above=1)
    mu = checks.check_real("mu", mu, least=0)
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


def _checked_classes(classes: int) -> int:
    return checks.check_integer("classes", classes, least=2, most=MAX_CLASSES)


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
