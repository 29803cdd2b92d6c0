"""Which rows a statement writes, read off the statement: so every write is digested, whoever wrote.

The ledger's statements have four shapes, and this knows no other: a write that it cannot read is
refused, because its rows would be missing from the digests.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache

from vicinal.errors import InvalidInput

_WRITES = re.compile(r"\s*(INSERT|UPDATE|DELETE|REPLACE)\b")
_INSERT = re.compile(
    r"INSERT INTO (\w+)(?: \(([^)]*)\))? VALUES \(([?, ]+)\)"
    r"(?: ON CONFLICT \(([^)]*)\) DO UPDATE SET (.*))?"
)
_UPDATE = re.compile(r"UPDATE (\w+) SET (.*?)(?: WHERE (.*))?")
_DELETE = re.compile(r"DELETE FROM (\w+)(?: WHERE (.*))?")
_COLUMN = re.compile(r"(\w+) [=<>]")
_REPLACED = re.compile(r"(\w+) = excluded\.\1(?:, |$)")


_KEYS = {"charges": ("seq",)}
"""The primary key of tables whose rows are long, and go soon after they have been written."""


class WriteKind(Enum):
    """What becomes of rows: the values are the new row; others must be read again; none is left."""

    INSERTION = auto()
    UPDATE = auto()
    DELETION = auto()


@dataclass(frozen=True, slots=True)
class Write:
    """What a statement does to one table.

    - `kind`: what becomes of the rows.
    - `table`: its name.
    - `columns`: the columns that an insertion names; none if it names none.
    - `condition`: which rows it takes away or changes, as SQL; None for an insertion of new rows.
    - `places`: which of the statement's values the condition takes, or of an insertion the key.
    - `keyed`: whether these are the primary key of the only row that is written or taken away.
    """

    kind: WriteKind
    table: str
    columns: tuple[str, ...]
    condition: str | None
    places: tuple[int, ...]
    keyed: bool = False

    def chosen(self, values: Sequence[object]) -> list[object]:
        """Return the values of the condition, or the key."""
        return [values[place] for place in self.places]


@lru_cache(maxsize=256)
def write_of(statement: str) -> Write | None:
    """Return what a statement writes; None if it writes no rows.

    Raises InvalidInput if it writes rows in a way that is not known here.
    """
    if not _WRITES.match(statement):
        return None
    for shape, reader in ((_INSERT, _insertion), (_UPDATE, _update), (_DELETE, _deletion)):
        if match := shape.fullmatch(statement):
            return reader(match)
    raise InvalidInput("The statement must be one whose rows can be digested. See this module.")


def _insertion(match: re.Match[str]) -> Write:
    table, columns, _, keys, changes = match.groups()
    named = _names(columns)
    if keys is None:
        key = _KEYS.get(table, ()) if named else ()
        places = tuple(named.index(column) for column in key)
        return Write(WriteKind.INSERTION, table, named, None, places, bool(key))
    chosen = _names(keys)
    if {*chosen, *_REPLACED.findall(changes)} != {*named} or _REPLACED.sub("", changes):
        raise InvalidInput("The statement must replace the whole row.")
    condition = "WHERE " + " AND ".join(f"{key} = ?" for key in chosen)
    places = tuple(named.index(key) for key in chosen)
    return Write(WriteKind.INSERTION, table, named, condition, places, keyed=True)


def _update(match: re.Match[str]) -> Write:
    table, changes, condition = match.groups()
    if set(_COLUMN.findall(changes)) & set(_COLUMN.findall(condition or "")):
        raise InvalidInput("The statement must not change the columns that it chooses rows by.")
    return _where(WriteKind.UPDATE, table, condition, changes.count("?"))


def _deletion(match: re.Match[str]) -> Write:
    return _where(WriteKind.DELETION, match[1], match[2], 0)


def _where(kind: WriteKind, table: str, condition: str | None, first: int) -> Write:
    if condition is None:
        return Write(kind, table, (), "", ())
    places = tuple(range(first, first + condition.count("?")))
    by_key = " AND ".join(f"{key} = ?" for key in _KEYS.get(table, ()))
    keyed = kind is WriteKind.DELETION and condition == by_key
    return Write(kind, table, (), f"WHERE {condition}", places, keyed)


def _names(text: str | None) -> tuple[str, ...]:
    return () if text is None else tuple(name.strip() for name in text.split(","))
