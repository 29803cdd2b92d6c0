"""Where databases cannot be listed: draw some, compute each delta, and say how sure that is."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from vicinal.smoothed._databases import log_delta
from vicinal.smoothed._intervals import Array
from vicinal.smoothed._knn import KNNVotes
from vicinal.smoothed._mechanism import Counts, Mechanism
from vicinal.smoothed._populations import Heterogeneous, Population

CONFIDENCE = 1 - 1e-3


@dataclass(frozen=True)
class Estimate:
    """A mean over drawn databases, its standard error, and an interval that holds the expectation.

    `deltas` are upper ends, one a database. The databases are invented: nothing about them is
    private.
    """

    mean: float
    error: float
    lower: float
    upper: float
    deltas: Array


def estimate(
    mechanism: Mechanism, population: Population, n: int, epsilon: float, draws: int, seed: int,
    share: float = 0.0, confidence: float = CONFIDENCE,
) -> Estimate:  # fmt: skip
    """Return the mean delta over databases drawn from one world.

    `share` is that of the records from the second of two vertices. The interval is the empirical
    Bernstein inequality's (Maurer and Pontil 2009), which needs no assumption about the tail:
    deltas are between 0 and the chance of being sampled.
    """
    deltas = np.array(
        [
            [math.exp(value.low), math.exp(value.high)]
            for database in drawn(mechanism, population, n, draws, seed, share)
            for value in [log_delta(mechanism, mechanism.check(database), epsilon)]
        ]
    )
    most = min(mechanism.touched(n), 1.0)
    miss = math.log(4 / (1 - confidence))
    ends = []
    for row, sign in ((0, -1), (1, 1)):
        values = deltas[:, row]
        spread = float(values.var(ddof=1)) if draws > 1 else most**2
        reach = math.sqrt(2 * spread * miss / draws) + 7 * most * miss / (3 * max(draws - 1, 1))
        ends.append(float(values.mean()) + sign * reach)
    high = deltas[:, 1]
    error = float(high.std(ddof=1)) / math.sqrt(draws) if draws > 1 else math.inf
    return Estimate(float(high.mean()), error, max(ends[0], 0.0), min(ends[1], most), high)


def drawn(
    mechanism: Mechanism, population: Population, n: int, draws: int, seed: int, share: float = 0.0
) -> Iterator[Counts]:
    """Yield databases of n records: histograms, or labels by rank for ``KNNVotes``."""
    # Invented databases of a public model: no guarantee hangs on these draws.
    rng = np.random.default_rng(seed)  # noqa: TID251
    groups = _groups(population, n, share)
    for _ in range(draws):
        if isinstance(mechanism, KNNVotes):
            rows = [rng.choice(len(row), size=count, p=row) for count, row in groups]
            yield np.concatenate(rows)
        else:
            yield np.sum([rng.multinomial(count, row) for count, row in groups], axis=0)


def _groups(population: Population, n: int, share: float) -> list[tuple[int, Array]]:
    rows = [row / row.sum() for row in population.vertices]
    if isinstance(population, Heterogeneous):
        return list(zip(population.counts.tolist(), rows, strict=True))
    second = round(share * n) if len(rows) > 1 else 0
    return [(count, row) for count, row in zip((n - second, second), rows, strict=False) if count]
