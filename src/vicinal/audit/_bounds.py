"""What two samples of scores prove: lower bounds that hold at a stated confidence.

A score is any number that an attacker makes of what left; large ones speak for the world with the
subject. A threshold turns scores into guesses. Clopper and Pearson's bounds on the rates of both
guesses hold for a threshold that was fixed before these scores were seen: so a part of the scores
chooses the threshold, and the others are counted. Sources: Clopper & Pearson 1934; Jagielski,
Ullman & Oprea 2020; Nasr and others 2023 (bounds on mu).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv, ndtr, ndtri

from vicinal import _checks
from vicinal.errors import InvalidInput

Floats = npt.NDArray[np.float64]

CHOOSING = 0.2
"""Share of the scores that chooses thresholds; they are not counted."""

CANDIDATES = 200
"""Thresholds that are compared, at most."""

LEAST = 20
"""Scores of each world that an audit needs at least."""


@dataclass(frozen=True, slots=True)
class RateBounds:
    """A test of the subject's presence, and bounds on its two rates that hold together.

    Attributes
    ----------
    found : float
        Lower bound on the rate at which presence is recognised.
    false_alarms : float
        Upper bound on the rate at which it is claimed of the world without the subject.
    """

    found: float
    false_alarms: float

    @property
    def mu(self) -> float:
        """The least mu of a mu-GDP mechanism that could be tested so well; at least 0."""
        return max(0.0, float(ndtri(self.found) - ndtri(self.false_alarms)))

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon at `delta` of a mechanism that could be tested so well."""
        best = 0.0
        missed, cleared = 1 - self.found, 1 - self.false_alarms
        for power, error in ((self.found, self.false_alarms), (cleared, missed)):
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
    present: Floats,
    absent: Floats,
    confidence: float,
    worth: Callable[[RateBounds], float],
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
    """
    confidence = _checks.real("confidence", confidence, above=0, below=1)
    for scores in (present, absent):
        if len(scores) < LEAST:
            raise InvalidInput(f"An audit needs at least {LEAST} runs of each world.")
        if not np.isfinite(scores).all():
            raise InvalidInput("A score of an audit must be finite.")
    failure = (1 - confidence) / 2
    first = [math.ceil(CHOOSING * len(scores)) for scores in (present, absent)]
    threshold = _best_threshold(present[: first[0]], absent[: first[1]], failure, worth)
    return _rates(present[first[0] :], absent[first[1] :], threshold, failure)


def _rates(present: Floats, absent: Floats, threshold: float, failure: float) -> RateBounds:
    found = int((present > threshold).sum())
    alarms = int((absent > threshold).sum())
    return RateBounds(
        rate_at_least(found, len(present), failure), rate_at_most(alarms, len(absent), failure)
    )


def _best_threshold(
    present: Floats, absent: Floats, failure: float, worth: Callable[[RateBounds], float]
) -> float:
    """Return the threshold that would be worth most, were these scores all, four times over.

    The counted scores are about so many more, and what they prove is what the choice is for.
    """
    times = (1 - CHOOSING) / CHOOSING
    both = np.concatenate([present, absent])
    places = np.unique(np.quantile(both, np.linspace(0, 1, CANDIDATES), method="lower"))
    found, alarms = (_counts_above(scores, places) * times for scores in (present, absent))
    sizes = [times * len(scores) for scores in (present, absent)]
    powers = _rates_at_least(found, sizes[0], failure)
    errors = 1 - _rates_at_least(sizes[1] - alarms, sizes[1], failure)
    values = [
        worth(RateBounds(power, error))
        for power, error in zip(powers.tolist(), errors.tolist(), strict=True)
    ]
    return float(places[int(np.argmax(values))])


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

    For thresholds half-way, where they are best: found and false alarms are then equally rare.
    It is the power of the audit, not a bound on anything.

    Parameters
    ----------
    claim : float
        The claimed mu.
    runs : int
        Runs of each world.
    """
    counted = max(1, math.floor((1 - CHOOSING) * runs))
    failure = (1 - confidence) / 2
    low, high = claim, claim + 40.0
    for _ in range(60):
        middle = (low + high) / 2
        rate = float(ndtr(middle / 2))
        spread = math.sqrt(rate * (1 - rate) / counted)
        unlucky = rate - float(ndtri(math.sqrt(power))) * spread
        happened = math.floor(counted * max(0.0, unlucky))
        proved = rate_at_least(happened, counted, failure)
        seen = proved > 0 and 2 * float(ndtri(proved)) > claim
        low, high = (low, middle) if seen else (middle, high)
    return high
