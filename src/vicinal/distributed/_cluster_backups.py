"""Backups of a cluster: coordinator and shards as they are at one moment, and back again.

A backup is a folder of backups, one for each part, and `cluster.json`, which is written last. It is
restored as a whole: a shard that is behind the others would refill budgets.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vicinal import _checks
from vicinal.distributed._folders import (
    COORDINATOR,
    ClusterDescription,
    ShardFolder,
    part_paths,
    private_folder,
    witness_of,
)
from vicinal.distributed._loss_acceptance import accept_cluster_loss
from vicinal.distributed._membership import ShardRecords
from vicinal.distributed._shard_copies import write_copies
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.ledger._files import guarded
from vicinal.store import _backups
from vicinal.store._folder import CONFIG, Folder, read_config
from vicinal.store._opening import OpenStore, open_folder


def pack_part(parts: OpenStore, path: Path) -> None:
    """Write the backup of the coordinator, the first part of a new backup."""
    if path.parent.exists() and (not path.parent.is_dir() or any(path.parent.iterdir())):
        raise InvalidInput(f"{path.parent} must be a new folder, or an empty one.")
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
    parts = open_folder(ShardFolder.read(path / COORDINATOR).folder)
    try:
        records = ShardRecords.of(parts.database, cluster)
        write_copies(path, cluster.identity, (one for one in records if len(one.copies) > 1))
    finally:
        parts.resources.close()


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
    parts = open_folder(folder)
    try:
        parts.supersede()
    finally:
        parts.resources.close()
