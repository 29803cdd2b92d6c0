"""The protocol between coordinator and shards: tasks, messages and answers, all plain data.

Every message names the cluster, the shard and the last state of the shard that the coordinator has
seen. Every answer carries the links of the shard's hash chain since that state. One of the two
sides therefore refuses a misplaced folder, an old copy, or a copy that ran elsewhere, at the first
message. A task may be sent repeatedly: a shard charges a block once and makes a change once.
Answers are private; queries, radii and noise scales are public. The coordinator's *clock* counts
its blocks of answers, changes and other releases. Subjects are denoted by their ids.

A new type of task is a class here, listed in :data:`Task`, and a case in ``ShardServer.run_task``.
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

VOTES, EVALUATION, GRADIENT = "votes", "tally", "gradient"
"""Kinds of sums that a shard returns: of the neighbours' votes for a query block; of the subjects'
contributions to an evaluation (stored as "tally" by all releases); of the training subjects'
clipped gradients."""

_NAME_BYTES = 16  # length of a request's name in bytes, a BLAKE2b digest of 128 bits


@dataclass(frozen=True, slots=True, eq=False)
class NamedRequest(ABC):
    """A request for a private sum, which a shard charges once for each name and kind of sum."""

    name: bytes  # identifies the request, 16 bytes
    clock: int  # the coordinator's clock at the request
    audience: str  # name of the audience that is charged
    sum_kind: ClassVar[str]  # VOTES, EVALUATION or GRADIENT

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of the returned sum, with -1 for a length that the request does not determine."""

    @abstractmethod
    def compute_digest(self) -> bytes:
        """Return a SHA-256 digest of every value that determines the charges."""

    def _hash_fields(self, *contents: bytes) -> bytes:
        """Return the SHA-256 of the four fields above and `contents`, the subclass's own fields."""
        clock = self.clock.to_bytes(8)
        header = [self.name, clock, self.audience.encode(), self.sum_kind.encode()]
        return hashlib.sha256(join_with_lengths([*header, *contents])).digest()


@dataclass(frozen=True, slots=True, eq=False)
class VoteRequest(NamedRequest):
    """A request to charge a query block; answered with int64 (q, c) votes in grid steps.

    The blocks since the coordinator was opened have a `sequence` number, in the order of charges. A
    shard refuses a new block whose number is lower than that of the last charged one. A repeated
    block keeps its name and may have any number.
    """

    sum_kind = VOTES
    queries: IntegerMatrix  # int8 or float32 (q, d): integer features
    thresholds: Steps  # int64 (q,): radii, as smallest similarities of a neighbour
    scales: Steps  # int64 (q,): noise scales of the votes in grid steps
    sequence: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape (q, -1) of the votes: the number of classes c is not in the request."""
        return len(self.queries), -1

    def compute_digest(self) -> bytes:
        """Return a digest of the fields of every request, queries, thresholds and scales."""
        return self._hash_fields(*_frame_arrays(self.queries, self.thresholds, self.scales))


@dataclass(frozen=True, slots=True, eq=False)
class EvaluationRequest(NamedRequest):
    """A request to charge subjects for an evaluation; answered with int64 sums of all cells.

    An evaluation counts labelled rows in the cells of several tables. The name is a keyed digest of
    all other fields.
    """

    sum_kind = EVALUATION
    sizes: tuple[int, ...]  # number of cells of each table
    share: float  # largest share of a full budget that a subject is charged
    scale: int  # noise scale in grid steps, which determines the charge
    cells: Steps  # int64 (rows, tables): index of the cell of every row in every table; private
    subjects: list[SubjectId]  # the subject of each row; private

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the sums: one entry per cell, table after table."""
        return (sum(self.sizes),)

    def compute_digest(self) -> bytes:
        """Return a digest of the public fields and the name, which covers the private ones."""
        return self._hash_fields(f"{self.sizes} {self.share!r} {self.scale}".encode())


@dataclass(frozen=True, slots=True, eq=False)
class GradientRequest(NamedRequest):
    """A request for a private model's gradient; answered with int64 (D, c) sums in grid steps.

    D is the number of the model's features, c that of its scores.
    """

    sum_kind = GRADIENT
    scale: int  # noise scale in grid steps, which determines the charge
    weights: Floats  # float64 (D, c): the current weights of the model; public

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the gradient, that of the weights."""
        return self.weights.shape

    def compute_digest(self) -> bytes:
        """Return a digest of the fields of every request, the noise scale and the weights."""
        return self._hash_fields(str(self.scale).encode(), *_frame_arrays(self.weights))


SumRequest = VoteRequest | EvaluationRequest | GradientRequest
"""All types of requests that are charged."""


def _frame_arrays(*arrays: AnyArray) -> Iterator[bytes]:
    """Yield type and shape, then content, of each array, so that equal bytes mean equal arrays."""
    for array in arrays:
        yield f"{array.dtype} {array.shape}".encode()
        yield array.tobytes()


def join_with_lengths(contents: Iterable[bytes]) -> bytes:
    """Return an injective encoding of `contents`: each string follows its length in 8 bytes."""
    return b"".join(len(content).to_bytes(8) + content for content in contents)


def create_request_name(*contents: bytes) -> bytes:
    """Return the name of a request, 16 bytes: a digest of its fields, the strings `contents`."""
    return hashlib.blake2b(join_with_lengths(contents), digest_size=_NAME_BYTES).digest()


@dataclass(frozen=True, slots=True)
class DeleteSums:
    """Delete the sums of all requests with an earlier clock: their answers are durable."""

    clock: int


@dataclass(frozen=True, slots=True, eq=False)
class Add:
    """Add records; as in the next two classes, `clock` is the coordinator's clock of the change."""

    clock: int
    integers: IntegerMatrix  # int8 or float32 (n, d): integer features
    rows: Ints32  # int32 (n, w): targets as they are stored
    subjects: list[SubjectId]  # the subject of each record


@dataclass(frozen=True, slots=True)
class Erase:
    """Erase subjects; answered with the number of erased records."""

    clock: int
    subjects: list[SubjectId]


@dataclass(frozen=True, slots=True)
class SetAudience:
    """Set plan and model of an audience; a new audience also gives every subject a budget."""

    clock: int
    number: int  # number and name of the audience in the coordinator's ledger
    name: str
    plan: str  # as JSON
    model: Mapping[str, str]  # stored entries of its private model by name, perhaps incomplete


@dataclass(frozen=True, slots=True)
class Ping:
    """Answer with None if the shard can be opened."""


@dataclass(frozen=True, slots=True)
class SubjectStatuses:
    """Look up each subject's enrolment status; answered with int8 (subjects,).

    The values are those of ``EnrollmentStatus``: 0 for a subject that the shard has never had,
    positive for an evaluated, erased or enrolled one.
    """

    subjects: Sequence[SubjectId]


@dataclass(frozen=True, slots=True)
class SimilarSubjects:
    """Answer with the unknown ids that differ from known or other ids in spelling only."""

    subjects: Sequence[SubjectId]


@dataclass(frozen=True, slots=True, eq=False)
class Verify:
    """Check every invariant on the shard's disk; answered with a ``Verification``.

    `erased`: subjects of which no trace may remain. `rows`: integer features (n, d) of erased
    records, of which no copy may remain; None for none.
    """

    erased: Sequence[SubjectId] = ()
    rows: AnyArray | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """Report the facts that only a curator may see; answered with a dictionary of plain values."""


@dataclass(frozen=True, slots=True)
class Backup:
    """Write a backup into a new folder, on the machine of the shard."""

    path: Path


Task = (
    SumRequest
    | DeleteSums
    | Add
    | Erase
    | SetAudience
    | Ping
    | SubjectStatuses
    | SimilarSubjects
    | Verify
    | Facts
    | Backup
)
"""All types of tasks of a shard."""


@dataclass(frozen=True, slots=True)
class ShardState:
    """The last link of the hash chain of a shard's ledger; private."""

    link: int  # number of the link
    clock: int  # the clock of the shard's own ledger, not the coordinator's
    head: bytes  # digest of the chain

    @classmethod
    def from_database(cls, database: Database) -> Self:
        """Return the current state of the open ledger in `database`."""
        assert database.chain is not None  # noqa: S101 (it is open)
        last = database.chain.last
        return cls(last.number, last.clock, last.head)


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """A task for one shard, with the identities that the shard checks."""

    task: Task
    cluster: str  # id of the cluster, in hexadecimal digits
    shard: str  # id of the shard's folder, in hexadecimal digits
    number: int  # number of the shard in the cluster, from 0
    clock: int  # the coordinator's clock
    epochs: tuple[bytes, ...]  # of the coordinator since the shard last answered; current one last
    last_seen: ShardState  # state of the shard at its last answer
    read_only: bool = False  # whether the coordinator only reads; then the shard writes nothing


@dataclass(frozen=True, slots=True, eq=False)
class ShardAnswer:
    """The result of a task, and the chain links of the shard since its last seen state; private."""

    value: Any
    links: tuple[ChainLink, ...]
