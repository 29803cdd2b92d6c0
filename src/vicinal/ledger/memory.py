"""Budgets in memory: one int64 per subject, a journal of sums, and hashes of those who left."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from vicinal.accounting.filter import UNITS
from vicinal.checks import SubjectId
from vicinal.mechanisms import fresh_key

Slots = npt.NDArray[np.int32]


class MemoryLedger:
    """Every subject's remaining units, by slot.

    A subject keeps its slot while it has records. One that leaves is forgotten but for a keyed
    hash of its id with what it had left, so that coming back does not refill its budget.
    """

    def __init__(self) -> None:
        self._remaining = np.zeros(0, dtype=np.int64)
        self._slot_of: dict[SubjectId, int] = {}
        self._free: list[int] = []
        self._key = fresh_key()
        self._departed: dict[bytes, int] = {}
        self._journal: list[int] = []

    @property
    def remaining(self) -> npt.NDArray[np.int64]:
        """Units left by slot, int64; mechanisms charge this array in place. Private."""
        return self._remaining

    @property
    def journal(self) -> tuple[int, ...]:
        """Total units charged by each block of answers, oldest first. Private."""
        return tuple(self._journal)

    def __contains__(self, subject: SubjectId) -> bool:
        """Tell whether a subject has a budget here, now or before it left."""
        return subject in self._slot_of or self._hash(subject) in self._departed

    def record(self, spent: int) -> None:
        """Enter the charges of a block, already taken from :attr:`remaining`, in the journal."""
        self._journal.append(spent)

    def enroll(self, subjects: Sequence[SubjectId]) -> Slots:
        """Return the slot of every subject; newcomers get a full budget, others what they had."""
        newcomers = [s for s in dict.fromkeys(subjects) if s not in self._slot_of]
        self._make_room(len(newcomers))
        for subject in newcomers:
            slot = self._free.pop()
            self._slot_of[subject] = slot
            departed = self._departed.pop(self._hash(subject), UNITS) if self._departed else UNITS
            self._remaining[slot] = departed
        return np.fromiter((self._slot_of[s] for s in subjects), np.int32, len(subjects))

    def slots(self, subjects: Iterable[SubjectId]) -> Slots:
        """Return the slots of those of `subjects` that are enrolled, each once."""
        known = {self._slot_of[s] for s in subjects if s in self._slot_of}
        return np.array(sorted(known), dtype=np.int32)

    def dismiss(self, subjects: Iterable[SubjectId]) -> None:
        """Forget subjects; what stays is a keyed hash of the id and the units left."""
        for subject in set(subjects):
            slot = self._slot_of.pop(subject, None)
            if slot is not None:
                self._departed[self._hash(subject)] = int(self._remaining[slot])
                self._remaining[slot] = 0
                self._free.append(slot)

    def _make_room(self, needed: int) -> None:
        size = len(self._remaining)
        more = needed - len(self._free)
        if more > 0:
            grown = np.zeros(size + more, dtype=np.int64)
            grown[:size] = self._remaining
            self._remaining = grown
            self._free.extend(range(size + more - 1, size - 1, -1))

    def _hash(self, subject: SubjectId) -> bytes:
        kind = b"i" if isinstance(subject, int) else b"s"
        return hmac.digest(self._key, kind + str(subject).encode(), hashlib.sha256)
