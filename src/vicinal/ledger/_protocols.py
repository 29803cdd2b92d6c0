"""What the rooms above need of a ledger: a register of who is here, and accounts to charge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from vicinal._arrays import Slots, Units
from vicinal._checks import SubjectId

Turn = Callable[[], AbstractContextManager[object]]
"""Gives the turn for a moment: while it lasts, nobody else reads or writes the database."""


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
