"""Backups of a cluster: coordinator and shards as they are at one moment, and back again.

A backup is a folder of backups, one for each part, and `cluster.json`, which is written last. It is
restored as a whole: a shard that is behind the others would refill budgets.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from vicinal import checks
from vicinal.distributed.folders import (
    COORDINATOR,
    Cluster,
    ShardFolder,
    shard_paths,
    witness_of,
)
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.ledger.files import PRIVATE_FOLDER, guarded
from vicinal.store import backups
from vicinal.store.folder import CONFIG, Folder, read_config
from vicinal.store.opening import LOST, Parts, open_folder


def pack_part(parts: Parts, path: Path) -> None:
    """Write the backup of the coordinator, the first part of a new backup."""
    if path.parent.exists() and (not path.parent.is_dir() or any(path.parent.iterdir())):
        raise InvalidInput(f"{path.parent} must be a new folder, or an empty one.")
    with guarded(path):
        path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        path.parent.chmod(PRIVATE_FOLDER)
    backups.pack(parts, path)


def write_cluster(cluster: Cluster, path: Path) -> None:
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
    """
    source, target = Path(backup), Path(path)
    cluster = Cluster.read(source)
    accept = checks.boolean("accept_loss", accept_loss)
    parts = [source / COORDINATOR, *shard_paths(source, cluster.shards)]
    folders = [_unpacked(part, target, cluster, accept_loss=accept) for part in parts]
    if accept:
        _spend_unless_last(folders)
    cluster.save(target)


def _unpacked(part: Path, target: Path, cluster: Cluster, *, accept_loss: bool) -> Folder:
    place, witness = target / part.name, witness_of(target, part.name)
    with guarded(target):
        target.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        witness.parent.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
    backups.unpack(part, place, None, witness, accept_loss=accept_loss)
    # A part of a cluster is no store: answering alone it would spend budgets for nothing.
    with guarded(place):
        (place / CONFIG).unlink()
    folder = Folder(place, read_config(part)["id"], "sqlite", witness)
    ShardFolder(folder, cluster.identity).save()
    return folder


def _spend_unless_last(folders: list[Folder]) -> None:
    """Spend all budgets on all shards if any part may have been further than its backup."""
    with ExitStack() as resources:
        try:
            for folder in folders:
                resources.callback(open_folder(folder).resources.close)
        except PrivacyRefused:
            resources.close()
        else:
            return
    for folder in folders:
        parts = open_folder(folder, accept_loss=True)
        try:
            with parts.book.change(LOST):
                parts.book.spend_everything()
            parts.mark_change()
        finally:
            parts.resources.close()
