"""What the numbers mean, for readers who are not privacy experts."""

from __future__ import annotations

import math
from statistics import NormalDist

from vicinal import _checks
from vicinal.accounting import Guarantee


def guess_limit(epsilon: float, delta: float) -> float:
    """Return how often a guess about one person's presence can be right, at most.

    The guesser sees every answer, knows every other record, and would be right half the time by
    tossing a coin. From the two error rates of any test under (epsilon, delta)-DP: their sum is at
    least 2 (1 - delta) / (1 + e^epsilon) (Kairouz, Oh and Viswanath 2015).
    """
    epsilon = _checks.real("epsilon", epsilon, above=0)
    delta = _checks.real("delta", delta, least=0, below=1)
    return 1 - (1 - delta) * math.exp(-epsilon) / (1 + math.exp(-epsilon))


def gaussian_guess_limit(budget: float, delta: float) -> float:
    """Return the same limit where all noise is Gaussian: Phi(mu / 2) with mu = sqrt(2 B).

    Dong, Roth and Su 2022. What the integer grid adds is below 1 % of delta; all of delta is
    added here.
    """
    budget = _checks.real("budget", budget, above=0)
    return min(1.0, NormalDist().cdf(math.sqrt(2 * budget) / 2) + delta)


def meaning(guarantee: Guarantee, budget: float, n_queries: int) -> dict[str, str]:
    """Return short statements about a guarantee with Gaussian noise, each with its explanation."""
    coin = percent_up(guess_limit(guarantee.epsilon, guarantee.delta))
    sharper = percent_up(gaussian_guess_limit(budget, guarantee.delta))
    return {
        "Nobody stands out.": (
            "With or without the record of any one person, the answers come out almost alike. "
            "Epsilon and delta say how much they can differ; smaller is safer."
        ),
        "Guessing hardly helps.": (
            "Suppose that somebody sees all answers, knows every other record, and has to guess "
            "whether one certain person is in the data. A coin would be right 50 % of the time. "
            f"Epsilon = {guarantee.epsilon:g} means that they are right at most {coin} of the "
            "time, however clever they are. Because all noise used here is Gaussian, the limit is "
            f"in fact {sharper}."
        ),
        "It does not wear off.": (
            "The limit holds for all answers together, however the queries were chosen, and "
            "whatever becomes known later. Nothing done with the answers afterwards weakens it."
        ),
        "It protects persons, not patterns.": (
            "What many records have in common is learnt, and is the point of asking. The queries "
            "and the answers themselves are public."
        ),
        "It has a price.": (
            "Noise makes some answers wrong. Every person has a budget, and whoever has spent it "
            f"takes no further part. It was planned to last for {n_queries:,} answers; more may "
            "be asked, and become noisier."
        ),
    }


def percent(share: float, digits: int = 1) -> str:
    """Return a share in words, as "97.3 %"."""
    return f"{100 * share:.{digits}f} %"


def percent_up(share: float) -> str:
    """Return a bound in words, rounded up to a tenth of a percent."""
    return f"{math.ceil(1000 * share - 1e-9) / 10:.1f} %"


def interval(ends: tuple[float, float]) -> str:
    """Return a 95 % interval in words."""
    return f"95 % interval {100 * ends[0]:.1f} to {100 * ends[1]:.1f} %"


def duration(seconds: float) -> str:
    """Return a time in words."""
    minutes, remainder = divmod(round(seconds), 60)
    return f"{minutes} min {remainder} s" if minutes else f"{remainder} s"


def gibibytes(size: int) -> str:
    """Return an amount of memory in words."""
    return f"{size / 2**30:.1f} GiB"
