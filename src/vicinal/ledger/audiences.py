"""The budgets of an audience, in memory and on disk: accounts, pages and the log of charges.

A *slot* is a subject's index in all arrays of units, and `slots`, int32 (m,), are those of m
subjects. A *page* is a database row with the remaining units of 8192 consecutive slots; the *log*
holds charges made after the pages were written. The *total* is the account of all audiences
together, if their joint loss is limited.

`database` is the ledger's database, `audience_number` the number of an audience in its table,
`size` the number of all slots.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vicinal.accounting.budget import UNITS
from vicinal.arrays import Bools, Slots, Units
from vicinal.errors import PrivacyRefused
from vicinal.ledger.database import Database
from vicinal.ledger.memory import extend_units
from vicinal.ledger.renewal import Renewal
from vicinal.ledger.tables import Tables
from vicinal.mechanisms.charging import find_differences
from vicinal.neighbours.scan import get_thread_count, map_in_threads

PAGE_SLOTS = 8192
"""Number of slots whose remaining units one row of the table `pages` holds: 64 KiB."""

_SUM_CHUNK = 1 << 16
"""Numbers that are summed at a time (512 KiB), because a sum needs copies of its numbers."""

_MIN_COMPARED = 1 << 18
"""Minimal number of budgets per thread in a comparison. Comparing fewer is faster than waking a
thread."""

CHECKPOINT_BYTES = 1 << 20
"""Charges are folded into the pages once they take twice the space of the pages, and at least
this many bytes. See docs/decisions/0030-one-commit.md."""

_PAGES_PER_QUERY = 16
"""Pages that are read by one statement: 1 MiB."""


@dataclass(frozen=True, slots=True)
class Charges:
    """The charges to one account since the last commit; private.

    - `slots`, int32 (m,): slots of the charged subjects, ascending.
    - `units`, int64 (m,): remaining units of each after the charge.
    - `spent`: sum of all charges, in units.
    """

    slots: Slots
    units: Units
    spent: int


class StoredAccount:
    """Every subject's remaining units for one audience, in memory and as committed.

    Attributes, private; the arrays are int64 (slots,):

    - `remaining`: units after all charges; mechanisms reduce it in place.
    - `durable`: units in the database. A commit writes the differences to it, so no list of charges
      can be incomplete.
    - `synced_remaining`: with a total, the units whose charges it already counts. The total is next
      charged for the difference between these and `remaining`.
    - `unwritten_pages`: numbers of the pages with charges that are only in the log.

    `units`, int64 (slots,): remaining units in the database; the account owns the array. Without
    it, there are no slots yet.
    """

    def __init__(self, units: Units | None = None) -> None:
        self.remaining: Units = np.zeros(0, dtype=np.int64) if units is None else units
        self.durable = self.remaining.copy()
        self.synced_remaining = np.zeros(0, dtype=np.int64)
        self._spent = 0
        self.unwritten_pages: set[int] = set()

    @property
    def is_charged(self) -> bool:
        """Whether the noted sum of charges that are not committed is above 0."""
        return self._spent > 0

    def note_charged_total(self, spent: int) -> None:
        """Add a block's charges to the noted sum, with which a commit compares the actual one.

        `spent`: their sum in units, by which :attr:`remaining` is already reduced.
        """
        self._spent += spent

    def collect_charges(self) -> Charges:
        """Return the charges since the last commit.

        Raises PrivacyRefused if a budget grew or fell below zero, or if the sum differs from the
        one that the mechanisms noted. Then nothing may be answered.
        """
        slots = _find_charged_slots(self.remaining, self.durable)
        units = self.remaining[slots]
        charged = self.durable[slots] - units
        spent = sum_exactly(charged)
        if (charged < 0).any() or (units < 0).any() or spent != self._spent:
            raise PrivacyRefused(
                "The charges of a block do not add up, so it is not answered. This is a bug in "
                "vicinal; please report it."
            )
        return Charges(slots, units, spent)

    def mark_committed(self, charges: Charges) -> None:
        """Treat the collected `charges` as written, so that no commit writes them again."""
        self.durable[charges.slots] = charges.units
        self._spent = 0
        self.unwritten_pages.update(find_page_numbers(charges.slots))

    def recount_charges(self) -> bool:
        """Set the noted sum of charges to the actual one; return whether there are any charges.

        An interrupted block may have charged subjects without noting the sum.
        """
        self._spent = sum_exactly(self.durable - self.remaining)
        return self._spent > 0

    def mark_charged_to_total(self, slots: Slots | slice = slice(None)) -> None:
        """Set :attr:`synced_remaining` to the remaining units at `slots`, by default at all.

        From then on the total is charged only for later charges. Call it after the total was
        charged, and after units were set without a charge. It charges nothing itself.
        """
        self.synced_remaining = extend_units(self.synced_remaining, len(self.remaining))
        self.synced_remaining[slots] = self.remaining[slots]

    def set_units(self, slots: Slots, units: Units, size: int) -> None:
        """Set the `units`, int64 (m,), of `slots`, in memory and as committed, without a charge.

        The arrays grow to `size`.
        """
        self.remaining = extend_units(self.remaining, size)
        self.durable = extend_units(self.durable, size)
        self.remaining[slots] = units
        self.durable[slots] = units
        self.unwritten_pages.update(find_page_numbers(slots))


def _find_charged_slots(remaining: Units, durable: Units) -> Slots:
    """Return the slots where two arrays of units (slots,) differ, int32, ascending.

    `remaining`: units after all charges. `durable`: units in the database.
    """
    chunk_size = max(_MIN_COMPARED, -(-len(remaining) // get_thread_count()))
    starts = range(0, len(remaining), chunk_size)
    differences = map_in_threads(
        lambda start: find_differences(
            remaining[start : start + chunk_size], durable[start : start + chunk_size], start
        ),
        list(starts),
    )
    return np.concatenate([np.zeros(0, dtype=np.int32), *differences])


def find_page_numbers(slots: Slots) -> list[int]:
    """Return the distinct numbers of the pages that hold `slots`, (m,), in ascending order."""
    return list(np.flatnonzero(np.bincount(slots // PAGE_SLOTS)).tolist())


def sum_exactly(units: Units) -> int:
    """Return the sum of `units`, int64, as a Python int, which cannot overflow."""
    # The upper and the lower 24 bits of a chunk are summed separately; neither overflows int64.
    chunks = (units[start : start + _SUM_CHUNK] for start in range(0, len(units), _SUM_CHUNK))
    return sum(
        (int((chunk >> 24).sum()) << 24) + int((chunk & ((1 << 24) - 1)).sum()) for chunk in chunks
    )


@dataclass
class Analyst:
    """An analyst of one audience.

    `quota`: number of answers the analyst may get; None: as many as the audience. `used`: number of
    answers the analyst got.
    """

    quota: int | None
    used: int


@dataclass
class Audience:
    """A group of analysts with common answers, and the budgets that these answers spend.

    - `number`, `name`: unique each; 0 and "" for the total over all audiences. Public.
    - `plan`: the plan as JSON. Public.
    - `account`: every subject's remaining units. Private.
    - `initial_budget`: units of a newly enrolled subject: a full budget,
      :data:`~vicinal.accounting.budget.UNITS`; the parts of it for the periods that have begun, if
      budgets renew; or 0 once the history of charges was lost.
    - `n_granted_budgets`: number of budgets given out, each of :attr:`units_per_budget`. Private.
    - `used`: number of answers that were charged. Public.
    - `slack`: delta spent to date because noise and votes are on an integer grid. Public.
    - `checkpointed`, `checkpointed_queries`: units, and number of answers, of the charges
      that are in the pages and no longer in the log.
    - `analysts`: the audience's analysts by name. Replaced and never changed, as other threads may
      read it meanwhile.
    - `logged_bytes`: size of the charges in the log, which are not in the pages yet.
    """

    number: int
    name: str
    plan: str
    account: StoredAccount = field(default_factory=StoredAccount)
    initial_budget: int = UNITS
    n_granted_budgets: int = 0
    used: int = 0
    slack: float = 0.0
    checkpointed: int = 0
    checkpointed_queries: int = 0
    analysts: Mapping[str, Analyst] = field(default_factory=dict)
    logged_bytes: int = 0

    def add_analyst(self, name: str) -> Analyst:
        """Return the analyst with this `name`, added without a quota if it is new."""
        analyst = self.analysts.get(name)
        if analyst is None:
            analyst = Analyst(None, 0)
            self.analysts = {**self.analysts, name: analyst}
        return analyst

    @property
    def renewal(self) -> Renewal | None:
        """State of the renewal in the ledger's last period; None without renewal. Public."""
        return Renewal.from_plan(self.plan)

    @property
    def due_renewal(self) -> Renewal | None:
        """State of the renewal of budgets as of today; equal to :attr:`renewal` within a period.

        If it differs, a new period has begun, and :meth:`Ledger.renew` must add its part to every
        budget before the next answer.
        """
        renewal = self.renewal
        return renewal.advance_to_today(self.used) if renewal and self.initial_budget else renewal

    @property
    def units_per_budget(self) -> int:
        """Units of a full budget that may be spent to date: all, unless budgets renew."""
        renewal = self.renewal
        return UNITS if renewal is None else renewal.released_units

    def write_row(self, database: Database) -> None:
        """Write or replace the audience's row in the table `audiences`."""
        row = (
            self.number,
            self.name,
            self.plan,
            self.initial_budget,
            self.n_granted_budgets,
            self.used,
            self.slack.hex(),
            str(self.checkpointed),
            self.checkpointed_queries,
        )
        database.replace(Tables.AUDIENCES, [row])

    def checkpoint(self, database: Database, spent: int = 0, n_answers: int = 0) -> None:
        """Write all changed pages and delete the log of charges, which the pages now include.

        The sums of the log are added to the checkpointed sums, and so are `spent` units for
        `n_answers` answers: those of the commit in progress, if its charges are not in the log.
        """
        self._write_pages(database, self.account.unwritten_pages)
        logged_units, n_logged_answers = sum_logged_charges(database, self.number)
        self.checkpointed += spent + logged_units
        self.checkpointed_queries += n_answers + n_logged_answers
        keys = database.read("SELECT seq FROM charges WHERE audience = ?", (self.number,))
        database.delete_rows(Tables.CHARGES, keys)
        self.write_row(database)
        self.account.unwritten_pages.clear()
        self.logged_bytes = 0

    def write_newcomers(self, database: Database, slots: Slots) -> None:
        """Write the pages of newly enrolled subjects at `slots`, without emptying the log.

        The log has no charges at these slots, because every erasure of an earlier subject empties
        it. It holds remaining units, so replaying it changes nothing for the pages' other subjects.
        """
        self._write_pages(database, find_page_numbers(slots))
        self.write_row(database)

    def _write_pages(self, database: Database, page_numbers: Iterable[int]) -> None:
        """Write the committed units at the slots of the pages with these numbers."""
        units = self.account.durable.astype("<i8", copy=False)
        rows = [
            (self.number, page, units[page * PAGE_SLOTS : (page + 1) * PAGE_SLOTS].tobytes())
            for page in sorted(page_numbers)
        ]
        database.replace(Tables.PAGES, rows)

    def write_charges(self, database: Database, clock: int, n_answers: int) -> None:
        """Write the charges since the last commit to the log or the pages, inside a transaction.

        `clock`: the ledger's counter of blocks, changes and releases, the unique key of the row in
        the log. `n_answers`: number of answers that the charges pay for.
        """
        charges = self.account.collect_charges()
        self.account.mark_committed(charges)
        slots = charges.slots.astype("<i4").tobytes()
        units = charges.units.astype("<i8").tobytes()
        row_bytes = len(slots) + len(units)
        pages_bytes = self.account.durable.nbytes
        if row_bytes > max(CHECKPOINT_BYTES, pages_bytes):  # writing only the pages is shorter
            self.checkpoint(database, charges.spent, n_answers)
            return
        row = (clock, self.number, n_answers, str(charges.spent), slots, units)
        database.insert(Tables.CHARGES, [row])
        self.logged_bytes += row_bytes
        if self.logged_bytes > max(CHECKPOINT_BYTES, 2 * pages_bytes):
            self.checkpoint(database)


def sum_logged_charges(database: Database, audience_number: int) -> tuple[int, int]:
    """Return the charged units, and the number of paid answers, in an audience's log of charges."""
    query = "SELECT spent, queries FROM charges WHERE audience = ?"
    rows = database.read(query, (audience_number,))
    return sum(int(spent) for spent, _ in rows), sum(n_answers for _, n_answers in rows)


def load_audiences(database: Database, size: int) -> dict[str, Audience]:
    """Return all audiences in the database by name, with budgets and analysts."""
    rows = sorted(database.read_rows(Tables.AUDIENCES))
    return {row[1]: _load_audience(database, row, size) for row in rows}


def read_audience(row: tuple[Any, ...]) -> Audience:
    """Return the audience of a whole `row` of the table `audiences`, without budgets and analysts.

    Raises StoreDamaged if its plan is no JSON or has an impossible renewal.
    """
    number, name, plan, initial_budget, n_granted_budgets, used, slack, spent, n_answers = row
    Renewal.from_plan(plan)  # only for its refusals
    return Audience(
        number,
        name,
        plan,
        StoredAccount(),
        initial_budget,
        n_granted_budgets,
        used,
        float.fromhex(slack),
        int(spent),
        n_answers,
    )


def _load_audience(database: Database, row: tuple[Any, ...], size: int) -> Audience:
    """Return the audience of :func:`read_audience`, with budgets and analysts."""
    audience = read_audience(row)
    number = audience.number
    units = np.zeros(size, dtype=np.int64)
    query = "SELECT number, units FROM pages WHERE audience = ? AND number >= ? AND number < ?"
    for first in range(0, -(-size // PAGE_SLOTS), _PAGES_PER_QUERY):
        for page, content in database.read(query, (number, first, first + _PAGES_PER_QUERY)):
            page_units = np.frombuffer(content, dtype="<i8")
            start = page * PAGE_SLOTS
            units[start : start + len(page_units)] = page_units
    audience.account = StoredAccount(units)
    # Oldest first: a row of the log holds remaining units, so the newest row of a slot must win.
    query = "SELECT slots, units FROM charges WHERE audience = ? ORDER BY seq"
    for slots_content, units_content in database.read(query, (number,)):
        audience.logged_bytes += len(slots_content) + len(units_content)
        slots = np.frombuffer(slots_content, dtype="<i4")
        slot_units = np.frombuffer(units_content, dtype="<i8")
        audience.account.set_units(slots, slot_units, size)
    query = "SELECT name, quota, used FROM analysts WHERE audience = ?"
    audience.analysts = {
        analyst: Analyst(quota, n_used)
        for analyst, quota, n_used in database.read(query, (number,))
    }
    return audience


def find_budget_faults(database: Database, audience: Audience, is_unused: Bools) -> Iterator[str]:
    """Yield a sentence for each inconsistency of an audience's budgets.

    `is_unused`, bool (slots,): whether a slot has no subject; its units must be 0.
    """
    units = audience.account.durable
    if (units < 0).any() or (units > audience.initial_budget).any() or units[is_unused].any():
        yield f"A budget of audience {audience.name!r} is out of bounds."
    query = "SELECT units FROM departed WHERE audience = ?"
    erased_units = sum(stored for (stored,) in database.read(query, (audience.number,)))
    spent, _ = sum_logged_charges(database, audience.number)
    charged = spent + audience.checkpointed
    granted_units = audience.n_granted_budgets * audience.units_per_budget
    if granted_units != sum_exactly(units) + erased_units + charged:
        yield (
            f"Budgets and charges of audience {audience.name!r} do not add up to what was granted."
        )
