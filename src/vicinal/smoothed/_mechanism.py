"""What is audited: a mechanism whose only randomness is the sampling of records."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal.errors import InvalidInput
from vicinal.smoothed._edges import TRUE_OTHER, TRUE_X
from vicinal.smoothed._intervals import Array, Log, total, weighted_excess
from vicinal.smoothed._mixing import finite_size, gain_weight
from vicinal.smoothed._saddle import FLOOR, SLOPE

Counts = npt.NDArray[np.int64]
Law = Mapping[Hashable, float]


@dataclass(frozen=True, slots=True)
class Loss:
    """What one neighbouring database x' gives away, in both directions.

    Attributes
    ----------
    change : str
        How x' differs from x, in words. As private as the database.
    forward, backward : Log
        Sum of (P_x - E P_x')+, and of (P_x' - E P_x)+, over all outcomes.
    """

    change: str
    forward: Log
    backward: Log


class Mechanism(ABC):
    """A function of a random sample. Neighbours replace at most one record."""

    @abstractmethod
    def check(self, database: npt.ArrayLike) -> Counts:
        """Return a database in the form the mechanism works with, or refuse it.

        Raises
        ------
        InvalidInput
            If it is no database for this mechanism.
        """

    @abstractmethod
    def losses(self, database: Counts, epsilon: float) -> Iterator[Loss]:
        """Yield the losses of a checked database, at least one neighbour for every different loss.

        Parameters
        ----------
        database : ndarray
            As `check` returned it.
        epsilon : float
            E = exp(epsilon).
        """

    @abstractmethod
    def gains(self, database: Counts, epsilon: float) -> Iterator[Log]:
        """Yield, for every neighbour, the adversary's gain when the database is the truth.

        The sum over outcomes of P_x max(0, |P_x - P_x'| / (P_x + P_x') - t) / (1 - t) with
        t = tanh(epsilon / 2).
        """

    @abstractmethod
    def touched(self, n: int) -> float:
        """Return the chance that one given record of n has any influence on the outcome.

        By coupling no delta is larger, for any database and epsilon.
        """

    @property
    def attains_touched(self) -> bool:
        """Whether some database of every size has a delta of just that, at every epsilon."""
        return False

    def records(self, database: Counts) -> int:
        """Return the number of records of a checked database."""
        return int(database.sum())


class CountMechanism(Mechanism):
    """A mechanism on histograms: how many records there are of each type."""

    types: int | None = None

    def check(self, database: npt.ArrayLike) -> Counts:
        """Return a histogram as int64 (m,)."""
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
        self.check_size(int(counts.sum()))
        return counts

    @abstractmethod
    def check_size(self, n: int) -> None:
        """Refuse databases of n records if they cannot be sampled."""


class LawMechanism(CountMechanism):
    """A mechanism whose whole law can be listed: Algorithm 1, step 1, as it stands."""

    @abstractmethod
    def law(self, database: Counts) -> Law:
        """Return the log probability of every possible outcome of a checked database."""

    def losses(self, database: Counts, epsilon: float) -> Iterator[Loss]:
        """Yield the losses of all neighbours, outcome by outcome."""
        own = self.law(database)
        for change, neighbour in replacements(database):
            other = self.law(neighbour)
            yield Loss(change, law_excess(own, other, epsilon), law_excess(other, own, epsilon))

    def gains(self, database: Counts, epsilon: float) -> Iterator[Log]:
        """Yield the gains of all neighbours, outcome by outcome."""
        own = self.law(database)
        for _, neighbour in replacements(database):
            other = self.law(neighbour)
            forward = law_excess(own, other, epsilon, TRUE_X)
            yield total([forward, law_excess(other, own, epsilon, TRUE_OTHER)])


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


def law_excess(own: Law, other: Law, epsilon: float, what: int = 0) -> Log:
    """Return the sum over outcomes of (P - E P')+, or a gain, from two listed laws."""
    log_p, log_ratio = aligned(own, other)
    if not len(log_p):
        raise InvalidInput("The law of a mechanism must have at least one outcome. Got none.")
    slack = 2 * (FLOOR + SLOPE * (np.abs(log_p) + finite_size(log_ratio)))
    weight = gain_weight(log_ratio, what)
    return weighted_excess(log_p, log_ratio, epsilon, slack, weight).capped()


def aligned(own: Law, other: Law) -> tuple[Array, Array]:
    """Return log P and log P / P' of the outcomes that P can have."""
    outcomes = [outcome for outcome, log_p in own.items() if log_p > -math.inf]
    log_p = np.array([own[outcome] for outcome in outcomes], dtype=np.float64)
    log_q = np.array([other.get(outcome, -math.inf) for outcome in outcomes], dtype=np.float64)
    return log_p, log_p - log_q


def whole_numbers(name: str, values: npt.ArrayLike) -> Counts:
    """Return values as int64 if all are whole and not negative; they are never echoed.

    Raises
    ------
    InvalidInput
        For anything else: fractions, negative numbers, NaN, text.
    """
    must = f"The {name!r} parameter must hold whole numbers >= 0."
    array: npt.NDArray[Any] = np.asarray(values)
    if array.dtype.kind not in "iuf" or not array.size:
        raise InvalidInput(f"{must} Got an array of type {array.dtype} and shape {array.shape}.")
    if not np.isfinite(array).all() or (array < 0).any() or (array != np.floor(array)).any():
        raise InvalidInput(f"{must} Got a value that is not (values are not shown).")
    if (array > 2**53).any():
        raise InvalidInput(f"{must} Got a value above 2^53.")
    return array.astype(np.int64)
