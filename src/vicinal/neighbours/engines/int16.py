"""Exact products of int16 matrices, for the training of a private model.

``vpdpwssd`` multiplies 32 pairs of int16 and adds each two products to one of 16 int32 sums. Sums
wrap around modulo 2^32 in any order of addition, so an entry is a function of its row and its
column alone: it depends neither on neighbouring rows, nor on its position, nor on the processor.
Callers ensure that sums fit where it matters.

=============  =======================================================================
engine         method
=============  =======================================================================
``vnni``       five rows times 64 columns in registers, 256 entries of depth at a time
``float64``    products of integers below 2^53 by the BLAS, reduced modulo 2^32 at the end
=============  =======================================================================

Both return the same. Each process chooses one of them once, after a comparison on patterns.

In the ``vnni`` layout a *dword* is a pair of adjacent int16, and *lanes* are the columns of a
matrix, padded with zeros to a multiple of 16. The arguments of code that emits LLVM instructions
are explained in :mod:`vicinal.neighbours.engines._intrinsics`.
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
    _emit_call,
    _emit_load,
    _emit_minimum,
    _intrinsic,
    _types,
    allocate_aligned,
    emit_dword_sums,
    is_supported,
)

Int16Matrix = npt.NDArray[np.int16]
Int32Matrix = npt.NDArray[np.int32]

# Rows whose outer products are added up in int32: sums of 64 products must stay below 2^31.
MAX_SUMMED_PRODUCTS = 64

# Five rows with 64 columns need 20 registers for sums, ten rows with 16 columns need ten.
_GROUP_ROWS, _NARROW_GROUP_ROWS, _PANEL_COLUMNS = 5, 10, 4 * LANES
# Dwords of 64 columns multiplied at a time; they stay in the first-level cache.
_PANEL_DWORDS = 128


class Int16Products(ABC):
    """An engine for products of int16 matrices modulo 2^32; every entry is exact."""

    name: str

    @abstractmethod
    def prepare(self, right: Int16Matrix) -> Any:
        """Return the matrix `right`, (k, m), in the layout that :meth:`multiply` needs."""

    @abstractmethod
    def multiply(self, left: Int16Matrix, right: Any) -> Int32Matrix:
        """Return ``left @ right`` modulo 2^32, int32 (n, m).

        `left` (n, k) is C-contiguous; `right` is the result of :meth:`prepare` for (k, m).
        """

    @abstractmethod
    def add_product(
        self, left: Int16Matrix, right: Int16Matrix, sums: npt.NDArray[np.int64]
    ) -> None:
        """Add ``left @ right`` to `sums`, int64 (c, k), for (c, n) and (n, k), C-contiguous.

        Exact if the absolute values of any `MAX_SUMMED_PRODUCTS` products sum to less than 2^31.
        """


class Float64Products(Int16Products):
    """Products by the BLAS, on every machine."""

    name = "float64"

    def prepare(self, right: Int16Matrix) -> Any:
        """Return the matrix `right`, (k, m), as float64."""
        return right.astype(np.float64)

    def multiply(self, left: Int16Matrix, right: Any) -> Int32Matrix:
        """Return ``left @ right`` modulo 2^32, int32 (n, m), for a prepared `right`."""
        return np.asarray((left.astype(np.float64) @ right).astype(np.int64).astype(np.int32))

    def add_product(
        self, left: Int16Matrix, right: Int16Matrix, sums: npt.NDArray[np.int64]
    ) -> None:
        """Add ``left @ right`` to `sums`, int64 (c, k), for (c, n) and (n, k)."""
        sums += (left.astype(np.float64) @ right.astype(np.float64)).astype(np.int64)


class VNNIProducts(Int16Products):
    """Products by AVX-512 VNNI; raises RuntimeError if the processor lacks it."""

    name = "vnni"

    def __init__(self) -> None:
        if not is_supported():
            raise RuntimeError("the processor has no AVX-512 VNNI")

    def prepare(self, right: Int16Matrix) -> Any:
        """Return the matrix `right`, (k, m), packed by :func:`_pack_pairs`, and its shape."""
        n_pairs, n_lanes = -(-right.shape[0] // 2), -(-right.shape[1] // LANES) * LANES
        packed = allocate_aligned(4 * n_pairs * n_lanes).view(np.int32).reshape(n_pairs, n_lanes)
        _pack_pairs(np.ascontiguousarray(right), packed)
        return packed, right.shape

    def multiply(self, left: Int16Matrix, right: Any) -> Int32Matrix:
        """Return ``left @ right`` modulo 2^32, int32 (n, m), for a prepared `right`."""
        packed, (depth, n_columns) = right
        n_lanes = packed.shape[1]
        _check_matrix(left, len(left), depth)
        sums = allocate_aligned(4 * (len(left) + 1) * n_lanes).view(np.int32).reshape(-1, n_lanes)
        _multiply(left, packed, sums)
        return np.asarray(sums[:-1, :n_columns])

    def add_product(
        self, left: Int16Matrix, right: Int16Matrix, sums: npt.NDArray[np.int64]
    ) -> None:
        """Add ``left @ right`` to `sums`, int64 (c, k), for C-contiguous (c, n) and (n, k)."""
        _check_matrix(left, *left.shape)
        _check_matrix(right, left.shape[1], right.shape[1])
        if sums.shape != (len(left), right.shape[1]):
            raise ValueError("The sums have another shape than the product.")
        n_lanes = -(-right.shape[1] // LANES) * LANES
        packed = (
            allocate_aligned(2 * MAX_SUMMED_PRODUCTS * n_lanes).view(np.int32).reshape(-1, n_lanes)
        )
        block_sums = (
            allocate_aligned(4 * (len(left) + 1) * n_lanes).view(np.int32).reshape(-1, n_lanes)
        )
        padded = np.zeros((len(left), MAX_SUMMED_PRODUCTS), dtype=np.int16)
        _add_blocks(left, right, packed, padded, block_sums, sums)


def _check_matrix(matrix: Int16Matrix, *shape: int) -> None:
    """Raise ValueError unless a matrix is C-contiguous int16 of the given shape.

    All addresses computed from such a matrix lie in it.
    """
    if matrix.dtype != np.int16 or not matrix.flags.c_contiguous or matrix.shape != shape:
        raise ValueError("The factors must be C-contiguous int16 matrices that fit together.")


@cache
def get_int16_products() -> Int16Products:
    """Return the VNNI engine if it is available and exact on patterns, else the float64 engine."""
    try:
        engine = VNNIProducts()
        if all(
            is_exact_on_pattern(engine, *shape)
            for shape in ((1, 1, 1), (23, 301, 93), (130, 64, 16))
        ):
            return engine
    except Exception:  # noqa: BLE001 (an engine with any failure is not used)
        return Float64Products()
    return Float64Products()


def is_exact_on_pattern(engine: Int16Products, n: int, k: int, m: int) -> bool:
    """Return whether an engine equals the float64 engine on pattern matrices (n, k) and (k, m)."""
    reference = Float64Products()
    left, right = _make_pattern(n, k, 31), _make_pattern(k, m, 17)
    small_factors = (_make_pattern(m, n, 13) >> 3, left >> 3)
    sums = [np.full((m, k), 7, dtype=np.int64) for _ in range(2)]
    for candidate, target in zip((engine, reference), sums, strict=True):
        candidate.add_product(*small_factors, target)
    products = [
        candidate.multiply(left, candidate.prepare(right)) for candidate in (engine, reference)
    ]
    return np.array_equal(products[0], products[1]) and np.array_equal(sums[0], sums[1])


def _make_pattern(rows: int, width: int, multiplier: int) -> Int16Matrix:
    """Return int16 numbers of all magnitudes, (rows, width), varied by the prime `multiplier`."""
    numbers = (np.arange(rows * width, dtype=np.int64) ** 2 * multiplier) % 65521
    return (numbers - 32768).astype(np.int16).reshape(rows, width)


def _make_panel_product(n_rows: int, n_vectors: int) -> Any:
    """Return the intrinsic that adds the product of `n_rows` rows and 16 * `n_vectors` columns."""

    @_intrinsic
    def panel(typing, left, stride, packed, pair_stride, n_dwords, sums, sums_stride, count):  # type: ignore[no-untyped-def] # noqa: ARG001
        """Add the products of up to `n_rows` of `count` rows with columns to int32 sums.

        The arguments are those of :func:`_multiply_panel`. If there are fewer rows, the last one is
        repeated, and its further sums are added to the row of sums after the last.
        """
        signature = _types.void(*[_types.intp] * 8)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
            """Emit the code of one call: sums from memory, the loop, sums to memory."""
            left, stride, packed, pair_stride, n_dwords, sums, sums_stride, count = arguments
            last_row = builder.sub(count, ir.Constant(_I64, 1))
            row_pointers = [
                _emit_row_pointer(builder, left, stride, i, last_row, _I32) for i in range(n_rows)
            ]
            sum_pointers = [
                builder.gep(
                    _emit_row_pointer(builder, sums, sums_stride, i, count, _SUMS),
                    [ir.Constant(_I64, column)],
                )
                for i in range(n_rows)
                for column in range(n_vectors)
            ]
            initial_sums = [
                _emit_load(builder, pointer, ir.Constant(_I64, 0), 64) for pointer in sum_pointers
            ]
            right = builder.inttoptr(packed, _SUMS.as_pointer())
            final_sums = emit_dword_sums(
                builder, row_pointers, right, pair_stride, n_dwords, initial_sums, _emit_dot
            )
            for pointer, total in zip(sum_pointers, final_sums, strict=True):
                builder.store(total, pointer).align = 64
            return context.get_dummy_value()

        return signature, generate

    return panel


def _emit_row_pointer(
    builder: Any, address: Any, stride: Any, index: int, max_index: Any, item_type: Any
) -> Any:
    """Emit a pointer to row min(`index`, `max_index`) of rows every `stride` bytes at `address`.

    `item_type`: LLVM type of a row's items.
    """
    row = _emit_minimum(builder, index, max_index)
    return builder.inttoptr(builder.add(address, builder.mul(row, stride)), item_type.as_pointer())


def _emit_dot(builder: Any, sums: Any, left: Any, right: Any) -> Any:
    """Emit the addition of the products of 32 int16 of `left` and of `right` to 16 int32 sums."""
    return _emit_call(builder, "llvm.x86.avx512.vpdpwssd.512", _SUMS, [sums, left, right])


panel1, panel2, panel3, panel4 = (
    _make_panel_product(_NARROW_GROUP_ROWS if n_vectors == 1 else _GROUP_ROWS, n_vectors)
    for n_vectors in (1, 2, 3, 4)
)


@compiled
def _pack_pairs(right, packed):  # type: ignore[no-untyped-def]
    """Write pairs of rows of `right`, int16 (k, m), into `packed`, int32 (ceil(k / 2), lanes).

    Missing rows and columns are zeros.
    """
    # The instruction multiplies two int16 of a dword with two of another and adds both products to
    # one sum: a column's entries of two rows lie side by side.
    n_whole_pairs, width = len(right) // 2, right.shape[1]
    for pair in range(n_whole_pairs):
        for j in range(width):
            high, low = np.int32(right[2 * pair + 1, j]), np.int32(right[2 * pair, j])
            packed[pair, j] = (high << np.int32(16)) | (low & np.int32(0xFFFF))
    packed[n_whole_pairs:] = 0
    if len(right) % 2:
        for j in range(width):
            packed[n_whole_pairs, j] = np.int32(right[-1, j]) & np.int32(0xFFFF)


@compiled
def _multiply(left, packed, sums):  # type: ignore[no-untyped-def]
    """Write ``left @ right`` modulo 2^32 to int32 sums.

    - `left`, int16 (n, k): the left factor.
    - `packed`, int32 (ceil(k / 2), lanes): the right factor, (k, m), packed by :func:`_pack_pairs`.
    - `sums`, int32 (n + 1, lanes): zeros on entry; the last row is padding of a group of rows.
    """
    n_pairs, n_lanes, width = left.shape[1] // 2, sums.shape[1], left.shape[1]
    # The dword of an odd last column would end beyond the row, so it is multiplied separately.
    if width % 2:
        for i in range(len(left)):
            last = np.int32(left[i, width - 1])
            for j in range(n_lanes):
                sums[i, j] = last * np.int32(np.int16(packed[n_pairs, j]))
    for first in range(0, n_lanes, _PANEL_COLUMNS):
        n_vectors = min(_PANEL_COLUMNS, n_lanes - first) // LANES
        for pair in range(0, n_pairs, _PANEL_DWORDS):
            _multiply_panel(
                left.ctypes.data + 4 * pair,
                2 * width,
                len(left),
                packed.ctypes.data + 4 * (n_lanes * pair + first),
                n_lanes // LANES,
                min(_PANEL_DWORDS, n_pairs - pair),
                sums.ctypes.data + 4 * first,
                4 * n_lanes,
                n_vectors,
            )


@compiled
def _multiply_panel(  # type: ignore[no-untyped-def]
    left, stride, count, packed, pair_stride, n_dwords, sums, sums_stride, n_vectors
):
    """Add the products of `count` rows with 16 * `n_vectors` columns to int32 sums.

    The row of sums after the last is overwritten, too (:func:`_make_panel_product`).

    - `left`, `packed`, `sums`: addresses of the first row, of the columns' first dwords (pairs of
      int16), and of the first row's sums.
    - `stride`, `sums_stride`: distance of the next row, and of its sums, in bytes.
    - `pair_stride`: distance of the columns' next dwords, in vectors of 16 int32.
    - `n_dwords`: number of dwords of a row that are multiplied.
    """
    # One vector of columns leaves registers free, so twice the rows share its load.
    for i in range(0, count, _NARROW_GROUP_ROWS if n_vectors == 1 else _GROUP_ROWS):
        rows, row_sums, n_remaining = left + i * stride, sums + i * sums_stride, count - i
        if n_vectors == 4:
            panel4(rows, stride, packed, pair_stride, n_dwords, row_sums, sums_stride, n_remaining)
        elif n_vectors == 3:
            panel3(rows, stride, packed, pair_stride, n_dwords, row_sums, sums_stride, n_remaining)
        elif n_vectors == 2:
            panel2(rows, stride, packed, pair_stride, n_dwords, row_sums, sums_stride, n_remaining)
        else:
            panel1(rows, stride, packed, pair_stride, n_dwords, row_sums, sums_stride, n_remaining)


@compiled
def _add_blocks(left, right, packed, padded, block_sums, sums):  # type: ignore[no-untyped-def]
    """Add ``left @ right`` to `sums`, int64 (c, k), for int16 (c, n) and (n, k), in blocks of rows.

    Scratch for a block of 64 rows of `right`: `packed`, int32 (32, lanes); `padded`, int16 (c, 64);
    `block_sums`, int32 (c + 1, lanes).
    """
    width = right.shape[1]
    for first in range(0, len(right), MAX_SUMMED_PRODUCTS):
        count = min(MAX_SUMMED_PRODUCTS, len(right) - first)
        # 64 rows, the last block padded with zeros: an even depth whose sums fit in int32.
        padded[:] = 0
        for c in range(len(left)):
            for i in range(count):
                padded[c, i] = left[c, first + i]
        _pack_pairs(right[first : first + count], packed)
        block_sums[:] = 0
        _multiply(padded, packed, block_sums)
        for c in range(len(left)):
            for j in range(width):
                sums[c, j] += block_sums[c, j]
