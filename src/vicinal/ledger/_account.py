"""The budgets of one audience: what mechanisms charge, next to what is on the disk."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vicinal._arrays import Slots, Units
from vicinal.errors import PrivacyRefused
from vicinal.ledger._memory import grown
from vicinal.mechanisms import differing
from vicinal.neighbours import THREADS, map_in_threads

PAGE = 8192
"""Subjects whose units lie in one array: 64 KiB."""

_AT_ONCE = 1 << 16
"""Numbers that are added up at a time, so that no copy of all is made."""

_COMPARED = 1 << 18
"""Budgets that a thread compares at least; fewer are compared sooner than it is woken."""


@dataclass(frozen=True, slots=True)
class Charges:
    """What changed since the last commit; private.

    - `slots`, int32 (m,): subjects that were charged.
    - `units`, int64 (m,): what each of them has left.
    - `spent`: all charges together.
    """

    slots: Slots
    units: Units
    spent: int


class StoredAccount:
    """Every subject's remaining units for one audience, in two copies.

    Mechanisms charge :attr:`remaining`. A second array holds what the database holds; the
    difference of the two is what a commit writes. Nothing can be charged and not be written, as
    nobody needs to say what was charged: the arrays show it.

    `units`, int64 (slots,): what the database holds; the account's own from now on.
    """

    def __init__(self, units: Units) -> None:
        self._remaining = units
        self._durable = units.copy()
        self._spent = 0
        self.unwritten_pages: set[int] = set()

    @property
    def remaining(self) -> Units:
        """Units left by slot, int64; mechanisms charge this array in place. Private."""
        return self._remaining

    @property
    def durable(self) -> Units:
        """Units left by slot as the database has them. Private."""
        return self._durable

    def note_charged_total(self, spent: int) -> None:
        """Take note of the charges of a block, already taken from :attr:`remaining`."""
        self._spent += spent

    def charges(self) -> Charges:
        """Return what was charged since the last commit.

        Raises PrivacyRefused if a budget grew or fell below zero, or if the mechanisms' sum is
        another one. Then nothing may be answered.
        """
        slots = _differing(self._remaining, self._durable)
        units = self._remaining[slots]
        charged = self._durable[slots] - units
        spent = exact_sum(charged)
        if (charged < 0).any() or (units < 0).any() or spent != self._spent:
            raise PrivacyRefused(
                "The charges of a block do not add up, so it is not answered. This is a fault in "
                "vicinal; please report it."
            )
        return Charges(slots, units, spent)

    def mark_committed(self, charges: Charges) -> None:
        """Take note that `charges` are on the disk."""
        self._durable[charges.slots] = charges.units
        self._spent = 0
        self.unwritten_pages.update(pages_of(charges.slots))

    def recount(self) -> bool:
        """Go by what was charged since the last commit, said or not; return whether any was.

        For a block that was broken off: between a charge and its note, perhaps.
        """
        self._spent = exact_sum(self._durable - self._remaining)
        return self._spent > 0

    def assign(self, slots: Slots, units: Units, size: int) -> None:
        """Set the units of subjects that come or go, in both copies."""
        self._remaining = grown(self._remaining, size)
        self._durable = grown(self._durable, size)
        self._remaining[slots] = units
        self._durable[slots] = units
        self.unwritten_pages.update(pages_of(slots))

    def page(self, number: int) -> bytes:
        """Return the units of one page as they are stored."""
        return self._durable[number * PAGE : (number + 1) * PAGE].astype("<i8").tobytes()


def _differing(one: Units, other: Units) -> Slots:
    """Return where two arrays differ, int32 ascending: threads take a piece each."""
    starts = range(0, len(one), max(_COMPARED, -(-len(one) // THREADS)))
    step = starts.step
    places = map_in_threads(
        lambda at: differing(one[at : at + step], other[at : at + step], at), list(starts)
    )
    return np.concatenate([np.zeros(0, dtype=np.int32), *places])


def pages_of(slots: Slots) -> list[int]:
    """Return the numbers of the pages that hold some slots, each once, ascending."""
    return list(np.flatnonzero(np.bincount(slots // PAGE)).tolist())


def exact_sum(units: Units) -> int:
    """Return the sum of int64 numbers, however large, as an int."""
    parts = (units[start : start + _AT_ONCE] for start in range(0, len(units), _AT_ONCE))
    return sum((int((p >> 24).sum()) << 24) + int((p & ((1 << 24) - 1)).sum()) for p in parts)
