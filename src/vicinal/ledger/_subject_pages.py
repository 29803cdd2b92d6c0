"""Subjects on disk: the ids of a page of slots in a few rows, so that a digest covers hundreds.

A row holds slots as one array and their framed ids one after the other. It is short enough to
stand on one page of SQLite's file: an id is never cut in two, and can be looked for there. Whoever
comes or goes has the rows of their page written anew, and digested, in the same transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import compress, groupby
from operator import itemgetter

import numpy as np

from vicinal._arrays import Bools, Ints, Ints32
from vicinal.ledger._database import Database
from vicinal.ledger._protocols import Turn

PAGE_SLOTS = 1024
"""Slots of a page."""

ROW_BYTES = 3900
"""Most bytes of ids and slots in a row; one of 4,061 would leave its page of 4,096 bytes."""

_SLOT_BYTES = 4
_TOGETHER = 32
"""Pages that are written by the same statements."""
_INSERT = "INSERT INTO subject_pages (page, part, slots, ids) VALUES (?, ?, ?, ?)"


Row = tuple[bytes, bytes]
"""Slots, and the framed ids that stand there."""

Page = tuple[Ints32, list[bytes]]
"""The slots of a page that are not free, and the framed ids there without their last brackets."""

WrittenPages = tuple[int, int, bool, list[tuple[int, int, bytes, bytes]]]
"""The first and the last of some consecutive pages, whether they had any rows, and their rows."""


def read_pages(database: Database, pages: Sequence[int]) -> Iterator[tuple[int, Page]]:
    """Yield number and entries of those of some pages that hold anybody, by slot."""
    marks = ", ".join("?" * len(pages))
    rows = database.execute(
        f"SELECT page, slots, ids FROM subject_pages WHERE page IN ({marks}) "  # noqa: S608
        "ORDER BY page, part",
        pages,
    )
    for page, parts in groupby(rows, key=itemgetter(0)):
        yield page, _joined([(slots, ids) for _, slots, ids in parts])


def split_ids(stored: bytes) -> list[bytes]:
    """Return the ids of a row, framed but for their last bracket."""
    return stored[:-1].split(b">")


def read_framed(database: Database) -> Iterator[tuple[int, bytes]]:
    """Yield slot and framed id of every subject, also of a ledger that is not migrated yet."""
    if not database.has_table("subject_pages"):
        yield from _read_rows(database)
        return
    for rows in database.scan("subject_pages"):
        for _, _, slots, ids in rows:
            here, stored = _joined([(slots, ids)])
            yield from zip(here.tolist(), (who + b">" for who in stored), strict=True)


def write_subjects(database: Database, changes: Mapping[int, bytes | None]) -> None:
    """Write who stands at some slots, inside a transaction.

    `changes`: by slot: the framed id that stands there from now on; None where nobody does.
    """
    put_pages(database, pages_after(database, changes))


def pages_after(
    database: Database, changes: Mapping[int, bytes | None], turn: Turn = nullcontext
) -> Iterator[WrittenPages]:
    """Yield the pages that :func:`write_subjects` would write, and write nothing.

    Each page is read inside `turn`.
    """
    by_page: dict[int, dict[int, bytes | None]] = defaultdict(dict)
    for slot, subject in changes.items():
        by_page[slot // PAGE_SLOTS][slot] = subject
    pages = sorted(by_page)
    # Consecutive pages have consecutive places in this order, too.
    for _, run in groupby(enumerate(pages), key=lambda one: (one[1] - one[0], one[0] // _TOGETHER)):
        yield _pages_after(database, {page: by_page[page] for _, page in run}, turn)


def put_pages(database: Database, pages: Iterable[WrittenPages]) -> None:
    """Write pages in place of what they were, inside a transaction."""
    for first, last, there, written in pages:
        if there:
            query = "DELETE FROM subject_pages WHERE page >= ? AND page <= ?"
            database.execute(query, (first, last))
        database.execute_many(_INSERT, written)


def write_all(database: Database, ids: bytes | bytearray) -> int:
    """Write subjects at the slots 0, 1, ... of a ledger that has none; return how many they are.

    `ids`: their framed ids, one after the other. No object is made for each.
    """
    ends = np.flatnonzero(np.frombuffer(ids, dtype=np.uint8) == ord(">")) + 1
    lengths = ends + _SLOT_BYTES * np.arange(1, len(ends) + 1)
    database.execute_many(_INSERT, _rows(ids, ends, lengths))
    return len(ends)


def _rows(
    ids: bytes | bytearray, ends: Ints, lengths: Ints
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


def _pages_after(
    database: Database, changes: Mapping[int, Mapping[int, bytes | None]], turn: Turn
) -> WrittenPages:
    """Return some consecutive pages anew, given what changes in each."""
    first, last = min(changes), max(changes)
    query = (
        "SELECT page, slots, ids FROM subject_pages WHERE page >= ? AND page <= ? "
        "ORDER BY page, part"
    )
    rows_of: dict[int, list[Row]] = {page: [] for page in changes}
    with turn():
        pages = database.execute(query, (first, last))
    for page, slots, ids in pages:
        rows_of[page].append((slots, ids))
    written = [
        (page, part, *row)
        for page, rows in rows_of.items()
        for part, row in enumerate(_changed(rows, page * PAGE_SLOTS, changes[page]))
    ]
    return first, last, bool(pages), written


def _changed(rows: Sequence[Row], first: int, new: Mapping[int, bytes | None]) -> Sequence[Row]:
    """Return the rows of the page from slot `first` on after a change."""
    remaining = _without(rows, first, list(new))
    fresh = {slot: who[:-1] for slot, who in new.items() if who is not None}
    if not fresh and not _are_sparse(remaining):
        return remaining
    slots, stored = _joined(remaining)
    return _packed({**dict(zip(slots.tolist(), stored, strict=True)), **fresh})


def _are_sparse(rows: Sequence[Row]) -> bool:
    """Tell whether half as many rows would do."""
    return 2 * sum(len(slots) + len(ids) for slots, ids in rows) <= ROW_BYTES * (len(rows) - 1)


def _without(rows: Iterable[Row], first: int, leaving: Sequence[int]) -> list[Row]:
    """Return the rows of the page from slot `first` on without some slots, where they were."""
    stays = np.ones(PAGE_SLOTS, dtype=np.bool_)
    stays[np.array(leaving) - first] = False
    return [row for slots, ids in rows if (row := _remaining(slots, ids, first, stays)) is not None]


def _remaining(slots: bytes, ids: bytes, first: int, stays: Bools) -> Row | None:
    """Return what stays of a row; None for nothing."""
    here = np.frombuffer(slots, dtype="<i4")
    remaining = stays[here - first]
    if remaining.all():
        return slots, ids
    if not remaining.any():
        return None
    return here[remaining].tobytes(), b">".join(compress(split_ids(ids), remaining.tolist())) + b">"


def _packed(page: Mapping[int, bytes]) -> list[Row]:
    """Return the fewest rows for who stands at the slots of a page."""
    slots = sorted(page)
    return list(_parts(np.array(slots, dtype="<i4"), [page[slot] for slot in slots]))


def _parts(slots: Ints32, ids: list[bytes]) -> Iterator[Row]:
    """Yield slots and ids in groups that fit into a row; each id takes its last bracket, too."""
    ends = np.cumsum(np.fromiter(map(len, ids), np.int64, len(ids)) + 1 + _SLOT_BYTES)
    start = before = 0
    while start < len(ids):
        stop = max(start + 1, int(np.searchsorted(ends, before + ROW_BYTES, side="right")))
        yield slots[start:stop].tobytes(), b">".join(ids[start:stop]) + b">"
        start, before = stop, int(ends[stop - 1])


def _joined(rows: Sequence[Row]) -> Page:
    """Return who stands at the slots of some rows."""
    slots = np.frombuffer(b"".join([slots for slots, _ in rows]), dtype="<i4").astype(np.int32)
    return slots, split_ids(b"".join([ids for _, ids in rows])) if len(slots) else []
