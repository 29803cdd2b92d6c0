"""Engines that borrow a library's matrix product: float32 from numpy's BLAS, int8 from torch."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from vicinal._arrays import AnyArray, Ints
from vicinal._compiled import compiled
from vicinal.neighbours._kernels import IntegerMatrix
from vicinal.neighbours._scan import (
    Floors,
    HitBudget,
    Hits,
    QueryBlock,
    ScanEngine,
    ScanRecords,
    merge_tiles,
)

TILE = 2048  # records in a tile: with 256 queries its products fill 2 MiB, a core's share of cache


class ProductEngine(ScanEngine):
    """Multiplies tile by tile, and keeps what lies inside the radii."""

    def pick(self, block: QueryBlock, chosen: Ints) -> QueryBlock:
        return QueryBlock(block.floors[chosen], block.factor, block.packed[chosen])

    def scan(self, block: QueryBlock, records: ScanRecords, allowed: HitBudget) -> Hits | None:
        parts = []
        for start in range(0, max(len(records), 1), TILE):
            tile = records[start : start + TILE]
            products = self.multiply(block.packed, tile.features)
            hits = _compress_tile(products, tile.offsets, tile.row_ids, block.floors, block.factor)
            allowed.remaining -= len(hits[1])
            if not allowed:
                return None
            parts.append(hits)
        return parts[0] if len(parts) == 1 else joined(parts, len(block))

    @abstractmethod
    def multiply(self, queries: Any, features: IntegerMatrix) -> AnyArray:
        """Return exact products, float32 or int32 (q, rows), of packed queries with a tile."""


class Float32Engine(ProductEngine):
    """numpy's float32 product, exact for integers of norm at most 4095, on any machine."""

    name = "float32"

    def prepare(self, queries: IntegerMatrix, floors: Floors, factor: int) -> QueryBlock:
        return QueryBlock(floors, factor, queries.astype(np.float32))

    def multiply(self, queries: Any, features: IntegerMatrix) -> AnyArray:
        return np.asarray(queries @ features.astype(np.float32, copy=False).T)

    def threads(self) -> AbstractContextManager[Any]:
        return _blas().limit(limits=1, user_api="blas")  # type: ignore[no-any-return]


class TorchEngine(ProductEngine):
    """torch's int8 product with int32 sums; an ImportError without torch."""

    name = "torch"

    def __init__(self) -> None:
        import torch

        self._torch = torch
        self._openmp = ThreadpoolController()

    def prepare(self, queries: IntegerMatrix, floors: Floors, factor: int) -> QueryBlock:
        return QueryBlock(floors, factor, self._torch.from_numpy(np.array(queries)))

    def multiply(self, queries: Any, features: IntegerMatrix) -> AnyArray:
        # A thread's first call would set its number of threads; after that the limit below holds,
        # for this thread and this call. torch.set_num_threads would change the whole process.
        self._torch.get_num_threads()
        with self._openmp.limit(limits=1, user_api="openmp"):
            tile = self._torch.from_numpy(np.ascontiguousarray(features))
            products: AnyArray = self._torch._int_mm(queries, tile.T).numpy()
        return products


@cache
def _blas() -> Any:
    return ThreadpoolController()


def joined(parts: list[Hits], n_queries: int) -> Hits:
    """Return the hits of consecutive tiles as those of one."""
    starts, names, values = merge_tiles(parts, n_queries)
    return np.diff(starts), names, values


_CHUNK = 64  # products looked at together: most chunks hold no hit and are passed over whole


@compiled
def _compress_tile(products, offsets, names, floors, factor):  # type: ignore[no-untyped-def]
    """Keep the pairs with ``factor * products - offsets >= floors``.

    Products (q, rows) are exact integers of a block of queries and a tile of records; `offsets` and
    `names` are the records'; `floors` (q,) are radii plus the queries' own offsets. Returns the
    hits of each query, who they are, and their similarities before the query's own offset, query by
    query.
    """
    n_queries, n_rows = products.shape
    counts = np.zeros(n_queries, dtype=np.int64)
    # One chunk to spare: the branchless loop writes before it knows whether to keep.
    rows = np.empty(4 * _CHUNK, dtype=np.int32)
    values = np.empty(4 * _CHUNK, dtype=np.int32)
    least_offset = offsets.min() if n_rows else np.int32(0)
    at = 0
    for j in range(n_queries):
        # No product below this can reach the floor, whatever the record's offset.
        bar = _ceil_div(floors[j] + least_offset, factor)
        before = at
        for first in range(0, n_rows, _CHUNK):
            last = min(first + _CHUNK, n_rows)
            if not _reaches(products[j, first:last], bar):
                continue
            if at + _CHUNK > len(rows):
                rows, values = _doubled(rows, at), _doubled(values, at)
            for i in range(first, last):
                value = np.int32(products[j, i]) * factor - offsets[i]
                # Written before it is known whether to keep it: with a branch, half of the time
                # would go into wrong guesses about the next record.
                rows[at] = names[i]
                values[at] = value
                at += value >= floors[j]
        counts[j] = at - before
    return counts, rows[:at].copy(), values[:at].copy()


@compiled
def _reaches(products, bar):  # type: ignore[no-untyped-def]
    """Tell whether any of a chunk's products is at least `bar`."""
    # Exact in float32 as in int32: products are below 2^24, and a bar is cut to where none is.
    level = products.dtype.type(min(max(bar, -(1 << 25)), 1 << 25))
    reached = 0
    for i in range(len(products)):
        reached |= products[i] >= level
    return reached != 0


@compiled
def _ceil_div(value, factor):  # type: ignore[no-untyped-def]
    return -((-value) // factor)


@compiled
def _doubled(array, size):  # type: ignore[no-untyped-def]
    """Return a copy twice as long that keeps the first `size` entries."""
    larger = np.empty(2 * len(array), dtype=array.dtype)
    for i in range(size):  # of slices numba compiles the text of an error, too, for seconds
        larger[i] = array[i]
    return larger
