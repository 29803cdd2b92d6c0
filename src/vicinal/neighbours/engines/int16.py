r"""Exact products of int16 matrices, for what a private model is trained on.

``vpdpwssd`` multiplies 32 pairs of int16 and adds each two products to one of 16 int32 sums. Sums
wrap around 2^32, whichever way they are added up, so an entry is a function of its row and its
column alone: no neighbour of a row, no place in a matrix and no processor changes it. Whoever calls
sees to it that sums fit, where it matters that they do.

=============  =======================================================================
engine         how
=============  =======================================================================
``vnni``       five rows meet 64 columns in registers, 256 entries of depth at a time
``float64``    products of whole numbers below 2^53 by the BLAS, wrapped around at the end
=============  =======================================================================

Both return the same; which one a process has is found out once, on patterns.
"""

from abc import ABC, abstractmethod
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir

from vicinal.compiled import compiled
from vicinal.neighbours.engines._intrinsics import (
    _I32,
    _I64,
    _SUMS,
    LANES,
    _call,
    _intrinsic,
    _load,
    _types,
    aligned,
    dword_sums,
    supported,
)

Int16Matrix = npt.NDArray[np.int16]
Int32Matrix = npt.NDArray[np.int32]

# Rows whose outer products are added up in int32: 64 products must stay below 2^31.
MOST_TOGETHER = 64

# Five rows with 64 columns are 20 sums in registers, ten with 16 columns ten.
_ROWS, _TALL, _PANEL = 5, 10, 4 * LANES
_DEPTH = 128  # dwords of 64 columns that stay in the nearest cache


class Int16Products(ABC):
    """Products of int16 matrices modulo 2^32; every entry is exact."""

    name: str

    @abstractmethod
    def prepared(self, right: Int16Matrix) -> Any:
        """Return a matrix (k, m) as :meth:`times` takes it."""

    @abstractmethod
    def times(self, left: Int16Matrix, right: Any) -> Int32Matrix:
        """Return the product of `left` (n, k), C-contiguous, with a prepared (k, m), (n, m)."""

    @abstractmethod
    def add_outer(self, left: Int16Matrix, right: Int16Matrix, sums: npt.NDArray[np.int64]) -> None:
        """Add ``left @ right`` to `sums`, int64 (c, k), for (c, n) and (n, k), C-contiguous.

        Exact where the sizes of :data:`MOST_TOGETHER` products add up to less than 2^31.
        """


class Float64Products(Int16Products):
    """By the BLAS, on every machine."""

    name = "float64"

    def prepared(self, right: Int16Matrix) -> Any:
        return right.astype(np.float64)

    def times(self, left: Int16Matrix, right: Any) -> Int32Matrix:
        return np.asarray((left.astype(np.float64) @ right).astype(np.int64).astype(np.int32))

    def add_outer(self, left: Int16Matrix, right: Int16Matrix, sums: npt.NDArray[np.int64]) -> None:
        sums += (left.astype(np.float64) @ right.astype(np.float64)).astype(np.int64)


class VNNIProducts(Int16Products):
    """By AVX-512 VNNI; a RuntimeError without the instructions."""

    name = "vnni"

    def __init__(self) -> None:
        if not supported():
            raise RuntimeError("the processor has no AVX-512 VNNI")

    def prepared(self, right: Int16Matrix) -> Any:
        pairs, lanes = -(-right.shape[0] // 2), -(-right.shape[1] // LANES) * LANES
        packed = aligned(4 * pairs * lanes).view(np.int32).reshape(pairs, lanes)
        _pack(np.ascontiguousarray(right), packed)
        return packed, right.shape

    def times(self, left: Int16Matrix, right: Any) -> Int32Matrix:
        packed, (depth, columns) = right
        lanes = packed.shape[1]
        _check(left, len(left), depth)
        sums = aligned(4 * (len(left) + 1) * lanes).view(np.int32).reshape(-1, lanes)
        _multiply(left, packed, sums)
        return np.asarray(sums[:-1, :columns])

    def add_outer(self, left: Int16Matrix, right: Int16Matrix, sums: npt.NDArray[np.int64]) -> None:
        _check(left, *left.shape)
        _check(right, left.shape[1], right.shape[1])
        if sums.shape != (len(left), right.shape[1]):
            raise ValueError("The sums have another shape than the product.")
        lanes = -(-right.shape[1] // LANES) * LANES
        packed = aligned(2 * MOST_TOGETHER * lanes).view(np.int32).reshape(-1, lanes)
        part = aligned(4 * (len(left) + 1) * lanes).view(np.int32).reshape(-1, lanes)
        padded = np.zeros((len(left), MOST_TOGETHER), dtype=np.int16)
        _add_outer(left, right, packed, padded, part, sums)


def _check(matrix: Int16Matrix, *shape: int) -> None:
    """Raise ValueError unless every address that follows from a matrix lies in it."""
    if matrix.dtype != np.int16 or not matrix.flags.c_contiguous or matrix.shape != shape:
        raise ValueError("The factors must be C-contiguous int16 matrices that fit together.")


@cache
def int16_products() -> Int16Products:
    """Return the faster engine that is there and exact on patterns."""
    try:
        engine = VNNIProducts()
        if all(agree(engine, *shape) for shape in ((1, 1, 1), (23, 301, 93), (130, 64, 16))):
            return engine
    except Exception:  # noqa: BLE001 (whatever is wrong with it, the other one does its work)
        return Float64Products()
    return Float64Products()


def agree(engine: Int16Products, n: int, k: int, m: int) -> bool:
    """Tell whether an engine returns what the plain one does, for patterns of these sizes."""
    plain = Float64Products()
    left, right = _pattern(n, k, 31), _pattern(k, m, 17)
    small = (_pattern(m, n, 13) >> 3, left >> 3)
    sums = [np.full((m, k), 7, dtype=np.int64) for _ in range(2)]
    for each, total in zip((engine, plain), sums, strict=True):
        each.add_outer(*small, total)
    products = [each.times(left, each.prepared(right)) for each in (engine, plain)]
    return np.array_equal(products[0], products[1]) and np.array_equal(sums[0], sums[1])


def _pattern(rows: int, width: int, step: int) -> Int16Matrix:
    """Return numbers of all sizes without any order to speak of."""
    numbers = (np.arange(rows * width, dtype=np.int64) ** 2 * step) % 65521
    return (numbers - 32768).astype(np.int16).reshape(rows, width)


def _panel(rows: int, columns: int) -> Any:
    @_intrinsic
    def panel(typing, left, packed, lanes, steps, sums):  # type: ignore[no-untyped-def] # noqa: ARG001
        """Add the products of `steps` dwords to int32 sums.

        `left`, `packed` and `sums` are addresses: of each row's dwords, of the columns' first
        dwords, the next ones `lanes` vectors further on, and of each row's sums.
        """
        addresses = _types.UniTuple(_types.intp, rows)
        signature = _types.void(addresses, *[_types.intp] * 3, addresses)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
            """Emit the code of one call: sums from memory, the loop, sums to memory."""
            left, packed, lanes, steps, sums = arguments
            at = [
                builder.inttoptr(builder.extract_value(left, i), _I32.as_pointer())
                for i in range(rows)
            ]
            places = [
                builder.gep(
                    builder.inttoptr(builder.extract_value(sums, i), _SUMS.as_pointer()),
                    [ir.Constant(_I64, c)],
                )
                for i in range(rows)
                for c in range(columns)
            ]
            starts = [_load(builder, place, ir.Constant(_I64, 0), 64) for place in places]
            right = builder.inttoptr(packed, _SUMS.as_pointer())
            totals = dword_sums(builder, at, right, lanes, steps, starts, _dot)
            for place, total in zip(places, totals, strict=True):
                builder.store(total, place).align = 64
            return context.get_dummy_value()

        return signature, generate

    return panel


def _dot(builder: Any, sums: Any, left: Any, right: Any) -> Any:
    return _call(builder, "llvm.x86.avx512.vpdpwssd.512", _SUMS, [sums, left, right])


panel1, panel2, panel3, panel4 = (
    _panel(_TALL if columns == 1 else _ROWS, columns) for columns in (1, 2, 3, 4)
)


@compiled
def _pack(right, packed):  # type: ignore[no-untyped-def]
    """Write dwords of two rows each into (pairs, lanes); zeros for rows that are not there."""
    # The instruction multiplies two int16 of a dword with two of another and adds both products to
    # one sum: a column's entries of two rows lie side by side.
    whole, width = len(right) // 2, right.shape[1]
    for pair in range(whole):
        for j in range(width):
            high, low = np.int32(right[2 * pair + 1, j]), np.int32(right[2 * pair, j])
            packed[pair, j] = (high << np.int32(16)) | (low & np.int32(0xFFFF))
    packed[whole:] = 0
    if len(right) % 2:
        for j in range(width):
            packed[whole, j] = np.int32(right[-1, j]) & np.int32(0xFFFF)


@compiled
def _multiply(left, packed, sums):  # type: ignore[no-untyped-def]
    """Add products to `sums` (n + 1, lanes); the last row takes what fills a group of rows."""
    pairs, lanes, width = left.shape[1] // 2, sums.shape[1], left.shape[1]
    # A dword of the last column would end beyond the row: it is multiplied one by one.
    if width % 2:
        for i in range(len(left)):
            last = np.int32(left[i, width - 1])
            for j in range(lanes):
                sums[i, j] = last * np.int32(np.int16(packed[pairs, j]))
    for first in range(0, lanes, _PANEL):
        columns = min(_PANEL, lanes - first) // LANES
        for pair in range(0, pairs, _DEPTH):
            _multiply_panel(
                left.ctypes.data + 4 * pair, 2 * width, len(left),
                packed.ctypes.data + 4 * (lanes * pair + first), lanes // LANES,
                min(_DEPTH, pairs - pair), sums.ctypes.data + 4 * first, 4 * lanes, columns,
            )  # fmt: skip


@compiled
def _multiply_panel(left, stride, count, packed, lanes, steps, sums, apart, columns):  # type: ignore[no-untyped-def]
    """Add products of `count` rows with 16 * `columns` columns; the others are addresses."""
    last = count - 1
    for i in range(0, count, _TALL if columns == 1 else _ROWS):
        rows = (
            left + i * stride, left + min(i + 1, last) * stride, left + min(i + 2, last) * stride,
            left + min(i + 3, last) * stride, left + min(i + 4, last) * stride,
        )  # fmt: skip
        outs = (
            sums + i * apart, sums + min(i + 1, count) * apart, sums + min(i + 2, count) * apart,
            sums + min(i + 3, count) * apart, sums + min(i + 4, count) * apart,
        )  # fmt: skip
        if columns == 4:
            panel4(rows, packed, lanes, steps, outs)
        elif columns == 3:
            panel3(rows, packed, lanes, steps, outs)
        elif columns == 2:
            panel2(rows, packed, lanes, steps, outs)
        else:
            # One vector of columns leaves registers free: twice the rows share its load.
            more = (
                left + min(i + 5, last) * stride, left + min(i + 6, last) * stride,
                left + min(i + 7, last) * stride, left + min(i + 8, last) * stride,
                left + min(i + 9, last) * stride,
            )  # fmt: skip
            beyond = (
                sums + min(i + 5, count) * apart, sums + min(i + 6, count) * apart,
                sums + min(i + 7, count) * apart, sums + min(i + 8, count) * apart,
                sums + min(i + 9, count) * apart,
            )  # fmt: skip
            panel1(rows + more, packed, lanes, steps, outs + beyond)


@compiled
def _add_outer(left, right, packed, padded, part, sums):  # type: ignore[no-untyped-def]
    """Add ``left @ right`` to `sums`, some rows at a time; the others are room to work in."""
    width = right.shape[1]
    for first in range(0, len(right), MOST_TOGETHER):
        count = min(MOST_TOGETHER, len(right) - first)
        # 64 rows, the last group filled up with zeros: an even depth, at most what int32 holds.
        padded[:] = 0
        for c in range(len(left)):
            for i in range(count):
                padded[c, i] = left[c, first + i]
        _pack(right[first : first + count], packed)
        part[:] = 0
        _multiply(padded, packed, part)
        for c in range(len(left)):
            _add(sums[c], part[c, :width])


@compiled
def _add(sums, part):  # type: ignore[no-untyped-def]
    """Add int32 to int64."""
    for j in range(len(sums)):
        sums[j] += part[j]
