"""What one commit writes besides charges: answers, and where those of a request are."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass

from vicinal._arrays import AnyArray, Bools, Floats, Ints, UInts16
from vicinal.ledger._audiences import Audience
from vicinal.ledger._database import Value


@dataclass(frozen=True, slots=True)
class ReuseEntry:
    """Queries that an audience's memory learns from, with the answers of their block.

    `queries`, int8 or float32 (q, d): integer features. Public. `asked`, bool (q,): which of them
    were put to the private records.
    """

    queries: AnyArray
    asked: Bools

    def row(self, seq: int, audience: int) -> tuple[Value, ...]:
        """Return the columns of the table `lessons`.

        In base 64: whoever asks chooses the numbers, and none may look like a stored id.
        """
        return seq, audience, text_of(self.asked), text_of(self.queries)


def bytes_of(text: str) -> bytes:
    """Return the numbers of a column of `lessons` or `shadows`, little-endian."""
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
    - `answers`, float64 (q, c) or int64 (q,): what was released for each; votes that a memory has
      answered for are -inf, and 0 at its label. Beside a private model (q, 2 c): votes, then
      probabilities.
    - `slack`: what the grid has cost this audience by now.
    - `queries_of`: queries of the block by analyst.
    - `reuse_entry`: what the block adds to the answers that later queries may reuse.
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
    reuse_entry: ReuseEntry | None = None
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
