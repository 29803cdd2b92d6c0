"""A shard: records with their features, labels and subjects, and the ledger of those subjects.

How a release is carried through the records: on one shard, or on several whose votes are summed.

The engine knows nothing of where records are. It hands a release to :class:`Shards` and gets sums
of integer votes back, already charged; it adds the noise once. Subjects live on one shard with all
their records, no contribution depends on anybody else's (mechanisms/votes.md), and sums of integers
do not depend on order: so any split of the records gives the same sums and the same charges.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from vicinal.arrays import Ints, Ints32, Steps
from vicinal.checks import SubjectId
from vicinal.errors import PrivacyRefused
from vicinal.ledger.memory import Account, MemoryLedger, Register
from vicinal.mechanisms.count import NoisyCount
from vicinal.mechanisms.subject_table import RecordTargets, SubjectTable, join_targets
from vicinal.mechanisms.votes import BlockRelease
from vicinal.neighbours.index import ExactIndex, Index, IndexFactory
from vicinal.neighbours.kernels import IntegerMatrix, Kernel
from vicinal.neighbours.scan import NeighbourLists, fill_holes


@dataclass(slots=True, eq=False)
class MappedIndex:
    """An index of what a public map makes of records: the same records in another metric.

    `index`: holds what was made. `made_of`: returns the integer rows of this index for integer rows
    (m, d) of the shard, each by itself.
    """

    index: Index
    made_of: Callable[[IntegerMatrix], IntegerMatrix]

    def add(self, integers: IntegerMatrix) -> None:
        """Append records given as the shard's integer features."""
        self.index.add(self.made_of(integers))


_AT_ONCE = 1 << 14
"""Records that are counted at a time, so that no second array of all is made."""


class Shards(Protocol):
    """All private records, wherever they are."""

    def charge_and_sum(
        self, release: BlockRelease, queries: IntegerMatrix, thresholds: Steps
    ) -> Steps:
        """Charge the neighbours of the queries; return the sums of their votes.

        `release`: of the whole block: what contributions and charges follow from. `queries`, int8
        or float32 (q, d): integer features. `thresholds`, int64 (q,): radii as similarities.
        Returns int64 (q, c): in grid steps. Private: nothing may leave before ``release.publish``
        has added noise.
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
    def searched(self) -> Index:
        """Return the index of the records, after a check that they stand beside their subjects."""

    def search(self, queries: IntegerMatrix, thresholds: Steps) -> NeighbourLists:
        """Return the records inside each query's radius."""
        return self.searched().search(queries, thresholds)

    def parts(self, queries: IntegerMatrix, thresholds: Steps) -> Iterator[NeighbourLists]:
        """Yield the same for consecutive queries, as many at a time as memory allows."""
        return self.searched().parts(queries, thresholds)

    def charge_and_sum(
        self, release: BlockRelease, queries: IntegerMatrix, thresholds: Steps
    ) -> Steps:
        """Charge the neighbours and sum their votes, see :meth:`Shards.charge_and_sum`.

        How the search cuts a block into parts follows from private counts, and decides nothing:
        the release was priced as a whole, and no contribution depends on the order of subjects.
        """
        # Queries in order: a subject meets its charges in the order of the queries, whatever the
        # parts are (mechanisms/votes.md).
        sums = np.zeros((len(queries), release.mechanism.n_classes), dtype=np.int64)
        start = 0
        for neighbours in self.parts(queries, thresholds):
            part = slice(start, start + len(neighbours))
            sums[part] = self.charge(release.of(part), neighbours)
            start += len(neighbours)
        return sums

    def rounds(
        self, queries: IntegerMatrix, thresholds: Steps, *, together: bool
    ) -> Iterator[TwoRounds]:
        """Yield the queries for two rounds, see :meth:`Shards.rounds`."""
        if together:
            yield TwoRounds(self, slice(0, len(queries)), self.search(queries, thresholds))
            return
        start = 0
        for neighbours in self.parts(queries, thresholds):
            for j in range(len(neighbours)):
                yield TwoRounds(self, slice(start, start + 1), neighbours.one(j))
                start += 1

    def charge(self, release: BlockRelease, neighbours: NeighbourLists) -> Steps:
        """Charge neighbours that were found, and return the sums of their votes."""
        sums, spent = release.contribute_and_charge(neighbours, self.subject_table)
        self.ledger.note_charged_total(spent)
        return sums


@dataclass(slots=True)
class TwoRounds:
    """Queries that are asked twice: counted first, then put to the vote of who paid for both.

    The counts of all queries come before the first vote. So they must not be split to save memory:
    the split follows from private counts, and would change who can pay. Private.

    `queries`: which of the block these are. `neighbours`: found once for both rounds.
    """

    shard: LocalShardBase
    queries: slice
    neighbours: NeighbourLists

    def charge_counts(self, counter: NoisyCount) -> Steps:
        """Charge the neighbours for being counted, and keep only those who could pay."""
        counts, part, spent = counter.contribute_and_charge(
            self.neighbours, self.shard.subject_table
        )
        self.shard.ledger.note_charged_total(spent)
        self.neighbours = self.neighbours.keep(part)
        return counts

    def charge_and_sum(self, release: BlockRelease) -> Steps:
        """Charge those who were counted, and sum their votes."""
        return self.shard.charge(release, self.neighbours)


def sum_steps(parts: Iterable[Steps]) -> Steps:
    """Return the sum of what at least one shard returned. Private."""
    first, *others = parts
    total = first.copy()
    for other in others:
        total += other
    return total


class Shard(LocalShardBase):
    """Holds records, charges them and sums their votes; knows nothing of noise or answers.

    Subjects live on one shard with all their records. Sums of integer votes over shards equal
    those of a single shard that holds everything.
    """

    def __init__(
        self,
        kernel: Kernel,
        n_features: int,
        register: Register | None = None,
        index: IndexFactory = ExactIndex,
    ) -> None:
        self.index: Index = index(kernel, n_features)
        self.ledger: MemoryLedger = MemoryLedger()
        self._register: Register = self.ledger if register is None else register
        self._targets: RecordTargets = np.zeros(0, dtype=np.int32)
        self._slots = np.zeros(0, dtype=np.int32)
        self._records = np.zeros(0, dtype=np.int32)
        self._mapped: list[MappedIndex] = []
        self._consistent = True

    def __len__(self) -> int:
        """Return the number of records. Private."""
        return len(self._slots)

    @property
    def subject_table(self) -> SubjectTable:
        """Labels, subjects and budgets as the mechanisms see them."""
        return self.subject_table_of(self.ledger)

    def subject_table_of(self, account: Account) -> SubjectTable:
        """Return the same people with the budgets of another account."""
        return SubjectTable(self._targets, self._slots, self._records, account.remaining)

    def searched(self) -> Index:
        """Return the index of all records."""
        self.check_consistent()
        return self.index

    def add(
        self, integers: IntegerMatrix, targets: RecordTargets, subjects: Sequence[SubjectId]
    ) -> Ints32:
        """Add records; a subject that is known, or was, continues with the budget it has left.

        `targets` are what the records carry: class indices, int32 (n,), or vectors. Returns the
        slot of each record's subject, int32 (n,). Private.
        """
        # Whatever can be refused is refused here, before a subject is enrolled.
        carried = join_targets(self._targets, targets)
        with self._changing():
            slots = self._register.enroll(subjects)
            self.index.add(integers)
            for mapped in self._mapped:
                mapped.add(integers)
            self._targets, self._slots = carried, np.concatenate([self._slots, slots])
            counts = np.zeros(self._register.size, dtype=np.int32)
            counts[: len(self._records)] = self._records
            np.add.at(counts, slots, 1)
            self._records = counts
        return slots

    def erase(self, subjects: Sequence[SubjectId]) -> int:
        """Erase all records of `subjects` physically; return how many records went."""
        rows = self.rows_of(subjects)
        with self.erasing(rows):
            self._register.remove(subjects)
        return len(rows)

    @contextmanager
    def erasing(self, rows: Ints) -> Iterator[None]:
        """Erase `rows` physically; the body takes their subjects off the register.

        `rows`, int64 (m,): positions of all records of some subjects, ascending.
        """
        movers = fill_holes(rows, len(self))
        new_size = len(self) - len(rows)
        with self._changing():
            for index in (self.index, *(mapped.index for mapped in self._mapped)):
                index.remove(rows, movers)
            # The same moves in the columns as in the indexes: a row and its subject stay together.
            order = _order_after(rows, movers, new_size)
            self._records[self._slots[rows]] = 0
            self._targets, self._slots = self._targets[order], self._slots[order]
            yield

    def follow(self, mapped: MappedIndex, parts: Iterable[IntegerMatrix]) -> None:
        """Put what a public map makes of all records, given in `parts`, into another index too.

        From now on it changes with the records.
        """
        with self._changing():
            for part in parts:
                mapped.add(part)
            self._mapped.append(mapped)

    def unfollow(self, mapped: MappedIndex) -> None:
        """Let go of an index that nobody searches any more."""
        self._mapped.remove(mapped)

    def rows_of(self, subjects: Iterable[SubjectId]) -> Ints:
        """Return the positions of all records of `subjects`, ascending. Private."""
        return self.rows_at(self._register.slots(subjects))

    def rows_at(self, slots: Ints32) -> Ints:
        """Return the positions of all records of the subjects at `slots`, ascending. Private."""
        return np.flatnonzero(np.isin(self._slots, slots))

    def resume(self, parts: Iterable[IntegerMatrix], targets: RecordTargets, slots: Ints32) -> None:
        """Take in records whose subjects the register already knows, into an empty shard.

        `parts`, iterable of (m, d): integer features in consecutive parts, together n rows.
        `targets`, int32 (n,) or RecordVectors: what the records carry: class indices, or vectors.
        `slots`, int32 (n,): subject of every record.
        """
        with self._changing():
            for part in parts:
                self.index.add(part)
            self._targets, self._slots = targets, slots
            self._recount()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Mark the shard unusable until the body is through.

        A change that is broken off half-way, by an interrupt say, could leave rows beside the wrong
        labels or subjects, and charge the wrong person.
        """
        self.check_consistent()
        self._consistent = False
        # No `finally`: an error in the body must leave the shard unusable.
        yield
        self._consistent = True

    def check_consistent(self) -> None:
        """Raise PrivacyRefused if a change of the records was broken off."""
        if not self._consistent:
            raise PrivacyRefused(
                "A change of the records was interrupted, so records may no longer belong to "
                "their subjects. Fit again."
            )

    def _recount(self) -> None:
        self._records = np.zeros(self._register.size, dtype=np.int32)
        for start in range(0, len(self), _AT_ONCE):
            np.add.at(self._records, self._slots[start : start + _AT_ONCE], 1)


@dataclass(frozen=True, slots=True)
class SharedShard(LocalShardBase):
    """A shard as one of several accounts sees it: the same records, budgets of its own.

    `shard`: the records, which all accounts share. `ledger`: the budgets that answers through this
    object are charged to. `mapped`: what is searched, in a metric that is this account's own; it
    follows the shard.
    """

    shard: Shard
    ledger: Account
    mapped: MappedIndex | None = None

    @property
    def subject_table(self) -> SubjectTable:
        """Labels and subjects of the shard, budgets of the account."""
        return self.shard.subject_table_of(self.ledger)

    def searched(self) -> Index:
        """Return the index in this account's metric, else that of the shard."""
        index = self.shard.searched()
        return index if self.mapped is None else self.mapped.index


def _order_after(rows: Ints, movers: Ints, new_size: int) -> Ints:
    """Return which row stands where once `movers` have filled the holes left by `rows`, (kept,)."""
    order = np.arange(new_size)
    order[rows[rows < new_size]] = movers
    return order
