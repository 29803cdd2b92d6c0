"""Shards on several machines: a coordinator sums integer votes, adds noise once, and answers.

Every shard charges its own records, durably, before its votes leave it. Budgets, guarantees and
answers are those of one machine. Ray is needed for :class:`RayCluster` alone.
"""

from vicinal.distributed._cluster_backups import restore_cluster
from vicinal.distributed._coordinator import Coordinator
from vicinal.distributed._fan_out import MissingShardPolicy
from vicinal.distributed._folders import is_cluster
from vicinal.distributed._ray_cluster import RayCluster, SpreadExtractor
from vicinal.distributed._shard_server import ShardServer
from vicinal.distributed._splitting import split
from vicinal.distributed._transports import local_transports
from vicinal.errors import ShardMissing

__all__ = [
    "Coordinator",
    "MissingShardPolicy",
    "RayCluster",
    "ShardMissing",
    "ShardServer",
    "SpreadExtractor",
    "is_cluster",
    "local_transports",
    "restore_cluster",
    "split",
]
