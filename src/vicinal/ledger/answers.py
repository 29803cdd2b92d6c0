"""Stored answers, found again by query or by idempotency key, and stored components of models.

An *idempotency key* is a text of the caller's choice: a request that repeats it gets the stored
answers. A *block* has answers that were computed and committed together.

Components of private models are stored as text by name. A model is public once the charges of its
training are durable; both are written in one transaction, so a stored model is always paid for.

`database` is the database of the ledger, `audience_number` the number of an audience in its table,
and `block_number` the number of a block, unique in it. `digests` of a block are those of its
queries (:func:`digest_queries`), concatenated, and its `answers` are numbers, float64 (q, width),
or labels, int64 (q,).
"""

import base64
import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vicinal.arrays import AnyArray, Floats, Ints, UInts16
from vicinal.errors import StoreDamaged
from vicinal.ledger.audiences import Audience
from vicinal.ledger.database import Database, Value
from vicinal.ledger.tables import Tables

DIGEST_BYTES = 16
"""Length of a query's digest."""

N_PRIVATE_QUERIES = "put"
"""Name of the model component that holds the number of queries to date that the private records
answered and were charged for, because the model was uncertain."""

_MAX_CACHED_BLOCKS = 64
"""Blocks of answers that an :class:`AnswerLog` keeps in memory; the least recently used is
dropped."""


def decode_bytes(text: str) -> bytes:
    """Return the bytes of the little-endian numbers that :func:`encode_array` encoded as `text`."""
    return base64.b64decode(text)


def encode_array(numbers: AnyArray) -> str:
    """Return `numbers`, any array, as base64 text of their little-endian bytes.

    The text has neither type nor shape.
    """
    little_endian = numbers.astype(numbers.dtype.newbyteorder("<"))
    return base64.b64encode(little_endian.tobytes()).decode()


@dataclass(frozen=True, slots=True)
class AnswerBlock:
    """New answers for one audience, to be committed and released together; q queries, c classes.

    - `audience`: the charged audience, whose analysts get the answers.
    - `answers`: released votes, float64 (q, c), or labels, int64 (q,). If votes
      are released beside a private model, float64 (q, 2 c): votes, then probabilities.
    - `slack`: delta spent to date for this audience because noise and votes are on an integer grid.
    - `n_queries_by_analyst`: number of the block's queries, by the analyst's name.
    - `proxy_shares`, uint16 (m,) or None: used share of the virtual budget of each public reference
      point, rounded up.
    - `n_private_queries`: with a private model, number of queries to date that private records
      answered; else None. Public.
    """

    audience: Audience
    digests: bytes
    answers: Floats | Ints
    slack: float
    n_queries_by_analyst: Mapping[str, int]
    proxy_shares: UInts16 | None = None
    n_private_queries: int | None = None

    def to_row(self, block_number: int, version: int) -> tuple[Value, ...]:
        """Return the block as a row of the table `answers`; `version`: that of the queried data."""
        number_type = "<f8" if self.answers.ndim == 2 else "<i8"
        answers = self.answers.astype(number_type).tobytes()
        return block_number, self.audience.number, version, self.digests, answers


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """A request with an idempotency key, and where its answers are stored.

    - `name`: digest of audience, analyst and idempotency key (:func:`digest_request`).
    - `body`: digest of the queries.
    - `block_numbers`, int64 (q,): number of the block that holds each query's answer.
    - `offsets`, int64 (q,): index of the answer in that block.
    """

    name: bytes
    body: bytes
    block_numbers: Ints
    offsets: Ints

    def to_row(self) -> tuple[Value, ...]:
        """Return the request as a row of the table `requests`; arrays as little-endian int64."""
        block_numbers = self.block_numbers.astype("<i8").tobytes()
        return self.name, self.body, block_numbers, self.offsets.astype("<i8").tobytes()


def digest_queries(queries: AnyArray) -> list[bytes]:
    """Return the BLAKE2b digest of each query, 16 bytes; `queries`: integer features (q, d)."""
    rows = np.ascontiguousarray(queries)
    return [hashlib.blake2b(row, digest_size=DIGEST_BYTES).digest() for row in rows]


def digest_request(audience: str, analyst: str, key: str) -> bytes:
    """Return the digest of a request with an idempotency key, 32 bytes.

    `audience`, `analyst`: their names. `key`: the idempotency key.
    """
    encoded = [text.encode() for text in (audience, analyst, key)]
    return hashlib.sha256(b"".join([len(text).to_bytes(8) + text for text in encoded])).digest()


class AnswerLog:
    """The released answers of one audience, found by query or by block.

    - `audience`: the audience that got the answers.
    - `width`: number of float64 values in an answer, or None if an answer is one int64 label.
    - `version`: version of the data for which queries are found; answers of other versions can
      still be read by block.

    An answer's location is the number of its block and its offset, the index in the block.
    """

    def __init__(
        self, database: Database, audience: Audience, width: int | None, version: int
    ) -> None:
        self._database = database
        self._width = width
        self._cached_blocks: OrderedDict[int, AnyArray] = OrderedDict()
        self._locations: dict[bytes, tuple[int, int]] = {}
        self._indexed_blocks: set[int] = set()
        rows = database.read(
            "SELECT seq, digests FROM answers WHERE audience = ? AND version = ?",
            (audience.number, version),
        )
        for block_number, digests in rows:
            self._index_queries(block_number, digests)

    def find_answer(self, digest: bytes) -> tuple[int, int] | None:
        """Return the location of the answer to the query with this digest, or None.

        Only answers of the log's version are found.
        """
        return self._locations.get(digest)

    def are_current(self, block_numbers: Ints) -> bool:
        """Return whether all blocks of these numbers, int64 (q,), are of the log's version."""
        return self._indexed_blocks.issuperset(block_numbers.tolist())

    def add_block(self, block_number: int, digests: bytes, answers: AnyArray) -> None:
        """Add a block of answers that has just become durable."""
        self._index_queries(block_number, digests)
        self._cache_block(block_number, answers)

    def forget_queries(self) -> None:
        """Empty the index of queries, because the data changed; blocks can still be read."""
        self._locations.clear()
        self._indexed_blocks.clear()

    def read_answers(self, block_numbers: Ints, offsets: Ints) -> AnyArray:
        """Return the answers at q locations, given by `block_numbers` and `offsets`, int64 (q,).

        Raises StoreDamaged if a block cannot be decoded.
        """
        empty = np.zeros((0, self._width)) if self._width else np.zeros(0, dtype=np.int64)
        blocks = {number: self._load_block(number) for number in np.unique(block_numbers).tolist()}
        locations = zip(block_numbers.tolist(), offsets.tolist(), strict=True)
        rows = [blocks[number][offset : offset + 1] for number, offset in locations]
        return np.concatenate([empty, *rows])

    def _index_queries(self, block_number: int, digests: bytes) -> None:
        """Add the queries of a block to the index of queries."""
        self._indexed_blocks.add(block_number)
        for offset in range(len(digests) // DIGEST_BYTES):
            digest = digests[offset * DIGEST_BYTES : (offset + 1) * DIGEST_BYTES]
            self._locations[digest] = (block_number, offset)

    def _load_block(self, block_number: int) -> AnyArray:
        """Return a block's answers from memory or database."""
        if block_number not in self._cached_blocks:
            query = "SELECT answers, digests FROM answers WHERE seq = ?"
            try:
                ((content, digests),) = self._database.read(query, (block_number,))
                number_type = "<i8" if self._width is None else "<f8"
                answers = np.frombuffer(content, number_type).reshape(
                    len(digests) // DIGEST_BYTES, self._width or 1
                )
                self._cache_block(block_number, answers[:, 0] if self._width is None else answers)
            except (ValueError, TypeError):
                raise StoreDamaged(
                    "A stored answer is damaged. Close the store and restore a backup."
                ) from None
        self._cached_blocks.move_to_end(block_number)
        return self._cached_blocks[block_number]

    def _cache_block(self, block_number: int, answers: AnyArray) -> None:
        """Keep a block's answers in memory; above the limit, drop the least recently used block."""
        self._cached_blocks[block_number] = answers
        if len(self._cached_blocks) > _MAX_CACHED_BLOCKS:
            self._cached_blocks.popitem(last=False)


def load_requests(database: Database, digests: Sequence[bytes]) -> dict[bytes, StoredRequest]:
    """Return the stored requests with these digests, by digest; new requests are left out.

    `digests`: 32 bytes each, from :func:`digest_request`.
    """
    requests: dict[bytes, StoredRequest] = {}
    distinct = list(dict.fromkeys(digests))
    for name, body, *locations in database.iterate_matches(Tables.REQUESTS, "name", distinct):
        block_numbers, offsets = (np.frombuffer(content, dtype="<i8") for content in locations)
        requests[name] = StoredRequest(name, body, block_numbers, offsets)
    return requests


def write_components(
    database: Database, audience_number: int, components: Mapping[str, str]
) -> None:
    """Write or replace components of an audience's private model, inside a transaction.

    `components`: contents as text, by the component's name.
    """
    rows = [(audience_number, *component) for component in components.items()]
    database.replace(Tables.MODELS, rows)


def read_components(database: Database, audience_number: int) -> dict[str, str]:
    """Return all components of an audience's private model, as text by name."""
    rows = database.read("SELECT part, content FROM models WHERE audience = ?", (audience_number,))
    return {str(name): str(content) for name, content in rows}
