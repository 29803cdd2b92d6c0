"""The data of a scan: records, blocks of queries, hits and lists, and the interface of engines.

Compiled functions order hits by query and merge the hits of several blocks of records. Each process
has one pool of threads, for work that releases the lock of the interpreter.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from joblib import cpu_count

from vicinal.arrays import Bools, Ints, Ints32
from vicinal.compiled import compiled
from vicinal.neighbours.kernels import IntegerMatrix

Floors = Ints
"""The smallest factor * <x, q> - offset(x) of a hit, for each query, (q,)."""

Hits = tuple[Ints, Ints32, Ints32]
"""Hits ordered by query: counts (q,), row ids (hits,) and similarities (hits,).

The query's own offset is not yet subtracted from the similarities.
"""


@dataclass(frozen=True, slots=True)
class ScanRecords:
    """Records to be scanned: a view of the memory of an index, never a copy.

    - `features`, int8 or float32 (n, stride): integer features, C-contiguous, padded with zeros.
    - `offsets`, int32 (n,): subtracted from the similarity of each record; at least 0.
    - `row_ids`, int32 (n,): the number that identifies each record in hits.
    """

    features: IntegerMatrix
    offsets: Ints32
    row_ids: Ints32

    def __len__(self) -> int:
        return len(self.row_ids)

    def __getitem__(self, rows: slice) -> ScanRecords:
        return ScanRecords(self.features[rows], self.offsets[rows], self.row_ids[rows])


@dataclass(frozen=True, slots=True)
class QueryBlock:
    """A block of queries, prepared for one engine; valid for any number of scans.

    - `floors`, int64 (q,): a hit is a pair with ``factor * <x, q_j> - offset(x) >= floors[j]``.
    - `factor`: the kernel's product factor, at least 1.
    - `packed`: the queries' integers in the layout of the engine.
    """

    floors: Floors
    factor: int
    packed: Any

    def __len__(self) -> int:
        return len(self.floors)


class HitBudget:
    """The number of hits that may still be kept, shared by the scans of one search.

    Compiled code of several threads updates the count between tiles, without a lock. The count can
    lag behind by a few tiles; it only limits memory.
    """

    def __init__(self, n_hits: int) -> None:
        self.remaining = np.array([n_hits], dtype=np.int64)

    def __bool__(self) -> bool:
        return bool(self.remaining[0] >= 0)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Queries, each with records whose similarities are wanted.

    - `starts`, int64 (q + 1,): the pairs of query j are ``starts[j]:starts[j + 1]``.
    - `rows`, int32 (pairs,): indices of records, ascending for each query.
    - `values`, int32 (pairs,): output, the similarity of each pair.
    - `records`, `first`: consecutive records, and the index of the first of them; the values of
      pairs with other records are left unchanged.
    """

    starts: Ints
    rows: Ints32
    values: Ints32
    records: ScanRecords
    first: int

    def iterate_by_query(self) -> Iterator[slice]:
        """Yield, for each query, the slice of its pairs with `records`."""
        row_range = [self.first, self.first + len(self.records)]
        for start, stop in pairwise(self.starts):
            low, high = start + np.searchsorted(self.rows[start:stop], row_range)
            yield slice(low, high)


class ScanEngine(ABC):
    """Finds the pairs (record, query) with ``factor * <x, q> - offset(x) >= floor(q)``, exactly.

    All engines return the same hits, bit for bit, because every product of integer features is
    exact however it is computed (:mod:`vicinal.neighbours.kernels`). An engine has no access to
    labels, budgets or noise, and its control flow decides nothing but speed.
    """

    name: str

    @abstractmethod
    def prepare(self, queries: IntegerMatrix, floors: Floors, factor: int) -> QueryBlock:
        """Return the block of `queries`, int8 or float32 (q, stride), padded like stored rows.

        `floors` and `factor` are those of :class:`QueryBlock`. See :func:`pad_columns`.
        """

    @abstractmethod
    def select_queries(self, block: QueryBlock, chosen: Ints) -> QueryBlock:
        """Return a block of the queries with the indices `chosen`, int64 ascending."""

    @abstractmethod
    def scan(self, block: QueryBlock, records: ScanRecords, allowed: HitBudget) -> Hits | None:
        """Return the hits of every query in the order of the records; None if `allowed` runs out.

        Several threads may call it at a time; it releases the lock of the interpreter while it
        multiplies.
        """

    def limit_threads(self) -> AbstractContextManager[Any]:
        """Return a context for a search, in which each product uses only its own thread."""
        return nullcontext()

    def scan_some(
        self, block: QueryBlock, records: ScanRecords, chosen: Ints32, allowed: HitBudget
    ) -> Hits | None:
        """Return the hits among the records with indices `chosen`, otherwise as :meth:`scan`."""
        selected = ScanRecords(
            records.features[chosen], records.offsets[chosen], records.row_ids[chosen]
        )
        return self.scan(block, selected, allowed)

    def write_similarities(self, queries: IntegerMatrix, factor: int, pairs: Pairs) -> None:
        """Write ``factor * <x, q> - offset(x)`` of each pair with a record of `pairs.records`.

        `queries`, int8 or float32 (q, stride), are padded like stored rows.
        """
        for query, hits in enumerate(pairs.iterate_by_query()):
            chosen = pairs.rows[hits] - pairs.first
            features = pairs.records.features[chosen].astype(np.float32, copy=False)
            products = features @ queries[query].astype(np.float32)  # exact for integer features
            offsets = pairs.records.offsets[chosen]
            pairs.values[hits] = factor * products.astype(np.int32) - offsets


def pad_columns(integers: IntegerMatrix, stride: int) -> IntegerMatrix:
    """Return rows padded with zeros to `stride` columns; the same array if it has that width."""
    if integers.shape[1] == stride:
        return integers
    padded = np.zeros((len(integers), stride), dtype=integers.dtype)
    padded[:, : integers.shape[1]] = integers
    return padded


@dataclass(frozen=True, slots=True)
class NeighbourLists:
    """The records inside the radius of each query of a block, as a ragged array.

    Attributes
    ----------
    starts : int64 (q + 1,)
        The neighbours of query j are ``starts[j]:starts[j + 1]``.
    rows : int32 (hits,)
        Indices of records, each at most once per query; the index class documents their order.
    similarities : int32 (hits,)
        The kernel's exact integer similarity of each hit.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.neighbours import NeighbourLists
    >>> rows, similarities = np.array([4, 7, 7], np.int32), np.array([90, 80, 85], np.int32)
    >>> lists = NeighbourLists(np.array([0, 2, 3]), rows, similarities)
    >>> lists.one(0).rows
    array([4, 7], dtype=int32)
    """

    starts: Ints
    rows: Ints32
    similarities: Ints32

    def __len__(self) -> int:
        return len(self.starts) - 1

    def select_queries(self, first: int, stop: int) -> NeighbourLists:
        """Return the neighbours of the queries `first` to `stop` - 1."""
        hits = slice(self.starts[first], self.starts[stop])
        starts = self.starts[first : stop + 1] - self.starts[first]
        return NeighbourLists(starts, self.rows[hits], self.similarities[hits])

    def one(self, query: int) -> NeighbourLists:
        """Return the neighbours of a single query as a block of one query."""
        return self.select_queries(query, query + 1)

    def keep(self, is_kept: Bools) -> NeighbourLists:
        """Return only the hits at which `is_kept`, bool (hits,), is true."""
        n_kept_before = np.concatenate(
            [np.zeros(1, dtype=np.int64), np.cumsum(is_kept, dtype=np.int64)]
        )
        return NeighbourLists(
            n_kept_before[self.starts], self.rows[is_kept], self.similarities[is_kept]
        )


def join_single_queries(blocks_by_query: list[list[Hits]]) -> Hits:
    """Return the hits of one block of queries from the hits of its single queries.

    ``blocks_by_query[j]`` are the hits of query j in consecutive blocks of records.
    """
    empty = np.zeros(0, dtype=np.int32)
    counts = np.array(
        [sum(len(hits[1]) for hits in blocks) for blocks in blocks_by_query], dtype=np.int64
    )
    row_ids = [hits[1] for blocks in blocks_by_query for hits in blocks]
    similarities = [hits[2] for blocks in blocks_by_query for hits in blocks]
    return counts, np.concatenate([empty, *row_ids]), np.concatenate([empty, *similarities])


@compiled
def order_by_query(hits, n_queries):  # type: ignore[no-untyped-def]
    """Return hits (query, row id, similarity), int32 (hits, 3), ordered by query, as :data:`Hits`.

    The order of the hits of each query is kept.
    """
    counts = np.zeros(n_queries, dtype=np.int64)
    for hit in range(len(hits)):
        counts[hits[hit, 0]] += 1
    next_index = np.cumsum(counts) - counts
    row_ids = np.empty(len(hits), dtype=np.int32)
    similarities = np.empty(len(hits), dtype=np.int32)
    for hit in range(len(hits)):
        query = hits[hit, 0]
        row_ids[next_index[query]] = hits[hit, 1]
        similarities[next_index[query]] = hits[hit, 2]
        next_index[query] += 1
    return counts, row_ids, similarities


def make_lists(blocks: Sequence[Hits], query_offsets: Ints32) -> NeighbourLists:
    """Return the hits of consecutive blocks of records as lists, in the order of the blocks.

    `query_offsets`, int32 (q,), are subtracted from the similarities, which exclude them.
    """
    starts, rows, similarities = merge_tiles(blocks, len(query_offsets))
    if query_offsets.any():
        similarities -= np.repeat(query_offsets, np.diff(starts))
    return NeighbourLists(starts, rows, similarities)


def merge_tiles(blocks: Sequence[Hits], n_queries: int) -> Hits:
    """Return (starts, row ids, similarities): the hits of consecutive blocks, query by query."""
    starts = np.zeros(n_queries + 1, dtype=np.int64)
    if not blocks:
        return starts, np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32)
    np.cumsum(sum(block[0] for block in blocks), out=starts[1:])
    if len(blocks) == 1:
        return starts, *blocks[0][1:]
    row_ids, similarities = (np.empty(starts[-1], dtype=np.int32) for _ in range(2))
    next_index = starts[:-1].copy()
    for block in blocks:
        _place_hits(*block, next_index, row_ids, similarities)
    return starts, row_ids, similarities


@compiled
def _place_hits(counts, row_ids, similarities, next_index, merged_ids, merged_values):  # type: ignore[no-untyped-def]
    """Copy the hits of query j in a block to ``next_index[j]`` on, and advance this index."""
    source = 0
    for j in range(len(counts)):
        count, target = counts[j], next_index[j]
        for i in range(count):
            merged_ids[target + i] = row_ids[source + i]
            merged_values[target + i] = similarities[source + i]
        next_index[j] += count
        source += count


def fill_holes(rows: Ints, size: int) -> Ints:
    """Return which of the last of `size` records replace the removed, sorted `rows`, int64."""
    last_rows = np.arange(size - len(rows), size)
    return last_rows[~np.isin(last_rows, rows)]


T = TypeVar("T")
R = TypeVar("R")

THREADS = int(cpu_count())
"""Threads of a search: processors allowed by the affinity and the quota of the container."""


def map_in_threads(function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
    """Return ``function(task)`` for all tasks, in their order, computed in parallel threads.

    No task is still running when this function ends, even after an error or an interrupt: charges
    of an unfinished task would mix with those of the next call.
    """
    if len(tasks) <= 1 or THREADS == 1:
        return [function(task) for task in tasks]
    futures: list[Future[R]] = []
    try:
        futures += (_get_pool(os.getpid()).submit(function, task) for task in tasks)
        return [future.result() for future in futures]
    finally:
        _cancel_and_wait(futures)


def _cancel_and_wait(futures: Sequence[Future[Any]]) -> None:
    """Cancel tasks that have not begun, and wait for the rest in spite of interrupts."""
    while True:
        try:
            for future in futures:
                future.cancel()
            wait(futures)
        except KeyboardInterrupt:
            continue
        return


@lru_cache(maxsize=1)
def _get_pool(process: int) -> ThreadPoolExecutor:  # noqa: ARG001 (the key of the cache)
    """Return the thread pool of a process id: a forked process inherits no threads."""
    return ThreadPoolExecutor(THREADS, thread_name_prefix="vicinal")
