"""A cluster that does not know what was charged goes on with every budget spent."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from vicinal.distributed._folders import (
    COORDINATOR,
    ClusterDescription,
    ShardFolder,
    copy_path,
    present_copy,
)
from vicinal.distributed._membership import ShardRecord, ShardRecords, member_of, write_epoch
from vicinal.distributed._messages import ShardState
from vicinal.distributed._shard_copies import is_current
from vicinal.distributed._splitting import ready_cluster
from vicinal.distributed._vote_journal import VoteJournal
from vicinal.errors import PrivacyRefused
from vicinal.store._opening import LOST, OpenStore, open_folder


def accept_cluster_loss(path: str | Path) -> None:
    """Spend what is not known: every budget on every shard, for good; newcomers get none.

    The cluster is closed, and its parts lie together: old ones, or restored ones, but its own. Of a
    shard with two copies the first that is there goes on, alone.

    Raises InvalidInput, StorageFailed if a part is not there, or damaged: restore a backup of it
    first. Raises PrivacyRefused if a part is in use, if a folder is that of another shard, or if
    parts have different audiences; or if a shard has lost nothing but one of its copies. Nothing is
    spent then that was not lost already.
    """
    cluster = ready_cluster(Path(path))
    with ExitStack() as resources:
        coordinator = _opened(ShardFolder.read(Path(path) / COORDINATOR), resources)
        records = ShardRecords.of(coordinator.database, cluster)
        copies = [_chosen_copy(Path(path), cluster, one) for one in records]
        copies = copies or [1] * cluster.shards
        others = [ShardFolder.read(copy_path(Path(path), n, copy)) for n, copy in enumerate(copies)]
        for number, folder in enumerate(others):
            _check_folder(records, cluster, number, folder)
        shards = [_opened(folder, resources) for folder in others]
        for number, parts in enumerate(shards):
            _check_member(cluster, number, coordinator, parts)
        _spend(coordinator, shards)
        with coordinator.database.transaction():
            records.replace_all(cluster.identity, map(_record, range(len(shards)), shards, copies))
        coordinator.mark_change()


def _opened(folder: ShardFolder, resources: ExitStack) -> OpenStore:
    parts = open_folder(folder.folder, accept_loss=True)
    resources.callback(parts.resources.close)
    return parts


def _chosen_copy(path: Path, cluster: ClusterDescription, record: ShardRecord) -> int:
    """Return the copy that goes on; raise PrivacyRefused if one of two has lost nothing."""
    if len(record.copies) > 1:
        current = [n for n in record.copies if is_current(path, cluster.identity, record, n)]
        if len(current) == 1:
            raise PrivacyRefused(
                f"Copy {current[0]} of shard {record.number} has lost nothing. Go on with it: "
                "vicinal promote-copy"
            )
    return present_copy(path, record.number, record.copies)


def _check_folder(
    records: ShardRecords, cluster: ClusterDescription, number: int, folder: ShardFolder
) -> None:
    """Raise PrivacyRefused, before anything is opened, for a folder that says it is another's."""
    identity = next(
        (one.identity for one in records if one.number == number), folder.folder.identity
    )
    if (folder.cluster, folder.folder.identity) != (cluster.identity, identity):
        raise _another(number)


def _check_member(
    cluster: ClusterDescription, number: int, coordinator: OpenStore, parts: OpenStore
) -> None:
    """Raise PrivacyRefused for the ledger of another shard, or of another time."""
    if member_of(parts.database) not in (None, (cluster.identity, number)):
        raise _another(number)
    if {a.name: a.number for a in parts.ledger.audiences.values()} != {
        a.name: a.number for a in coordinator.ledger.audiences.values()
    }:
        raise PrivacyRefused(
            f"Shard {number} has other audiences than the coordinator. Restore both from backups "
            "of the same time."
        )


def _another(number: int) -> PrivacyRefused:
    return PrivacyRefused(
        f"Shard {number} is another shard, of this cluster or of another one. Bring back the "
        "folder that belongs there, or a backup of it."
    )


def _spend(coordinator: OpenStore, shards: list[OpenStore]) -> None:
    """Spend everything everywhere; the coordinator's clock passes all that shards know."""
    clocks = [VoteJournal(parts.database).clock for parts in shards]
    coordinator.ledger.clock = max(coordinator.ledger.clock, *clocks)
    for parts in (coordinator, *shards):
        with parts.ledger.change(LOST):
            parts.ledger.spend_all_budgets()
            write_epoch(parts.database, b"")
        parts.mark_change()


def _record(number: int, parts: OpenStore, copy: int) -> ShardRecord:
    state = ShardState.of(parts.database)
    return ShardRecord(number, parts.folder.identity, state, copies=(copy,))
