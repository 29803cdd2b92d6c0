"""What a scan takes and gives: records, blocks of queries, the engine between them, hits and lists.

Compiled work on hits orders them by query and stitches parts together. One pool of threads a
process is there for work that holds no lock of the interpreter.
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

# Counts (q,), names (hits,) and similarities (hits,) before the query's own offset, by query.
Hits = tuple[Ints, Ints32, Ints32]


@dataclass(frozen=True, slots=True)
class ScanRecords:
    """Records to be scanned; a view of an index's own memory, never a copy.

    - `features`, int8 or float32 (n, stride): integer features, C-contiguous, zeros beyond the
      features that there are.
    - `offsets`, int32 (n,): what each record takes off its similarity; at least 0.
    - `row_ids`, int32 (n,): the number by which each record is known outside.
    """

    features: IntegerMatrix
    offsets: Ints32
    row_ids: Ints32

    def __len__(self) -> int:
        return len(self.row_ids)

    def __getitem__(self, part: slice) -> ScanRecords:
        return ScanRecords(self.features[part], self.offsets[part], self.row_ids[part])


@dataclass(frozen=True, slots=True)
class QueryBlock:
    """A block of queries, made ready for one engine; good for any number of scans.

    - `floors`, int64 (q,): ``factor * <x, q_j> - offset(x)`` must reach ``floors[j]``.
    - `factor`: the kernel's product factor, at least 1.
    - `packed`: the queries' integers as the engine wants them.
    """

    floors: Floors
    factor: int
    packed: Any

    def __len__(self) -> int:
        return len(self.floors)


class HitBudget:
    """How many more hits may be kept, shared by the scans of one search.

    The count is taken without a lock, between tiles, by compiled code of several threads. It can
    lag behind by a few tiles; it bounds memory and decides nothing else.
    """

    def __init__(self, hits: int) -> None:
        self.remaining = np.array([hits], dtype=np.int64)

    def __bool__(self) -> bool:
        return bool(self.remaining[0] >= 0)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Queries with records that each of them meets.

    - `starts`, int64 (q + 1,): the records of query j stand at ``starts[j]:starts[j + 1]``.
    - `rows`, int32 (pairs,): positions of records, ascending for each query.
    - `values`, int32 (pairs,): what is found about each pair.
    - `records`, `first`: consecutive records, and the position of the first of them; pairs with
      others are left.
    """

    starts: Ints
    rows: Ints32
    values: Ints32
    records: ScanRecords
    first: int

    def by_query(self) -> Iterator[slice]:
        """Yield where the pairs of each query with these records stand."""
        ends = [self.first, self.first + len(self.records)]
        for start, stop in pairwise(self.starts):
            low, high = start + np.searchsorted(self.rows[start:stop], ends)
            yield slice(low, high)


class ScanEngine(ABC):
    """Finds the pairs (record, query) with ``factor * <x, q> - offset(x) >= floor(q)``, exactly.

    All engines return the same hits, bit for bit, because every product of integer features is
    exact whatever computes it (:mod:`vicinal.neighbours.kernels`). An engine knows
    nothing of labels, budgets or noise, and takes no decision from what it sees.
    """

    name: str

    @abstractmethod
    def prepare(self, queries: IntegerMatrix, floors: Floors, factor: int) -> QueryBlock:
        """Return the block of `queries`, int8 or float32, as wide as records are stored.

        `floors` and `factor` are those of :class:`QueryBlock`. See :func:`widened`.
        """

    @abstractmethod
    def pick(self, block: QueryBlock, chosen: Ints) -> QueryBlock:
        """Return a block of the queries at `chosen`, int64 ascending, of the same factor."""

    @abstractmethod
    def scan(self, block: QueryBlock, records: ScanRecords, allowed: HitBudget) -> Hits | None:
        """Return the hits of every query in the records' order, or None if they need more room.

        Safe to call from several threads at a time; it holds no lock of the interpreter while it
        multiplies.
        """

    def threads(self) -> AbstractContextManager[Any]:
        """Return a context for a search, in which a product takes no more than its own thread."""
        return nullcontext()

    def scan_some(
        self, block: QueryBlock, records: ScanRecords, chosen: Ints32, allowed: HitBudget
    ) -> Hits | None:
        some = ScanRecords(
            records.features[chosen], records.offsets[chosen], records.row_ids[chosen]
        )
        return self.scan(block, some, allowed)

    def similarities(self, queries: IntegerMatrix, factor: int, pairs: Pairs) -> None:
        """Write ``factor * <x, q> - offset(x)`` of every pair with one of `pairs.records`.

        `queries`, int8 or float32 (q, stride), are as wide as records are stored.
        """
        for query, hits in enumerate(pairs.by_query()):
            chosen = pairs.rows[hits] - pairs.first
            features = pairs.records.features[chosen].astype(np.float32, copy=False)
            products = features @ queries[query].astype(np.float32)  # exact, of any integers
            offsets = pairs.records.offsets[chosen]
            pairs.values[hits] = factor * products.astype(np.int32) - offsets


def widened(integers: IntegerMatrix, stride: int) -> IntegerMatrix:
    """Return rows filled up with zeros to the width of stored rows."""
    if integers.shape[1] == stride:
        return integers
    wide = np.zeros((len(integers), stride), dtype=integers.dtype)
    wide[:, : integers.shape[1]] = integers
    return wide


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

    def of(self, first: int, stop: int) -> NeighbourLists:
        """Return the neighbours of the queries from `first` to before `stop`."""
        hits = slice(self.starts[first], self.starts[stop])
        starts = self.starts[first : stop + 1] - self.starts[first]
        return NeighbourLists(starts, self.rows[hits], self.similarities[hits])

    def one(self, query: int) -> NeighbourLists:
        """Return the neighbours of a single query as a block of one."""
        return self.of(query, query + 1)

    def keep(self, part: Bools) -> NeighbourLists:
        """Return only the hits that `part`, bool (hits,), marks."""
        rank = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(part, dtype=np.int64)])
        return NeighbourLists(rank[self.starts], self.rows[part], self.similarities[part])


def in_turn(scanned: list[list[Hits]]) -> Hits:
    """Return the hits of single queries, each in parts, as one block's."""
    none = np.zeros(0, dtype=np.int32)
    counts = np.array([sum(len(hits[1]) for hits in parts) for parts in scanned], dtype=np.int64)
    names = [hits[1] for parts in scanned for hits in parts]
    values = [hits[2] for parts in scanned for hits in parts]
    return counts, np.concatenate([none, *names]), np.concatenate([none, *values])


@compiled
def by_query(hits, n_queries):  # type: ignore[no-untyped-def]
    """Order hits (query, name, value), int32 (hits, 3), by query and else as they come."""
    counts = np.zeros(n_queries, dtype=np.int64)
    for hit in range(len(hits)):
        counts[hits[hit, 0]] += 1
    targets = np.cumsum(counts) - counts
    names = np.empty(len(hits), dtype=np.int32)
    values = np.empty(len(hits), dtype=np.int32)
    for hit in range(len(hits)):
        query = hits[hit, 0]
        names[targets[query]] = hits[hit, 1]
        values[targets[query]] = hits[hit, 2]
        targets[query] += 1
    return counts, names, values


def joined_hits(parts: Sequence[Hits], own: Ints32) -> NeighbourLists:
    """Return the hits of all parts, in the order of the parts.

    The queries' `own` offsets are still to be taken off the similarities.
    """
    starts, rows, similarities = merge_tiles(parts, len(own))
    if own.any():
        similarities -= np.repeat(own, np.diff(starts))
    return NeighbourLists(starts, rows, similarities)


def merge_tiles(parts: Sequence[Hits], n_queries: int) -> Hits:
    """Join the hits of consecutive parts, query by query: (starts, names, similarities)."""
    starts = np.zeros(n_queries + 1, dtype=np.int64)
    if not parts:
        return starts, np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32)
    np.cumsum(sum(part[0] for part in parts), out=starts[1:])
    if len(parts) == 1:
        return starts, *parts[0][1:]
    names, values = (np.empty(starts[-1], dtype=np.int32) for _ in range(2))
    targets = starts[:-1].copy()
    for part in parts:
        _place(*part, targets, names, values)
    return starts, names, values


@compiled
def _place(counts, names, values, targets, placed, similarities):  # type: ignore[no-untyped-def]
    """Put the hits of a part where those of each query go on, and move these places forward."""
    source = 0
    for j in range(len(counts)):
        count, target = counts[j], targets[j]
        for i in range(count):
            placed[target + i] = names[source + i]
            similarities[target + i] = values[source + i]
        targets[j] += count
        source += count


def fill_holes(rows: Ints, size: int) -> Ints:
    """Return which of the last of `size` records fill the holes of the removed, sorted `rows`."""
    tail = np.arange(size - len(rows), size)
    return tail[~np.isin(tail, rows)]


T = TypeVar("T")
R = TypeVar("R")

# Threads that a search may use: the processors that this process may run on, by its affinity and by
# the quota of its container.
THREADS = int(cpu_count())


def map_in_threads(function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
    """Return ``function(task)`` for all tasks, in their order, worked on side by side.

    None of them is at work any more when this ends, also by an error or an interrupt: charges that
    went on behind would be mixed with those of the next call.
    """
    if len(tasks) <= 1 or THREADS == 1:
        return [function(task) for task in tasks]
    futures: list[Future[R]] = []
    try:
        futures += (_pool(os.getpid()).submit(function, task) for task in tasks)
        return [future.result() for future in futures]
    finally:
        _end(futures)


def _end(futures: Sequence[Future[Any]]) -> None:
    """Cancel what has not begun, and wait for the rest, whatever interrupts."""
    while True:
        try:
            for future in futures:
                future.cancel()
            wait(futures)
        except KeyboardInterrupt:
            continue
        return


@lru_cache(maxsize=1)
def _pool(process: int) -> ThreadPoolExecutor:  # noqa: ARG001 (a fork inherits no threads)
    return ThreadPoolExecutor(THREADS, thread_name_prefix="vicinal")
