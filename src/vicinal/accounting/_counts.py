r"""Releases besides votes: noisy counts, and mechanisms of others by their curve.

A number that one subject moves by at most its sensitivity, with noise of its own, is dominated by
the pair of its noise and the same noise moved by the whole sensitivity. A histogram of which a
subject moves at most m cells is m such numbers: their noises are independent, so the pair is their
product.

*Laplace*, scale b, sensitivity D, e = D/b. H_eps = 1 - exp((eps - e)/2) for 0 <= eps <= e, and 0
beyond. RDP (Mironov 2017, Prop. 6), with g(x) = e^x - 1 - x, as the linear terms cancel:
(alpha - 1) D_alpha = log(1 + (alpha g((alpha - 1) e) + (alpha - 1) g(-alpha e)) / (2 alpha - 1)).

*A curve* known at some orders: (alpha - 1) D_alpha is convex in alpha and 0 at 1, so the straight
lines between known orders lie above it; beyond the largest nothing is known.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from vicinal._arrays import Floats
from vicinal.accounting._certificate import WorstCasePair
from vicinal.accounting._divergence import Pair

_SERIES_BELOW = 0.05
_FAR = 30.0
_CELLS = 4000  # of a continuous law, for a lower bound
_DOWN = 1 - 1e-12


@dataclasses.dataclass(frozen=True)
class LaplacePair(Pair):
    """Laplace noise against the same, moved; `size` is the largest loss."""

    size: float

    @property
    def symmetric(self) -> bool:
        return True

    def excess(self, losses: Floats) -> Floats:
        value = -np.expm1(np.minimum(np.abs(losses) - self.size, 0.0) / 2)
        return np.asarray(np.exp(np.minimum(losses, 0.0)) * value)

    def worst_case(self, count: int) -> WorstCasePair:
        """Return the pair in cells, rounded down: between the centres, and one on either side."""
        edges = self.size * np.linspace(0, 1, _CELLS + 1)
        without = np.exp(-edges[:-1]) * -np.expm1(-np.diff(edges)) / 2
        masses = np.concatenate([[np.exp(-self.size) / 2], without[::-1], [0.5]])
        losses = np.concatenate([[-self.size], np.log(without[::-1] / without), [self.size]])
        return WorstCasePair(masses * _DOWN, losses, count)


@dataclasses.dataclass(frozen=True)
class LaplaceNumber:
    """A number with Laplace noise; `size` > 0 is sensitivity over scale."""

    size: float

    def rdp(self, orders: Floats) -> Floats:
        """Return the RDP, exact."""
        less, size = orders - 1, self.size
        with np.errstate(over="ignore", invalid="ignore"):
            gap = orders * _gap(less * size) + less * _gap(-orders * size)
            near = np.log1p(gap / (2 * orders - 1))
        far = np.logaddexp(np.log(orders) + less * size, np.log(less) - orders * size)
        return np.where(less * size > _FAR, far - np.log(2 * orders - 1), near) / less

    def pair(self) -> LaplacePair:
        """Return the dominating pair; exact."""
        return LaplacePair(self.size)


def _gap(values: Floats) -> Floats:
    """Return e^x - 1 - x >= 0, by its series where that would cancel."""
    series, term = np.zeros_like(values), np.ones_like(values)
    small = np.where(np.abs(values) < _SERIES_BELOW, values, 0.0)
    for power in range(1, 12):
        term = term * small / power
        series += term if power > 1 else 0.0
    return np.where(small == 0.0, np.expm1(values) - values, series)


@dataclasses.dataclass(frozen=True)
class RenyiCurve:
    """A release by its RDP `values` at growing `orders` > 1."""

    orders: tuple[float, ...]
    values: tuple[float, ...]

    def rdp(self, orders: Floats) -> Floats:
        """Return the bound by convexity; infinite beyond the largest order."""
        known = np.array(self.orders) - 1
        scaled = np.append(0.0, known * np.array(self.values))
        # A line between two orders is rounded up by more than its arithmetic errs.
        lines = np.interp(orders - 1, np.append(0.0, known), scaled, right=np.inf)
        return np.asarray(lines / (orders - 1) * (1 + 1e-12))

    def pair(self) -> None:
        """Return None: a curve does not fix a dominating pair."""
