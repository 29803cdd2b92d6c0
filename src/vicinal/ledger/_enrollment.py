"""Enrolling subjects in two steps: first all that can be found out, then what becomes durable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vicinal._checks import SubjectId
from vicinal.ledger._database import Database
from vicinal.ledger._hashed_slots import SlotAssignment
from vicinal.ledger._protocols import Slots, Turn
from vicinal.ledger._subject_pages import WrittenPages

_AT_ONCE = 256
"""Hashes that are looked up in one statement."""


@dataclass(frozen=True, slots=True, eq=False)
class Enrollment:
    """Subjects that are about to be enrolled: what the register will be. Private.

    - `basis`: the register's version that it holds for, see :attr:`Ledger.register_version`.
    - `slots`: the slot of every subject, int32, as they were passed.
    - `newcomers`: those that are not here, each once.
    - `returning`: hashes of those newcomers who were here before, by place.
    - `assignment`: the newcomers' slots, and the table with them.
    - `pages`: what is written of them.
    """

    basis: int
    slots: Slots
    newcomers: Sequence[SubjectId]
    returning: dict[int, bytes]
    assignment: SlotAssignment
    pages: Sequence[WrittenPages]


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
            least.update(dict(database.execute(query, some)))
    return {place: least[one] for place, one in enumerate(hashes) if one in least} if least else {}


def has_departed(database: Database, turn: Turn) -> bool:
    """Tell whether anybody left, or was evaluated without having been here."""
    with turn():
        return bool(database.execute("SELECT hash FROM departed LIMIT 1"))
