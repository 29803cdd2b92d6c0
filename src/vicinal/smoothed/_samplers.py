"""How records come to be in the sample: the only randomness of a mechanism without noise."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

from vicinal import _checks
from vicinal._arrays import Counts
from vicinal.errors import InvalidInput
from vicinal.smoothed import _saddle
from vicinal.smoothed._edges import LOSS, draws_loss, edge_loss, mean_over, mixed_edge
from vicinal.smoothed._intervals import LogInterval

Chances = list[tuple[int, float]]

MOST_RECORDS = 10**9
_LARGEST_EXPONENT = 600.0


class Sampler(ABC):
    """A way to draw a sample from a database, without regard to what the records say."""

    @abstractmethod
    def check(self, n: int) -> None:
        """Refuse a database of n records that cannot be sampled so."""

    @abstractmethod
    def touched(self, n: int) -> float:
        """Return the probability that a given record of n is in the sample."""

    @abstractmethod
    def pair(self, a: int, b: int, n: int, epsilon: float, measure: int = LOSS) -> LogInterval:
        """Return the divergence when the sampled counts of all types are published.

        X has a + 1 records of one type and b of another, X' has a and b + 1; n are all records,
        those of further types too. `measure` is the sum over outcomes of (P - E P')+, or a gain
        (:mod:`vicinal.smoothed._edges`).
        """

    @abstractmethod
    def outcomes(self, counts: Counts) -> list[tuple[tuple[int, ...], float]]:
        """Return every sampled histogram of a small database with its log probability."""


@dataclass(frozen=True, slots=True)
class FixedSize(Sampler):
    """`size` records, uniformly without replacement (T in theory.md, section 8).

    Examples
    --------
    >>> from vicinal.smoothed import FixedSize
    >>> FixedSize(5).touched(10)  # the share of samples that a record is in
    0.5
    """

    size: int

    def __post_init__(self) -> None:
        _checks.integer("size", self.size, least=0, most=MOST_RECORDS)

    def check(self, n: int) -> None:
        """Refuse fewer than T records."""
        if self.size > n:
            raise InvalidInput(
                f"The 'size' parameter must be at most the number of records. Got {self.size}."
            )

    def touched(self, n: int) -> float:
        """Return T / n."""
        return self.size / n

    def pair(self, a: int, b: int, n: int, epsilon: float, measure: int = LOSS) -> LogInterval:
        """Return the divergence; two types need no mixture."""
        both, e = a + b + 1, boundary(epsilon)
        if both == n:
            return edge_loss(a, b, self.size, e, measure).capped()
        low, high = max(0, self.size - (n - both)), min(both, self.size)
        log_p = _saddle.hypergeometric(both, n - both, self.size, low, high + 1)
        return mixed_edge(log_p, low, a, b, e, measure).capped()

    def outcomes(self, counts: Counts) -> list[tuple[tuple[int, ...], float]]:
        """Return all samples of T records, as counts by type, with log probabilities."""

        def law(count: int, others: int, drawn: int) -> Chances:
            undrawn = self.size - drawn
            reachable = range(max(0, undrawn - others), min(count, undrawn) + 1)
            return [(o, _saddle.log_hypergeometric(o, count, others, undrawn)) for o in reachable]

        return _type_by_type(counts, law)


@dataclass(frozen=True, slots=True)
class Poisson(Sampler):
    """Every record with probability `gamma`, independently; how many were drawn is seen too.

    Examples
    --------
    >>> from vicinal.smoothed import Poisson
    >>> Poisson(0.25).touched(10)
    0.25
    """

    gamma: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", _checks.real("gamma", self.gamma, least=0, most=1))

    def check(self, n: int) -> None:
        """Refuse no records, and too many."""
        _checks.integer("n", n, least=1, most=MOST_RECORDS)

    def touched(self, n: int) -> float:  # noqa: ARG002 - the same for every n
        """Return gamma, for every n."""
        return self.gamma

    def pair(self, a: int, b: int, n: int, epsilon: float, measure: int = LOSS) -> LogInterval:  # noqa: ARG002
        """Return the divergence: the size of the sample is seen, so a mixture over it."""
        log_p = _saddle.binomial(a + b + 1, self.gamma)
        return mixed_edge(log_p, 0, a, b, boundary(epsilon), measure).capped()

    def outcomes(self, counts: Counts) -> list[tuple[tuple[int, ...], float]]:
        """Return all samples, as counts by type, with log probabilities."""
        return _type_by_type(counts, lambda count, *_: _coins(count, self.gamma))


@dataclass(frozen=True, slots=True)
class WithReplacement(Sampler):
    """`size` draws of one record each, every time from the whole database.

    Examples
    --------
    >>> from vicinal.smoothed import WithReplacement
    >>> round(WithReplacement(2).touched(10), 2)  # one less .9 squared
    0.19
    """

    size: int

    def __post_init__(self) -> None:
        _checks.integer("size", self.size, least=0, most=MOST_RECORDS)

    def check(self, n: int) -> None:
        """Refuse no records, and too many."""
        _checks.integer("n", n, least=1, most=MOST_RECORDS)

    def touched(self, n: int) -> float:
        """Return 1 - (1 - 1/n)^T."""
        return -math.expm1(self.size * math.log1p(-1 / n)) if n > 1 else float(self.size > 0)

    def pair(self, a: int, b: int, n: int, epsilon: float, measure: int = LOSS) -> LogInterval:
        """Return the divergence; two types need no mixture."""
        both = a + b + 1
        if both == n:
            return draws_loss(a, b, self.size, epsilon, measure).capped()
        log_p = _saddle.binomial(self.size, both / n)
        return mean_over(log_p, 0, lambda s: draws_loss(a, b, s, epsilon, measure)).capped()

    def outcomes(self, counts: Counts) -> list[tuple[tuple[int, ...], float]]:
        """Return all results of T draws, as counts by type, with log probabilities."""

        def law(count: int, others: int, drawn: int) -> Chances:
            return _coins(self.size - drawn, count / (count + others) if count else 0.0)

        states = _type_by_type(counts, law)
        return [state for state in states if sum(state[0]) == self.size]


def _coins(draws: int, chance: float) -> Chances:
    """Return what so many coins can show, with log probabilities."""
    return [(o, float(p)) for o, p in enumerate(_saddle.binomial(draws, chance)) if p > -math.inf]


def _type_by_type(
    counts: Counts, law: Callable[[int, int, int], Chances]
) -> list[tuple[tuple[int, ...], float]]:
    """Return samples with log probabilities; `law` says how many of a type are drawn.

    It is given the records of the type and of those after it, and how many were drawn before.
    """
    states: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    others = int(counts.sum())
    for count in counts.tolist():
        others -= count
        chances = cache(partial(law, count, others))
        states = [
            ((*drawn, o), log_p + p) for drawn, log_p in states for o, p in chances(sum(drawn))
        ]
    return states


def boundary(epsilon: float) -> float:
    """Return E = exp(epsilon); from epsilon = 600 on a smaller E, which gives larger deltas."""
    return math.exp(min(epsilon, _LARGEST_EXPONENT))
