"""Our own radius vote with the noise off: exact counts of sampled records inside a radius.

The smoothed delta lies between two sums. Below: one label alone, in one world. Above: the losses of
all labels and all pairs of labels added up, each in the world that has least of them. More records
of a label are more independent coins added to its count, so every loss falls with the counts, and
fewer is worse.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from vicinal import _checks
from vicinal._arrays import Counts, Floats
from vicinal.smoothed._edges import LOSS, finite_size, gain_weight
from vicinal.smoothed._expectation import Column, World, listed_column, mean_delta
from vicinal.smoothed._intervals import LogInterval, largest, log_sum, weighted_excess
from vicinal.smoothed._mechanism import ComparedMechanism, Comparison
from vicinal.smoothed._populations import Heterogeneous, Population
from vicinal.smoothed._saddle import FLOOR, SLOPE, binomial
from vicinal.smoothed._samplers import Poisson
from vicinal.smoothed._two_types import MOST_WORK, pair_sum, pair_work


@dataclass(frozen=True)
class RadiusVotes(ComparedMechanism):
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
        gamma = _checks.real("gamma", self.gamma, above=0, most=1)
        object.__setattr__(self, "gamma", gamma)
        classes = _checks.integer("classes", self.classes, least=2)
        object.__setattr__(self, "types", classes + 1)

    def touched(self, n: int) -> float:  # noqa: ARG002 - the same for every n
        """Return gamma, for every n."""
        return self.gamma

    attains_touched = True
    """A lone record inside the radius shows whenever it is drawn."""

    def comparisons(self, database: Counts, epsilon: float) -> Iterator[Comparison]:
        """Yield the changes of a record's class, or of its being inside the radius."""
        for i, j, own, other in self._changes(database):
            yield (
                f"{self._name(i)} -> {self._name(j)}",
                partial(self._part, i, j, own, other, epsilon),
                partial(self._part, j, i, other + 1, own - 1, epsilon),
            )

    def _changes(self, database: Counts) -> Iterator[tuple[int, int, int, int]]:
        m = self.classes + 1
        for i in range(m):
            for j in range(m):
                if i != j and database[i]:
                    yield i, j, int(database[i]), int(database[j])

    def _name(self, kind: int) -> str:
        return "out" if kind == self.classes else f"label {kind}"

    def _part(
        self, i: int, j: int, own: int, other: int, epsilon: float, measure: int
    ) -> LogInterval:
        """Return the divergence of X with (own, other) from X' with (own - 1, other + 1)."""
        if j == self.classes:
            return count_excess(own, own - 1, self.gamma, epsilon, measure)
        if i == self.classes:
            return count_excess(other, other + 1, self.gamma, epsilon, measure)
        return Poisson(self.gamma).pair(own - 1, other, own + other, epsilon, measure)


def count_excess(own: int, other: int, gamma: float, epsilon: float, measure: int) -> LogInterval:
    """Return the divergence of Bin(own, gamma) from Bin(other, gamma); they differ by one."""
    log_p, more = binomial(own, gamma), max(own, other)
    drawn = np.arange(own + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Bin(more) / Bin(more - 1) is more (1 - gamma) / (more - o).
        step: Floats = math.log(more) + np.log1p(-gamma) - np.log(more - drawn)
    log_ratio = step if own == more else -step
    if gamma == 1:
        log_ratio = np.full(own + 1, math.inf)
    likely = log_p > -math.inf
    log_p, log_ratio = log_p[likely], log_ratio[likely]
    slack = FLOOR + SLOPE * (np.abs(log_p) + finite_size(log_ratio))
    weight = gain_weight(log_ratio, measure)
    return weighted_excess(log_p, log_ratio, epsilon, slack, weight).capped()


_MOST_INSIDE = 20_000
_SPLITS = 4


def radius_listable(mechanism: RadiusVotes, population: Population, n: int) -> bool:
    """Return whether the sums take little time."""
    return n * float(population.vertices[:, : mechanism.classes].max()) <= _MOST_INSIDE


def radius_mean(
    mechanism: RadiusVotes, population: Population, n: int, epsilon: float
) -> LogInterval:
    """Return an interval of the largest expected delta over the worlds of a population."""
    column = _column(mechanism.gamma, epsilon)
    labels = range(mechanism.classes)
    lower = largest(
        mean_delta(column, world) for c in labels for world in _worlds(population, n, c)
    )
    least = population.least[: mechanism.classes]
    alone = [mean_delta(column, World((n,), (float(f),))).high for f in least]
    sampler = Poisson(mechanism.gamma)
    if pair_work(sampler, least, n) <= MOST_WORK:
        pairs = pair_sum(sampler, least, n, epsilon)
    else:
        pairs = _split_pairs(mechanism.gamma, least, n, epsilon)
    return LogInterval(lower.low, log_sum(np.array([*alone, pairs])) + 2.0**-48).capped()


def _split_pairs(gamma: float, least: Floats, n: int, epsilon: float) -> float:
    """Return an upper bound of the mean losses of all changes from one label to another.

    Such a change is one record leaving a label and one joining another: for E = E1 E2 it loses at
    most d + E1 d', with d and d' the losses of the two at E1 and E2, in either direction.
    """
    parts = [epsilon * (i + 0.5) / _SPLITS for i in range(_SPLITS)]
    means = [
        [mean_delta(_column(gamma, part), World((n,), (float(f),))).high for part in parts]
        for f in least
    ]
    logarithms = [
        min(
            float(np.logaddexp(first, part + second))
            for first, part, second in zip(means[c], parts, means[d][::-1], strict=True)
        )
        for c in range(len(least))
        for d in range(len(least))
        if c != d
    ]
    # Both directions of each change: their larger one is at most their sum.
    return math.log(2) + log_sum(np.array(logarithms)) + 2.0**-40


def _worlds(population: Population, n: int, label: int) -> list[World]:
    chances = population.vertices[:, label].tolist()
    if isinstance(population, Heterogeneous):
        return [World(tuple(population.counts.tolist()), tuple(chances))]
    return [World((n,), (chance,)) for chance in set(chances)]


def _column(gamma: float, epsilon: float) -> Column:
    """Return log losses of one label with k records, which one record leaves or joins."""

    def loss(k: int) -> LogInterval:
        more = max(k, 1)
        ends = ((more, more - 1), (more - 1, more))
        return largest([count_excess(*counts, gamma, epsilon, LOSS) for counts in ends])

    return listed_column(loss)
