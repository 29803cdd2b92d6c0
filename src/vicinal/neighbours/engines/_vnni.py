r"""The compiled int8 engine: products, radii and lists in one pass, on AVX-512 VNNI.

Six records meet 64 queries in registers; the sums are compared with the radii before they leave
them, and only records that lie inside any radius are written at all. The n x Q matrix
exists nowhere, not even a tile of it.

The instruction wants one side unsigned, so queries are stored with 128 added, and sums start from

    -128 sum(x) - floor(offset(x) / factor),

so that a finished sum s satisfies  factor * <x, q> - offset(x) = factor * s - offset(x) % factor.
Limits are ceil(floor / factor): no hit is lost by them, and each is checked exactly.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal.arrays import Ints, Ints32
from vicinal.compiled import compiled
from vicinal.errors import InvalidInput
from vicinal.neighbours.engines._intrinsics import (
    LANES,
    ROWS,
    aligned,
    byte_sum,
    lowest_bit,
    panel1,
    panel2,
    panel3,
    panel4,
    shifted_dot,
    supported,
)
from vicinal.neighbours.kernels import IntegerMatrix
from vicinal.neighbours.scan import (
    Floors,
    HitBudget,
    Hits,
    Pairs,
    QueryBlock,
    ScanEngine,
    ScanRecords,
    by_query,
)

FEW = 3  # up to so many queries are multiplied one by one, along the record, at the speed of memory

_PANEL = 4 * LANES
_CACHED = 1 << 18  # bytes of records that stay in a core's cache while all queries pass over them

_MOST = 2**31 - 1
_ALL = np.zeros(0, dtype=np.int32)
_NO_PANELS = np.zeros(0, dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class Packed:
    """Queries as the compiled code reads them.

    `rows` (q, stride) are queries with 128 added. `panels` hold up to 64 queries each, as
    [dword][query][4 bytes], from a multiple of 64 on. `limits` are ceil(floor / factor), and the
    largest int32 for queries that only fill a column. Neither is needed for `FEW` queries.
    """

    rows: npt.NDArray[np.uint8]
    panels: npt.NDArray[np.uint8]
    limits: Ints32


class VNNIEngine(ScanEngine):
    """Scans int8 records, a multiple of 4 wide; a RuntimeError without the instructions."""

    name = "vnni"

    def __init__(self) -> None:
        if not supported():
            raise RuntimeError("the processor has no AVX-512 VNNI")

    def prepare(self, queries: IntegerMatrix, floors: Floors, factor: int) -> QueryBlock:
        rows = np.ascontiguousarray(queries).view(np.uint8) ^ np.uint8(0x80)
        return _block(rows, np.ascontiguousarray(floors, dtype=np.int64), factor)

    def pick(self, block: QueryBlock, chosen: Ints) -> QueryBlock:
        return _block(block.packed.rows[chosen], block.floors[chosen], block.factor)

    def scan(self, block: QueryBlock, records: ScanRecords, allowed: HitBudget) -> Hits | None:
        return self._scan(block, records, _ALL, allowed, len(records.row_ids))

    def scan_some(
        self, block: QueryBlock, records: ScanRecords, chosen: Ints32, allowed: HitBudget
    ) -> Hits | None:
        if len(chosen) == 0:
            return self._scan(block, records[:0], _ALL, allowed, 0)
        return self._scan(block, records, chosen, allowed, len(chosen))

    def similarities(self, queries: IntegerMatrix, factor: int, pairs: Pairs) -> None:
        rows = np.ascontiguousarray(queries).view(np.uint8) ^ np.uint8(0x80)
        records = pairs.records
        check_memory(rows.shape[1], records, _ALL)
        _pair_sums(
            records.features, records.offsets, pairs.first, len(records.row_ids), rows, factor,
            pairs.starts, pairs.rows, pairs.values,
        )  # fmt: skip

    def _scan(
        self, block: QueryBlock, records: ScanRecords, chosen: Ints32, allowed: HitBudget, size: int
    ) -> Hits | None:
        check_memory(block.packed.rows.shape[1], records, chosen)
        stored = (records.features, records.offsets, records.row_ids, chosen, size)
        hits = self._hits(block, stored, allowed)
        lists: Hits = by_query(hits, len(block.floors))
        return lists if allowed else None

    def _hits(self, block: QueryBlock, stored: tuple[Any, ...], allowed: HitBudget) -> Ints32:
        """Return hits (query, name, value) of the records, as long as there is room."""
        rows, panels, limits = block.packed.rows, block.packed.panels, block.packed.limits
        hits: Ints32 = (
            _scan_few(*stored, rows, block.floors, block.factor, allowed.remaining)
            if len(block.floors) <= FEW
            else _scan_panels(
                *stored, block.floors, block.factor, panels, limits, allowed.remaining
            )
        )
        return hits


def check_memory(width: int, records: ScanRecords, chosen: Ints32) -> None:
    """Raise InvalidInput unless every address that follows from these lies in their arrays."""
    features, size = records.features, len(records.row_ids)
    fits = (
        features.dtype == np.int8
        and features.flags.c_contiguous
        and features.shape == (size, width)
        and len(records.offsets) == size
        and (len(chosen) == 0 or (chosen.min() >= 0 and chosen.max() < size))
    )
    if not fits:
        raise InvalidInput(
            "The 'records' must be C-contiguous int8 rows as wide as the block was prepared for, "
            "with an offset and a name each, and those chosen must be among them."
        )


def _block(rows: npt.NDArray[np.uint8], floors: Floors, factor: int) -> QueryBlock:
    """Return the block of unsigned queries; few are multiplied as they stand."""
    if len(rows) <= FEW:
        return QueryBlock(floors, factor, Packed(rows, _NO_PANELS, _ALL))
    limits = sum_limits(floors, factor, LANES)
    panels = aligned(len(limits) * rows.shape[1])
    _pack(rows, len(limits), panels)
    return QueryBlock(floors, factor, Packed(rows, panels, limits))


def sum_limits(floors: Floors, factor: int, group: int) -> Ints32:
    """Return ceil(floor / factor) of each query, and what no sum reaches up to a whole group."""
    limits = aligned(-(-len(floors) // group) * group * 4).view(np.int32)
    limits[:] = _MOST  # what only fills a group reaches no limit
    limits[: len(floors)] = np.clip(-(-floors // factor), -_MOST - 1, _MOST)
    return np.asarray(limits)


@compiled
def _pack(rows, places, panels):  # type: ignore[no-untyped-def]
    dwords = rows.shape[1] // 4
    for j in range(len(rows)):
        first = j // _PANEL * _PANEL
        width = min(_PANEL, places - first)
        base = first * 4 * dwords + 4 * (j - first)
        for k in range(dwords):
            for byte in range(4):
                panels[base + 4 * width * k + byte] = rows[j, 4 * k + byte]


@compiled
def _scan_few(  # type: ignore[no-untyped-def]
    features, offsets, names, chosen, size, queries, floors, factor, allowed
):
    """Return hits (query, name, value) of one record after the other."""
    excess = np.empty(len(floors), dtype=np.int64)
    for j in range(len(floors)):
        excess[j] = 128 * (np.int64(queries[j].sum()) - 128 * queries.shape[1])
    hits = np.empty((1024, 3), dtype=np.int32)
    i, at = np.int64(0), np.int64(0)  # no literals, which would have every callee compiled twice
    while True:
        i, at = _fill_few(
            features, offsets, names, chosen, size, queries, floors, factor, excess, hits, i, at
        )
        if at > allowed[0]:
            allowed[0] = -1
            return hits[:0]
        if i == size:
            allowed[0] -= at
            return hits[:at]
        hits = roomier(hits, at)


@compiled
def _fill_few(  # type: ignore[no-untyped-def]
    features, offsets, names, chosen, size, queries, floors, factor, excess, hits, first, at
):
    """Append the hits of records from `first` on; return where `hits` was full, and its size.

    It keeps one array of hits: an array that a loop replaces is counted in every round of it.
    """
    width = features.shape[1]
    base, first_query = features.ctypes.data, queries.ctypes.data
    last = len(hits) - len(floors)
    for i in range(first, size):
        if at > last:
            return i, at
        row = chosen[i] if len(chosen) else i
        record = base + row * width
        for j in range(len(floors)):
            # A sum of bytes may wrap around; the product itself fits into int32.
            shifted = shifted_dot(record, first_query + j * width, width)
            product = np.int32(np.int64(shifted) - excess[j])
            value = np.int64(product) * factor - offsets[row]
            if value >= floors[j]:
                hits[at, 0], hits[at, 1], hits[at, 2] = j, names[row], value
                at += 1
    return size, at


@compiled
def _pair_sums(  # type: ignore[no-untyped-def]
    features, offsets, first, size, queries, factor, starts, rows, values
):
    """Write the similarities of the pairs whose record is one of `size` from `first` on.

    Records that stay in a core's cache meet all their queries before the next ones are read.
    """
    width = features.shape[1]
    excess = np.empty(len(queries), dtype=np.int64)
    for j in range(len(queries)):
        excess[j] = 128 * (np.int64(queries[j].sum()) - 128 * width)
    pair = starts[:-1].copy()
    step = max(1, _CACHED // max(1, width))
    for tile in range(0, size, step):
        beyond = min(tile + step, size)
        for j in range(len(queries)):
            query = queries.ctypes.data + j * width
            at, stop = pair[j], starts[j + 1]
            while at < stop:
                row = np.int64(rows[at]) - first
                if row >= beyond:
                    break
                if row >= 0:
                    # A sum of bytes may wrap around; the product itself fits into int32.
                    shifted = shifted_dot(features.ctypes.data + row * width, query, width)
                    product = np.int32(np.int64(shifted) - excess[j])
                    values[at] = np.int64(product) * factor - offsets[row]
                at += 1
            pair[j] = at


@compiled
def _scan_panels(  # type: ignore[no-untyped-def]
    features, offsets, names, chosen, size, floors, factor, panels, limits, allowed
):
    """Return hits (query, name, value), cached rows and panel by panel."""
    width = features.shape[1]
    tile = max(ROWS, _CACHED // width)
    addresses = np.empty(tile, dtype=np.int64)
    rows = np.empty(tile, dtype=np.int64)
    biases = np.empty(tile, dtype=np.int32)
    products = aligned(4 * ROWS * _PANEL).view(np.int32)
    hits = np.empty((4096, 3), dtype=np.int32)
    at = np.int64(0)
    for first in range(0, size, tile):
        count = min(tile, size - first)
        before = at
        for i in range(count):
            rows[i] = chosen[first + i] if len(chosen) else first + i
            addresses[i] = features.ctypes.data + rows[i] * width
            total = np.int64(byte_sum(addresses[i], width))
            # Queries are unsigned, 128 too large: 128 sum(x) comes off before the sums begin.
            biases[i] = np.int32(-128 * total - offsets[rows[i]] // factor)
        for query in range(0, len(limits), _PANEL):
            hits, at = _scan_panel(
                addresses, biases, rows, count, offsets, names, query,
                panels, limits, floors, factor, width, products, hits, at,
            )  # fmt: skip
        allowed[0] -= at - before
        if allowed[0] < 0:
            allowed[0] = -1
            return hits[:0]
    return hits[:at]


@compiled
def _scan_panel(  # type: ignore[no-untyped-def]
    addresses, biases, rows, count, offsets, names, query,
    panels, limits, floors, factor, width, products, hits, at,
):  # fmt: skip
    """Append the hits of `count` records with the panel of queries that starts at `query`."""
    columns = min(4, (len(limits) - query) // LANES)
    packed_queries = panels.ctypes.data + query * width
    bars = limits.ctypes.data + 4 * query
    out = products.ctypes.data
    last = count - 1
    for i in range(0, count, ROWS):
        # A short last group repeats its last record and leaves the repetitions unread.
        a, b, c = i, min(i + 1, last), min(i + 2, last)
        d, e, f = min(i + 3, last), min(i + 4, last), min(i + 5, last)
        where = (
            addresses[a], addresses[b], addresses[c], addresses[d], addresses[e], addresses[f],
        )  # fmt: skip
        bias = (biases[a], biases[b], biases[c], biases[d], biases[e], biases[f])
        if columns == 4:
            masks = panel4(where, bias, packed_queries, width // 4, bars, out)
        elif columns == 3:
            masks = panel3(where, bias, packed_queries, width // 4, bars, out)
        elif columns == 2:
            masks = panel2(where, bias, packed_queries, width // 4, bars, out)
        else:
            masks = panel1(where, bias, packed_queries, width // 4, bars, out)
        # One test for six records: most groups lie outside of every radius.
        if not (masks[0] | masks[1] | masks[2] | masks[3] | masks[4] | masks[5]):
            continue
        # Before the group, not at every hit: whatever it keeps has its place.
        if at + ROWS * _PANEL > len(hits):
            hits = roomier(hits, at)
        for k in range(min(ROWS, count - i)):
            row = rows[i + k]
            remainder = offsets[row] % factor
            mask = masks[k]
            while mask:
                j = lowest_bit(mask)
                mask &= mask - np.uint64(1)
                value = np.int64(products[k * columns * LANES + j]) * factor - remainder
                if value >= floors[query + j]:
                    hits[at, 0], hits[at, 1], hits[at, 2] = query + j, names[row], value
                    at += 1
    return hits, at


@compiled
def roomier(hits, size):  # type: ignore[no-untyped-def]
    """Return a copy with the first `size` hits and room for those of a group beyond them."""
    larger = np.empty((2 * len(hits) + ROWS * _PANEL, 3), dtype=np.int32)
    for hit in range(size):
        for k in range(3):
            larger[hit, k] = hits[hit, k]
    return larger
