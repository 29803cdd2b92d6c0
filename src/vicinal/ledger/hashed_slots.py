"""The slots of enrolled subjects, found by hashes of ids; the ids are only in the database.

A subject takes 8 bytes of memory instead of about 140 in a dict of ids. Its entry is one uint64
number: 32 bits of a hash of its framed id (:mod:`vicinal.ledger.id_encoding`) in the upper half,
its slot in the lower half. All entries are sorted, so a hash is found by bisection. As a hash can
belong to several ids, every match is compared with the id at its slot in the database.

A *framed id* is an id as stored bytes, for example ``b"<id:sanna>"`` for the text "anna" and
``b"<id:i7>"`` for the integer 7 (s: string, i: integer). An *open frame* is a framed id without its
closing bracket: ``b"<id:sanna"``. The *folded form* of an id is equal for ids that probably differ
in spelling only, such as "007" and 7.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from vicinal.arrays import Bools, Slots, UInts64
from vicinal.checks import SubjectId
from vicinal.errors import InvalidInput
from vicinal.ledger.database import Database
from vicinal.ledger.id_encoding import fold_ids, frame_id_of_any_length, frame_ids, parse_framed_id
from vicinal.ledger.subject_pages import PAGE_SLOTS, read_rows, split_ids, split_rows

NOT_ENROLLED = -1
"""Replaces the slot of a subject that is not enrolled."""

_SLOT_BITS = 32
"""Bits of the lower half of an entry, which holds the slot."""

_SLOT_MASK = np.uint64((1 << _SLOT_BITS) - 1)


class HashedSlotTable:
    """The slot of every enrolled subject.

    A subject keeps its slot while it has records; a freed slot is assigned again. Look-ups read
    the database, to which the caller must have written all earlier assignments.

    `database`: a database with the table `subject_pages`. `size`: number of slots, taken or free.
    """

    def __init__(self, database: Database, size: int) -> None:
        self._database = database
        self.size = size
        self._entries = _read_entries(database, size)
        self._free: Slots = np.flatnonzero(self.find_unused())[::-1].astype(np.int32)
        # Sorted hashes of all folded ids, from the first call of match_folded on. Hashes of
        # subjects that are erased later stay in it.
        self._folded: UInts64 | None = None

    def __len__(self) -> int:
        """Return the number of enrolled subjects."""
        return len(self._entries)

    @property
    def taken_slots(self) -> Slots:
        """Slots of all enrolled subjects, int32, in no particular order."""
        return (self._entries & _SLOT_MASK).astype(np.int32)

    def find_unused(self) -> Bools:
        """Return whether each slot has no subject, bool (slots,)."""
        is_free = np.ones(self.size, dtype=np.bool_)
        is_free[self.taken_slots] = False
        return is_free

    @property
    def slot_of(self) -> dict[SubjectId, int]:
        """Slot of every enrolled subject, by id; for small tables, as it holds all ids. Private."""
        return dict(self.iterate_slots())

    def find_slots(self, subjects: Iterable[SubjectId]) -> Slots:
        """Return the slot of each subject, int32 (subjects,); :data:`NOT_ENROLLED` without one."""
        ids = list(subjects)
        try:
            framed_ids = frame_ids(ids)
        except InvalidInput:  # an id is too long to be stored, so no stored frame equals its frame
            framed_ids = [frame_id_of_any_length(subject) for subject in ids]
        return self._find_framed_ids(framed_ids)

    def _find_framed_ids(self, framed_ids: Sequence[bytes]) -> Slots:
        """Return the slot of each framed id's subject, int32 (ids,), as :meth:`find_slots` does."""
        open_frames = [framed_id[:-1] for framed_id in framed_ids]
        slots = np.full(len(open_frames), NOT_ENROLLED, dtype=np.int32)
        hashes = _hash_frames(open_frames)
        entries = self._entries
        first_matches = np.searchsorted(entries, hashes)
        n_matches = np.searchsorted(entries, hashes | _SLOT_MASK, side="right") - first_matches
        # In each round, the next entry with the hash of the id is compared, for all ids at once.
        for match in range(int(n_matches.max(initial=0))):
            indices = np.flatnonzero(n_matches > match)
            candidates = (entries[first_matches[indices] + match] & _SLOT_MASK).astype(np.int32)
            frames = [open_frames[index] for index in indices.tolist()]
            is_equal = self._compare_frames(candidates, frames)
            slots[indices[is_equal]] = candidates[is_equal]
        return slots

    def match_folded(self, subjects: Sequence[SubjectId]) -> Bools:
        """Return whether each id's folded form equals that of an enrolled id, bool (subjects,).

        Enrolled ids therefore match themselves. Hashes of 64 bits are compared, so that a match is
        false with negligible probability. The first call reads all ids, a few pages at a time, and
        keeps the hashes. Ids that are erased later still count as enrolled.
        """
        if self._folded is None:
            hash_arrays = [_hash_folded_ids(ids) for _, ids in self._iterate_pages()]
            self._folded = np.sort(np.concatenate([np.zeros(0, dtype=np.uint64), *hash_arrays]))
        hashes = _hash_folded_ids(subjects)
        first_matches = np.searchsorted(self._folded, hashes)
        return first_matches < np.searchsorted(self._folded, hashes, side="right")

    def contains_all(self, framed_ids: Sequence[bytes]) -> bool:
        """Return whether the subjects of all these framed ids are enrolled."""
        return bool((self._find_framed_ids(framed_ids) != NOT_ENROLLED).all())

    def assign_slots(self, framed_ids: Sequence[bytes]) -> Slots:
        """Assign a free slot to each new subject, and return the slots, int32 (ids,).

        `framed_ids`: framed ids of the subjects, distinct and not enrolled. The caller writes them
        to the database. If too few slots are free, :attr:`size` grows.
        """
        n_missing = len(framed_ids) - len(self._free)
        if n_missing > 0:
            new_slots = np.arange(self.size + n_missing - 1, self.size - 1, -1, dtype=np.int32)
            self._free = np.concatenate([self._free, new_slots])
            self.size += n_missing
        n_free = len(self._free) - len(framed_ids)
        slots = self._free[n_free:][::-1].copy()
        self._free = self._free[:n_free].copy()
        new_entries = _hash_frames([frame[:-1] for frame in framed_ids]) | slots.astype(np.uint64)
        self._entries = np.concatenate([self._entries, new_entries])
        self._entries.sort()
        if self._folded is not None:
            new_folded = _hash_folded_ids(map(parse_framed_id, framed_ids))
            self._folded = np.sort(np.concatenate([self._folded, new_folded]))
        return slots

    def free_slots(self, slots: Slots) -> None:
        """Remove the subjects at `slots`, int32 (m,), distinct, so that these can be assigned."""
        is_freed = np.zeros(self.size, dtype=np.bool_)
        is_freed[slots] = True
        self._entries = self._entries[~is_freed[self.taken_slots]]
        # Slots are assigned from the end, so descending order assigns the smallest first, as in a
        # table that was just opened.
        self._free = np.sort(np.concatenate([self._free, slots]))[::-1]

    def iterate_slots(self) -> Iterator[tuple[SubjectId, int]]:
        """Yield the id and the slot of every enrolled subject, by slot. Private."""
        for slots, ids in self._iterate_pages():
            yield from zip(ids, slots.tolist(), strict=True)

    def _iterate_pages(self) -> Iterator[tuple[Slots, list[SubjectId]]]:
        """Yield the taken slots, int32 (m,), and their m ids, of each stored page of slots."""
        for _, rows in read_rows(self._database, range(-(-self.size // PAGE_SLOTS))):
            slots, frames = split_rows(rows)
            yield slots, [parse_framed_id(frame + b">") for frame in frames]

    def _compare_frames(self, slots: Slots, open_frames: Sequence[bytes]) -> Bools:
        """Return whether the subject at each slot has the given open frame, bool (slots,).

        `open_frames`: the frame to compare for each of `slots`, (slots,).
        """
        is_equal = np.zeros(len(slots), dtype=np.bool_)
        pages = slots // PAGE_SLOTS
        order = np.argsort(pages, kind="stable")
        page_numbers, starts = np.unique(pages[order], return_index=True)
        indices_of = dict(zip(page_numbers.tolist(), np.split(order, starts[1:]), strict=True))
        for number, rows in read_rows(self._database, list(indices_of)):
            stored_slots, stored_frames = split_rows(rows)
            frame_at = dict(zip(stored_slots.tolist(), stored_frames, strict=True))
            for index in indices_of[number].tolist():
                is_equal[index] = frame_at.get(int(slots[index])) == open_frames[index]
        return is_equal


def _hash_folded_ids(subjects: Iterable[SubjectId]) -> UInts64:
    """Return a 64-bit hash of each id's folded form, uint64 (subjects,), for this process only."""
    return np.array([hash(folded) for folded in fold_ids(subjects)], dtype=np.int64).view(np.uint64)


def _hash_frames(open_frames: Sequence[bytes]) -> UInts64:
    """Return 32-bit hashes of open frames in the upper halves of uint64 numbers, lower halves 0.

    The hashes are valid in this process only.
    """
    hashes = np.fromiter(map(hash, open_frames), dtype=np.int64, count=len(open_frames))
    return hashes.view(np.uint64) << np.uint64(_SLOT_BITS)


def _read_entries(database: Database, size: int) -> UInts64:
    """Return the entries of all subjects in the database, uint64 (subjects,), sorted.

    `size`: number of slots, taken or free.
    """
    entries = np.empty(size, dtype=np.uint64)
    count = 0
    for rows in database.scan("subject_pages"):
        for _, _, slots_content, stored_ids in rows:
            slots = np.frombuffer(slots_content, dtype="<i4").astype(np.uint64)
            entries[count : count + len(slots)] = _hash_frames(split_ids(stored_ids)) | slots
            count += len(slots)
    entries = entries if count == size else entries[:count].copy()
    entries.sort()
    return entries
