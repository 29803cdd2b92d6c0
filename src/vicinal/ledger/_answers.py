"""Answers that were released: found again by query, or by idempotency key."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from vicinal._arrays import AnyArray, Places
from vicinal.errors import StoreDamaged
from vicinal.ledger._audiences import Audience
from vicinal.ledger._database import Database

DIGEST = 16
"""Bytes of a query's digest."""

KnownRequest = tuple[bytes, Places, Places]
"""Body of a request, and block and place of each of its answers."""

_KEPT = 64
_AT_ONCE = 500
"""Names in one statement, below what any database takes."""


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
                self._keep(seq, self._unpacked(content, len(digests) // DIGEST))
            except (ValueError, TypeError):
                raise StoreDamaged(
                    "A stored answer is damaged. Close the store and restore a backup."
                ) from None
        self._recent.move_to_end(seq)
        return self._recent[seq]

    def _unpacked(self, content: bytes, size: int) -> AnyArray:
        if self._width is None:
            return np.frombuffer(content, dtype="<i8")
        return np.frombuffer(content, dtype="<f8").reshape(size, self._width)

    def _keep(self, seq: int, answers: AnyArray) -> None:
        self._recent[seq] = answers
        if len(self._recent) > _KEPT:
            self._recent.popitem(last=False)


def stored_requests(database: Database, names: Sequence[bytes]) -> dict[bytes, KnownRequest]:
    """Return body, blocks and places of those requests that were answered before, by name."""
    requests: dict[bytes, KnownRequest] = {}
    distinct = list(dict.fromkeys(names))
    for start in range(0, len(distinct), _AT_ONCE):
        part = distinct[start : start + _AT_ONCE]
        marks = ", ".join("?" * len(part))
        rows = database.read(
            f"SELECT name, body, seqs, places FROM requests WHERE name IN ({marks})",  # noqa: S608
            part,
        )
        for name, body, seqs, places in rows:
            where = (np.frombuffer(column, dtype="<i8") for column in (seqs, places))
            requests[bytes(name)] = bytes(body), next(where), next(where)
    return requests
