"""Budgets are conserved: what was granted is left, or was charged, in whole units."""

from __future__ import annotations

from collections.abc import Iterator

from vicinal._arrays import Bools
from vicinal.accounting import UNITS
from vicinal.ledger._account import exact_sum
from vicinal.ledger._audiences import Audience, charges_since_checkpoint
from vicinal.ledger._database import Database
from vicinal.ledger._ledger import Ledger


def free_slots(ledger: Ledger) -> Bools:
    """Return which slots nobody has, bool (slots,)."""
    return ledger.slot_table.unused()


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
