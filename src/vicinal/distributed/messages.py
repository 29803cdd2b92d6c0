"""What travels between coordinator and shard: tasks, the message around each, and the answer.

All of it is plain data. Every message says for which shard of which cluster it is, and where the
coordinator saw that shard last; every answer shows how the shard's chain went on from there. So a
folder that is in the wrong place, an old copy, or a copy that ran elsewhere is refused at its first
message, by one of the two. A task may be sent as often as one likes: a shard charges a block once
and makes a change once. What comes back is private; queries, radii and noise scales are public.

A new type of task is a class here, listed in :data:`Task`, and a case in ``ShardServer.do``.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from vicinal.arrays import AnyArray, Floats, Ints32, Steps
from vicinal.checks import SubjectId
from vicinal.ledger.database import ChainLink, Database
from vicinal.neighbours.kernels import IntegerMatrix

VOTES, TALLY, GRADIENT = "votes", "tally", "gradient"
"""Rounds: the votes of all neighbours; what the subjects of an evaluation add; what those add whom
a private model is trained on."""

_NAME_BYTES = 16


# ---------------------------------------------------------------- votes


@dataclass(frozen=True, slots=True, eq=False)
class NamedRequest(ABC):
    """What a shard charges and sums, once for each name and round.

    - `name`: however often it comes, it is charged once.
    - `clock`: the coordinator's clock when it made the request.
    - `audience`: whose budgets pay.
    """

    name: bytes
    clock: int
    audience: str
    round: ClassVar[str]

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of what comes back, -1 for what the request does not tell."""

    @abstractmethod
    def digest(self) -> bytes:
        """Return a digest of everything that charges follow from."""

    def _digest(self, *parts: bytes) -> bytes:
        own = self.name, self.clock.to_bytes(8), self.audience.encode(), self.round.encode()
        return _digest([*own, *parts])


@dataclass(frozen=True, slots=True, eq=False)
class VoteRequest(NamedRequest):
    """A query block; answered with int64 (q, c) votes in grid steps.

    - `queries`, int8 or float32 (q, d): integer features.
    - `thresholds`, int64 (q,): radii as similarities.
    - `scales`, int64 (q,): noise scales of the votes in grid steps.
    - `sequence`: place of the block in the order of charges since the coordinator was opened. A
      shard charges no block after one of a higher place; a block that comes again keeps its name.
    """

    round = VOTES
    queries: IntegerMatrix
    thresholds: Steps
    scales: Steps
    sequence: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self.queries), -1

    def digest(self) -> bytes:
        return self._digest(*_content(self.queries, self.thresholds, self.scales))


@dataclass(frozen=True, slots=True, eq=False)
class TallyRequest(NamedRequest):
    """Charge subjects of this shard for being evaluated; answered with int64 (all cells,) sums.

    The name follows from everything in it, by a keyed digest.

    - `sizes`: cells of each table.
    - `share`: part of a full budget that a subject pays at most.
    - `scale`: noise scale in grid steps, which the price follows from.
    - `cells`, int64 (rows, tables): the cell of every row in every table. Private.
    - `subjects`: whose each row is. Private.
    """

    round = TALLY
    sizes: tuple[int, ...]
    share: float
    scale: int
    cells: Steps
    subjects: list[SubjectId]

    @property
    def shape(self) -> tuple[int, ...]:
        return (sum(self.sizes),)

    def digest(self) -> bytes:
        """Return a digest of what is public, and of the name, which the rest follows from."""
        return self._digest(f"{self.sizes} {self.share!r} {self.scale}".encode())


@dataclass(frozen=True, slots=True, eq=False)
class GradientRequest(NamedRequest):
    """One step of a private model's training; answered with int64 (D, c) sums in grid steps.

    - `scale`: noise scale in grid steps, which the price follows from.
    - `weights`, float64 (D, c): the model's as they are now; public.
    """

    round = GRADIENT
    scale: int
    weights: Floats

    @property
    def shape(self) -> tuple[int, ...]:
        return self.weights.shape

    def digest(self) -> bytes:
        return self._digest(str(self.scale).encode(), *_content(self.weights))


SumRequest = VoteRequest | TallyRequest | GradientRequest
"""Every kind of request that is charged."""


def _content(*arrays: AnyArray) -> Iterator[bytes]:
    for array in arrays:
        yield f"{array.dtype} {array.shape}".encode()
        yield array.tobytes()


def joined_parts(parts: Iterable[bytes]) -> bytes:
    """Return parts in one, from which each can be told."""
    return b"".join(len(part).to_bytes(8) + part for part in parts)


def _digest(parts: Iterable[bytes]) -> bytes:
    return hashlib.sha256(joined_parts(parts)).digest()


def block_name(*parts: bytes) -> bytes:
    """Return the name of a block that is made of these parts."""
    return hashlib.blake2b(joined_parts(parts), digest_size=_NAME_BYTES).digest()


@dataclass(frozen=True, slots=True)
class DeleteVotes:
    """Delete the votes of all blocks before `clock`: their answers are durable."""

    clock: int


# ---------------------------------------------------------------- changes, in the order of clocks


@dataclass(frozen=True, slots=True, eq=False)
class Add:
    """Add records: int8 or float32 (n, d), what they carry as int32 (n, w), and n ids."""

    clock: int
    integers: IntegerMatrix
    rows: Ints32
    subjects: list[SubjectId]


@dataclass(frozen=True, slots=True)
class Erase:
    """Erase subjects; answered with the number of records that went."""

    clock: int
    subjects: list[SubjectId]


@dataclass(frozen=True, slots=True)
class SetAudience:
    """Give every subject a further budget, if the audience is new, and have its plan and model.

    Both are the coordinator's. `model`: parts of it, fewer while shards are yet to train it.
    """

    clock: int
    number: int
    name: str
    plan: str
    model: Mapping[str, str]


# ---------------------------------------------------------------- care


@dataclass(frozen=True, slots=True)
class Ping:
    """Answer, if the shard can be opened."""


@dataclass(frozen=True, slots=True)
class KnownSubjects:
    """Say of each subject its standing in the ledger; answered with int8 (subjects,)."""

    subjects: Sequence[SubjectId]


@dataclass(frozen=True, slots=True)
class AlikeSubjects:
    """Say which unknown subjects are known, or twice among these, once folded: their ids."""

    subjects: Sequence[SubjectId]


@dataclass(frozen=True, slots=True, eq=False)
class Verify:
    """Check every invariant on the shard's disk; answered with a Verification."""

    erased: Sequence[SubjectId] = ()
    rows: AnyArray | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """Return what only a curator may know, as plain values."""


@dataclass(frozen=True, slots=True)
class Backup:
    """Write a backup into a new folder, on the machine of the shard."""

    path: Path


Task = (
    SumRequest | DeleteVotes
    | Add | Erase | SetAudience
    | Ping | KnownSubjects | AlikeSubjects | Verify | Facts | Backup
)  # fmt: skip
"""What a shard does."""


# ---------------------------------------------------------------- what is around a task


@dataclass(frozen=True, slots=True)
class ShardState:
    """How far a shard's ledger is: number, clock and head of its chain's last link. Private."""

    link: int
    clock: int
    head: bytes

    @classmethod
    def of(cls, database: Database) -> Self:
        """Return the state of an open ledger."""
        assert database.chain is not None  # noqa: S101 (it is open)
        last = database.chain.last
        return cls(last.number, last.clock, last.head)


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """A task for one shard.

    - `task`: what to do.
    - `cluster`, `shard`: ids of the cluster and of the shard, in hexadecimal digits.
    - `number`: the shard's place.
    - `clock`: the coordinator's clock.
    - `epochs`: the coordinator's epochs since the shard last answered, this opening's last.
    - `known`: where the coordinator saw the shard last.
    - `reading`: whether the coordinator only reads; then the shard writes nothing either.
    """

    task: Task
    cluster: str
    shard: str
    number: int
    clock: int
    epochs: tuple[bytes, ...]
    known: ShardState
    reading: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ShardAnswer:
    """What came of a task, and the links of the shard's chain since it was seen last; private."""

    value: Any
    links: tuple[ChainLink, ...]
