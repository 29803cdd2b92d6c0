"""What a mechanism claims, as a bound on every test: power at a rate of false alarms.

A mechanism keeps its claim if no test recognises presence more often than :meth:`Claim.power` at
the test's rate of false alarms, in both directions. So a claim is compared where the test was made,
and no curve has to be fitted. Sources: Wasserman & Zhou 2010; Dong, Roth & Su 2022.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from vicinal.accounting import _budget
from vicinal.accounting._label_only import LabelBudget
from vicinal.accounting._plan import Plan
from vicinal.accounting._pld import _totals
from vicinal.errors import InvalidInput

_LOSSES = np.concatenate([np.linspace(0, 4, 161), np.linspace(4.1, 30, 130)])
_BISECTIONS = 80
_SURE = 1e-12  # rates are taken to lie this far from 0 and 1
_UP = 1e-9  # what the arithmetic here may lose, relative to a rate


class Claim(ABC):
    """A bound on all tests of one subject's presence.

    Attributes
    ----------
    delta : float
        At which :meth:`epsilon` states it.
    """

    delta: float

    @abstractmethod
    def power(self, false_alarms: float) -> float:
        """Return the highest rate of recognition that the claim allows, rounded up."""

    @abstractmethod
    def epsilon(self) -> float:
        """Return epsilon at :attr:`delta`, rounded up."""

    def mu(self, false_alarms: float) -> float:
        """Return the power in units of a Gaussian shift; of a mu-GDP claim mu, anywhere."""
        false_alarms = min(max(false_alarms, _SURE), 1 - _SURE)
        return float(ndtri(self.power(false_alarms)) - ndtri(false_alarms))


@dataclass(frozen=True)
class GaussianClaim(Claim):
    """A mu-GDP mechanism, but for a share of delta that its grid may use up.

    Attributes
    ----------
    shift : float
        mu.
    delta : float
        The delta of the whole claim.
    slack : float
        What the grid may add to any power.
    """

    shift: float
    delta: float
    slack: float = 0.0

    def power(self, false_alarms: float) -> float:
        """Return Phi(Phi^-1(false alarms) + mu) and the slack."""
        bound = float(ndtr(ndtri(false_alarms) + self.shift))
        return min(1.0, bound * (1 + _UP) + self.slack)

    def epsilon(self) -> float:
        """Return epsilon at delta less the slack."""
        return _budget.gdp_epsilon(self.shift, self.delta - self.slack)


@dataclass(frozen=True)
class RenyiClaim(Claim):
    """A mechanism that is (order, budget)-RDP at one order, in both directions.

    What left is seen through a test of two outcomes, whose divergence cannot be larger.
    """

    known: LabelBudget
    delta: float

    def power(self, false_alarms: float) -> float:
        """Return the largest power whose two-outcome divergence is within the budget."""
        low, high = false_alarms, 1.0
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            kept = self._cost(middle, false_alarms) <= self.known.budget
            low, high = (middle, high) if kept else (low, middle)
        return min(1.0, high * (1 + _UP))

    def epsilon(self) -> float:
        """Return epsilon at delta."""
        return self.known.epsilon(self.delta)

    def _cost(self, p: float, q: float) -> float:
        return max(two_outcomes(p, q, self.known.order), two_outcomes(q, p, self.known.order))


def two_outcomes(p: float, q: float, order: float) -> float:
    """Return the Renyi divergence of a coin of chance `p` from one of chance `q`."""
    terms = [
        order * math.log(a) + (1 - order) * math.log(b) if a > 0 and b > 0 else math.inf
        for a, b in ((p, q), (1 - p, 1 - q))
        if a > 0
    ]
    top = max(terms)
    if top == math.inf:
        return math.inf
    return (top + math.log(sum(math.exp(term - top) for term in terms))) / (order - 1)


class PlanClaim(Claim):
    """What `vicinal account` says of a plan: its privacy loss distribution, at every epsilon.

    Parameters
    ----------
    plan : mapping
        The JSON of a plan without private votes.

    Raises
    ------
    InvalidInput
        If a release of the plan has no dominating pair.
    """

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self._plan = Plan.from_dict(plan)
        self.delta = self._plan.delta
        composition = self._plan.composition()
        if "pld" not in composition.methods():
            raise InvalidInput("The plan holds a release of which only a Renyi curve is known.")
        self._pairs = composition._pairs()

    @cached_property
    def _deltas(self) -> list[float]:
        totals = _totals(self._pairs, 1e-12)
        if not totals:
            return [1.0] * len(_LOSSES)
        return [min(1.0, max(t.delta(float(loss)) for t in totals)) for loss in _LOSSES]

    def power(self, false_alarms: float) -> float:
        """Return the least of delta + e^eps (false alarms), and of the same mirrored."""
        best = 1.0
        for loss, delta in zip(_LOSSES.tolist(), self._deltas, strict=True):
            best = min(best, delta + math.exp(loss) * false_alarms)
            best = min(best, 1 - math.exp(-loss) * (1 - false_alarms - delta))
        return min(1.0, best * (1 + _UP))

    def epsilon(self) -> float:
        """Return the best valid epsilon at the plan's delta."""
        return float(self._plan.price(lower=False)["epsilon"])
