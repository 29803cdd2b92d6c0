"""What is audited: mechanisms whose only randomness is the sampling of records.

Their base classes; the sampling-histogram mechanism, which publishes the counts of a sample; and
a mechanism that its user describes by a function from a histogram to a law of outcomes.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from vicinal import checks
from vicinal.arrays import AnyArray, Counts, Floats
from vicinal.errors import InvalidInput
from vicinal.smoothed import intervals as _saddle
from vicinal.smoothed._edges import (
    LOSS,
    TRUE_OTHER,
    TRUE_X,
    compute_replacement_edge,
    compute_edge_interval,
    average_over_sizes,
    sum_divergence,
    mix_edges,
)
from vicinal.smoothed.intervals import LogInterval, total

# ----------- how records come to be in the sample: the only randomness of a mechanism without noise

Chances = list[tuple[int, float]]

MAX_RECORDS = 10**9
_LARGEST_EXPONENT = 600.0


class Sampler(ABC):
    """A way to draw a sample from a database, without regard to what the records say."""

    def check(self, n: int) -> None:
        """Refuse a database of n records that cannot be sampled so."""
        checks.check_integer("n", n, least=1, most=MAX_RECORDS)

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
        checks.check_integer("size", self.size, least=0, most=MAX_RECORDS)

    def check(self, n: int) -> None:
        if self.size > n:
            raise InvalidInput(
                f"The 'size' parameter must be at most the number of records. Got {self.size}."
            )

    def touched(self, n: int) -> float:
        return self.size / n

    def pair(self, a: int, b: int, n: int, epsilon: float, measure: int = LOSS) -> LogInterval:
        both, e = a + b + 1, exp_epsilon(epsilon)
        if both == n:
            return compute_edge_interval(a, b, self.size, e, measure).cap_log()
        low, high = max(0, self.size - (n - both)), min(both, self.size)
        log_p = _saddle.log_hypergeometric_pmf(both, n - both, self.size, low, high + 1)
        return mix_edges(log_p, low, a, b, e, measure).cap_log()

    def outcomes(self, counts: Counts) -> list[tuple[tuple[int, ...], float]]:
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
        object.__setattr__(self, "gamma", checks.check_real("gamma", self.gamma, least=0, most=1))

    def touched(self, n: int) -> float:  # noqa: ARG002 - the same for every n
        return self.gamma

    def pair(self, a: int, b: int, n: int, epsilon: float, measure: int = LOSS) -> LogInterval:  # noqa: ARG002
        log_p = _saddle.log_binomial_pmf(a + b + 1, self.gamma)
        return mix_edges(log_p, 0, a, b, exp_epsilon(epsilon), measure).cap_log()

    def outcomes(self, counts: Counts) -> list[tuple[tuple[int, ...], float]]:
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
        checks.check_integer("size", self.size, least=0, most=MAX_RECORDS)

    def touched(self, n: int) -> float:
        return -math.expm1(self.size * math.log1p(-1 / n)) if n > 1 else float(self.size > 0)

    def pair(self, a: int, b: int, n: int, epsilon: float, measure: int = LOSS) -> LogInterval:
        both = a + b + 1
        if both == n:
            return compute_replacement_edge(a, b, self.size, epsilon, measure).cap_log()
        log_p = _saddle.log_binomial_pmf(self.size, both / n)
        return average_over_sizes(log_p, 0, lambda s: compute_replacement_edge(a, b, s, epsilon, measure)).cap_log()

    def outcomes(self, counts: Counts) -> list[tuple[tuple[int, ...], float]]:
        def law(count: int, others: int, drawn: int) -> Chances:
            return _coins(self.size - drawn, count / (count + others) if count else 0.0)

        states = _type_by_type(counts, law)
        return [state for state in states if sum(state[0]) == self.size]


def _coins(draws: int, chance: float) -> Chances:
    return [(o, float(p)) for o, p in enumerate(_saddle.log_binomial_pmf(draws, chance)) if p > -math.inf]


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


def exp_epsilon(epsilon: float) -> float:
    """Return E = exp(epsilon); from epsilon = 600 on a smaller E, which gives larger deltas."""
    return math.exp(min(epsilon, _LARGEST_EXPONENT))


Law = Mapping[Hashable, float]


Comparison = tuple[Callable[[int], LogInterval], Callable[[int], LogInterval]]
"""What gives the loss or a gain in either direction (`measure` of _edges)."""


def make_comparison(
    divergence: Callable[..., LogInterval], own: Any, other: Any, *rest: Any
) -> Comparison:
    """Return the comparison by a divergence of (own, other, *rest, measure)."""
    return partial(divergence, own, other, *rest), partial(divergence, other, own, *rest)


class Mechanism(ABC):
    """A function of a random sample. Neighbours replace at most one record."""

    @abstractmethod
    def check(self, database: npt.ArrayLike) -> Counts:
        """Return a database in the form the mechanism works with, or refuse it."""

    @abstractmethod
    def losses(self, database: Counts, epsilon: float) -> Iterator[LogInterval]:
        """Yield every different loss of a checked database x, of any neighbour x'.

        The sums over all outcomes of (P_x - E P_x')+ and of (P_x' - E P_x)+.
        """

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
        counts = read_whole_numbers("database", database)
        if counts.ndim != 1 or len(counts) < 2 or counts.sum() < 1:
            raise InvalidInput(
                "The 'database' parameter must be a histogram: counts (m,) of m >= 2 types with at "
                f"least one record. Got shape {counts.shape}."
            )
        if self.types is not None and len(counts) != self.types:
            raise InvalidInput(
                f"The 'database' parameter must have {self.types} types. Got {len(counts)}."
            )
        if counts.sum() > MAX_RECORDS:  # products of counts would leave 64 bits
            raise InvalidInput(f"A database must have at most {MOST_RECORDS} records. Got more.")
        self.check_size(int(counts.sum()))
        return counts

    def check_size(self, n: int) -> None:
        """Refuse databases of n records if they cannot be sampled; any n is fine by default."""


class ComparedMechanism(CountMechanism):
    """A mechanism that is compared with its neighbours one change at a time."""

    @abstractmethod
    def comparisons(self, database: Counts, epsilon: float) -> Iterator[Comparison]:
        """Yield the divergences, in either direction, of a checked database from its neighbours."""

    def losses(self, database: Counts, epsilon: float) -> Iterator[LogInterval]:
        for forward, backward in self.comparisons(database, epsilon):
            yield forward(LOSS)
            yield backward(LOSS)

    def gains(self, database: Counts, epsilon: float) -> Iterator[LogInterval]:
        for forward, backward in self.comparisons(database, epsilon):
            yield total([forward(TRUE_X), backward(TRUE_OTHER)])


def replacements(database: Counts) -> Iterator[Counts]:
    """Yield every database in which one record has another type."""
    m = len(database)
    for i in range(m):
        for j in range(m):
            if i != j and database[i]:
                neighbour = database.copy()
                neighbour[i] -= 1
                neighbour[j] += 1
                yield neighbour


def compute_listed_divergence(own: Law, other: Law, epsilon: float, measure: int = 0) -> LogInterval:
    """Return the sum over outcomes of (P - E P')+, or a gain, from two listed laws."""
    log_p, log_ratio = align_distributions(own, other)
    if not len(log_p):
        raise InvalidInput("The law of a mechanism must have at least one outcome. Got none.")
    return sum_divergence(log_p, log_ratio, epsilon, measure, terms=2).cap_log()


def align_distributions(own: Law, other: Law) -> tuple[Floats, Floats]:
    """Return log P and log P / P' of the outcomes that P can have."""
    outcomes = [outcome for outcome, log_p in own.items() if log_p > -math.inf]
    log_p = np.array([own[outcome] for outcome in outcomes], dtype=np.float64)
    log_q = np.array([other.get(outcome, -math.inf) for outcome in outcomes], dtype=np.float64)
    return log_p, log_p - log_q


def read_whole_numbers(name: str, values: npt.ArrayLike) -> Counts:
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
        self.sampler.check(n)

    def touched(self, n: int) -> float:
        return self.sampler.touched(n)

    attains_touched = True
    """A record that is alone with its type shows whenever it is drawn."""

    def comparisons(self, database: Counts, epsilon: float) -> Iterator[Comparison]:
        n = int(database.sum())
        for a, b in _pairs(database):
            yield make_comparison(self.sampler.pair, a, b, n, epsilon)

    def law(self, database: Counts) -> Law:
        """Return the log probability of every sampled histogram of a small database."""
        return dict(self.sampler.outcomes(database))


def _pairs(database: Counts) -> Iterator[tuple[int, int]]:
    """Yield (h_i - 1, h_j) once for every different pair of counts, h_i >= 1, i != j."""
    values, copies = (each.tolist() for each in np.unique(database, return_counts=True))
    for own, several in zip(values, copies, strict=True):
        for other in values:
            if own and (own != other or several > 1):
                yield own - 1, other


_SUM_TO = 1e-9


@dataclass(frozen=True)
class ListedMechanism(ComparedMechanism):
    """The law of the outcome, given as a function of the histogram: Algorithm 1, step 1.

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
        checks.check_integer("types", self.types, least=2)
        if not callable(self.law_of):
            raise InvalidInput(f"The 'law_of' parameter must be a function. Got {self.law_of!r}.")

    def touched(self, n: int) -> float:  # noqa: ARG002 - nothing is known of the user's function
        return 1.0

    def comparisons(self, database: Counts, epsilon: float) -> Iterator[Comparison]:
        own = self.law(database)
        for neighbour in replacements(database):
            yield make_comparison(compute_listed_divergence, own, self.law(neighbour), epsilon)

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
