"""The compiled int8 engine on AVX-512 VNNI: products, comparison and lists in one pass.

Six records are multiplied with 64 queries in registers. The sums are compared with the thresholds
while they are in registers, and only records with a hit are written. Neither the n x q matrix of
products nor a tile of it exists in memory.

The instruction needs one unsigned operand, so queries are stored with 128 added, and sums start
from

    -128 sum(x) - floor(offset(x) / factor),

so that a finished sum s satisfies  factor * <x, q> - offset(x) = factor * s - offset(x) % factor.
Limits are ceil(min_score / factor): they exclude no hit, and each pair that reaches one is checked
exactly.

A *hit* is a pair of query and record with factor * <x, q> - offset(x) >= min_score.

Arguments of compiled functions: `records` and `queries`, the tuples :class:`CompiledRecords` and
:class:`PackedQueries`. `remaining_hits`, int64 (1,), is the hit budget (the number of hits that may
still be kept), reduced by the hits, or -1 once it is exceeded; then no hits are returned. The first
`n_hits` rows of `hits`, int32 (capacity, 3), are hits (query, row id, similarity).
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vicinal.arrays import Ints, Ints32
from vicinal.compiled import compiled
from vicinal.errors import InvalidInput
from vicinal.neighbours.engines._intrinsics import (
    LANES,
    PANEL_RECORDS,
    allocate_aligned,
    is_supported,
    lowest_bit,
    panel1,
    panel2,
    panel3,
    panel4,
    shifted_dot,
    sum_bytes,
)
from vicinal.neighbours.kernels import IntegerMatrix
from vicinal.neighbours.scan import (
    HitBudget,
    Hits,
    MinScores,
    NeighbourLists,
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


class CompiledRecords(NamedTuple):
    """Records to scan, as compiled code reads them.

    - `features`, int8 (n, stride), `offsets`, `row_ids`, int32 (n,): of :class:`ScanRecords`.
    - `indices`, int32 (n_rows,): indices of the records to scan; empty for the first `n_rows`.
    """

    features: IntegerMatrix
    offsets: Ints32
    row_ids: Ints32
    indices: Ints32
    n_rows: int


class PackedQueries(NamedTuple):
    """Queries in the layout of the compiled code.

    - `rows`, uint8 (q, stride): queries with 128 added.
    - `min_scores`, int64 (q,), `factor`: of :class:`QueryBlock`.
    - `panels`, uint8: query panels, groups of up to 64 queries, one after another, each with the
      axes dword (4 features), query, and byte (feature).
    - `limits`, int32: ceil(min_score / factor), or the largest int32 for padding.

    For up to `MAX_SINGLE_QUERIES` queries `panels` and `limits` are empty.
    """

    rows: npt.NDArray[np.uint8]
    min_scores: MinScores
    factor: int
    panels: npt.NDArray[np.uint8]
    limits: Ints32


class VNNIEngine(ScanEngine):
    """Scans int8 records whose stride is a multiple of 4; RuntimeError without the instructions."""

    name = "vnni"

    def __init__(self) -> None:
        if not is_supported():
            raise RuntimeError("the processor has no AVX-512 VNNI")

    def prepare(self, queries: IntegerMatrix, min_scores: MinScores, factor: int) -> QueryBlock:
        """Return the int8 queries (q, stride) in the layout that this engine's scan reads."""
        rows = np.ascontiguousarray(queries).view(np.uint8) ^ np.uint8(0x80)
        min_scores = np.ascontiguousarray(min_scores, dtype=np.int64)
        panels, limits = _NO_PANELS, _ALL_RECORDS
        if len(rows) > MAX_SINGLE_QUERIES:
            limits = compute_sum_limits(min_scores, factor, LANES)
            panels = allocate_aligned(len(limits) * rows.shape[1])
            _pack_panels(rows, len(limits), panels)
        packed = PackedQueries(rows, min_scores, factor, panels, limits)
        return QueryBlock(min_scores, factor, packed)

    def scan(
        self,
        block: QueryBlock,
        records: ScanRecords,
        hit_budget: HitBudget,
        indices: Ints32 | None = None,
    ) -> Hits:
        """Return the hits of the prepared queries in `block` among `records`, ordered by query.

        They are counts (q,), row ids (hits,) and similarities (hits,). `indices`, int32 (k,):
        indices of the records to compare; None for all. Reduces `hit_budget`, the number of hits
        that may still be kept; raises TooManyHits if there are more.
        """
        n_rows = len(records.row_ids) if indices is None else len(indices)
        indices = _ALL_RECORDS if indices is None else indices
        check_memory(block.packed.rows.shape[1], records, indices)
        arrays = (records.features, records.offsets, records.row_ids)
        hits = self._find_hits(block, CompiledRecords(*arrays, indices, n_rows), hit_budget)
        hit_budget.check()
        ordered_hits: Hits = order_by_query(hits, len(block.min_scores))
        return ordered_hits

    def write_similarities(
        self,
        queries: IntegerMatrix,
        factor: int,
        lists: NeighbourLists,
        records: ScanRecords,
        first_row: int,
    ) -> None:
        """Write ``factor * <x, q> - offset(x)`` to `lists` for the pairs with one of `records`.

        The arguments are those of :meth:`ScanEngine.write_similarities`.
        """
        rows = np.ascontiguousarray(queries).view(np.uint8) ^ np.uint8(0x80)
        check_memory(rows.shape[1], records, _ALL_RECORDS)
        arrays = (lists.starts, lists.rows, lists.similarities)
        _write_similarities(
            records.features,
            records.offsets,
            first_row,
            len(records.row_ids),
            rows,
            factor,
            *arrays,
        )

    def _find_hits(
        self, block: QueryBlock, records: CompiledRecords, hit_budget: HitBudget
    ) -> Ints32:
        """Return hits (query, row id, similarity), int32 (hits, 3), and reduce `hit_budget`.

        `block`: the prepared queries.
        """
        is_small = len(block.min_scores) <= MAX_SINGLE_QUERIES
        find_hits = _scan_one_query_at_a_time if is_small else _scan_panels
        hits: Ints32 = find_hits(records, block.packed, hit_budget.remaining)
        return hits


def check_memory(stride: int, records: ScanRecords, indices: Ints32) -> None:
    """Raise InvalidInput unless every address computed from the arguments lies in an array.

    `stride`: number of columns of the prepared queries. `records`: arrays of the records.
    `indices`, int32: indices of the records to scan, empty for all.
    """
    features, size = records.features, len(records.row_ids)
    fits = (
        features.dtype == np.int8
        and features.flags.c_contiguous
        and features.shape == (size, stride)
        and len(records.offsets) == size
        and (len(indices) == 0 or (indices.min() >= 0 and indices.max() < size))
    )
    if not fits:
        raise InvalidInput(
            "The 'records' must be C-contiguous int8 rows as wide as the block was prepared for, "
            "with an offset and a name each, and those chosen must be among them."
        )


def compute_sum_limits(min_scores: MinScores, factor: int, group_size: int) -> Ints32:
    """Return ceil(min_score / factor) of each query, int32, for whole groups of `group_size`.

    They are padded with the largest int32, which no sum reaches.
    """
    limits = allocate_aligned(-(-len(min_scores) // group_size) * group_size * 4).view(np.int32)
    limits[:] = _INT32_MAX
    limits[: len(min_scores)] = np.clip(-(-min_scores // factor), -_INT32_MAX - 1, _INT32_MAX)
    return np.asarray(limits)


@compiled
def _pack_panels(rows, n_padded, panels):  # type: ignore[no-untyped-def]
    """Copy the queries to the layout of `panels`: the same 4 features of 64 queries are adjacent.

    `rows`, uint8 (q, stride): queries with 128 already added. `n_padded`: q, rounded up to a
    multiple of 16. `panels`, uint8 (n_padded * stride,): zeros on entry.
    """
    dwords = rows.shape[1] // 4
    for j in range(len(rows)):
        first = j // _PANEL_QUERIES * _PANEL_QUERIES
        width = min(_PANEL_QUERIES, n_padded - first)
        base = first * 4 * dwords + 4 * (j - first)
        for k in range(dwords):
            for byte in range(4):
                panels[base + 4 * width * k + byte] = rows[j, 4 * k + byte]


@compiled
def _scan_one_query_at_a_time(records, queries, remaining_hits):  # type: ignore[no-untyped-def]
    """Return the hits of a few queries, int32 (hits, 3), multiplying one query at a time."""
    excess = _compute_excess(queries.rows)
    hits = np.empty((1024, 3), dtype=np.int32)
    first, n_hits = np.int64(0), np.int64(0)  # literals would have every callee compiled twice
    while True:
        first, n_hits = _append_single_hits(records, queries, excess, hits, first, n_hits)
        if n_hits > remaining_hits[0]:
            remaining_hits[0] = -1
            return hits[:0]
        if first == records.n_rows:
            remaining_hits[0] -= n_hits
            return hits[:n_hits]
        hits = enlarge_hits(hits, n_hits)


@compiled
def _compute_excess(rows):  # type: ignore[no-untyped-def]
    """Return the excess of :func:`shifted_dot` over the product, int64 (q,), for packed `rows`."""
    excess = np.empty(len(rows), dtype=np.int64)
    for j in range(len(rows)):
        excess[j] = 128 * (np.int64(rows[j].sum()) - 128 * rows.shape[1])
    return excess


@compiled
def _append_single_hits(records, queries, excess, hits, first, n_hits):  # type: ignore[no-untyped-def]
    """Append the hits of all queries with the records from index `first` on, until `hits` is full.

    Returns the index of the next record to scan, `n_rows` at the end, and the number of hits. The
    caller enlarges the array, because an array that a loop replaces is reference-counted in each
    iteration. `excess`, int64 (q,): result of :func:`_compute_excess`.
    """
    features, offsets, row_ids, indices, n_rows = records
    rows, min_scores, factor = queries.rows, queries.min_scores, queries.factor
    width = features.shape[1]
    features_address, queries_address = features.ctypes.data, rows.ctypes.data
    max_hits = len(hits) - len(min_scores)
    for i in range(first, n_rows):
        if n_hits > max_hits:
            return i, n_hits
        row = indices[i] if len(indices) else i
        record = features_address + row * width
        for j in range(len(min_scores)):
            # A sum of bytes may wrap around; the product itself fits into int32.
            shifted = shifted_dot(record, queries_address + j * width, width)
            product = np.int32(np.int64(shifted) - excess[j])
            similarity = np.int64(product) * factor - offsets[row]
            if similarity >= min_scores[j]:
                hits[n_hits, 0], hits[n_hits, 1], hits[n_hits, 2] = j, row_ids[row], similarity
                n_hits += 1
    return n_rows, n_hits


@compiled
def _write_similarities(  # type: ignore[no-untyped-def]
    features, offsets, first_row, n_records, queries, factor, starts, rows, similarities
):
    """Write ``factor * <x, q> - offset(x)`` of the pairs with one of `n_records` records.

    The records of a tile, which stay in the cache of a core, are multiplied with all their queries
    before the next tile is read. `features`, `offsets`: of the records. `first_row`: row of the
    first one. `queries`, uint8 (q, stride): integer features plus 128. The pairs of query j are
    ``starts[j]`` to ``starts[j + 1] - 1``; `rows` and `similarities`, int32 (pairs,), are the row
    of each pair's record and the result.
    """
    width = features.shape[1]
    excess = _compute_excess(queries)
    next_pair = starts[:-1].copy()
    tile_size = max(1, _CACHED_BYTES // max(1, width))
    for tile in range(0, n_records, tile_size):
        tile_stop = min(tile + tile_size, n_records)
        for j in range(len(queries)):
            query_address = queries.ctypes.data + j * width
            pair, stop = next_pair[j], starts[j + 1]
            while pair < stop:
                row = np.int64(rows[pair]) - first_row
                if row >= tile_stop:
                    break
                if row >= 0:
                    # A sum of bytes may wrap around; the product itself fits into int32.
                    shifted = shifted_dot(features.ctypes.data + row * width, query_address, width)
                    product = np.int32(np.int64(shifted) - excess[j])
                    similarities[pair] = np.int64(product) * factor - offsets[row]
                pair += 1
            next_pair[j] = pair


class _RecordTile(NamedTuple):
    """Arrays for the records of a tile, which stay in the cache of a core.

    - `addresses`, int64, `biases`, int32: address and initial sum of each record.
    - `indices`, int64: index of each record.
    """

    addresses: Ints
    biases: Ints32
    indices: Ints


@compiled
def _scan_panels(records, queries, remaining_hits):  # type: ignore[no-untyped-def]
    """Return the hits of many queries, int32 (hits, 3), by products with panels of 64 queries."""
    features, offsets, _, indices, n_rows = records
    width = features.shape[1]
    tile_size = max(PANEL_RECORDS, _CACHED_BYTES // width)
    tile = _RecordTile(
        np.empty(tile_size, dtype=np.int64),
        np.empty(tile_size, dtype=np.int32),
        np.empty(tile_size, dtype=np.int64),
    )
    sums = allocate_aligned(4 * PANEL_RECORDS * _PANEL_QUERIES).view(np.int32)
    hits = np.empty((4096, 3), dtype=np.int32)
    n_hits = np.int64(0)
    for first in range(0, n_rows, tile_size):
        count = min(tile_size, n_rows - first)
        n_hits_before = n_hits
        for i in range(count):
            index = indices[first + i] if len(indices) else first + i
            address = features.ctypes.data + index * width
            total = np.int64(sum_bytes(address, width))
            # Queries have 128 added, so 128 sum(x) is subtracted before the sums begin.
            tile.biases[i] = np.int32(-128 * total - offsets[index] // queries.factor)
            tile.addresses[i] = address
            tile.indices[i] = index
        for query in range(0, len(queries.limits), _PANEL_QUERIES):
            hits, n_hits = _append_panel_hits(
                records, queries, tile, count, query, sums, hits, n_hits
            )
        remaining_hits[0] -= n_hits - n_hits_before
        if remaining_hits[0] < 0:
            remaining_hits[0] = -1
            return hits[:0]
    return hits[:n_hits]


@compiled
def _append_panel_hits(records, queries, tile, count, first_query, sums, hits, n_hits):  # type: ignore[no-untyped-def]
    """Append the hits of `count` records of a `tile` with the panel that begins at `first_query`.

    Returns `hits`, possibly in a larger array, and the number of hits. `sums`, int32
    (PANEL_RECORDS * 64,): scratch for the sums of a group of records.
    """
    offsets, row_ids, width = records.offsets, records.row_ids, records.features.shape[1]
    limits, min_scores, factor = queries.limits, queries.min_scores, queries.factor
    n_query_vectors = min(4, (len(limits) - first_query) // LANES)
    addresses, biases = tile.addresses.ctypes.data, tile.biases.ctypes.data
    panel = queries.panels.ctypes.data + first_query * width
    panel_limits, panel_sums = limits.ctypes.data + 4 * first_query, sums.ctypes.data
    n_dwords = width // 4
    for i in range(0, count, PANEL_RECORDS):
        # The products of a short last group repeat its last record, and are ignored.
        group, starts, size = addresses + 8 * i, biases + 4 * i, count - i
        if n_query_vectors == 4:
            masks = panel4(group, starts, size, panel, n_dwords, panel_limits, panel_sums)
        elif n_query_vectors == 3:
            masks = panel3(group, starts, size, panel, n_dwords, panel_limits, panel_sums)
        elif n_query_vectors == 2:
            masks = panel2(group, starts, size, panel, n_dwords, panel_limits, panel_sums)
        else:
            masks = panel1(group, starts, size, panel, n_dwords, panel_limits, panel_sums)
        # One test for six records: most groups have no hit.
        if not (masks[0] | masks[1] | masks[2] | masks[3] | masks[4] | masks[5]):
            continue
        # The array is enlarged before the group, not at each hit.
        if n_hits + PANEL_RECORDS * _PANEL_QUERIES > len(hits):
            hits = enlarge_hits(hits, n_hits)
        for k in range(min(PANEL_RECORDS, count - i)):
            row = tile.indices[i + k]
            remainder = offsets[row] % factor
            mask = masks[k]
            while mask:
                j = lowest_bit(mask)
                mask &= mask - np.uint64(1)
                similarity = np.int64(sums[k * n_query_vectors * LANES + j]) * factor - remainder
                if similarity >= min_scores[first_query + j]:
                    hits[n_hits, 0], hits[n_hits, 1], hits[n_hits, 2] = (
                        first_query + j,
                        row_ids[row],
                        similarity,
                    )
                    n_hits += 1
    return hits, n_hits


@compiled
def enlarge_hits(hits, n_hits):  # type: ignore[no-untyped-def]
    """Return a larger copy of `hits`: the first `n_hits`, and space for a whole panel product."""
    larger = np.empty((2 * len(hits) + PANEL_RECORDS * _PANEL_QUERIES, 3), dtype=np.int32)
    for hit in range(n_hits):
        for column in range(3):
            larger[hit, column] = hits[hit, column]
    return larger
