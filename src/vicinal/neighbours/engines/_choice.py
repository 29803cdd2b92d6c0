"""Which engine a process uses: the fastest that is there and proves itself; and one by a library.

Every engine returns the same hits, so the choice changes no answer, charge or vote. It is made once
a process, and an engine that does not return exactly what the plain definition says is passed over.
The compiled engines are timed on made-up records. Without them numpy's float32 product serves.
"""

import os
import time
from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from vicinal import checks
from vicinal.arrays import AnyArray, Ints
from vicinal.compiled import compiled
from vicinal.errors import InvalidInput
from vicinal.neighbours.engines._amx import AMXEngine
from vicinal.neighbours.engines._vnni import VNNIEngine
from vicinal.neighbours.kernels import INT8_LIMIT, INTEGER_NORM, IntegerMatrix, Precision
from vicinal.neighbours.scan import (
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
        starts, names, values = merge_tiles(parts, len(block))
        return np.diff(starts), names, values

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


@cache
def _blas() -> Any:
    return ThreadpoolController()


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
        bar = -(-(floors[j] + least_offset) // factor)  # rounded up
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
def _doubled(array, size):  # type: ignore[no-untyped-def]
    """Return a copy twice as long that keeps the first `size` entries."""
    larger = np.empty(2 * len(array), dtype=array.dtype)
    for i in range(size):  # of slices numba compiles the text of an error, too, for seconds
        larger[i] = array[i]
    return larger


# All engines for int8 features, those that are fastest as a rule first.
ENGINES: dict[str, Callable[[], ScanEngine]] = {
    "amx": AMXEngine,
    "vnni": VNNIEngine,
    "float32": Float32Engine,
}

COMPILED = ("amx", "vnni")  # engines that cost nothing to have; which of them is faster is measured


def engine_for(precision: Precision, name: str | None = None) -> ScanEngine:
    """Return the engine for features of `precision`.

    - `precision`: int8 features take the fastest engine of this machine, float32 ones the float32
      engine.
    - `name`, optional: one of :data:`ENGINES`, to compare them.

    Raises InvalidInput if the engine named is unknown, is not there, or is not exact on this
    machine.
    """
    if precision.limit > INT8_LIMIT:
        return _float32()
    if name is None:
        return _fastest(os.getpid())
    engine = _proven(checks.check_choice("engine", name, tuple(ENGINES)))
    if engine is None:
        raise InvalidInput(
            f"The engine {name!r} is not available on this machine. Leave the choice to vicinal."
        )
    return engine


def proven_engines() -> list[str]:
    """Return the names of all engines that work on this machine, fastest first."""
    return [name for name in ENGINES if _proven(name) is not None]


@cache
def _fastest(process: int) -> ScanEngine:  # noqa: ARG001 (a forked process chooses for itself)
    """Return the fastest compiled engine, or float32, which is always there."""
    compiled = [engine for engine in map(_proven, COMPILED) if engine is not None]
    if len(compiled) > 1:
        return min(compiled, key=seconds)
    return compiled[0] if compiled else _float32()


def _float32() -> ScanEngine:
    engine = _proven("float32")
    if engine is None:  # as of a BLAS that multiplies in fewer bits
        raise InvalidInput(
            "NumPy's float32 products are not exact on this machine, so neighbours would depend on "
            "their company. Install NumPy from PyPI, and turn off reduced precision."
        )
    return engine


@cache
def _proven(name: str) -> ScanEngine | None:
    """Return an engine if it can be had and returns what the definition says."""
    try:
        engine = ENGINES[name]()
        # That of libraries serves larger coordinates as well.
        limits = (INT8_LIMIT,) if name in COMPILED else (INT8_LIMIT, INTEGER_NORM)
        return engine if all(is_exact(engine, limit) for limit in limits) else None
    except Exception:  # noqa: BLE001 (whatever is wrong with an engine, another one does its work)
        return None


def seconds(engine: ScanEngine) -> float:
    """Return the least time of five scans: 64 queries among 2,048 records of 256 features."""
    x, q = _pattern(2048, 256, 31, INT8_LIMIT), _pattern(64, 256, 17, INT8_LIMIT)
    block = engine.prepare(q, np.full(64, 1 << 30), 1)
    records = ScanRecords(x, np.zeros(2048, np.int32), np.arange(2048, dtype=np.int32))
    times = []
    for _ in range(5):  # the first compiles or loads, others may be interrupted: the least counts
        start = time.perf_counter()
        engine.scan(block, records, HitBudget(1))
        times.append(time.perf_counter() - start)
    return min(times)


def is_exact(engine: ScanEngine, limit: int = INT8_LIMIT) -> bool:
    """Tell whether `engine` finds exactly the hits of the definition, on patterns that test it.

    All sizes of blocks, rows of odd widths, coordinates up to `limit` of either sign, offsets, and
    radii at the rim, compared with int64 arithmetic.
    """
    return all(
        _agrees(engine, size, queries, width, factor, limit)
        for size, queries, width, factor in (
            (5, 1, 4, 1), (70, 3, 132, 2), (13, 17, 8, 1), (129, 64, 64, 2), (40, 150, 260, 1),
        )
    )  # fmt: skip


def _agrees(
    engine: ScanEngine, size: int, queries: int, width: int, factor: int, limit: int
) -> bool:
    largest = min(limit, int(INTEGER_NORM / width**0.5))
    x = _pattern(size, width, 31, largest)
    q = _pattern(queries, width, 17, largest)
    x[: size // 4], q[: queries // 4] = largest, -largest
    x[-1], q[-1] = 0, 0
    x[-1, 0] = q[-1, 0] = limit  # as long as a row may be
    offsets = (np.arange(size, dtype=np.int32) * 7919) % 1000
    similarities = factor * (q.astype(np.int64) @ x.astype(np.int64).T) - offsets
    floors = np.sort(similarities, axis=1)[:, size // 2].copy()
    names = np.arange(size, dtype=np.int32) + 100
    block = engine.prepare(q, floors, factor)
    hits = engine.scan(block, ScanRecords(x, offsets, names), HitBudget(size * queries))
    who, where = np.nonzero(similarities >= floors[:, None])
    expected = np.bincount(who, minlength=queries), names[where], similarities[who, where]
    return hits is not None and all(np.array_equal(hits[k], expected[k]) for k in range(3))


def _pattern(rows: int, width: int, step: int, largest: int) -> IntegerMatrix:
    """Return whole numbers in -largest..largest without any order to speak of."""
    numbers = (np.arange(rows * width, dtype=np.int64) ** 2 * step) % 1009
    spread = numbers * (2 * largest + 1) // 1009 - largest
    kind = np.int8 if largest <= INT8_LIMIT else np.float32
    return spread.reshape(rows, width).astype(kind)
