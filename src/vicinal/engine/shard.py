"""Shards: records with their features, targets and subjects, and the subjects' budgets.

The engine passes a release to :class:`Shards`, which charges the subjects and returns sums of
integer votes, to which the engine adds noise once. All records of a subject are on one shard, a
subject's contribution does not depend on other subjects' records (mechanisms/votes.md), and integer
sums do not depend on the order. So any split of the records gives the same sums and charges.

Everywhere in this module:

- `release`: charging rule, noise scales and budget rule of a block of q queries.
- `queries`, int8 or float32 (q, d): integer features of the queries.
- `thresholds`, int64 (q,): radii of the queries, as smallest similarities of a record that votes.
- Sums of votes, int64 (q, c) in grid steps, are private: only ``release.publish``, which adds the
  noise, may release them.
- `neighbours`: the search result for q queries, a list of neighbours for each.
- `integers`, (n, d): integer features of records. `targets`: their class indices, int32 (n,), or
  RecordVectors. `subjects`, `slots`: ids of their subjects, and these subjects' indices in the
  ledger, int32 (n,).
- `blocks`, iterable of (m, d): integer features of all records of a shard, in consecutive blocks.
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
from vicinal.neighbours.index import Index, IndexFactory
from vicinal.neighbours.kernels import IntegerMatrix, Kernel
from vicinal.neighbours.scan import NeighbourLists, find_movers


@dataclass(slots=True, eq=False)
class MappedIndex:
    """A further index of a shard's records, in the metric of a public feature map.

    `index`: holds the mapped rows. `map_rows`: returns the mapped integer rows (m, e) for integer
    rows (m, d) of the shard; every row is mapped independently.
    """

    index: Index
    map_rows: Callable[[IntegerMatrix], IntegerMatrix]

    def add(self, integers: IntegerMatrix) -> None:
        """Append records, which are given by the shard's integer features."""
        self.index.add(self.map_rows(integers))


_COUNT_CHUNK = 1 << 14
"""Records counted at a time, to avoid temporary arrays of the size of the data."""


class Shards(Protocol):
    """All private records, in this process or on several machines."""

    def charge_and_sum(
        self, release: BlockRelease, queries: IntegerMatrix, thresholds: Steps
    ) -> Steps:
        """Charge the neighbours of the queries; return the sums of their votes, (q, c)."""

    def search_for_two_rounds(
        self, queries: IntegerMatrix, thresholds: Steps, *, together: bool
    ) -> Iterator[TwoRounds]:
        """Search the queries' neighbours, and yield them for a count and then a vote (ZZGW23).

        `together`: yield all queries as one object, instead of one object for each query.
        """


class LocalShardBase(ABC):
    """A shard in this process: records in memory, and the account that is charged."""

    ledger: Account

    @property
    @abstractmethod
    def subject_table(self) -> SubjectTable:
        """Targets, subjects and budgets of the records, as the mechanisms need them."""

    @abstractmethod
    def get_index(self) -> Index:
        """Return the index to search, after a check that its rows match targets and subjects."""

    def search_blocks(self, queries: IntegerMatrix, thresholds: Steps) -> Iterator[NeighbourLists]:
        """Yield the records within the queries' radii, in blocks of queries that fit in memory."""
        return self.get_index().search_in_blocks(queries, thresholds)

    def charge_and_sum(
        self, release: BlockRelease, queries: IntegerMatrix, thresholds: Steps
    ) -> Steps:
        """Charge the neighbours of the queries; return the sums of their votes, (q, c)."""
        # The sizes of the chunks depend on private counts. No result depends on the chunks: the
        # release covers the block, and every subject is charged by itself, in the order of the
        # queries (mechanisms/votes.md).
        sums = np.zeros((len(queries), release.mechanism.n_coordinates), dtype=np.int64)
        start = 0
        for neighbours in self.search_blocks(queries, thresholds):
            chunk = slice(start, start + len(neighbours))
            chunk_release = release.select_queries(chunk)
            sums[chunk] = self.charge_and_sum_neighbours(chunk_release, neighbours)
            start += len(neighbours)
        return sums

    def search_for_two_rounds(
        self, queries: IntegerMatrix, thresholds: Steps, *, together: bool
    ) -> Iterator[TwoRounds]:
        """Search the queries' neighbours; yield all at once if `together`, else query by query."""
        if together:
            neighbours = self.get_index().search(queries, thresholds)
            yield TwoRounds(self, slice(0, len(queries)), neighbours)
            return
        start = 0
        for neighbours in self.search_blocks(queries, thresholds):
            for query in range(len(neighbours)):
                single_list = neighbours.select_queries(query, query + 1)
                yield TwoRounds(self, slice(start, start + 1), single_list)
                start += 1

    def charge_and_sum_neighbours(self, release: BlockRelease, neighbours: NeighbourLists) -> Steps:
        """Charge the subjects of `neighbours`; return the sums of votes on each query, (q, c)."""
        sums, spent = release.contribute_and_charge(neighbours, self.subject_table)
        self.ledger.note_charged_total(spent)
        return sums


@dataclass(slots=True)
class TwoRounds:
    """Queries answered in two rounds: a count of neighbours, then a vote of those that paid for it.

    All queries are counted before the first vote. They must not be divided to save memory, since
    the division would depend on private counts and change which subjects can pay. Private.

    `shard`: holds the records. `queries`: positions of the queries in their block.
    """

    shard: LocalShardBase
    queries: slice
    neighbours: NeighbourLists

    def charge_counts(self, counter: NoisyCount) -> Steps:
        """Charge the neighbours for the count; return the private counts, (q,), in grid steps.

        `counter`: the private count mechanism. Neighbours that could not pay are removed.
        """
        counts, is_counted, spent = counter.contribute_and_charge(
            self.neighbours, self.shard.subject_table
        )
        self.shard.ledger.note_charged_total(spent)
        self.neighbours = self.neighbours.keep(is_counted)
        return counts

    def charge_and_sum(self, release: BlockRelease) -> Steps:
        """Charge the counted neighbours for the vote; return the sums of their votes, (q, c)."""
        return self.shard.charge_and_sum_neighbours(release, self.neighbours)


class Shard(LocalShardBase):
    """Records in memory, with the methods that charge their subjects and sum their votes.

    `kernel`: similarity of the search. `n_features`: columns of the records. `index`:
    creates the search index. `register`: assigns slots to subjects; by default, a new ledger in
    memory.
    """

    def __init__(
        self, kernel: Kernel, n_features: int, index: IndexFactory, register: Register | None = None
    ) -> None:
        self.index: Index = index(kernel, n_features)
        self.ledger: MemoryLedger = MemoryLedger()
        self._register: Register = self.ledger if register is None else register
        self._targets: RecordTargets = np.zeros(0, dtype=np.int32)
        self._slots = np.zeros(0, dtype=np.int32)
        self._n_records = np.zeros(0, dtype=np.int32)
        self._mapped: list[MappedIndex] = []
        self._consistent = True

    def __len__(self) -> int:
        """Return the private number of records."""
        return len(self._slots)

    @property
    def subject_table(self) -> SubjectTable:
        """Targets and subjects of the records, with the budgets of this shard's own account."""
        return self.subject_table_of(self.ledger)

    def subject_table_of(self, account: Account) -> SubjectTable:
        """Return the records' targets and subjects with the budgets of `account`."""
        return SubjectTable(self._targets, self._slots, self._n_records, account.remaining)

    def get_index(self) -> Index:
        """Return the index of all records.

        Raises PrivacyRefused if a change of the records was interrupted.
        """
        self._check_consistent()
        return self.index

    def add(
        self, integers: IntegerMatrix, targets: RecordTargets, subjects: Sequence[SubjectId]
    ) -> Ints32:
        """Add records and return the private slot of each record's subject, int32 (n,).

        All records of a subject must be added to the same shard. A subject that is or was enrolled
        continues with its remaining budget.
        """
        # Raises errors of invalid targets before a subject is enrolled.
        all_targets = join_targets(self._targets, targets)
        with self._mark_changing():
            slots = self._register.enroll(subjects)
            self.index.add(integers)
            for mapped in self._mapped:
                mapped.add(integers)
            self._targets = all_targets
            self._slots = np.concatenate([self._slots, slots])
            counts = np.zeros(self._register.size, dtype=np.int32)
            counts[: len(self._n_records)] = self._n_records
            np.add.at(counts, slots, 1)
            self._n_records = counts
        return slots

    def erase(self, subjects: Sequence[SubjectId]) -> int:
        """Erase all records and the enrolment of `subjects` (ids) from memory.

        Returns the number of erased records, which is private.
        """
        rows = self.find_rows_at(self._register.list_slots(subjects))
        with self.erase_rows(rows):
            self._register.erase(subjects)
        return len(rows)

    @contextmanager
    def erase_rows(self, rows: Ints) -> Iterator[None]:
        """Erase `rows` from all arrays and indexes; the with-block removes subjects' enrolment.

        `rows`, int64 (m,): ascending indices of all records of the subjects to erase.
        """
        movers = find_movers(rows, len(self))
        new_size = len(self) - len(rows)
        with self._mark_changing():
            for index in (self.index, *(mapped.index for mapped in self._mapped)):
                index.remove(rows, movers)
            # Targets and slots are moved as the index rows are, so that they still match.
            order = np.arange(new_size)  # previous index of every remaining row
            order[rows[rows < new_size]] = movers
            self._n_records[self._slots[rows]] = 0
            self._targets = self._targets[order]
            self._slots = self._slots[order]
            yield

    def attach_index(self, mapped: MappedIndex, blocks: Iterable[IntegerMatrix]) -> None:
        """Add all records to the new index `mapped`, and update it with every later change."""
        with self._mark_changing():
            for block in blocks:
                mapped.add(block)
            self._mapped.append(mapped)

    def detach_index(self, mapped: MappedIndex) -> None:
        """Stop updating `mapped`, an index of :meth:`attach_index` that is no longer searched."""
        self._mapped.remove(mapped)

    def find_rows_at(self, slots: Ints32) -> Ints:
        """Return the ascending, private indices of all records of the subjects at `slots`."""
        return np.flatnonzero(np.isin(self._slots, slots))

    def load_enrolled(
        self, blocks: Iterable[IntegerMatrix], targets: RecordTargets, slots: Ints32
    ) -> None:
        """Load records of subjects that are already enrolled into an empty shard."""
        with self._mark_changing():
            for block in blocks:
                self.index.add(block)
            self._targets = targets
            self._slots = slots
            self._n_records = np.zeros(self._register.size, dtype=np.int32)
            for start in range(0, len(self), _COUNT_CHUNK):
                np.add.at(self._n_records, slots[start : start + _COUNT_CHUNK], 1)

    @contextmanager
    def _mark_changing(self) -> Iterator[None]:
        """Mark the shard as inconsistent until the with-block has finished.

        An interrupted change could leave rows next to wrong subjects, which would then be charged.
        """
        self._check_consistent()
        self._consistent = False
        # No `finally`: after an error in the with-block the shard must stay unusable.
        yield
        self._consistent = True

    def _check_consistent(self) -> None:
        """Raise PrivacyRefused if a change of the records was interrupted."""
        if not self._consistent:
            raise PrivacyRefused(
                "A change of the records was interrupted, so records may no longer belong to "
                "their subjects. Fit again."
            )


@dataclass(frozen=True, slots=True)
class SharedShard(LocalShardBase):
    """The records of a shard with the budgets of one of several accounts.

    `shard`: the records, shared by all accounts. `ledger`: the account that is charged. `mapped`:
    index in a metric of this account, updated with the shard; None to search the shard's own.
    """

    shard: Shard
    ledger: Account
    mapped: MappedIndex | None = None

    @property
    def subject_table(self) -> SubjectTable:
        """Targets and subjects of the shard, with the budgets of this account."""
        return self.shard.subject_table_of(self.ledger)

    def get_index(self) -> Index:
        """Return the index in this account's metric if there is one, else that of the shard."""
        index = self.shard.get_index()
        return index if self.mapped is None else self.mapped.index
