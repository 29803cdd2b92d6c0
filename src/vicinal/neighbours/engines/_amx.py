"""The compiled int8 engine on AMX: products of 32 records with 32 queries in tile registers.

The sums are compared with the radii as soon as they are finished, and only records that lie inside
somebody's radius are kept. The n x Q matrix exists nowhere. A few queries at a time are left to
:mod:`vicinal.neighbours.engines._vnni`, which goes at the speed of memory.

Sums start from -floor(offset(x) / factor), so that a finished sum s satisfies

    factor * <x, q> - offset(x) = factor * s - offset(x) % factor.

Limits are ceil(floor / factor): no hit is lost by them, and each is checked exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal._arrays import Ints, Ints32
from vicinal._compiled import compiled
from vicinal.neighbours._kernels import IntegerMatrix
from vicinal.neighbours._scan import Floors, HitBudget, QueryBlock
from vicinal.neighbours.engines._intrinsics import lowest_bit
from vicinal.neighbours.engines._tile_code import (
    FOUND,
    SIDE,
    STEP,
    scan_address,
    scan_tiles,
    supported,
    tile_shapes,
)
from vicinal.neighbours.engines._vnni import VNNIEngine, aligned, roomier, sum_limits

FEW = 8  # up to so many queries, tiles that are mostly empty gain nothing over vectors
_CACHED = 1 << 18  # bytes of records that stay in a core's cache while all queries pass over them


@dataclass(frozen=True, slots=True)
class QueryTiles:
    """Queries as the tiles are loaded.

    - `rows`, int8 (q, stride): the queries.
    - `tiles`, int8 (groups, steps, 2, 16, 16, 4): groups of 32 queries, 64 features a step: half,
      four features, query, feature.
    - `limits`, int32 (groups * 32,): ceil(floor / factor); the largest int32 for queries that only
      fill a group.
    """

    rows: npt.NDArray[np.int8]
    tiles: npt.NDArray[np.int8]
    limits: Ints32


class AMXEngine(VNNIEngine):
    """Scans int8 records of any width.

    Raises RuntimeError if this processor lacks the instructions, or the kernel does not let the
    process use them.
    """

    name = "amx"

    def __init__(self) -> None:
        if not supported():
            raise RuntimeError("the processor has no AMX for int8")
        self._address = scan_address()
        self._shapes = tile_shapes()

    def prepare(self, queries: IntegerMatrix, floors: Floors, factor: int) -> QueryBlock:
        if len(queries) <= FEW:
            return super().prepare(queries, floors, factor)
        return _block(queries, floors, factor)

    def pick(self, block: QueryBlock, chosen: Ints) -> QueryBlock:
        if not isinstance(block.packed, QueryTiles):
            return super().pick(block, chosen)
        rows, floors = block.packed.rows[chosen], block.floors[chosen]
        return self.prepare(rows, floors, block.factor)

    def _hits(self, block: QueryBlock, stored: tuple[Any, ...], room: HitBudget) -> Ints32:
        tiles = block.packed
        if not isinstance(tiles, QueryTiles):
            return super()._hits(block, stored, room)
        hits: Ints32 = _scan_tiles(
            *stored, block.floors, block.factor, tiles.tiles, tiles.limits, self._shapes,
            self._address, room.remaining,
        )  # fmt: skip
        return hits


def _block(rows: npt.NDArray[np.int8], floors: Floors, factor: int) -> QueryBlock:
    """Return the block of queries as wide as stored rows."""
    floors = np.ascontiguousarray(floors, dtype=np.int64)
    groups, steps = -(-len(rows) // SIDE), -(-rows.shape[1] // STEP)
    wide = np.zeros((groups * SIDE, steps * STEP), dtype=np.int8)
    wide[: len(rows), : rows.shape[1]] = rows
    tiles = aligned(wide.size).view(np.int8).reshape(groups, steps, 2, 16, 16, 4)
    # Four features of a query move together, as one int32.
    fours = wide.view(np.int32).reshape(groups, 2, 16, steps, 16)
    tiles.view(np.int32)[..., 0] = fours.transpose(0, 3, 1, 4, 2)
    return QueryBlock(floors, factor, QueryTiles(rows, tiles, sum_limits(floors, factor, SIDE)))


@compiled
def _scan_tiles(  # type: ignore[no-untyped-def]
    features, offsets, names, chosen, size, floors, factor, tiles, limits, shapes, address, room
):
    """Return hits (query, name, value), cached rows and 32 queries at a time."""
    width, steps = features.shape[1], tiles.shape[1]
    wide = steps * STEP
    tile = max(SIDE, _CACHED // wide // SIDE * SIDE)
    rows = np.empty(tile, dtype=np.int64)
    biases, rests = np.zeros(tile, dtype=np.int32), np.zeros(tile, dtype=np.int32)
    masks = np.empty((tile, FOUND), dtype=np.int32)
    sums = _aligned_bytes(4 * SIDE * SIDE)
    copies = _aligned_bytes(0)
    hits = np.empty((4096, 3), dtype=np.int32)
    at = np.int64(0)
    for first in range(0, size, tile):
        count = min(tile, size - first)
        before = at
        for i in range(count):
            rows[i] = chosen[first + i] if len(chosen) else first + i
            biases[i] = -(offsets[rows[i]] // factor)
            rests[i] = offsets[rows[i]] + biases[i] * factor
        # A step may read on into the next records, which meet zeros, but not beyond the last one.
        beyond = (first + -(-count // SIDE) * SIDE - 1) * width + wide > size * width
        records, stride = features.ctypes.data + first * width, width
        if len(chosen) or beyond:
            if not len(copies):
                copies = _aligned_bytes(tile * wide)
            _copy(features, rows, count, wide, copies)
            records, stride = copies.ctypes.data, wide
        for query in range(0, len(limits), SIDE):
            n_masks = scan_tiles(
                address,
                (
                    records, stride, -(-count // SIDE), steps, tiles.ctypes.data + query * wide,
                    limits.ctypes.data + 4 * query, biases.ctypes.data, sums.ctypes.data,
                    masks.ctypes.data, shapes.ctypes.data,
                ),
            )  # fmt: skip
            hits, at = _keep(
                masks, n_masks, count, rows, rests, names, floors, factor, query, hits, at
            )
        room[0] -= at - before
        if room[0] < 0:
            room[0] = -1
            return hits[:0]
    return hits[:at]


@compiled
def _copy(features, rows, count, wide, copies):  # type: ignore[no-untyped-def]
    """Copy rows `wide` bytes apart; what lies between them meets zeros."""
    width = features.shape[1]
    for i in range(count):
        source, target = features[rows[i]], copies[i * wide : i * wide + width]
        for j in range(width):
            target[j] = source[j]


@compiled
def _keep(  # type: ignore[no-untyped-def]
    masks, n_masks, count, rows, rests, names, floors, factor, query, hits, at
):
    """Append the hits among the first `n_masks` rows of `masks`, checked exactly."""
    for i in range(n_masks):
        position = masks[i, 0]
        if position >= count:  # what fills the last group
            return hits, at
        if at + SIDE > len(hits):
            hits = roomier(hits, at)
        remainder, name = rests[position], names[rows[position]]
        mask = np.uint64(np.uint32(masks[i, 1]))
        while mask:
            j = lowest_bit(mask)
            mask &= mask - np.uint64(1)
            value = np.int64(masks[i, 2 + j]) * factor - remainder
            if query + j < len(floors) and value >= floors[query + j]:
                hits[at, 0], hits[at, 1], hits[at, 2] = query + j, name, value
                at += 1
    return hits, at


@compiled
def _aligned_bytes(size):  # type: ignore[no-untyped-def]
    """Return `size` bytes of zeros that start at a multiple of 64."""
    spare = np.zeros(size + 64, dtype=np.int8)
    first = -spare.ctypes.data % 64
    return spare[first : first + size]
