"""Decisions by a rule on sampled counts: the winner of a poll, a threshold, any listed function.

A rule is a post-processing of the sampled counts, so the delta of :class:`Histogram` with the same
sampler is an upper bound of the delta of every rule.

The argument `weighting` selects the weights of outcomes with probabilities P and P' in a
divergence: DIVERGENCE (1), POSTERIOR_X (P / (P + P')) or POSTERIOR_OTHER (P' / (P + P')).
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from numbers import Number, Rational
from typing import Any

import numpy as np

from vicinal import checks
from vicinal.arrays import Counts, Floats
from vicinal.errors import InvalidInput
from vicinal.progress import begin_progress
from vicinal.smoothed._outcomes import OutcomeRuns, compute_outcome_logs, compute_outcome_profile
from vicinal.smoothed.intervals import (
    LOG_ABSOLUTE_ERROR,
    LOG_RELATIVE_ERROR,
    MACHINE_EPSILON,
    LogInterval,
    log_sum,
)
from vicinal.smoothed.mechanism import (
    FixedSize,
    Histogram,
    LogDistribution,
    NeighbourMechanism,
    Sampler,
    WithReplacement,
    compute_listed_divergence,
)

SampledCounts = tuple[int, ...]
"""Numbers of sampled records of each type."""
Rule = Callable[[SampledCounts], Hashable | Mapping[Hashable, float | Fraction]]
"""Function from the sampled counts to the outcome, or to a mapping from outcomes to probabilities
with sum 1 if the outcome is random."""


@dataclass(frozen=True)
class Plurality:
    """The type with the most sampled records wins.

    Parameters
    ----------
    ties : {"first", "listed", "random"}
        In a tie, the first of the tied types wins; or the tuple of the tied types is the outcome;
        or each of them wins with equal probability.

    Examples
    --------
    >>> from vicinal.smoothed import Plurality
    >>> Plurality()((3, 5, 5))
    1
    >>> Plurality(ties="listed")((3, 5, 5))
    (1, 2)
    """

    ties: str = "first"

    def __post_init__(self) -> None:
        checks.check_choice("ties", self.ties, ("first", "listed", "random"))

    def __call__(self, counts: SampledCounts) -> Hashable | Mapping[Hashable, Fraction]:
        """Return the index of the winning type, or the outcome of a tie, for `counts` (m,)."""
        max_count = max(counts)
        winners = tuple(index for index, count in enumerate(counts) if count == max_count)
        if len(winners) == 1 or self.ties == "first":
            return winners[0]
        if self.ties == "listed":
            return winners
        lottery: dict[Hashable, Fraction] = dict.fromkeys(winners, Fraction(1, len(winners)))
        return lottery


@dataclass(frozen=True)
class Threshold:
    """The outcome is whether one type has enough of the sampled records.

    Parameters
    ----------
    share : float or Fraction, optional
        Required share of the sample, from 0 to 1. A float is read as the decimal number that it
        prints as. Either `share` or `count` is given.
    count : int, optional
        Required number of sampled records.
    type_index : int
        The type, counted from 0.
    strict : bool
        True requires more than the share or count, False at least as much.

    Examples
    --------
    >>> from vicinal.smoothed import Threshold
    >>> Threshold(share=0.6)((6, 4)), Threshold(share=0.6, strict=True)((6, 4))
    (True, False)
    """

    share: float | Fraction | None = None
    count: int | None = None
    type_index: int = 0
    strict: bool = False
    _exact_share: Fraction = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if (self.share is None) == (self.count is None):
            raise InvalidInput("Exactly one of 'share' and 'count' must be given.")
        checks.check_integer("type_index", self.type_index, minimum=0)
        checks.check_boolean("strict", self.strict)
        exact_share = Fraction(0)
        if self.count is not None:
            checks.check_integer("count", self.count, minimum=0)
        else:
            share = checks.check_real("share", self.share, minimum=0, maximum=1)
            # .07 of 100 records are 7 records, which the float nearest to .07 exceeds.
            is_rational = isinstance(self.share, Rational)
            exact_share = Fraction(self.share if is_rational else repr(share))  # type: ignore[arg-type]
        object.__setattr__(self, "_exact_share", exact_share)

    def __call__(self, counts: SampledCounts) -> bool:
        """Return whether the rule's type has enough of the sampled records, by `counts` (m,)."""
        if self.type_index >= len(counts):
            raise InvalidInput(
                f"The 'type_index' parameter must be below the number of types, {len(counts)}. Got "
                f"{self.type_index}."
            )
        sampled = counts[self.type_index]
        required = self._exact_share * sum(counts) if self.count is None else self.count
        return sampled > required if self.strict else sampled >= required


@dataclass(frozen=True)
class ListedRule:
    """A rule given by a table of all possible sampled counts, for small samples.

    Parameters
    ----------
    rows : sequence of {"counts": sequence of int, "outcome": hashable}
        The outcome for each vector of sampled counts.

    Examples
    --------
    >>> from vicinal.smoothed import ListedRule
    >>> rows = [{"counts": [o, 2 - o], "outcome": "yes" if o else "no"} for o in range(3)]
    >>> ListedRule(rows)((1, 1))
    'yes'
    """

    rows: Iterable[Mapping[str, Any]]
    _outcomes: dict[SampledCounts, Hashable] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        outcomes: dict[SampledCounts, Hashable] = {}
        try:
            for row in self.rows:
                counts = tuple(
                    checks.check_integer("rows", count, minimum=0) for count in row["counts"]
                )
                if counts in outcomes or set(row) != {"counts", "outcome"}:
                    raise ValueError
                hash(row["outcome"])
                outcomes[counts] = row["outcome"]
        except (KeyError, TypeError, ValueError):
            raise InvalidInput(
                "The 'rows' parameter must be a list of different 'counts' (whole numbers), each "
                "with its 'outcome' (a text, number or tuple). Got others."
            ) from None
        object.__setattr__(self, "_outcomes", outcomes)

    def __call__(self, counts: SampledCounts) -> Hashable:
        """Return the listed outcome of the sampled `counts` (m,)."""
        if counts not in self._outcomes:
            raise InvalidInput(
                "The 'rows' parameter must list every possible vector of sampled counts. At least "
                "one is missing."
            )
        return self._outcomes[counts]


_MAX_SAMPLES = 10**6
"""Maximal number of sampled histograms of one database that are listed, a few seconds."""
_MAX_TABULATED_RECORDS = 10**6
"""Maximal number of records of two types: the rule is called once for each sampled count."""
_MAX_RUN_SUMS = 10**9
"""Maximal number of databases times runs of equal outcomes, some seconds of compiled code."""
_CHUNK_SIZE = 1 << 14
"""Databases whose deltas are computed between two reports of progress, well below a second."""
_N_CACHED = 1 << 12  # distributions of outcomes in memory: all neighbours of some hundred databases


@dataclass(frozen=True)
class Decision(NeighbourMechanism):
    """Sample records and publish only the outcome of a rule on the sampled counts.

    Exact for two types; for more types exact for small databases only. The delta of ``Histogram``
    with the same sampler is an upper bound for every rule.

    Parameters
    ----------
    rule : callable
        ``Plurality``, ``Threshold``, ``ListedRule`` or a function of a tuple of sampled counts. It
        returns the outcome, or a mapping from outcomes to probabilities if the outcome is random.
    sampler : Sampler, optional
        Whole databases are counted if None. Delta is then 0 or 1 for each database, unless the
        outcome is random, and the smoothed delta is the probability that one record is decisive.

    Examples
    --------
    >>> from vicinal.smoothed import Decision, FixedSize, Plurality, database_delta
    >>> print(database_delta(Decision(Plurality()), [5, 5], epsilon=1.0))
    PRIVATE 1 (exact)
    >>> print(database_delta(Decision(Plurality()), [3, 7], epsilon=1.0))
    PRIVATE 0 (exact)
    """

    rule: Rule
    sampler: Sampler | None = None

    def __post_init__(self) -> None:
        if not callable(self.rule):
            raise InvalidInput(f"The 'rule' parameter must be a function. Got {self.rule!r}.")
        if self.sampler is not None:
            Histogram(self.sampler)  # raises InvalidInput for other objects
        # Every instance caches the results of these methods, so that they are forgotten with it.
        n_cached = {"_list_outcomes": _N_CACHED, "_list_runs": 4, "compute_profile": 2}
        for name, size in n_cached.items():
            object.__setattr__(self, name, lru_cache(size)(getattr(self, name)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the parameters, which are pickled and copied without the caches."""
        return type(self), (self.rule, self.sampler)

    def get_sampler(self, n: int) -> Sampler:
        """Return the sampler for `n` records; it samples all of them if none was given."""
        return FixedSize(n) if self.sampler is None else self.sampler

    def check_record_count(self, n: int) -> None:
        """Raise InvalidInput if the sample is larger than the `n` records."""
        self.get_sampler(n).check_record_count(n)

    def compute_inclusion_probability(self, n: int) -> float:
        """Return the probability that a given one of `n` records is in the sample."""
        return self.get_sampler(n).compute_inclusion_probability(n)

    def iterate_divergences(self, database: Counts, epsilon: float) -> Iterator[LogInterval]:
        """Yield the divergences from and to each neighbour; for two types the largest of them."""
        n = int(database.sum())
        if self.can_tabulate(n, len(database)):
            k = int(database[0])
            yield LogInterval(*self._compute_deltas(k, k, n, epsilon)[:, 0].tolist())
        else:
            yield from super().iterate_divergences(database, epsilon)

    def compute_divergence(
        self, database: Counts, neighbour: Counts, epsilon: float, weighting: int
    ) -> LogInterval:
        """Return the divergence of the listed outcomes of `database` from those of `neighbour`."""
        log_p, error = self._list_outcomes(tuple(database.tolist()))
        log_q, other_error = self._list_outcomes(tuple(neighbour.tolist()))
        return compute_listed_divergence(log_p, log_q, epsilon, weighting, max(error, other_error))

    def _list_outcomes(self, counts: SampledCounts) -> tuple[LogDistribution, float]:
        """Return the log probability of every outcome for a database, and an extra error.

        `counts` (m,): the database's number of records of each type. The error of a log probability
        l is at most ``LOG_ABSOLUTE_ERROR + LOG_RELATIVE_ERROR abs(l)`` plus the extra error.
        """
        n = sum(counts)
        if self.can_tabulate(n, len(counts)):
            runs, outcomes = self._list_runs(self._get_sample_size(n))
            logs, error = compute_outcome_logs(counts[0], n, runs)
            return dict(zip(outcomes, logs.tolist(), strict=True)), error
        sampler = self.get_sampler(n)
        if _bound_sample_count(sampler, counts) > _MAX_SAMPLES:
            raise InvalidInput(
                "There must be few enough records for all samples of a database to be listed "
                f"(at most {_MAX_SAMPLES}). Use Histogram with the same sampler, whose delta is an "
                "upper bound."
            )
        log_terms: dict[Hashable, list[float]] = {}
        samples = sampler.list_sampled_counts(np.array(counts, dtype=np.int64))
        for sampled, log_p in samples:
            for outcome, log_weight in self._apply_rule(sampled):
                log_terms.setdefault(outcome, []).append(log_p + log_weight)
        # Each log probability is a sum over types, and the probability of a type may be rounded.
        # A group of samples adds its entropy, at most log(samples).
        error = len(counts) * (LOG_ABSOLUTE_ERROR + 4 * MACHINE_EPSILON * (n + 1))
        error += LOG_RELATIVE_ERROR * math.log(len(samples) + 1)
        error += MACHINE_EPSILON * (len(samples) + 8)
        log_distribution = {
            outcome: min(log_sum(np.array(terms)), 0.0) for outcome, terms in log_terms.items()
        }
        return log_distribution, error

    def _apply_rule(self, sampled: SampledCounts) -> list[tuple[Hashable, float]]:
        """Return the rule's outcomes for `sampled` counts (m,), each with its log probability."""
        value = self.rule(sampled)
        if isinstance(value, Mapping):
            probabilities = {outcome: float(p) for outcome, p in value.items()}
            sum_error = abs(math.fsum(probabilities.values()) - 1)
            is_valid = sum_error <= MACHINE_EPSILON * (len(probabilities) + 4)
            if not is_valid or min(probabilities.values()) < 0:
                raise InvalidInput(
                    "The 'rule' parameter must return probabilities that sum to 1. They don't."
                )
            return [
                (_make_outcome_key(outcome), math.log(p))
                for outcome, p in probabilities.items()
                if p
            ]
        if not isinstance(value, Hashable):
            raise InvalidInput("The 'rule' parameter must return a hashable outcome. It doesn't.")
        return [(_make_outcome_key(value), 0.0)]

    def bound_listed_samples(self, n: int, n_types: int) -> int:
        """Return an upper bound of the number of samples that are listed to compute one delta.

        It is that of a database with `n` records of `n_types` types in equal numbers; 1 if deltas
        are computed without a list of samples.
        """
        if self.can_tabulate(n, n_types):
            return 1
        return _bound_sample_count(self.get_sampler(n), (-(-n // n_types),) * n_types)

    def forget_databases(self) -> None:
        """Clear the cached distributions of outcomes, whose keys are histograms of databases."""
        self._list_outcomes.cache_clear()  # type: ignore[attr-defined]

    # ----- two types: outcomes are runs of the sampled count of the first type

    def _get_sample_size(self, n: int) -> int:
        """Return the size of the sample from `n` records; -1 if it is random."""
        sampler = self.get_sampler(n)
        return sampler.size if isinstance(sampler, FixedSize | WithReplacement) else -1

    def can_tabulate(self, n: int, n_types: int) -> bool:
        """Return whether the deltas of all databases of `n` records are computed from runs.

        A run is a range of sampled counts with the same outcome. That takes two types (`n_types`),
        a fixed sample size, and few enough records and runs.
        """
        if n_types != 2 or n > _MAX_TABULATED_RECORDS:
            return False
        size = self._get_sample_size(n)
        if not 0 <= size <= _MAX_TABULATED_RECORDS:
            return False
        runs, _ = self._list_runs(size)
        return (len(runs.firsts) + runs.n_outcomes) * (n + 1) <= _MAX_RUN_SUMS

    def _list_runs(self, size: int) -> tuple[OutcomeRuns, list[Hashable]]:
        """Return the ranges of the first type's count in which the rule's outcome is the same.

        The counts are those of samples of `size` records of two types. The second result lists the
        outcomes; the runs have their indices in it.
        """
        indices: dict[Hashable, int] = {}
        rows: list[list[Any]] = []
        previous: list[tuple[Hashable, float]] = []
        for count in range(size + 1):
            weighted_outcomes = self._apply_rule((count, size - count))
            if weighted_outcomes == previous:
                for row in rows[-len(previous) :]:
                    row[1] = count
            else:
                rows += [
                    [count, count, indices.setdefault(outcome, len(indices)), log_weight]
                    for outcome, log_weight in weighted_outcomes
                ]
            previous = weighted_outcomes
        firsts, lasts, outcomes, log_weights = zip(*rows, strict=True)
        runs = OutcomeRuns(
            np.array(firsts, dtype=np.int64),
            np.array(lasts, dtype=np.int64),
            np.array(outcomes, dtype=np.int64),
            np.array(log_weights, dtype=np.float64),
            len(indices),
            size,
            isinstance(self.sampler, WithReplacement),
        )
        return runs, list(indices)

    def compute_profile(self, n: int, epsilon: float) -> Floats:
        """Return lower and upper log delta of each database of two types, float64 (2, n + 1).

        Column k is the database with k of the `n` records of the first type. The caller has
        checked :meth:`can_tabulate`. The result is read-only.
        """
        report_progress = begin_progress("deltas of all databases", n + 1)
        chunks = []
        for low in range(0, n + 1, _CHUNK_SIZE):
            high = min(low + _CHUNK_SIZE - 1, n)
            chunks.append(self._compute_deltas(low, high, n, epsilon))
            if report_progress is not None:
                report_progress(high + 1 - low)
        profile = np.concatenate(chunks, axis=1)
        profile.flags.writeable = False
        return profile

    def _compute_deltas(self, low: int, high: int, n: int, epsilon: float) -> Floats:
        """Return lower and upper log delta of some databases, float64 (2, high - low + 1).

        They have k = `low` .. `high` of `n` records of the first of two types.
        """
        runs, _ = self._list_runs(self._get_sample_size(n))
        return np.asarray(compute_outcome_profile(low, high, n, runs, epsilon))


def _make_outcome_key(outcome: Hashable) -> Hashable:
    """Return a key of an outcome that differs for outcomes that are published differently.

    1, True and 1.0 are equal, and so are 0.0 and -0.0, but not their texts.
    """
    if isinstance(outcome, tuple):
        return tuple(map(_make_outcome_key, outcome))
    text = str(outcome) if isinstance(outcome, Number) else ""
    return type(outcome), text, outcome


def _bound_sample_count(sampler: Sampler, counts: SampledCounts) -> int:
    """Return an upper bound of the number of sampled histograms of the database `counts` (m,)."""
    if not isinstance(sampler, FixedSize | WithReplacement):
        return math.prod(count + 1 for count in counts)
    is_replaced = isinstance(sampler, WithReplacement)
    sizes = [sampler.size if is_replaced else min(count, sampler.size) for count in counts]
    # The sampled counts of all other types determine the largest one.
    return math.prod(size + 1 for size in sorted(sizes)[:-1])
