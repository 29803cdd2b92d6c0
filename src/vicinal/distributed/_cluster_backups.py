"""Backups of a cluster, as it is at one moment, and going on without knowing what was charged.

A backup is a folder of backups, one for each part, and `cluster.json`, which is written last. It is
restored as a whole: a shard that is behind the others would refill budgets. Where it is not known
what was charged since, a cluster goes on with every budget spent.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from vicinal import _checks
from vicinal.distributed._folders import (
    COORDINATOR,
    ClusterDescription,
    ShardFolder,
    copy_path,
    part_paths,
    present_copy,
    witness_of,
)
from vicinal.distributed._membership import ShardRecord, ShardRecords, member_of, write_epoch
from vicinal.distributed._messages import ShardState
from vicinal.distributed._shard_copies import is_current, write_copies
from vicinal.distributed._splitting import ready_cluster
from vicinal.distributed._vote_charging import VoteJournal
from vicinal.errors import PrivacyRefused
from vicinal.ledger._files import guarded
from vicinal.store import _backups
from vicinal.store._folder import CONFIG, Folder, check_new, private_folder, read_config
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
        folder = ShardFolder.read(Path(path) / COORDINATOR)
        coordinator = resources.enter_context(open_folder(folder.folder, accept_loss=True))
        records = ShardRecords.of(coordinator.database, cluster)
        copies = [_chosen_copy(Path(path), cluster, one) for one in records]
        others = [ShardFolder.read(copy_path(Path(path), n, copy)) for n, copy in enumerate(copies)]
        for number, folder in enumerate(others):
            _check_folder(records, cluster, number, folder)
        shards = [
            resources.enter_context(open_folder(one.folder, accept_loss=True)) for one in others
        ]
        for number, parts in enumerate(shards):
            _check_member(cluster, number, coordinator, parts)
        _spend(coordinator, shards)
        with coordinator.database.transaction():
            records.replace_all(cluster.identity, map(_record, range(len(shards)), shards, copies))
        coordinator.mark_change()


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
    identity = next(one.identity for one in records if one.number == number)
    if (folder.cluster, folder.folder.identity) != (cluster.identity, identity):
        raise _another(number)


def _check_member(
    cluster: ClusterDescription, number: int, coordinator: OpenStore, parts: OpenStore
) -> None:
    """Raise PrivacyRefused for the ledger of another shard, or of another time."""
    if member_of(parts.database) != (cluster.identity, number):
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


def pack_part(parts: OpenStore, path: Path) -> None:
    """Write the backup of the coordinator, the first part of a new backup."""
    check_new(path.parent)
    private_folder(path.parent)
    _backups.pack(parts, path)


def write_cluster(cluster: ClusterDescription, path: Path) -> None:
    """Write down whose parts these are: from now on they are a backup."""
    replace(cluster, source="").save(path)


def restore_cluster(backup: str | Path, path: str | Path, *, accept_loss: bool = False) -> None:
    """Make a closed cluster of a backup.

    Parameters
    ----------
    backup
        Folder that :meth:`Coordinator.backup` has written, with all its parts.
    path
        A new folder. Unless the loss is accepted, the witnesses must lie beside it.
    accept_loss
        Go on although it is not known what was charged: every budget on every shard is spent, for
        good, and newcomers get none from the audiences that there are.

    Raises
    ------
    InvalidInput
        If `backup` is none, or there is something at `path` already.
    PrivacyRefused
        Without `accept_loss`, if a part is not known to be in its last state.

    Examples
    --------
    >>> from vicinal.distributed import restore_cluster
    >>> restore_cluster("backups/monday", "patients.cluster")  # doctest: +SKIP
    """
    source, target = Path(backup), Path(path)
    cluster = ClusterDescription.read(source)
    accept = _checks.boolean("accept_loss", accept_loss)
    folders = [
        _unpacked(part, target, cluster, accept_loss=accept)
        for part in part_paths(source, cluster.shards)
    ]
    lost = accept and _lost(folders)
    cluster.save(target)
    if lost:
        accept_cluster_loss(target)
    for folder in folders:
        _go_on(folder)
    _write_copies(target, cluster)


def _unpacked(
    part: Path, target: Path, cluster: ClusterDescription, *, accept_loss: bool
) -> Folder:
    place, witness = target / part.name, witness_of(target, part.name)
    private_folder(target)
    private_folder(witness.parent)
    _backups.unpack(part, place, None, witness, accept_loss=accept_loss)
    # A part of a cluster is no store: answering alone it would spend budgets for nothing.
    with guarded(place):
        (place / CONFIG).unlink()
    folder = Folder(place, read_config(part)["id"], "sqlite", witness)
    ShardFolder(folder, cluster.identity).save()
    return folder


def _write_copies(path: Path, cluster: ClusterDescription) -> None:
    """Write the other copies of shards that had two."""
    with open_folder(ShardFolder.read(path / COORDINATOR).folder) as parts:
        records = ShardRecords.of(parts.database, cluster)
        write_copies(path, cluster.identity, (one for one in records if len(one.copies) > 1))


def _lost(folders: list[Folder]) -> bool:
    """Tell whether any part may have been further than its backup."""
    try:
        for folder in folders:
            open_folder(folder).resources.close()
    except PrivacyRefused:
        return True
    return False


def _go_on(folder: Folder) -> None:
    """Make the folder that a part was restored from an old copy."""
    with open_folder(folder) as parts:
        parts.supersede()
