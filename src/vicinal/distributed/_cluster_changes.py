"""Changes of a cluster's data: decided by the coordinator, made by every shard, in one order.

A change is decided by one transaction of the coordinator, which counts its clock on (so that no
votes that shards keep can meet later ones) and notes the change as pending. What it consists of
lies in a file until every shard has made it: records and ids, as private as those of the shards.
Then the file is overwritten and removed. Whatever breaks off half-way is finished before anything
else is done, also by the next process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from vicinal._arrays import Ints8, Ints32
from vicinal._checks import SubjectId
from vicinal.distributed._cluster_change import ADD, ClusterChange, wipe
from vicinal.distributed._fan_out import CheckedTransport, MissingShardPolicy, TaskTransport, gather
from vicinal.distributed._membership import ShardRecords
from vicinal.distributed._messages import NOTHING_STAGED, AddStaged, KnownSubjects, Ping, Task
from vicinal.distributed._splitting import place_by_hash
from vicinal.distributed._staged_additions import StagedAddition, StagedFile, stage
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.ledger._ledger import Ledger
from vicinal.ledger._protocols import Turn
from vicinal.store._record_files import StagingEndedError
from vicinal.store._records import NEXT_NUMBER, Addition, StoredRecords, write_naming

PENDING = "pending"
"""Where the coordinator's ledger keeps the clock of a change that shards have not all made."""

_FILE = "change"
_AT_ONCE = 1 << 12
"""Subjects that shards are asked for at a time, between two blocks."""

_NOWHERE = np.zeros(0, dtype=np.int32)
_WORK = 3600.0
"""Seconds that a shard may work on a change, a check or a backup, once it can be reached."""


class ClusterChanges:
    """Makes changes on all shards; none is made without one of them.

    Folder, ledger and records are the coordinator's; a change waits `deadline` seconds for shards.
    """

    def __init__(
        self,
        folder: Path,
        ledger: Ledger,
        transports: Sequence[CheckedTransport],
        records: ShardRecords,
        deadline: float,
    ) -> None:
        self._path = folder / _FILE
        self._ledger = ledger
        self._transports = dict(enumerate(transports))
        self._records = records
        self._policy = MissingShardPolicy(deadline)
        clock, _, self._digest = (ledger.database.get(PENDING) or "0").partition(" ")
        self._pending = int(clock)
        if not self._pending:
            wipe(self._path)  # of a change that was never decided
        self._staged = StagedFile(folder)

    @property
    def n_shards(self) -> int:
        """How many shards there are."""
        return len(self._transports)

    @property
    def pending(self) -> bool:
        """Whether a change was decided that some shard may not have made."""
        return bool(self._pending)

    def on_all(self, task: Task | Sequence[Task]) -> dict[int, Any]:
        """Have all shards do a task; return what came of it, by shard.

        Raises ShardMissing if one is missing.
        """
        return self._on(self._transports, task)

    def on_copies(self, place: int, task: Task | Sequence[Task]) -> dict[int, Any]:
        """Have one copy of each shard do a task that changes nothing, where there is one in place.

        Raises ShardMissing if one is missing.
        """
        ways = {n: t.copy(place) for n, t in self._transports.items() if place < len(t.transports)}
        return self._on(ways, task)

    def make(
        self, kind: str, decide: Callable[[], ClusterChange], staged: StagedAddition | None = None
    ) -> dict[int, Any]:
        """Decide a change and make it on all shards; return what they returned.

        `decide` returns it, and may write to the ledger, in the same transaction. It is the one
        that is `staged`, if one is; else whatever is staged is forgotten.
        """
        if staged is None:
            self._staged.wipe()
        with self._ledger.change(kind):
            clock = self._ledger.clock + 1
            change = replace(decide(), clock=clock)
            if staged is None:
                self._digest = change.save(self._path)
            else:
                self._staged.become(self._path, staged.token)
                self._digest = staged.digest
            self._ledger.database.put(PENDING, f"{clock} {self._digest}")
        self._pending = clock
        return self.finish(staged)

    def finish(self, staged: StagedAddition | None = None) -> dict[int, Any]:
        """Have shards make the change that is pending, of which `staged` may be prepared.

        Raises ShardMissing if one is missing. The change stays pending.
        """
        results = None if staged is None else self._added_as_staged(staged)
        if results is None:
            change = replace(ClusterChange.read(self._path, self._digest), clock=self._pending)
            shards = self._concerned(change)
            results = self._on(shards, [change.task(number) for number in shards])
        with self._ledger.database.transaction():
            self._ledger.database.put(PENDING, "0")
            self._records.write()
        self._pending = 0
        self._staged.put_away(self._path)
        if staged is None:
            self._staged.wipe()
        return results

    def stage(self, records: StoredRecords, basis: int, turn: Turn) -> StagedAddition:
        """Have shards prepare records to be added, while blocks are charged.

        `basis` is the version of the coordinator's register that it is for. Raises
        StagingEndedError if the data have changed meanwhile; ShardMissing, as a shard that is away
        may know a subject.
        """

        @contextmanager
        def current() -> Iterator[None]:
            with turn():
                if self._ledger.register_version != basis:
                    raise StagingEndedError
                yield

        change = self._addition(records, turn)
        return stage(change, self._staged, self._concerned(change), self._policy, current)

    def end_staging(self, *, everywhere: bool) -> None:
        """Wipe the file of a batch; `everywhere`: shards forget it, too, as soon as they can."""
        self._staged.wipe()
        for transport in self._transports.values() if everywhere else ():
            transport.send(NOTHING_STAGED)

    def addition_of(
        self,
        records: StoredRecords,
        addition: Addition | None,
        staged: StagedAddition | None = None,
    ) -> Callable[[], ClusterChange]:
        """Return what decides to add records, which may be staged.

        Raises ShardMissing if a shard is missing: it may know one of the subjects. Nothing is
        changed.
        """
        database, version = self._ledger.database, self._ledger.version + 1
        change = self._addition(records) if staged is None else staged.change

        def decide() -> ClusterChange:
            if addition is not None:
                addition.write(database, version)
            write_naming(database, by_holder=records.ids is not None)
            if records.ids is None:
                database.put(NEXT_NUMBER, str(int(change.subjects[-1]) + 1))
            return change

        return decide

    def places_of(self, subjects: Sequence[SubjectId]) -> Ints32:
        """Return the shard of every subject, int32 (subjects,): the one that knows them, if any.

        Shards are asked for some thousands at a time. Raises ShardMissing if a shard is missing: it
        may know one of them.
        """
        places = [_NOWHERE]
        for start in range(0, len(subjects), _AT_ONCE):
            some = subjects[start : start + _AT_ONCE]
            places.append(self._places(some, self.on_all(KnownSubjects(some))))
        return np.concatenate(places)

    def _addition(self, records: StoredRecords, turn: Turn = nullcontext) -> ClusterChange:
        """Route records to the shards that know their subjects."""
        subjects = self._new_numbers(len(records), turn) if records.ids is None else records.ids
        places = self.places_of(subjects)
        return ClusterChange(ADD, subjects, records.integers, records.rows, places)

    def _concerned(self, change: ClusterChange) -> dict[int, CheckedTransport]:
        return {n: one for n, one in self._transports.items() if change.concerns(n)}

    def _added_as_staged(self, staged: StagedAddition) -> dict[int, Any] | None:
        """Have shards add what they have prepared; None if one has not, and needs the records."""
        shards = self._concerned(staged.change)
        try:
            return self._on(shards, AddStaged(self._pending, staged.token))
        except InvalidInput:
            return None

    def _on(
        self, shards: Mapping[int, TaskTransport], task: Task | Sequence[Task]
    ) -> dict[int, Any]:
        gather(shards, Ping(), self._policy)
        return gather(shards, task, self._policy, _WORK)

    def _places(self, subjects: Sequence[SubjectId], standings: Mapping[int, Ints8]) -> Ints32:
        """Return the shard of every subject: where it is, or was, or else by the hash of its id.

        `standings`, mapping of int to int8 (subjects,): what each shard knows of them.
        """
        table = np.stack([standings[number] for number in sorted(standings)])
        if ((table > 0).sum(axis=0) > 1).any():
            raise PrivacyRefused(
                "A subject was erased under two spellings of its id, on two shards, by an earlier "
                "version. It cannot come back, as what it has left cannot be told."
            )
        places: Ints32 = table.argmax(axis=0).astype(np.int32)
        for at in np.flatnonzero(~table.any(axis=0)).tolist():
            places[at] = place_by_hash(self._ledger.hash(subjects[at]), len(self._transports))
        return places

    def _new_numbers(self, size: int, turn: Turn) -> list[SubjectId]:
        """Return ids for new subjects: the next numbers that none has, or had, on any shard."""
        with turn():
            first = int(self._ledger.database.get(NEXT_NUMBER) or 0)
        numbers: list[SubjectId] = []
        while len(numbers) < size:
            tried: list[SubjectId] = list(range(first, first + min(_AT_ONCE, size - len(numbers))))
            standings = self.on_all(KnownSubjects(tried)).values()
            numbers += [
                number for number, *by in zip(tried, *standings, strict=True) if not any(by)
            ]
            first += len(tried)
        return numbers
