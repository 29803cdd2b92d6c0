"""Changes of a cluster's data: decided by the coordinator, made by every shard in the same order.

One transaction of the coordinator *decides* a change: it marks the change as *pending* and advances
the clock, so that no stored votes can be taken for those of a later block. The content of the
change, records and ids as private as those of the shards, is in a file until every shard has made
the change. Then a second transaction removes the mark, and the file is overwritten and removed. Up
to this point the change is *unfinished*. An unfinished change is finished before any other
operation, by the next process if necessary. Subjects are denoted by their ids.
"""

import hashlib
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from vicinal.arrays import Ints32
from vicinal.checks import SubjectId
from vicinal.declared_sizes import open_npz, read_bytes
from vicinal.distributed import messages as tasks
from vicinal.distributed._fan_out import ShardClient, gather_results
from vicinal.distributed._membership import ShardRecords
from vicinal.distributed.splitting import hash_to_shard
from vicinal.errors import PrivacyRefused, StorageFailed, StoreDamaged
from vicinal.ledger.database import Database
from vicinal.ledger.files import (
    overwrite_with_zeros,
    replace_file,
    sync_folder,
    translate_os_errors,
)
from vicinal.ledger.ledger import Ledger
from vicinal.ledger.sealed_files import parse_json
from vicinal.neighbours.kernels import IntegerMatrix
from vicinal.store.records import NEXT_NUMBER, StoredRecords, find_unused_numbers

ADD, ERASE, AUDIENCE = "add", "erase", "audience"
"""Kinds of changes: add records, erase subjects, set an audience's plan and model."""

MODEL_TRAINED, MODEL_REFRESHED = "model", "refresh"
"""Kinds, in the ledger's history, of an :data:`AUDIENCE` change that sends a trained model."""

PENDING = "pending"
"""Database key of the clock and the digest of a change that some shards may not have made.

The clock is 0 if there is none.
"""

_FILE = "change"
"""Name of the file with the content of a pending change, in the coordinator's folder."""

_MAX_WORK_SECONDS = 3600.0
"""Seconds that a reachable shard may take for a change, a check or a backup."""

_JSON_FIELDS = ("kind", "subjects", "audience", "clock")
"""Fields of a change that its file stores as JSON."""

_ARRAY_FIELDS = {"integers": "integers", "rows": "rows", "places": "shard_numbers"}
"""Fields of a change that its file stores as arrays, by the array's name in the file format."""

_NO_FEATURES = np.zeros((0, 0), dtype=np.int8)
_NO_INTEGERS = np.zeros(0, dtype=np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class ClusterChange:
    """The content of a change for all shards; private.

    `kind` is :data:`ADD`, :data:`ERASE` or :data:`AUDIENCE`, and `clock` the coordinator's clock of
    the change. `subjects` are those of the new records, or those to erase. New records have
    `integers`, int8 or float32 (n, d), targets `rows` as they are stored, int32 (n, w), and
    `shard_numbers`, int32 (n,). `audience`: its number, name, plan and model, by these names.
    """

    kind: str
    subjects: list[SubjectId] = field(default_factory=list)
    integers: IntegerMatrix = field(default_factory=_NO_FEATURES.copy)
    rows: Ints32 = field(default_factory=_NO_INTEGERS.copy)
    shard_numbers: Ints32 = field(default_factory=_NO_INTEGERS.copy)
    audience: dict[str, Any] = field(default_factory=dict)
    clock: int = 0

    def create_task(self, shard: int) -> tasks.Task:
        """Return the task with which the shard of this number makes the change."""
        if self.kind == ERASE:
            return tasks.Erase(self.clock, self.subjects)
        if self.kind == AUDIENCE:
            return tasks.SetAudience(self.clock, **self.audience)
        rows = np.flatnonzero(self.shard_numbers == shard)
        subjects = [self.subjects[row] for row in rows.tolist()]
        return tasks.Add(self.clock, self.integers[rows], self.rows[rows], subjects)

    def affects_shard(self, shard: int) -> bool:
        """Return whether the shard of this number has a task in the change."""
        return self.kind != ADD or bool((self.shard_numbers == shard).any())

    def save(self, path: Path, owner: int) -> str:
        """Write the change durably to the file `path`; return its SHA-256 in hexadecimal digits.

        `owner`: user id of the owner of the coordinator's folder.
        """
        arrays = {stored: getattr(self, field) for stored, field in _ARRAY_FIELDS.items()}
        described = {field: getattr(self, field) for field in _JSON_FIELDS}
        text = np.frombuffer(json.dumps(described).encode(), dtype=np.uint8)
        content = io.BytesIO()
        np.savez(content, described=text, **arrays)
        replace_file(path, content.getvalue(), owner=owner)
        return hashlib.sha256(content.getvalue()).hexdigest()

    @classmethod
    def read(cls, path: Path, digest: str | None = None) -> Self:
        """Return the change in the file `path`; StoreDamaged if it has another SHA-256.

        `digest`: the expected SHA-256 in hexadecimal digits; None accepts any file.
        """
        with translate_os_errors(path):
            content = read_bytes(path)
        if digest not in (None, hashlib.sha256(content).hexdigest()):
            raise StoreDamaged(f"{path} is not the change that was decided. Restore a backup.")
        with open_npz(path, io.BytesIO(content)) as arrays:
            described = parse_json(arrays["described"].tobytes(), path)
            columns = {field: arrays[stored] for stored, field in _ARRAY_FIELDS.items()}
            return cls(**described, **columns)


def list_unfinished_changes(database: Database, folder: Path) -> list[str]:
    """Return the kind of the pending change, or a description of a change's file that remains.

    Empty if there is neither. `database`, `folder`: those of the coordinator.
    """
    clock = int((database.get(PENDING) or "0").split()[0])
    if clock:
        query = "SELECT what FROM history WHERE clock = ?"
        kinds = [kind for (kind,) in database.read(query, (clock,))]
        return kinds or ["a change of the shards"]
    has_file = any((folder / name).exists() for name in (_FILE, f"{_FILE}.new"))
    return ["the removal of the file of a change"] if has_file else []


def wipe_file(path: Path) -> None:
    """Overwrite the file `path` with zeros and remove it; also its incomplete copy `PATH.new`."""
    for file_path in (path, path.with_name(path.name + ".new")):
        if file_path.is_file():
            with translate_os_errors(file_path), file_path.open("r+b") as file:
                overwrite_with_zeros(file.fileno())
            with translate_os_errors(file_path):
                file_path.unlink()
                sync_folder(file_path.parent)


class ClusterChanges:
    """Makes changes on all shards, and only while all shards can be reached.

    `folder`, `ledger`, `shard_records`: the coordinator's. `shards`: clients, by number of the
    shard. `deadline`: seconds to wait for unreachable shards. The attribute `pending` is the clock
    of a decided change that some shard may not have made, or 0.
    """

    def __init__(
        self,
        folder: Path,
        ledger: Ledger,
        shards: Sequence[ShardClient],
        shard_records: ShardRecords,
        deadline: float,
    ) -> None:
        self._path = folder / _FILE
        self._owner = folder.stat().st_uid
        self._ledger = ledger
        self._shards = dict(enumerate(shards))
        self._shard_records = shard_records
        self._deadline = deadline
        clock, _, self._digest = (ledger.database.get(PENDING) or "0").partition(" ")
        self.pending = int(clock)
        self._file_remains = self.pending > 0
        if not self.pending:
            wipe_file(self._path)  # the content of a change that was never decided

    def check_all_reachable(self) -> None:
        """Raise ShardMissing unless every shard can be reached."""
        gather_results(self._shards, tasks.Ping(), self._deadline)

    def run_on_shards(
        self, task: tasks.Task | Callable[[int], tasks.Task], change: ClusterChange | None = None
    ) -> dict[int, Any]:
        """Run a task on all shards and return the results by shard number.

        `task`: one task for all shards, or a function from a shard's number to its task. `change`:
        if given, only shards that it affects run the task. Raises ShardMissing if a shard is
        missing.
        """
        shards = {
            number: client
            for number, client in self._shards.items()
            if change is None or change.affects_shard(number)
        }
        # The deadline is for finding missing shards; a reachable shard may work on the task longer.
        gather_results(shards, tasks.Ping(), self._deadline)
        return gather_results(shards, task, self._deadline, work_seconds=_MAX_WORK_SECONDS)

    def make_change(self, kind: str, decide: Callable[[], ClusterChange]) -> dict[int, Any]:
        """Decide a change, make it on all shards, and return their results by shard number.

        `kind`: kind of the change in the ledger's history. `decide`: returns the change; may write
        to the ledger, in the transaction that decides it.
        """
        with self._ledger.change(kind):
            clock = self._ledger.clock + 1
            change = replace(decide(), clock=clock)
            # The file is durable before the commit that decides the change. The file of a decided
            # change is therefore complete; that of an undecided one is wiped at the next opening.
            self._file_remains = True
            self._digest = change.save(self._path, self._owner)
            self._ledger.database.put(PENDING, f"{clock} {self._digest}")
            # Set before the commit, so that an exception after the commit finds it set.
            self.pending = clock
        return self.finish_pending()

    @property
    def is_unfinished(self) -> bool:
        """Whether some shard may not have made the last change, or its file remains on the disk."""
        return self.pending > 0 or self._file_remains

    def finish_pending(self) -> dict[int, Any]:
        """Make the pending change, if any, on all shards, and remove the file of the last change.

        Returns the shards' results by shard number. Can be repeated after an exception at any line.
        Raises ShardMissing if a shard is missing; the change stays pending then.
        """
        results = self._make_pending_change() if self.pending else {}
        wipe_file(self._path)
        self._file_remains = False
        return results

    def _make_pending_change(self) -> dict[int, Any]:
        """Make the pending change on all shards, and return their results by shard number."""
        if self._ledger.last_commit[0] < self.pending:
            # The deciding commit was interrupted: no shard may make a change that is not decided.
            raise StorageFailed("The last change was not committed. Open the cluster again.")
        change = replace(ClusterChange.read(self._path, self._digest), clock=self.pending)
        results = self.run_on_shards(change.create_task, change)
        if change.kind == ERASE:
            # The log and free pages hold digests of the additions of the erased subjects.
            self._ledger.database.scrub()
        # All shards have made the change. A process that ends before this commit leaves the change
        # pending, and the next process sends it again.
        with self._ledger.database.transaction():
            self._ledger.database.put(PENDING, "0")
            self._shard_records.write()
        self.pending = 0
        return results

    def find_shards(self, subjects: Sequence[SubjectId]) -> Ints32:
        """Return the number of the shard of every subject, int32 (subjects,).

        An enrolled or erased subject keeps its shard; a keyed hash of the id determines that of a
        new one. Raises ShardMissing if a shard is missing, as it may have one of the subjects.
        """
        statuses = self.run_on_shards(tasks.SubjectStatuses(subjects))
        table = np.stack([statuses[number] for number in range(len(self._shards))])
        if ((table > 0).sum(axis=0) > 1).any():
            raise PrivacyRefused(
                "Two shards hold the same subject, so nobody can tell what is left of its budget. "
                "Bring back the folders that belong together, or restore a backup of the cluster."
            )
        shard_numbers: Ints32 = table.argmax(axis=0).astype(np.int32)
        for index in np.flatnonzero(~table.any(axis=0)).tolist():
            id_hash = self._ledger.hash_id(subjects[index])
            shard_numbers[index] = hash_to_shard(id_hash, len(self._shards))
        return shard_numbers

    def route_addition(self, records: StoredRecords) -> ClusterChange:
        """Return the addition of encoded records; those without ids get unused numbers as ids."""
        subjects = records.ids
        if subjects is None:
            first = int(self._ledger.database.get(NEXT_NUMBER) or 0)
            subjects = find_unused_numbers(first, len(records), self.find_statuses)
        shard_numbers = self.find_shards(subjects)
        return ClusterChange(ADD, subjects, records.integers, records.target_rows, shard_numbers)

    def find_statuses(self, subjects: Sequence[SubjectId]) -> list[int]:
        """Return the enrolment status of each of `subjects`, the number of an EnrollmentStatus."""
        statuses = self.run_on_shards(tasks.SubjectStatuses(list(subjects)))
        return np.max(list(statuses.values()), axis=0).tolist()  # type: ignore[no-any-return]
