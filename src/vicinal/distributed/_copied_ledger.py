"""A shard's ledger as rows: how one copy of a shard goes on where another one is.

Copies do the same tasks in the same order, and so write the same rows. One that was away while the
other charged a block that was never answered is behind it, or beside it; both have been where the
coordinator saw them last. Then all rows of one replace those of the other, in one transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vicinal.distributed._membership import member_of
from vicinal.distributed._messages import ShardState
from vicinal.errors import StoreDamaged
from vicinal.ledger._chain import chain_faults
from vicinal.ledger._database import Database, Row
from vicinal.ledger._schema import TABLES
from vicinal.store._checksums import record_file_faults
from vicinal.store._digests import check_files
from vicinal.store._opening import OpenStore

_CHAIN = "chain"


def ledger_rows(database: Database, known: ShardState) -> dict[str, list[Row]]:
    """Return the rows of all tables, by table; of the chain those after `known`. Private."""
    rows = {name: database.execute(f"SELECT * FROM {name}") for name in TABLES if name != _CHAIN}  # noqa: S608
    return rows | {_CHAIN: database.execute("SELECT * FROM chain WHERE number > ?", (known.link,))}


def replace_rows(parts: OpenStore, known: ShardState, rows: Mapping[str, Sequence[Row]]) -> None:
    """Go on with the rows of another copy that was at `known`, durably; nothing else may follow.

    What lies in memory is that of the rows before, so the shard must be opened again. The witness
    goes back to `known` first: from there the ledger goes on before the transaction, and after it.

    Raises StoreDamaged if the rows are not a ledger of this shard with these records. Nothing is
    changed.
    """
    database, before = parts.database, member_of(parts.database)
    parts.witness.advance(known.clock, known.head)
    parts.witness.sync()
    database.chain = None  # the rows come with the links of their own commits
    with database.transaction():
        database.execute("DELETE FROM chain WHERE number > ?", (known.link,))
        for table in TABLES:
            if table != _CHAIN:
                database.execute(f"DELETE FROM {table}")  # noqa: S608 (a constant)
            if rows[table]:
                marks = ", ".join("?" * len(rows[table][0]))
                database.execute_many(f"INSERT INTO {table} VALUES ({marks})", rows[table])  # noqa: S608
        faults = [
            *chain_faults(database, parts.folder.key()),
            *record_file_faults(database, parts.record_files, database.number("records")),
        ]
        if faults or (database.get("identity"), member_of(database)) != (
            parts.folder.identity,
            before,
        ):
            raise StoreDamaged("The ledger of the other copy is not that of the records here.")
        check_files(database, parts.folder.path)
