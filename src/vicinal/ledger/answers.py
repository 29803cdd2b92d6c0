"""What a commit writes besides charges: answers, found again by query or by idempotency key.

And what private models are made of, in text, part by part. A model is public once what its training
charged is durable; both are written in one transaction, so there is no model without its charges.
"""

import base64
import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vicinal.arrays import AnyArray, Floats, Ints, Places, UInts16
from vicinal.errors import StoreDamaged
from vicinal.ledger.audiences import Audience
from vicinal.ledger.database import Database, Value
from vicinal.ledger.tables import Tables

DIGEST = 16
"""Bytes of a query's digest."""

PUT = "put"
"""The part of a model that says how many queries it has put to the private records."""

_KEPT = 64
_AT_ONCE = 500
"""Names in one statement, below what any database takes."""


def bytes_of(text: str) -> bytes:
    """Return the numbers of a column of `models` or `shadows`, little-endian."""
    return base64.b64decode(text)


def text_of(numbers: AnyArray) -> str:
    """Return what :func:`bytes_of` returns the bytes of."""
    little = numbers.astype(numbers.dtype.newbyteorder("<"))
    return base64.b64encode(little.tobytes()).decode()


@dataclass(frozen=True, slots=True)
class AnswerBlock:
    """Answers of one audience that are to be released together.

    - `audience`: whose account was charged.
    - `digests`: digests of the queries, one after the other.
    - `answers`, float64 (q, c) or int64 (q,): what was released for each. Beside a private model
      (q, 2 c): votes, then probabilities.
    - `slack`: what the grid has cost this audience by now.
    - `queries_of`: queries of the block by analyst.
    - `proxies`, uint16 (m,) or None: how far the public points that are charged along are worn by
      now.
    - `n_asked`: beside a private model: how many queries it has put to the private records by now.
      Public.
    """

    audience: Audience
    digests: bytes
    answers: Floats | Ints
    slack: float
    queries_of: Mapping[str, int]
    proxies: UInts16 | None = None
    n_asked: int | None = None

    def row(self, seq: int, version: int) -> tuple[Value, ...]:
        """Return the columns of the table `answers`."""
        kind = "<f8" if self.answers.ndim == 2 else "<i8"
        answers = self.answers.astype(kind).tobytes()
        return seq, self.audience.number, version, self.digests, answers


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """A request with an idempotency key, and where its answers are.

    `name`, `body`: digests of audience, analyst and key, and of the queries. `seqs`, `places`,
    int64 (q,): the block that holds the answer to each query, and its place in that block.
    """

    name: bytes
    body: bytes
    seqs: Ints
    places: Ints

    def row(self) -> tuple[Value, ...]:
        """Return the columns of the table `requests`."""
        seqs, places = (part.astype("<i8").tobytes() for part in (self.seqs, self.places))
        return self.name, self.body, seqs, places


def digests_of(queries: AnyArray) -> list[bytes]:
    """Return a digest of every row of integer features."""
    rows = np.ascontiguousarray(queries)
    return [hashlib.blake2b(row, digest_size=DIGEST).digest() for row in rows]


def request_name(audience: str, analyst: str, key: str) -> bytes:
    """Return the digest under which a request with an idempotency key is stored."""
    parts = [part.encode() for part in (audience, analyst, key)]
    return hashlib.sha256(b"".join([len(p).to_bytes(8) + p for p in parts])).digest()


class AnswerLog:
    """Reads released answers of one audience, of a `width`; None for a label.

    Queries are looked up for one `version` of the data.
    """

    def __init__(
        self, database: Database, audience: Audience, width: int | None, version: int
    ) -> None:
        self._database = database
        self._width = width
        self._recent: OrderedDict[int, AnyArray] = OrderedDict()
        self._place_of: dict[bytes, tuple[int, int]] = {}
        rows = database.read(
            "SELECT seq, digests FROM answers WHERE audience = ? AND version = ?",
            (audience.number, version),
        )
        for seq, digests in rows:
            self._index(seq, digests)

    def find(self, digest: bytes) -> tuple[int, int] | None:
        """Return block and place of the answer to a query of the present version, or None."""
        return self._place_of.get(digest)

    def enter(self, seq: int, digests: bytes, answers: AnyArray) -> None:
        """Take note of a block that has just become durable."""
        self._index(seq, digests)
        self._keep(seq, answers)

    def forget_queries(self) -> None:
        """Look up nothing of earlier versions any more; idempotency keys still find them."""
        self._place_of.clear()

    def read(self, seqs: Places, places: Places) -> AnyArray:
        """Return stored answers: numbers, float64 (q, width), or labels, int64 (q,)."""
        empty = np.zeros((0, self._width)) if self._width else np.zeros(0, dtype=np.int64)
        blocks = {seq: self._block(seq) for seq in np.unique(seqs).tolist()}
        pairs = zip(seqs.tolist(), places.tolist(), strict=True)
        rows = [blocks[seq][place : place + 1] for seq, place in pairs]
        return np.concatenate([empty, *rows])

    def _index(self, seq: int, digests: bytes) -> None:
        for place in range(len(digests) // DIGEST):
            self._place_of[digests[place * DIGEST : (place + 1) * DIGEST]] = (seq, place)

    def _block(self, seq: int) -> AnyArray:
        if seq not in self._recent:
            query = "SELECT answers, digests FROM answers WHERE seq = ?"
            try:
                ((content, digests),) = self._database.read(query, (seq,))
                kind = "<i8" if self._width is None else "<f8"
                answers = np.frombuffer(content, kind).reshape(
                    len(digests) // DIGEST, self._width or 1
                )
                self._keep(seq, answers[:, 0] if self._width is None else answers)
            except (ValueError, TypeError):
                raise StoreDamaged(
                    "A stored answer is damaged. Close the store and restore a backup."
                ) from None
        self._recent.move_to_end(seq)
        return self._recent[seq]

    def _keep(self, seq: int, answers: AnyArray) -> None:
        self._recent[seq] = answers
        if len(self._recent) > _KEPT:
            self._recent.popitem(last=False)


def stored_requests(database: Database, names: Sequence[bytes]) -> dict[bytes, StoredRequest]:
    """Return those requests that were answered before, by name."""
    requests: dict[bytes, StoredRequest] = {}
    distinct = list(dict.fromkeys(names))
    for start in range(0, len(distinct), _AT_ONCE):
        part = distinct[start : start + _AT_ONCE]
        chosen = f"name IN ({', '.join('?' * len(part))})"
        for name, body, seqs, places in database.rows(Tables.REQUESTS, chosen, part):
            where = (np.frombuffer(column, dtype="<i8") for column in (seqs, places))
            requests[name] = StoredRequest(name, body, *where)
    return requests


def write_parts(database: Database, audience: int, parts: Mapping[str, str]) -> None:
    """Write parts of an audience's model, inside a transaction."""
    database.replace(Tables.MODELS, [(audience, *part) for part in parts.items()])


def read_parts(database: Database, audience: int) -> dict[str, str]:
    """Return all parts of an audience's model by name; none where it has no model."""
    rows = database.read("SELECT part, content FROM models WHERE audience = ?", (audience,))
    return {str(part): str(content) for part, content in rows}
