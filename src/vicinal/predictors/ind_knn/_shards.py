"""How a release is carried through the records: on one shard, or on several whose votes are summed.

The engine knows nothing of where records are. It hands a release to :class:`Shards` and gets sums
of integer votes back, already charged; it adds the noise once. Subjects live on one shard with all
their records, no contribution depends on anybody else's (mechanisms/votes.md), and sums of integers
do not depend on order: so any split of the records gives the same sums and the same charges.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from vicinal.ledger import Account
from vicinal.mechanisms import NoisyCount, SubjectTable
from vicinal.mechanisms._votes import BlockRelease
from vicinal.neighbours import NeighbourLists
from vicinal.neighbours._integer_features import IntegerMatrix

Steps = npt.NDArray[np.int64]


class TwoRounds(Protocol):
    """Queries that are asked twice: counted first, then put to the vote of who paid for both.

    The counts of all queries come before the first vote. So they must not be split to save memory:
    the split follows from private counts, and would change who can pay.
    """

    @property
    def queries(self) -> slice:
        """Which queries of the block these are."""

    def charge_counts(self, counter: NoisyCount) -> Steps:
        """Charge the neighbours for being counted; return counts in grid steps (q,). Private."""

    def charge_and_sum(self, release: BlockRelease) -> Steps:
        """Charge who was counted for the votes; return their sums (q, c). Private."""


class Shards(Protocol):
    """All private records, wherever they are."""

    def charge_and_sum(
        self, release: BlockRelease, queries: IntegerMatrix, thresholds: Steps
    ) -> Steps:
        """Charge the neighbours of the queries; return the sums of their votes.

        Parameters
        ----------
        release : BlockRelease
            Of the whole block: what contributions and charges follow from.
        queries : int8 or float32 (q, d)
            Integer features.
        thresholds : int64 (q,)
            Radii as similarities.

        Returns
        -------
        int64 (q, c)
            In grid steps. Private: nothing may leave before ``release.publish`` has added noise.
        """

    def rounds(
        self, queries: IntegerMatrix, thresholds: Steps, *, together: bool
    ) -> Iterator[TwoRounds]:
        """Yield the queries for two rounds: all `together`, or one after the other."""


class LocalShardBase(ABC):
    """A shard in this process: records in memory, and an account that charges go to."""

    ledger: Account

    @property
    @abstractmethod
    def subject_table(self) -> SubjectTable:
        """Labels, subjects and budgets as the mechanisms see them."""

    @abstractmethod
    def search(self, queries: IntegerMatrix, thresholds: Steps) -> NeighbourLists:
        """Return the records inside each query's radius."""

    @abstractmethod
    def parts(self, queries: IntegerMatrix, thresholds: Steps) -> Iterator[NeighbourLists]:
        """Yield the same for consecutive queries, as many at a time as memory allows."""

    def charge_and_sum(
        self, release: BlockRelease, queries: IntegerMatrix, thresholds: Steps
    ) -> Steps:
        """Charge the neighbours and sum their votes, see :meth:`Shards.carry`.

        How the search cuts a block into parts follows from private counts, and decides nothing:
        the release was priced as a whole, and no contribution depends on the order of subjects.
        """
        sums = np.zeros((len(queries), release.mechanism.n_classes), dtype=np.int64)
        start = 0
        for near in self.parts(queries, thresholds):
            part = slice(start, start + len(near))
            sums[part] = self.charge(release.of(part), near)
            start += len(near)
        return sums

    def rounds(
        self, queries: IntegerMatrix, thresholds: Steps, *, together: bool
    ) -> Iterator[TwoRounds]:
        """Yield the queries for two rounds, see :meth:`Shards.rounds`."""
        if together:
            yield TwoRoundQuery(self, slice(0, len(queries)), self.search(queries, thresholds))
            return
        start = 0
        for near in self.parts(queries, thresholds):
            for j in range(len(near)):
                yield TwoRoundQuery(self, slice(start, start + 1), near.one(j))
                start += 1

    def charge(self, release: BlockRelease, near: NeighbourLists) -> Steps:
        """Charge neighbours that were found, and return the sums of their votes."""
        sums, spent = release.contribute_and_charge(near, self.subject_table)
        self.ledger.note_charged_total(spent)
        return sums


@dataclass(slots=True)
class TwoRoundQuery:
    """Neighbours of some queries, found once for two rounds; private."""

    shard: LocalShardBase
    queries: slice
    near: NeighbourLists

    def charge_counts(self, counter: NoisyCount) -> Steps:
        """Charge and count the neighbours, and keep only those who could pay."""
        counts, part, spent = counter.contribute_and_charge(self.near, self.shard.subject_table)
        self.shard.ledger.note_charged_total(spent)
        self.near = self.near.keep(part)
        return counts

    def charge_and_sum(self, release: BlockRelease) -> Steps:
        """Charge those who were counted, and sum their votes."""
        return self.shard.charge(release, self.near)


def summed(parts: Iterable[Steps]) -> Steps:
    """Return the sum of what at least one shard returned. Private."""
    first, *others = parts
    total = first.copy()
    for other in others:
        total += other
    return total
