"""A change of a cluster's data: what each shard has to do, and the file that says it until then."""

from __future__ import annotations

import hashlib
import io
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from vicinal._arrays import Ints32
from vicinal._checks import SubjectId
from vicinal.distributed._messages import Add, Erase, OpenAudience, Task
from vicinal.errors import StoreDamaged
from vicinal.ledger._files import guarded, replace_file, sync_folder
from vicinal.neighbours._kernels import IntegerMatrix

ADD, ERASE, AUDIENCE = "add", "erase", "audience"

_NO_ROWS = np.zeros((0, 0), dtype=np.int8)
_NOTHING = np.zeros(0, dtype=np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class ClusterChange:
    """What all shards have to do; private.

    - `kind`: :data:`ADD`, :data:`ERASE` or :data:`AUDIENCE`.
    - `subjects`: whose each record is; or who is erased.
    - `integers`, `rows`, `places`: new records, int8 or float32 (n, d), what they carry as the file
      has it, int32 (n, w), and the shard of each, int32 (n,).
    - `audience`: number, name and plan of a new audience.
    - `clock`: the coordinator's.
    """

    kind: str
    subjects: list[SubjectId] = field(default_factory=list)
    integers: IntegerMatrix = field(default_factory=_NO_ROWS.copy)
    rows: Ints32 = field(default_factory=_NOTHING.copy)
    places: Ints32 = field(default_factory=_NOTHING.copy)
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
            return cls(
                described["what"], described["subjects"], arrays["integers"], arrays["labels"],
                arrays["places"], described["audience"], described["turn"],
            )  # fmt: skip


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
