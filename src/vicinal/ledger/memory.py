"""Interfaces of a ledger for mechanisms and shards, and a ledger in memory.

The classes are not thread-safe: their callers hold a :class:`ForkSafeLock`.
"""

import os
import threading
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from vicinal.accounting.budget import UNITS
from vicinal.arrays import Slots, Units
from vicinal.checks import SubjectId
from vicinal.errors import PrivacyRefused
from vicinal.ledger.id_encoding import fold_ids, keyed_hash
from vicinal.mechanisms.noise_sources import fresh_key


class Account(Protocol):
    """Interface: every subject's remaining budget for one interaction, in units.

    A *slot* is a subject's index in the array of units.
    """

    @property
    def remaining(self) -> Units:
        """Remaining units by slot, int64 (slots,); mechanisms charge it in place. Private."""

    def note_charged_total(self, spent: int) -> None:
        """Note `spent`, the sum in units of a block's charges, which :attr:`remaining` lacks."""


class Register(Protocol):
    """Interface: the slot of every enrolled subject, its index in the array of units."""

    @property
    def size(self) -> int:
        """Number of slots, taken or free."""

    def enroll(self, subjects: Sequence[SubjectId]) -> Slots:
        """Enroll the new ones of `subjects`; return every subject's slot, int32 (subjects,).

        Ids may repeat. A new subject gets the initial budget, an erased one the units that it had
        left.
        """

    def list_slots(self, subjects: Iterable[SubjectId]) -> Slots:
        """Return the distinct slots of the enrolled ones of `subjects`, int32, ascending."""

    def erase(self, subjects: Iterable[SubjectId]) -> None:
        """Erase the enrolled ones of `subjects`.

        Only a keyed hash of each id remains, with the subject's remaining units.
        """


class MemoryLedger:
    """A register of subjects and one account in memory, for estimators without a store.

    Known subjects are enrolled or erased. Units are those of budgets, :data:`UNITS` for a full one.
    A subject keeps its slot while it has records. Of an erased subject only a keyed hash of its id
    remains, with its remaining units, so that re-enrolment does not refill its budget. The folded
    form of an id is equal for ids that probably differ in spelling only.
    """

    def __init__(self) -> None:
        self.remaining: Units = np.zeros(0, dtype=np.int64)
        """Remaining units by slot; mechanisms charge this array in place. Private."""
        self._slot_of: dict[SubjectId, int] = {}
        self._free: list[int] = []
        self._key = fresh_key()
        self._erased_units: dict[bytes, int] = {}
        # Hashes of the folded ids of all subjects so far, erased ones included; None until the
        # first erasure or search for similar ids.
        self._folded_hashes: set[int] | None = None
        self.charges_by_block: list[int] = []
        """Sum of the units charged for each block of answers, oldest first. Private."""

    @property
    def size(self) -> int:
        """Number of slots, taken or free."""
        return len(self.remaining)

    def __contains__(self, subject: SubjectId) -> bool:
        """Return whether the id of a subject is known: enrolled or erased."""
        return subject in self._slot_of or self._hash(subject) in self._erased_units

    def note_charged_total(self, spent: int) -> None:
        """Append `spent`, the sum of a block's charges in units, to :attr:`charges_by_block`."""
        self.charges_by_block.append(spent)

    def enroll(self, subjects: Sequence[SubjectId]) -> Slots:
        """Enroll the new ones of `subjects`, with full budgets; see :meth:`Register.enroll`."""
        newcomers = [subject for subject in dict.fromkeys(subjects) if subject not in self._slot_of]
        n_missing = max(0, len(newcomers) - len(self._free))
        self._free.extend(range(self.size + n_missing - 1, self.size - 1, -1))
        self.remaining = extend_units(self.remaining, self.size + n_missing)
        for subject in newcomers:
            slot = self._free.pop()
            self._slot_of[subject] = slot
            # Hashing an id is slow, so it is skipped while no subject is erased.
            erased = self._erased_units
            units = erased.pop(self._hash(subject), UNITS) if erased else UNITS
            self.remaining[slot] = units
        if self._folded_hashes is not None:
            self._folded_hashes.update(map(hash, fold_ids(newcomers)))
        slots = (self._slot_of[subject] for subject in subjects)
        return np.fromiter(slots, np.int32, len(subjects))

    def has_similar_unknown_ids(self, subjects: Iterable[SubjectId]) -> bool:
        """Return whether an unknown id of `subjects` has the folded form of another id."""
        unknown = [subject for subject in dict.fromkeys(subjects) if subject not in self]
        new_hashes = set(map(hash, fold_ids(unknown)))
        return len(new_hashes) < len(unknown) or not new_hashes.isdisjoint(self._hash_folded_ids())

    def _hash_folded_ids(self) -> set[int]:
        """Return the hashes of the folded ids of all subjects to date, for this process only."""
        if self._folded_hashes is None:
            self._folded_hashes = set(map(hash, fold_ids(self._slot_of)))
        return self._folded_hashes

    def list_slots(self, subjects: Iterable[SubjectId]) -> Slots:
        """Return the distinct slots of the enrolled ones of `subjects`, int32, ascending."""
        slots = {self._slot_of[subject] for subject in subjects if subject in self._slot_of}
        return np.array(sorted(slots), dtype=np.int32)

    def erase(self, subjects: Iterable[SubjectId]) -> None:
        """Erase the enrolled ones of `subjects`; see :meth:`Register.erase`."""
        self._hash_folded_ids()
        for subject in dict.fromkeys(subjects):
            slot = self._slot_of.pop(subject, None)
            if slot is not None:
                self._free.append(slot)
                self._erased_units[self._hash(subject)] = int(self.remaining[slot])
                self.remaining[slot] = 0

    def _hash(self, subject: SubjectId) -> bytes:
        """Return the keyed hash of a subject's id, 32 bytes, under which its units are kept."""
        return keyed_hash(self._key, subject)


def extend_units(units: Units, size: int) -> Units:
    """Return `units`, int64, extended by zeros to length `size`; itself if it has that length."""
    if len(units) == size:
        return units
    extended = np.zeros(size, dtype=np.int64)
    extended[: len(units)] = units
    return extended


class ForkSafeLock:
    """A reentrant lock for the threads of one process: ``with lock: ...``.

    A forked process has a copy of all budgets, which it could spend again, so entering the lock
    there raises PrivacyRefused.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._process = os.getpid()

    def __enter__(self) -> None:
        """Acquire the lock in the process that created it."""
        if os.getpid() != self._process:
            raise PrivacyRefused(
                "A forked process holds a copy of the budgets and could spend them again. Use the "
                "classifier in the process that fitted it, or fit it in this one."
            )
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        """Release the lock."""
        self._lock.release()
