"""The compiled int8 engine on AVX-512 VNNI: products, comparison and lists in one pass.

Six records are multiplied with 64 queries in registers. The sums are compared with the thresholds
while they are in registers, and only records with a hit are written. Neither the n x q matrix of
products nor a tile of it exists in memory.

The instruction needs one unsigned operand, so queries are stored with 128 added, and sums start
from

    -128 sum(x) - floor(offset(x) / factor),

so that a finished sum s satisfies  factor * <x, q> - offset(x) = factor * s - offset(x) % factor.
Limits are ceil(floor / factor): they exclude no hit, and each pair that reaches one is checked
exactly.
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
    allocate_aligned,
    byte_sum,
    is_supported,
    lowest_bit,
    panel1,
    panel2,
    panel3,
    panel4,
    shifted_dot,
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
    order_by_query,
)

# Up to this many queries are multiplied one by one, at the speed of memory (decision 0023).
MAX_SINGLE_QUERIES = 3

_PANEL_QUERIES = 4 * LANES
# Bytes of records that stay in the cache of a core while all queries are multiplied.
_CACHED_BYTES = 1 << 18

_INT32_MAX = 2**31 - 1
_ALL_RECORDS = np.zeros(0, dtype=np.int32)
_NO_PANELS = np.zeros(0, dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class PackedQueries:
    """Queries in the layout of the compiled code.

    `rows` (q, stride) are queries with 128 added. `panels` hold up to 64 queries each, as
    [dword][query][4 bytes], each from a multiple of 64 queries on. `limits` are
    ceil(floor / factor), or the largest int32 for padding. Up to `MAX_SINGLE_QUERIES` queries need
    `rows` only.
    """

    rows: npt.NDArray[np.uint8]
    panels: npt.NDArray[np.uint8]
    limits: Ints32


class VNNIEngine(ScanEngine):
    """Scans int8 records whose stride is a multiple of 4.

    Raises RuntimeError if the processor lacks the instructions.
    """

    name = "vnni"

    def __init__(self) -> None:
        if not is_supported():
            raise RuntimeError("the processor has no AVX-512 VNNI")

    def prepare(self, queries: IntegerMatrix, floors: Floors, factor: int) -> QueryBlock:
        rows = np.ascontiguousarray(queries).view(np.uint8) ^ np.uint8(0x80)
        return _make_block(rows, np.ascontiguousarray(floors, dtype=np.int64), factor)

    def select_queries(self, block: QueryBlock, chosen: Ints) -> QueryBlock:
        return _make_block(block.packed.rows[chosen], block.floors[chosen], block.factor)

    def scan(self, block: QueryBlock, records: ScanRecords, allowed: HitBudget) -> Hits | None:
        return self._scan(block, records, _ALL_RECORDS, allowed, len(records.row_ids))

    def scan_some(
        self, block: QueryBlock, records: ScanRecords, chosen: Ints32, allowed: HitBudget
    ) -> Hits | None:
        if len(chosen) == 0:
            return self._scan(block, records[:0], _ALL_RECORDS, allowed, 0)
        return self._scan(block, records, chosen, allowed, len(chosen))

    def write_similarities(self, queries: IntegerMatrix, factor: int, pairs: Pairs) -> None:
        rows = np.ascontiguousarray(queries).view(np.uint8) ^ np.uint8(0x80)
        records = pairs.records
        check_memory(rows.shape[1], records, _ALL_RECORDS)
        _write_similarities(
            records.features,
            records.offsets,
            pairs.first,
            len(records.row_ids),
            rows,
            factor,
            pairs.starts,
            pairs.rows,
            pairs.values,
        )

    def _scan(
        self, block: QueryBlock, records: ScanRecords, chosen: Ints32, allowed: HitBudget, size: int
    ) -> Hits | None:
        """Return the hits of `size` records: those with indices `chosen`, or all if it is empty."""
        check_memory(block.packed.rows.shape[1], records, chosen)
        stored = (records.features, records.offsets, records.row_ids, chosen, size)
        hits = self._find_hits(block, stored, allowed)
        lists: Hits = order_by_query(hits, len(block.floors))
        return lists if allowed else None

    def _find_hits(self, block: QueryBlock, stored: tuple[Any, ...], allowed: HitBudget) -> Ints32:
        """Return hits (query, row id, similarity), int32 (hits, 3), as far as `allowed` permits.

        `stored` holds features, offsets, row ids, chosen indices and the number of records.
        """
        rows, panels, limits = block.packed.rows, block.packed.panels, block.packed.limits
        hits: Ints32 = (
            _scan_few(*stored, rows, block.floors, block.factor, allowed.remaining)
            if len(block.floors) <= MAX_SINGLE_QUERIES
            else _scan_panels(
                *stored, block.floors, block.factor, panels, limits, allowed.remaining
            )
        )
        return hits


def check_memory(width: int, records: ScanRecords, chosen: Ints32) -> None:
    """Raise InvalidInput unless every address computed from the arguments lies in an array.

    `width` is the stride that the block was prepared for, `chosen` are indices of records.
    """
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


def _make_block(rows: npt.NDArray[np.uint8], floors: Floors, factor: int) -> QueryBlock:
    """Return the block of unsigned queries (q, stride), packed into panels unless they are few."""
    if len(rows) <= MAX_SINGLE_QUERIES:
        return QueryBlock(floors, factor, PackedQueries(rows, _NO_PANELS, _ALL_RECORDS))
    limits = compute_sum_limits(floors, factor, LANES)
    panels = allocate_aligned(len(limits) * rows.shape[1])
    _pack_panels(rows, len(limits), panels)
    return QueryBlock(floors, factor, PackedQueries(rows, panels, limits))


def compute_sum_limits(floors: Floors, factor: int, group_size: int) -> Ints32:
    """Return ceil(floor / factor) of each query, padded to whole groups of `group_size`.

    The padding is the largest int32, which no sum reaches.
    """
    limits = allocate_aligned(-(-len(floors) // group_size) * group_size * 4).view(np.int32)
    limits[:] = _INT32_MAX
    limits[: len(floors)] = np.clip(-(-floors // factor), -_INT32_MAX - 1, _INT32_MAX)
    return np.asarray(limits)


@compiled
def _pack_panels(rows, n_padded, panels):  # type: ignore[no-untyped-def]
    """Write the unsigned queries `rows` into `panels`; `n_padded` is their number with padding."""
    dwords = rows.shape[1] // 4
    for j in range(len(rows)):
        first = j // _PANEL_QUERIES * _PANEL_QUERIES
        width = min(_PANEL_QUERIES, n_padded - first)
        base = first * 4 * dwords + 4 * (j - first)
        for k in range(dwords):
            for byte in range(4):
                panels[base + 4 * width * k + byte] = rows[j, 4 * k + byte]


@compiled
def _scan_few(  # type: ignore[no-untyped-def]
    features, offsets, row_ids, chosen, size, queries, floors, factor, allowed
):
    """Return hits (query, row id, similarity), int32 (hits, 3), record by record."""
    excess = np.empty(len(floors), dtype=np.int64)
    for j in range(len(floors)):
        excess[j] = 128 * (np.int64(queries[j].sum()) - 128 * queries.shape[1])
    hits = np.empty((1024, 3), dtype=np.int32)
    first, n_hits = np.int64(0), np.int64(0)  # literals would have every callee compiled twice
    while True:
        first, n_hits = _append_few(
            features,
            offsets,
            row_ids,
            chosen,
            size,
            queries,
            floors,
            factor,
            excess,
            hits,
            first,
            n_hits,
        )
        if n_hits > allowed[0]:
            allowed[0] = -1
            return hits[:0]
        if first == size:
            allowed[0] -= n_hits
            return hits[:n_hits]
        hits = enlarge_hits(hits, n_hits)


@compiled
def _append_few(  # type: ignore[no-untyped-def]
    features, offsets, row_ids, chosen, size, queries, floors, factor, excess, hits, first, n_hits
):
    """Append the hits of records from `first` on; return the next record and the number of hits.

    It returns early when `hits` is full. The caller enlarges the array, because an array that a
    loop replaces is reference-counted in each iteration. ``excess[j]`` is the amount by which the
    shifted product of query j exceeds the product.
    """
    width = features.shape[1]
    features_address, queries_address = features.ctypes.data, queries.ctypes.data
    max_hits = len(hits) - len(floors)
    for i in range(first, size):
        if n_hits > max_hits:
            return i, n_hits
        row = chosen[i] if len(chosen) else i
        record = features_address + row * width
        for j in range(len(floors)):
            # A sum of bytes may wrap around; the product itself fits into int32.
            shifted = shifted_dot(record, queries_address + j * width, width)
            product = np.int32(np.int64(shifted) - excess[j])
            similarity = np.int64(product) * factor - offsets[row]
            if similarity >= floors[j]:
                hits[n_hits, 0], hits[n_hits, 1], hits[n_hits, 2] = j, row_ids[row], similarity
                n_hits += 1
    return size, n_hits


@compiled
def _write_similarities(  # type: ignore[no-untyped-def]
    features, offsets, first, size, queries, factor, starts, rows, values
):
    """Write the similarities of the pairs whose record is one of `size` from `first` on.

    The records of a tile, which stay in the cache of a core, are multiplied with all their queries
    before the next tile is read.
    """
    width = features.shape[1]
    excess = np.empty(len(queries), dtype=np.int64)
    for j in range(len(queries)):
        excess[j] = 128 * (np.int64(queries[j].sum()) - 128 * width)
    next_pair = starts[:-1].copy()
    tile_size = max(1, _CACHED_BYTES // max(1, width))
    for tile in range(0, size, tile_size):
        tile_stop = min(tile + tile_size, size)
        for j in range(len(queries)):
            query_address = queries.ctypes.data + j * width
            pair, stop = next_pair[j], starts[j + 1]
            while pair < stop:
                row = np.int64(rows[pair]) - first
                if row >= tile_stop:
                    break
                if row >= 0:
                    # A sum of bytes may wrap around; the product itself fits into int32.
                    shifted = shifted_dot(features.ctypes.data + row * width, query_address, width)
                    product = np.int32(np.int64(shifted) - excess[j])
                    values[pair] = np.int64(product) * factor - offsets[row]
                pair += 1
            next_pair[j] = pair


@compiled
def _scan_panels(  # type: ignore[no-untyped-def]
    features, offsets, row_ids, chosen, size, floors, factor, panels, limits, allowed
):
    """Return hits (query, row id, similarity), int32 (hits, 3), tile by tile and panel by panel."""
    width = features.shape[1]
    tile_size = max(ROWS, _CACHED_BYTES // width)
    addresses = np.empty(tile_size, dtype=np.int64)
    rows = np.empty(tile_size, dtype=np.int64)
    biases = np.empty(tile_size, dtype=np.int32)
    products = allocate_aligned(4 * ROWS * _PANEL_QUERIES).view(np.int32)
    hits = np.empty((4096, 3), dtype=np.int32)
    n_hits = np.int64(0)
    for first in range(0, size, tile_size):
        count = min(tile_size, size - first)
        n_hits_before = n_hits
        for i in range(count):
            rows[i] = chosen[first + i] if len(chosen) else first + i
            addresses[i] = features.ctypes.data + rows[i] * width
            total = np.int64(byte_sum(addresses[i], width))
            # Queries have 128 added, so 128 sum(x) is subtracted before the sums begin.
            biases[i] = np.int32(-128 * total - offsets[rows[i]] // factor)
        for query in range(0, len(limits), _PANEL_QUERIES):
            hits, n_hits = _append_panel_hits(
                addresses,
                biases,
                rows,
                count,
                offsets,
                row_ids,
                query,
                panels,
                limits,
                floors,
                factor,
                width,
                products,
                hits,
                n_hits,
            )
        allowed[0] -= n_hits - n_hits_before
        if allowed[0] < 0:
            allowed[0] = -1
            return hits[:0]
    return hits[:n_hits]


@compiled
def _append_panel_hits(  # type: ignore[no-untyped-def]
    addresses,
    biases,
    rows,
    count,
    offsets,
    row_ids,
    first_query,
    panels,
    limits,
    floors,
    factor,
    width,
    products,
    hits,
    n_hits,
):
    """Append the hits of `count` records with the panel of queries from `first_query` on.

    `addresses`, `biases` and `rows` (count,) are the addresses, initial sums and indices of the
    records; `products` is work space. Returns the hits and their number. Names that end in `_at`
    are addresses, and so are `panel` and `group`.
    """
    columns = min(4, (len(limits) - first_query) // LANES)
    panel = panels.ctypes.data + first_query * width
    limits_at = limits.ctypes.data + 4 * first_query
    products_at = products.ctypes.data
    last = count - 1
    for i in range(0, count, ROWS):
        # A short last group repeats its last record; the repetitions are ignored.
        a, b, c = i, min(i + 1, last), min(i + 2, last)
        d, e, f = min(i + 3, last), min(i + 4, last), min(i + 5, last)
        group = (addresses[a], addresses[b], addresses[c], addresses[d], addresses[e], addresses[f])
        starts = (biases[a], biases[b], biases[c], biases[d], biases[e], biases[f])
        if columns == 4:
            masks = panel4(group, starts, panel, width // 4, limits_at, products_at)
        elif columns == 3:
            masks = panel3(group, starts, panel, width // 4, limits_at, products_at)
        elif columns == 2:
            masks = panel2(group, starts, panel, width // 4, limits_at, products_at)
        else:
            masks = panel1(group, starts, panel, width // 4, limits_at, products_at)
        # One test for six records: most groups have no hit.
        if not (masks[0] | masks[1] | masks[2] | masks[3] | masks[4] | masks[5]):
            continue
        # The array is enlarged before the group, not at each hit.
        if n_hits + ROWS * _PANEL_QUERIES > len(hits):
            hits = enlarge_hits(hits, n_hits)
        for k in range(min(ROWS, count - i)):
            row = rows[i + k]
            remainder = offsets[row] % factor
            mask = masks[k]
            while mask:
                j = lowest_bit(mask)
                mask &= mask - np.uint64(1)
                similarity = np.int64(products[k * columns * LANES + j]) * factor - remainder
                if similarity >= floors[first_query + j]:
                    hits[n_hits, 0], hits[n_hits, 1], hits[n_hits, 2] = (
                        first_query + j,
                        row_ids[row],
                        similarity,
                    )
                    n_hits += 1
    return hits, n_hits


@compiled
def enlarge_hits(hits, size):  # type: ignore[no-untyped-def]
    """Return a larger array with the first `size` hits and space for the hits of a whole group."""
    larger = np.empty((2 * len(hits) + ROWS * _PANEL_QUERIES, 3), dtype=np.int32)
    for hit in range(size):
        for column in range(3):
            larger[hit, column] = hits[hit, column]
    return larger
