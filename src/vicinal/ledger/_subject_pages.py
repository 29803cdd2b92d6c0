"""Subjects on disk: the ids of a page of slots in a few rows, so that a digest covers hundreds.

A row holds slots as one array and their framed ids one after the other. It is short enough to
stand on one page of SQLite's file: an id is never cut in two, and can be looked for there. Whoever
comes or goes has the rows of their page written anew, and digested, in the same transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from vicinal._checks import SubjectId
from vicinal.ledger._database import Database
from vicinal.ledger._id_encoding import unframed_all

PAGE_SLOTS = 1024
"""Slots of a page."""

ROW_BYTES = 3900
"""Most bytes of ids and slots in a row; one of 4,061 would leave its page of 4,096 bytes."""

_SLOT_BYTES = 4
_INSERT = "INSERT INTO subject_pages (page, part, slots, ids) VALUES (?, ?, ?, ?)"


def read_subjects(database: Database) -> dict[SubjectId, int]:
    """Return the slot of every subject."""
    slot_of: dict[SubjectId, int] = {}
    for rows in database.scan("subject_pages"):
        slots = np.frombuffer(b"".join([row[2] for row in rows]), dtype="<i4").tolist()
        slot_of.update(zip(unframed_all(b"".join([row[3] for row in rows])), slots, strict=True))
    return slot_of


def read_framed(database: Database) -> Iterator[tuple[int, bytes]]:
    """Yield slot and framed id of every subject, also of a ledger that is not migrated yet."""
    if not database.has_table("subject_pages"):
        yield from _read_rows(database)
        return
    for rows in database.scan("subject_pages"):
        for _, _, slots, ids in rows:
            yield from _entries(slots, ids)


def write_subjects(database: Database, changes: Mapping[int, bytes | None]) -> None:
    """Write who stands at some slots, inside a transaction.

    Parameters
    ----------
    changes : mapping
        By slot: the framed id that stands there from now on; None where nobody does.
    """
    by_page: dict[int, dict[int, bytes | None]] = defaultdict(dict)
    for slot, subject in changes.items():
        by_page[slot // PAGE_SLOTS][slot] = subject
    for page, new in sorted(by_page.items()):
        _write_page(database, page, new)


def write_all(database: Database, ids: bytes | bytearray) -> int:
    """Write subjects at the slots 0, 1, ... of a ledger that has none; return how many they are.

    Parameters
    ----------
    ids : bytes or bytearray
        Their framed ids, one after the other. No object is made for each.
    """
    ends = np.flatnonzero(np.frombuffer(ids, dtype=np.uint8) == ord(">")) + 1
    lengths = ends + _SLOT_BYTES * np.arange(1, len(ends) + 1)
    database.execute_many(_INSERT, _rows(ids, ends, lengths))
    return len(ends)


def _rows(
    ids: bytes | bytearray, ends: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> Iterator[tuple[int, int, bytes, bytes]]:
    """Yield the rows of all pages; `lengths` is how long all ids and slots up to each are."""
    for page, first in enumerate(range(0, len(ends), PAGE_SLOTS)):
        start, part, last = first, 0, min(first + PAGE_SLOTS, len(ends))
        while start < last:
            room = ROW_BYTES + (lengths[start - 1] if start else 0)
            stop = min(last, int(np.searchsorted(lengths, room, side="right")))
            slots = np.arange(start, stop, dtype="<i4").tobytes()
            yield page, part, slots, bytes(ids[ends[start - 1] if start else 0 : ends[stop - 1]])
            start, part = stop, part + 1


def rows_to_pages(database: Database) -> None:
    """Move subjects from the table `subjects`, which had a row for each, inside a transaction."""
    write_subjects(database, dict(_read_rows(database)))
    database.execute("DELETE FROM subjects")
    database.execute("DROP TABLE subjects")


def _read_rows(database: Database) -> Iterator[tuple[int, bytes]]:
    """Yield slot and framed id from the table of earlier schemas."""
    for rows in database.scan("subjects"):
        yield from rows


def _write_page(database: Database, page: int, new: Mapping[int, bytes | None]) -> None:
    query = "SELECT slots, ids FROM subject_pages WHERE page = ?"
    before = {slot: who for row in database.execute(query, (page,)) for slot, who in _entries(*row)}
    if before:
        database.execute("DELETE FROM subject_pages WHERE page = ?", (page,))
    after = {slot: who for slot, who in {**before, **new}.items() if who is not None}
    parts = enumerate(_parts(dict(sorted(after.items()))))
    database.execute_many(
        _INSERT,
        [
            (page, number, np.array(list(part), dtype="<i4").tobytes(), b"".join(part.values()))
            for number, part in parts
        ],
    )


def _parts(subjects: dict[int, bytes]) -> Iterator[dict[int, bytes]]:
    """Yield subjects in groups that fit into a row."""
    part: dict[int, bytes] = {}
    length = 0
    for slot, subject in subjects.items():
        length += _SLOT_BYTES + len(subject)
        if length > ROW_BYTES:
            yield part
            part, length = {}, _SLOT_BYTES + len(subject)
        part[slot] = subject
    if part:
        yield part


def _entries(slots: bytes, ids: bytes) -> Iterator[tuple[int, bytes]]:
    framed = [one + b">" for one in ids.split(b">")[:-1]]
    return zip(np.frombuffer(slots, dtype="<i4").tolist(), framed, strict=True)
