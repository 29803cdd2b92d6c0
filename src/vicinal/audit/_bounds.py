"""What two samples of scores prove: lower bounds that hold at a stated confidence.

A score is any number that an attacker makes of what left; large ones speak for the world with the
subject. A threshold turns scores into guesses, and the guesses into one of two bounds:

- on both rates, by Clopper and Pearson at half of the failure probability each;
- on their difference alone. The guesses that are right, over both worlds in equal numbers, are a
  sum of coins of two chances; its upper tail is no heavier than that of equal coins of the same
  mean (Hoeffding 1956, Theorem 4), so Clopper and Pearson bound that mean. One bound instead of
  two: a third nearer where both errors are equally likely.

Both hold for a test that was fixed before these scores were seen: so the first part of the scores
chooses the threshold and the bound, and the others are counted. Sources: Clopper & Pearson 1934;
Hoeffding 1956; Jagielski, Ullman & Oprea 2020; Nasr and others 2023 (bounds on mu).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv, ndtr, ndtri

from vicinal import _checks
from vicinal._arrays import Floats
from vicinal.errors import InvalidInput

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

    Attributes
    ----------
    power : float
        Lower bound on the rate at which presence is recognised.
    false_alarms : float
        Upper bound on the rate at which it is claimed of the world without the subject.
    even : bool
        Whether only the difference of both rates is bounded: they stand for the pair with equal
        errors, which is what proves least of all pairs with this difference.

    Examples
    --------
    >>> from vicinal.audit import RateBounds
    >>> round(RateBounds(power=0.6, false_alarms=0.2).epsilon(delta=1e-5), 2)  # ln(.6 / .2)
    1.1
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

    Parameters
    ----------
    present, absent : float64 (n,), (m,)
        Scores of independent runs in the worlds with and without the subject.
    confidence : float
        Probability that both bounds hold, at least; 0 < confidence < 1.
    worth : callable
        What a test is chosen by, given bounds made of the first part.

    Raises
    ------
    InvalidInput
        For fewer than :data:`LEAST` scores of a world, or a score that is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.audit import rate_bounds
    >>> draws = np.random.default_rng(0)
    >>> present, absent = draws.normal(1, 1, 20_000), draws.normal(0, 1, 20_000)
    >>> bounds = rate_bounds(present, absent, 0.95, worth=lambda bounds: bounds.mu)
    >>> bool(0.8 < bounds.mu < 1.0)  # the truth is 1
    True
    """
    confidence = _checks.real("confidence", confidence, above=0, below=1)
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
    """Return how many scores lie above each threshold, (t,)."""
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

    Parameters
    ----------
    claim : float
        The claimed mu.
    runs : int
        Runs of each world.

    Examples
    --------
    >>> from vicinal.audit import visible_mu
    >>> few, many = (visible_mu(1.0, runs, confidence=0.999) for runs in (1000, 100_000))
    >>> 1.0 < many < few
    True
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
