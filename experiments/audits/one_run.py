"""What guesses of canaries prove: ours beside figures that others printed, and a second recursion.

Printed: Steinke, Nasr & Jagielski 2023, appendix D and section 7. Recursion: Mahloujifar, Melis &
Chaudhuri 2024, for a Gaussian curve, written anew and searched over epsilon instead of mu.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from vicinal.accounting._budget import gdp_epsilon
from vicinal.audit import Guesses, epsilon_from_guesses, mu_from_guesses

_CONFIDENCE = 0.95

PINS = (
    (Guesses(1000, 100, 75), 1e-4, 0.673),
    (Guesses(100_000, 1510, 1439), 1e-5, 2.675),
    (Guesses(500, 125, 110), 1e-5, None),
)
"""Canaries, guesses and right ones; delta; the epsilon that was printed, or None."""

_HEAD = (
    "canaries", "guesses", "right", "delta", "printed", "their rule",
    "delta = 0", "epsilon", "mu", "as eps", "recursion",
)  # fmt: skip


@dataclass(frozen=True)
class Compared:
    """Lower bounds at 95 % that one outcome proves."""

    canaries: int
    guesses: int
    right: int
    delta: float
    printed: float | None
    their_rule: float
    without_delta: float
    epsilon: float
    mu: float
    mu_as_epsilon: float
    recursion: float

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return asdict(self)

    def text(self) -> str:
        """Return it as a line of the table."""
        figures = (
            self.their_rule, self.without_delta, self.epsilon, self.mu, self.mu_as_epsilon,
            self.recursion,
        )  # fmt: skip
        printed = "" if self.printed is None else f"{self.printed:.3f}"
        cells = (self.canaries, self.guesses, self.right, f"{self.delta:g}", printed)
        return "".join(f"{cell:>11}" for cell in (*cells, *(f"{value:.3f}" for value in figures)))


def compared() -> list[Compared]:
    """Return all rows."""
    return [_compared(*pin) for pin in PINS]


def _compared(guesses: Guesses, delta: float, printed: float | None) -> Compared:
    mu = mu_from_guesses(guesses, _CONFIDENCE)
    return Compared(
        guesses.canaries, guesses.guessed, guesses.right, delta, printed,
        rule_of_2023(guesses, 1 - _CONFIDENCE, delta),
        epsilon_from_guesses(guesses, 0.0, _CONFIDENCE),
        epsilon_from_guesses(guesses, delta, _CONFIDENCE),
        mu, gdp_epsilon(mu, delta), recursion(guesses, 1 - _CONFIDENCE, delta),
    )  # fmt: skip


def rule_of_2023(guesses: Guesses, failure: float, delta: float) -> float:
    """Return epsilon by the rule printed in 2023, with delta, which is too small (decision 69).

    The chance of v right guesses of r is taken to be at most P(W >= v) for a binomial W, and
    2 m delta times the largest P(v > W >= v - i) / i.
    """
    m, r, v = guesses.canaries, guesses.guessed, guesses.right

    def left_over(epsilon: float) -> float:
        law = binom(r, 1 / (1 + np.exp(-epsilon)))
        below = np.cumsum(law.pmf(np.arange(v - 1, -1, -1))) / np.arange(1, v + 1)
        return float(law.sf(v - 1) + 2 * m * delta * below.max()) - failure

    return float(brentq(left_over, 1e-6, 40))


def recursion(guesses: Guesses, failure: float, delta: float) -> float:
    """Return the epsilon at `delta` whose Gaussian curve just allows so many right guesses."""
    m, r, v = guesses.canaries, guesses.guessed, guesses.right

    def left_over(epsilon: float) -> float:
        mu = brentq(lambda shift: gdp_epsilon(shift, delta) - epsilon, 1e-6, 60)
        right, wrong = failure * v / m, failure * (r - v) / m
        for i in range(v - 1, -1, -1):
            more = max(wrong, float(ndtr(ndtri(right) - mu)))
            right, wrong = min(1.0, right + i / (r - i) * (more - wrong)), more
        return right + wrong - r / m

    return float(brentq(left_over, 1e-3, 40))


def text_table(rows: list[Compared]) -> str:
    """Return head and rows."""
    return "\n".join(["".join(f"{cell:>11}" for cell in _HEAD), *(row.text() for row in rows)])
