"""Compiled steps of histograms of oriented gradients: pixels into bins, cells into blocks.

They add up in the order in which scikit-image does, and numpy below it, so that the features are
those of ``skimage.feature.hog``, bit for bit (``tests/congruence/test_hog.py``).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vicinal._compiled import compiled

Doubles = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Sums = npt.NDArray[np.int64]

_TINY = 1e-5**2
"""Added to squared lengths of blocks, so that an empty one can be divided by."""

_CLIP = 0.2
"""Largest entry of a block after its first normalisation (the "Hys" of L2-Hys)."""

_IN_A_ROW = 128
"""Up to so many terms are added in eight interleaved sums; more are halved first."""

_DEGREES = 180.0 / np.pi


def bin_bounds(orientations: int) -> Doubles:
    """Return the borders (orientations + 1,) of the bins in degrees, of single precision."""
    width = np.float32(180.0 / orientations)
    return np.asarray(width * np.arange(orientations + 1, dtype=np.float32), dtype=np.float64)


def additions(n: int) -> Sums:
    """Return the order in which numpy adds up `n` contiguous numbers, pairwise.

    (parts, 3): start and stop of every part, and how many sums are merged after it.
    """
    return np.array(_parts(0, n, 0), np.int64)


def _parts(start: int, stop: int, merged: int) -> list[tuple[int, int, int]]:
    half = (stop - start) // 2
    if stop - start <= _IN_A_ROW:
        return [(start, stop, merged)]
    middle = start + half - half % 8
    return [*_parts(start, middle, 0), *_parts(middle, stop, merged + 1)]


@compiled
def features_of(
    lengths: Doubles, angles: Doubles, bounds: Doubles, sums: Sums, cell: int, block: int
) -> Singles:
    """Return histograms (n, d) of the gradients of n images (n, h, w), normalised by blocks."""
    n, height, width = lengths.shape
    down, right, bins = height // cell, width // cell, len(bounds) - 1
    size = block * block * bins
    found = np.empty((n, (down - block + 1) * (right - block + 1) * size), np.float32)
    cells, values = np.empty((down, right, bins), np.float32), np.empty(size)
    for i in range(n):
        _fill_cells(lengths[i], angles[i], bounds, cell, cells)
        _write_blocks(cells, block, sums, values, found[i])
    return found


@compiled
def _fill_cells(
    lengths: Doubles, angles: Doubles, bounds: Doubles, cell: int, cells: Singles
) -> None:
    """Write the histogram of every cell: the mean length of its gradients, by direction.

    Sums are rounded to single precision after every term.
    """
    cells[:] = 0.0
    for down in range(cells.shape[0]):
        for right in range(cells.shape[1]):
            bins = cells[down, right]
            for y in range(down * cell, down * cell + cell):
                for x in range(right * cell, right * cell + cell):
                    if lengths[y, x] > 0:
                        chosen = _bin_of(angles[y, x] * _DEGREES, bounds)
                        if chosen >= 0:
                            bins[chosen] += lengths[y, x]
    cells /= np.float32(cell * cell)


@compiled
def _bin_of(degrees: float, bounds: Doubles) -> int:
    """Return the bin of a direction between -180 and 180 degrees, or -1 above the last one."""
    last = len(bounds) - 1
    turned = degrees + 180.0 if degrees < 0 else degrees
    if (turned >= 180.0 and degrees >= 0) or degrees == -180.0:
        turned = 0.0
    chosen = min(int(turned / bounds[1]), last - 1)
    while turned < bounds[chosen]:
        chosen -= 1
    while chosen < last and turned >= bounds[chosen + 1]:
        chosen += 1
    return chosen if chosen < last else -1


@compiled
def _write_blocks(cells: Singles, block: int, sums: Sums, values: Doubles, found: Singles) -> None:
    """Write every block of cells after the other, scaled, clipped and scaled again."""
    start = 0
    for top in range(cells.shape[0] - block + 1):
        for left in range(cells.shape[1] - block + 1):
            _gather(cells[top : top + block, left : left + block], values)
            _scale(values, sums)
            for i in range(len(values)):
                values[i] = min(values[i], _CLIP)
            _scale(values, sums)
            found[start : start + len(values)] = values
            start += len(values)


@compiled
def _gather(cells: Singles, values: Doubles) -> None:
    """Copy a block of cells into `values`, one after the other."""
    at = 0
    for down in range(cells.shape[0]):
        for right in range(cells.shape[1]):
            for o in range(cells.shape[2]):
                values[at] = cells[down, right, o]
                at += 1


@compiled
def _scale(values: Doubles, sums: Sums) -> None:
    """Divide `values` by their Euclidean length."""
    length = np.sqrt(_squares(values, sums) + _TINY)
    for i in range(len(values)):
        values[i] /= length


@compiled
def _squares(values: Doubles, sums: Sums) -> float:
    """Return the sum of squares of `values`, added up as `additions` says."""
    stack, top = np.empty(len(sums)), 0
    for start, stop, merged in sums:
        stack[top] = _in_a_row(values[start:stop])
        for _ in range(merged):
            stack[top - 1] += stack[top]
            top -= 1
        top += 1
    return float(stack[0])


@compiled
def _in_a_row(values: Doubles) -> float:
    """Return the sum of few squares, in eight interleaved sums and what is left."""
    a = b = c = d = e = f = g = h = 0.0
    rest = len(values) - len(values) % 8
    for i in range(0, rest, 8):
        a += values[i] * values[i]
        b += values[i + 1] * values[i + 1]
        c += values[i + 2] * values[i + 2]
        d += values[i + 3] * values[i + 3]
        e += values[i + 4] * values[i + 4]
        f += values[i + 5] * values[i + 5]
        g += values[i + 6] * values[i + 6]
        h += values[i + 7] * values[i + 7]
    total = ((a + b) + (c + d)) + ((e + f) + (g + h))
    for i in range(rest, len(values)):
        total += values[i] * values[i]
    return total
