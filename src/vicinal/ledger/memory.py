"""What others need of a ledger: who is here, and accounts to charge; and budgets in memory.

Whoever touches them holds a :class:`ForkSafeLock`.
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
from vicinal.ledger.id_encoding import keyed_hash
from vicinal.mechanisms.noise_sources import fresh_key


class Account(Protocol):
    """Every subject's remaining units, by slot, for one interaction."""

    @property
    def remaining(self) -> Units:
        """Units left by slot, int64; mechanisms charge this array in place. Private."""
        ...

    def note_charged_total(self, spent: int) -> None:
        """Take note of the charges of a block, already taken from :attr:`remaining`."""
        ...


class Register(Protocol):
    """Which subject stands at which slot."""

    @property
    def size(self) -> int:
        """Number of slots, taken or free."""
        ...

    def enroll(self, subjects: Sequence[SubjectId]) -> Slots:
        """Return the slot of every subject; newcomers get a full budget, others what they had."""
        ...

    def slots(self, subjects: Iterable[SubjectId]) -> Slots:
        """Return the slots of those of `subjects` that are enrolled, each once."""
        ...

    def remove(self, subjects: Iterable[SubjectId]) -> None:
        """Forget subjects; what stays is a keyed hash of the id and the units left."""
        ...


class MemoryLedger:
    """Every subject's remaining units, by slot.

    A subject keeps its slot while it has records. One that leaves is forgotten but for a keyed
    hash of its id with what it had left, so that coming back does not refill its budget.
    """

    def __init__(self) -> None:
        self.remaining: Units = np.zeros(0, dtype=np.int64)
        """Units left by slot; mechanisms charge this array in place. Private."""
        self._slot_of: dict[SubjectId, int] = {}
        self._free: list[int] = []
        self._key = fresh_key()
        self._departed: dict[bytes, int] = {}
        self.journal: list[int] = []
        """Total units charged by each block of answers, oldest first. Private."""

    @property
    def size(self) -> int:
        """Number of slots, taken or free."""
        return len(self.remaining)

    def __contains__(self, subject: SubjectId) -> bool:
        return subject in self._slot_of or self._hash(subject) in self._departed

    def note_charged_total(self, spent: int) -> None:
        """Enter the charges of a block, already taken from :attr:`remaining`, in the journal."""
        self.journal.append(spent)

    def enroll(self, subjects: Sequence[SubjectId]) -> Slots:
        """Return the slot of every subject; newcomers get a full budget, others what they had."""
        newcomers = [one for one in dict.fromkeys(subjects) if one not in self._slot_of]
        more = max(0, len(newcomers) - len(self._free))
        self._free.extend(range(self.size + more - 1, self.size - 1, -1))
        self.remaining = grown(self.remaining, self.size + more)
        for subject in newcomers:
            self._slot_of[subject] = slot = self._free.pop()
            departed = self._departed.pop(self._hash(subject), UNITS) if self._departed else UNITS
            self.remaining[slot] = departed
        return np.fromiter((self._slot_of[one] for one in subjects), np.int32, len(subjects))

    def slots(self, subjects: Iterable[SubjectId]) -> Slots:
        """Return the slots of those of `subjects` that are enrolled, each once, ascending."""
        slots = {self._slot_of[one] for one in subjects if one in self._slot_of}
        return np.array(sorted(slots), dtype=np.int32)

    def remove(self, subjects: Iterable[SubjectId]) -> None:
        """Forget subjects; what stays is a keyed hash of the id and the units left."""
        for subject in dict.fromkeys(subjects):
            if (slot := self._slot_of.pop(subject, None)) is not None:
                self._free.append(slot)
                self._departed[self._hash(subject)] = int(self.remaining[slot])
                self.remaining[slot] = 0

    def _hash(self, subject: SubjectId) -> bytes:
        return keyed_hash(self._key, subject)


def grown(units: Units, size: int) -> Units:
    """Return `units` with zeros added up to `size`; the same array if it has that many."""
    if len(units) == size:
        return units
    larger = np.zeros(size, dtype=np.int64)
    larger[: len(units)] = units
    return larger


class ForkSafeLock:
    """One thread of one process at a time: ``with lock: ...``.

    A forked process has a copy of all budgets, which it could spend once more; it is refused.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._process = os.getpid()

    def __enter__(self) -> None:
        if os.getpid() != self._process:
            raise PrivacyRefused(
                "A forked process holds a copy of the budgets and could spend them again. Use the "
                "classifier in the process that fitted it, or fit it in this one."
            )
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
