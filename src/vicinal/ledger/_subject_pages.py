"""Subjects on disk: the ids of a page of slots in a few rows, so that a digest covers hundreds.

A row holds slots as one array and their framed ids one after the other. It is short enough to
stand on one page of SQLite's file: an id is never cut in two, and can be looked for there. Whoever
comes or goes has the rows of their page written anew, and digested, in the same transaction.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import compress, groupby
from operator import itemgetter
from typing import TypeVar

import numpy as np

from vicinal._arrays import Bools, Ints, Ints32
from vicinal.ledger._database import Database
from vicinal.ledger._protocols import Turn
from vicinal.ledger._tables import SUBJECT_PAGES

PAGE_SLOTS = 1024
"""Slots of a page."""

ROW_BYTES = 3900
"""Most bytes of ids and slots in a row; one of 4,061 would leave its page of 4,096 bytes."""

_SLOT_BYTES = 4
_TOGETHER = 32
"""Pages that are written by the same statements."""
_BETWEEN = "page >= ? AND page <= ?"
_BETWEEN_IN_ORDER = f"{_BETWEEN} ORDER BY page, part"

Changed = TypeVar("Changed")

Row = tuple[bytes, bytes]
"""Slots, and the framed ids that stand there."""

Page = tuple[Ints32, list[bytes]]
"""The slots of a page that are not free, and the framed ids there without their last brackets."""

WrittenPages = tuple[int, int, bool, list[tuple[int, int, bytes, bytes]]]
"""The first and the last of some consecutive pages, whether they had any rows, and their rows."""


def read_rows(database: Database, pages: Sequence[int]) -> Iterator[tuple[int, list[Row]]]:
    """Yield number and rows of those of some pages that hold anybody, by slot."""
    marks = ", ".join("?" * len(pages))
    rows = database.read(
        f"SELECT page, slots, ids FROM subject_pages WHERE page IN ({marks}) "  # noqa: S608
        "ORDER BY page, part",
        pages,
    )
    for page, parts in groupby(rows, key=itemgetter(0)):
        yield page, [(slots, ids) for _, slots, ids in parts]


def stand_at(rows: Sequence[Row], slots: Iterable[int], framed_ids: Iterable[bytes]) -> list[bool]:
    """Tell of each of a few ids whether it stands at its slot of a page; no row is split."""
    last = [_last_slot(row) for row in rows]
    return [
        (row := bisect_left(last, slot)) < len(rows) and _place(rows[row], slot, who) >= 0
        for slot, who in zip(slots, framed_ids, strict=True)
    ]


def _last_slot(row: Row) -> int:
    return int.from_bytes(row[0][-_SLOT_BYTES:], "little")


def _place(row: Row, slot: int, who: bytes) -> int:
    """Return which slot of a row is a subject's, if it is this one; else -1."""
    slots, ids = row
    at = ids.find(who)
    place = ids.count(b">", 0, at) if at >= 0 else 0
    here = slots[_SLOT_BYTES * place : _SLOT_BYTES * (place + 1)]
    return place if at >= 0 and here == slot.to_bytes(_SLOT_BYTES, "little") else -1


def split_ids(stored: bytes) -> list[bytes]:
    """Return the ids of a row, framed but for their last bracket."""
    return stored[:-1].split(b">")


def write_subjects(database: Database, changes: Mapping[int, bytes | None]) -> None:
    """Write who stands at some slots, inside a transaction.

    `changes`: by slot: the framed id that stands there from now on; None where nobody does.
    """
    put_pages(database, pages_after(database, changes))


def remove_subjects(database: Database, framed_ids: Mapping[int, bytes]) -> None:
    """Take subjects off their slots, inside a transaction; their rows alone are written anew.

    `framed_ids`: who stands at each of the slots. What is written is what :func:`write_subjects`
    writes, and takes less time: nothing is read twice, and no row is split into its ids.
    """
    for pages in _together(dict(sorted(framed_ids.items()))):
        stored = database.rows(SUBJECT_PAGES, _BETWEEN_IN_ORDER, (min(pages), max(pages)))
        rows_of = {page: list(there) for page, there in groupby(stored, key=itemgetter(0))}
        before, after = [], []
        for page, leaving in pages.items():
            rows = rows_of.get(page, [])
            shorter = _shorter([row[2:] for row in rows], leaving)
            if shorter is None:
                put_pages(database, [_pages_after(database, {page: dict.fromkeys(leaving)})])
                continue
            changed = [part for part, row in enumerate(rows) if shorter[part] != row[2:]]
            before += [rows[part] for part in changed]
            after += [(*rows[part][:2], *shorter[part]) for part in changed]
        database.replace_known(SUBJECT_PAGES, before, after)


def _shorter(rows: Sequence[Row], leaving: Mapping[int, bytes]) -> list[Row] | None:
    """Return the rows of a page without some subjects, by slot.

    None if that takes another number of rows, or if one does not stand where it should.
    """
    last, shorter = [_last_slot(row) for row in rows], list(rows)
    for slot, who in leaving.items():
        number = bisect_left(last, slot)
        place = -1 if number == len(rows) else _place(shorter[number], slot, who)
        slots, ids = shorter[number] if place >= 0 else (b"", b"")
        if len(slots) <= _SLOT_BYTES:
            return None
        at, start = ids.find(who), _SLOT_BYTES * place
        without = ids[:at] + ids[at + len(who) :]
        shorter[number] = slots[:start] + slots[start + _SLOT_BYTES :], without
    return None if _are_sparse(shorter) else shorter


def pages_after(
    database: Database, changes: Mapping[int, bytes | None], turn: Turn = nullcontext
) -> Iterator[WrittenPages]:
    """Yield the pages that :func:`write_subjects` would write, and write nothing.

    Each page is read inside `turn`.
    """
    for pages in _together(changes):
        yield _pages_after(database, pages, turn)


def _together(changes: Mapping[int, Changed]) -> Iterator[dict[int, dict[int, Changed]]]:
    """Yield what changes by page and slot, some consecutive pages at a time."""
    by_page: dict[int, dict[int, Changed]] = defaultdict(dict)
    for slot, subject in changes.items():
        by_page[slot // PAGE_SLOTS][slot] = subject
    pages = sorted(by_page)
    # Consecutive pages have consecutive places in this order, too.
    for _, run in groupby(enumerate(pages), key=lambda one: (one[1] - one[0], one[0] // _TOGETHER)):
        yield {page: by_page[page] for _, page in run}


def put_pages(database: Database, pages: Iterable[WrittenPages]) -> None:
    """Write pages in place of what they were, inside a transaction."""
    for first, last, there, written in pages:
        if there:
            database.delete(SUBJECT_PAGES, _BETWEEN, (first, last))
        database.insert(SUBJECT_PAGES, written)


def write_all(database: Database, ids: bytes | bytearray) -> int:
    """Write subjects at the slots 0, 1, ... of a ledger that has none; return how many they are.

    `ids`: their framed ids, one after the other. No object is made for each.
    """
    ends = np.flatnonzero(np.frombuffer(ids, dtype=np.uint8) == ord(">")) + 1
    lengths = ends + _SLOT_BYTES * np.arange(1, len(ends) + 1)
    database.insert(SUBJECT_PAGES, _rows(ids, ends, lengths))
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


def _pages_after(
    database: Database,
    changes: Mapping[int, Mapping[int, bytes | None]],
    turn: Turn = nullcontext,
) -> WrittenPages:
    """Return some consecutive pages anew, given what changes in each."""
    first, last = min(changes), max(changes)
    rows_of: dict[int, list[Row]] = {page: [] for page in changes}
    with turn():
        pages = database.rows(SUBJECT_PAGES, _BETWEEN_IN_ORDER, (first, last))
    for page, _, slots, ids in pages:
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
    slots, stored = entries_of(remaining)
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


def entries_of(rows: Sequence[Row]) -> Page:
    """Return who stands at the slots of some rows."""
    slots = np.frombuffer(b"".join([slots for slots, _ in rows]), dtype="<i4").astype(np.int32)
    return slots, split_ids(b"".join([ids for _, ids in rows])) if len(slots) else []
