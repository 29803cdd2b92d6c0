"""The budgets of an audience: what mechanisms charge, next to what is on the disk, and its row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from vicinal._arrays import Bools, Slots, Units
from vicinal.accounting import UNITS
from vicinal.errors import PrivacyRefused
from vicinal.ledger._database import Database
from vicinal.ledger._memory import grown
from vicinal.ledger._tables import AUDIENCES, CHARGES, PAGES
from vicinal.mechanisms import differing
from vicinal.neighbours import THREADS, map_in_threads

PAGE = 8192
"""Subjects whose units lie in one array: 64 KiB."""

_AT_ONCE = 1 << 16
"""Numbers that are added up at a time, so that no copy of all is made."""

_COMPARED = 1 << 18
"""Budgets that a thread compares at least; fewer are compared sooner than it is woken."""

CHECKPOINT_BYTES = 1 << 20
"""Charges go into the pages when they take twice the space of these, and at least this."""

_PAGES_AT_ONCE = 16


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


@dataclass
class Analyst:
    """An analyst of one audience; ``quota`` None: whatever the audience has left."""

    quota: int | None
    used: int


@dataclass
class Audience:
    """A group of analysts who may share answers, and the budgets that their answers spend.

    - `number`, `name`, `plan`: who it is; the plan as JSON. Public.
    - `account`: budgets. Private.
    - `initial_budget`: units that a newcomer is given: :data:`~vicinal.accounting._budget.UNITS`,
      or 0 once the history of charges has been lost.
    - `granted`: how often a full budget was given out. Private.
    - `used`: answers that were charged. Public.
    - `slack`: delta that the grid has cost. Public.
    - `checkpointed`, `checkpointed_queries`: charges, and the answers they paid for, that are in
      the pages only.
    - `analysts`: by name.
    - `logged_bytes`: bytes of charges in the log that are not yet in the pages.
    """

    number: int
    name: str
    plan: str
    account: StoredAccount
    initial_budget: int = UNITS
    granted: int = 0
    used: int = 0
    slack: float = 0.0
    checkpointed: int = 0
    checkpointed_queries: int = 0
    analysts: dict[str, Analyst] = field(default_factory=dict)
    logged_bytes: int = 0

    def write(self, database: Database) -> None:
        """Write its row, or write it anew."""
        row = (
            self.number, self.name, self.plan, self.initial_budget, self.granted, self.used,
            self.slack.hex(), str(self.checkpointed), self.checkpointed_queries,
        )  # fmt: skip
        database.replace(AUDIENCES, [row])

    def checkpoint(self, database: Database, spent: int = 0, queries: int = 0) -> None:
        """Write all changed pages, and add the charges that they now hold to their sums.

        `spent`, `queries`: units and answers of charges that have no row.
        """
        self._write_pages(database, self.account.unwritten_pages)
        logged = charges_since_checkpoint(database, self.number)
        self.checkpointed += spent + logged[0]
        self.checkpointed_queries += queries + logged[1]
        numbers = database.read("SELECT seq FROM charges WHERE audience = ?", (self.number,))
        database.delete_keys(CHARGES, numbers)
        self.write(database)
        self.account.unwritten_pages.clear()
        self.logged_bytes = 0

    def write_newcomers(self, database: Database, slots: Slots) -> None:
        """Write the pages of budgets that were just given to `slots`, and leave the log of charges.

        The log says nothing of these slots: who had one before left, and with that the log was
        emptied. Of others on the pages it says what they have left, so reading it again after the
        pages comes to the same budgets.
        """
        self._write_pages(database, pages_of(slots))
        self.write(database)

    def _write_pages(self, database: Database, numbers: Iterable[int]) -> None:
        pages = [(self.number, page, self.account.page(page)) for page in sorted(numbers)]
        database.replace(PAGES, pages)

    @property
    def needs_checkpoint(self) -> bool:
        """Whether the charges on record take so much space that folding pays."""
        return self.logged_bytes > max(CHECKPOINT_BYTES, 2 * self.account.durable.nbytes)

    def pages_take_less(self, charged_bytes: int) -> bool:
        """Tell whether charges of one block take so much space that pages alone are shorter."""
        return charged_bytes > max(CHECKPOINT_BYTES, self.account.durable.nbytes)


def charges_since_checkpoint(database: Database, audience: int) -> tuple[int, int]:
    """Return units and answers of the charges since the last checkpoint."""
    rows = database.read("SELECT spent, queries FROM charges WHERE audience = ?", (audience,))
    return sum(int(spent) for spent, _ in rows), sum(queries for _, queries in rows)


def load_audiences(database: Database, size: int) -> dict[str, Audience]:
    """Return all audiences by name, their budgets put together from pages and charges.

    `size`: number of slots.
    """
    rows = sorted(database.rows(AUDIENCES))
    return {row[1]: _loaded(database, row, size) for row in rows}


def _loaded(database: Database, row: tuple[object, ...], size: int) -> Audience:
    number, name, plan, initial_budget, granted, used, slack, spent, queries = row
    audience = Audience(
        int(str(number)), str(name), str(plan),
        StoredAccount(_paged_units(database, int(str(number)), size)),
        int(str(initial_budget)), int(str(granted)), int(str(used)), float.fromhex(str(slack)),
        int(str(spent)), int(str(queries)),
    )  # fmt: skip
    _replay(database, audience)
    for analyst, quota, used in database.read(
        "SELECT name, quota, used FROM analysts WHERE audience = ?", (audience.number,)
    ):
        audience.analysts[analyst] = Analyst(quota, used)
    return audience


def _paged_units(database: Database, number: int, size: int) -> np.ndarray:
    units = np.zeros(size, dtype=np.int64)
    query = "SELECT number, units FROM pages WHERE audience = ? AND number >= ? AND number < ?"
    for first in range(0, -(-size // PAGE), _PAGES_AT_ONCE):
        for page, content in database.read(query, (number, first, first + _PAGES_AT_ONCE)):
            part = np.frombuffer(content, dtype="<i8")
            units[page * PAGE : page * PAGE + len(part)] = part
    return units


def _replay(database: Database, audience: Audience) -> None:
    """Apply the charges since the pages were written, oldest first."""
    rows = database.read(
        "SELECT slots, units FROM charges WHERE audience = ? ORDER BY seq", (audience.number,)
    )
    for slots, units in rows:
        audience.logged_bytes += len(slots) + len(units)
        places = np.frombuffer(slots, dtype="<i4")
        audience.account.assign(
            places, np.frombuffer(units, dtype="<i8"), len(audience.account.durable)
        )


def budget_faults(database: Database, audience: Audience, free: Bools) -> Iterator[str]:
    """Yield in words what is wrong with the budgets of an audience."""
    units = audience.account.durable
    if (units < 0).any() or (units > UNITS).any() or units[free].any():
        yield f"A budget of audience {audience.name!r} is out of bounds."
    if not _conserved(database, audience):
        yield (
            f"Budgets and charges of audience {audience.name!r} do not add up to what was granted."
        )


def _conserved(database: Database, audience: Audience) -> bool:
    """Tell whether units granted equal units left, here or gone, and units charged."""
    departed = database.read("SELECT units FROM departed WHERE audience = ?", (audience.number,))
    remaining = exact_sum(audience.account.durable) + sum(units for (units,) in departed)
    spent, _ = charges_since_checkpoint(database, audience.number)
    return bool(audience.granted * UNITS == remaining + spent + audience.checkpointed)
