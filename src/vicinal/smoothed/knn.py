"""Mechanisms without noise that publish exact votes of sampled records, by kNN or in a radius.

k nearest: records are sorted by distance and each is kept with probability g; the first k kept
records vote. Let V_j be the votes of the first j kept records among all records but one, and N_b
the number of kept ones among the first b of them. Insert the left-out record at rank b with label
y. If it is kept and N_b < k, it votes together with the first k - 1 of the rest; otherwise the
first k of the rest vote:

    P_{b,y}(v) = (1-g) Pr[V_k = v] + g Pr[V_k = v, N_b >= k] + g Pr[V_{k-1} + e_y = v, N_b < k].

One pass over the ranks computes all terms: mass moves from a state of k - 1 votes to one of k votes
when a k-th record is kept, and the mass that has moved by rank b belongs to the event N_b >= k.

Arguments of the compiled functions: `labels` (n,) are those of all records, nearest first, `gamma`
is g, and a vote state is a histogram of at most `k` votes, with the `sizes` and `successors` of
:func:`tabulate_vote_states`. The masses (3, states) after some records are

- row 0: the probability of each state of fewer than k votes;
- row 1: that of each state of k votes;
- row 2: the mass that moved from each state of k - 1 votes to states of k votes.

The divergence at `epsilon` of outcome probabilities P from P' is the sum over outcomes of weight
(P - E P')+ with E = exp(epsilon), `exp_eps`. `weighting` selects the weight: DIVERGENCE (1),
POSTERIOR_X (P / (P + P')) or POSTERIOR_OTHER (P' / (P + P')).
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vicinal import checks
from vicinal.arrays import Counts, Floats, Ints
from vicinal.compiled import compiled
from vicinal.errors import InvalidInput
from vicinal.smoothed import mechanism as mechanisms
from vicinal.smoothed._expectation import (
    TwoTypeWorld,
    cache_log_deltas,
    compute_mean_delta,
    list_pure_worlds,
)
from vicinal.smoothed._pairs import DIVERGENCE, sum_divergence
from vicinal.smoothed._several_types import bound_multitype_mean
from vicinal.smoothed.intervals import (
    MACHINE_EPSILON,
    LogInterval,
    log_binomial_pmf,
    log_or_minus_inf,
    log_sum,
    max_interval,
)
from vicinal.smoothed.populations import Population

_MAX_STATES = 20_000  # maximal number of vote states (histograms of at most k votes)
_MAX_STATE_UPDATES = 10**11  # maximal number of state updates in one comparison with all neighbours


@dataclass(frozen=True)
class KNNVotes(mechanisms.Mechanism):
    """Sample every record with probability `gamma`; publish the votes of the k nearest sampled.

    A database is the sequence of labels (n,), nearest to the public query first. The rank of a
    record matters, so the mechanism is no function of the histogram alone. A neighbour has one
    record replaced by one of any label at any distance.

    Parameters
    ----------
    k : int
        Number of votes.
    gamma : float
        Sampling rate, in (0, 1].
    classes : int
        Number of labels.

    Examples
    --------
    >>> from vicinal.smoothed import KNNVotes, database_delta
    >>> votes = KNNVotes(k=3, gamma=0.5)
    >>> labels = [0, 1, 1, 0, 1, 0, 0, 1]  # nearest first
    >>> database_delta(votes, labels, epsilon=1.0).log_upper < 0
    True
    """

    k: int
    gamma: float
    classes: int = 2

    def __post_init__(self) -> None:
        checks.check_integer("k", self.k, minimum=1)
        gamma = checks.check_real("gamma", self.gamma, above=0, maximum=1)
        object.__setattr__(self, "gamma", gamma)
        checks.check_integer("classes", self.classes, minimum=2)
        if math.comb(self.k + self.classes, self.k) > _MAX_STATES:
            raise InvalidInput(
                f"The 'k' parameter must allow at most {_MAX_STATES} different votes with "
                f"{self.classes} classes. Got {self.k}."
            )

    def validate_database(self, database: npt.ArrayLike) -> Counts:
        """Return labels (n,), nearest first, as int64; raise InvalidInput for other values."""
        labels = mechanisms.read_database(database)
        if labels.ndim != 1 or (labels >= self.classes).any():
            raise InvalidInput(
                "The 'database' parameter must be the labels, nearest first: integers (n,) below "
                f"{self.classes}. Got something else (values are not shown)."
            )
        return labels

    def compute_inclusion_probability(self, n: int) -> float:  # noqa: ARG002 - the same for every n
        """Return the probability that a record is sampled, for any number `n` of records."""
        return self.gamma

    attains_inclusion_probability = True
    """The nearest record is revealed whenever it is sampled if no other record has its label."""

    def iterate_divergences(self, database: Counts, epsilon: float) -> Iterator[LogInterval]:
        """Yield the largest divergences at `epsilon` from and to a neighbour of `database`, (n,).

        There are two for each run of equal labels, of neighbours with a record of it replaced.
        """
        for row in self._compute_run_maxima(database, epsilon):
            yield from (
                _enclose_computed(row[direction], row[direction + 3]) for direction in (0, 1)
            )

    def iterate_gains(self, database: Counts, epsilon: float) -> Iterator[LogInterval]:
        """Yield the largest gain of :meth:`Mechanism.iterate_gains` for each run of equal labels.

        It is the largest over the neighbours with a record of the run replaced.
        """
        for row in self._compute_run_maxima(database, epsilon):
            yield _enclose_computed(row[2], row[5])

    def _compute_run_maxima(self, database: Counts, epsilon: float) -> Floats:
        """Return six maxima over the neighbours for each run of equal labels, float64 (runs, 6).

        They are those of :func:`_update_maxima` at `epsilon`, for neighbours with a record of the
        run replaced.
        """
        # All records of a run leave the same remaining records.
        run_starts = np.flatnonzero(np.diff(database, prepend=-1))
        sizes, successors = tabulate_vote_states(self.k, self.classes)
        n_operations = len(run_starts) * len(database) * self.classes * len(sizes)
        if n_operations > _MAX_STATE_UPDATES:
            raise InvalidInput(
                "The 'database' parameter must be small enough for all neighbours to be compared "
                f"(runs x records x classes x votes at most {_MAX_STATE_UPDATES:g}). "
                f"Got {n_operations:g}."
            )
        exp_eps = mechanisms.compute_bounded_exp(epsilon)
        return np.asarray(
            _compare_with_neighbours(
                database, run_starts, self.gamma, self.k, self.classes, exp_eps, sizes, successors
            )
        )


def _enclose_computed(value: float, high: float) -> LogInterval:
    """Return the interval of a divergence or gain, computed as `value` and at most `high`.

    The arguments are no logarithms.
    """
    # The error of a computed sum is symmetric, so the exact one is at least 2 value - high.
    return LogInterval(log_or_minus_inf(2 * value - high), log_or_minus_inf(high)).cap_at_one()


def tabulate_vote_states(k: int, classes: int) -> tuple[Ints, Ints]:
    """Return the sizes (states,) and successors (states, classes) of all vote states.

    States are in lexicographic order. The size of a state is its number of votes. A successor is
    the index of the state with one more vote for a label, -1 if that has more than `k` votes.
    `classes`: number of labels.
    """
    states = [state for state in itertools.product(range(k + 1), repeat=classes) if sum(state) <= k]
    index_of = {state: index for index, state in enumerate(states)}
    successors = [
        [
            index_of.get((*state[:label], state[label] + 1, *state[label + 1 :]), -1)
            for label in range(classes)
        ]
        for state in states
    ]
    return np.array([sum(state) for state in states]), np.array(successors)


@compiled
def _compute_masses(
    labels: Ints, skipped_rank: int, gamma: float, k: int, sizes: Ints, successors: Ints
) -> Floats:
    """Return the masses after all records but that at `skipped_rank` (-1 for none)."""
    mass = np.zeros((3, len(sizes)))
    mass[0, 0] = 1.0
    for rank in range(len(labels)):
        if rank != skipped_rank:
            _add_record(mass, labels[rank], gamma, k, sizes, successors)
    return mass


@compiled
def _add_record(
    mass: Floats, label: int, gamma: float, k: int, sizes: Ints, successors: Ints
) -> None:
    """Update the masses (3, states) in place for one further record with `label`, if sampled."""
    # States are visited from last to first, because successors come later in the order.
    for state in range(len(sizes) - 1, -1, -1):
        if sizes[state] < k and mass[0, state] > 0:
            kept_mass = gamma * mass[0, state]
            mass[0, state] -= kept_mass
            if sizes[state] == k - 1:
                mass[1, successors[state, label]] += kept_mass
                mass[2, state] += kept_mass
            else:
                mass[0, successors[state, label]] += kept_mass


@compiled
def _compute_outcome_distribution(
    final_mass: Floats,
    rank_mass: Floats,
    label: int,
    gamma: float,
    k: int,
    sizes: Ints,
    successors: Ints,
) -> Floats:
    """Return the distribution of votes after one record is inserted, float64 (2, states).

    Row 0 is P_{b,y} of the header, row 1 the scale of its rounding errors. The record has `label` y
    and is inserted at rank b. `final_mass` and `rank_mass` are the masses after all remaining
    records and after the first b of them.
    """
    distribution = np.zeros((2, len(sizes)))
    for state in range(len(sizes)):
        p_without = final_mass[0, state] + final_mass[1, state]
        distribution[0, state] += (1 - gamma) * p_without + gamma * rank_mass[1, state]
        distribution[1, state] += (1 - gamma) * p_without + gamma * rank_mass[1, state]
        if sizes[state] < k:
            successor = successors[state, label]
            distribution[0, successor] += gamma * max(
                final_mass[0, state] + (final_mass[2, state] - rank_mass[2, state]), 0.0
            )
            distribution[1, successor] += gamma * (final_mass[0, state] + final_mass[2, state])
    return distribution


@compiled
def _update_maxima(
    own: Floats, neighbour: Floats, exp_eps: float, rounding: float, maxima: Floats
) -> None:
    """Update six `maxima` (6,) over neighbours in place by the values for one further neighbour.

    They are the computed divergence of the database from a neighbour, the reverse divergence and
    the adversary's gain, then upper bounds of these three. `own` and `neighbour` (2, states) are
    the vote distributions of both databases: `rounding` times row 1 bounds the error of row 0.
    """
    sums = np.zeros(6)
    for state in range(own.shape[1]):
        p, q = own[0, state], neighbour[0, state]
        slack_p = rounding * own[1, state]
        slack_q = rounding * neighbour[1, state]
        forward, backward = max(p - exp_eps * q, 0.0), max(q - exp_eps * p, 0.0)
        sums[0] += forward
        sums[1] += backward
        posterior = p / (p + q) if p + q > 0 else 0.0
        sums[2] += posterior * (forward + backward)
        upper_forward = max(p + slack_p - exp_eps * max(q - slack_q, 0.0), 0.0)
        upper_backward = max(q + slack_q - exp_eps * max(p - slack_p, 0.0), 0.0)
        sums[3] += upper_forward
        sums[4] += upper_backward
        # The error of p / (p + q) is at most posterior_error / (p + q); it multiplies a divergence
        # of at most p + q.
        posterior_error = slack_p + slack_q
        sums[5] += min(
            posterior * (upper_forward + upper_backward) + posterior_error,
            upper_forward + upper_backward,
        )
    for index in range(6):
        maxima[index] = max(maxima[index], sums[index])


@compiled
def _compare_with_neighbours(
    labels: Ints,
    removed_ranks: Ints,
    gamma: float,
    k: int,
    classes: int,
    exp_eps: float,
    sizes: Ints,
    successors: Ints,
) -> Floats:
    """Return six maxima over all neighbours, for each removed record, float64 (removed, 6).

    A neighbour has the record at one of the `removed_ranks` removed and a record inserted at any
    rank with any of the `classes` labels. The columns are the maxima of :func:`_update_maxima`.
    """
    n = len(labels)
    rounding = 8 * (n + 8) * MACHINE_EPSILON
    maxima = np.zeros((len(removed_ranks), 6))
    for index in range(len(removed_ranks)):
        removed_rank = removed_ranks[index]
        final_mass = _compute_masses(labels, removed_rank, gamma, k, sizes, successors)
        own = _compute_outcome_distribution(
            final_mass,
            _compute_masses(labels[:removed_rank], -1, gamma, k, sizes, successors),
            labels[removed_rank],
            gamma,
            k,
            sizes,
            successors,
        )
        rank_mass = np.zeros((3, len(sizes)))
        rank_mass[0, 0] = 1.0
        for rank in range(n):
            for label in range(classes):
                neighbour = _compute_outcome_distribution(
                    final_mass, rank_mass, label, gamma, k, sizes, successors
                )
                _update_maxima(own, neighbour, exp_eps, rounding, maxima[index])
            # `rank` does not count the removed record, so later records have rank + 1 in `labels`.
            next_rank = rank if rank < removed_rank else rank + 1
            if next_rank < n:
                _add_record(rank_mass, labels[next_rank], gamma, k, sizes, successors)
    return maxima


# --------------------------------------- exact counts of the sampled records inside a fixed radius


@dataclass(frozen=True)
class RadiusVotes(mechanisms.ComparedMechanism):
    """Sample every record with probability `gamma`; publish the sampled labels inside the radius.

    Seen from a public query, the type of a record is its label, or "out" if it is outside the
    radius (Proposition 6), so there are `classes` + 1 types; "out" is the last one and is not
    published. The votes are independent binomials.

    Parameters
    ----------
    gamma : float
        Sampling rate, in (0, 1].
    classes : int
        Number of labels, at least 2.

    Examples
    --------
    >>> from vicinal.smoothed import RadiusVotes, database_delta
    >>> votes = RadiusVotes(gamma=0.5, classes=2)
    >>> database_delta(votes, [10, 12, 30], epsilon=1.0).log_upper < 0
    True
    """

    gamma: float
    classes: int

    def __post_init__(self) -> None:
        gamma = checks.check_real("gamma", self.gamma, above=0, maximum=1)
        object.__setattr__(self, "gamma", gamma)
        classes = checks.check_integer("classes", self.classes, minimum=2)
        object.__setattr__(self, "types", classes + 1)

    def compute_inclusion_probability(self, n: int) -> float:  # noqa: ARG002 - the same for every n
        """Return the probability that a record is sampled, for any number `n` of records."""
        return self.gamma

    attains_inclusion_probability = True
    """A lone record inside the radius is revealed whenever it is sampled."""

    def iterate_comparisons(
        self, database: Counts, epsilon: float, weightings: tuple[int, int]
    ) -> Iterator[mechanisms.Comparison]:
        """Yield the divergences from and to each neighbour of `database`, counts (classes + 1,).

        The first divergence is computed with the first of two `weightings`, the second with the
        second.
        """
        compute = self._compute_divergence
        for removed_type, added_type in itertools.permutations(range(self.classes + 1), 2):
            n_removed, n_added = int(database[removed_type]), int(database[added_type])
            if n_removed:
                types, counts = (removed_type, added_type), (n_removed, n_added)
                reverse_counts = (n_added + 1, n_removed - 1)
                yield (
                    compute(types, counts, epsilon, weightings[0]),
                    compute(types[::-1], reverse_counts, epsilon, weightings[1]),
                )

    def _compute_divergence(
        self, types: tuple[int, int], counts: tuple[int, int], epsilon: float, weighting: int
    ) -> LogInterval:
        """Return the divergence of X from X', in which one record has changed its type.

        `types`: the type of this record in X, and in X'. `counts`: the numbers of all records of
        these two types in X.
        """
        (removed_type, added_type), (n_removed, n_added) = types, counts
        if added_type == self.classes:
            return compute_count_divergence(
                n_removed, n_removed - 1, self.gamma, epsilon, weighting
            )
        if removed_type == self.classes:
            return compute_count_divergence(n_added, n_added + 1, self.gamma, epsilon, weighting)
        return mechanisms.Poisson(self.gamma).compute_divergence(
            n_removed - 1, n_added, n_removed + n_added, epsilon, weighting
        )


def compute_count_divergence(
    n_database: int, n_neighbour: int, gamma: float, epsilon: float, weighting: int
) -> LogInterval:
    """Return the divergence at `epsilon` of Bin(n_database, gamma) from Bin(n_neighbour, gamma).

    A database and its neighbour have `n_database` and `n_neighbour` records of a label, which
    differ by one; each is sampled with probability `gamma`.
    """
    log_p = log_binomial_pmf(n_database, gamma)
    n_larger = max(n_database, n_neighbour)
    counts = np.arange(n_database + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Bin(m)(o) / Bin(m - 1)(o) = m (1 - gamma) / (m - o) for m = n_larger.
        log_larger_ratio: Floats = math.log(n_larger) + np.log1p(-gamma) - np.log(n_larger - counts)
    log_ratio = log_larger_ratio if n_database == n_larger else -log_larger_ratio
    if gamma == 1:
        log_ratio = np.full(n_database + 1, math.inf)
    is_possible = log_p > -math.inf
    log_p, log_ratio = log_p[is_possible], log_ratio[is_possible]
    return sum_divergence(log_p, log_ratio, epsilon, weighting).cap_at_one()


def bound_radius_mean(
    mechanism: RadiusVotes, population: Population, n: int, epsilon: float
) -> LogInterval | None:
    """Return an interval of the smoothed delta of votes in a radius; None if `n` is too large.

    `population`: the plausible distributions of the `n` records over labels and "out".
    """
    # A neighbour changes one label's count or moves a record from label to label. The lower end is
    # the largest mean for a single label. The upper end adds the means of the largest divergence
    # of each label and of the largest divergence between two labels (sampled counts of types).

    def compute_label_delta(n_label: int) -> LogInterval:
        """Return the larger divergence, of both directions, of counts `n_label` and one less."""
        n_larger = max(n_label, 1)
        neighbours = ((n_larger, n_larger - 1), (n_larger - 1, n_larger))
        return max_interval(
            compute_count_divergence(*counts, mechanism.gamma, epsilon, DIVERGENCE)
            for counts in neighbours
        )

    min_probabilities = population.min_probabilities[: mechanism.classes]
    sampler = mechanisms.Poisson(mechanism.gamma)
    relabelled = bound_multitype_mean(sampler, min_probabilities, n, epsilon)
    if relabelled is None:
        return None
    get_log_deltas = cache_log_deltas(compute_label_delta)
    lower = max_interval(
        compute_mean_delta(get_log_deltas, world)
        for label in range(mechanism.classes)
        for world in list_pure_worlds(population, n, label)
    )
    label_means = [
        compute_mean_delta(get_log_deltas, TwoTypeWorld((n,), (float(probability),))).high
        for probability in min_probabilities
    ]
    upper = log_sum(np.array([*label_means, relabelled.high])) + 2.0**-48
    return LogInterval(lower.low, upper).cap_at_one()
