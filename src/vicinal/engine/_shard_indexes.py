"""Indexes of a shard: rows that are about to be added, and indexes in another metric."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vicinal._arrays import AnyArray, Ints32
from vicinal.errors import InvalidInput
from vicinal.mechanisms import RecordTargets
from vicinal.neighbours import ExactIndex, Index, IndexFactory, IntegerMatrix


@dataclass(frozen=True, slots=True, eq=False)
class IndexRows:
    """Records that are about to be added to an index; private.

    `integers`, (m, d): as the index takes them. `keys`: what it has worked out of each.
    """

    index: Index
    integers: IntegerMatrix
    keys: AnyArray | None


@dataclass(frozen=True, slots=True, eq=False)
class PreparedRecords:
    """Records that are about to be added, and what a shard will hold of all records; private.

    `rows`: the new ones, for every index. `targets`, `slots`, `counts`: what all records carry, the
    slot of each, and how many each slot has.
    """

    rows: list[IndexRows]
    targets: RecordTargets
    slots: Ints32
    counts: Ints32


@dataclass(slots=True, eq=False)
class MappedIndex:
    """An index of what a public map makes of records: the same records in another metric.

    `index`: holds what was made. `made_of`: returns the integer rows of this index for integer rows
    (m, d) of the shard, each by itself.
    """

    index: Index
    made_of: Callable[[IntegerMatrix], IntegerMatrix]

    def add(self, integers: IntegerMatrix) -> None:
        """Append records given as the shard's integer features."""
        self.index.add(self.made_of(integers))

    def rows(self, integers: IntegerMatrix) -> IndexRows:
        """Return what :meth:`add` would append."""
        mapped = self.made_of(integers)
        return IndexRows(self.index, mapped, self.index.keys(mapped))


def moved_index(index: Index, factory: IndexFactory) -> Index:
    """Return an index with all records of an exact one, in the same order."""
    if not isinstance(index, ExactIndex):
        raise InvalidInput("Only an exact index can be replaced: it can give its records back.")
    moved = factory(index.kernel, index.n_features)
    moved.add(index.features)
    return moved
