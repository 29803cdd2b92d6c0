"""The data of a scan: records, blocks of queries, hits and lists, and the interface of engines.

A *hit* is a pair of a query and a record inside its radius. The similarity of a pair is ``factor *
<x, q> - offset(x) - offset(q)`` for integer features x and q (:mod:`vicinal.neighbours.kernels`); a
scan leaves out offset(q), and adds it to the query's threshold instead: its *minimum score*. The
hits of q queries in a block of records (:data:`Hits`) are counts, (q,), then row ids and such
similarities, (hits,) each, ordered by query. A *row id* is the number that identifies a record.

Compiled functions order hits by query and merge the hits of several blocks of records. Each process
has one pool of threads, for work that releases the lock of the interpreter.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from joblib import cpu_count

from vicinal import checks
from vicinal.arrays import Bools, Ints, Ints32
from vicinal.compiled import compiled
from vicinal.neighbours.kernels import IntegerMatrix

MinScores = Ints
"""The minimum score of each query, int64 (q,): a hit has factor * <x, q> - offset(x) >= it."""

Hits = tuple[Ints, Ints32, Ints32]
"""Hits ordered by query: counts (q,), row ids (hits,) and similarities (hits,).

The query's own offset is not yet subtracted from the similarities.
"""


@dataclass(frozen=True, slots=True)
class ScanRecords:
    """Records to be scanned, usually a view of the memory of an index.

    - `features`, int8 or float32 (n, stride): integer features, C-contiguous, padded with zeros.
    - `offsets`, int32 (n,): subtracted from the similarity of each record; at least 0.
    - `row_ids`, int32 (n,): the number that identifies each record in hits.
    """

    features: IntegerMatrix
    offsets: Ints32
    row_ids: Ints32

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.row_ids)

    def __getitem__(self, rows: slice | Ints32) -> ScanRecords:
        """Return the records at `rows`: a view for a slice, a copy for indices (k,)."""
        return ScanRecords(self.features[rows], self.offsets[rows], self.row_ids[rows])


@dataclass(frozen=True, slots=True)
class QueryBlock:
    """A block of queries, prepared for one engine; valid for any number of scans.

    - `min_scores`, int64 (q,): a hit has ``factor * <x, q_j> - offset(x) >= min_scores[j]``.
    - `factor`: the kernel's product factor, an integer of at least 1.
    - `packed`: the queries' integers in the layout of the engine.
    """

    min_scores: MinScores
    factor: int
    packed: Any

    def __len__(self) -> int:
        """Return the number of queries."""
        return len(self.min_scores)


class TooManyHits(Exception):
    """The scans of a search found more hits than its :class:`HitBudget` allows."""


class HitBudget:
    """The number of hits that may still be kept, `n_hits` at first, in the scans of one search.

    Compiled code of several threads updates it between tiles, without a lock, so it can lag behind
    by a few tiles; it limits memory.
    """

    def __init__(self, n_hits: int) -> None:
        self.remaining = np.array([n_hits], dtype=np.int64)

    def check(self) -> None:
        """Raise TooManyHits if the scans have found more hits than the budget allows."""
        if self.remaining[0] < 0:
            raise TooManyHits


class ScanEngine(ABC):
    """Finds the pairs (record x, query q) whose score reaches the query's minimum score, exactly.

    The score is ``factor * <x, q> - offset(x)``, see :class:`QueryBlock`.

    All engines return the same hits, bit for bit, because every product of integer features is
    exact however it is computed (:mod:`vicinal.neighbours.kernels`). An engine has no access to
    labels, budgets or noise, and its control flow decides nothing but speed.
    """

    name: str

    @abstractmethod
    def prepare(self, queries: IntegerMatrix, min_scores: MinScores, factor: int) -> QueryBlock:
        """Return `queries`, (q, stride), padded as stored rows, in the layout that scans read.

        `min_scores`, `factor`: see :class:`QueryBlock`.
        """

    @abstractmethod
    def scan(
        self,
        block: QueryBlock,
        records: ScanRecords,
        hit_budget: HitBudget,
        indices: Ints32 | None = None,
    ) -> Hits:
        """Return the hits of every query in the order of the records, and reduce `hit_budget`.

        `indices`, int32 (k,): compare only the records with these indices in `records`, in this
        order. Raises TooManyHits. Several threads may call it at a time; it releases the
        interpreter's lock while it multiplies.
        """

    def limit_threads(self) -> AbstractContextManager[Any]:
        """Return a context for a search, in which each product uses only its own thread."""
        return nullcontext()

    def write_similarities(
        self,
        queries: IntegerMatrix,
        factor: int,
        lists: NeighbourLists,
        records: ScanRecords,
        first_row: int,
    ) -> None:
        """Write ``factor * <x, q> - offset(x)`` to `lists` for the pairs with one of `records`.

        `queries`, (q, stride): integer features, padded as stored rows. `lists`: for each query,
        ascending rows of records, and their similarities. `first_row`: row of the first of the
        consecutive `records`.
        """
        row_range = [first_row, first_row + len(records)]
        for query, (start, stop) in enumerate(pairwise(lists.starts)):
            low, high = start + np.searchsorted(lists.rows[start:stop], row_range)
            pairs = slice(low, high)
            selected = records[lists.rows[pairs] - first_row]
            features = selected.features.astype(np.float32, copy=False)
            products = features @ queries[query].astype(np.float32)  # exact for integer features
            lists.similarities[pairs] = factor * products.astype(np.int32) - selected.offsets


def pad_columns(integers: IntegerMatrix, stride: int) -> IntegerMatrix:
    """Return `integers` (n, d) with zero columns up to `stride`; a copy only if needed."""
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
    >>> lists.select_queries(0, 1).rows
    array([4, 7], dtype=int32)
    """

    starts: Ints
    rows: Ints32
    similarities: Ints32

    def __len__(self) -> int:
        """Return the number of queries."""
        return len(self.starts) - 1

    def select_queries(self, first: int, stop: int) -> NeighbourLists:
        """Return the neighbours of the queries `first` to `stop` - 1."""
        hits = slice(self.starts[first], self.starts[stop])
        starts = self.starts[first : stop + 1] - self.starts[first]
        return NeighbourLists(starts, self.rows[hits], self.similarities[hits])

    def keep(self, is_kept: Bools) -> NeighbourLists:
        """Return only the hits at which `is_kept`, bool (hits,), is true."""
        n_kept_before = np.concatenate(
            [np.zeros(1, dtype=np.int64), np.cumsum(is_kept, dtype=np.int64)]
        )
        return NeighbourLists(
            n_kept_before[self.starts], self.rows[is_kept], self.similarities[is_kept]
        )


def join_single_queries(blocks_by_query: list[list[Hits]]) -> Hits:
    """Return the hits of a block of queries from those of its single queries.

    ``blocks_by_query[j]`` are the hits of query j in each of consecutive blocks of records.
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
    """Return `hits`, rows (query, row id, similarity), as :data:`Hits` of `n_queries`, in order."""
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


def merge_hits(blocks: Sequence[Hits], query_offsets: Ints32) -> NeighbourLists:
    """Return the hits of consecutive blocks of records, in the order of `blocks`, as lists.

    `query_offsets`, int32 (q,): the queries' own offsets, subtracted from all similarities here.
    """
    starts, rows, similarities = merge_blocks(blocks, len(query_offsets))
    if query_offsets.any():
        similarities -= np.repeat(query_offsets, np.diff(starts))
    return NeighbourLists(starts, rows, similarities)


def merge_blocks(blocks: Sequence[Hits], n_queries: int) -> tuple[Ints, Ints32, Ints32]:
    """Return starts (q + 1,), row ids and similarities of the hits of consecutive record blocks.

    The hits of query j of `n_queries` are ``starts[j]:starts[j + 1]``, in the order of the blocks.
    """
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
def _place_hits(  # type: ignore[no-untyped-def]
    counts, row_ids, similarities, next_index, merged_ids, merged_similarities
):
    """Copy the hits of one block of records into the merged arrays.

    `counts`, `row_ids`, `similarities`: :data:`Hits` of the block. `merged_ids`,
    `merged_similarities`, int32 (all hits,): written. `next_index`, int64 (q,): the hits of query j
    are copied to ``next_index[j]`` on, which is then advanced.
    """
    source = 0
    for j in range(len(counts)):
        count, target = counts[j], next_index[j]
        for i in range(count):
            merged_ids[target + i] = row_ids[source + i]
            merged_similarities[target + i] = similarities[source + i]
        next_index[j] += count
        source += count


def find_movers(rows: Ints, size: int) -> Ints:
    """Return the rows of the records that move into the gaps of removed `rows`, both ascending.

    They are those among the last ``len(rows)`` of `size` records that are not removed.
    """
    last_rows = np.arange(size - len(rows), size)
    return last_rows[~np.isin(last_rows, rows)]


T = TypeVar("T")
R = TypeVar("R")

# Processors allowed by affinity and container quota, unless `use_threads` sets another number.
_n_threads = int(cpu_count())


def get_thread_count() -> int:
    """Return the number of threads on which searches and charges of this process run."""
    return _n_threads


@contextmanager
def use_threads(number: int) -> Iterator[None]:
    """Run searches and charges of this process in this context on `number` >= 1 threads."""
    global _n_threads  # noqa: PLW0603 (a setting of the process, as in threadpoolctl)
    n_threads = checks.check_integer("number", number, minimum=1)
    original_number = _n_threads
    try:
        _n_threads = n_threads
        yield
    finally:
        _n_threads = original_number


def map_in_threads(function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
    """Return ``function(task)`` for all tasks, in their order, computed in parallel threads.

    Even after an error or an interrupt, no task is still running when this function ends: its
    charges would mix with those of the next call.
    """
    n_threads = get_thread_count()
    if len(tasks) <= 1 or n_threads == 1:
        return [function(task) for task in tasks]
    futures: list[Future[R]] = []
    try:
        futures += (_get_pool(os.getpid(), n_threads).submit(function, task) for task in tasks)
        return [future.result() for future in futures]
    finally:
        _cancel_and_wait(futures)


def _cancel_and_wait(futures: Sequence[Future[Any]]) -> None:
    """Cancel tasks (`futures`) that have not begun; wait for the others in spite of interrupts."""
    while True:
        try:
            for future in futures:
                future.cancel()
            wait(futures)
        except KeyboardInterrupt:
            continue
        return


@lru_cache(maxsize=1)
def _get_pool(process: int, n_threads: int) -> ThreadPoolExecutor:  # noqa: ARG001 (cache key)
    """Return a pool of `n_threads` of the process with id `process`; a fork inherits no threads."""
    return ThreadPoolExecutor(n_threads, thread_name_prefix="vicinal")
