"""The compiled int8 engine on AMX: products of 32 records with 32 queries in tile registers.

The sums are compared with the radii as soon as they are finished, and only records that lie inside
any radius are kept. The n x Q matrix exists nowhere. A few queries at a time are left to
:mod:`vicinal.neighbours.engines._vnni`, which goes at the speed of memory.

Sums start from -floor(offset(x) / factor), so that a finished sum s satisfies

    factor * <x, q> - offset(x) = factor * s - offset(x) % factor.

Limits are ceil(floor / factor): no hit is lost by them, and each is checked exactly.

The instructions stand here as LLVM text. A processor with AMX has eight tile registers of 16 rows
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

from vicinal.arrays import Ints, Ints32
from vicinal.compiled import compiled
from vicinal.neighbours.engines._intrinsics import _intrinsic, _types, aligned, lowest_bit
from vicinal.neighbours.engines._intrinsics import supported as vnni_supported
from vicinal.neighbours.engines._vnni import VNNIEngine, roomier, sum_limits
from vicinal.neighbours.kernels import IntegerMatrix
from vicinal.neighbours.scan import Floors, HitBudget, QueryBlock

SIDE = 32  # records, and queries, of one product

# Features that a product takes at once; rows of records and queries are filled up with zeros.
STEP = 64

# Numbers, int32, of a record that reaches any limit: its position, the mask, its 32 sums.
FOUND = 2 + SIDE


# System call, request and number of the tile registers' state on Linux, x86-64.
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


def _supported() -> bool:
    """Tell whether the processor has AMX for int8 and the kernel lets this process use it."""
    features = binding.get_host_cpu_features()
    return (
        vnni_supported()
        and all(features.get(name, False) for name in ("amx-tile", "amx-int8"))
        and os.uname().sysname == "Linux"
        and ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) == 0
    )


def tile_shapes() -> npt.NDArray[np.uint8]:
    """Return the 64 bytes that give all eight tiles 16 rows of 64 bytes."""
    shapes = np.zeros(64, dtype=np.uint8)
    shapes[0] = 1  # the palette
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
; limits   int32 (32); biases int32 (32 groups): what to add to the sums of each record
; sums     int32 (32, 32), to write into; found int32 (32 groups, 34), to write into
; returns  how many rows of `found` are written: position, mask of limits reached, sums with bias
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
def _machine_code() -> Any:
    """Compile the text, in about 15 ms; the result owns the memory that the code lies in."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten(), opt=2
    )
    module = binding.parse_assembly(_TEXT)
    module.verify()
    code = binding.create_mcjit_compiler(module, machine)
    code.finalize_object()
    return code


def scan_address() -> int:
    """Return the address of the compiled ``scan``, valid as long as this process lives."""
    return int(_machine_code().get_function_address("scan"))


@_intrinsic
def scan_tiles(typing, address, arguments):  # type: ignore[no-untyped-def] # noqa: ARG001
    """Call ``scan`` at `address` with ten int64: see the text for what each of them is.

    The address is an argument, not a constant, so that compiled callers can be kept on disk.
    """
    signature = _types.int64(_types.int64, _types.UniTuple(_types.int64, 10))

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        address, values = arguments
        wide = ir.IntType(64)
        kind = ir.FunctionType(wide, [wide] * 10)
        function = builder.inttoptr(address, kind.as_pointer())
        return builder.call(function, [builder.extract_value(values, i) for i in range(10)])

    return signature, generate


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
        if not _supported():
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

    def _hits(self, block: QueryBlock, stored: tuple[Any, ...], allowed: HitBudget) -> Ints32:
        tiles = block.packed
        if not isinstance(tiles, QueryTiles):
            return super()._hits(block, stored, allowed)
        hits: Ints32 = _scan_tiles(
            *stored, block.floors, block.factor, tiles.tiles, tiles.limits, self._shapes,
            self._address, allowed.remaining,
        )  # fmt: skip
        return hits


def _block(rows: npt.NDArray[np.int8], floors: Floors, factor: int) -> QueryBlock:
    floors = np.ascontiguousarray(floors, dtype=np.int64)
    groups, steps = -(-len(rows) // SIDE), -(-rows.shape[1] // STEP)
    wide = np.zeros((groups * SIDE, steps * STEP), dtype=np.int8)
    wide[: len(rows), : rows.shape[1]] = rows
    tiles = aligned(wide.size).view(np.int8).reshape(groups, steps, 2, 16, 16, 4)
    # The instruction reads a tile of queries by four features, query after query: four features of
    # a query move together, as one int32.
    fours = wide.view(np.int32).reshape(groups, 2, 16, steps, 16)
    tiles.view(np.int32)[..., 0] = fours.transpose(0, 3, 1, 4, 2)
    return QueryBlock(floors, factor, QueryTiles(rows, tiles, sum_limits(floors, factor, SIDE)))


@compiled
def _scan_tiles(  # type: ignore[no-untyped-def]
    features, offsets, names, chosen, size, floors, factor, tiles, limits, shapes, address, allowed
):
    """Return hits (query, name, value), cached rows and 32 queries at a time."""
    width, steps = features.shape[1], tiles.shape[1]
    wide = steps * STEP
    tile = max(SIDE, _CACHED // wide // SIDE * SIDE)
    rows = np.empty(tile, dtype=np.int64)
    biases, rests = np.zeros(tile, dtype=np.int32), np.zeros(tile, dtype=np.int32)
    masks = np.empty((tile, FOUND), dtype=np.int32)
    sums = aligned(4 * SIDE * SIDE)
    copies = aligned(0)
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
                copies = aligned(tile * wide)
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
        allowed[0] -= at - before
        if allowed[0] < 0:
            allowed[0] = -1
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
        mask = np.uint64(np.uint32(masks[i, 1]))  # unsigned first: bit 31 is a query, not a sign
        while mask:
            j = lowest_bit(mask)
            mask &= mask - np.uint64(1)
            value = np.int64(masks[i, 2 + j]) * factor - remainder
            if query + j < len(floors) and value >= floors[query + j]:
                hits[at, 0], hits[at, 1], hits[at, 2] = query + j, name, value
                at += 1
    return hits, at
