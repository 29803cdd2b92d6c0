"""Who is here: the slot of every subject, by id in memory, and the slots that are free."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from vicinal._arrays import Slots
from vicinal._checks import SubjectId


class SlotTable:
    """A subject keeps its slot while it has records; freed slots are given out again."""

    def __init__(self) -> None:
        self.slot_of: dict[SubjectId, int] = {}
        self.size = 0
        self._free: list[int] = []

    def newcomers(self, subjects: Iterable[SubjectId]) -> list[SubjectId]:
        """Return those of `subjects` that are not here, each once, in order."""
        return [subject for subject in dict.fromkeys(subjects) if subject not in self.slot_of]

    def assign_slots(self, newcomers: Sequence[SubjectId]) -> list[int]:
        """Give each newcomer a slot, and return the slots; `size` grows as needed."""
        more = len(newcomers) - len(self._free)
        if more > 0:
            self._free.extend(range(self.size + more - 1, self.size - 1, -1))
            self.size += more
        slots = [self._free.pop() for _ in newcomers]
        self.slot_of.update(zip(newcomers, slots, strict=True))
        return slots

    def free_slots(self, subjects: Iterable[SubjectId]) -> list[tuple[SubjectId, int]]:
        """Take subjects out of the table; return those that were on it, with their old slots."""
        freed = [(s, self.slot_of.pop(s)) for s in dict.fromkeys(subjects) if s in self.slot_of]
        self._free.extend(slot for _, slot in freed)
        return freed

    def slots_of(self, subjects: Sequence[SubjectId]) -> Slots:
        """Return the slot of every one of `subjects`, all of whom are here."""
        return np.fromiter((self.slot_of[s] for s in subjects), np.int32, len(subjects))

    def present(self, subjects: Iterable[SubjectId]) -> Slots:
        """Return the slots of those of `subjects` that are here, each once, ascending."""
        slots = {self.slot_of[s] for s in subjects if s in self.slot_of}
        return np.array(sorted(slots), dtype=np.int32)
