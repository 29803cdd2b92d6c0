"""Changes of a cluster's data: decided by the coordinator, made by every shard, in one order.

A change is decided by one transaction of the coordinator, which counts its clock on (so that no
votes that shards keep can meet later ones) and notes the change as pending. What it consists of
lies in a file until every shard has made it: records and ids, as private as those of the shards.
Then the file is overwritten and removed. Whatever breaks off half-way is finished before anything
else is done, also by the next process.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from vicinal._checks import SubjectId
from vicinal.distributed._fan_out import (
    CheckedTransport,
    MissingShardPolicy,
    TaskTransport,
    gather,
)
from vicinal.distributed._membership import ShardRecords
from vicinal.distributed._messages import Add, Erase, KnownSubjects, OpenAudience, Ping, Task
from vicinal.distributed._splitting import place_by_hash
from vicinal.errors import PrivacyRefused, StoreDamaged
from vicinal.ledger._files import guarded, replace_file, sync_folder
from vicinal.ledger._ledger import Ledger
from vicinal.neighbours._kernels import IntegerMatrix
from vicinal.store._idempotent_adds import Addition
from vicinal.store._identities import repaired
from vicinal.store._naming import NEXT_NUMBER, write_naming
from vicinal.store._records import StoredRecords

ADD, ERASE, AUDIENCE = "add", "erase", "audience"
PENDING = "pending"
"""Where the coordinator's ledger keeps the clock of a change that shards have not all made."""

_FILE = "change"
_WORK = 3600.0
"""Seconds that a shard may work on a change, a check or a backup, once it can be reached."""

_NO_ROWS = np.zeros((0, 0), dtype=np.int8)
_NOTHING = np.zeros(0, dtype=np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class ClusterChange:
    """What all shards have to do; private.

    - `kind`: :data:`ADD`, :data:`ERASE` or :data:`AUDIENCE`.
    - `subjects`: whose each record is; or who is erased.
    - `integers`, `rows`, `places`, int8 or float32 (n, d), int32 (n, w), int32 (n,): new records,
      what they carry as the file has it, and the shard of each.
    - `audience`: number, name and plan of a new audience.
    - `clock`: the coordinator's clock.
    """

    kind: str
    subjects: list[SubjectId] = field(default_factory=list)
    integers: IntegerMatrix = field(default_factory=_NO_ROWS.copy)
    rows: npt.NDArray[np.int32] = field(default_factory=_NOTHING.copy)
    places: npt.NDArray[np.int32] = field(default_factory=_NOTHING.copy)
    audience: dict[str, Any] = field(default_factory=dict)
    clock: int = 0

    def task(self, shard: int) -> Task:
        """Return what one shard has to do."""
        if self.kind == ERASE:
            return Erase(self.clock, self.subjects)
        if self.kind == AUDIENCE:
            return OpenAudience(self.clock, **self.audience)
        rows = np.flatnonzero(self.places == shard)
        subjects = [self.subjects[row] for row in rows.tolist()]
        return Add(self.clock, self.integers[rows], self.rows[rows], subjects)

    def concerns(self, shard: int) -> bool:
        """Tell whether a shard has anything to do."""
        return self.kind != ADD or bool((self.places == shard).any())

    def save(self, path: Path) -> str:
        """Write it down, durably; return a digest of what was written, in hexadecimal digits."""
        described = {
            "what": self.kind, "turn": self.clock, "subjects": self.subjects,
            "audience": self.audience,
        }  # fmt: skip
        content = io.BytesIO()
        np.savez(
            content,
            said=np.frombuffer(json.dumps(described).encode(), dtype=np.uint8),
            integers=self.integers,
            labels=self.rows,
            places=self.places,
        )
        replace_file(path, content.getvalue())
        return hashlib.sha256(content.getvalue()).hexdigest()

    @classmethod
    def read(cls, path: Path, digest: str) -> Self:
        """Return the change that was written down with this digest, or raise StorageFailed."""
        with guarded(path):
            content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != digest:
            raise StoreDamaged(f"{path} is not the change that was decided. Restore a backup.")
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            described = json.loads(arrays["said"].tobytes())
            subjects = [repaired(subject) for subject in described["subjects"]]
            # Earlier versions wrote classes without a second dimension.
            rows = np.atleast_2d(arrays["labels"].T).T
            return cls(
                described["what"], subjects, arrays["integers"], rows, arrays["places"],
                described["audience"], described["turn"],
            )  # fmt: skip


class ClusterChanges:
    """Makes changes on all shards; none is made without one of them.

    - `folder`: the coordinator's.
    - `ledger`: the coordinator's.
    - `transports`: the ways to all shards.
    - `records`: what the ledger keeps of them.
    - `deadline`: seconds that a change waits for them.
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
            _wipe(self._path)  # of a change that was never decided

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

    def make(self, kind: str, decide: Callable[[], ClusterChange]) -> dict[int, Any]:
        """Decide a change and make it on all shards; return what they returned.

        `decide` returns it, and may write to the ledger, in the same transaction.
        """
        with self._ledger.change(kind):
            clock = self._ledger.clock + 1
            self._digest = replace(decide(), clock=clock).save(self._path)
            self._ledger.database.put(PENDING, f"{clock} {self._digest}")
        self._pending = clock
        return self.finish()

    def finish(self) -> dict[int, Any]:
        """Have shards make the change that is pending.

        Raises ShardMissing if one is missing. The change stays pending.
        """
        change = ClusterChange.read(self._path, self._digest)
        shards = {n: one for n, one in self._transports.items() if change.concerns(n)}
        results = self._on(shards, [change.task(number) for number in shards])
        with self._ledger.database.transaction():
            self._ledger.database.put(PENDING, "0")
            self._records.write()
        self._pending = 0
        _wipe(self._path)
        return results

    def addition_of(
        self, records: StoredRecords, addition: Addition | None
    ) -> Callable[[], ClusterChange]:
        """Route records to the shards that know their subjects; return what decides the change.

        Raises ShardMissing if a shard is missing: it may know one of the subjects. Nothing is
        changed.
        """
        database, version = self._ledger.database, self._ledger.version + 1
        subjects = self._new_numbers(len(records)) if records.ids is None else records.ids
        places = self.places_of(subjects)

        def decide() -> ClusterChange:
            if addition is not None:
                addition.write(database, version)
            write_naming(database, by_holder=records.ids is not None)
            if records.ids is None:
                database.put(NEXT_NUMBER, str(int(subjects[-1]) + 1))
            return ClusterChange(ADD, subjects, records.integers, records.rows, places)

        return decide

    def places_of(self, subjects: Sequence[SubjectId]) -> npt.NDArray[np.int32]:
        """Return the shard of every subject, int32 (subjects,): the one that knows them, if any.

        Raises ShardMissing if a shard is missing: it may know one of them.
        """
        return self._places(subjects, self.on_all(KnownSubjects(subjects)))

    def _on(
        self, shards: Mapping[int, TaskTransport], task: Task | Sequence[Task]
    ) -> dict[int, Any]:
        gather(shards, Ping(), self._policy)
        return gather(shards, task, self._policy, _WORK)

    def _places(
        self, subjects: Sequence[SubjectId], standings: Mapping[int, npt.NDArray[np.int8]]
    ) -> npt.NDArray[np.int32]:
        """Return the shard of every subject: where it is, or was, or else by the hash of its id.

        `standings`, mapping of int to int8 (subjects,): what each shard knows of them.
        """
        table = np.stack([standings[number] for number in sorted(standings)])
        if ((table > 0).sum(axis=0) > 1).any():
            raise PrivacyRefused(
                "A subject was erased under two spellings of its id, on two shards, by an earlier "
                "version. It cannot come back, as what it has left cannot be told."
            )
        places: npt.NDArray[np.int32] = table.argmax(axis=0).astype(np.int32)
        for at in np.flatnonzero(~table.any(axis=0)).tolist():
            places[at] = place_by_hash(self._ledger.hash(subjects[at]), len(self._transports))
        return places

    def _new_numbers(self, size: int) -> list[SubjectId]:
        """Return ids for new subjects: the next numbers that none has, or had, on any shard."""
        first = int(self._ledger.database.get(NEXT_NUMBER) or 0)
        numbers: list[SubjectId] = []
        while len(numbers) < size:
            tried: list[SubjectId] = list(range(first, first + size - len(numbers)))
            standings = self.on_all(KnownSubjects(tried)).values()
            numbers += [
                number for number, *by in zip(tried, *standings, strict=True) if not any(by)
            ]
            first += len(tried)
        return numbers


def _wipe(path: Path) -> None:
    """Overwrite a file with zeros and remove it, if it is there; and one that was half written."""
    for one in (path, path.with_name(path.name + ".new")):
        if one.is_file():
            with guarded(one), one.open("r+b") as file:
                file.write(bytes(one.stat().st_size))
                file.flush()
                os.fsync(file.fileno())
            with guarded(one):
                one.unlink()
                sync_folder(one.parent)
