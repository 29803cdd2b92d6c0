"""Clusters of shards on several machines, with a coordinator that sums votes and adds noise once.

Every shard charges its own subjects durably before it returns votes. Budgets, guarantees and
answers equal those of one machine. Only :class:`RayCluster` needs Ray.
"""

from vicinal.lazy import build_lazy_exports

__getattr__, __dir__, __all__ = build_lazy_exports(__name__)
