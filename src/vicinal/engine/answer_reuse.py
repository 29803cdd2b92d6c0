"""Reuse of earlier answers as public, uncharged voters (ZZGW23, section 3.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vicinal.arrays import Ints, Steps
from vicinal.neighbours.index import ExactIndex
from vicinal.neighbours.kernels import IntegerMatrix, Kernel


@dataclass(frozen=True, slots=True)
class PublicVotes:
    """Public votes for a block of q queries, added to the private votes.

    `votes`, int64 (q, c): sums of kernel weights, in grid steps. `counts`, int64 (q,): number of
    earlier answers that voted on each query.
    """

    votes: Steps
    counts: Ints


class AnsweredNeighbours:
    """Answered queries, which vote like records with their kernel weight but are not charged.

    Part of the published algorithm (ZZGW23, 3.1), so only used where counts are private.

    `kernel`: the kernel of the private votes. `weights`, int64 (LEVELS,): kernel value of each
    similarity level, in grid steps. `n_features`, `n_classes`: numbers of columns and of classes.
    """

    def __init__(self, kernel: Kernel, weights: Steps, n_features: int, n_classes: int) -> None:
        self._kernel = kernel
        self._weights = weights
        self._n_classes = n_classes
        self._index = ExactIndex(kernel, n_features)
        self._labels = np.zeros(0, dtype=np.int64)

    def sum_votes(self, queries: IntegerMatrix, thresholds: Steps) -> PublicVotes:
        """Return the votes of earlier answers within each query's radius.

        `queries`, (q, d): integer features. `thresholds`, int64 (q,): radii, as the smallest
        similarity of an answered query that votes.
        """
        neighbours = self._index.search(queries, thresholds)
        counts = np.diff(neighbours.starts)
        votes = np.zeros((len(queries), self._n_classes), dtype=np.int64)
        query_indices = np.repeat(np.arange(len(queries)), counts)
        weights = self._weights[self._kernel.levels(neighbours.similarities)]
        np.add.at(votes, (query_indices, self._labels[neighbours.rows]), weights)
        return PublicVotes(votes, counts)

    def add_answers(self, queries: IntegerMatrix, labels: Ints) -> None:
        """Add `queries` (q, d) as public records; `labels`, int64 (q,): released class indices."""
        self._index.add(queries)
        self._labels = np.concatenate([self._labels, labels])
