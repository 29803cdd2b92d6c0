"""Who is enrolled, at which slot, and what those who come get, and those who left have left.

Subjects are enrolled in two steps: first all that can be found out, then what becomes durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from vicinal._arrays import Slots, Units
from vicinal._checks import SubjectId
from vicinal.accounting import UNITS
from vicinal.errors import PrivacyRefused
from vicinal.ledger._audiences import Audience, load_audiences
from vicinal.ledger._database import Database, Row
from vicinal.ledger._hashed_slots import NOBODY, HashedSlotTable, SlotAssignment
from vicinal.ledger._id_encoding import framed_all, keyed_digest, keyed_hash
from vicinal.ledger._protocols import Turn
from vicinal.ledger._subject_pages import WrittenPages, pages_after, put_pages, remove_subjects
from vicinal.ledger._tables import DEPARTED

_AT_ONCE = 256
"""Hashes that are looked up in one statement."""

EVALUATED = -1
"""In place of an audience's number: whoever has such a row never had records here."""


class Standing(IntEnum):
    """How a ledger knows a subject: not at all, by evaluations only, by records it had, or has."""

    UNKNOWN = 0
    EVALUATED = 1
    ERASED = 2
    ENROLLED = 3


@dataclass(frozen=True, slots=True, eq=False)
class Enrollment:
    """Subjects that are about to be enrolled: what the register will be. Private.

    - `basis`: the register's version that it holds for, see :class:`SubjectRegister`.
    - `slots`: the slot of every subject, int32, as they were passed.
    - `newcomers`: those that are not here, each once.
    - `returning`: hashes of those newcomers who were here before, by place.
    - `assignment`: the newcomers' slots, and the table with them.
    - `pages`: what is written of them.
    """

    basis: int
    slots: Slots
    newcomers: Sequence[SubjectId]
    returning: dict[int, bytes]
    assignment: SlotAssignment
    pages: Sequence[WrittenPages]


@dataclass(frozen=True, eq=False, slots=True)
class LeavingSubjects:
    """Subjects that are about to be forgotten: slots, int32, framed ids, keyed hashes. Private."""

    slots: Slots
    ids: list[bytes]
    hashes: list[bytes]


class SubjectRegister:
    """Who is enrolled, where, and what those who come get and those who left have left.

    `database`: one with its tables. `key`: the secret key of the hashes of those who left.

    `register_version`: how often, since the opening, it may have changed who is here, or what those
    have left who are not; answers do not count.
    """

    def __init__(self, database: Database, key: bytes) -> None:
        self.database = database
        self._key = key
        size = int(database.get("slots") or 0)
        self.slot_table = HashedSlotTable(database, size)
        self.audiences = load_audiences(database, size)
        self.register_version = 0

    @property
    def size(self) -> int:
        """Number of slots, taken or free."""
        return self.slot_table.size

    def slots(self, subjects: Iterable[SubjectId]) -> Slots:
        """Return the slots of those of `subjects` that are enrolled, each once."""
        return self.slot_table.present(subjects)

    def enroll(self, subjects: Sequence[SubjectId]) -> Slots:
        """Return the slot of every subject, inside :meth:`Ledger.change`.

        Newcomers get what each audience gives them, others what they had left when they left.
        """
        return self.admit(self.enrollment_of(subjects))

    def enrollment_of(self, subjects: Sequence[SubjectId], turn: Turn = nullcontext) -> Enrollment:
        """Return what enrolling subjects comes to, and change nothing.

        The database is read inside `turn`, a little at a time. What comes between two such moments
        may change the register; then what is returned is of no use, and is not admitted.
        """
        with turn():
            basis = self.register_version
        distinct = list(dict.fromkeys(subjects))
        slots = self.slot_table.find(distinct, turn)
        new = slots == NOBODY
        newcomers = [distinct[place] for place in np.flatnonzero(new).tolist()]
        ids = framed_all(newcomers)
        assignment = self.slot_table.assignment(ids)
        slots[new] = assignment.slots
        changes = dict(zip(assignment.slots.tolist(), ids, strict=True))
        pages = list(pages_after(self.database, changes, turn))
        if len(distinct) < len(subjects):
            place_of = dict(zip(distinct, slots.tolist(), strict=True))
            slots = np.fromiter((place_of[one] for one in subjects), np.int32, len(subjects))
        returning = self._returning(newcomers, turn)
        return Enrollment(basis, slots, newcomers, returning, assignment, pages)

    def admit(self, enrollment: Enrollment) -> Slots:
        """Enroll subjects, inside :meth:`Ledger.change`; return the slot of each.

        Raises PrivacyRefused if the register has changed since :meth:`enrollment_of`.
        """
        if enrollment.basis != self.register_version:
            raise PrivacyRefused("The register has changed since the enrollment was made.")
        self.slot_table.become(enrollment.assignment)
        put_pages(self.database, enrollment.pages)
        self.database.put("slots", str(self.size))
        departed = self._returned(enrollment)
        for audience in self.audiences.values():
            newcomers = enrollment.assignment.slots
            assign_initial_budgets(audience, newcomers, departed, self.size)
            audience.write_newcomers(self.database, newcomers)
        return enrollment.slots

    def leaving(self, subjects: Iterable[SubjectId]) -> LeavingSubjects:
        """Return for :meth:`take_out` those of `subjects` that are enrolled, each once."""
        distinct = list(dict.fromkeys(subjects))
        slots = self.slot_table.find(distinct)
        here = slots != NOBODY
        leaving = [distinct[place] for place in np.flatnonzero(here).tolist()]
        return LeavingSubjects(slots[here], framed_all(leaving), list(map(self.hash, leaving)))

    def remove(self, subjects: Iterable[SubjectId]) -> None:
        """Forget subjects, inside :meth:`Ledger.change`.

        What stays is a keyed hash of the id, with what was left for every audience.
        """
        self.take_out(self.leaving(subjects))

    def take_out(self, leaving: LeavingSubjects) -> None:
        """Forget subjects that are enrolled, as :meth:`remove`."""
        slots, nothing = leaving.slots, np.zeros(len(leaving.slots), dtype=np.int64)
        remove_subjects(self.database, dict(zip(slots.tolist(), leaving.ids, strict=True)))
        self.slot_table.free(slots)
        for audience in self.audiences.values():
            budgets = audience.account.durable[slots].tolist()
            rows = zip(leaving.hashes, [audience.number] * len(slots), budgets, strict=True)
            self.database.insert(DEPARTED, rows)
            audience.account.assign(slots, nothing, self.size)
            audience.checkpoint(self.database)

    def standing(self, subject: SubjectId) -> Standing:
        """Return how a subject is known here; all but the unknown have a budget. Private."""
        return self.standings([subject])[0]

    def standings(self, subjects: Iterable[SubjectId], turn: Turn = nullcontext) -> list[Standing]:
        """Return :meth:`standing` of many subjects, sooner; `turn` as in :meth:`enrollment_of`."""
        ids = list(subjects)
        slots = self.slot_table.find(ids, turn)
        others = [ids[place] for place in np.flatnonzero(slots == NOBODY).tolist()]
        without_slot = iter(self._standings_without_slot(others, turn))
        here = (slots != NOBODY).tolist()
        return [Standing.ENROLLED if one else next(without_slot) for one in here]

    def _standings_without_slot(self, subjects: Sequence[SubjectId], turn: Turn) -> list[Standing]:
        if not subjects or not has_departed(self.database, turn):
            return [Standing.UNKNOWN] * len(subjects)
        least = departed_among(self.database, [self.hash(one) for one in subjects], turn)
        standings = [Standing.UNKNOWN] * len(subjects)
        for place, audience in least.items():
            standings[place] = Standing.EVALUATED if audience == EVALUATED else Standing.ERASED
        return standings

    def visitor_units(self, audience: Audience, subjects: Sequence[SubjectId]) -> Units:
        """Return what each subject, none of whom is enrolled, has left; newcomers a new budget."""
        return np.array([self._visitor_units(audience, one) for one in subjects], dtype=np.int64)

    def _visitor_units(self, audience: Audience, subject: SubjectId) -> int:
        rows = self._units_of_departed(self.hash(subject), audience)
        return int(rows[0][0]) if rows else audience.initial_budget

    def keep_visitors(
        self, audience: Audience, subjects: Sequence[SubjectId], before: Units, after: Units
    ) -> None:
        """Write what visitors have left, inside a release; what they spent counts as charged.

        They have no records here, so it is kept under their keyed hash, as of those who left.
        """
        for subject, had, has in zip(subjects, before.tolist(), after.tolist(), strict=True):
            hashed = self.hash(subject)
            if self.standing(subject) == Standing.UNKNOWN:
                self.database.insert(DEPARTED, [(hashed, EVALUATED, 0)])
            if not self._units_of_departed(hashed, audience):
                audience.granted += audience.initial_budget == UNITS
            self.database.replace(DEPARTED, [(hashed, audience.number, has)])
            audience.checkpointed += had - has

    def _units_of_departed(self, hashed: bytes, audience: Audience) -> list[Row]:
        query = "SELECT units FROM departed WHERE hash = ? AND audience = ?"
        return self.database.read(query, (hashed, audience.number))

    def hash(self, subject: SubjectId) -> bytes:
        """Return the keyed hash that stands for a subject that left."""
        return keyed_hash(self._key, subject)

    def keyed_digest(self, content: bytes) -> bytes:
        """Return 32 bytes that tell content only to whoever has the key, and a guess of it."""
        return keyed_digest(self._key, content)

    def _returning(self, newcomers: Sequence[SubjectId], turn: Turn) -> dict[int, bytes]:
        """Return the hashes of those who were here before, or may have been, by place."""
        if not newcomers or not has_departed(self.database, turn):
            return {}
        hashes = [self.hash(subject) for subject in newcomers]
        return {place: hashes[place] for place in departed_among(self.database, hashes, turn)}

    def _returned(self, enrollment: Enrollment) -> dict[int, dict[int, int]]:
        """Return the units of those who were here before: {place: {audience: units}}."""
        units_of: dict[int, dict[int, int]] = {}
        for place, hashed in enrollment.returning.items():
            query = "SELECT audience, units FROM departed WHERE hash = ?"
            if rows := self.database.read(query, (hashed,)):
                units_of[place] = dict(rows)
                self.database.delete(DEPARTED, "hash = ?", (hashed,))
        return units_of


def assign_initial_budgets(
    audience: Audience, slots: Slots, departed: Mapping[int, Mapping[int, int]], size: int
) -> None:
    """Give newcomers at `slots` what they get; who was here before gets what was left."""
    units = np.full(len(slots), audience.initial_budget, dtype=np.int64)
    granted = len(slots) if audience.initial_budget == UNITS else 0
    for place, budgets in departed.items():
        if audience.number in budgets:
            units[place] = budgets[audience.number]
            granted -= audience.initial_budget == UNITS
    audience.granted += granted
    audience.account.assign(slots, units, size)


def departed_among(database: Database, hashes: Sequence[bytes], turn: Turn) -> dict[int, int]:
    """Return which hashes have rows of those who left, by place, with the least audience's number.

    The database is read inside `turn`, a few hundred rows at a time.
    """
    least: dict[bytes, int] = {}
    for start in range(0, len(hashes), _AT_ONCE):
        some = hashes[start : start + _AT_ONCE]
        marks = ", ".join("?" * len(some))
        query = f"SELECT hash, MIN(audience) FROM departed WHERE hash IN ({marks}) GROUP BY hash"  # noqa: S608
        with turn():
            least.update(dict(database.read(query, some)))
    return {place: least[one] for place, one in enumerate(hashes) if one in least} if least else {}


def has_departed(database: Database, turn: Turn) -> bool:
    """Tell whether anybody left, or was evaluated without having been here."""
    with turn():
        return bool(database.read("SELECT hash FROM departed LIMIT 1"))
