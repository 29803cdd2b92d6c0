"""Shards on several machines: a coordinator sums integer votes, adds noise once, and answers.

Every shard charges its own records, durably, before its votes leave it. Budgets, guarantees and
answers are those of one machine. Ray is needed for :class:`RayCluster` alone.
"""

from vicinal.distributed.actors import RayCluster
from vicinal.distributed.answers import ShardedReply
from vicinal.distributed.backups import restore_cluster
from vicinal.distributed.coordinator import Coordinator
from vicinal.distributed.extraction import SpreadExtractor
from vicinal.distributed.folders import is_cluster
from vicinal.distributed.gathering import Absence, ShardMissing
from vicinal.distributed.keeper import ShardKeeper
from vicinal.distributed.local import local_links
from vicinal.distributed.merging import merge_cluster
from vicinal.distributed.splitting import split

__all__ = [
    "Absence",
    "Coordinator",
    "RayCluster",
    "ShardKeeper",
    "ShardMissing",
    "ShardedReply",
    "SpreadExtractor",
    "is_cluster",
    "local_links",
    "merge_cluster",
    "restore_cluster",
    "split",
]
