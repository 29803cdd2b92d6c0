"""Compiled work on tiles of records: keep what is inside the radius, stitch tiles together."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vicinal.compiled import compiled

Hits = tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.int32]]


@compiled
def compress_tile(products, offsets, floors, factor, first_row):  # type: ignore[no-untyped-def]
    """Keep the pairs with ``factor * products - offsets >= floors``.

    Parameters
    ----------
    products : float32 (q, rows)
        Exact integer products of a block of queries with a tile of records.
    offsets : int32 (rows,)
        What each record takes off its similarity.
    floors : int64 (q,)
        The radius of each query, plus the query's own offset.
    factor, first_row : int
        The kernel's product factor; the position of the tile's first record.

    Returns
    -------
    counts : int64 (q,)
        Hits of each query.
    rows, values : int32 (hits,)
        Positions and similarities (before the query's own offset), query by query.
    """
    n_queries, n_rows = products.shape
    counts = np.zeros(n_queries, dtype=np.int64)
    for j in range(n_queries):
        inside = 0
        floor = floors[j]
        for i in range(n_rows):
            inside += np.int32(products[j, i]) * factor - offsets[i] >= floor
        counts[j] = inside
    total = counts.sum()
    # One spare slot: the branchless loop writes before it knows whether to keep.
    rows = np.empty(total + 1, dtype=np.int32)
    values = np.empty(total + 1, dtype=np.int32)
    at = 0
    for j in range(n_queries):
        if counts[j] == 0:
            continue
        floor = floors[j]
        for i in range(n_rows):
            value = np.int32(products[j, i]) * factor - offsets[i]
            rows[at] = first_row + i
            values[at] = value
            at += value >= floor
    return counts, rows[:total], values[:total]


def merge_tiles(parts: list[Hits], n_queries: int) -> Hits:
    """Join the hits of consecutive tiles, query by query: (starts, rows, similarities)."""
    starts = np.zeros(n_queries + 1, dtype=np.int64)
    if not parts:
        return starts, np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32)
    counts = np.stack([part[0] for part in parts])
    np.cumsum(counts.sum(axis=0), out=starts[1:])
    before = np.cumsum(counts, axis=0) - counts
    rows = np.empty(starts[-1], dtype=np.int32)
    values = np.empty(starts[-1], dtype=np.int32)
    for tile, (count, tile_rows, tile_values) in enumerate(parts):
        _place(starts[:-1] + before[tile], count, tile_rows, tile_values, rows, values)
    return starts, rows, values


@compiled
def _place(targets, counts, tile_rows, tile_values, rows, values):  # type: ignore[no-untyped-def]
    """Copy one tile's hits of every query to where they belong."""
    source = 0
    for j in range(len(counts)):
        for i in range(counts[j]):
            rows[targets[j] + i] = tile_rows[source]
            values[targets[j] + i] = tile_values[source]
            source += 1


def fill_holes(rows: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    """Return which of the last records fill the holes that removing sorted `rows` leaves.

    Parameters
    ----------
    rows : int64 (m,)
        Sorted positions to remove, each below `size`.
    size : int
        Number of records before the removal.
    """
    tail = np.arange(size - len(rows), size)
    return tail[~np.isin(tail, rows)]
