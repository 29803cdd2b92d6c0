"""The choice of the engine of a process: the fastest available one that passes exactness tests.

All engines return the same hits, so the choice changes no answer, charge or vote. It is made once
per process. An engine whose hits differ from the definition on any test pattern is not used. The
compiled engines are timed on synthetic records; without them NumPy's float32 product is used.

A *hit* is a pair of query and record with ``factor * <x, q> - offset(x) >= min_score``. The hits of
q queries (`Hits`) are their counts, (q,), then row ids and similarities, (hits,), by query. A block
is queries as an engine has prepared them.
"""

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from vicinal import checks
from vicinal.arrays import Floats32, Ints32
from vicinal.compiled import compiled
from vicinal.errors import InvalidInput
from vicinal.neighbours.engines._amx import AMXEngine
from vicinal.neighbours.engines._vnni import VNNIEngine
from vicinal.neighbours.kernels import INT8_LIMIT, INTEGER_NORM, IntegerMatrix, Precision
from vicinal.neighbours.scan import (
    HitBudget,
    Hits,
    MinScores,
    QueryBlock,
    ScanEngine,
    ScanRecords,
    TooManyHits,
    merge_blocks,
)

# Records in a tile: with 256 queries its products fill 2 MiB, the cache of a core.
TILE = 2048


class Float32Engine(ScanEngine):
    """NumPy's float32 product, exact for integers of norm at most 4095, on every machine.

    It multiplies a tile of records, then keeps the pairs inside the radii.
    """

    name = "float32"

    def prepare(self, queries: IntegerMatrix, min_scores: MinScores, factor: int) -> QueryBlock:
        """Return the queries (q, stride) as float32, `min_scores` (q,) and the product `factor`."""
        return QueryBlock(min_scores, factor, queries.astype(np.float32))

    def scan(
        self,
        block: QueryBlock,
        records: ScanRecords,
        hit_budget: HitBudget,
        indices: Ints32 | None = None,
    ) -> Hits:
        """Return the hits of the prepared queries in `block` among `records`.

        `indices`, int32 (k,): indices of the records to compare; None for all. Raises TooManyHits
        if there are more than `hit_budget` allows.
        """
        if indices is not None:
            records = records[indices]
        blocks = []
        for start in range(0, max(len(records), 1), TILE):
            tile = records[start : start + TILE]
            products = self.multiply(block.packed, tile.features)
            hits = _compress_tile(
                products, tile.offsets, tile.row_ids, block.min_scores, block.factor
            )
            hit_budget.remaining -= len(hits[1])
            hit_budget.check()
            blocks.append(hits)
        starts, row_ids, similarities = merge_blocks(blocks, len(block))
        return np.diff(starts), row_ids, similarities

    def multiply(self, queries: Floats32, features: IntegerMatrix) -> Floats32:
        """Return the products of `queries` (q, stride) and `features` (n, stride), float32."""
        return np.asarray(queries @ features.astype(np.float32, copy=False).T)

    def limit_threads(self) -> AbstractContextManager[Any]:
        """Return a context in which the BLAS uses one thread for each product."""
        return _get_blas().limit(limits=1, user_api="blas")  # type: ignore[no-any-return]


_get_blas = cache(ThreadpoolController)

# Products tested together: most chunks contain no hit and are skipped.
_CHUNK_SIZE = 64


@compiled
def _compress_tile(products, offsets, row_ids, min_scores, factor):  # type: ignore[no-untyped-def]
    """Return the hits of q queries in a range of records, as :data:`Hits`.

    - `products`, float32 (q, rows): exact products of queries and records.
    - `offsets`, `row_ids`, int32 (rows,): offset and identifying number of each record.
    - `min_scores`, int64 (q,), `factor`: smallest score of a hit, and the kernel's product factor.
    """
    n_queries, n_rows = products.shape
    counts = np.zeros(n_queries, dtype=np.int64)
    # The branchless loop writes each pair before testing it, so a whole chunk must fit.
    hit_ids = np.empty(4 * _CHUNK_SIZE, dtype=np.int32)
    similarities = np.empty(4 * _CHUNK_SIZE, dtype=np.int32)
    min_offset = offsets.min() if n_rows else np.int32(0)
    n_hits = 0
    for j in range(n_queries):
        # No smaller product can reach the minimum score, because no offset is below min_offset.
        min_product = -(-(min_scores[j] + min_offset) // factor)  # rounded up
        n_hits_before = n_hits
        for first in range(0, n_rows, _CHUNK_SIZE):
            last = min(first + _CHUNK_SIZE, n_rows)
            if not _any_reaches_limit(products[j, first:last], min_product):
                continue
            if n_hits + _CHUNK_SIZE > len(hit_ids):
                hit_ids, similarities = (
                    _double_size(hit_ids, n_hits),
                    _double_size(similarities, n_hits),
                )
            for i in range(first, last):
                similarity = np.int32(products[j, i]) * factor - offsets[i]
                # Written before it is tested: with a branch, half of the time would be lost to
                # mispredictions.
                hit_ids[n_hits] = row_ids[i]
                similarities[n_hits] = similarity
                n_hits += similarity >= min_scores[j]
        counts[j] = n_hits - n_hits_before
    return counts, hit_ids[:n_hits].copy(), similarities[:n_hits].copy()


@compiled
def _any_reaches_limit(products, limit):  # type: ignore[no-untyped-def]
    """Return whether any of the `products`, float32 (k,), is at least `limit`."""
    # Exact in float32: products are below 2^24, and a limit beyond them is clipped.
    typed_limit = products.dtype.type(min(max(limit, -(1 << 25)), 1 << 25))
    is_reached = 0
    for i in range(len(products)):
        is_reached |= products[i] >= typed_limit
    return is_reached != 0


@compiled
def _double_size(values, size):  # type: ignore[no-untyped-def]
    """Return an array twice as long as `values`, (n,), with its first `size` entries."""
    larger = np.empty(2 * len(values), dtype=values.dtype)
    for i in range(size):  # numba compiles slices with their error messages, which takes seconds
        larger[i] = values[i]
    return larger


ENGINES: dict[str, Callable[[], ScanEngine]] = {
    "amx": AMXEngine,
    "vnni": VNNIEngine,
    "float32": Float32Engine,
}
"""All engines for int8 features, usually the fastest first."""

# Compiled engines; the faster one is found by measurement.
COMPILED = ("amx", "vnni")


def get_engine(precision: Precision, name: str | None = None) -> ScanEngine:
    """Return the engine for features of a given precision.

    - `precision`: the fastest engine is chosen for int8 features, else the float32 engine.
    - `name`, optional: one of :data:`ENGINES`, for comparisons.

    Raises InvalidInput if the named engine is unknown, unavailable, or not exact on this machine.
    """
    if precision.limit > INT8_LIMIT:
        return _get_float32_engine()
    if name is None:
        return _choose_fastest(os.getpid())
    engine = _get_exact_engine(checks.check_choice("engine", name, tuple(ENGINES)))
    if engine is None:
        raise InvalidInput(
            f"The engine {name!r} is not available on this machine. Leave the choice to vicinal."
        )
    return engine


def list_exact_engines() -> list[str]:
    """Return the names of all engines that are exact on this machine, usually fastest first."""
    return [name for name in ENGINES if _get_exact_engine(name) is not None]


@cache
def _choose_fastest(process: int) -> ScanEngine:  # noqa: ARG001 (a forked process chooses for itself)
    """Return the fastest exact compiled engine, else the float32 engine, for a process id."""
    engines = [engine for engine in map(_get_exact_engine, COMPILED) if engine is not None]
    if len(engines) > 1:
        return min(engines, key=measure_seconds)
    return engines[0] if engines else _get_float32_engine()


def _get_float32_engine() -> ScanEngine:
    """Return the float32 engine; raise InvalidInput if NumPy's products are not exact."""
    engine = _get_exact_engine("float32")
    if engine is None:  # for example, a BLAS that multiplies with fewer bits
        raise InvalidInput(
            "NumPy's float32 products are not exact on this machine, so neighbours would depend on "
            "other records. Install NumPy from PyPI, and turn off reduced precision."
        )
    return engine


@cache
def _get_exact_engine(name: str) -> ScanEngine | None:
    """Return the engine `name`, if it is available and exact on all test patterns, else None."""
    try:
        engine = ENGINES[name]()
        # The float32 engine is also used for larger coordinates.
        limits = (INT8_LIMIT,) if name in COMPILED else (INT8_LIMIT, INTEGER_NORM)
        return engine if all(is_exact(engine, limit) for limit in limits) else None
    except Exception:  # noqa: BLE001 (an engine with any failure is not used)
        return None


def measure_seconds(engine: ScanEngine) -> float:
    """Return the shortest of five scans in seconds: 64 queries, 2,048 records, 256 features."""
    features = _make_pattern(2048, 256, 31, INT8_LIMIT)
    queries = _make_pattern(64, 256, 17, INT8_LIMIT)
    block = engine.prepare(queries, np.full(64, 1 << 30), 1)
    records = ScanRecords(features, np.zeros(2048, np.int32), np.arange(2048, dtype=np.int32))
    durations = []
    for _ in range(5):  # the first scan compiles or loads code, any scan may be interrupted
        start = time.perf_counter()
        engine.scan(block, records, HitBudget(1))
        durations.append(time.perf_counter() - start)
    return min(durations)


def is_exact(engine: ScanEngine, limit: int = INT8_LIMIT) -> bool:
    """Return whether an engine finds exactly the hits of the definition on test patterns.

    The patterns have blocks of five sizes, widths that do and do not fill a vector register,
    coordinates up to +-`limit`, offsets, and thresholds that are just reached; reference: int64.
    """
    return all(
        _is_exact_on_pattern(engine, n_records, n_queries, width, factor, limit)
        for n_records, n_queries, width, factor in (
            (5, 1, 4, 1),
            (70, 3, 132, 2),
            (13, 17, 8, 1),
            (129, 64, 64, 2),
            (40, 150, 260, 1),
        )
    )


def _is_exact_on_pattern(
    engine: ScanEngine, n_records: int, n_queries: int, width: int, factor: int, limit: int
) -> bool:
    """Return whether an engine's hits equal those of int64 arithmetic on one pattern of integers.

    - `n_records`, `n_queries`, `width`: numbers of records, queries and features.
    - `factor`: the product factor of a kernel.
    - `limit`: largest absolute value of a coordinate.
    """
    max_coordinate = min(limit, int(INTEGER_NORM / width**0.5))
    features = _make_pattern(n_records, width, 31, max_coordinate)
    queries = _make_pattern(n_queries, width, 17, max_coordinate)
    features[: n_records // 4], queries[: n_queries // 4] = max_coordinate, -max_coordinate
    features[-1], queries[-1] = 0, 0
    features[-1, 0] = queries[-1, 0] = limit  # a row of the largest norm
    offsets = (np.arange(n_records, dtype=np.int32) * 7919) % 1000
    similarities = factor * (queries.astype(np.int64) @ features.astype(np.int64).T) - offsets
    min_scores = np.sort(similarities, axis=1)[:, n_records // 2].copy()
    row_ids = np.arange(n_records, dtype=np.int32) + 100
    block = engine.prepare(queries, min_scores, factor)
    records = ScanRecords(features, offsets, row_ids)
    try:
        hits = engine.scan(block, records, HitBudget(n_records * n_queries))
    except TooManyHits:  # more than there are pairs
        return False
    query_indices, record_indices = np.nonzero(similarities >= min_scores[:, None])
    expected = (
        np.bincount(query_indices, minlength=n_queries),
        row_ids[record_indices],
        similarities[query_indices, record_indices],
    )
    return all(np.array_equal(hits[column], expected[column]) for column in range(3))


def _make_pattern(rows: int, width: int, multiplier: int, max_coordinate: int) -> IntegerMatrix:
    """Return integers up to +-`max_coordinate`, (rows, width), varied by the prime `multiplier`."""
    numbers = (np.arange(rows * width, dtype=np.int64) ** 2 * multiplier) % 1009
    spread = numbers * (2 * max_coordinate + 1) // 1009 - max_coordinate
    dtype = np.int8 if max_coordinate <= INT8_LIMIT else np.float32
    return spread.reshape(rows, width).astype(dtype)
