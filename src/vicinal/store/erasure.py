"""Erasing subjects so that nothing of them is left in any file, whatever happens half-way.

An erasure is decided by one transaction, which takes the subjects out of the table, keeps keyed
hashes with what they had left, and writes down what is still to do. From then on it can only go
forward, step by step; a store that is opened after a crash first finishes what it finds.

=========  =========================================================================================
step       work
=========  =========================================================================================
moving     the witness remembers the hashes; rows from the end are copied over the erased ones
cutting    the end of every file is overwritten with zeros and cut off
scrubbing  the database is rewritten without free pages, and its log cut to nothing
=========  =========================================================================================

Each step can be repeated: rows are copied from places that are not written to, and the end is
wiped only once the copies are on the disk and the next step is on record.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from vicinal.arrays import Ints, Ints32
from vicinal.checks import SubjectId
from vicinal.engine.shard import Shard
from vicinal.errors import StorageFailed
from vicinal.ledger.database import Database
from vicinal.ledger.ledger import Ledger
from vicinal.ledger.rollback_guard import RollbackGuard
from vicinal.ledger.sealed_files import parse_json
from vicinal.ledger.tables import Tables
from vicinal.neighbours.scan import fill_holes
from vicinal.store.record_files import (
    TILE,
    RecordFiles,
    note_erased_slots,
    tiles_from,
    write_digests,
)

PENDING = "erasure"
"""Where the ledger keeps an erasure that is under way."""

FORGOTTEN = b""
"""In place of a digest of records, after an erasure."""

_MOVING, _CUTTING, _SCRUBBING = "moving", "cutting", "scrubbing"


@dataclass(frozen=True, slots=True)
class Erasure:
    """An erasure that has been decided and is under way.

    - `step`: what is to be done next.
    - `size`: number of records before it.
    - `rows`, `hashes`: positions to erase, int64, and keyed hashes of the subjects, both in base
      64.
    - `clock`: when it was decided.
    """

    step: str
    size: int
    rows: str
    hashes: str
    clock: int

    @property
    def positions(self) -> Ints:
        return np.frombuffer(base64.b64decode(self.rows), dtype="<i8").astype(np.int64)

    @property
    def hash_list(self) -> list[bytes]:
        content = base64.b64decode(self.hashes)
        return [content[at : at + 32] for at in range(0, len(content), 32)]

    def write(self, database: Database) -> None:
        database.put(PENDING, json.dumps(asdict(self)))

    def at(self, step: str) -> Erasure:
        return Erasure(step, self.size, self.rows, self.hashes, self.clock)


def decide_erasure(ledger: Ledger, shard: Shard, subjects: Sequence[SubjectId]) -> int:
    """Take subjects and their records out of memory and out of the table; return how many records.

    Durable when this returns; :func:`finish_erasure` then changes the files. Ids that are not
    enrolled are passed over, and leave the same traces in version and history.
    """
    with ledger.change("erase"):
        slots, hashes, folded = ledger.leaving(subjects)
        rows, size = shard.rows_at(slots), len(shard)
        slot_of_row = shard.subject_table.slots[rows]
        with shard.erasing(rows):
            ledger.take_out(slots, hashes, folded)
        write_erasure(ledger, rows, slot_of_row, size, hashes)
    return len(rows)


def write_erasure(
    ledger: Ledger, rows: Ints, slot_of_row: Ints32, size: int, hashes: Sequence[bytes]
) -> None:
    """Write down the erasure of subjects that were taken out of the table, inside a change.

    Parameters
    ----------
    rows, slot_of_row
        Positions of the records to erase, int64 (m,), and the slot of each, int32 (m,).
    size
        Number of records before the erasure.
    hashes
        Keyed hashes of the subjects, 32 bytes each.

    Raises
    ------
    StorageFailed
        If an earlier erasure is not finished: its note says which rows are still to be overwritten,
        so a second note must not take its place.
    """
    if ledger.database.get(PENDING) is not None:
        raise StorageFailed(
            "An earlier erasure is not finished. Open the store again, which finishes it."
        )
    note_erased_slots(ledger.database, slot_of_row)
    forget_additions(ledger.database)
    parts = (rows.astype("<i8").tobytes(), b"".join(hashes))
    encoded = [base64.b64encode(part).decode() for part in parts]
    Erasure(_MOVING, size, encoded[0], encoded[1], ledger.clock + 1).write(ledger.database)


def finish_erasure(database: Database, record_files: RecordFiles, witness: RollbackGuard) -> None:
    """Do whatever an erasure on record still needs; nothing if there is none.

    Raises StorageFailed if the disk fails. Opening the store again goes on where this stopped.
    """
    while (stored := database.get(PENDING)) is not None:
        erasure = Erasure(**parse_json(stored))
        if erasure.step == _MOVING:
            _move(erasure, database, record_files, witness)
        elif erasure.step == _CUTTING:
            _cut(erasure, database, record_files)
        else:
            database.scrub()
            with database.transaction():
                database.delete(Tables.META, "name = ?", (PENDING,))


def _move(
    erasure: Erasure, database: Database, record_files: RecordFiles, witness: RollbackGuard
) -> None:
    witness.add_erased(erasure.hash_list, erasure.clock)
    rows = erasure.positions
    new_size = erasure.size - len(rows)
    record_files.move(rows[rows < new_size], fill_holes(rows, erasure.size), erasure.size)
    with database.transaction():
        erasure.at(_CUTTING).write(database)


def _cut(erasure: Erasure, database: Database, record_files: RecordFiles) -> None:
    rows = erasure.positions
    new_size = erasure.size - len(rows)
    record_files.cut(new_size)
    touched = set(np.unique(rows[rows < new_size] // TILE).tolist()) | set(
        tiles_from(new_size, new_size)
    )
    with database.transaction():
        write_digests(database, record_files, new_size, sorted(touched))
        erasure.at(_SCRUBBING).write(database)


def forget_additions(database: Database) -> None:
    """Forget what was added under which key, inside an erasure's transaction."""
    known = database.rows(Tables.ADDITIONS, "body <> ?", (FORGOTTEN,))
    database.replace(Tables.ADDITIONS, [(name, FORGOTTEN, at) for name, _, at in known])
