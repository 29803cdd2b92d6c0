"""Restoring a cluster from a backup, and continuing after a loss of charges.

A backup is a folder with a backup of the coordinator and of each shard at the same moment, and
`cluster.json`, which is written last. It is restored as a whole: a shard that is behind the others
would refill budgets. If charges since the backup are unknown, the cluster continues with every
budget spent.
"""

from contextlib import ExitStack
from functools import partial
from pathlib import Path

from vicinal import checks
from vicinal.distributed import _membership as membership
from vicinal.distributed import folders as layout
from vicinal.distributed._vote_charging import ChargeJournal
from vicinal.distributed.splitting import finish_interrupted_split
from vicinal.errors import PrivacyRefused
from vicinal.store.backups import restore_folder
from vicinal.store.folder import check_path, create_new_folder, create_private_folder
from vicinal.store.opening import LOSS_ACCEPTED, OpenStore, open_folder


def accept_cluster_loss(path: str | Path) -> None:
    """Spend every budget on every shard of a closed cluster for good; new subjects get none.

    `path`: folder of the cluster, with the cluster's own folders of the coordinator and of all
    shards, which may be old or restored.

    Raises InvalidInput or StorageFailed if one of them is missing or damaged: restore a backup of
    it first. Raises PrivacyRefused if one is in use or is another shard, or if a shard and the
    coordinator have different audiences. Budgets that were not lost already are unchanged then.
    """
    cluster = finish_interrupted_split(Path(path), accept_loss=True)
    with ExitStack() as resources:
        folder = layout.MemberFolder.read(Path(path) / layout.COORDINATOR)
        read_shard_records = partial(membership.ShardRecords.from_database, description=cluster)
        coordinator = resources.enter_context(
            open_folder(folder.folder, accept_loss=True, check=read_shard_records)
        )
        shard_records = read_shard_records(coordinator.database)
        paths = layout.list_shard_folders(Path(path), cluster.shards)
        shard_folders = list(map(layout.MemberFolder.read, paths))
        for record, folder in zip(shard_records, shard_folders, strict=True):
            # All folders are checked before one is opened, as opening a shard spends its budgets.
            if (folder.cluster, folder.folder.identity) != (cluster.identity, record.identity):
                raise membership.create_wrong_shard_error(record.number)
        shards = []
        for number, folder in enumerate(shard_folders):
            check = partial(membership.check_member, cluster=cluster.identity, number=number)
            store = open_folder(folder.folder, accept_loss=True, check=check)
            shards.append(resources.enter_context(store))
        for number, store in enumerate(shards):
            if _list_audiences(coordinator) != _list_audiences(store):
                raise PrivacyRefused(
                    f"Shard {number} has other audiences than the coordinator. Restore both from "
                    "backups of the same time."
                )
        # The coordinator's clock becomes the latest of all, so that shards refuse late blocks.
        clocks = [ChargeJournal(store.database).clock for store in shards]
        coordinator.ledger.clock = max(coordinator.ledger.clock, *clocks)
        for store in (coordinator, *shards):
            with store.ledger.change(LOSS_ACCEPTED):
                store.ledger.spend_all_budgets()
                membership.write_epoch(store.database, b"")
            store.report_change()
            store.ledger.complete_change()
        with coordinator.database.transaction():
            new_records = map(membership.ShardRecord.from_store, range(len(shards)), shards)
            shard_records.replace_all(cluster.identity, new_records)
        coordinator.report_change()


def _list_audiences(store: OpenStore) -> dict[str, int]:
    """Return the numbers of all audiences in the ledger of `store`, by name."""
    return {audience.name: audience.number for audience in store.ledger.audiences.values()}


def restore_cluster(backup: str | Path, path: str | Path, *, accept_loss: bool = False) -> None:
    """Restore a backup as a closed cluster in a new folder.

    Parameters
    ----------
    backup
        Folder that :meth:`Coordinator.backup` has written, with coordinator and all shards.
    path
        A new folder. Unless the loss is accepted, the folder of the cluster's witnesses, the files
        with the last state of each member, must be beside it (PATH.witnesses).
    accept_loss
        Restore although charges may be missing: every budget on every shard is spent for good, and
        new subjects get none from existing audiences.

    Raises
    ------
    InvalidInput
        If `backup` is not a backup of a cluster, or `path` exists already.
    PrivacyRefused
        Without `accept_loss`, if a shard or the coordinator may have charged more since.

    Examples
    --------
    >>> from vicinal.distributed import restore_cluster
    >>> restore_cluster("backups/monday", "patients.cluster")  # doctest: +SKIP
    """
    source = check_path("backup", backup)
    target = check_path("path", path)
    cluster = layout.ClusterDescription.read(source)
    accept = checks.check_boolean("accept_loss", accept_loss)
    folders = []
    create_new_folder(target)
    backups = (source / layout.COORDINATOR, *layout.list_shard_folders(source, cluster.shards))
    for member_backup in backups:
        witness = layout.get_witness_path(target, member_backup.name)
        create_private_folder(witness.parent.resolve())
        member_path = target / member_backup.name
        folders.append(
            restore_folder(member_backup, member_path, None, witness, accept_loss=accept)
        )
        layout.MemberFolder(folders[-1], cluster.identity).save()
    cluster.save(target)
    try:
        # Each opening commits, which makes the restored folder newer than any other copy.
        for folder in folders:
            open_folder(folder).resources.close()
    except PrivacyRefused:
        if not accept:
            raise
        accept_cluster_loss(target)
