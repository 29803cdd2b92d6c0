"""Changes of the data: each is one transaction of the ledger, with the files written before it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vicinal.checks import SubjectId
from vicinal.predictors.answering import Turn
from vicinal.store.columns import tiles_from
from vicinal.store.desks import Desk, open_desk, pinned_plan
from vicinal.store.opening import Parts
from vicinal.store.tiles import write_digests


def add_records(
    parts: Parts,
    X: npt.NDArray[np.floating],
    labels: npt.NDArray[np.int32],
    ids: list[SubjectId] | None,
) -> None:
    """Add checked records durably; without ids each is a new subject.

    Rows that reach the files without the transaction's commit are cut off at the next opening.
    """
    before = len(parts.shard)
    integers = parts.shard.index.kernel.encode(X)
    with parts.book.change("add"):
        subjects = _new_numbers(parts, len(X)) if ids is None else ids
        parts.shard.add(integers, labels, subjects)
        parts.columns.append(before, integers, labels, parts.shard.people.slots[before:])
        size = len(parts.shard)
        write_digests(parts.database, parts.columns, size, tiles_from(before, size))


def add_audience(parts: Parts, turn: Turn, name: str, plan: str) -> Desk:
    """Give every subject a budget for a new audience, plan for it, and return its desk.

    What planning costs (the estimate of the size) is charged in the same transaction.
    """
    with parts.book.change("audience"):
        audience = parts.book.open_audience(name, plan)
        version = parts.book.version + 1
        args = (parts.database, parts.frame, parts.shard, audience, version, turn)
        desk, assembled = open_desk(*args)
        audience.plan = pinned_plan(plan, assembled)
        audience.slack = desk.slack.spent
        parts.book.write_charges(audience, 0)
        audience.update(parts.database)
    # Opened again, with everything pinned, it is the desk that every later opening finds.
    return open_desk(*args)[0]


def _new_numbers(parts: Parts, size: int) -> list[SubjectId]:
    """Return ids for new subjects: the next numbers that nobody has, or had."""
    number = int(parts.database.get("next_number") or 0)
    numbers: list[SubjectId] = []
    while len(numbers) < size:
        if not parts.book.knows(number):
            numbers.append(number)
        number += 1
    parts.database.put("next_number", str(number))
    return numbers
