"""From chosen records to votes: one vote each, or a bounded vector of votes.

Proof note: noisy_max.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from vicinal import _checks
from vicinal._arrays import Bools, Ints32, Steps
from vicinal._compiled import compiled
from vicinal.neighbours import Chosen


class VoteEncoding(ABC):
    """What every record votes for; fixed before the first query."""

    @abstractmethod
    def count(self, chosen: Chosen, steps: int) -> Steps:
        """Return the sums over the chosen records, int64 (q, c), in steps; private.

        `chosen`, int32 (q, k): rows of records, at most one of a subject in a query, or ``NOBODY``.
        `steps`: steps in a vote.
        """


class OneHotVotes(VoteEncoding):
    """One vote for one class.

    `labels`, int32 (n,): class index of every record. `n_classes`: the number of classes.
    """

    def __init__(self, labels: Ints32, n_classes: int) -> None:
        self._labels = labels
        self._n_classes = n_classes

    def count(self, chosen: Chosen, steps: int) -> Steps:
        sums = np.zeros((len(chosen), self._n_classes), dtype=np.int64)
        _count_labels(chosen, self._labels, steps, sums)
        return sums


class ClippedVotes(VoteEncoding):
    """Votes for any number of attributes, together at most `tau`: the tau-approximation.

    A record with m attributes gives each floor(steps min(tau / m, 1)) steps: its vector v has
    |v|^2 <= m min(tau / m, 1)^2 <= tau in squared votes, exactly, for any tau.

    `attributes`, bool (n, c): which attributes every record has. `tau`: the bound on the L1 norm of
    a record's votes.
    """

    def __init__(self, attributes: Bools, tau: float) -> None:
        top, over = _checks.real("tau", tau, above=0).as_integer_ratio()
        self._attributes = np.ascontiguousarray(attributes)
        self._sizes = attributes.sum(axis=1)
        self._tau = (top, over)

    def count(self, chosen: Chosen, steps: int) -> Steps:
        sums = np.zeros((len(chosen), self._attributes.shape[1]), dtype=np.int64)
        weights = self.weights(steps)[self._sizes]
        _count_attributes(chosen, self._attributes, weights, sums)
        return sums

    def weights(self, steps: int) -> Steps:
        """Return the steps of one vote of a record, by its number of attributes 0..c."""
        top, over = self._tau
        sizes = range(self._attributes.shape[1] + 1)
        clipped = [min(steps * top // (over * size), steps) if size else 0 for size in sizes]
        return np.array(clipped, dtype=np.int64)


@compiled
def _count_labels(chosen, labels, steps, sums):  # type: ignore[no-untyped-def]
    for j in range(chosen.shape[0]):
        for i in range(chosen.shape[1]):
            if chosen[j, i] >= 0:
                sums[j, labels[chosen[j, i]]] += steps


@compiled
def _count_attributes(chosen, attributes, weights, sums):  # type: ignore[no-untyped-def]
    for j in range(chosen.shape[0]):
        for i in range(chosen.shape[1]):
            row = chosen[j, i]
            if row >= 0:
                for a in range(sums.shape[1]):
                    if attributes[row, a]:
                        sums[j, a] += weights[row]
