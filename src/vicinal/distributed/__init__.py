"""Shards on several machines: a coordinator sums integer votes, adds noise once, and answers.

Every shard charges its own records, durably, before its votes leave it. Budgets, guarantees and
answers are those of one machine. Ray is needed for :class:`RayCluster` alone.
"""

from vicinal.lazy import attach_exports

__getattr__, __dir__, __all__ = attach_exports(__name__)
