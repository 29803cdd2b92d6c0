"""Second copies of shards: written while the cluster is closed, and compared with what it knows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from vicinal.distributed._folders import (
    COPIES,
    ShardFolder,
    copy_path,
    present_copy,
    private_folder,
    witness_of,
)
from vicinal.distributed._membership import ShardRecord, links_after, member_of
from vicinal.errors import InvalidInput, PrivacyRefused, StorageFailed
from vicinal.ledger._files import sync_folder
from vicinal.ledger._rollback_guard import RollbackGuard
from vicinal.store import _backups
from vicinal.store._folder import Folder
from vicinal.store._opening import OpenStore, open_folder


def write_copies(path: Path, cluster: str, records: Iterable[ShardRecord]) -> None:
    """Write all copies that shards have not, beside the one that they have, and list them.

    The caller writes the list to the coordinator's ledger.

    Raises InvalidInput if there is something in the place of a copy already. Raises PrivacyRefused
    if a shard is not where the coordinator saw it last.
    """
    for record in records:
        have = present_copy(path, record.number, record.copies)
        source = ShardFolder.read(copy_path(path, record.number, have))
        parts = open_folder(source.folder)
        try:
            if not _was_seen(parts, cluster, record):
                raise PrivacyRefused(
                    f"Copy {have} of shard {record.number} is not where the coordinator saw it "
                    "last. Bring back the folder that belongs there."
                )
            for copy in COPIES:
                if copy != have:
                    _write(parts, cluster, path, copy_path(path, record.number, copy))
        finally:
            parts.resources.close()
        record.copies = COPIES


def is_current(path: Path, cluster: str, record: ShardRecord, copy: int) -> bool:
    """Tell whether the folder of a copy has all charges of all answers."""
    try:
        parts = open_folder(ShardFolder.read(copy_path(path, record.number, copy)).folder)
    except (InvalidInput, PrivacyRefused, StorageFailed):
        return False
    try:
        return _was_seen(parts, cluster, record)
    finally:
        parts.resources.close()


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
