r"""One interaction, many canaries: what its guesses prove about epsilon, and about mu.

Every canary is put in by a fair coin of its own. From one interaction the attacker guesses some of
the coins, most of them right if the mechanism leaks.

Without delta (Steinke, Nasr & Jagielski 2023): of r guesses of an epsilon-DP mechanism no more are
right than of r coins of chance e^eps / (1 + e^eps). With delta, and for mu, the trade-off curve is
taken: the 2023 bound for delta > 0, as printed, is too small (docs/decisions/0069-audits.md).

Mahloujifar, Melis & Chaudhuri 2024, for a trade-off curve: with g = 1 - f, the largest power at a
rate of false alarms, and p_i the probability of i right guesses of r, every tail obeys
sum over i >= j of (i / m) p_i <= g(sum over i >= j of ((r - i + 1) / m) p_(i-1)). Starting from a
tail probability tau at v and going down, the least that all tails together must hold is
accumulated; if that is more than the whole mass, tau was too much. The largest tau that fits bounds
P(W >= v). Both bounds hold however guesses are chosen, and need no independence of the canaries.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from scipy.special import ndtr, ndtri
from scipy.stats import binom

from vicinal import _checks

_BISECTIONS = 60
_LARGEST = 60.0

Tradeoff = Callable[[float], float]
"""The least rate of false alarms at which a power can be had."""


@dataclass(frozen=True, slots=True)
class Guesses:
    """What came of guessing coins.

    Attributes
    ----------
    canaries, guessed, right : int
        m, r and v.

    Examples
    --------
    >>> from vicinal.audit import Guesses
    >>> Guesses(canaries=500, guessed=125, right=70).right
    70
    """

    canaries: int
    guessed: int
    right: int

    def __post_init__(self) -> None:
        _checks.integer("canaries", self.canaries, least=1)
        _checks.integer("guessed", self.guessed, least=0, most=self.canaries)
        _checks.integer("right", self.right, least=0, most=self.guessed)


def chance_under_dp(guesses: Guesses, epsilon: float, delta: float) -> float:
    """Return a bound on the chance of guessing so well against (epsilon, delta)-DP."""
    r, v = guesses.guessed, guesses.right
    if delta == 0:
        return float(binom.sf(v - 1, r, 1 / (1 + math.exp(-epsilon))))
    return chance_under_tradeoff(guesses, dp_tradeoff(epsilon, delta))


def dp_tradeoff(epsilon: float, delta: float) -> Tradeoff:
    """Return the least false alarms at each power against (epsilon, delta)-DP."""
    factor = math.exp(epsilon)
    return lambda power: max(0.0, (power - delta) / factor, 1 - delta - factor * (1 - power))


def chance_under_mu(guesses: Guesses, mu: float) -> float:
    """Return a bound on the chance of guessing so well against a mu-GDP mechanism."""
    return chance_under_tradeoff(guesses, lambda power: float(ndtr(ndtri(power) - mu)))


def chance_under_tradeoff(guesses: Guesses, tradeoff: Tradeoff) -> float:
    """Return a bound on the chance of guessing so well against a trade-off curve.

    `guesses`: what came of it. `tradeoff`: the inverse of the largest power: the least false alarms
    at which a power can be had.
    """
    low, high = 0.0, 1.0
    if _fits(guesses, 1.0, tradeoff):
        return 1.0
    for _ in range(_BISECTIONS):
        middle = math.sqrt(low * high) if low > 0 else high / 16
        low, high = (middle, high) if _fits(guesses, middle, tradeoff) else (low, middle)
        if low == 0 and high < 1e-30:
            break
    return high


def _fits(guesses: Guesses, tail: float, tradeoff: Tradeoff) -> bool:
    """Tell whether so many right guesses may come with probability `tail`."""
    m, r, v = guesses.canaries, guesses.guessed, guesses.right
    if r == 0 or v == 0:
        return True
    right, wrong = tail * v / m, tail * (r - v) / m
    for i in range(v - 1, -1, -1):
        needed = max(wrong, tradeoff(min(1.0, right)))
        right, wrong = right + i / (r - i) * (needed - wrong), needed
        if right + wrong > r / m:
            return False
    return True


def epsilon_from_guesses(guesses: Guesses, delta: float, confidence: float) -> float:
    """Return a lower bound on epsilon at `delta`, at a confidence of 0 < `confidence` < 1.

    Examples
    --------
    >>> from vicinal.audit import Guesses, epsilon_from_guesses
    >>> round(epsilon_from_guesses(Guesses(500, 100, 90), delta=0.0, confidence=0.95), 1)
    1.6
    """
    failure = 1 - _checks.real("confidence", confidence, above=0, below=1)
    delta = _checks.real("delta", delta, least=0, below=1)
    if delta == 0:
        return _largest_refuted(lambda epsilon: chance_under_dp(guesses, epsilon, 0.0) <= failure)
    return _largest_refuted(
        lambda epsilon: not _fits(guesses, failure, dp_tradeoff(epsilon, delta))
    )


def mu_from_guesses(guesses: Guesses, confidence: float) -> float:
    """Return a lower bound on mu at a confidence of 0 < `confidence` < 1.

    Examples
    --------
    >>> from vicinal.audit import Guesses, mu_from_guesses
    >>> mu_from_guesses(Guesses(500, 100, 51), confidence=0.95)  # as by tossing a coin
    0.0
    """
    failure = 1 - _checks.real("confidence", confidence, above=0, below=1)
    return _largest_refuted(
        lambda mu: not _fits(guesses, failure, lambda power: float(ndtr(ndtri(power) - mu)))
    )


def _largest_refuted(refuted: Callable[[float], bool]) -> float:
    low, high = 0.0, _LARGEST
    if not refuted(low):
        return 0.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
