"""The smoothed delta of exact radius votes, between two sums.

Below: one label alone, in one world. Above: the losses of all labels and all pairs of labels added
up, each in the world that has least of them. More records of a label are more independent coins
added to its count, so every loss falls with the counts, and fewer is worse.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from vicinal.smoothed._edges import LOSS
from vicinal.smoothed._expectation import Column, World, mean_delta
from vicinal.smoothed._intervals import Array, Log, largest, log_sum
from vicinal.smoothed._populations import Heterogeneous, Population
from vicinal.smoothed._radius import RadiusVotes, count_excess
from vicinal.smoothed._samplers import Poisson
from vicinal.smoothed._sandwich import MOST_WORK, pair_sum, pair_work

_MOST_INSIDE = 20_000
_SPLITS = 4


def radius_listable(mechanism: RadiusVotes, population: Population, n: int) -> bool:
    """Return whether the sums take little time."""
    return n * float(population.vertices[:, : mechanism.classes].max()) <= _MOST_INSIDE


def radius_mean(mechanism: RadiusVotes, population: Population, n: int, epsilon: float) -> Log:
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
    return Log(lower.low, log_sum(np.array([*alone, pairs])) + 2.0**-48).capped()


def _split_pairs(gamma: float, least: Array, n: int, epsilon: float) -> float:
    """Return an upper bound of the mean losses of all changes from one label to another.

    Such a change is one record leaving a label and one joining another: for E = E1 E2 it loses at
    most d + E1 d', with d and d' the losses of the two at E1 and E2, in either direction.
    """
    parts = [epsilon * (i + 0.5) / _SPLITS for i in range(_SPLITS)]
    means = [
        [mean_delta(_column(gamma, part), World((n,), (float(f),))).high for part in parts]
        for f in least
    ]
    found = [
        min(
            float(np.logaddexp(first, part + second))
            for first, part, second in zip(means[c], parts, means[d][::-1], strict=True)
        )
        for c in range(len(least))
        for d in range(len(least))
        if c != d
    ]
    # Both directions of each change: their larger one is at most their sum.
    return math.log(2) + log_sum(np.array(found)) + 2.0**-40


def _worlds(population: Population, n: int, label: int) -> list[World]:
    chances = population.vertices[:, label].tolist()
    if isinstance(population, Heterogeneous):
        return [World(tuple(population.counts.tolist()), tuple(chances))]
    return [World((n,), (chance,)) for chance in set(chances)]


def _column(gamma: float, epsilon: float) -> Column:
    """Return log losses of one label with k records, which one record leaves or joins."""

    @cache
    def loss(k: int) -> Log:
        more = max(k, 1)
        ends = ((more, more - 1), (more - 1, more))
        return largest([count_excess(*counts, gamma, epsilon, LOSS) for counts in ends])

    def column(low: int, high: int) -> Array:
        found = [loss(k) for k in range(low, high + 1)]
        return np.array([[value.low for value in found], [value.high for value in found]])

    return column
