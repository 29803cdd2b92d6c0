"""The compiled int8 engine on AMX: products of 32 records with 32 queries in tile registers.

The sums are compared with the thresholds as soon as they are finished, and only records with a hit
are kept; the n x q matrix of products never exists. Blocks of a few queries are left to
:mod:`vicinal.neighbours.engines._vnni`, which processes them at the speed of memory.

Sums start from -floor(offset(x) / factor), so that a finished sum s satisfies

    factor * <x, q> - offset(x) = factor * s - offset(x) % factor.

Limits are ceil(min_score / factor): they exclude no hit, and each pair that reaches one is checked
exactly.

A *hit* is a pair of query and record with factor * <x, q> - offset(x) >= min_score.

Arguments of the functions: `features`, int8 (n, stride), `offsets`, `row_ids`, int32 (n,), are the
integer features, offsets and identifying numbers of the records; `min_scores`, int64 (q,), are the
queries' minimum scores, `factor` the kernel's product factor, and `tiles`, `limits` those of
:class:`QueryTiles`. `indices`, int32 (n_rows,), are the records to scan; empty for the first
n_rows. A *tile of records* is a range of them that stays in cache: `rows`, `biases` and
`remainders`, (rows of a tile,), are their indices, initial sums and offsets modulo `factor`. The
first `n_hits` rows of `hits`, int32 (capacity, 3), are hits (query, row id, similarity). The
argument `typing` of an intrinsic is numba's typing context.

The instructions are written as LLVM text. A processor with AMX has eight tile registers of 16 rows
of 64 bytes. ``tdpbssd`` multiplies a tile of 16 records (64 features each) with a tile of 16
queries and adds to a tile of 16 x 16 int32 sums, exactly: int32 wraps around, and every product of
integer features fits. Four tiles hold the sums of 32 records with 32 queries, two hold records, two
hold queries. Every address that the code reads or writes lies in an array that its caller holds.

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18 (AMX).
"""

import ctypes
import os
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import binding, ir

from vicinal.arrays import Ints32
from vicinal.compiled import compiled
from vicinal.neighbours.engines._intrinsics import _intrinsic, _types, allocate_aligned, lowest_bit
from vicinal.neighbours.engines._intrinsics import is_supported as is_vnni_supported
from vicinal.neighbours.engines._vnni import (
    CompiledRecords,
    VNNIEngine,
    compute_sum_limits,
    enlarge_hits,
)
from vicinal.neighbours.kernels import IntegerMatrix
from vicinal.neighbours.scan import HitBudget, MinScores, QueryBlock

# Records, and queries, of one product.
SIDE = 32

# Features of a step; rows are padded with zeros to a multiple of it.
STEP = 64

# Numbers (int32) stored for a record that reaches a limit: its index, the mask, its 32 sums.
MATCH_LENGTH = 2 + SIDE

# System call, request and feature number that permit tile registers on Linux, x86-64.
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


def _is_supported() -> bool:
    """Return whether the processor has AMX for int8 and Linux lets this process use it."""
    features = binding.get_host_cpu_features()
    return (
        is_vnni_supported()
        and all(features.get(name, False) for name in ("amx-tile", "amx-int8"))
        and os.uname().sysname == "Linux"
        and ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) == 0
    )


def make_tile_configuration() -> npt.NDArray[np.uint8]:
    """Return the 64 bytes that configure all eight tiles with 16 rows of 64 bytes."""
    shapes = np.zeros(64, dtype=np.uint8)
    shapes[0] = 1  # palette 1: eight tiles of 1 KiB
    shapes[16:32].view(np.uint16)[:] = 64
    shapes[48:56] = 16
    return shapes


_TEXT = """
declare void @llvm.x86.ldtilecfg(ptr)
declare void @llvm.x86.tilerelease()
declare void @llvm.x86.tilezero(i8 immarg)
declare void @llvm.x86.tileloadd64(i8 immarg, ptr, i64)
declare void @llvm.x86.tilestored64(i8 immarg, ptr, i64)
declare void @llvm.x86.tdpbssd(i8 immarg, i8 immarg, i8 immarg)

; records  int8 (32 groups, stride), `steps` x 64 bytes of each row are read
; queries  int8, `steps` x 2 tiles of 16 dwords x 16 queries x 4 bytes
; limits   int32 (32); biases int32 (32 groups): added to the sums of each record
; sums     int32 (32, 32), output; found int32 (32 groups, 34), output
; returns  the number of rows of `found` written: index, mask of limits reached, sums with bias
define i64 @scan(ptr %records, i64 %stride, i64 %groups, i64 %steps, ptr %queries, ptr %limits,
                 ptr %biases, ptr %sums, ptr %found, ptr %shapes) nounwind {
entry:
  call void @llvm.x86.ldtilecfg(ptr %shapes)
  %half = mul i64 %stride, 16
  %limits1 = getelementptr i8, ptr %limits, i64 64
  %bar0 = load <16 x i32>, ptr %limits, align 4
  %bar1 = load <16 x i32>, ptr %limits1, align 4
  %sums1 = getelementptr i8, ptr %sums, i64 64
  %sums2 = getelementptr i8, ptr %sums, i64 2048
  %sums3 = getelementptr i8, ptr %sums, i64 2112
  br label %group

group:
  %g = phi i64 [0, %entry], [%g.next, %group.end]
  %at = phi i64 [0, %entry], [%at.next, %group.end]
  %first = mul i64 %g, 32
  %skip = mul i64 %first, %stride
  %upper = getelementptr i8, ptr %records, i64 %skip
  %lower = getelementptr i8, ptr %upper, i64 %half
  call void @llvm.x86.tilezero(i8 0)
  call void @llvm.x86.tilezero(i8 1)
  call void @llvm.x86.tilezero(i8 2)
  call void @llvm.x86.tilezero(i8 3)
  br label %step

step:
  %k = phi i64 [0, %group], [%k.next, %step]
  %byte = mul i64 %k, 64
  %a0 = getelementptr i8, ptr %upper, i64 %byte
  %a1 = getelementptr i8, ptr %lower, i64 %byte
  %tile = mul i64 %k, 2048
  %b0 = getelementptr i8, ptr %queries, i64 %tile
  %b1 = getelementptr i8, ptr %b0, i64 1024
  call void @llvm.x86.tileloadd64(i8 4, ptr %a0, i64 %stride)
  call void @llvm.x86.tileloadd64(i8 6, ptr %b0, i64 64)
  call void @llvm.x86.tileloadd64(i8 7, ptr %b1, i64 64)
  call void @llvm.x86.tileloadd64(i8 5, ptr %a1, i64 %stride)
  call void @llvm.x86.tdpbssd(i8 0, i8 4, i8 6)
  call void @llvm.x86.tdpbssd(i8 1, i8 4, i8 7)
  call void @llvm.x86.tdpbssd(i8 2, i8 5, i8 6)
  call void @llvm.x86.tdpbssd(i8 3, i8 5, i8 7)
  %k.next = add i64 %k, 1
  %k.more = icmp slt i64 %k.next, %steps
  br i1 %k.more, label %step, label %store

store:
  call void @llvm.x86.tilestored64(i8 0, ptr %sums, i64 128)
  call void @llvm.x86.tilestored64(i8 1, ptr %sums1, i64 128)
  call void @llvm.x86.tilestored64(i8 2, ptr %sums2, i64 128)
  call void @llvm.x86.tilestored64(i8 3, ptr %sums3, i64 128)
  br label %row

row:
  %r = phi i64 [0, %store], [%r.next, %row]
  %at.row = phi i64 [%at, %store], [%at.next, %row]
  %position = add i64 %first, %r
  %bias.place = getelementptr i32, ptr %biases, i64 %position
  %bias = load i32, ptr %bias.place, align 4
  %bias.first = insertelement <16 x i32> undef, i32 %bias, i32 0
  %spread = shufflevector <16 x i32> %bias.first, <16 x i32> undef, <16 x i32> zeroinitializer
  %row.byte = mul i64 %r, 128
  %sum.place0 = getelementptr i8, ptr %sums, i64 %row.byte
  %sum.place1 = getelementptr i8, ptr %sum.place0, i64 64
  %raw0 = load <16 x i32>, ptr %sum.place0, align 4
  %raw1 = load <16 x i32>, ptr %sum.place1, align 4
  %sum0 = add <16 x i32> %raw0, %spread
  %sum1 = add <16 x i32> %raw1, %spread
  %reached0 = icmp sge <16 x i32> %sum0, %bar0
  %reached1 = icmp sge <16 x i32> %sum1, %bar1
  %bits0 = bitcast <16 x i1> %reached0 to i16
  %bits1 = bitcast <16 x i1> %reached1 to i16
  %low = zext i16 %bits0 to i32
  %wide = zext i16 %bits1 to i32
  %high = shl i32 %wide, 16
  %mask = or i32 %low, %high
  %place = getelementptr [34 x i32], ptr %found, i64 %at.row
  %mask.place = getelementptr i32, ptr %place, i64 1
  %kept0 = getelementptr i32, ptr %place, i64 2
  %kept1 = getelementptr i32, ptr %place, i64 18
  %name = trunc i64 %position to i32
  store i32 %name, ptr %place, align 4
  store i32 %mask, ptr %mask.place, align 4
  store <16 x i32> %sum0, ptr %kept0, align 4
  store <16 x i32> %sum1, ptr %kept1, align 4
  %any = icmp ne i32 %mask, 0
  %one = zext i1 %any to i64
  %at.next = add i64 %at.row, %one
  %r.next = add i64 %r, 1
  %r.more = icmp slt i64 %r.next, 32
  br i1 %r.more, label %row, label %group.end

group.end:
  %g.next = add i64 %g, 1
  %g.more = icmp slt i64 %g.next, %groups
  br i1 %g.more, label %group, label %done

done:
  call void @llvm.x86.tilerelease()
  ret i64 %at.next
}
"""


@cache
def _compile_text() -> Any:
    """Return the LLVM engine that owns the machine code of the text; takes about 15 ms."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target_machine = binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten(), opt=2
    )
    module = binding.parse_assembly(_TEXT)
    module.verify()
    engine = binding.create_mcjit_compiler(module, target_machine)
    engine.finalize_object()
    return engine


@_intrinsic
def scan_tiles(typing, address, arguments):  # type: ignore[no-untyped-def] # noqa: ARG001
    """Call the function ``scan`` of the LLVM text at `address`; return the number of matches.

    `arguments`: tuple of ten int64, those of ``scan``, which the text describes.

    The address is an argument, not a constant, so that compiled callers can be cached on disk.
    """
    signature = _types.int64(_types.int64, _types.UniTuple(_types.int64, 10))

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        """Emit the call of the function at the address."""
        address, values = arguments
        int64 = ir.IntType(64)
        function_type = ir.FunctionType(int64, [int64] * 10)
        function = builder.inttoptr(address, function_type.as_pointer())
        return builder.call(function, [builder.extract_value(values, i) for i in range(10)])

    return signature, generate


# Up to this many queries the vnni engine is as fast, because tiles would be mostly empty.
MAX_VECTOR_QUERIES = 8
# Bytes of records that stay in the cache of a core while all queries are multiplied.
_CACHED_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class QueryTiles:
    """Queries in the layout of the tile registers.

    - `rows`, int8 (q, stride): the queries.
    - `tiles`, int8 (groups, steps, 2, 16, 16, 4): for each group of 32 queries and each step of 64
      features, the axes are half of the group, dword, query, and byte (feature).
    - `limits`, int32 (groups * 32,): ceil(min_score / factor), or the largest int32 for padding.
    """

    rows: npt.NDArray[np.int8]
    tiles: npt.NDArray[np.int8]
    limits: Ints32


class AMXEngine(VNNIEngine):
    """Scans int8 records of any width; RuntimeError without the instructions."""

    name = "amx"

    def __init__(self) -> None:
        if not _is_supported():
            raise RuntimeError("the processor has no AMX for int8")
        # Of the compiled function ``scan``, valid as long as this process lives.
        self._address = int(_compile_text().get_function_address("scan"))
        self._shapes = make_tile_configuration()

    def prepare(self, queries: IntegerMatrix, min_scores: MinScores, factor: int) -> QueryBlock:
        """Return the int8 queries (q, stride) in the layout that this engine's scan reads."""
        if len(queries) <= MAX_VECTOR_QUERIES:
            return super().prepare(queries, min_scores, factor)
        return _pack_query_tiles(queries, min_scores, factor)

    def _find_hits(
        self, block: QueryBlock, records: CompiledRecords, hit_budget: HitBudget
    ) -> Ints32:
        """Return hits (query, row id, similarity), int32 (hits, 3), and reduce `hit_budget`.

        `block`: the prepared queries.
        """
        tiles = block.packed
        if not isinstance(tiles, QueryTiles):
            return super()._find_hits(block, records, hit_budget)
        hits: Ints32 = _scan_tiles(
            *records,
            block.min_scores,
            block.factor,
            tiles.tiles,
            tiles.limits,
            self._shapes,
            self._address,
            hit_budget.remaining,
        )
        return hits


def _pack_query_tiles(
    queries: npt.NDArray[np.int8], min_scores: MinScores, factor: int
) -> QueryBlock:
    """Return a block of int8 queries (q, stride), packed into the layout of tile registers."""
    min_scores = np.ascontiguousarray(min_scores, dtype=np.int64)
    groups = -(-len(queries) // SIDE)
    steps = -(-queries.shape[1] // STEP)
    padded = np.zeros((groups * SIDE, steps * STEP), dtype=np.int8)
    padded[: len(queries), : queries.shape[1]] = queries
    tiles = allocate_aligned(padded.size).view(np.int8).reshape(groups, steps, 2, 16, 16, 4)
    # A tile of queries holds dword after dword, each for all 16 queries: the four features of a
    # dword move together, as one int32.
    dwords = padded.view(np.int32).reshape(groups, 2, 16, steps, 16)
    tiles.view(np.int32)[..., 0] = dwords.transpose(0, 3, 1, 4, 2)
    return QueryBlock(
        min_scores, factor, QueryTiles(queries, tiles, compute_sum_limits(min_scores, factor, SIDE))
    )


@compiled
def _scan_tiles(  # type: ignore[no-untyped-def]
    features,
    offsets,
    row_ids,
    indices,
    n_rows,
    min_scores,
    factor,
    tiles,
    limits,
    shapes,
    address,
    remaining_hits,
):
    """Return the hits of all queries, int32 (hits, 3), multiplying 32 queries at a time.

    `address`, `shapes`: the compiled ``scan`` and its tile configuration. `remaining_hits`, int64
    (1,): the hit budget, reduced by the hits, or -1 once it is exceeded; then no hits are returned.
    """
    width, steps = features.shape[1], tiles.shape[1]
    padded_width = steps * STEP
    tile_size = max(SIDE, _CACHED_BYTES // padded_width // SIDE * SIDE)
    rows = np.empty(tile_size, dtype=np.int64)
    biases, remainders = np.zeros(tile_size, dtype=np.int32), np.zeros(tile_size, dtype=np.int32)
    matches = np.empty((tile_size, MATCH_LENGTH), dtype=np.int32)
    sums = allocate_aligned(4 * SIDE * SIDE)
    copies = allocate_aligned(0)
    hits = np.empty((4096, 3), dtype=np.int32)
    n_hits = np.int64(0)
    for first in range(0, n_rows, tile_size):
        count = min(tile_size, n_rows - first)
        n_hits_before = n_hits
        _write_tile_rows(offsets, indices, first, count, factor, rows, biases, remainders)
        # A step may read on into the next records, which are multiplied with zeros, but not beyond
        # the last record.
        reads_beyond = (
            first + -(-count // SIDE) * SIDE - 1
        ) * width + padded_width > n_rows * width
        records, stride = features.ctypes.data + first * width, width
        if len(indices) or reads_beyond:
            if not len(copies):
                copies = allocate_aligned(tile_size * padded_width)
            _copy_rows(features, rows, count, padded_width, copies)
            records, stride = copies.ctypes.data, padded_width
        for first_query in range(0, len(limits), SIDE):
            n_matches = scan_tiles(
                address,
                (
                    records,
                    stride,
                    -(-count // SIDE),
                    steps,
                    tiles.ctypes.data + first_query * padded_width,
                    limits.ctypes.data + 4 * first_query,
                    biases.ctypes.data,
                    sums.ctypes.data,
                    matches.ctypes.data,
                    shapes.ctypes.data,
                ),
            )
            hits, n_hits = _append_hits(
                matches,
                n_matches,
                count,
                rows,
                remainders,
                row_ids,
                min_scores,
                factor,
                first_query,
                hits,
                n_hits,
            )
        remaining_hits[0] -= n_hits - n_hits_before
        if remaining_hits[0] < 0:
            remaining_hits[0] = -1
            return hits[:0]
    return hits[:n_hits]


@compiled
def _write_tile_rows(offsets, indices, first, count, factor, rows, biases, remainders):  # type: ignore[no-untyped-def]
    """Write `rows`, `biases` and `remainders` of a tile of `count` records.

    `first`: number of the tile's first record among the records to scan.
    """
    for i in range(count):
        rows[i] = indices[first + i] if len(indices) else first + i
        biases[i] = -(offsets[rows[i]] // factor)
        remainders[i] = offsets[rows[i]] + biases[i] * factor


@compiled
def _copy_rows(features, rows, count, padded_width, copies):  # type: ignore[no-untyped-def]
    """Copy the features of the first `count` records of a tile to `copies`.

    `copies`, uint8: a row every `padded_width` bytes; bytes between rows are multiplied with 0.
    """
    width = features.shape[1]
    for i in range(count):
        source, target = features[rows[i]], copies[i * padded_width : i * padded_width + width]
        for j in range(width):
            target[j] = source[j]


@compiled
def _append_hits(  # type: ignore[no-untyped-def]
    matches,
    n_matches,
    count,
    rows,
    remainders,
    row_ids,
    min_scores,
    factor,
    first_query,
    hits,
    n_hits,
):
    """Append the hits of a tile of `count` records with the 32 queries from `first_query` on.

    A match, one of the first `n_matches` rows of `matches`, holds the index of a record in the
    tile, the mask of limits reached, and its 32 sums. Returns `hits`, larger if full, and `n_hits`.
    """
    for match in range(n_matches):
        index = matches[match, 0]
        if index >= count:  # padding of the last group
            return hits, n_hits
        if n_hits + SIDE > len(hits):
            hits = enlarge_hits(hits, n_hits)
        remainder, row_id = remainders[index], row_ids[rows[index]]
        mask = np.uint64(np.uint32(matches[match, 1]))  # bit 31 is a query, not a sign
        while mask:
            j = lowest_bit(mask)
            mask &= mask - np.uint64(1)
            similarity = np.int64(matches[match, 2 + j]) * factor - remainder
            if first_query + j < len(min_scores) and similarity >= min_scores[first_query + j]:
                hits[n_hits, 0], hits[n_hits, 1], hits[n_hits, 2] = (
                    first_query + j,
                    row_id,
                    similarity,
                )
                n_hits += 1
    return hits, n_hits
