"""What is left to those who left, by keyed hash."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from vicinal.ledger._database import Database
from vicinal.ledger._protocols import Turn
from vicinal.ledger._tables import DEPARTED

_AT_ONCE = 256
"""Hashes that are looked up in one statement."""

EVALUATED = -1
"""In place of an audience's number: whoever has such a row never had records here."""


class Standing(IntEnum):
    """How a ledger knows a subject: not at all, by evaluations only, by records it had, or has."""

    UNKNOWN = 0
    EVALUATED = 1
    ERASED = 2
    ENROLLED = 3


def departed_among(database: Database, hashes: Sequence[bytes], turn: Turn) -> dict[int, int]:
    """Return which hashes have rows of those who left, by place, with the least audience's number.

    The database is read inside `turn`, a few hundred rows at a time.
    """
    least: dict[bytes, int] = {}
    for start in range(0, len(hashes), _AT_ONCE):
        some = hashes[start : start + _AT_ONCE]
        marks = ", ".join("?" * len(some))
        query = f"SELECT hash, MIN(audience) FROM departed WHERE hash IN ({marks}) GROUP BY hash"  # noqa: S608
        with turn():
            least.update(dict(database.read(query, some)))
    return {place: least[one] for place, one in enumerate(hashes) if one in least} if least else {}


def has_departed(database: Database, turn: Turn) -> bool:
    """Tell whether anybody left, or was evaluated without having been here."""
    with turn():
        return bool(database.read("SELECT hash FROM departed LIMIT 1"))


def mark_evaluated(database: Database, hashed: bytes) -> None:
    """Note, inside a change, that somebody who is unknown so far never had records here."""
    database.insert(DEPARTED, [(hashed, EVALUATED, 0)])
