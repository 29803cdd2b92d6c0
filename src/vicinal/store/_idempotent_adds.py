"""Idempotency keys of records: sent again, they are added once.

What is kept of a request is a keyed digest of its records, which only tells whether another request
is the same. An erasure forgets all of them, as one could confirm a guess of who was erased; the
keys themselves stay used, so that a late repetition cannot bring anybody back.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Self

from vicinal.errors import KeyReused
from vicinal.ledger._answers import request_name
from vicinal.ledger._database import Database
from vicinal.ledger._id_encoding import framed_all
from vicinal.ledger._ledger import Ledger
from vicinal.store._records import StoredRecords

_NO_AUDIENCE = ""
FORGOTTEN = b""
"""In place of a digest of records, after an erasure."""


@dataclass(frozen=True, slots=True)
class Addition:
    """A request to add records, with an idempotency key.

    `name`, `body`: digest of curator and key; keyed digest of the records.
    """

    name: bytes
    body: bytes

    @classmethod
    def of(cls, ledger: Ledger, curator: str, key: str, records: StoredRecords) -> Self:
        """Return the request that adds these records."""
        ids = records.ids
        people = b"everyone new" if ids is None else b"".join(framed_all(ids))
        content = hashlib.sha256(str(records.integers.shape).encode())
        for part in (records.integers.tobytes(), records.rows.tobytes(), people):
            content.update(part)
        # No audience has an empty name, so no key for answers has this digest.
        name = request_name(_NO_AUDIENCE, curator, key)
        return cls(name, ledger.keyed_digest(content.digest()))

    def done(self, database: Database) -> int | None:
        """Return the version of the data that it made; None if it is new.

        Raises KeyReused if the key was used for other records, or people were erased since.
        """
        rows = database.execute("SELECT body, version FROM additions WHERE name = ?", (self.name,))
        if not rows:
            return None
        body, version = rows[0]
        if body != self.body:
            raise KeyReused(
                "The 'idempotency_key' parameter must be new for new records. It was used for "
                "others, or somebody was erased since; the history tells when records were added."
            )
        return int(version)

    def write(self, database: Database, version: int) -> None:
        """Put it on record, in the transaction that adds the records."""
        database.execute(
            "INSERT INTO additions (name, body, version) VALUES (?, ?, ?)",
            (self.name, self.body, version),
        )


def forget_additions(database: Database) -> None:
    """Forget what was added under which key, inside an erasure's transaction."""
    database.execute("UPDATE additions SET body = ?", (FORGOTTEN,))
