"""What is audited: mechanisms whose only randomness is the sampling of records.

Their base classes; the sampling-histogram mechanism, which publishes the counts of a sample; and
a mechanism that its user describes by a function from a histogram to a law of outcomes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from numbers import Real
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from vicinal import _checks
from vicinal._arrays import AnyArray, Counts, Floats
from vicinal.errors import InvalidInput
from vicinal.smoothed._edges import LOSS, TRUE_OTHER, TRUE_X, finite_size, gain_weight
from vicinal.smoothed._intervals import LogInterval, total, weighted_excess
from vicinal.smoothed._saddle import FLOOR, SLOPE
from vicinal.smoothed._samplers import MOST_RECORDS, Sampler

Law = Mapping[Hashable, float]


@dataclass(frozen=True, slots=True)
class Loss:
    """What one neighbouring database x' gives away, in both directions.

    `change` says how x' differs from x, and is as private as the database. `forward` and `backward`
    are the sums over all outcomes of (P_x - E P_x')+ and (P_x' - E P_x)+.
    """

    change: str
    forward: LogInterval
    backward: LogInterval


Comparison = tuple[str, Callable[[int], LogInterval], Callable[[int], LogInterval]]
"""A change in words, and what gives the loss or a gain in either direction (`what` of _edges)."""


class Mechanism(ABC):
    """A function of a random sample. Neighbours replace at most one record."""

    @abstractmethod
    def check(self, database: npt.ArrayLike) -> Counts:
        """Return a database in the form the mechanism works with, or refuse it."""

    @abstractmethod
    def losses(self, database: Counts, epsilon: float) -> Iterator[Loss]:
        """Yield losses of a checked database; at least one neighbour for every different loss."""

    @abstractmethod
    def gains(self, database: Counts, epsilon: float) -> Iterator[LogInterval]:
        """Yield, for every neighbour, the adversary's gain when the database is the truth.

        The sum over outcomes of ``P_x max(0, |P_x - P_x'| / (P_x + P_x') - t) / (1 - t)`` with
        t = tanh(epsilon / 2).
        """

    @abstractmethod
    def touched(self, n: int) -> float:
        """Return the chance that one given record of n has any influence on the outcome.

        By coupling no delta is larger, for any database and epsilon.
        """

    attains_touched: ClassVar[bool] = False
    """Whether some database of every size has a delta of just that, at every epsilon."""

    def records(self, database: Counts) -> int:
        """Return the number of records of a checked database."""
        return int(database.sum())


class CountMechanism(Mechanism):
    """A mechanism on histograms: how many records there are of each type."""

    types: int | None = None

    def check(self, database: npt.ArrayLike) -> Counts:
        """Return a histogram of counts, int64 (m,), of the mechanism's number of types."""
        counts = whole_numbers("database", database)
        if counts.ndim != 1 or len(counts) < 2 or counts.sum() < 1:
            raise InvalidInput(
                "The 'database' parameter must be a histogram: counts (m,) of m >= 2 types with at "
                f"least one record. Got shape {counts.shape}."
            )
        if self.types is not None and len(counts) != self.types:
            raise InvalidInput(
                f"The 'database' parameter must have {self.types} types. Got {len(counts)}."
            )
        if counts.sum() > MOST_RECORDS:  # products of counts would leave 64 bits
            raise InvalidInput(f"A database must have at most {MOST_RECORDS} records. Got more.")
        self.check_size(int(counts.sum()))
        return counts

    def check_size(self, n: int) -> None:
        """Refuse databases of n records if they cannot be sampled; any n is fine by default."""


class ComparedMechanism(CountMechanism):
    """A mechanism that is compared with its neighbours one change at a time."""

    @abstractmethod
    def comparisons(self, database: Counts, epsilon: float) -> Iterator[Comparison]:
        """Yield the changes of a checked database, and the divergences of either direction."""

    def losses(self, database: Counts, epsilon: float) -> Iterator[Loss]:
        """Yield the loss of either direction for every change."""
        for change, forward, backward in self.comparisons(database, epsilon):
            yield Loss(change, forward(LOSS), backward(LOSS))

    def gains(self, database: Counts, epsilon: float) -> Iterator[LogInterval]:
        """Yield the gain of either direction for every change."""
        for _, forward, backward in self.comparisons(database, epsilon):
            yield total([forward(TRUE_X), backward(TRUE_OTHER)])


class LawMechanism(ComparedMechanism):
    """A mechanism whose whole law can be listed: Algorithm 1, step 1, as it stands."""

    @abstractmethod
    def law(self, database: Counts) -> Law:
        """Return the log probability of every possible outcome of a checked database."""

    def comparisons(self, database: Counts, epsilon: float) -> Iterator[Comparison]:
        """Yield all replacements of a record, compared by the laws of what is seen."""
        own = self.law(database)
        for change, neighbour in replacements(database):
            other = self.law(neighbour)
            yield (
                change,
                partial(law_excess, own, other, epsilon),
                partial(law_excess, other, own, epsilon),
            )


def replacements(database: Counts) -> Iterator[tuple[str, Counts]]:
    """Yield every database in which one record has another type, and the change in words."""
    m = len(database)
    for i in range(m):
        for j in range(m):
            if i != j and database[i]:
                neighbour = database.copy()
                neighbour[i] -= 1
                neighbour[j] += 1
                yield f"type {i} -> type {j}", neighbour


def law_excess(own: Law, other: Law, epsilon: float, measure: int = 0) -> LogInterval:
    """Return the sum over outcomes of (P - E P')+, or a gain, from two listed laws."""
    log_p, log_ratio = aligned(own, other)
    if not len(log_p):
        raise InvalidInput("The law of a mechanism must have at least one outcome. Got none.")
    slack = 2 * (FLOOR + SLOPE * (np.abs(log_p) + finite_size(log_ratio)))
    weight = gain_weight(log_ratio, measure)
    return weighted_excess(log_p, log_ratio, epsilon, slack, weight).capped()


def aligned(own: Law, other: Law) -> tuple[Floats, Floats]:
    """Return log P and log P / P' of the outcomes that P can have."""
    outcomes = [outcome for outcome, log_p in own.items() if log_p > -math.inf]
    log_p = np.array([own[outcome] for outcome in outcomes], dtype=np.float64)
    log_q = np.array([other.get(outcome, -math.inf) for outcome in outcomes], dtype=np.float64)
    return log_p, log_p - log_q


def whole_numbers(name: str, values: npt.ArrayLike) -> Counts:
    """Return values as int64; fractions, negative numbers, NaN and text are refused unechoed."""
    must = f"The {name!r} parameter must hold whole numbers >= 0."
    array: AnyArray = np.asarray(values)
    if array.dtype.kind not in "iuf" or not array.size:
        raise InvalidInput(f"{must} Got an array of type {array.dtype} and shape {array.shape}.")
    if not np.isfinite(array).all() or (array < 0).any() or (array != np.floor(array)).any():
        raise InvalidInput(f"{must} Got a value that is not (values are not shown).")
    if (array > 2**53).any():
        raise InvalidInput(f"{must} Got a value above 2^53.")
    return array.astype(np.int64)


def check_sampler(sampler: object) -> None:
    """Refuse anything that is not one of the samplers."""
    if not isinstance(sampler, Sampler):
        raise InvalidInput(
            "The 'sampler' parameter must be FixedSize(T), Poisson(gamma) or WithReplacement(T). "
            f"Got {sampler!r}."
        )


@dataclass(frozen=True)
class Histogram(ComparedMechanism):
    """Draw a sample and publish how many records of each type are in it.

    With ``FixedSize(T)`` this is the paper's SHM. Exact by the pair decomposition, with any number
    of types: the cost does not depend on how many there are, only on how many different counts.

    Examples
    --------
    >>> from vicinal.smoothed import FixedSize, Histogram, worst_case_delta
    >>> round(worst_case_delta(Histogram(FixedSize(5)), 10, epsilon=1.0).upper, 3)
    0.5
    """

    sampler: Sampler

    def __post_init__(self) -> None:
        check_sampler(self.sampler)

    def check_size(self, n: int) -> None:
        """Refuse databases that cannot be sampled."""
        self.sampler.check(n)

    def touched(self, n: int) -> float:
        """Return T / n, gamma or 1 - (1 - 1/n)^T: attained where a type has one record."""
        return self.sampler.touched(n)

    attains_touched = True
    """A record that is alone with its type shows whenever it is drawn."""

    def comparisons(self, database: Counts, epsilon: float) -> Iterator[Comparison]:
        """Compare once for every pair of different counts (Definition 2)."""
        n = int(database.sum())
        for i, j, a, b in _pairs(database):
            pair = self.sampler.pair
            yield (
                f"type {i} -> type {j}",
                partial(pair, a, b, n, epsilon),
                partial(pair, b, a, n, epsilon),
            )

    def law(self, database: Counts) -> Law:
        """Return the log probability of every sampled histogram of a small database."""
        return dict(self.sampler.outcomes(database))


def _pairs(database: Counts) -> Iterator[tuple[int, int, int, int]]:
    """Yield (i, j, h_i - 1, h_j) once for every different pair of counts, h_i >= 1, i != j."""
    done: set[tuple[int, int]] = set()
    values, firsts, copies = np.unique(database, return_index=True, return_counts=True)
    for p, own in enumerate(values.tolist()):
        for q, other in enumerate(values.tolist()):
            if own and (own, other) not in done and (p != q or copies[p] > 1):
                done.add((own, other))
                i = int(firsts[p])
                j = int(firsts[q]) if p != q else int(np.flatnonzero(database == own)[1])
                yield i, j, own - 1, other


_SUM_TO = 1e-9


@dataclass(frozen=True)
class ListedMechanism(LawMechanism):
    """The law of the outcome, given as a function of the histogram.

    This is also how releases that share their coins are audited: let the outcome be all of them.

    Parameters
    ----------
    law_of : callable
        From a tuple of counts to a mapping from outcomes to probabilities (floats or fractions,
        at least 0, with sum 1). Probabilities are taken as exact to 2^-45 of themselves.
    types : int
        How many types there are.

    Examples
    --------
    >>> from vicinal.smoothed import ListedMechanism, database_delta
    >>> def parity(counts):
    ...     return {counts[0] % 2: 1.0}
    >>> print(database_delta(ListedMechanism(parity, types=2), [4, 6], epsilon=1.0))
    PRIVATE 1 (exact)
    """

    law_of: Callable[[tuple[int, ...]], Mapping[Hashable, float | Fraction]]
    types: int

    def __post_init__(self) -> None:
        _checks.integer("types", self.types, least=2)
        if not callable(self.law_of):
            raise InvalidInput(f"The 'law_of' parameter must be a function. Got {self.law_of!r}.")

    def touched(self, n: int) -> float:  # noqa: ARG002 - nothing is known of the user's function
        """Return 1: what a record does to an unknown function is unknown."""
        return 1.0

    def law(self, database: Counts) -> Law:
        """Return log probabilities of all outcomes.

        Raises
        ------
        InvalidInput
            If the function does not return probabilities that sum to 1.
        """
        chances = self.law_of(tuple(database.tolist()))
        if not _are_chances(chances):
            raise InvalidInput("The 'law_of' parameter must return a mapping to probabilities.")
        if abs(math.fsum(map(float, chances.values())) - 1) > _SUM_TO:
            raise InvalidInput("The probabilities that 'law_of' returns must sum to 1. They don't.")
        return {
            outcome: min(math.log(p), 0.0) if p else -math.inf for outcome, p in chances.items()
        }


def _are_chances(chances: object) -> bool:
    return isinstance(chances, Mapping) and all(
        isinstance(p, Real) and 0 <= float(p) <= 1 + _SUM_TO for p in chances.values()
    )
