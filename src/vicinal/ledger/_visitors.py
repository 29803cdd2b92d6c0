"""Budgets of people without records here: kept under their keyed hash, as of those who left."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vicinal._arrays import Units
from vicinal._checks import SubjectId
from vicinal.accounting import UNITS
from vicinal.ledger._audiences import Audience
from vicinal.ledger._departed import Standing, mark_evaluated
from vicinal.ledger._ledger import Ledger
from vicinal.ledger._tables import DEPARTED


def visitor_units(ledger: Ledger, audience: Audience, subjects: Sequence[SubjectId]) -> Units:
    """Return what each subject, none of whom is enrolled, has left; newcomers a new budget."""
    return np.array([_units(ledger, audience, one) for one in subjects], dtype=np.int64)


def _units(ledger: Ledger, audience: Audience, subject: SubjectId) -> int:
    rows = ledger.database.read(
        "SELECT units FROM departed WHERE hash = ? AND audience = ?",
        (ledger.hash(subject), audience.number),
    )
    return int(rows[0][0]) if rows else audience.initial_budget


def keep_visitors(
    ledger: Ledger, audience: Audience, subjects: Sequence[SubjectId], before: Units, after: Units
) -> None:
    """Write what visitors have left, inside a release; what they spent counts as charged."""
    for subject, had, has in zip(subjects, before.tolist(), after.tolist(), strict=True):
        if ledger.standing(subject) == Standing.UNKNOWN:
            mark_evaluated(ledger.database, ledger.hash(subject))
        key = (ledger.hash(subject), audience.number)
        query = "SELECT units FROM departed WHERE hash = ? AND audience = ?"
        if not ledger.database.read(query, key):
            audience.granted += audience.initial_budget == UNITS
        ledger.database.replace(DEPARTED, [(*key, has)])
        audience.checkpointed += had - has
