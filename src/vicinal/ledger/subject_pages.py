"""The ids of enrolled subjects on disk: hundreds in a row, so that few rows must be digested.

A page is a range of :data:`PAGE_SLOTS` slots, stored in one or more rows of the table
`subject_pages`. A row holds some of its slots as one array and their framed ids, concatenated. It
fits into one page of SQLite's file, so the file holds every id in one piece, where a search finds
it. Enrolling or erasing a subject rewrites the rows of its page in the same transaction.

A *framed id* is, for example, ``b"<id:sanna>"``, an *open frame* the same without its closing
bracket: ``b"<id:sanna"``. `database` is the database of the ledger.
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
"""Number of slots in a page."""

ROW_BYTES = 3900
"""Maximal number of bytes of ids and slots in a row. A row of 4,061 bytes would not fit into a page
of SQLite's file, which has 4,096 bytes."""

_PAGES_PER_QUERY = 32
"""Maximal number of pages that are read by one statement: about 8 MB as Python objects."""
_SLOT_BYTES = 4
"""Bytes of a slot in a row: an int32."""
_MAX_PAGES_PER_WRITE = 32
"""Maximal number of consecutive pages that are rewritten by the same statements."""
_IN_RANGE = "page >= ? AND page <= ?"
_IN_RANGE_ORDERED = f"{_IN_RANGE} ORDER BY page, part"

Row = tuple[bytes, bytes]
"""Slots as little-endian int32, and the framed ids at these slots, concatenated."""


def read_rows(database: Database, pages: Sequence[int]) -> Iterator[tuple[int, list[Row]]]:
    """Yield (page number, rows) of the pages with these ascending numbers that are not empty."""
    rows = database.iterate_matches(Tables.SUBJECT_PAGES, "page", pages, _PAGES_PER_QUERY)
    for page, page_rows in groupby(rows, key=itemgetter(0)):
        yield page, [(slots, ids) for *_, slots, ids in page_rows]


def split_ids(stored: bytes) -> list[bytes]:
    """Return the open frames of concatenated framed ids; `stored`: at least one framed id."""
    return stored[:-1].split(b">")


def write_subjects(database: Database, changes: Mapping[int, bytes | None]) -> None:
    """Write changes of the subjects at some slots, inside a transaction.

    `changes`: the new framed id by slot, or None for a slot that becomes free.
    """
    changes_by_page: dict[int, dict[int, bytes | None]] = defaultdict(dict)
    for slot, framed_id in changes.items():
        changes_by_page[slot // PAGE_SLOTS][slot] = framed_id
    # Consecutive pages are rewritten together. In the sorted list of changed pages, the difference
    # of page number and index is constant within a run of consecutive pages.
    for _, run in groupby(
        enumerate(sorted(changes_by_page)),
        key=lambda item: (item[1] - item[0], item[0] // _MAX_PAGES_PER_WRITE),
    ):
        rows_of: dict[int, list[Row]] = {page: [] for _, page in run}
        first_page = min(rows_of)
        last_page = max(rows_of)
        page_range = (first_page, last_page)
        stored = database.read_rows(Tables.SUBJECT_PAGES, _IN_RANGE_ORDERED, page_range)
        for page, _, slots, ids in stored:
            rows_of[page].append((slots, ids))
        new_rows = [
            (page, row_number, *row)
            for page, rows in rows_of.items()
            for row_number, row in enumerate(
                _update_rows(rows, page * PAGE_SLOTS, changes_by_page[page])
            )
        ]
        if stored:
            database.delete(Tables.SUBJECT_PAGES, _IN_RANGE, page_range)
        database.insert(Tables.SUBJECT_PAGES, new_rows)


def write_all_subjects(database: Database, ids: bytes | bytearray) -> int:
    """Write all subjects of an empty ledger at the slots 0, 1, ...; return their number.

    `ids`: their framed ids, concatenated. No Python object is made per subject, which saves memory.
    """
    ends = np.flatnonzero(np.frombuffer(ids, dtype=np.uint8) == ord(">")) + 1
    stored_bytes = ends + _SLOT_BYTES * np.arange(1, len(ends) + 1)
    database.insert(Tables.SUBJECT_PAGES, _split_into_rows(ids, ends, stored_bytes))
    return len(ends)


def _split_into_rows(
    ids: bytes | bytearray, ends: Ints, stored_bytes: Ints
) -> Iterator[tuple[int, int, bytes, bytes]]:
    """Yield the rows of the table `subject_pages` for subjects at the slots 0, 1, ...

    A row has the page number, its number in the page, its slots, little-endian int32, and their
    framed ids. `ids`: framed ids of all slots, concatenated. `ends`, int64 (subjects,): offset in
    `ids` at which the id of slot i ends. `stored_bytes`: see :func:`_iterate_row_bounds`.
    """
    for page, first_slot in enumerate(range(0, len(ends), PAGE_SLOTS)):
        end_slot = min(first_slot + PAGE_SLOTS, len(ends))
        bounds = _iterate_row_bounds(stored_bytes, first_slot, end_slot)
        for row_number, (start, stop) in enumerate(bounds):
            slots = np.arange(start, stop, dtype="<i4").tobytes()
            first_byte = ends[start - 1] if start else 0
            yield page, row_number, slots, bytes(ids[first_byte : ends[stop - 1]])


def _iterate_row_bounds(stored_bytes: Ints, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of the fewest rows that hold the subjects from `start` to `end` - 1.

    `stored_bytes`, int64 (subjects,): bytes of the ids and slot numbers of subjects 0 to i.
    """
    while start < end:
        max_bytes = ROW_BYTES + (stored_bytes[start - 1] if start else 0)
        stop = int(np.searchsorted(stored_bytes, max_bytes, side="right"))
        stop = min(end, max(stop, start + 1))  # a subject fits into a row, so each row has one
        yield start, stop
        start = stop


def _update_rows(
    rows: Sequence[Row], first_slot: int, changes: Mapping[int, bytes | None]
) -> Sequence[Row]:
    """Return the new rows of a page in which the subjects of some slots change.

    `rows`: its present rows, each slots and framed ids. `first_slot`: the first slot of the page.
    `changes`: the new framed id by changed slot, or None for a slot that becomes free.
    """
    is_unchanged = np.ones(PAGE_SLOTS, dtype=np.bool_)
    is_unchanged[np.array(list(changes)) - first_slot] = False
    remaining: list[Row] = []
    for slots_content, ids in rows:
        slots = np.frombuffer(slots_content, dtype="<i4")
        is_kept = is_unchanged[slots - first_slot]
        if is_kept.all():
            remaining.append((slots_content, ids))
        elif is_kept.any():
            joined_ids = b">".join(compress(split_ids(ids), is_kept.tolist())) + b">"
            remaining.append((slots[is_kept].tobytes(), joined_ids))
    new_ids = {slot: framed_id[:-1] for slot, framed_id in changes.items() if framed_id is not None}
    # After an erasure, rows are packed anew only if half as many rows would suffice.
    n_bytes = sum(len(slots_content) + len(ids) for slots_content, ids in remaining)
    if not new_ids and 2 * n_bytes > ROW_BYTES * (len(remaining) - 1):
        return remaining
    kept_slots, kept_frames = split_rows(remaining)
    kept_ids = dict(zip(kept_slots.tolist(), kept_frames, strict=True))
    return list(_pack_rows({**kept_ids, **new_ids}))


def _pack_rows(id_at: Mapping[int, bytes]) -> Iterator[Row]:
    """Yield the fewest rows, each slots and framed ids, that hold the subjects of a page.

    `id_at`: the open frame at each taken slot of the page.
    """
    slots = np.array(sorted(id_at), dtype="<i4")
    ids = [id_at[slot] for slot in slots.tolist()]
    # Bytes up to and including each subject: its open frame, the closing bracket, and its slot.
    stored_bytes = np.cumsum(np.fromiter(map(len, ids), np.int64, len(ids)) + 1 + _SLOT_BYTES)
    for start, stop in _iterate_row_bounds(stored_bytes, 0, len(ids)):
        yield slots[start:stop].tobytes(), b">".join(ids[start:stop]) + b">"


def split_rows(rows: Sequence[Row]) -> tuple[Ints32, list[bytes]]:
    """Return the taken slots in some rows, int32 (m,), and the open frame at each slot.

    `rows`: slots and framed ids, as in the table.
    """
    slots = np.frombuffer(b"".join([slots for slots, _ in rows]), dtype="<i4").astype(np.int32)
    return slots, split_ids(b"".join([ids for _, ids in rows])) if len(slots) else []
