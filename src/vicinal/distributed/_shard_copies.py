"""Two copies of a shard: the second one is written, and one goes on where the other one is.

Copies do the same tasks in the same order, and so write the same rows. One that was away while the
other charged a block that was never answered is behind it, or beside it; both have been where the
coordinator saw them last. Then all rows of one replace those of the other, in one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from vicinal.distributed._folders import COPIES, ShardFolder, copy_path, present_copy, witness_of
from vicinal.distributed._membership import ShardRecord, links_after, member_of
from vicinal.distributed._messages import ShardState
from vicinal.errors import InvalidInput, PrivacyRefused, StorageFailed, StoreDamaged
from vicinal.ledger._chain import chain_faults
from vicinal.ledger._database import Database, Row
from vicinal.ledger._files import sync_folder
from vicinal.ledger._rollback_guard import RollbackGuard
from vicinal.ledger._tables import TABLES
from vicinal.store import _backups
from vicinal.store._checksums import check_files, record_file_faults
from vicinal.store._folder import Folder, private_folder
from vicinal.store._opening import OpenStore, open_folder

_CHAIN = "chain"


def ledger_rows(database: Database, known: ShardState) -> dict[str, list[Row]]:
    """Return the rows of all tables, by table; of the chain those after `known`. Private."""
    names = (table.name for table in TABLES if table.name != _CHAIN)
    rows = {name: database.execute(f"SELECT * FROM {name}") for name in names}  # noqa: S608
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
        for table in (each.name for each in TABLES):
            if table != _CHAIN:
                database.execute(f"DELETE FROM {table}")  # noqa: S608 (a constant)
            _backups.insert_rows(database, table, rows[table])
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


def write_copies(path: Path, cluster: str, records: Iterable[ShardRecord]) -> None:
    """Write all copies that shards have not, beside the one that they have, and list them.

    The caller writes the list to the coordinator's ledger.

    Raises InvalidInput if there is something in the place of a copy already. Raises PrivacyRefused
    if a shard is not where the coordinator saw it last.
    """
    for record in records:
        have = present_copy(path, record.number, record.copies)
        source = ShardFolder.read(copy_path(path, record.number, have))
        with open_folder(source.folder) as parts:
            if not _was_seen(parts, cluster, record):
                raise PrivacyRefused(
                    f"Copy {have} of shard {record.number} is not where the coordinator saw it "
                    "last. Bring back the folder that belongs there."
                )
            for copy in COPIES:
                if copy != have:
                    _write(parts, cluster, path, copy_path(path, record.number, copy))
        record.copies = COPIES


def is_current(path: Path, cluster: str, record: ShardRecord, copy: int) -> bool:
    """Tell whether the folder of a copy has all charges of all answers."""
    try:
        parts = open_folder(ShardFolder.read(copy_path(path, record.number, copy)).folder)
    except (InvalidInput, PrivacyRefused, StorageFailed):
        return False
    with parts:
        return _was_seen(parts, cluster, record)


def _was_seen(parts: OpenStore, cluster: str, record: ShardRecord) -> bool:
    mine = member_of(parts.database), parts.folder.identity
    known = (cluster, record.number), record.identity
    return mine == known and links_after(parts.database, record.state) is not None


def _write(parts: OpenStore, cluster: str, path: Path, place: Path) -> None:
    """Write a copy with a witness of its own; it is none before its `shard.json` is there."""
    if place.exists():
        raise InvalidInput(
            f"There is something at {place}. If it is a copy that was given up, delete it first."
        )
    _backups.write_copy(parts, place)
    witness, identity = witness_of(path, place.name), parts.folder.identity
    private_folder(witness.parent)
    RollbackGuard.create(
        witness, bytes.fromhex(identity), parts.ledger.clock, parts.ledger.head,
        parts.witness.state.entries,
    ).close()  # fmt: skip
    ShardFolder(Folder(place, identity, "sqlite", witness), cluster).save()
    sync_folder(path)
