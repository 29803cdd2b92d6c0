"""Lists of neighbours: what a search returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vicinal.neighbours._tiles import Hits, merge_tiles


@dataclass(frozen=True, slots=True)
class NeighbourLists:
    """Who lies inside the radius of each query of a block, as a ragged array.

    Attributes
    ----------
    starts : int64 (q + 1,)
        The neighbours of query j stand at ``starts[j]:starts[j + 1]``.
    rows : int32 (hits,)
        Positions of records, each at most once a query; the index says in which order.
    similarities : int32 (hits,)
        The kernel's exact integer similarity of each hit.
    """

    starts: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int32]
    similarities: npt.NDArray[np.int32]

    def __len__(self) -> int:
        """Return the number of queries."""
        return len(self.starts) - 1

    def of(self, first: int, stop: int) -> NeighbourLists:
        """Return the neighbours of the queries from `first` to before `stop`."""
        hits = slice(self.starts[first], self.starts[stop])
        starts = self.starts[first : stop + 1] - self.starts[first]
        return NeighbourLists(starts, self.rows[hits], self.similarities[hits])

    def one(self, query: int) -> NeighbourLists:
        """Return the neighbours of a single query as a block of one."""
        return self.of(query, query + 1)

    def keep(self, part: npt.NDArray[np.bool_]) -> NeighbourLists:
        """Return only the hits that `part`, bool (hits,), marks."""
        kept = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(part, dtype=np.int64)])
        return NeighbourLists(kept[self.starts], self.rows[part], self.similarities[part])


def joined_hits(parts: Sequence[Hits], own: npt.NDArray[np.int32]) -> NeighbourLists:
    """Return the hits of all parts, in the order of the parts.

    Parameters
    ----------
    parts : sequence of Hits
        Hits of the same block of queries among different records.
    own : int32 (q,)
        The queries' own offsets, still to be taken off the similarities.
    """
    starts, rows, similarities = merge_tiles(parts, len(own))
    if own.any():
        similarities -= np.repeat(own, np.diff(starts))
    return NeighbourLists(starts, rows, similarities)
