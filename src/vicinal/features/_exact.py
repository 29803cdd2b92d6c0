r"""Projections and norms of rows that are exact, and therefore the same beside any others.

A floating-point matrix product adds up in an order that depends on the shape of the whole matrix,
so a record's projection changes in its last bits with the records beside it. The rows are rounded
to integer features afterwards, where a last bit can tip a coordinate over: one record would then
move because of another. Here every sum over coordinates is exact, and an exact sum has no order.

**How.** `on_grid` replaces a row by integers of at most 2^b in size, in units of a power of two
that is the row's own. Held in float64, sums of products of such integers are exact, in any order
and with fused multiplication or without, as long as no partial sum can pass 2^53:

- *Projection.* The directions are unit vectors, rounded to multiples of 2^-b. Whatever terms have
  been added, the sum is at most sum_j |z_j v_j| <= |z| |v| <= sqrt(d) 2^b (2^b + sqrt(d)/2), by
  Cauchy-Schwarz, which is at most 2^53 for b = (52 - ceil(log2 sqrt(d))) // 2.
- *Norm.* A sum of c squares is at most c 2^(2b) <= 2^53 for b = (53 - ceil(log2 c)) // 2.

This asks of the BLAS only that it adds up products, as all common ones do; an algorithm of
Strassen's kind, which adds before it multiplies, would need a smaller b. Everything else works
number by number.

**What it costs.** Rounding moves a row by at most sqrt(d)/2 steps, and its norm is at least
2^(b-1) steps: by sqrt(d) 2^-b of its norm at the very worst (4e-6 for d = 1,296, where b is 23),
by about 1e-7 as a rule. Rounding a direction moves it by less. A length is measured on rounded
numbers but divides unrounded ones, so `unit_rows` changes no direction.
"""

from __future__ import annotations

import math

import numpy as np

from vicinal._arrays import Floats, Floats32


def on_grid(rows: Floats, bits: int) -> tuple[Floats, Floats]:
    """Return rows (n, d) as integers of at most 2**bits in size, rounded and before rounding.

    The unit is a power of two, found for each row from its own largest entry, which comes to at
    least 2**(bits - 1). A row of zeros stays zeros.
    """
    largest = np.abs(rows).max(axis=1, keepdims=True)
    _, exponent = np.frexp(largest)
    scaled = np.ldexp(rows, bits - exponent)
    return np.rint(scaled), scaled


def rounded_directions(directions: Floats) -> Floats:
    """Return unit column vectors (d, c) on the grid that `projected` asks for."""
    bits = _product_bits(len(directions))
    return np.asarray(np.ldexp(np.rint(np.ldexp(directions, bits)), -bits))


def projected(rows: Floats, directions: Floats) -> Floats:
    """Return the exact products (n, c) of rows, each up to a factor of its own, and directions.

    Rows (n, d) are rounded on their own grids first; directions (d, c) are those of
    `rounded_directions`. The unit is a power of two that differs from row to row.
    """
    grid, _ = on_grid(rows, _product_bits(rows.shape[1]))
    return np.asarray(grid @ directions)


def unit_rows(rows: Floats) -> Floats32:
    """Return rows (n, c) scaled to Euclidean length one, and zeros where a row is zeros."""
    grid, scaled = on_grid(rows, _square_bits(rows.shape[1]))
    length = np.sqrt(_squares(grid))
    length[length == 0] = 1.0
    return np.asarray(scaled / length[:, None], dtype=np.float32)


def _squares(grid: Floats) -> Floats:
    """Return the exact sum of squares (n,) of every row on its grid (n, c)."""
    return np.asarray(np.einsum("ij,ij->i", grid, grid))


def _product_bits(width: int) -> int:
    return (52 - math.ceil(math.log2(width) / 2)) // 2


def _square_bits(width: int) -> int:
    return (53 - math.ceil(math.log2(width))) // 2
