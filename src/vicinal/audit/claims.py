"""What a mechanism claims, as a bound on every test: power at a rate of false alarms.

A mechanism keeps its claim if no test recognises presence more often than :meth:`Claim.power` at
the test's rate of false alarms, in both directions. So a claim is compared where the test was made,
and no curve has to be fitted. Sources: Wasserman & Zhou 2010; Dong, Roth & Su 2022.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import betaincinv, ndtr, ndtri

from vicinal import checks
from vicinal.accounting.budget import gdp_epsilon
from vicinal.accounting.plan import Plan
from vicinal.accounting.pld import composed_losses
from vicinal.arrays import Floats
from vicinal.errors import InvalidInput
from vicinal.mechanisms.votes import SLACK_SHARE
from vicinal.planning.plan import IndKNNPlan

# ---------------------------------------------------------------- what two samples of scores prove

CHOOSING = 0.2
"""Share of the scores that chooses the test; they are not counted."""

AS_IF = 2.0
"""A test is judged as if there were so many times the scores that choose.

There are four times as many. But the best of many tests looks better than it is, most of all where
errors are rare; to expect fewer runs leaves such tests out, and proved more in trials.
"""

CANDIDATES = 200
"""Thresholds that are compared, at most."""

LEAST = 20
"""Scores of each world that an audit needs at least."""

_EVEN_FAILURE = 0.2  # the tail of equal coins is the heavier one from a coin above the mean on


@dataclass(frozen=True, slots=True)
class RateBounds:
    """A test of the subject's presence, and bounds on its two rates that hold together.

    Presence is recognised at a rate of at least `power`, and claimed of the world without the
    subject at a rate of at most `false_alarms`. If `even`, only the difference of both rates is
    bounded: they stand for the pair with equal errors, which proves least of all such pairs.
    """

    power: float
    false_alarms: float
    even: bool = False

    @property
    def mu(self) -> float:
        """The least mu of a mu-GDP mechanism that could be tested so well; at least 0."""
        return max(0.0, float(ndtri(self.power) - ndtri(self.false_alarms)))

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon at `delta` of a mechanism that could be tested so well."""
        best = 0.0
        missed, cleared = 1 - self.power, 1 - self.false_alarms
        for power, error in ((self.power, self.false_alarms), (cleared, missed)):
            if power > delta and error > 0:
                best = max(best, math.log((power - delta) / error))
        return best


def rate_at_least(happened: int, total: int, failure: float) -> float:
    """Return Clopper and Pearson's lower bound on a rate; above it with chance `failure`."""
    return float(betaincinv(happened, total - happened + 1, failure)) if happened else 0.0


def rate_at_most(happened: int, total: int, failure: float) -> float:
    """Return Clopper and Pearson's upper bound on a rate; below it with chance `failure`."""
    return 1 - rate_at_least(total - happened, total, failure)


def rate_bounds(
    present: Floats, absent: Floats, confidence: float, worth: Callable[[RateBounds], float]
) -> RateBounds:
    """Return bounds on the rates of the test that looks best on a first part of the scores.

    Of independent runs in the worlds with and without the subject, (n,) and (m,). Both bounds hold
    at the confidence. A test is chosen by its `worth`, given bounds made of the first part.
    """
    confidence = checks.check_real("confidence", confidence, above=0, below=1)
    for scores in (present, absent):
        if len(scores) < LEAST:
            raise InvalidInput(f"An audit needs at least {LEAST} runs of each world.")
        if not np.isfinite(scores).all():
            raise InvalidInput("A score of an audit must be finite.")
    size = min(len(present), len(absent))
    first = math.ceil(CHOOSING * size)
    threshold, even = _best_test(present[:first], absent[:first], 1 - confidence, worth)
    detections, alarms = (
        float((scores[first:size] > threshold).sum()) for scores in (present, absent)
    )
    (power,), (error,) = _bounded(
        np.array([detections]), np.array([alarms]), size - first, 1 - confidence
    )[even]
    return RateBounds(float(power), float(error), bool(even))


def _bounded(
    detections: Floats, alarms: Floats, runs: float, failure: float
) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Return bounds on both rates, and the pair of equal errors that bounds their difference.

    `detections`, `alarms`, float64 (t,): how often presence was claimed in the worlds with and
    without the subject. `runs`: of each world.
    """
    power = _rates_at_least(detections, runs, failure / 2)
    error = 1 - _rates_at_least(runs - alarms, runs, failure / 2)
    right = _rates_at_least(detections + runs - alarms, 2 * runs, failure)
    return (power, error), (right, 1 - right)


def _best_test(
    present: Floats, absent: Floats, failure: float, worth: Callable[[RateBounds], float]
) -> tuple[float, bool]:
    """Return the threshold, and whether its errors are bounded together, that look best."""
    both = np.concatenate([present, absent])
    places = np.unique(np.quantile(both, np.linspace(0, 1, CANDIDATES), method="lower"))
    detections, alarms = (_counts_above(scores, places) * AS_IF for scores in (present, absent))
    tests = [
        (worth(RateBounds(power, error, bool(even))), place, even)
        for even, rates in enumerate(_bounded(detections, alarms, AS_IF * len(present), failure))
        if not even or failure <= _EVEN_FAILURE
        for power, error, place in zip(*(r.tolist() for r in rates), places.tolist(), strict=True)
    ]
    _, threshold, even = max(tests, key=lambda test: test[0])
    return threshold, bool(even)


def _counts_above(scores: Floats, thresholds: Floats) -> Floats:
    below = np.searchsorted(np.sort(scores), thresholds, side="right")
    return np.asarray(len(scores) - below, dtype=np.float64)


def _rates_at_least(happened: Floats, total: float, failure: float) -> Floats:
    return np.where(
        happened > 0, betaincinv(np.maximum(happened, 1e-9), total - happened + 1, failure), 0.0
    )


def visible_mu(claim: float, runs: int, confidence: float, power: float = 0.95) -> float:
    """Return the least mu that an audit of a Gaussian shift puts above `claim`, with `power`.

    For thresholds half-way, where both errors are equally rare. It is the power of the audit, not
    a bound on anything.
    """
    counted = 2 * max(1, runs - math.ceil(CHOOSING * runs))
    low, high = claim, claim + 40.0
    for _ in range(60):
        middle = (low + high) / 2
        rate = float(ndtr(middle / 2))
        spread = math.sqrt(rate * (1 - rate) / counted)
        happened = math.floor(counted * max(0.0, rate - float(ndtri(power)) * spread))
        proved = rate_at_least(happened, counted, 1 - confidence)
        visible = proved > 0 and 2 * float(ndtri(proved)) > claim
        low, high = (low, middle) if visible else (middle, high)
    return high


_LOSSES = np.concatenate([np.linspace(0, 4, 161), np.linspace(4.1, 30, 130)])
_BISECTIONS = 80
_SURE = 1e-12  # rates are taken to lie this far from 0 and 1
_UP = 1e-9  # what the arithmetic here may lose, relative to a rate


class Claim(ABC):
    """A bound on all tests of one subject's presence; `delta` is that of :meth:`epsilon`."""

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
        return float(ndtri(min(self.power(false_alarms), 1 - _SURE)) - ndtri(false_alarms))

    @property
    def most_moved(self) -> float:
        """The largest Gaussian shift that private sums may be moved by, all together."""
        return math.inf

    @cached_property
    def advantage(self) -> float:
        """The largest difference of both rates that the claim allows, rounded up.

        Here for claims that are the same in both directions: their best test has equal errors.
        """
        return _first_false(0.0, lambda middle: self.power((1 - middle) / 2) >= (1 + middle) / 2)

    def allowed(self, rates: RateBounds) -> float:
        """Return the mu that the claim allows to a test, in the terms in which it was bounded."""
        if rates.even:
            return 2 * float(ndtri((1 + min(self.advantage, 1 - _SURE)) / 2))
        return self.mu(rates.false_alarms)


@dataclass(frozen=True)
class GaussianClaim(Claim):
    """A mu-GDP mechanism of mu = `shift`, whose grid may add `slack`, of `delta`, to any power."""

    shift: float
    delta: float
    slack: float = 0.0

    def power(self, false_alarms: float) -> float:
        bound = float(ndtr(ndtri(false_alarms) + self.shift))
        return min(1.0, bound * (1 + _UP) + self.slack)

    @property
    def most_moved(self) -> float:
        return self.shift * (1 + _UP)  # for the sum of squares in floating point

    def epsilon(self) -> float:
        return gdp_epsilon(self.shift, self.delta - self.slack)


def _first_false(low: float, holds: Callable[[float], bool]) -> float:
    """Return where a condition ends that holds from `low` on and not at 1, rounded up."""
    high = 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        ended = middle in (low, high)  # no number lies between
        low, high = (middle, high) if holds(middle) else (low, middle)
        if ended:
            break
    return high


def ind_knn_claim(settings: IndKNNPlan) -> Claim:
    """Return what an Ind-KNN estimator of these settings promises: mu = sqrt(2 B).

    Of the Renyi filter, too: charges are zCDP of Gaussian noise, halves of squares of mu, so one
    bound on their sum is both guarantees. Only the budgets differ, and what the grid may add.
    """
    slack = SLACK_SHARE * settings.delta if settings.accounting == "gdp" else 0.0
    return GaussianClaim(math.sqrt(2 * settings.spendable), settings.delta, slack)


class PlanClaim(Claim):
    """What `vicinal account` says of a plan: its privacy loss distribution, at every epsilon."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self._plan = Plan.from_dict(plan)
        self.delta = self._plan.delta
        composition = self._plan.composition()
        if "pld" not in composition.methods():
            raise InvalidInput("The plan holds a release of which only a Renyi curve is known.")
        self._pairs = composition._pairs()

    @cached_property
    def _deltas(self) -> tuple[Floats, Floats]:
        """Return delta at all losses of (with, without) the subject, and of (without, with)."""
        totals = composed_losses(self._pairs, 1e-12)
        if not totals:
            return np.ones_like(_LOSSES), np.ones_like(_LOSSES)
        deltas = [np.array([min(1.0, t.delta(float(e))) for e in _LOSSES]) for t in totals]
        return deltas[0], deltas[-1]

    def power(self, false_alarms: float) -> float:
        forth, back = self._deltas
        risen = forth + np.exp(_LOSSES) * false_alarms
        mirrored = 1 - np.exp(-_LOSSES) * (1 - false_alarms - back)
        return min(1.0, float(min(risen.min(), mirrored.min())) * (1 + _UP))

    @cached_property
    def advantage(self) -> float:
        return float(min(deltas[0] for deltas in self._deltas)) * (1 + _UP)

    def epsilon(self) -> float:
        return float(self._plan.price(lower=False)["epsilon"])
