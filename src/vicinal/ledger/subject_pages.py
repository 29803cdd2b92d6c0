"""Subjects on disk: the ids of a page of slots in a few rows, so that a digest covers hundreds.

A row holds slots as one array and their framed ids one after the other. It is short enough to
stand on one page of SQLite's file: an id is never cut in two, and can be looked for there. Whoever
comes or goes has the rows of their page written anew, and digested, in the same transaction.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress, groupby
from operator import itemgetter

import numpy as np

from vicinal.arrays import Ints, Ints32
from vicinal.ledger.database import Database
from vicinal.ledger.tables import Tables

PAGE_SLOTS = 1024
"""Slots of a page."""

ROW_BYTES = 3900
"""Most bytes of ids and slots in a row; one of 4,061 would leave its page of 4,096 bytes."""

_SLOT_BYTES = 4
_TOGETHER = 32
"""Pages that are written by the same statements."""
_BETWEEN = "page >= ? AND page <= ?"
_BETWEEN_IN_ORDER = f"{_BETWEEN} ORDER BY page, part"

Row = tuple[bytes, bytes]
"""Slots, and the framed ids that stand there."""


def read_rows(database: Database, pages: Sequence[int]) -> Iterator[tuple[int, list[Row]]]:
    """Yield number and rows of those of some pages that hold anybody, by slot."""
    chosen = f"page IN ({', '.join('?' * len(pages))}) ORDER BY page, part"
    rows = database.rows(Tables.SUBJECT_PAGES, chosen, pages)
    for page, parts in groupby(rows, key=itemgetter(0)):
        yield page, [(slots, ids) for *_, slots, ids in parts]


def split_ids(stored: bytes) -> list[bytes]:
    """Return the ids of a row, framed but for their last bracket."""
    return stored[:-1].split(b">")


def write_subjects(database: Database, changes: Mapping[int, bytes | None]) -> None:
    """Write who stands at some slots, inside a transaction.

    `changes`: by slot: the framed id that stands there from now on; None where nobody does.
    """
    by_page: dict[int, dict[int, bytes | None]] = defaultdict(dict)
    for slot, subject in changes.items():
        by_page[slot // PAGE_SLOTS][slot] = subject
    # Consecutive pages have consecutive places in their order, too.
    for _, run in groupby(
        enumerate(sorted(by_page)), key=lambda one: (one[1] - one[0], one[0] // _TOGETHER)
    ):
        rows_of: dict[int, list[Row]] = {page: [] for _, page in run}
        first, last = min(rows_of), max(rows_of)
        stored = database.rows(Tables.SUBJECT_PAGES, _BETWEEN_IN_ORDER, (first, last))
        for page, _, slots, ids in stored:
            rows_of[page].append((slots, ids))
        written = [
            (page, part, *row)
            for page, rows in rows_of.items()
            for part, row in enumerate(_changed(rows, page * PAGE_SLOTS, by_page[page]))
        ]
        if stored:
            database.delete(Tables.SUBJECT_PAGES, _BETWEEN, (first, last))
        database.insert(Tables.SUBJECT_PAGES, written)


def write_all(database: Database, ids: bytes | bytearray) -> int:
    """Write subjects at the slots 0, 1, ... of a ledger that has none; return how many they are.

    `ids`: their framed ids, one after the other. No object is made for each.
    """
    ends = np.flatnonzero(np.frombuffer(ids, dtype=np.uint8) == ord(">")) + 1
    lengths = ends + _SLOT_BYTES * np.arange(1, len(ends) + 1)
    database.insert(Tables.SUBJECT_PAGES, _rows(ids, ends, lengths))
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


def _changed(rows: Sequence[Row], first: int, new: Mapping[int, bytes | None]) -> Sequence[Row]:
    """Return the rows of the page from slot `first` on after a change."""
    stays = np.ones(PAGE_SLOTS, dtype=np.bool_)
    stays[np.array(list(new)) - first] = False
    remaining: list[Row] = []
    for slots, ids in rows:
        here = np.frombuffer(slots, dtype="<i4")
        kept = stays[here - first]
        if kept.all():
            remaining.append((slots, ids))
        elif kept.any():
            others = b">".join(compress(split_ids(ids), kept.tolist())) + b">"
            remaining.append((here[kept].tobytes(), others))
    fresh = {slot: who[:-1] for slot, who in new.items() if who is not None}
    # Rows stay where they were until half as many would do.
    size = sum(len(slots) + len(ids) for slots, ids in remaining)
    if not fresh and 2 * size > ROW_BYTES * (len(remaining) - 1):
        return remaining
    here, stored = entries_of(remaining)
    return list(_packed({**dict(zip(here.tolist(), stored, strict=True)), **fresh}))


def _packed(page: Mapping[int, bytes]) -> Iterator[Row]:
    """Yield the fewest rows for who stands at the slots of a page, without their last brackets."""
    slots = np.array(sorted(page), dtype="<i4")
    ids = [page[slot] for slot in slots.tolist()]
    ends = np.cumsum(np.fromiter(map(len, ids), np.int64, len(ids)) + 1 + _SLOT_BYTES)
    start = before = 0
    while start < len(ids):
        stop = max(start + 1, int(np.searchsorted(ends, before + ROW_BYTES, side="right")))
        yield slots[start:stop].tobytes(), b">".join(ids[start:stop]) + b">"
        start, before = stop, int(ends[stop - 1])


def entries_of(rows: Sequence[Row]) -> tuple[Ints32, list[bytes]]:
    """Return the slots of some rows, and the framed ids there without their last brackets."""
    slots = np.frombuffer(b"".join([slots for slots, _ in rows]), dtype="<i4").astype(np.int32)
    return slots, split_ids(b"".join([ids for _, ids in rows])) if len(slots) else []
