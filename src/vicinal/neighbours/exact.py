"""Exact search: every record inside every query's radius, without the n x Q matrix.

Tiles of records are multiplied with a block of queries, one tile per thread at a time, each
product running on one BLAS thread; the compiled, GIL-free :func:`compress_tile` keeps what lies
inside the radii. Only lists of neighbours leave a tile.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from threadpoolctl import ThreadpoolController

from vicinal.neighbours.integers import FloatMatrix
from vicinal.neighbours.kernels import Kernel
from vicinal.neighbours.tiles import compress_tile, merge_tiles

TILE = 2048
"""Records in a tile: with 256 queries its products fill 2 MiB, a core's share of cache."""

_THREADS = max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Who lies inside the radius of each query of a block, as a ragged array.

    Attributes
    ----------
    starts : int64 (q + 1,)
        The neighbours of query j stand at ``starts[j]:starts[j + 1]``.
    rows : int32 (hits,)
        Positions of records, ascending within a query.
    similarities : int32 (hits,)
        The kernel's exact integer similarity of each hit.
    """

    starts: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int32]
    similarities: npt.NDArray[np.int32]

    def __len__(self) -> int:
        """Return the number of queries."""
        return len(self.starts) - 1

    def one(self, query: int) -> Neighbours:
        """Return the neighbours of a single query as a block of one."""
        hits = slice(self.starts[query], self.starts[query + 1])
        starts = np.array([0, self.starts[query + 1] - self.starts[query]], dtype=np.int64)
        return Neighbours(starts, self.rows[hits], self.similarities[hits])

    def keep(self, part: npt.NDArray[np.bool_]) -> Neighbours:
        """Return only the hits that `part`, bool (hits,), marks."""
        kept = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(part, dtype=np.int64)])
        return Neighbours(kept[self.starts], self.rows[part], self.similarities[part])


class ExactIndex:
    """Integer features in one growing array, searched exhaustively.

    Whether record i is a neighbour of a query depends on record i, the query and the radius alone;
    that is the condition any index must meet for the individual accounting to hold.
    """

    def __init__(self, kernel: Kernel, n_features: int, tile: int = TILE) -> None:
        self.kernel = kernel
        self.n_features = n_features
        self._tile = tile
        self._size = 0
        self._features = np.zeros((0, n_features), dtype=np.float32)
        self._offsets = np.zeros(0, dtype=np.int32)

    def __len__(self) -> int:
        """Return the number of records."""
        return self._size

    @property
    def features(self) -> FloatMatrix:
        """The integer features in use, float32 (n, d)."""
        return self._features[: self._size]

    def add(self, integers: FloatMatrix) -> None:
        """Append records given as integer features, float32 (m, d)."""
        needed = self._size + len(integers)
        if needed > len(self._features):
            room = max(needed, len(self._features) + len(self._features) // 4)
            self._features = _grown(self._features, self._size, room)
            self._offsets = _grown(self._offsets, self._size, room)
        self._features[self._size : needed] = integers
        self._offsets[self._size : needed] = self.kernel.offsets(integers)
        self._size = needed

    def remove(self, rows: npt.NDArray[np.int64], movers: npt.NDArray[np.int64]) -> None:
        """Overwrite `rows` physically: records at `movers` fill the holes, the tail is zeroed.

        See :func:`vicinal.neighbours.tiles.fill_holes` for how the two are chosen.
        """
        kept = self._size - len(rows)
        holes = rows[rows < kept]
        for array in (self._features, self._offsets):
            array[holes] = array[movers]
            array[kept : self._size] = 0
        self._size = kept

    def search(self, queries: FloatMatrix, thresholds: npt.NDArray[np.int64]) -> Neighbours:
        """Return all records whose similarity to query j is at least ``thresholds[j]``.

        Parameters
        ----------
        queries : float32 (q, d)
            Integer features of the queries.
        thresholds : int64 (q,)
            The radii as similarities.
        """
        floors = thresholds + self.kernel.offsets(queries).astype(np.int64)
        tiles = range(0, self._size, self._tile)
        with _BLAS.limit(limits=1, user_api="blas"), ThreadPoolExecutor(_THREADS) as pool:
            parts = list(pool.map(lambda start: self._search_tile(start, queries, floors), tiles))
        starts, rows, similarities = merge_tiles(parts, len(queries))
        own = self.kernel.offsets(queries)
        similarities -= np.repeat(own, np.diff(starts))
        return Neighbours(starts, rows, similarities)

    def _search_tile(
        self, start: int, queries: FloatMatrix, floors: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        stop = min(start + self._tile, self._size)
        products = queries @ self._features[start:stop].T
        offsets = self._offsets[start:stop]
        counts, rows, values = compress_tile(
            products, offsets, floors, self.kernel.product_factor, start
        )
        return counts, rows, values


_BLAS = ThreadpoolController()


def _grown(array: npt.NDArray, size: int, room: int) -> npt.NDArray:  # type: ignore[type-arg]
    """Return a larger zeroed copy that keeps the first `size` entries."""
    larger = np.zeros((room, *array.shape[1:]), dtype=array.dtype)
    larger[:size] = array[:size]
    return larger
