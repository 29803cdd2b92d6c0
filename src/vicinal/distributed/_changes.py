"""Changes of a cluster's data: decided by the coordinator, made by every shard, in one order.

A change is decided by one transaction of the coordinator, which counts its clock on (so that no
votes that shards keep can meet later ones) and notes the change as pending. What it consists of
lies in a file until every shard has made it: records and ids, as private as those of the shards.
Then the file is overwritten and removed. Whatever breaks off half-way is finished before anything
else is done, also by the next process.

Records to be added are staged beside blocks: every shard gets its part beforehand and prepares it,
and changes nothing. The change is decided as any other; shards then get its name in place of its
records. Whichever has not prepared them gets them after all: whether it had changes no row of any
ledger.
"""

import hashlib
import io
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any, Self

import numpy as np

from vicinal._arrays import Ints32
from vicinal._checks import SubjectId
from vicinal.distributed import _messages as tasks
from vicinal.distributed._fan_out import MissingShardPolicy, ShardClient, gather
from vicinal.distributed._membership import ShardRecords
from vicinal.distributed._splitting import place_by_hash
from vicinal.errors import InvalidInput, PrivacyRefused, ShardUnreachable, StoreDamaged
from vicinal.ledger import Database, Ledger, Turn, guarded, parse_json, replace_file, sync_folder
from vicinal.mechanisms import fresh_key
from vicinal.neighbours import IntegerMatrix
from vicinal.store import NEXT_NUMBER, StagingEndedError, StoredRecords, any_row_in

ADD, ERASE, AUDIENCE = "add", "erase", "audience"

PENDING = "pending"
"""Where the coordinator's ledger keeps the clock of a change that shards have not all made."""

_FILE, _STAGED = "change", "staged"
AT_ONCE = 1 << 12
"""Subjects that shards are asked for at a time, between two blocks."""

_WORK = 3600.0
"""Seconds that a shard may work on a change, a check or a backup, once it can be reached."""

_TOKEN = 16
_PAUSE = 0.02
"""Seconds between two questions whether shards are ready."""

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
        return self.addition(shard)

    def addition(self, shard: int) -> tasks.Add:
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
        with guarded(path):
            content = path.read_bytes()
        if digest not in (None, hashlib.sha256(content).hexdigest()):
            raise StoreDamaged(f"{path} is not the change that was decided. Restore a backup.")
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            described = parse_json(arrays["described"].tobytes(), path)
            return cls(**described, **{name: arrays[name] for name in _ARRAYS})


def is_unfinished(database: Database, folder: Path) -> bool:
    """Tell whether a change was decided that is not made, or a file of one is there."""
    return int((database.get(PENDING) or "0").split()[0]) > 0 or any(
        (folder / name).exists() for name in (_FILE, _STAGED)
    )


def wipe(path: Path) -> None:
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


class StagedFile:
    """The file of a batch that is not decided yet, or not needed any more; as private as records.

    An erasure wipes it: nothing of an erased subject is in any file afterwards.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / _STAGED
        self._lock = Lock()
        self._token = b""
        self.wipe()

    def begin(self, token: bytes) -> None:
        """Let a batch be written, until :meth:`wipe`."""
        with self._lock:
            self._token = token

    def write(self, change: ClusterChange, token: bytes) -> str:
        """Write a batch, and return the digest of the file; raises StagingEndedError."""
        with self._lock:
            self._check(token)
            return change.save(self._path)

    def become(self, path: Path, token: bytes) -> None:
        """Make it the file of the change that is decided now; raises StagingEndedError."""
        with self._lock:
            self._check(token)
            self._token = b""
            self._move(self._path, path)

    def put_away(self, path: Path) -> None:
        """Take the file of a change that is made, to be wiped later."""
        with self._lock:
            self._move(path, self._path)

    def read(self) -> ClusterChange | None:
        with self._lock:
            return ClusterChange.read(self._path) if self._path.is_file() else None

    def wipe(self) -> None:
        with self._lock:
            self._token = b""
            wipe(self._path)

    def _check(self, token: bytes) -> None:
        if self._token != token:
            raise StagingEndedError

    def _move(self, source: Path, target: Path) -> None:
        with guarded(target):
            source.replace(target)
            sync_folder(target.parent)


@dataclass(frozen=True, slots=True, eq=False)
class StagedAddition:
    """A batch that shards have prepared: its name, what all of them do, its file's digest."""

    token: bytes
    change: ClusterChange
    digest: str


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
        self._policy = MissingShardPolicy(deadline)
        clock, _, self._digest = (ledger.database.get(PENDING) or "0").partition(" ")
        self.pending = int(clock)
        if not self.pending:
            wipe(self._path)  # of a change that was never decided
        self._staged = StagedFile(folder)

    def on_all(
        self, task: tasks.Task | Callable[[int], tasks.Task], concerned: ClusterChange | None = None
    ) -> dict[int, Any]:
        """Have all shards, or all that a change concerns, do a task, or each its own.

        Returns what came of it, by shard. Raises ShardMissing if one is missing.
        """
        shards = self._shards if concerned is None else self._concerned(concerned)
        # A shard that is away is known in seconds; one that is at work may take very long.
        gather(shards, tasks.Ping(), self._policy)
        return gather(shards, task, self._policy, work=_WORK)

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
            # The file is durable before the commit that decides it: one that was not decided is
            # wiped at the next opening, and one that was is whole.
            if staged is None:
                self._digest = change.save(self._path)
            else:
                self._staged.become(self._path, staged.token)
                self._digest = staged.digest
            self._ledger.database.put(PENDING, f"{clock} {self._digest}")
        self.pending = clock
        return self.finish(staged)

    def finish(self, staged: StagedAddition | None = None) -> dict[int, Any]:
        """Have shards make the change that is pending, of which `staged` may be prepared.

        Raises ShardMissing if one is missing. The change stays pending.
        """
        results = None
        if staged is not None:
            task = tasks.AddStaged(self.pending, staged.token)
            with suppress(InvalidInput):  # a shard that has not prepared it needs the records
                results = self.on_all(task, staged.change)
        if results is None:
            change = replace(ClusterChange.read(self._path, self._digest), clock=self.pending)
            results = self.on_all(change.task, change)
        # All have made it. Until this commit the next process finds it pending and sends it again.
        with self._ledger.database.transaction():
            self._ledger.database.put(PENDING, "0")
            self._records.write()
        self.pending = 0
        self._staged.put_away(self._path)
        if staged is None:
            self._staged.wipe()
        return results

    def stage(self, records: StoredRecords, basis: int, turn: Turn) -> StagedAddition:
        """Have shards prepare records to be added, while blocks are charged; wait for it.

        `basis` is the version of the coordinator's register that it is for. Raises
        StagingEndedError if the data have changed meanwhile, or a shard broke off; ShardMissing, as
        a shard that is away may know a subject.
        """

        @contextmanager
        def current() -> Iterator[None]:
            with turn():
                if self._ledger.register_version != basis:
                    raise StagingEndedError
                yield

        change = self.addition(records, turn)
        shards, token = self._concerned(change), fresh_key(_TOKEN)
        with current():
            self._staged.begin(token)
        digest = self._staged.write(change, token)
        gather(shards, tasks.Ping(), self._policy)
        for number, shard in shards.items():
            with current():  # sent after an erasure, it would bring a subject back
                now = replace(change, clock=self._ledger.clock)
                received = shard.send(tasks.Stage(token, now.addition(number)))
            try:
                received(self._policy.deadline)
            except ShardUnreachable:
                raise StagingEndedError from None
        while any(gather(shards, tasks.Ping(token), self._policy).values()):
            time.sleep(_PAUSE)
        return StagedAddition(token, change, digest)

    def staged_faults(self, erased: list[SubjectId], rows: IntegerMatrix | None) -> Iterator[str]:
        """Say whether ids or features that must be gone wait here to be added."""
        staged = self._staged.read()
        if staged is not None and not set(erased).isdisjoint(staged.subjects):
            yield "A batch that waits to be added holds an erased id."
        if staged is not None and rows is not None and any_row_in([staged.integers], rows):
            yield "A batch that waits to be added holds an erased record's features, or equal ones."

    def end_staging(self, *, everywhere: bool) -> None:
        """Wipe the file of a batch; `everywhere`: shards forget it, too, as soon as they can."""
        self._staged.wipe()
        for shard in self._shards.values() if everywhere else ():
            shard.send(tasks.Stage(b"", None))

    def places_of(self, subjects: Sequence[SubjectId]) -> Ints32:
        """Return the shard of every subject, int32 (subjects,).

        It is where they are, or were, or else by the hash of their id. Shards are asked for some
        thousands at a time. Raises ShardMissing if a shard is missing: it may know one of them.
        """
        places = [_NOTHING]
        for start in range(0, len(subjects), AT_ONCE):
            some = subjects[start : start + AT_ONCE]
            known = self.on_all(tasks.KnownSubjects(some))
            table = np.stack([known[number] for number in range(len(self._shards))])
            if ((table > 0).sum(axis=0) > 1).any():
                raise PrivacyRefused(
                    "Two shards hold the same subject, so nobody can tell what is left of its "
                    "budget. Bring back "
                    "the folders that belong together, or restore a backup of the cluster."
                )
            found: Ints32 = table.argmax(axis=0).astype(np.int32)
            for at in np.flatnonzero(~table.any(axis=0)).tolist():
                found[at] = place_by_hash(self._ledger.hash(some[at]), len(self._shards))
            places.append(found)
        return np.concatenate(places)

    def addition(self, records: StoredRecords, turn: Turn = nullcontext) -> ClusterChange:
        """Route records to the shards that know their subjects."""
        subjects = self._new_numbers(len(records), turn) if records.ids is None else records.ids
        places = self.places_of(subjects)
        return ClusterChange(ADD, subjects, records.integers, records.rows, places)

    def _concerned(self, change: ClusterChange) -> dict[int, ShardClient]:
        return {n: one for n, one in self._shards.items() if change.concerns(n)}

    def _new_numbers(self, size: int, turn: Turn) -> list[SubjectId]:
        """Return ids for new subjects: the next numbers that none has, or had, on any shard."""
        with turn():
            first = int(self._ledger.database.get(NEXT_NUMBER) or 0)
        numbers: list[SubjectId] = []
        while len(numbers) < size:
            tried: list[SubjectId] = list(range(first, first + min(AT_ONCE, size - len(numbers))))
            known = np.any(list(self.on_all(tasks.KnownSubjects(tried)).values()), axis=0)
            numbers += [tried[at] for at in np.flatnonzero(~known).tolist()]
            first += len(tried)
        return numbers
