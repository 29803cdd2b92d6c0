r"""Releases of which only the label leaves, as terms of a composition.

The bounds are those of :mod:`vicinal.accounting._label_only`; its proof note lies beside it.

Multi-label votes with the tau-approximation.

Each neighbour's 0/1 label vector f becomes f * min(tau/|f|_1, 1), so its squared L2 norm is at most
tau. One subject in and one out of the k neighbours moves the sum by at most sqrt(2 tau), as two
vectors with non-negative entries differ by ||a - b||^2 <= ||a||^2 + ||b||^2 <= 2 tau. With noise of
scale sigma on every attribute the RDP is alpha tau / sigma^2.

Source: Zhu, Yu, Chandraker & Wang 2020, supplement, Theorem 5. Their published code scales the
ones of a vector but not its zeros (as votes of no), which triples the cost at tau=10 of 40 labels.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from vicinal import _checks
from vicinal.accounting._divergence import Array, GaussianPair
from vicinal.accounting._gaussian import SubsampledGaussian
from vicinal.accounting._label_only import LARGEST_ORDER, label_budget, two_coordinate_rdp


@dataclasses.dataclass(frozen=True)
class NoisyLabel:
    """The label with the most noisy votes, under Poisson sampling; no votes leave.

    `sigma` is in votes. `classes` is given only if it is to be made use of: two are cheaper.
    """

    sigma: float
    gamma: float = 1.0
    classes: int | None = None

    def rdp(self, orders: Array) -> Array:
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


@dataclasses.dataclass(frozen=True)
class LabelFilter:
    """An individual filter over labels, at the one order that it charges by.

    The whole interaction is (order, budget)-RDP, and so (alpha, budget)-RDP at every smaller alpha;
    above the order nothing is known.
    """

    order: float
    budget: float

    @classmethod
    def from_epsilon(cls, epsilon: float, delta: float) -> LabelFilter:
        """Return the filter that keeps (epsilon, delta)."""
        target = label_budget(epsilon, delta)
        return cls(target.order, target.budget)

    def rdp(self, orders: Array) -> Array:
        """Return the budget up to the filter's order, infinity above."""
        return np.where(orders <= self.order, self.budget, np.inf)

    def pair(self) -> None:
        """Return None: one order fixes no pair."""


def sensitivity(tau: float) -> float:
    """Return the L2 sensitivity sqrt(2 tau) of the summed, tau-bounded label vectors."""
    return math.nextafter(math.sqrt(2 * _checks.real("tau", tau, above=0)), math.inf)


def multilabel(tau: float, sigma: float, gamma: float = 1.0) -> SubsampledGaussian:
    """Return the release of one query's noisy label counts at noise scale `sigma` (votes)."""
    scale = _checks.real("sigma", sigma, above=0)
    return SubsampledGaussian(scale / sensitivity(tau), gamma)
