"""Processor instructions as numba intrinsics: x86-64 with AVX-512 VNNI, emitted as LLVM code.

``vpdpbusd`` multiplies 64 unsigned bytes with 64 signed ones and adds every four adjacent products
to one of 16 int32 sums, without saturation: exact as long as the final sum fits, since int32 wraps
around.

A *dword* is four adjacent bytes, here four features; a *query panel* is up to 64 queries, with the
same dword of all of them adjacent. A *panel product* multiplies a few records with a query panel;
its sums stay in registers. The intrinsics take raw addresses. Their callers in this package ensure
that every address lies in an array that they hold. Functions named
``_emit_...`` append instructions to an LLVM `builder` and return the LLVM value of the result;
their other arguments are LLVM values, unless stated otherwise. The argument `typing` of an
intrinsic is numba's typing context; its nested function ``generate`` emits the code of one call,
from numba's code generation `context`, the `signature` and the LLVM values of the `arguments`.
"""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import binding, ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from vicinal.compiled import compiled

# Number of records of a panel product: with 64 queries, 24 of 32 registers are sums.
PANEL_RECORDS = 6
# Number of int32 sums in a vector register: one for each of 16 queries.
LANES = 16

REQUIRED_FEATURES = ("avx512f", "avx512bw", "avx512vl", "avx512vnni")

# Distance of prefetched records; smaller and larger distances save less time.
_PREFETCH_BYTES = 4096

# The annotations of numba do not match its documentation.
_types: Any = types
_cgutils: Any = cgutils
_intrinsic: Any = intrinsic

# The sign bit of each of four bytes: flipping it adds 128 to signed bytes, and subtracts it again.
_FLIP_SIGNS = -0x7F7F7F80

_I1, _I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
_SUMS = ir.VectorType(_I32, LANES)
_BYTES = ir.VectorType(_I8, 64)
_MASK = ir.VectorType(_I1, 64)


def is_supported() -> bool:
    """Return whether this processor has the instructions and numba compiles for it."""
    # With another CPU named, numba would compile these instructions for one that lacks them.
    config: Any = numba.config
    if config.CPU_NAME is not None or config.CPU_FEATURES is not None:
        return False
    features = binding.get_host_cpu_features()
    return all(features.get(name, False) for name in REQUIRED_FEATURES)


@compiled
def allocate_aligned(size):  # type: ignore[no-untyped-def]
    """Return `size` zero bytes, uint8, that start at a multiple of 64."""
    # A register is as long as a cache line: an aligned one is read from one line, not from two, and
    # the aligned loads and stores below fault at other addresses.
    padded = np.zeros(size + 64, dtype=np.uint8)
    first = -padded.ctypes.data % 64
    return padded[first : first + size]


def _emit_call(builder: Any, name: str, result_type: Any, arguments: list[Any]) -> Any:
    """Emit a call of the LLVM function `name`; `result_type`, `arguments`: LLVM type and values."""
    function_type = ir.FunctionType(result_type, [argument.type for argument in arguments])
    return builder.call(
        _cgutils.get_or_insert_function(builder.module, function_type, name), arguments
    )


def _emit_dot(builder: Any, sums: Any, unsigned: Any, signed: Any) -> Any:
    """Emit the addition of the products of 64 unsigned and 64 signed bytes to 16 int32 sums."""
    return _emit_call(builder, "llvm.x86.avx512.vpdpbusd.512", _SUMS, [sums, unsigned, signed])


def _emit_broadcast(builder: Any, number: Any) -> Any:
    """Emit a vector of 16 int32 that all equal `number`."""
    empty = ir.Constant(_SUMS, ir.Undefined)
    first_lane = builder.insert_element(empty, number, ir.Constant(_I32, 0))
    return builder.shuffle_vector(first_lane, empty, ir.Constant(_SUMS, [0] * LANES))


def _emit_load(builder: Any, pointer: Any, index: Any, align: int) -> Any:
    """Emit a load of ``pointer[index]``, whose address is a multiple of `align` (int) bytes."""
    loaded = builder.load(builder.gep(pointer, [index]))
    loaded.align = align
    return loaded


def _emit_minimum(builder: Any, number: int, other: Any) -> Any:
    """Emit the smaller one of the int `number` and the int64 `other`."""
    constant = ir.Constant(_I64, number)
    return builder.select(builder.icmp_signed("<", constant, other), constant, other)


def _make_panel_product(n_query_vectors: int) -> Any:
    """Return the intrinsic that computes a panel product and compares its sums with limits.

    It takes `PANEL_RECORDS` records and a query panel of 16 * `n_query_vectors` queries.
    """

    @_intrinsic
    def panel(typing, addresses, biases, count, queries, n_dwords, limits, sums):  # type: ignore[no-untyped-def] # noqa: ARG001
        """Return a mask for each record: bit j is set if its sum with query j reaches limit j.

        Every argument but `count` and `n_dwords` is the address of an array:

        - `addresses`, int64 (count,), `biases`, int32 (count,): address and initial sum of each
          record.
        - `count`: number of records; if it is less than `PANEL_RECORDS`, the last one is repeated.
        - `queries`: the packed queries. `limits`, int32: a limit for each query.
        - `sums`, int32 (PANEL_RECORDS, queries): gets the sums of records with any bit set.
        - `n_dwords`: number of dwords of a record.
        """
        signature = _types.UniTuple(types.uint64, PANEL_RECORDS)(*[types.intp] * 7)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            """Emit the code of one call: sums over the dwords, then masks of hits."""
            addresses, biases, count, queries, n_dwords, limits, sums = arguments
            addresses = builder.inttoptr(addresses, _I64.as_pointer())
            biases = builder.inttoptr(biases, _I32.as_pointer())
            last = builder.sub(count, ir.Constant(_I64, 1))
            indices = [_emit_minimum(builder, i, last) for i in range(PANEL_RECORDS)]
            starts = [
                _emit_broadcast(builder, _emit_load(builder, biases, index, 4))
                for index in indices
                for _ in range(n_query_vectors)
            ]
            pointers = [
                builder.inttoptr(_emit_load(builder, addresses, index, 8), _I32.as_pointer())
                for index in indices
            ]
            packed_queries = builder.inttoptr(queries, _SUMS.as_pointer())
            stride = ir.Constant(_I64, n_query_vectors)
            final_sums = emit_dword_sums(
                builder, pointers, packed_queries, stride, n_dwords, starts, _emit_dot
            )
            masks = _emit_masks(builder, final_sums, limits, sums, n_query_vectors)
            return context.make_tuple(builder, signature.return_type, masks)

        return signature, generate

    return panel


def emit_dword_sums(
    builder: Any,
    rows: list[Any],
    packed: Any,
    stride: Any,
    n_dwords: Any,
    starts: list[Any],
    dot: Callable[..., Any],
) -> list[Any]:
    """Emit a loop over dwords that adds the products of rows and packed columns to sums.

    Returns the final sums, row by row: a list of vectors of 16 columns.

    - `rows`: pointer to each row, of `n_dwords` dwords.
    - `packed`: pointer to the first dword of every column; the next is `stride` vectors later.
    - `starts`: initial sums, vectors of 16 int32 in the order of the result.
    - `dot`: ``dot(builder, sums, columns, row)`` emits the instruction that multiplies.
    """
    n_vectors = len(starts) // len(rows)
    entry_block = builder.block
    loop_block = builder.append_basic_block("dwords")
    exit_block = builder.append_basic_block("done")
    builder.branch(loop_block)
    builder.position_at_end(loop_block)
    step = builder.phi(_I64)
    # Every sum is a phi of the loop: LLVM keeps them in registers, and no step touches memory.
    sums = [builder.phi(_SUMS) for _ in starts]
    first_vector = builder.mul(step, stride)
    column_dwords = [
        _emit_load(builder, packed, builder.add(first_vector, ir.Constant(_I64, vector)), 64)
        for vector in range(n_vectors)
    ]
    products = []
    for i, pointer in enumerate(rows):
        # One dword of a row is copied to all lanes, so rows need no packing.
        row = _emit_broadcast(builder, _emit_load(builder, pointer, step, 1))
        products += [
            dot(builder, sums[i * n_vectors + vector], column_dwords[vector], row)
            for vector in range(n_vectors)
        ]
    next_step = builder.add(step, ir.Constant(_I64, 1))
    builder.cbranch(builder.icmp_signed("<", next_step, n_dwords), loop_block, exit_block)
    for phi, start, next_value in zip(
        [step, *sums], [ir.Constant(_I64, 0), *starts], [next_step, *products], strict=True
    ):
        phi.add_incoming(start, entry_block)
        phi.add_incoming(next_value, loop_block)
    builder.position_at_end(exit_block)
    return products


def _emit_masks(
    builder: Any, sums: list[Any], limits: Any, stored_sums: Any, n_query_vectors: int
) -> list[Any]:
    """Emit the comparison of sums with limits; return a 64-bit mask of queries for each record.

    - `sums`: vectors of 16 int32 sums, `n_query_vectors` for each record.
    - `limits`: address of an array of int32, a limit for each query.
    - `stored_sums`: address to which the sums of records that reach any limit are written.
    """
    limits = builder.inttoptr(limits, _SUMS.as_pointer())
    stored_sums = builder.inttoptr(stored_sums, _SUMS.as_pointer())
    limit_vectors = [
        _emit_load(builder, limits, ir.Constant(_I64, vector), 64)
        for vector in range(n_query_vectors)
    ]
    masks = []
    for first in range(0, len(sums), n_query_vectors):
        mask = ir.Constant(_I64, 0)
        for vector in range(n_query_vectors):
            reached = builder.icmp_signed(">=", sums[first + vector], limit_vectors[vector])
            bits = builder.zext(builder.bitcast(reached, _I16), _I64)
            mask = builder.or_(mask, builder.shl(bits, ir.Constant(_I64, LANES * vector)))
        masks.append(mask)
        # Few records reach a limit; the sums of all others are never stored.
        with builder.if_then(builder.icmp_unsigned("!=", mask, ir.Constant(_I64, 0))):
            for vector in range(n_query_vectors):
                target = builder.gep(stored_sums, [ir.Constant(_I64, first + vector)])
                builder.store(sums[first + vector], target).align = 64
    return masks


panel1, panel2, panel3, panel4 = (_make_panel_product(n_vectors) for n_vectors in (1, 2, 3, 4))


@_intrinsic
def shifted_dot(typing, record, query, size):  # type: ignore[no-untyped-def] # noqa: ARG001
    """Return sum((x + 128) q), int32, for a record x and a query q of `size` features.

    `record` is the address of the signed bytes x, and `query` that of the bytes q + 128. Nothing
    beyond `size` bytes is read. The excess over the product, 128 sum(q), is the same for all
    records.
    """
    signature = _types.int32(_types.intp, _types.intp, _types.intp)
    flip = ir.Constant(_SUMS, [_FLIP_SIGNS] * LANES)

    def step(builder: Any, total: Any, record: Any, query: Any) -> Any:
        """Emit 16 sums: `total` plus products of 64 bytes of record and query, one unsigned."""
        return _emit_dot(builder, total, builder.xor(record, flip), builder.xor(query, flip))

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        """Emit the sum over all bytes of record and query."""
        return _emit_long_sum(
            builder, step, arguments[:2], arguments[2], [0, -128], _PREFETCH_BYTES
        )

    return signature, generate


@_intrinsic
def sum_bytes(typing, record, size):  # type: ignore[no-untyped-def] # noqa: ARG001
    """Return the sum of the `size` signed bytes, and no others, at the address `record`, int32."""
    signature = _types.int32(_types.intp, _types.intp)
    unit_bytes = ir.Constant(_SUMS, [0x01010101] * LANES)

    def step(builder: Any, total: Any, record: Any) -> Any:
        """Emit the addition of 64 bytes of the record to 16 sums, `total`."""
        return _emit_dot(builder, total, unit_bytes, record)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        """Emit the sum over all bytes of the record."""
        return _emit_long_sum(builder, step, arguments[:1], arguments[1], [0])

    return signature, generate


def _emit_long_sum(
    builder: Any,
    step: Any,
    addresses: list[Any],
    size: Any,
    padding: list[int],
    prefetch_bytes: int = 0,
) -> Any:
    """Emit the sum over byte arrays, 64 bytes at a time; the last bytes are read under a mask.

    - `step`: ``step(builder, total, *registers)`` emits 16 new sums from 64 bytes of each array.
    - `addresses`: address of each array.
    - `size`: number of bytes of an array.
    - `padding`: for each array, the byte that replaces those beyond `size`.
    - `prefetch_bytes`: memory this far ahead in the first array is fetched into the cache.
    """
    whole_bytes = builder.and_(size, ir.Constant(_I64, -64))
    entry_block = builder.block
    check_block, loop_block, rest_block = (
        builder.append_basic_block(name) for name in ("check", "bytes", "rest")
    )
    builder.branch(check_block)
    builder.position_at_end(check_block)
    offset, total = builder.phi(_I64), builder.phi(_SUMS)
    builder.cbranch(builder.icmp_signed("<", offset, whole_bytes), loop_block, rest_block)
    builder.position_at_end(loop_block)
    if prefetch_bytes:
        # A prefetch has no effect on values and may point beyond the last record.
        prefetched = builder.add(
            builder.add(addresses[0], offset), ir.Constant(_I64, prefetch_bytes)
        )
        reading, all_caches, data = (ir.Constant(_I32, flag) for flag in (0, 3, 1))
        hinted = [builder.inttoptr(prefetched, _I8.as_pointer()), reading, all_caches, data]
        _emit_call(builder, "llvm.prefetch.p0", ir.VoidType(), hinted)
    registers = []
    for address in addresses:
        pointer = builder.inttoptr(builder.add(address, offset), _SUMS.as_pointer())
        registers.append(builder.load(pointer))
        registers[-1].align = 1
    next_total = step(builder, total, *registers)
    next_offset = builder.add(offset, ir.Constant(_I64, 64))
    builder.branch(check_block)
    for phi, start, next_value in (
        (offset, ir.Constant(_I64, 0), next_offset),
        (total, ir.Constant(_SUMS, [0] * LANES), next_total),
    ):
        phi.add_incoming(start, entry_block)
        phi.add_incoming(next_value, loop_block)
    builder.position_at_end(rest_block)
    # The last bytes are read under a mask: beyond them is another record, or no memory at all.
    int64_1 = ir.Constant(_I64, 1)
    mask = builder.sub(builder.shl(int64_1, builder.sub(size, whole_bytes)), int64_1)
    mask = builder.bitcast(mask, _MASK)
    rest = [
        _emit_masked_load(builder, address, whole_bytes, mask, padding_byte)
        for address, padding_byte in zip(addresses, padding, strict=True)
    ]
    return _emit_call(builder, "llvm.vector.reduce.add.v16i32", _I32, [step(builder, total, *rest)])


def _emit_masked_load(builder: Any, address: Any, offset: Any, mask: Any, padding: int) -> Any:
    """Emit a load of 64 bytes at ``address + offset``; `padding` (int) where `mask` has a 0 bit."""
    pointer = builder.inttoptr(builder.add(address, offset), _BYTES.as_pointer())
    loaded = _emit_call(
        builder,
        "llvm.masked.load.v64i8.p0",
        _BYTES,
        [pointer, ir.Constant(_I32, 1), mask, ir.Constant(_BYTES, [padding] * 64)],
    )
    return builder.bitcast(loaded, _SUMS)


@_intrinsic
def lowest_bit(typing, word):  # type: ignore[no-untyped-def] # noqa: ARG001
    """Return the index of the lowest set bit of `word`, a uint64 that is not 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        """Emit the count of trailing zeros."""
        return builder.cttz(arguments[0], ir.Constant(_I1, 1))

    return types.int64(types.uint64), generate
