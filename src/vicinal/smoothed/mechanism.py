"""Mechanisms with no randomness but the sampling of records.

The module has the samplers, the base classes of mechanisms, the sampling-histogram mechanism (SHM
of LWX23), which publishes the counts of a sample, and a mechanism that the user describes by a
function from a histogram to a distribution of outcomes.

X and X' are neighbouring databases, P and P' the distributions of their outcomes, E = exp(epsilon).
The divergence of X from X' is the sum over outcomes of (P - E P')+, with the weights that the
argument `weighting` selects, for outcomes with probabilities P and P': DIVERGENCE (1), POSTERIOR_X
(P / (P + P')) or POSTERIOR_OTHER (P' / (P + P')). A comparison of X with X' is the divergence of X
from X' with the first of two `weightings`, and that of X' from X with the second one.

Arguments of samplers: X and X' have `n` records and differ in one. X has `a` + 1 records of one
type and `b` of another, X' has `a` and `b` + 1. A histogram `counts` or `database` (m,) holds the
number of a database's records of each of m types.
"""

import itertools
import math
from abc import ABC, abstractmethod
from collections import Counter
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
from vicinal.smoothed import intervals
from vicinal.smoothed._pairs import (
    DIVERGENCE,
    POSTERIOR_OTHER,
    POSTERIOR_X,
    average_over_sizes,
    average_pair_divergence,
    compute_divergence_with_replacement,
    compute_pair_divergence,
    sum_divergence,
)
from vicinal.smoothed.intervals import LogInterval, sum_intervals

# ---------------------- samplers: the only source of randomness of a mechanism without noise

CountDistribution = list[tuple[int, float]]
"""Pairs (possible count of one type in a sample, its log probability)."""
SampleDistribution = list[tuple[tuple[int, ...], float]]
"""Pairs (possible histogram (m,) of a sample, its log probability)."""

MAX_RECORDS = 10**9
"""Maximal number of records: products of two counts must fit in 64 bits."""
_LARGEST_EXPONENT = 600.0  # largest epsilon that is exponentiated: exp(710) would overflow


class Sampler(ABC):
    """A random sampling of records that does not depend on their values."""

    def check_record_count(self, n: int) -> None:
        """Raise InvalidInput if `n` records cannot be sampled in this way."""
        checks.check_integer("n", n, minimum=1, maximum=MAX_RECORDS)

    @abstractmethod
    def compute_inclusion_probability(self, n: int) -> float:
        """Return the probability that a given one of `n` records is in the sample."""

    @abstractmethod
    def compute_divergence(
        self, a: int, b: int, n: int, epsilon: float, weighting: int = DIVERGENCE
    ) -> LogInterval:
        """Return the divergence of X from X' if sampled counts of all types are published."""

    @abstractmethod
    def list_type_counts(self, n_type: int, n_later: int, n_sampled: int) -> CountDistribution:
        """Return the distribution of the number of sampled records of one type.

        The type has `n_type` records, and later types have `n_later`; `n_sampled` records of
        earlier types are sampled.
        """

    def list_sampled_counts(self, counts: Counts) -> SampleDistribution:
        """Return every possible sampled histogram of a small database `counts` (m,)."""
        samples: SampleDistribution = [((), 0.0)]
        n_later = int(counts.sum())
        for n_type in counts.tolist():
            n_later -= n_type
            list_counts = cache(partial(self.list_type_counts, n_type, n_later))
            samples = [
                ((*sampled, n_sampled), log_p + log_type_p)
                for sampled, log_p in samples
                for n_sampled, log_type_p in list_counts(sum(sampled))
            ]
        return samples


@dataclass(frozen=True, slots=True)
class FixedSize(Sampler):
    """Sample `size` records uniformly without replacement (T in theory.md, section 8).

    Examples
    --------
    >>> from vicinal.smoothed import FixedSize
    >>> FixedSize(5).compute_inclusion_probability(10)  # the probability that a record is sampled
    0.5
    """

    size: int

    def __post_init__(self) -> None:
        checks.check_integer("size", self.size, minimum=0, maximum=MAX_RECORDS)

    def check_record_count(self, n: int) -> None:
        """Raise InvalidInput if the sample is larger than the `n` records."""
        if self.size > n:
            raise InvalidInput(
                f"The 'size' parameter must be at most the number of records. Got {self.size}."
            )

    def compute_inclusion_probability(self, n: int) -> float:
        return self.size / n

    def compute_divergence(
        self, a: int, b: int, n: int, epsilon: float, weighting: int = DIVERGENCE
    ) -> LogInterval:
        """Return the mean divergence over the hypergeometric number of records of both types."""
        n_pair = a + b + 1  # records of the two types in which X and X' differ
        exp_eps = compute_bounded_exp(epsilon)
        if n_pair == n:
            return LogInterval(
                *compute_pair_divergence(a, b, self.size, exp_eps, weighting)
            ).cap_at_one()
        min_sampled, max_sampled = max(0, self.size - (n - n_pair)), min(n_pair, self.size)
        log_p = intervals.log_hypergeometric_pmf(
            n_pair, n - n_pair, self.size, min_sampled, max_sampled + 1
        )
        return average_pair_divergence(log_p, min_sampled, a, b, exp_eps, weighting).cap_at_one()

    def list_type_counts(self, n_type: int, n_later: int, n_sampled: int) -> CountDistribution:
        """Return the hypergeometric distribution for the part of the sample that remains."""
        n_to_sample = self.size - n_sampled
        possible_counts = range(max(0, n_to_sample - n_later), min(n_type, n_to_sample) + 1)
        return [
            (o, intervals.log_hypergeometric(o, n_type, n_later, n_to_sample))
            for o in possible_counts
        ]


@dataclass(frozen=True, slots=True)
class Poisson(Sampler):
    """Sample each record independently with probability `gamma`; the sample size is published.

    Examples
    --------
    >>> from vicinal.smoothed import Poisson
    >>> Poisson(0.25).compute_inclusion_probability(10)
    0.25
    """

    gamma: float

    def __post_init__(self) -> None:
        gamma = checks.check_real("gamma", self.gamma, minimum=0, maximum=1)
        object.__setattr__(self, "gamma", gamma)

    def compute_inclusion_probability(self, n: int) -> float:  # noqa: ARG002 - the same for every n
        return self.gamma

    def compute_divergence(
        self,
        a: int,
        b: int,
        n: int,  # noqa: ARG002 - records of other types are sampled independently
        epsilon: float,
        weighting: int = DIVERGENCE,
    ) -> LogInterval:
        """Return the mean divergence over the binomial number of records of both types."""
        log_p = intervals.log_binomial_pmf(a + b + 1, self.gamma)
        return average_pair_divergence(
            log_p, 0, a, b, compute_bounded_exp(epsilon), weighting
        ).cap_at_one()

    def list_type_counts(self, n_type: int, n_later: int, n_sampled: int) -> CountDistribution:  # noqa: ARG002 - records are sampled independently
        """Return the binomial distribution, which does not depend on other types."""
        return _list_binomial(n_type, self.gamma)


@dataclass(frozen=True, slots=True)
class WithReplacement(Sampler):
    """Sample `size` times one record, each time uniformly from the whole database.

    Examples
    --------
    >>> from vicinal.smoothed import WithReplacement
    >>> round(WithReplacement(2).compute_inclusion_probability(10), 2)  # 1 - .9^2
    0.19
    """

    size: int

    def __post_init__(self) -> None:
        checks.check_integer("size", self.size, minimum=0, maximum=MAX_RECORDS)

    def compute_inclusion_probability(self, n: int) -> float:
        return -math.expm1(self.size * math.log1p(-1 / n)) if n > 1 else float(self.size > 0)

    def compute_divergence(
        self, a: int, b: int, n: int, epsilon: float, weighting: int = DIVERGENCE
    ) -> LogInterval:
        """Return the mean divergence over the binomial number of samples of both types."""

        def compute_for_size(n_sampled: int) -> LogInterval:
            """Return the divergence if `n_sampled` samples are of the two types."""
            return compute_divergence_with_replacement(a, b, n_sampled, epsilon, weighting)

        n_pair = a + b + 1  # records of the two types in which X and X' differ
        if n_pair == n:
            return compute_for_size(self.size).cap_at_one()
        log_p = intervals.log_binomial_pmf(self.size, n_pair / n)
        return average_over_sizes(log_p, compute_for_size).cap_at_one()

    def list_type_counts(self, n_type: int, n_later: int, n_sampled: int) -> CountDistribution:
        """Return the binomial distribution for the part of the sample that remains."""
        probability = n_type / (n_type + n_later) if n_type else 0.0
        return _list_binomial(self.size - n_sampled, probability)


def _list_binomial(n_trials: int, probability: float) -> CountDistribution:
    """Return each possible number of successes in `n_trials`, with its log probability."""
    return [
        (count, float(log_p))
        for count, log_p in enumerate(intervals.log_binomial_pmf(n_trials, probability))
        if log_p > -math.inf
    ]


def compute_bounded_exp(epsilon: float) -> float:
    """Return E = exp(epsilon), or exp(600) for larger epsilon."""
    # A smaller E gives larger divergences, so the upper end of a delta remains valid.
    return math.exp(min(epsilon, _LARGEST_EXPONENT))


LogDistribution = Mapping[Hashable, float]
"""Outcomes of a mechanism with their log probabilities."""

Comparison = tuple[LogInterval, LogInterval]
"""The divergence of X from X', and that of X' from X."""


class Mechanism(ABC):
    """A function of a random sample of a database. Neighbours replace at most one record."""

    @abstractmethod
    def validate_database(self, database: npt.ArrayLike) -> Counts:
        """Return `database` as int64; raise InvalidInput if it does not suit the mechanism."""

    @abstractmethod
    def iterate_divergences(self, database: Counts, epsilon: float) -> Iterator[LogInterval]:
        """Yield every different hockey-stick divergence between X = `database` and a neighbour X'.

        These are the sums over outcomes of (P - E P')+ and of (P' - E P)+, with E = exp(`epsilon`).
        `database` has passed :meth:`validate_database`.
        """

    @abstractmethod
    def iterate_gains(self, database: Counts, epsilon: float) -> Iterator[LogInterval]:
        """Yield, for every neighbour X' of X = `database`, the gain of an adversary (LWX23, eq. 3).

        The adversary guesses from the outcome whether X or X' is the database. The gain is the mean
        advantage above t = tanh(`epsilon` / 2) if it is X: the sum over outcomes of
        P max(0, |P - P'| / (P + P') - t) / (1 - t). `database` is validated.
        """

    @abstractmethod
    def compute_inclusion_probability(self, n: int) -> float:
        """Return the probability that a given one of `n` records influences the outcome.

        By coupling, no delta of any database at any epsilon is larger.
        """

    attains_inclusion_probability: ClassVar[bool] = False
    """Whether at every n and epsilon some database has a delta of the inclusion probability."""


class CountMechanism(Mechanism):
    """A mechanism on histograms, the counts of the records of each type.

    `types` is the number of types that a database must have; any number >= 2 if None.
    """

    types: int | None = None

    def validate_database(self, database: npt.ArrayLike) -> Counts:
        """Return a histogram as int64 (m,); raise InvalidInput if it is unfit for the mechanism."""
        counts = read_database(database)
        if counts.ndim != 1 or len(counts) < 2 or counts.sum() < 1:
            raise InvalidInput(
                "The 'database' parameter must be a histogram: counts (m,) of m >= 2 types with at "
                f"least one record. Got shape {counts.shape}."
            )
        if self.types is not None and len(counts) != self.types:
            raise InvalidInput(
                f"The 'database' parameter must have {self.types} types. Got {len(counts)}."
            )
        if counts.sum() > MAX_RECORDS:  # products of counts would overflow 64 bits
            raise InvalidInput(f"A database must have at most {MAX_RECORDS} records. Got more.")
        self.check_record_count(int(counts.sum()))
        return counts

    def check_record_count(self, n: int) -> None:
        """Raise InvalidInput if `n` records cannot be sampled; the default accepts any number."""


class ComparedMechanism(CountMechanism):
    """A mechanism on histograms whose divergences are computed neighbour by neighbour."""

    @abstractmethod
    def iterate_comparisons(
        self, database: Counts, epsilon: float, weightings: tuple[int, int]
    ) -> Iterator[Comparison]:
        """Yield the comparison at `epsilon` of a histogram (m,) with each different neighbour."""

    def iterate_divergences(self, database: Counts, epsilon: float) -> Iterator[LogInterval]:
        for comparison in self.iterate_comparisons(database, epsilon, (DIVERGENCE, DIVERGENCE)):
            yield from comparison

    def iterate_gains(self, database: Counts, epsilon: float) -> Iterator[LogInterval]:
        weightings = (POSTERIOR_X, POSTERIOR_OTHER)
        for comparison in self.iterate_comparisons(database, epsilon, weightings):
            yield sum_intervals(comparison)


class NeighbourMechanism(ComparedMechanism):
    """A mechanism whose divergence is computed from the histograms of two neighbours."""

    @abstractmethod
    def compute_divergence(
        self, database: Counts, neighbour: Counts, epsilon: float, weighting: int
    ) -> LogInterval:
        """Return the divergence of X from X', two histograms `database` and `neighbour` (m,)."""

    def iterate_comparisons(
        self, database: Counts, epsilon: float, weightings: tuple[int, int]
    ) -> Iterator[Comparison]:
        for neighbour in iterate_neighbours(database):
            yield (
                self.compute_divergence(database, neighbour, epsilon, weightings[0]),
                self.compute_divergence(neighbour, database, epsilon, weightings[1]),
            )


def iterate_neighbours(database: Counts) -> Iterator[Counts]:
    """Yield every histogram (m,) in which one record has another type than in `database`."""
    for removed_type, added_type in itertools.permutations(range(len(database)), 2):
        if database[removed_type]:
            neighbour = database.copy()
            neighbour[removed_type] -= 1
            neighbour[added_type] += 1
            yield neighbour


def compute_listed_divergence(
    log_p: LogDistribution,
    log_p_other: LogDistribution,
    epsilon: float,
    weighting: int = DIVERGENCE,
    extra_error: float = 0.0,
) -> LogInterval:
    """Return the divergence of two listed distributions P and P', `log_p` and `log_p_other`.

    They map outcomes to log probabilities. `extra_error`: bound on the absolute error of a log
    probability in addition to the rounding of one computed logarithm; 0 if each is just that.
    """
    log_probabilities, log_ratios = align_distributions(log_p, log_p_other)
    if not len(log_probabilities):
        raise InvalidInput("A mechanism's distribution must have at least one outcome. Got none.")
    return sum_divergence(
        log_probabilities, log_ratios, epsilon, weighting, extra_error, n_rounded=2
    ).cap_at_one()


def align_distributions(
    log_p: LogDistribution, log_p_other: LogDistribution
) -> tuple[Floats, Floats]:
    """Return log P and log(P / P') of the outcomes with P > 0, two float64 (outcomes,).

    `log_p` and `log_p_other` map outcomes to log P and log P'. The ratio is infinite for an outcome
    that `log_p_other` lacks.
    """
    possible = {outcome: value for outcome, value in log_p.items() if value > -math.inf}
    values = np.array(list(possible.values()), dtype=np.float64)
    other_values = np.array(
        [log_p_other.get(outcome, -math.inf) for outcome in possible], dtype=np.float64
    )
    return values, values - other_values


def read_database(database: npt.ArrayLike) -> Counts:
    """Return whole numbers >= 0 of any shape as int64; raise InvalidInput for other values.

    Error messages never show the private values.
    """
    requirement = "The 'database' parameter must hold whole numbers >= 0."
    array: AnyArray = np.asarray(database)
    if array.dtype.kind not in "iuf" or not array.size:
        raise InvalidInput(
            f"{requirement} Got an array of type {array.dtype} and shape {array.shape}."
        )
    if not np.isfinite(array).all() or (array < 0).any() or (array != np.floor(array)).any():
        raise InvalidInput(f"{requirement} Got a value that is not (values are not shown).")
    if (array > 2**53).any():
        raise InvalidInput(f"{requirement} Got a value above 2^53.")
    return array.astype(np.int64)


@dataclass(frozen=True)
class Histogram(ComparedMechanism):
    """Sample records and publish how many of each type are in the sample.

    With ``FixedSize(T)`` this is the paper's SHM. The divergence from a neighbour depends only on
    the counts of the two types in which they differ, so the result is exact for any number of
    types, and the cost depends only on the number of different counts.

    Examples
    --------
    >>> from vicinal.smoothed import FixedSize, Histogram, worst_case_delta
    >>> round(worst_case_delta(Histogram(FixedSize(5)), 10, epsilon=1.0).upper, 3)
    0.5
    """

    sampler: Sampler

    def __post_init__(self) -> None:
        if not isinstance(self.sampler, Sampler):
            raise InvalidInput(
                "The 'sampler' parameter must be FixedSize(T), Poisson(gamma) or "
                f"WithReplacement(T). Got {self.sampler!r}."
            )

    def check_record_count(self, n: int) -> None:
        self.sampler.check_record_count(n)

    def compute_inclusion_probability(self, n: int) -> float:
        return self.sampler.compute_inclusion_probability(n)

    attains_inclusion_probability = True
    """A record that is the only one of its type is revealed whenever it is sampled."""

    def iterate_comparisons(
        self, database: Counts, epsilon: float, weightings: tuple[int, int]
    ) -> Iterator[Comparison]:
        """Yield the comparison at `epsilon` for each different pair of counts of two types.

        Neighbours with equal counts of the two types in which they differ have equal divergences.
        """
        n = int(database.sum())
        compute = self.sampler.compute_divergence
        n_types_by_count = Counter(sorted(database.tolist()))
        for (removed_count, n_types), added_count in itertools.product(
            n_types_by_count.items(), n_types_by_count
        ):
            if removed_count and (removed_count != added_count or n_types > 1):
                a, b = removed_count - 1, added_count
                yield (
                    compute(a, b, n, epsilon, weightings[0]),
                    compute(b, a, n, epsilon, weightings[1]),
                )

    def compute_distribution(self, database: Counts) -> LogDistribution:
        """Return the log probability of every sampled histogram (m,) of a small database."""
        return dict(self.sampler.list_sampled_counts(database))


def get_published_sample_size(mechanism: Mechanism) -> int | None:
    """Return the sample size if `mechanism` publishes the counts of a sample of fixed size."""
    if isinstance(mechanism, Histogram) and isinstance(mechanism.sampler, FixedSize):
        return mechanism.sampler.size
    return None


_SUM_TOLERANCE = 1e-9
"""Largest distance from 1 of the sum of the probabilities that `compute_probabilities` returns."""


@dataclass(frozen=True)
class ListedMechanism(ComparedMechanism):
    """A mechanism given by the distribution of its outcome: Algorithm 1 of LWX23, step 1.

    Releases that share their random numbers are audited in this way, too: let the outcome be the
    tuple of all of them.

    Parameters
    ----------
    compute_probabilities : callable
        From a tuple of counts to a mapping from outcomes to probabilities (floats or fractions,
        at least 0, with sum 1). Probabilities are taken as exact to 2^-45 of themselves.
    types : int
        Number of types.

    Examples
    --------
    >>> from vicinal.smoothed import ListedMechanism, database_delta
    >>> def parity(counts):
    ...     return {counts[0] % 2: 1.0}
    >>> print(database_delta(ListedMechanism(parity, types=2), [4, 6], epsilon=1.0))
    PRIVATE 1 (exact)
    """

    compute_probabilities: Callable[[tuple[int, ...]], Mapping[Hashable, float | Fraction]]
    types: int

    def __post_init__(self) -> None:
        checks.check_integer("types", self.types, minimum=2)
        if not callable(self.compute_probabilities):
            raise InvalidInput(
                "The 'compute_probabilities' parameter must be a function. Got "
                f"{self.compute_probabilities!r}."
            )

    def compute_inclusion_probability(self, n: int) -> float:  # noqa: ARG002 - the function may reveal any record
        return 1.0

    def iterate_comparisons(
        self, database: Counts, epsilon: float, weightings: tuple[int, int]
    ) -> Iterator[Comparison]:
        own = self.compute_distribution(database)
        for neighbour in iterate_neighbours(database):
            other = self.compute_distribution(neighbour)
            yield (
                compute_listed_divergence(own, other, epsilon, weightings[0]),
                compute_listed_divergence(other, own, epsilon, weightings[1]),
            )

    def compute_distribution(self, database: Counts) -> LogDistribution:
        """Return the log probability of every outcome for the histogram `database` (m,).

        Raises InvalidInput unless `compute_probabilities` returns probabilities that sum to 1.
        """
        probabilities: Any = self.compute_probabilities(tuple(database.tolist()))
        if not isinstance(probabilities, Mapping) or not all(
            isinstance(p, Real) and 0 <= float(p) <= 1 + _SUM_TOLERANCE
            for p in probabilities.values()
        ):
            raise InvalidInput(
                "The 'compute_probabilities' parameter must return a mapping to probabilities."
            )
        if abs(math.fsum(map(float, probabilities.values())) - 1) > _SUM_TOLERANCE:
            raise InvalidInput(
                "The probabilities that 'compute_probabilities' returns must sum to 1. They don't."
            )
        return {
            outcome: min(math.log(p), 0.0) if p else -math.inf
            for outcome, p in probabilities.items()
        }
