from vicinal.distributed._cluster_backups import restore_cluster as restore_cluster
from vicinal.distributed._coordinator import Coordinator as Coordinator
from vicinal.distributed._folders import is_cluster as is_cluster
from vicinal.distributed._ray_cluster import RayCluster as RayCluster
from vicinal.distributed._splitting import split as split
from vicinal.errors import ShardMissing as ShardMissing

__all__: list[str]  # the names above; those below are shared inside vicinal, and may change

from vicinal.distributed._changes import ClusterChanges as ClusterChanges
from vicinal.distributed._folders import COORDINATOR as COORDINATOR
from vicinal.distributed._folders import ClusterDescription as ClusterDescription
from vicinal.distributed._folders import ShardFolder as ShardFolder
from vicinal.distributed._folders import shard_paths as shard_paths
from vicinal.distributed._folders import witness_of as witness_of
from vicinal.distributed._messages import TallyRequest as TallyRequest
from vicinal.distributed._messages import Verify as Verify
from vicinal.distributed._shard_server import ShardServer as ShardServer
from vicinal.distributed._splitting import ready_cluster as ready_cluster
from vicinal.distributed._transports import ReopeningShard as ReopeningShard
from vicinal.distributed._transports import local_transports as local_transports
