"""Stored answers, found again by query or by idempotency key, and stored components of models.

Components of private models are stored as text by name. A model is public once the charges of its
training are durable; both are written in one transaction, so a stored model is always paid for.
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
"""Length of a query's digest in bytes."""

N_ASKED = "put"
"""Name of the model component that holds the number of queries to date that the private records
answered and were charged for, because the model was uncertain."""

_MAX_CACHED_BLOCKS = 64
"""Blocks of answers that an :class:`AnswerLog` keeps in memory; the least recently used is
dropped."""

_DIGESTS_PER_QUERY = 500
"""Digests in one SQL statement, less than every database's limit of values in a statement."""


def decode_bytes(text: str) -> bytes:
    """Return the bytes of the little-endian numbers that :func:`encode_array` encoded as `text`."""
    return base64.b64decode(text)


def encode_array(numbers: AnyArray) -> str:
    """Return an array as base64 text of its little-endian bytes, without type and shape."""
    little_endian = numbers.astype(numbers.dtype.newbyteorder("<"))
    return base64.b64encode(little_endian.tobytes()).decode()


@dataclass(frozen=True, slots=True)
class AnswerBlock:
    """New answers for one audience, to be committed and released together; q queries, c classes.

    - `audience`: the charged audience.
    - `digests`: concatenated digests of the queries.
    - `answers`: released votes, float64 (q, c), or labels, int64 (q,). If votes
      are released beside a private model, float64 (q, 2 c): votes, then probabilities.
    - `slack`: delta spent to date for this audience because noise and votes are on an integer grid.
    - `n_queries_by_analyst`: number of the block's queries, by the analyst's name.
    - `proxies`, uint16 (m,) or None: used share of the virtual budget of each public reference
      point, rounded up.
    - `n_asked`: with a private model, number of queries to date that private records answered;
      else None. Public.
    """

    audience: Audience
    digests: bytes
    answers: Floats | Ints
    slack: float
    n_queries_by_analyst: Mapping[str, int]
    proxies: UInts16 | None = None
    n_asked: int | None = None

    def to_row(self, seq: int, version: int) -> tuple[Value, ...]:
        """Return the block as a row of the table `answers`.

        `seq`: number of the block, unique in the ledger. `version`: version of the queried data.
        """
        number_type = "<f8" if self.answers.ndim == 2 else "<i8"
        answers = self.answers.astype(number_type).tobytes()
        return seq, self.audience.number, version, self.digests, answers


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """A request with an idempotency key, and where its answers are stored.

    - `name`: digest of audience, analyst and idempotency key, see :func:`digest_request`.
    - `body`: digest of the queries.
    - `seqs`, int64 (q,): number of the block that holds each query's answer.
    - `places`, int64 (q,): index of the answer in that block.
    """

    name: bytes
    body: bytes
    seqs: Ints
    places: Ints

    def to_row(self) -> tuple[Value, ...]:
        """Return the request as a row of the table `requests`."""
        seqs = self.seqs.astype("<i8").tobytes()
        indices = self.places.astype("<i8").tobytes()
        return self.name, self.body, seqs, indices


def digest_queries(queries: AnyArray) -> list[bytes]:
    """Return the BLAKE2b digest of each query, 16 bytes; `queries`: integer features (q, d)."""
    rows = np.ascontiguousarray(queries)
    return [hashlib.blake2b(row, digest_size=DIGEST).digest() for row in rows]


def digest_request(audience: str, analyst: str, key: str) -> bytes:
    """Return the digest of an idempotency `key` of an analyst of an audience, 32 bytes."""
    encoded = [text.encode() for text in (audience, analyst, key)]
    return hashlib.sha256(b"".join([len(text).to_bytes(8) + text for text in encoded])).digest()


class AnswerLog:
    """The released answers of one audience, found by query or by block.

    - `database`: database of the ledger.
    - `audience`: the audience that got the answers.
    - `width`: number of float64 values in an answer, or None if an answer is one int64 label.
    - `version`: version of the data for which queries are found; answers of other versions can
      still be read by block.
    """

    def __init__(
        self, database: Database, audience: Audience, width: int | None, version: int
    ) -> None:
        self._database = database
        self._width = width
        self._cached_blocks: OrderedDict[int, AnyArray] = OrderedDict()
        self._locations: dict[bytes, tuple[int, int]] = {}
        rows = database.read(
            "SELECT seq, digests FROM answers WHERE audience = ? AND version = ?",
            (audience.number, version),
        )
        for seq, digests in rows:
            self._index_queries(seq, digests)

    def find(self, digest: bytes) -> tuple[int, int] | None:
        """Return (block number, index in the block) of the answer to a query, or None.

        `digest`: the query's digest (:func:`digest_queries`). Only answers from the version of the
        data that the log was opened for are found.
        """
        return self._locations.get(digest)

    def add_block(self, seq: int, digests: bytes, answers: AnyArray) -> None:
        """Add a block of answers that has just become durable.

        `seq`: number of the block. `digests`: concatenated digests of its queries. `answers`:
        labels, int64 (q,), or numbers, float64 (q, width).
        """
        self._index_queries(seq, digests)
        self._cache_block(seq, answers)

    def forget_queries(self) -> None:
        """Find no query from now on, as the data changed; blocks can still be read."""
        self._locations.clear()

    def read(self, seqs: Places, indices: Places) -> AnyArray:
        """Return stored answers: numbers, float64 (q, width), or labels, int64 (q,).

        `seqs`, int64 (q,): block number of each answer. `indices`, int64 (q,): its index in the
        block. Raises StoreDamaged if a block cannot be decoded.
        """
        empty = np.zeros((0, self._width)) if self._width else np.zeros(0, dtype=np.int64)
        blocks = {seq: self._load_block(seq) for seq in np.unique(seqs).tolist()}
        locations = zip(seqs.tolist(), indices.tolist(), strict=True)
        rows = [blocks[seq][index : index + 1] for seq, index in locations]
        return np.concatenate([empty, *rows])

    def _index_queries(self, seq: int, digests: bytes) -> None:
        """Add a block's queries to the index by digest; `digests`: concatenated, in order."""
        for index in range(len(digests) // DIGEST):
            digest = digests[index * DIGEST : (index + 1) * DIGEST]
            self._locations[digest] = (seq, index)

    def _load_block(self, seq: int) -> AnyArray:
        """Return the answers of a block, from memory or from the database."""
        if seq not in self._cached_blocks:
            query = "SELECT answers, digests FROM answers WHERE seq = ?"
            try:
                ((content, digests),) = self._database.read(query, (seq,))
                number_type = "<i8" if self._width is None else "<f8"
                answers = np.frombuffer(content, number_type).reshape(
                    len(digests) // DIGEST, self._width or 1
                )
                self._cache_block(seq, answers[:, 0] if self._width is None else answers)
            except (ValueError, TypeError):
                raise StoreDamaged(
                    "A stored answer is damaged. Close the store and restore a backup."
                ) from None
        self._cached_blocks.move_to_end(seq)
        return self._cached_blocks[seq]

    def _cache_block(self, seq: int, answers: AnyArray) -> None:
        """Keep a block in memory, and drop the least recently used one if there are too many."""
        self._cached_blocks[seq] = answers
        if len(self._cached_blocks) > _MAX_CACHED_BLOCKS:
            self._cached_blocks.popitem(last=False)


def load_requests(database: Database, digests: Sequence[bytes]) -> dict[bytes, StoredRequest]:
    """Return those of some requests that were answered before, by digest.

    `digests`: digests of audience, analyst and idempotency key, see :func:`digest_request`.
    """
    requests: dict[bytes, StoredRequest] = {}
    distinct = list(dict.fromkeys(digests))
    for start in range(0, len(distinct), _DIGESTS_PER_QUERY):
        batch = distinct[start : start + _DIGESTS_PER_QUERY]
        condition = f"name IN ({', '.join('?' * len(batch))})"
        for name, body, seqs_content, indices_content in database.rows(
            Tables.REQUESTS, condition, batch
        ):
            seqs = np.frombuffer(seqs_content, dtype="<i8")
            indices = np.frombuffer(indices_content, dtype="<i8")
            requests[name] = StoredRequest(name, body, seqs, indices)
    return requests


def write_components(database: Database, audience: int, components: Mapping[str, str]) -> None:
    """Write or replace components of an audience's private model, inside a transaction.

    `audience`: number of the audience. `components`: contents as text, by the component's name.
    """
    database.replace(Tables.MODELS, [(audience, *component) for component in components.items()])


def read_components(database: Database, audience: int) -> dict[str, str]:
    """Return all components, as text by name, of the model of the audience of this number."""
    rows = database.read("SELECT part, content FROM models WHERE audience = ?", (audience,))
    return {str(name): str(content) for name, content in rows}
