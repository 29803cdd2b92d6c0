"""Changes of a cluster's data: decided by the coordinator, made by every shard, in one order.

A change is decided by one transaction of the coordinator, which counts its clock on (so that no
votes that shards keep can meet later ones) and notes the change as pending. What it consists of
lies in a file until every shard has made it: records and ids, as private as those of the shards.
Then the file is overwritten and removed. Whatever breaks off half-way is gone on with before
anything else is done, also by the next process.
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
from vicinal.distributed._fan_out import MissingShardPolicy, ShardTransport, gather
from vicinal.distributed._membership import ShardRecords
from vicinal.distributed._tasks import Add, Erase, OpenAudience, Ping, Task
from vicinal.errors import PrivacyRefused, StorageFailed
from vicinal.ledger._files import guarded, replace_file, sync_folder
from vicinal.ledger._ledger import Ledger
from vicinal.neighbours._integer_features import IntegerMatrix
from vicinal.store._identities import repaired

ADD, ERASE, AUDIENCE = "add", "erase", "audience"
PENDING = "pending"
"""Where the coordinator's ledger keeps the clock of a change that shards have not all made."""

_FILE = "change"
_WORK = 3600.0
"""Seconds that a shard may work on a change, a check or a backup, once it can be heard."""

_NO_ROWS = np.zeros((0, 0), dtype=np.int8)
_NOTHING = np.zeros(0, dtype=np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class ClusterChange:
    """What all shards have to do; private.

    Attributes
    ----------
    what : str
        :data:`ADD`, :data:`ERASE` or :data:`AUDIENCE`.
    subjects : list of int or str
        Whose each record is; or who goes.
    integers, labels, places : int8 or float32 (n, d), int32 (n,), int32 (n,)
        Records that come, and the shard of each.
    audience : dict
        Number, name and plan of a new audience.
    turn : int
        The coordinator's clock.
    """

    what: str
    subjects: list[SubjectId] = field(default_factory=list)
    integers: IntegerMatrix = field(default_factory=_NO_ROWS.copy)
    labels: npt.NDArray[np.int32] = field(default_factory=_NOTHING.copy)
    places: npt.NDArray[np.int32] = field(default_factory=_NOTHING.copy)
    audience: dict[str, Any] = field(default_factory=dict)
    turn: int = 0

    def task(self, shard: int) -> Task:
        """Return what one shard has to do."""
        if self.what == ERASE:
            return Erase(self.turn, self.subjects)
        if self.what == AUDIENCE:
            return OpenAudience(self.turn, **self.audience)
        rows = np.flatnonzero(self.places == shard)
        theirs = [self.subjects[row] for row in rows.tolist()]
        return Add(self.turn, self.integers[rows], self.labels[rows], theirs)

    def concerns(self, shard: int) -> bool:
        """Tell whether a shard has anything to do."""
        return self.what != ADD or bool((self.places == shard).any())

    def save(self, path: Path) -> str:
        """Write it down, durably; return a digest of what was written, in hexadecimal digits."""
        said = {
            "what": self.what, "turn": self.turn, "subjects": self.subjects,
            "audience": self.audience,
        }  # fmt: skip
        content = io.BytesIO()
        np.savez(
            content,
            said=np.frombuffer(json.dumps(said).encode(), dtype=np.uint8),
            integers=self.integers,
            labels=self.labels,
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
            raise StorageFailed(f"{path} is not the change that was decided. Restore a backup.")
        with np.load(io.BytesIO(content), allow_pickle=False) as found:
            said = json.loads(found["said"].tobytes())
            subjects = [repaired(who) for who in said["subjects"]]
            return cls(
                said["what"], subjects, found["integers"], found["labels"],
                found["places"], said["audience"], said["turn"],
            )  # fmt: skip


class ClusterChanges:
    """Makes changes on all shards.

    Parameters
    ----------
    folder : Path
        The coordinator's.
    book : Ledger
        Its ledger.
    links : sequence of ShardTransport
        The ways to all shards.
    records : ShardRecords
        What the ledger keeps of them.
    deadline : float
        Seconds that a change waits for them; none is made without one of them.
    """

    def __init__(
        self,
        folder: Path,
        book: Ledger,
        links: Sequence[ShardTransport],
        records: ShardRecords,
        deadline: float,
    ) -> None:
        self._path = folder / _FILE
        self._book = book
        self._links = dict(enumerate(links))
        self._records = records
        self._patience = MissingShardPolicy(deadline)
        turn, _, self._digest = (book.database.get(PENDING) or "0").partition(" ")
        self._pending = int(turn)
        if not self._pending:
            _wipe(self._path)  # of a change that was never decided

    @property
    def pending(self) -> bool:
        """Whether a change was decided that some shard may not have made."""
        return bool(self._pending)

    def every(self, task: Task | Sequence[Task]) -> dict[int, Any]:
        """Have all shards do something; return what came of it, by shard.

        Raises
        ------
        ShardMissing
            If one is missing.
        """
        gather(self._links, Ping(), self._patience)
        return gather(self._links, task, self._patience, _WORK)

    def make(self, what: str, made: Callable[[], ClusterChange]) -> dict[int, Any]:
        """Decide a change and make it on all shards; return what they returned.

        `made` returns it, and may write to the ledger, in the same transaction.
        """
        with self._book.change(what):
            turn = self._book.clock + 1
            self._digest = replace(made(), turn=turn).save(self._path)
            self._book.database.put(PENDING, f"{turn} {self._digest}")
        self._pending = turn
        return self.finish()

    def finish(self) -> dict[int, Any]:
        """Have shards make the change that is pending.

        Raises
        ------
        ShardMissing
            If one is missing. The change stays pending.
        """
        change = ClusterChange.read(self._path, self._digest)
        links = {number: link for number, link in self._links.items() if change.concerns(number)}
        gather(links, Ping(), self._patience)
        found = gather(links, [change.task(n) for n in links], self._patience, _WORK)
        with self._book.database.transaction():
            self._book.database.put(PENDING, "0")
            self._records.write()
        self._pending = 0
        _wipe(self._path)
        return found


def places_of(
    subjects: Sequence[SubjectId],
    known: Mapping[int, npt.NDArray[np.int8]],
    otherwise: Callable[[SubjectId], int],
) -> npt.NDArray[np.int32]:
    """Return the shard of every subject: where it is, or was, or else where `otherwise` says.

    Parameters
    ----------
    known : mapping of int to int8 (subjects,)
        What each shard knows of them.
    """
    table = np.stack([known[number] for number in sorted(known)])
    if ((table > 0).sum(axis=0) > 1).any():
        raise PrivacyRefused(
            "A subject was erased under two spellings of its id, on two shards, by an earlier "
            "version. It cannot come back, as what it has left cannot be told."
        )
    places: npt.NDArray[np.int32] = table.argmax(axis=0).astype(np.int32)
    for at in np.flatnonzero(~table.any(axis=0)).tolist():
        places[at] = otherwise(subjects[at])
    return places


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
