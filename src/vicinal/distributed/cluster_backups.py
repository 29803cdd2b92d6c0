"""Backups of a cluster, as it is at one moment, and going on without knowing what was charged.

A backup is a folder of backups, one for each part, and `cluster.json`, which is written last. It is
restored as a whole: a shard that is behind the others would refill budgets. Where it is not known
what was charged since, a cluster goes on with every budget spent.
"""

from contextlib import ExitStack
from functools import partial
from pathlib import Path

from vicinal import checks
from vicinal.distributed import _membership as membership
from vicinal.distributed import folders as layout
from vicinal.distributed._vote_charging import VoteJournal
from vicinal.distributed.messages import ShardState
from vicinal.distributed.splitting import ready_cluster
from vicinal.errors import PrivacyRefused
from vicinal.store.backups import unpack
from vicinal.store.folder import new_folder, private_folder
from vicinal.store.opening import LOST, open_folder


def accept_cluster_loss(path: str | Path) -> None:
    """Spend what is not known: every budget on every shard, for good; newcomers get none.

    The cluster is closed, and its parts lie together: old ones, or restored ones, but its own.

    Raises InvalidInput, StorageFailed if a part is not there, or damaged: restore a backup of it
    first. Raises PrivacyRefused if a part is in use, if a folder is that of another shard, or if
    parts have different audiences. Nothing is spent then that was not lost already.
    """
    cluster = ready_cluster(Path(path), accept_loss=True)
    with ExitStack() as resources:
        folder = layout.ShardFolder.read(Path(path) / layout.COORDINATOR)
        members = partial(membership.ShardRecords.of, cluster=cluster)
        coordinator = resources.enter_context(
            open_folder(folder.folder, accept_loss=True, check=members)
        )
        records = members(coordinator.database)
        paths = cluster.folders(Path(path))
        others = list(map(layout.ShardFolder.read, paths))
        for record, folder in zip(records, others, strict=True):
            # Before anything is opened: opening spends its budgets.
            if (folder.cluster, folder.folder.identity) != (cluster.identity, record.identity):
                raise membership.another_shard(record.number)
        shards = []
        for number, one in enumerate(others):
            member = partial(membership.check_member, cluster=cluster.identity, number=number)
            parts = open_folder(one.folder, accept_loss=True, check=member)
            shards.append(resources.enter_context(parts))
        for number, parts in enumerate(shards):
            here, there = (
                {one.name: one.number for one in each.ledger.audiences.values()}
                for each in (coordinator, parts)
            )
            if here != there:
                raise PrivacyRefused(
                    f"Shard {number} has other audiences than the coordinator. Restore both from "
                    "backups of the same time."
                )
        # The coordinator's clock passes all that shards know, so that no late block is charged.
        clocks = [VoteJournal(parts.database).clock for parts in shards]
        coordinator.ledger.clock = max(coordinator.ledger.clock, *clocks)
        for parts in (coordinator, *shards):
            with parts.ledger.change(LOST):
                parts.ledger.spend_all_budgets()
                membership.write_epoch(parts.database, b"")
            parts.mark_change()
            parts.ledger.complete_change()
        with coordinator.database.transaction():
            now = [(parts.folder.identity, ShardState.of(parts.database)) for parts in shards]
            seen = [membership.ShardRecord(number, *one) for number, one in enumerate(now)]
            records.replace_all(cluster.identity, seen)
        coordinator.mark_change()


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
    cluster = layout.ClusterDescription.read(source)
    accept = checks.check_boolean("accept_loss", accept_loss)
    folders = []
    new_folder(target)
    for part in (source / layout.COORDINATOR, *layout.shard_paths(source, cluster.shards)):
        witness = layout.witness_of(target, part.name)
        private_folder(witness.parent.resolve())
        place = target / part.name
        folders.append(unpack(part, place, None, witness, accept_loss=accept))
        layout.ShardFolder(folders[-1], cluster.identity).save()
    cluster.save(target)
    try:
        for folder in folders:  # what it was restored from is an old copy from then on
            open_folder(folder).resources.close()
    except PrivacyRefused:
        if not accept:
            raise
        accept_cluster_loss(target)
