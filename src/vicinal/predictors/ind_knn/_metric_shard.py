"""A shard whose records are searched by the metric of a private model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vicinal.ledger import Account
from vicinal.mechanisms import SubjectTable
from vicinal.neighbours import IndexFactory, NeighbourLists
from vicinal.neighbours._kernels import IntegerMatrix
from vicinal.predictors.ind_knn._shard import LocalShardBase, MappedIndex, Shard, moved_index


@dataclass(frozen=True, slots=True)
class MetricShard(LocalShardBase):
    """A shard as one of several accounts sees it, in a metric that is this account's own.

    `shard`: the records, which all accounts share, followed by `mapped`. `ledger`: the budgets that
    answers through this object are charged to. `mapped`: what is searched.
    """

    shard: Shard
    ledger: Account
    mapped: MappedIndex

    @property
    def subject_table(self) -> SubjectTable:
        """Labels and subjects of the shard, budgets of the account."""
        return self.shard.subject_table_of(self.ledger)

    def search(self, queries: IntegerMatrix, thresholds: npt.NDArray[np.int64]) -> NeighbourLists:
        """Return the records inside each query's radius."""
        self.shard.check_consistent()
        return self.mapped.index.search(queries, thresholds)

    def replace_index(self, factory: IndexFactory) -> None:
        """Move what the map made of all records into another index."""
        self.mapped.index = moved_index(self.mapped.index, factory)

    def parts(
        self, queries: IntegerMatrix, thresholds: npt.NDArray[np.int64]
    ) -> Iterator[NeighbourLists]:
        """Yield the same for consecutive queries, as many at a time as memory allows."""
        self.shard.check_consistent()
        return self.mapped.index.parts(queries, thresholds)
