from vicinal.distributed.cluster_backups import restore_cluster as restore_cluster
from vicinal.distributed.coordinator import Coordinator as Coordinator
from vicinal.distributed.folders import is_cluster as is_cluster
from vicinal.distributed.ray_cluster import RayCluster as RayCluster
from vicinal.distributed.splitting import split as split
from vicinal.errors import ShardMissing as ShardMissing
