"""Who pays for an evaluation: the people evaluated, where their budgets are."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np

from vicinal._arrays import Steps
from vicinal._checks import SubjectId
from vicinal.ledger import NOBODY, Audience, Ledger
from vicinal.mechanisms import NoisyTally, TallyPlan


@dataclass(frozen=True, eq=False)
class CountedRows:
    """What is counted of rows that were asked before, and at which price; private but for the plan.

    `plan`: tables, and price. `cells`, int64 (rows, tables): the cell of every row in every table.
    `subjects`: whose each row is.
    """

    plan: TallyPlan
    cells: Steps
    subjects: list[SubjectId]


Collect = Callable[[Audience, NoisyTally, CountedRows], AbstractContextManager[Steps]]
"""Charges everybody counted, and gives the private sum; at its end all is durable."""


def charge_people(
    ledger: Ledger, audience: Audience, tally: NoisyTally, counted: CountedRows
) -> Steps:
    """Charge people, enrolled in this ledger or not, inside a release; return the private sum."""
    account = audience.account
    people = list(dict.fromkeys(counted.subjects))
    place_of = {who: place for place, who in enumerate(people)}
    slots = ledger.slot_table.find(people)
    here = slots != NOBODY
    enrolled, slots = np.flatnonzero(here), slots[here]
    visitors = [who for who, is_here in zip(people, here, strict=True) if not is_here]
    remaining = np.zeros(len(people), dtype=np.int64)
    remaining[enrolled] = account.remaining[slots]
    remaining[~here] = ledger.visitor_units(audience, visitors)
    before = remaining.copy()
    owners = np.array([place_of[who] for who in counted.subjects], dtype=np.int64)
    sums = tally.collect(counted.cells, owners, remaining)
    account.remaining[slots] = remaining[enrolled]
    account.note_charged_total(int((before - remaining)[enrolled].sum()))
    ledger.keep_visitors(audience, visitors, before[~here], remaining[~here])
    return sums
