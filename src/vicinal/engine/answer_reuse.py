"""Earlier answers as voters: they are public, so they vote for nothing (ZZGW23, section 3.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vicinal.arrays import Places, Steps
from vicinal.neighbours.index import ExactIndex
from vicinal.neighbours.kernels import IntegerMatrix, Kernel


@dataclass(frozen=True, slots=True)
class PublicVotes:
    """Public votes for a block of queries, which join the private ones behind a private count.

    `votes`, int64 (q, c): sums of kernel weights, in grid steps. `counts`, int64 (q,): how many
    earlier answers took part.
    """

    votes: Steps
    counts: Places

    def of(self, part: slice) -> PublicVotes:
        """Return the support of consecutive queries."""
        return PublicVotes(self.votes[part], self.counts[part])


class AnsweredNeighbours:
    """Answered queries vote like records, with their kernel weight and for free (ZZGW23, 3.1).

    Of the published algorithm: votes join where counts are private.

    `kernel`: the kernel of the private votes. `weights`, int64 (LEVELS,): its table of values in
    grid steps. `n_features`, `n_classes`: sizes.
    """

    def __init__(self, kernel: Kernel, weights: Steps, n_features: int, n_classes: int) -> None:
        self._kernel = kernel
        self._weights = weights
        self._n_classes = n_classes
        self._index = ExactIndex(kernel, n_features)
        self._labels = np.zeros(0, dtype=np.int64)

    def support(self, queries: IntegerMatrix, thresholds: Places) -> PublicVotes:
        """Return the votes of earlier queries inside the radii."""
        neighbours = self._index.search(queries, thresholds)
        counts = np.diff(neighbours.starts)
        votes = np.zeros((len(queries), self._n_classes), dtype=np.int64)
        place = np.repeat(np.arange(len(queries)), counts), self._labels[neighbours.rows]
        np.add.at(votes, place, self._weights[self._kernel.levels(neighbours.similarities)])
        return PublicVotes(votes, counts)

    def learn(self, queries: IntegerMatrix, labels: Places) -> None:
        """Add queries with their answers as public records."""
        self._index.add(queries)
        self._labels = np.concatenate([self._labels, labels])
