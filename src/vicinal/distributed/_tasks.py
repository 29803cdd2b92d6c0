"""What a coordinator asks of a shard besides votes: whom it knows, changes, and care.

Tasks of a change carry the turn that the coordinator's ledger gave it: a shard makes each change
once, in their order, however often it is told. What comes back is private.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from vicinal._checks import SubjectId
from vicinal.neighbours._integer_features import IntegerMatrix
from vicinal.store import Verification

if TYPE_CHECKING:
    from vicinal.distributed._membership import ShardState
    from vicinal.distributed._shard_server import ShardServer

UNKNOWN, LEFT, HERE = 0, 1, 2
"""What a shard knows of a subject."""


class Task(Protocol):
    """Something that a shard does, and may be told to do again."""

    def done_by(self, keeper: ShardServer) -> Any:
        """Do it, and return what comes of it."""


@dataclass(frozen=True, slots=True)
class Join:
    """Become a shard of a cluster, as :meth:`ShardServer.join`; sent without a message."""

    cluster: str
    number: int

    def done_by(self, keeper: ShardServer) -> tuple[str, ShardState]:
        """Return the shard's id and how far it is."""
        return keeper.join(self.cluster, self.number)


@dataclass(frozen=True, slots=True)
class Ping:
    """Tell whether the shard can be opened and answers."""

    def done_by(self, keeper: ShardServer) -> bool:
        """Return True: whoever gets here is well."""
        return keeper.is_consistent


@dataclass(frozen=True, slots=True)
class KnownSubjects:
    """Tell, for each of some subjects: :data:`UNKNOWN`, :data:`LEFT` or :data:`HERE`."""

    subjects: Sequence[SubjectId]

    def done_by(self, keeper: ShardServer) -> npt.NDArray[np.int8]:
        """Return int8 (subjects,)."""
        return keeper.known(self.subjects)


@dataclass(frozen=True, slots=True, eq=False)
class Add:
    """Add records, as :meth:`ShardServer.add`."""

    turn: int
    integers: IntegerMatrix
    labels: npt.NDArray[np.int32]
    subjects: list[SubjectId]

    def done_by(self, keeper: ShardServer) -> None:
        """Add them."""
        keeper.add(self.turn, self.integers, self.labels, self.subjects)


@dataclass(frozen=True, slots=True)
class Erase:
    """Erase subjects, as :meth:`ShardServer.erase`."""

    turn: int
    subjects: list[SubjectId]

    def done_by(self, keeper: ShardServer) -> int:
        """Return how many records went."""
        return keeper.erase(self.turn, self.subjects)


@dataclass(frozen=True, slots=True)
class OpenAudience:
    """Give everybody on the shard a further budget, as :meth:`ShardServer.open_audience`."""

    turn: int
    number: int
    name: str
    plan: str

    def done_by(self, keeper: ShardServer) -> None:
        """Open it."""
        keeper.open_audience(self.turn, self.number, self.name, self.plan)


@dataclass(frozen=True, slots=True, eq=False)
class Verify:
    """Check every invariant on the shard's disk."""

    erased: Sequence[SubjectId] = ()
    rows: npt.NDArray[Any] | None = None

    def done_by(self, keeper: ShardServer) -> Verification:
        """Return what was found."""
        return keeper.verify(self.erased, self.rows)


@dataclass(frozen=True, slots=True)
class Facts:
    """Tell what only a curator may know."""

    def done_by(self, keeper: ShardServer) -> dict[str, Any]:
        """Return it as plain values."""
        return keeper.facts()


@dataclass(frozen=True, slots=True)
class Backup:
    """Write a backup into a new folder, on the machine of the shard."""

    path: Path

    def done_by(self, keeper: ShardServer) -> None:
        """Write it."""
        keeper.backup(self.path)
