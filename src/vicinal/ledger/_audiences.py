"""An audience's row: its plan, what it has used, and its budgets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from vicinal._arrays import Slots
from vicinal.accounting import UNITS
from vicinal.ledger._account import PAGE, StoredAccount, pages_of
from vicinal.ledger._database import Database
from vicinal.ledger._tables import AUDIENCES, CHARGES, PAGES

CHECKPOINT_BYTES = 1 << 20
"""Charges go into the pages when they take twice the space of these, and at least this."""

_PAGES_AT_ONCE = 16


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
