"""Whether a store's records come with subject ids; all of them do, or none."""

from __future__ import annotations

from vicinal.ledger._database import Database
from vicinal.ledger._id_encoding import unframed
from vicinal.ledger._subject_pages import read_framed
from vicinal.predictors._common import inputs

NAMING = "subjects"
"""Fact of a ledger: :data:`GIVEN` or :data:`NUMBERED`."""

GIVEN, NUMBERED = "given", "numbered"
NEXT_NUMBER = "next_number"
"""Fact of a ledger: the number that the next record without an id may get."""


def write_naming(database: Database, *, by_holder: bool) -> None:
    """Note, inside a change, whether records came with ids."""
    database.put(NAMING, GIVEN if by_holder else NUMBERED)


def check_naming(database: Database, *, by_holder: bool) -> None:
    """Raise InvalidInput if records come with ids where they had none before, or without."""
    naming = database.get(NAMING) or _earlier_naming(database)
    if naming is not None:
        inputs.check_subjects_given(by_holder, before=naming == GIVEN)


def _earlier_naming(database: Database) -> str | None:
    """Return what an earlier version's ledger shows; None if it could be either."""
    following = int(database.get(NEXT_NUMBER) or 0)
    if not following:
        return GIVEN
    numbers = range(following)
    ids = (unframed(stored) for _, stored in read_framed(database))
    return GIVEN if any(subject not in numbers for subject in ids) else None
