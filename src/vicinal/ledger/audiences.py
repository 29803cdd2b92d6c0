"""The budgets of an audience: what mechanisms charge, next to what is on the disk, and its row."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vicinal.accounting.budget import UNITS
from vicinal.arrays import Bools, Slots, Units
from vicinal.errors import PrivacyRefused
from vicinal.ledger.database import Database
from vicinal.ledger.memory import grown
from vicinal.ledger.renewal import Renewal
from vicinal.ledger.tables import Tables
from vicinal.mechanisms.charging import find_differences
from vicinal.neighbours.scan import THREADS, map_in_threads

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

    Mechanisms charge `remaining` in place. A second array, `durable`, holds what the database
    holds; the difference of the two is what a commit writes. Nothing can be charged and not be
    written, as nobody needs to say what was charged: the arrays show it. Both are private.

    `units`, int64 (slots,): what the database holds; the account's own from now on.

    `shared`: what a total over all audiences knows of, where there is one; the difference to
    `remaining` is what it has yet to be charged.
    """

    def __init__(self, units: Units) -> None:
        self.remaining = units
        self.durable = units.copy()
        self.shared = np.zeros(0, dtype=np.int64)
        self._spent = 0
        self.unwritten_pages: set[int] = set()

    @property
    def is_charged(self) -> bool:
        """Whether anything is noted that no commit has written."""
        return self._spent > 0

    def note_charged_total(self, spent: int) -> None:
        """Take note of the charges of a block, already taken from :attr:`remaining`."""
        self._spent += spent

    def charges(self) -> Charges:
        """Return what was charged since the last commit.

        Raises PrivacyRefused if a budget grew or fell below zero, or if the mechanisms' sum is
        another one. Then nothing may be answered.
        """
        slots = _differing(self.remaining, self.durable)
        units = self.remaining[slots]
        charged = self.durable[slots] - units
        spent = exact_sum(charged)
        if (charged < 0).any() or (units < 0).any() or spent != self._spent:
            raise PrivacyRefused(
                "The charges of a block do not add up, so it is not answered. This is a bug in "
                "vicinal; please report it."
            )
        return Charges(slots, units, spent)

    def mark_committed(self, charges: Charges) -> None:
        """Take note that `charges` are on the disk."""
        self.durable[charges.slots] = charges.units
        self._spent = 0
        self.unwritten_pages.update(pages_of(charges.slots))

    def recount(self) -> bool:
        """Go by what was charged since the last commit, said or not; return whether any was.

        For a block that was broken off: between a charge and its note, perhaps.
        """
        self._spent = exact_sum(self.durable - self.remaining)
        return self._spent > 0

    def share(self, slots: Slots | slice = slice(None)) -> None:
        """Take it that a total over all audiences knows what is left."""
        self.shared = grown(self.shared, len(self.remaining))
        self.shared[slots] = self.remaining[slots]

    def assign(self, slots: Slots, units: Units, size: int) -> None:
        """Set the units of subjects that come or go, in both copies."""
        self.remaining = grown(self.remaining, size)
        self.durable = grown(self.durable, size)
        self.remaining[slots] = units
        self.durable[slots] = units
        self.unwritten_pages.update(pages_of(slots))


def _differing(one: Units, other: Units) -> Slots:
    """Return where two arrays differ, int32 ascending: threads take a piece each."""
    starts = range(0, len(one), max(_COMPARED, -(-len(one) // THREADS)))
    step = starts.step
    places = map_in_threads(
        lambda at: find_differences(one[at : at + step], other[at : at + step], at), list(starts)
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
    - `initial_budget`: units that a newcomer is given: :data:`~vicinal.accounting.budget.UNITS`,
      what of them has come where budgets renew, or 0 once the history of charges has been lost.
    - `granted`: how often a full budget was given out, or what has come of one. Private.
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

    @property
    def renewal(self) -> Renewal | None:
        """How budgets renew, if they do. Public."""
        return Renewal.of(self.plan)

    @property
    def due(self) -> Renewal | None:
        """The same as it is today: a part whose date has come is released before an answer."""
        renewal = self.renewal
        return renewal.now(self.used) if renewal and self.initial_budget else renewal

    @property
    def released(self) -> int:
        """Units of a full budget that have come so far: all, unless budgets renew. Public."""
        renewal = self.renewal
        return UNITS if renewal is None else renewal.released

    def write(self, database: Database) -> None:
        """Write its row, or write it anew."""
        row = (
            self.number, self.name, self.plan, self.initial_budget, self.granted, self.used,
            self.slack.hex(), str(self.checkpointed), self.checkpointed_queries,
        )  # fmt: skip
        database.replace(Tables.AUDIENCES, [row])

    def checkpoint(self, database: Database, spent: int = 0, queries: int = 0) -> None:
        """Write all changed pages, and add the charges that they now hold to their sums.

        `spent`, `queries`: units and answers of charges that have no row.
        """
        self._write_pages(database, self.account.unwritten_pages)
        logged = charges_since_checkpoint(database, self.number)
        self.checkpointed += spent + logged[0]
        self.checkpointed_queries += queries + logged[1]
        numbers = database.read("SELECT seq FROM charges WHERE audience = ?", (self.number,))
        database.delete_keys(Tables.CHARGES, numbers)
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
        units = self.account.durable.astype("<i8", copy=False)
        pages = ((page, units[page * PAGE : (page + 1) * PAGE]) for page in sorted(numbers))
        database.replace(Tables.PAGES, [(self.number, page, p.tobytes()) for page, p in pages])

    def write_charges(self, database: Database, seq: int, queries: int) -> None:
        """Write what was charged since the last commit, inside a transaction."""
        charges = self.account.charges()
        self.account.mark_committed(charges)
        slots, units = charges.slots.astype("<i4").tobytes(), charges.units.astype("<i8").tobytes()
        charged, paged = len(slots) + len(units), self.account.durable.nbytes
        if charged > max(CHECKPOINT_BYTES, paged):  # the pages alone are shorter
            self.checkpoint(database, charges.spent, queries)
            return
        row = (seq, self.number, queries, str(charges.spent), slots, units)
        database.insert(Tables.CHARGES, [row])
        self.logged_bytes += charged
        if self.logged_bytes > max(CHECKPOINT_BYTES, 2 * paged):
            self.checkpoint(database)


def charges_since_checkpoint(database: Database, audience: int) -> tuple[int, int]:
    """Return units and answers of the charges since the last checkpoint."""
    rows = database.read("SELECT spent, queries FROM charges WHERE audience = ?", (audience,))
    return sum(int(spent) for spent, _ in rows), sum(queries for _, queries in rows)


def load_audiences(database: Database, size: int) -> dict[str, Audience]:
    """Return all audiences by name, their budgets put together from pages and charges.

    `size`: number of slots.
    """
    rows = sorted(database.rows(Tables.AUDIENCES))
    return {row[1]: _loaded(database, row, size) for row in rows}


def read_audience(row: tuple[Any, ...]) -> Audience:
    """Return the audience of a row of the table, without budgets and analysts.

    Raises StoreDamaged if its plan cannot be read.
    """
    number, name, plan, initial_budget, granted, used, slack, spent, queries = row
    audience = Audience(
        number,
        name,
        plan,
        StoredAccount(np.zeros(0, dtype=np.int64)),
        initial_budget,
        granted,
        used,
        float.fromhex(slack),
        int(spent),
        queries,
    )
    Renewal.of(plan)
    return audience


def _loaded(database: Database, row: tuple[Any, ...], size: int) -> Audience:
    audience = read_audience(row)
    number = audience.number
    units = np.zeros(size, dtype=np.int64)
    query = "SELECT number, units FROM pages WHERE audience = ? AND number >= ? AND number < ?"
    for first in range(0, -(-size // PAGE), _PAGES_AT_ONCE):
        for page, content in database.read(query, (number, first, first + _PAGES_AT_ONCE)):
            part = np.frombuffer(content, dtype="<i8")
            units[page * PAGE : page * PAGE + len(part)] = part
    audience.account = StoredAccount(units)
    # Oldest first: a row says what is left, not what was charged, so the newest is the one to keep.
    query = "SELECT slots, units FROM charges WHERE audience = ? ORDER BY seq"
    for charged, left in database.read(query, (number,)):
        audience.logged_bytes += len(charged) + len(left)
        places, part = np.frombuffer(charged, dtype="<i4"), np.frombuffer(left, dtype="<i8")
        audience.account.assign(places, part, size)
    query = "SELECT name, quota, used FROM analysts WHERE audience = ?"
    for analyst, quota, n_used in database.read(query, (number,)):
        audience.analysts[analyst] = Analyst(quota, n_used)
    return audience


def budget_faults(database: Database, audience: Audience, free: Bools) -> Iterator[str]:
    """Yield in words what is wrong with the budgets of an audience."""
    units = audience.account.durable
    if (units < 0).any() or (units > audience.initial_budget).any() or units[free].any():
        yield f"A budget of audience {audience.name!r} is out of bounds."
    query = "SELECT units FROM departed WHERE audience = ?"
    departed = sum(left for (left,) in database.read(query, (audience.number,)))
    spent, _ = charges_since_checkpoint(database, audience.number)
    charged = spent + audience.checkpointed
    if audience.granted * audience.released != exact_sum(units) + departed + charged:
        yield (
            f"Budgets and charges of audience {audience.name!r} do not add up to what was granted."
        )
