r"""Our own k nearest neighbours vote with the noise off: exact votes of the k nearest sampled.

Records are sorted by distance and each is kept with probability g; the first k that are kept vote.
Let V_j be the votes of the first j kept among all records but one, and N_b how many of the first b
of them are kept. Put the one back at rank b with label y: if it is kept and N_b < k, then it votes
and the others' first k - 1 vote beside it, else the others' first k vote:

    P_{b,y}(v) = (1-g) Pr[V_k = v] + g Pr[V_k = v, N_b >= k] + g Pr[V_{k-1} + e_y = v, N_b < k].

One pass over the ranks gives all of it: mass leaves a state of k - 1 votes for one of k votes when
a k-th record is kept, and what has left by rank b are the events with N_b >= k.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from vicinal import checks
from vicinal.arrays import Counts, Floats, Places
from vicinal.compiled import compiled
from vicinal.errors import InvalidInput
from vicinal.smoothed import mechanism as mechanisms
from vicinal.smoothed._edges import LOSS, sum_divergence
from vicinal.smoothed._expectation import LogDeltas, TwoTypeWorld, cache_log_deltas, compute_mean_delta, list_unmixed_worlds
from vicinal.smoothed._several_types import bound_multitype_mean
from vicinal.smoothed.intervals import ONE, LogInterval, log_binomial_pmf, largest, log_or_minus_inf, log_sum
from vicinal.smoothed.populations import Population

_MOST_STATES = 20_000
_MOST_WORK = 10**11


@dataclass(frozen=True)
class KNNVotes(mechanisms.Mechanism):
    """Sample every record with probability `gamma`; publish the votes of the k nearest sampled.

    A database is the sequence of labels, nearest to the public query first: where a record stands
    matters, so this is no function of the histogram alone. A neighbour has one record anywhere
    replaced by one of any label at any distance.

    Parameters
    ----------
    k : int
        How many vote.
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
        checks.check_integer("k", self.k, least=1)
        gamma = checks.check_real("gamma", self.gamma, above=0, most=1)
        object.__setattr__(self, "gamma", gamma)
        checks.check_integer("classes", self.classes, least=2)
        if math.comb(self.k + self.classes, self.k) > _MOST_STATES:
            raise InvalidInput(
                f"The 'k' parameter must allow at most {_MOST_STATES} different votes with "
                f"{self.classes} classes. Got {self.k}."
            )

    def check(self, database: npt.ArrayLike) -> Counts:
        labels = mechanisms.read_whole_numbers("database", database)
        if labels.ndim != 1 or (labels >= self.classes).any():
            raise InvalidInput(
                "The 'database' parameter must be the labels, nearest first: integers (n,) below "
                f"{self.classes}. Got something else (values are not shown)."
            )
        return labels

    def records(self, database: Counts) -> int:
        return len(database)

    def touched(self, n: int) -> float:  # noqa: ARG002 - the same for every n
        return self.gamma

    attains_touched = True
    """The nearest record shows whenever it is drawn if nobody else has its label."""

    def losses(self, database: Counts, epsilon: float) -> Iterator[LogInterval]:
        for row in self._compared(database, epsilon):
            yield from (_between(row[p], row[p + 3]) for p in (0, 1))

    def gains(self, database: Counts, epsilon: float) -> Iterator[LogInterval]:
        for row in self._compared(database, epsilon):
            yield _between(row[2], row[5])

    def _compared(self, database: Counts, epsilon: float) -> Floats:
        """Return what comes of removing a record, float64 (runs of equal labels, 6).

        Whichever of a run is removed, the same others are left.
        """
        starts = np.flatnonzero(np.diff(database, prepend=-1))
        size, after = list_vote_states(self.k, self.classes)
        work = len(starts) * len(database) * self.classes * len(size)
        if work > _MOST_WORK:
            raise InvalidInput(
                "The 'database' parameter must be small enough for all neighbours to be compared "
                f"(runs x records x classes x votes at most {_MOST_WORK:g}). Got {work:g}."
            )
        e = mechanisms.exp_epsilon(epsilon)
        return np.asarray(
            compare_with_neighbours(database, starts, self.gamma, self.k, self.classes, e, size, after)
        )


def _between(low: float, high: float) -> LogInterval:
    """Return the number that was computed as `low` and is at most `high`."""
    return LogInterval(log_or_minus_inf(2 * low - high), log_or_minus_inf(high)).cap_log(ONE.high)


_UNIT = 2.0**-52


def list_vote_states(k: int, classes: int) -> tuple[Places, Places]:
    """Return the sizes (s,) of all histograms of at most k votes, and their successors (s, c).

    A successor has one vote more for a label; -1 where that would be more than k.
    """
    states = [v for v in itertools.product(range(k + 1), repeat=classes) if sum(v) <= k]
    place = {state: index for index, state in enumerate(states)}
    after = [
        [place.get((*v[:c], v[c] + 1, *v[c + 1 :]), -1) for c in range(classes)] for v in states
    ]
    return np.array([sum(v) for v in states]), np.array(after)


@compiled
def _pass(labels: Places, skip: int, g: float, k: int, size: Places, after: Places) -> Floats:
    """Return mass (3, s): alive, arrived at k votes, and left k - 1 votes, after all records."""
    mass = np.zeros((3, len(size)))
    mass[0, 0] = 1.0
    for rank in range(len(labels)):
        if rank != skip:
            _keep(mass, labels[rank], g, k, size, after)
    return mass


@compiled
def _keep(mass: Floats, label: int, g: float, k: int, size: Places, after: Places) -> None:
    """Let one more record be kept with probability g. Successors come later in the order."""
    for v in range(len(size) - 1, -1, -1):
        if size[v] < k and mass[0, v] > 0:
            moved = g * mass[0, v]
            mass[0, v] -= moved
            if size[v] == k - 1:
                mass[1, after[v, label]] += moved
                mass[2, v] += moved
            else:
                mass[0, after[v, label]] += moved


@compiled
def _law(
    final: Floats, now: Floats, label: int, g: float, k: int, size: Places, after: Places
) -> Floats:
    """Return P_{b,y} (row 0) and a bound of its rounding in units (row 1)."""
    law = np.zeros((2, len(size)))
    for v in range(len(size)):
        others = final[0, v] + final[1, v]
        law[0, v] += (1 - g) * others + g * now[1, v]
        law[1, v] += (1 - g) * others + g * now[1, v]
        if size[v] < k:
            w = after[v, label]
            law[0, w] += g * max(final[0, v] + (final[2, v] - now[2, v]), 0.0)
            law[1, w] += g * (final[0, v] + final[2, v])
    return law


@compiled
def _compare(own: Floats, other: Floats, e: float, unit: float, ends: Floats) -> None:
    """Raise the six maxima: both losses and the gain, and upper ends of the three."""
    sums = np.zeros(6)
    for v in range(own.shape[1]):
        p, q = own[0, v], other[0, v]
        slack_p, slack_q = unit * own[1, v], unit * other[1, v]
        forward, backward = max(p - e * q, 0.0), max(q - e * p, 0.0)
        sums[0] += forward
        sums[1] += backward
        share = p / (p + q) if p + q > 0 else 0.0
        sums[2] += share * (forward + backward)
        more = max(p + slack_p - e * max(q - slack_q, 0.0), 0.0)
        less = max(q + slack_q - e * max(p - slack_p, 0.0), 0.0)
        sums[3] += more
        sums[4] += less
        # p / (p + q) is wrong by at most the slacks over p + q, times a loss of at most p + q.
        extra = slack_p + slack_q
        sums[5] += min(share * (more + less) + extra, more + less)
    for place in range(6):
        ends[place] = max(ends[place], sums[place])


@compiled
def compare_with_neighbours(
    labels: Places, removed: Places, g: float, k: int, classes: int, e: float, size: Places,
    after: Places,
) -> Floats:  # fmt: skip
    """Return six maxima over all insertions, for every removed rank: float64 (len(removed), 6)."""
    n = len(labels)
    unit = 8 * (n + 8) * _UNIT
    ends = np.zeros((len(removed), 6))
    for place in range(len(removed)):
        skip = removed[place]
        final = _pass(labels, skip, g, k, size, after)
        own = _law(
            final, _pass(labels[:skip], -1, g, k, size, after), labels[skip], g, k, size, after
        )
        now = np.zeros((3, len(size)))
        now[0, 0] = 1.0
        for rank in range(n):
            for label in range(classes):
                other = _law(final, now, label, g, k, size, after)
                _compare(own, other, e, unit, ends[place])
            # Rank counts the others: past the removed record they are one further on.
            source = rank if rank < skip else rank + 1
            if source < n:
                _keep(now, labels[source], g, k, size, after)
    return ends


# ---------- our own radius vote with the noise off: exact counts of sampled records inside a radius


@dataclass(frozen=True)
class RadiusVotes(mechanisms.ComparedMechanism):
    """Sample every record with probability `gamma`; publish the sampled labels inside the radius.

    What a record is, seen from a public query, is its label, or "out" if it is outside the radius
    (Proposition 6), so there are `classes` + 1 types; "out" is the last and is not published. The
    votes are independent binomials.

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
        gamma = checks.check_real("gamma", self.gamma, above=0, most=1)
        object.__setattr__(self, "gamma", gamma)
        classes = checks.check_integer("classes", self.classes, least=2)
        object.__setattr__(self, "types", classes + 1)

    def touched(self, n: int) -> float:  # noqa: ARG002 - the same for every n
        return self.gamma

    attains_touched = True
    """A lone record inside the radius shows whenever it is drawn."""

    def comparisons(self, database: Counts, epsilon: float) -> Iterator[mechanisms.Comparison]:
        for i, j in itertools.permutations(range(self.classes + 1), 2):
            own, other = int(database[i]), int(database[j])
            if own:
                yield (
                    partial(self._part, i, j, own, other, epsilon),
                    partial(self._part, j, i, other + 1, own - 1, epsilon),
                )

    def _part(
        self, i: int, j: int, own: int, other: int, epsilon: float, measure: int
    ) -> LogInterval:
        """Return the divergence of X with (own, other) from X' with (own - 1, other + 1)."""
        if j == self.classes:
            return compute_count_divergence(own, own - 1, self.gamma, epsilon, measure)
        if i == self.classes:
            return compute_count_divergence(other, other + 1, self.gamma, epsilon, measure)
        return mechanisms.Poisson(self.gamma).pair(own - 1, other, own + other, epsilon, measure)


def compute_count_divergence(own: int, other: int, gamma: float, epsilon: float, measure: int) -> LogInterval:
    """Return the divergence of Bin(own, gamma) from Bin(other, gamma); they differ by one."""
    log_p, more = log_binomial_pmf(own, gamma), max(own, other)
    drawn = np.arange(own + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Bin(more) / Bin(more - 1) is more (1 - gamma) / (more - o).
        step: Floats = math.log(more) + np.log1p(-gamma) - np.log(more - drawn)
    log_ratio = step if own == more else -step
    if gamma == 1:
        log_ratio = np.full(own + 1, math.inf)
    likely = log_p > -math.inf
    log_p, log_ratio = log_p[likely], log_ratio[likely]
    return sum_divergence(log_p, log_ratio, epsilon, measure).cap_log()


def bound_radius_mean(
    mechanism: RadiusVotes, population: Population, n: int, epsilon: float
) -> LogInterval | None:
    """Return an interval of the largest expected delta over the worlds of a population.

    Above, the means of the largest loss of one label and of the largest loss of two are added:
    between labels, sampled votes are sampled counts of types. None where those are too many.
    """
    least = population.least[: mechanism.classes]
    swapped = bound_multitype_mean(mechanisms.Poisson(mechanism.gamma), least, n, epsilon)
    if swapped is None:
        return None
    column = _column(mechanism.gamma, epsilon)
    labels = range(mechanism.classes)
    lower = largest(
        compute_mean_delta(column, world) for c in labels for world in list_unmixed_worlds(population, n, c)
    )
    alone = [compute_mean_delta(column, TwoTypeWorld((n,), (float(f),))).high for f in least]
    above = log_sum(np.array([*alone, swapped.high])) + 2.0**-48
    return LogInterval(lower.low, above).cap_log()


def _column(gamma: float, epsilon: float) -> LogDeltas:
    """Return log losses of one label with k records, which one record leaves or joins."""

    def loss(k: int) -> LogInterval:
        more = max(k, 1)
        ends = ((more, more - 1), (more - 1, more))
        return largest([compute_count_divergence(*counts, gamma, epsilon, LOSS) for counts in ends])

    return cache_log_deltas(loss)
