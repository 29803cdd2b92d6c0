"""Who is here, by hashes of ids; the ids themselves lie in the database alone.

A subject takes 8 bytes of memory where a dict of ids takes some 140: 32 bits of a hash of its
framed id, then its slot, as one number, all numbers sorted. A hash only tells where to look. What
it finds is compared with the id that stands at that slot in the database, so that two ids of one
hash are two subjects.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from vicinal.arrays import Bools, Slots, UInts64
from vicinal.checks import SubjectId
from vicinal.errors import InvalidInput
from vicinal.ledger.database import Database
from vicinal.ledger.id_encoding import fold_ids, framed_all, framed_at_any_length, parse_framed_id
from vicinal.ledger.subject_pages import PAGE_SLOTS, entries_of, read_rows, split_ids

NOBODY = -1
"""In place of a slot, for ids that are not here."""

_HALF = 32
_SLOT = np.uint64((1 << _HALF) - 1)
_PAGES = 32
"""Pages in memory at a time: some 8 MB as Python objects."""


class HashedSlotTable:
    """A subject keeps its slot while it has records; freed slots are given out again.

    Its look-ups read the database, which must hold what was assigned and freed before.

    `database`: with the pages of subjects. `size`: number of slots, taken or free.
    """

    def __init__(self, database: Database, size: int) -> None:
        self._database = database
        self.size = size
        self._entries = _read_entries(database, size)
        self._free: Slots = np.flatnonzero(self.unused())[::-1].astype(np.int32)
        self._folded: UInts64 | None = None  # hashes of folded ids; nobody is taken out of it

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def taken(self) -> Slots:
        """The slots that somebody has, int32, in no order."""
        return (self._entries & _SLOT).astype(np.int32)

    def unused(self) -> Bools:
        """Return which slots nobody has, bool (slots,)."""
        unused = np.ones(self.size, dtype=np.bool_)
        unused[self.taken] = False
        return unused

    @property
    def slot_of(self) -> dict[SubjectId, int]:
        """The slot of every subject: all ids in memory, so for a few subjects alone. Private."""
        return dict(self.entries())

    def find(self, subjects: Iterable[SubjectId]) -> Slots:
        """Return the slot of each of `subjects`, int32; :data:`NOBODY` for those not here."""
        return self._find(_frames(subjects))

    def _find(self, ids: Sequence[bytes]) -> Slots:
        """Return the slots of framed ids without their last bracket."""
        slots = np.full(len(ids), NOBODY, dtype=np.int32)
        hashes, entries = _hashes(ids), self._entries
        first = np.searchsorted(entries, hashes)
        count = np.searchsorted(entries, hashes | _SLOT, side="right") - first
        for which in range(int(count.max(initial=0))):
            places = np.flatnonzero(count > which)
            at = (entries[first[places] + which] & _SLOT).astype(np.int32)
            held = self._held(at, [ids[place] for place in places.tolist()])
            slots[places[held]] = at[held]
        return slots

    def alike(self, subjects: Sequence[SubjectId]) -> Bools:
        """Tell of each id whether it is, :func:`fold_ids`, that of somebody here, bool (subjects,).

        The first call reads all ids, a few pages at a time; 8 bytes of each stay.
        """
        if self._folded is None:
            parts = [np.zeros(0, dtype=np.uint64)]
            for start in range(0, -(-self.size // PAGE_SLOTS), _PAGES):
                pages = read_rows(self._database, range(start, start + _PAGES))
                ids = [one + b">" for _, rows in pages for one in entries_of(rows)[1]]
                parts.append(_folded_hashes(map(parse_framed_id, ids)))
            self._folded = np.sort(np.concatenate(parts))
        hashes = _folded_hashes(subjects)
        at = np.searchsorted(self._folded, hashes)
        return at < np.searchsorted(self._folded, hashes, side="right")

    def holds(self, framed_ids: Sequence[bytes]) -> bool:
        """Tell whether all of these framed ids are those of subjects that are here."""
        return bool((self._find([one[:-1] for one in framed_ids]) != NOBODY).all())

    def take_in(self, framed_ids: Sequence[bytes]) -> Slots:
        """Return the slot that each newcomer gets, int32; `size` grows as needed."""
        more = len(framed_ids) - len(self._free)
        if more > 0:
            fresh = np.arange(self.size + more - 1, self.size - 1, -1, dtype=np.int32)
            self._free, self.size = np.concatenate([self._free, fresh]), self.size + more
        n_free = len(self._free) - len(framed_ids)
        slots = self._free[n_free:][::-1].copy()
        self._free = self._free[:n_free].copy()
        new = _hashes([one[:-1] for one in framed_ids]) | slots.astype(np.uint64)
        self._entries = np.concatenate([self._entries, new])
        self._entries.sort()
        if self._folded is not None:
            folded_too = _folded_hashes(map(parse_framed_id, framed_ids))
            self._folded = np.sort(np.concatenate([self._folded, folded_too]))
        return slots

    def free(self, slots: Slots) -> None:
        """Take those at `slots`, each once, out of the table."""
        leaving = np.zeros(self.size, dtype=np.bool_)
        leaving[slots] = True
        self._entries = self._entries[~leaving[self.taken]]
        # The smallest goes first, as after an opening.
        self._free = np.sort(np.concatenate([self._free, slots]))[::-1]

    def entries(self) -> Iterator[tuple[SubjectId, int]]:
        """Yield every subject and its slot, by slot. Private."""
        for start in range(0, -(-self.size // PAGE_SLOTS), _PAGES):
            for _, rows in read_rows(self._database, range(start, start + _PAGES)):
                slots, ids = entries_of(rows)
                yield from zip(
                    (parse_framed_id(one + b">") for one in ids), slots.tolist(), strict=True
                )

    def _held(self, slots: Slots, ids: Sequence[bytes]) -> Bools:
        """Tell of each id, without its last bracket, whether it stands at its slot."""
        held = np.zeros(len(slots), dtype=np.bool_)
        pages = slots // PAGE_SLOTS
        order = np.argsort(pages, kind="stable")
        numbers, starts = np.unique(pages[order], return_index=True)
        places = dict(zip(numbers.tolist(), np.split(order, starts[1:]), strict=True))
        for start in range(0, len(numbers), _PAGES):
            for number, rows in read_rows(self._database, list(places)[start : start + _PAGES]):
                taken, standing = entries_of(rows)
                who_at = dict(zip(taken.tolist(), standing, strict=True))
                for place in places[number].tolist():
                    held[place] = who_at.get(int(slots[place])) == ids[place]
        return held


def _frames(subjects: Iterable[SubjectId]) -> list[bytes]:
    """Return framed ids without their last bracket, as a page's are split."""
    ids = list(subjects)
    try:
        return [frame[:-1] for frame in framed_all(ids)]
    except InvalidInput:  # one is too long to be stored, so its frame is nobody's
        return [framed_at_any_length(one)[:-1] for one in ids]


def _folded_hashes(subjects: Iterable[SubjectId]) -> UInts64:
    return np.array([hash(one) for one in fold_ids(subjects)], dtype=np.int64).view(np.uint64)


def _hashes(ids: Sequence[bytes]) -> UInts64:
    """Return hashes of ids without their last bracket in the upper halves, uint64."""
    hashes = np.fromiter(map(hash, ids), dtype=np.int64, count=len(ids)).view(np.uint64)
    return hashes << np.uint64(_HALF)


def _read_entries(database: Database, size: int) -> UInts64:
    """Return hash and slot of every subject in the database, sorted; at most `size`."""
    entries = np.empty(size, dtype=np.uint64)
    count = 0
    for rows in database.scan("subject_pages"):
        for _, _, slots, stored in rows:
            here = np.frombuffer(slots, dtype="<i4").astype(np.uint64)
            entries[count : count + len(here)] = _hashes(split_ids(stored)) | here
            count += len(here)
    entries = entries if count == size else entries[:count].copy()
    entries.sort()
    return entries
