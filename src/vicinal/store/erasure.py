"""Erasing subjects from all files, in steps that a crash cannot undo.

An erasure is decided by one transaction, which removes the subjects from the table, keeps keyed
hashes of their ids with their remaining budgets, and writes a note of the pending work. From then
on it only continues, step by step; a store that is opened after a crash first finishes it.

=========  =========================================================================================
step       work
=========  =========================================================================================
moving     the witness records the hashes; rows from the end are copied over the erased ones
cutting    the end of every file is overwritten with zeros and truncated
scrubbing  the database is rewritten without free pages, and its log is emptied
=========  =========================================================================================

`erasure` is the note of the pending work everywhere in this module, and `witness` the rollback
guard. Each step can be repeated: rows are copied from indices that are not overwritten, and the end
is overwritten only after the copies and the note of the next step are durable.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from vicinal.arrays import Ints, Ints32
from vicinal.checks import SubjectId
from vicinal.engine.shard import Shard
from vicinal.errors import StorageFailed
from vicinal.ledger.answers import decode_bytes, encode_array
from vicinal.ledger.database import Database
from vicinal.ledger.ledger import Ledger
from vicinal.ledger.rollback_guard import RollbackGuard
from vicinal.ledger.sealed_files import parse_json
from vicinal.ledger.tables import Tables
from vicinal.neighbours.scan import find_movers
from vicinal.store.record_files import (
    TILE,
    RecordFiles,
    list_tiles,
    update_slot_checksum,
    write_size_and_digests,
)

PENDING = "erasure"  # name in the ledger's database of the note of a pending erasure
FORGOTTEN = b""  # stored in place of the digests of added records after an erasure

_MOVING, _CUTTING, _SCRUBBING = "moving", "cutting", "scrubbing"
"""Steps of an erasure, as in its note."""


@dataclass(frozen=True, slots=True)
class Erasure:
    """The note of a pending erasure in the ledger's database.

    - `step`: the next step: "moving", "cutting" or "scrubbing".
    - `size`: number of records before the erasure.
    - `rows`: indices of the records to erase, as bytes of int64, in base 64.
    - `hashes`: keyed hashes of the subjects, 32 bytes each, in base 64.
    - `clock`: number of the commit that decided it.
    """

    step: str
    size: int
    rows: str
    hashes: str
    clock: int

    @property
    def row_indices(self) -> Ints:
        """Indices of the records to erase, int64 (m,)."""
        return np.frombuffer(decode_bytes(self.rows), dtype="<i8").astype(np.int64)

    def write(self, database: Database) -> None:
        """Write the note into the ledger's database, within a transaction."""
        database.put(PENDING, json.dumps(asdict(self)))


def decide_erasure(ledger: Ledger, shard: Shard, subjects: Sequence[SubjectId]) -> int:
    """Remove subjects and their records from memory and the ledger; return the number of records.

    `shard`: the records in memory. `subjects`: ids; those that are not enrolled are ignored. The
    data version increases in any case. The decision is durable when this returns;
    :func:`finish_erasure` then changes the files.
    """
    with ledger.change("erase"):
        slots, hashes, folded = ledger.list_enrolled(subjects)
        rows = shard.find_rows_at(slots)
        size = len(shard)
        record_slots = shard.subject_table.slots[rows]
        with shard.erase_rows(rows):
            ledger.erase_slots(slots, hashes, folded)
        write_erasure(ledger, rows, record_slots, size, hashes)
    return len(rows)


def write_erasure(
    ledger: Ledger, rows: Ints, record_slots: Ints32, size: int, hashes: Sequence[bytes]
) -> None:
    """Write the note of an erasure; update the checksum of records; blank digests of additions.

    Call it within the ledger transaction that removes the subjects from the table. `rows`,
    int64 (m,): indices of the records to erase. `record_slots`, int32 (m,): slot of the subject of
    each. `size`: number of records before the erasure. `hashes`: keyed hashes of the subjects, 32
    bytes each. Raises StorageFailed if an earlier erasure is pending: its note has the rows that
    are still to be overwritten, so a second note must not replace it.
    """
    if ledger.database.get(PENDING) is not None:
        raise StorageFailed(
            "An earlier erasure is not finished. Open the store again, which finishes it."
        )
    update_slot_checksum(ledger.database, record_slots, erased=True)
    forget_addition_digests(ledger.database)
    encoded_hashes = base64.b64encode(b"".join(hashes)).decode()
    erasure = Erasure(
        _MOVING, size, encode_array(rows.astype("<i8")), encoded_hashes, ledger.clock + 1
    )
    erasure.write(ledger.database)


def finish_erasure(database: Database, record_files: RecordFiles, witness: RollbackGuard) -> None:
    """Run the remaining steps of a pending erasure, if there is one, on all files of a store.

    Raises StorageFailed if the disk fails. Opening the store again then continues the erasure.
    """
    while (stored := database.get(PENDING)) is not None:
        erasure = Erasure(**parse_json(stored))
        if erasure.step == _MOVING:
            _overwrite_erased_rows(erasure, database, record_files, witness)
        elif erasure.step == _CUTTING:
            _truncate_files(erasure, database, record_files)
        else:
            database.scrub()
            with database.transaction():
                database.delete(Tables.META, "name = ?", (PENDING,))


def _overwrite_erased_rows(
    erasure: Erasure, database: Database, record_files: RecordFiles, witness: RollbackGuard
) -> None:
    """Run the step "moving": add the hashes to the witness, and copy rows over erased ones."""
    content = decode_bytes(erasure.hashes)
    hashes = [content[start : start + 32] for start in range(0, len(content), 32)]
    witness.add_erased(hashes, erasure.clock)
    rows = erasure.row_indices
    new_size = erasure.size - len(rows)
    erased_indices = rows[rows < new_size]
    moved_indices = find_movers(rows, erasure.size)
    record_files.copy_over_erased(erased_indices, moved_indices, erasure.size)
    with database.transaction():
        replace(erasure, step=_CUTTING).write(database)


def _truncate_files(erasure: Erasure, database: Database, record_files: RecordFiles) -> None:
    """Run the step "cutting": truncate every file, and write the digests of all changed tiles."""
    rows = erasure.row_indices
    new_size = erasure.size - len(rows)
    record_files.truncate(new_size)
    overwritten_tiles = np.unique(rows[rows < new_size] // TILE).tolist()
    changed_tiles = {*overwritten_tiles, *list_tiles(new_size, start=new_size)}
    with database.transaction():
        write_size_and_digests(database, record_files, new_size, sorted(changed_tiles))
        replace(erasure, step=_SCRUBBING).write(database)


def forget_addition_digests(database: Database) -> None:
    """Blank the stored digests of all additions, within the transaction of an erasure.

    Idempotency keys stay used: the digest of each key, and the version of its addition, remain.
    """
    additions = database.read_rows(Tables.ADDITIONS, "body <> ?", (FORGOTTEN,))
    rows = [(name, FORGOTTEN, version) for name, _, version in additions]
    database.replace(Tables.ADDITIONS, rows)
