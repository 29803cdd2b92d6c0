"""The few instructions that Python has no word for, as LLVM knows them; x86-64 with AVX-512 VNNI.

``vpdpbusd`` multiplies 64 unsigned bytes with 64 signed ones and adds each four products to one of
16 int32 sums, without saturation: exact as long as the final sum fits, since int32 wraps around.

These take raw addresses. Only :mod:`vicinal.neighbours.engines._vnni` calls them, which sees to it
that every address they read or write lies in an array that it holds.
"""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import binding, ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from vicinal.compiled import compiled

ROWS = 6  # records that a panel holds in registers: with 64 queries, 24 of 32 registers are sums
LANES = 16  # queries in a vector of int32 sums

NEEDED = ("avx512f", "avx512bw", "avx512vl", "avx512vnni")

# Bytes before a record that are fetched while it is multiplied; nearer or further saves less.
_AHEAD = 4096

# numba's own annotations do not fit what its documentation tells to do.
_types: Any = types
_cgutils: Any = cgutils
_intrinsic: Any = intrinsic

# The upper bit of each of four bytes: signed bytes become those with 128 added, and back.
_FLIP = -0x7F7F7F80

_I1, _I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
_SUMS = ir.VectorType(_I32, LANES)
_BYTES = ir.VectorType(_I8, 64)
_MASK = ir.VectorType(_I1, 64)


def supported() -> bool:
    """Tell whether this processor has the instructions, and numba compiles for this processor."""
    # With another CPU named, numba would compile these instructions for one that lacks them.
    config: Any = numba.config
    if config.CPU_NAME is not None or config.CPU_FEATURES is not None:
        return False
    features = binding.get_host_cpu_features()
    return all(features.get(name, False) for name in NEEDED)


@compiled
def aligned(size):  # type: ignore[no-untyped-def]
    """Return `size` bytes of zeros that start at a multiple of 64, uint8."""
    # A register is as long as a line of the cache: aligned, it is read from one line, not from two,
    # and the aligned loads and stores below fault anywhere else.
    spare = np.zeros(size + 64, dtype=np.uint8)
    first = -spare.ctypes.data % 64
    return spare[first : first + size]


def _call(builder: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(_cgutils.get_or_insert_function(builder.module, kind, name), arguments)


def _dot(builder: Any, sums: Any, unsigned: Any, signed: Any) -> Any:
    return _call(builder, "llvm.x86.avx512.vpdpbusd.512", _SUMS, [sums, unsigned, signed])


def _spread(builder: Any, number: Any) -> Any:
    empty = ir.Constant(_SUMS, ir.Undefined)
    first = builder.insert_element(empty, number, ir.Constant(_I32, 0))
    return builder.shuffle_vector(first, empty, ir.Constant(_SUMS, [0] * LANES))


def _load(builder: Any, pointer: Any, index: Any, align: int) -> Any:
    loaded = builder.load(builder.gep(pointer, [index]))
    loaded.align = align
    return loaded


def _panel(columns: int) -> Any:
    """Return the intrinsic that multiplies ROWS records with 16 * `columns` queries."""

    @_intrinsic
    def panel(typing, rows, biases, queries, steps, limits, products):  # type: ignore[no-untyped-def] # noqa: ARG001
        """Return a mask for each record: bit j is set if its product with query j reaches limit j.

        `rows`, `queries`, `limits` and `products` are addresses: of each record's `steps` dwords;
        of the packed queries; of an int32 for each query; of int32 (ROWS, queries) for the results
        of records with any bit set. `biases` are what the sums start from.
        """
        signature = _types.UniTuple(types.uint64, ROWS)(
            _types.UniTuple(types.intp, ROWS), _types.UniTuple(types.int32, ROWS),
            types.intp, types.intp, types.intp, types.intp,
        )  # fmt: skip

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            """Emit the code of one call: sums over the steps, then masks of what to keep."""
            rows, biases, queries, steps, limits, products = arguments
            starts = [
                _spread(builder, builder.extract_value(biases, i))
                for i in range(ROWS)
                for _ in range(columns)
            ]
            pointers = [
                builder.inttoptr(builder.extract_value(rows, i), _I32.as_pointer())
                for i in range(ROWS)
            ]
            packed = builder.inttoptr(queries, _SUMS.as_pointer())
            stride = ir.Constant(_I64, columns)
            sums = dword_sums(builder, pointers, packed, stride, steps, starts, _dot)
            masks = _keep(builder, sums, limits, products, columns)
            return context.make_tuple(builder, signature.return_type, masks)

        return signature, generate

    return panel


def dword_sums(
    builder: Any,
    rows: list[Any],
    packed: Any,
    stride: Any,
    steps: Any,
    starts: list[Any],
    dot: Callable[..., Any],
) -> list[Any]:
    """Emit a loop over the dwords of some rows that meet packed columns; return sums, row by row.

    `rows` point to each row's `steps` dwords, `packed` to the columns' first dwords, the next ones
    `stride` vectors further on. `starts` are what the sums start from, a vector of columns after
    the other; ``dot(builder, sums, columns, row)`` emits the instruction.
    """
    columns = len(starts) // len(rows)
    before = builder.block
    loop, after = builder.append_basic_block("dwords"), builder.append_basic_block("done")
    builder.branch(loop)
    builder.position_at_end(loop)
    step = builder.phi(_I64)
    # Every sum is a phi of the loop: LLVM keeps them in registers, and no step touches memory.
    sums = [builder.phi(_SUMS) for _ in starts]
    first = builder.mul(step, stride)
    right = [
        _load(builder, packed, builder.add(first, ir.Constant(_I64, c)), 64) for c in range(columns)
    ]
    products = []
    for i, pointer in enumerate(rows):
        # One dword of a row is spread over the lanes: rows need no packing, and lie where they lie.
        row = _spread(builder, _load(builder, pointer, step, 1))
        products += [dot(builder, sums[i * columns + c], right[c], row) for c in range(columns)]
    following = builder.add(step, ir.Constant(_I64, 1))
    builder.cbranch(builder.icmp_signed("<", following, steps), loop, after)
    for phi, start, new in zip(
        [step, *sums], [ir.Constant(_I64, 0), *starts], [following, *products], strict=True
    ):
        phi.add_incoming(start, before)
        phi.add_incoming(new, loop)
    builder.position_at_end(after)
    return products


def _keep(builder: Any, sums: list[Any], limits: Any, products: Any, columns: int) -> list[Any]:
    """Emit the comparison with the limits; store the products of records that reach any."""
    limits = builder.inttoptr(limits, _SUMS.as_pointer())
    products = builder.inttoptr(products, _SUMS.as_pointer())
    bars = [_load(builder, limits, ir.Constant(_I64, c), 64) for c in range(columns)]
    masks = []
    for first in range(0, len(sums), columns):
        mask = ir.Constant(_I64, 0)
        for c in range(columns):
            reached = builder.icmp_signed(">=", sums[first + c], bars[c])
            bits = builder.zext(builder.bitcast(reached, _I16), _I64)
            mask = builder.or_(mask, builder.shl(bits, ir.Constant(_I64, LANES * c)))
        masks.append(mask)
        # Few records reach any limit: the others never leave the registers.
        with builder.if_then(builder.icmp_unsigned("!=", mask, ir.Constant(_I64, 0))):
            for c in range(columns):
                place = builder.gep(products, [ir.Constant(_I64, first + c)])
                builder.store(sums[first + c], place).align = 64
    return masks


panel1, panel2, panel3, panel4 = (_panel(columns) for columns in (1, 2, 3, 4))


@_intrinsic
def shifted_dot(typing, record, query, size):  # type: ignore[no-untyped-def] # noqa: ARG001
    """Return sum((x + 128) q), int32, of a record's `size` bytes x and a query's q.

    The first two are addresses; the query is stored with 128 added. Nothing beyond `size` bytes is
    read. So what comes on top of the product, 128 sum(q), is the same for all records.
    """
    signature = _types.int32(_types.intp, _types.intp, _types.intp)
    flip = ir.Constant(_SUMS, [_FLIP] * LANES)

    def step(builder: Any, total: Any, record: Any, query: Any) -> Any:
        """Emit the product of 64 bytes, which needs one side unsigned."""
        return _dot(builder, total, builder.xor(record, flip), builder.xor(query, flip))

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return _long_sum(builder, step, arguments[:2], arguments[2], [0, -128], _AHEAD)

    return signature, generate


@_intrinsic
def byte_sum(typing, record, size):  # type: ignore[no-untyped-def] # noqa: ARG001
    """Return the sum of a record's `size` signed bytes, int32; nothing beyond them is read."""
    signature = _types.int32(_types.intp, _types.intp)
    ones = ir.Constant(_SUMS, [0x01010101] * LANES)

    def step(builder: Any, total: Any, record: Any) -> Any:
        return _dot(builder, total, ones, record)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return _long_sum(builder, step, arguments[:1], arguments[1], [0])

    return signature, generate


def _long_sum(
    builder: Any, step: Any, addresses: list[Any], size: Any, missing: list[int], ahead: int = 0
) -> Any:
    """Emit a loop over 64 bytes at a time, a masked step for the rest, and one reduction.

    `missing` are the bytes that each side has in place of those beyond `size`. Of the first side,
    what stands `ahead` bytes further is fetched into the cache.
    """
    full = builder.and_(size, ir.Constant(_I64, -64))
    before = builder.block
    check, loop, after = (builder.append_basic_block(name) for name in ("check", "bytes", "rest"))
    builder.branch(check)
    builder.position_at_end(check)
    at, total = builder.phi(_I64), builder.phi(_SUMS)
    builder.cbranch(builder.icmp_signed("<", at, full), loop, after)
    builder.position_at_end(loop)
    if ahead:
        # A hint changes nothing, wherever it points: also beyond the last record.
        place = builder.add(builder.add(addresses[0], at), ir.Constant(_I64, ahead))
        reading, all_caches, data = (ir.Constant(_I32, word) for word in (0, 3, 1))
        hinted = [builder.inttoptr(place, _I8.as_pointer()), reading, all_caches, data]
        _call(builder, "llvm.prefetch.p0", ir.VoidType(), hinted)
    stepped = step(builder, total, *(_load_register(builder, each, at) for each in addresses))
    following = builder.add(at, ir.Constant(_I64, 64))
    builder.branch(check)
    for phi, start, new in (
        (at, ir.Constant(_I64, 0), following),
        (total, ir.Constant(_SUMS, [0] * LANES), stepped),
    ):
        phi.add_incoming(start, before)
        phi.add_incoming(new, loop)
    builder.position_at_end(after)
    # The last bytes are read under a mask: beyond them another record begins, or no memory at all.
    one = ir.Constant(_I64, 1)
    mask = builder.sub(builder.shl(one, builder.sub(size, full)), one)
    mask = builder.bitcast(mask, _MASK)
    further = [
        _masked(builder, each, full, mask, byte)
        for each, byte in zip(addresses, missing, strict=True)
    ]
    return _call(builder, "llvm.vector.reduce.add.v16i32", _I32, [step(builder, total, *further)])


def _load_register(builder: Any, address: Any, at: Any) -> Any:
    loaded = builder.load(builder.inttoptr(builder.add(address, at), _SUMS.as_pointer()))
    loaded.align = 1
    return loaded


def _masked(builder: Any, address: Any, at: Any, mask: Any, missing: int) -> Any:
    pointer = builder.inttoptr(builder.add(address, at), _BYTES.as_pointer())
    loaded = _call(
        builder, "llvm.masked.load.v64i8.p0", _BYTES,
        [pointer, ir.Constant(_I32, 1), mask, ir.Constant(_BYTES, [missing] * 64)],
    )  # fmt: skip
    return builder.bitcast(loaded, _SUMS)


@_intrinsic
def lowest_bit(typing, word):  # type: ignore[no-untyped-def] # noqa: ARG001
    """Return the position of the lowest set bit of a uint64 that is not 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.cttz(arguments[0], ir.Constant(_I1, 1))

    return types.int64(types.uint64), generate
