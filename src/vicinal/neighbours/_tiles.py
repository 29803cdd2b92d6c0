"""Compiled work on hits: keep what is inside the radius, order by query, stitch parts together.

One pool of threads a process, for work that holds no lock of the interpreter.

Lists of neighbours: what a search returns.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from vicinal._compiled import compiled

Hits = tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.int32]]
"""Counts (q,), names (hits,) and similarities (hits,) before the query's own offset, by query."""

CHUNK = 64
"""Products looked at together: most chunks hold no hit and are passed over whole."""


@compiled
def compress_tile(products, offsets, names, floors, factor):  # type: ignore[no-untyped-def]
    """Keep the pairs with ``factor * products - offsets >= floors``.

    Products (q, rows) are exact integers of a block of queries and a tile of records; `offsets` and
    `names` are the records'; `floors` (q,) are radii plus the queries' own offsets. Returns the
    hits of each query, who they are, and their similarities before the query's own offset, query by
    query.
    """
    n_queries, n_rows = products.shape
    counts = np.zeros(n_queries, dtype=np.int64)
    # One chunk to spare: the branchless loop writes before it knows whether to keep.
    kept = np.empty(4 * CHUNK, dtype=np.int32)
    values = np.empty(4 * CHUNK, dtype=np.int32)
    least_offset = offsets.min() if n_rows else np.int32(0)
    at = 0
    for j in range(n_queries):
        # No product below this can reach the floor, whatever the record's offset.
        bar = _ceil_div(floors[j] + least_offset, factor)
        before = at
        for first in range(0, n_rows, CHUNK):
            last = min(first + CHUNK, n_rows)
            if not _reaches(products[j, first:last], bar):
                continue
            if at + CHUNK > len(kept):
                kept, values = _doubled(kept, at), _doubled(values, at)
            for i in range(first, last):
                value = np.int32(products[j, i]) * factor - offsets[i]
                kept[at] = names[i]
                values[at] = value
                at += value >= floors[j]
        counts[j] = at - before
    return counts, kept[:at].copy(), values[:at].copy()


@compiled
def _reaches(products, bar):  # type: ignore[no-untyped-def]
    """Tell whether any of a chunk's products is at least `bar`."""
    # Exact in float32 as in int32: products are below 2^24, and a bar is cut to where none is.
    level = products.dtype.type(min(max(bar, -(1 << 25)), 1 << 25))
    found = 0
    for i in range(len(products)):
        found |= products[i] >= level
    return found != 0


@compiled
def _ceil_div(value, factor):  # type: ignore[no-untyped-def]
    """Return value / factor rounded up; `factor` is at least 1."""
    return -((-value) // factor)


@compiled
def _doubled(array, size):  # type: ignore[no-untyped-def]
    """Return a copy twice as long that keeps the first `size` entries."""
    larger = np.empty(2 * len(array), dtype=array.dtype)
    larger[:size] = array[:size]
    return larger


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


@compiled
def rank_th_largest(starts, values, rank):  # type: ignore[no-untyped-def]
    """Return the `rank`-th largest of each query's values, int64 (q,); 0 where there are fewer."""
    found = np.zeros(len(starts) - 1, dtype=np.int64)
    for j in range(len(found)):
        if starts[j + 1] - starts[j] >= rank:
            found[j] = np.sort(values[starts[j] : starts[j + 1]])[-rank]
    return found


def fill_holes(rows: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    """Return which of the last of `size` records fill the holes of the removed, sorted `rows`."""
    tail = np.arange(size - len(rows), size)
    return tail[~np.isin(tail, rows)]


T = TypeVar("T")
R = TypeVar("R")

COUNT = max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)
"""Threads that a search may use: the processors that this process may run on."""


def mapped(function: Callable[[T], R], tasks: Sequence[T]) -> Iterable[R]:
    """Return ``function(task)`` for all tasks, in their order, worked on side by side."""
    if len(tasks) <= 1 or COUNT == 1:
        return map(function, tasks)
    return _pool(os.getpid()).map(function, tasks)


@lru_cache(maxsize=1)
def _pool(process: int) -> ThreadPoolExecutor:  # noqa: ARG001 (a fork inherits no threads)
    return ThreadPoolExecutor(COUNT, thread_name_prefix="vicinal")


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

    The queries' `own` offsets are still to be taken off the similarities.
    """
    starts, rows, similarities = merge_tiles(parts, len(own))
    if own.any():
        similarities -= np.repeat(own, np.diff(starts))
    return NeighbourLists(starts, rows, similarities)
