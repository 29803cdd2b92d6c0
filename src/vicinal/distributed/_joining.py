"""Which shards a cluster has, by its coordinator's ledger; that of an older cluster learns it."""

from __future__ import annotations

from collections.abc import Sequence

from vicinal.distributed._fan_out import MissingShardPolicy, ShardTransport, gather
from vicinal.distributed._folders import ClusterDescription
from vicinal.distributed._membership import ShardRecord, ShardRecords
from vicinal.distributed._tasks import Join
from vicinal.ledger._database import Database


def known_shards(database: Database, cluster: ClusterDescription) -> ShardRecords:
    """Return the shards that a coordinator knows; none if the ledger is older than its knowledge.

    Raises
    ------
    PrivacyRefused
        If the cluster's description names others.
    """
    records = ShardRecords(database)
    if records.cluster is not None:
        records.check(cluster.identity, cluster.shards)
    return records


def learn_shards(
    database: Database,
    records: ShardRecords,
    cluster: ClusterDescription,
    links: Sequence[ShardTransport],
    wait: float,
) -> None:
    """Take the shards that are there, if none are known: a step for clusters of earlier versions.

    Raises
    ------
    ShardMissing
        If one is missing.
    """
    if records.cluster is None:
        tasks = [Join(cluster.identity, number) for number in range(len(links))]
        found = gather(dict(enumerate(links)), tasks, MissingShardPolicy(wait))
        with database.transaction():
            records.enter(cluster.identity, (ShardRecord(n, *found[n]) for n in sorted(found)))
