"""Changes of a cluster's data: decided by the coordinator, made by every shard, in one order.

A change is decided by one transaction of the coordinator, which counts its clock on (so that no
votes that shards keep can meet later ones) and notes the change as pending. What it consists of
lies in a file until every shard has made it: records and ids, as private as those of the shards.
Then the file is overwritten and removed. Whatever breaks off half-way is finished before anything
else is done, also by the next process.

"""

import hashlib
import io
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from vicinal.arrays import Ints32
from vicinal.checks import SubjectId
from vicinal.distributed import messages as tasks
from vicinal.distributed._fan_out import ShardClient, gather
from vicinal.distributed._membership import ShardRecords
from vicinal.distributed.splitting import place_by_hash
from vicinal.errors import PrivacyRefused, StorageFailed, StoreDamaged
from vicinal.ledger.database import Database
from vicinal.ledger.files import replace_file, sync_folder, translate_os_errors
from vicinal.ledger.ledger import Ledger
from vicinal.ledger.sealed_files import parse_json
from vicinal.neighbours.kernels import IntegerMatrix
from vicinal.store.records import NEXT_NUMBER, StoredRecords

ADD, ERASE, AUDIENCE = "add", "erase", "audience"

PENDING = "pending"
"""Where the coordinator's ledger keeps the clock of a change that shards have not all made."""

_FILE = "change"
_WORK = 3600.0
"""Seconds that a shard may work on a change, a check or a backup, once it can be reached."""

_DESCRIBED = ("kind", "subjects", "audience", "clock")
_ARRAYS = ("integers", "rows", "places")
"""Fields of a change as its file has them: as JSON, and as arrays."""

_NO_ROWS = np.zeros((0, 0), dtype=np.int8)
_NOTHING = np.zeros(0, dtype=np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class ClusterChange:
    """What all shards have to do; private.

    - `kind`: :data:`ADD`, :data:`ERASE` or :data:`AUDIENCE`.
    - `subjects`: of each record; or those to erase.
    - `integers`, `rows`, `places`: new records, int8 or float32 (n, d), what they carry as the file
      has it, int32 (n, w), and the shard of each, int32 (n,).
    - `audience`: number, name, plan and model of an audience.
    - `clock`: the coordinator's.
    """

    kind: str
    subjects: list[SubjectId] = field(default_factory=list)
    integers: IntegerMatrix = field(default_factory=_NO_ROWS.copy)
    rows: Ints32 = field(default_factory=_NOTHING.copy)
    places: Ints32 = field(default_factory=_NOTHING.copy)
    audience: dict[str, Any] = field(default_factory=dict)
    clock: int = 0

    def task(self, shard: int) -> tasks.Task:
        if self.kind == ERASE:
            return tasks.Erase(self.clock, self.subjects)
        if self.kind == AUDIENCE:
            return tasks.SetAudience(self.clock, **self.audience)
        rows = np.flatnonzero(self.places == shard)
        subjects = [self.subjects[row] for row in rows.tolist()]
        return tasks.Add(self.clock, self.integers[rows], self.rows[rows], subjects)

    def concerns(self, shard: int) -> bool:
        """Tell whether a shard has anything to do."""
        return self.kind != ADD or bool((self.places == shard).any())

    def save(self, path: Path) -> str:
        """Write it down, durably; return a digest of what was written, in hexadecimal digits."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        described = {name: getattr(self, name) for name in _DESCRIBED}
        text = np.frombuffer(json.dumps(described).encode(), dtype=np.uint8)
        content = io.BytesIO()
        np.savez(content, described=text, **arrays)
        replace_file(path, content.getvalue())
        return hashlib.sha256(content.getvalue()).hexdigest()

    @classmethod
    def read(cls, path: Path, digest: str | None = None) -> Self:
        """Return the change that was written down, with this digest or StorageFailed is raised."""
        with translate_os_errors(path):
            content = path.read_bytes()
        if digest not in (None, hashlib.sha256(content).hexdigest()):
            raise StoreDamaged(f"{path} is not the change that was decided. Restore a backup.")
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            described = parse_json(arrays["described"].tobytes(), path)
            return cls(**described, **{name: arrays[name] for name in _ARRAYS})


def is_unfinished(database: Database, folder: Path) -> bool:
    """Tell whether a change was decided that is not made, or a file of one is there."""
    decided = int((database.get(PENDING) or "0").split()[0]) > 0
    return decided or (folder / _FILE).exists()


def wipe(path: Path) -> None:
    """Overwrite a file with zeros and remove it, if it is there; and one that was half written."""
    for one in (path, path.with_name(path.name + ".new")):
        if one.is_file():
            with translate_os_errors(one), one.open("r+b") as file:
                file.write(bytes(one.stat().st_size))
                file.flush()
                os.fsync(file.fileno())
            with translate_os_errors(one):
                one.unlink()
                sync_folder(one.parent)


class ClusterChanges:
    """Makes changes on all shards; none is made without one of them.

    Folder, ledger and records are the coordinator's; a change waits `deadline` seconds for shards.
    `pending`: the clock of a change that was decided and some shard may not have made, or 0.
    """

    def __init__(
        self,
        folder: Path,
        ledger: Ledger,
        shards: Sequence[ShardClient],
        records: ShardRecords,
        deadline: float,
    ) -> None:
        self._path = folder / _FILE
        self._ledger = ledger
        self._shards = dict(enumerate(shards))
        self._records = records
        self._deadline = deadline
        clock, _, self._digest = (ledger.database.get(PENDING) or "0").partition(" ")
        self.pending = int(clock)
        self._file_remains = self.pending > 0
        if not self.pending:
            wipe(self._path)  # of a change that was never decided

    def on_all(
        self, task: tasks.Task | Callable[[int], tasks.Task], concerned: ClusterChange | None = None
    ) -> dict[int, Any]:
        """Have all shards, or all that a change concerns, do a task, or each its own.

        Returns what came of it, by shard. Raises ShardMissing if one is missing.
        """
        shards = self._shards
        if concerned is not None:
            shards = {n: one for n, one in shards.items() if concerned.concerns(n)}
        # A shard that is away is known in seconds; one that is at work may take very long.
        gather(shards, tasks.Ping(), self._deadline)
        return gather(shards, task, self._deadline, work=_WORK)

    def make(self, kind: str, decide: Callable[[], ClusterChange]) -> dict[int, Any]:
        """Decide a change and make it on all shards; return what they returned.

        `decide` returns it, and may write to the ledger, in the same transaction.
        """
        with self._ledger.change(kind):
            clock = self._ledger.clock + 1
            change = replace(decide(), clock=clock)
            # The file is durable before the commit that decides it: one that was not decided is
            # wiped at the next opening, and one that was is whole.
            self._file_remains = True
            self._digest = change.save(self._path)
            self._ledger.database.put(PENDING, f"{clock} {self._digest}")
            # Before the commit: no line separates the commit from this object's knowledge of it.
            self.pending = clock
        return self.finish()

    @property
    def is_unfinished(self) -> bool:
        """Whether a shard may not have made the last change, or its file is still on the disk."""
        return self.pending > 0 or self._file_remains

    def finish(self) -> dict[int, Any]:
        """Have shards make the change that is pending, and remove its file.

        Can be repeated after an exception at any line. Raises ShardMissing if a shard is missing;
        the change stays pending then.
        """
        results = self._make_pending() if self.pending else {}
        wipe(self._path)
        self._file_remains = False
        return results

    def _make_pending(self) -> dict[int, Any]:
        if self._ledger.last_commit[0] < self.pending:
            # Its commit was broken off: no shard may make what may never be decided.
            raise StorageFailed("The last change was not committed. Open the cluster again.")
        change = replace(ClusterChange.read(self._path, self._digest), clock=self.pending)
        results = self.on_all(change.task, change)
        if change.kind == ERASE:  # the log and free pages hold digests of what was added with them
            self._ledger.database.scrub()
        # All have made it. Until this commit the next process finds it pending and sends it again.
        with self._ledger.database.transaction():
            self._ledger.database.put(PENDING, "0")
            self._records.write()
        self.pending = 0
        return results

    def places_of(self, subjects: Sequence[SubjectId]) -> Ints32:
        """Return the shard of every subject, int32 (subjects,).

        It is where they are, or were, or else by the hash of their id. Raises ShardMissing if a
        shard is missing: it may know one of them.
        """
        known = self.on_all(tasks.KnownSubjects(subjects))
        table = np.stack([known[number] for number in range(len(self._shards))])
        if ((table > 0).sum(axis=0) > 1).any():
            raise PrivacyRefused(
                "Two shards hold the same subject, so nobody can tell what is left of its budget. "
                "Bring back the folders that belong together, or restore a backup of the cluster."
            )
        places: Ints32 = table.argmax(axis=0).astype(np.int32)
        for at in np.flatnonzero(~table.any(axis=0)).tolist():
            places[at] = place_by_hash(self._ledger.hash(subjects[at]), len(self._shards))
        return places

    def addition(self, records: StoredRecords) -> ClusterChange:
        """Route records to the shards that know their subjects."""
        subjects = self._new_numbers(len(records)) if records.ids is None else records.ids
        places = self.places_of(subjects)
        return ClusterChange(ADD, subjects, records.integers, records.rows, places)

    def _new_numbers(self, size: int) -> list[SubjectId]:
        """Return ids for new subjects: the next numbers that none has, or had, on any shard."""
        first = int(self._ledger.database.get(NEXT_NUMBER) or 0)
        numbers: list[SubjectId] = []
        while len(numbers) < size:
            tried: list[SubjectId] = list(range(first, first + size - len(numbers)))
            known = np.any(list(self.on_all(tasks.KnownSubjects(tried)).values()), axis=0)
            numbers += [tried[at] for at in np.flatnonzero(~known).tolist()]
            first += len(tried)
        return numbers
