"""Histograms of oriented gradients: image features that nobody has to learn.

The compiled steps add up in the order in which scikit-image does, and numpy below it, so that the
features are those of ``skimage.feature.hog``, bit for bit
(``tests/features/test_hog_against_scikit_image.py``).
"""

from collections.abc import Iterable
from functools import partial
from typing import TypedDict

import numpy as np

from vicinal import checks
from vicinal.arrays import Floats, Floats32, Ints
from vicinal.compiled import compiled
from vicinal.errors import InvalidInput
from vicinal.features import fixed


class HOGSettings(TypedDict):
    """Checked parameters of the extraction."""

    orientations: int
    cell: int
    block: int
    compress: bool


_CHUNK = 256
"""Images handed to a thread at a time."""

_PIXELS = 1 << 15
"""Numbers worked on at a time, so that what is made of them stays in the processor's cache."""


class HOGFeatures(fixed.FixedImageFeatures):
    """Histogram of oriented gradients of every image, after Dalal and Triggs (CVPR 2005).

    The features of an image are a function of that image alone: nothing is learnt, and no other
    image is looked at. That is why extracting them from private images costs no privacy.

    Parameters
    ----------
    orientations
        Number of directions in a histogram.
    cell
        Side of a square cell in pixels; every cell has one histogram.
    block
        Side of a square block in cells; histograms are normalised block by block ("L2-Hys").
    compress
        Take the square root of intensities first, so that shading counts less than shape. Needs
        images without negative values.
    n_jobs
        Number of threads, as joblib counts them: None for one, -1 for every core. The features
        are the same whatever the number.

    Notes
    -----
    An image of h by w pixels gives ``(h // cell - block + 1) * (w // cell - block + 1)`` blocks of
    ``block**2 * orientations`` numbers between 0 and 1: 1,296 features for 28 by 28 pixels with the
    defaults. Of a colour image the channel with the steepest gradient counts, pixel by pixel.
    Pixels are taken as they are; keep to one scale (0 to 255, or 0 to 1) for records, public rows
    and queries.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import HOGFeatures
    >>> images = np.arange(2 * 28 * 28, dtype=np.uint8).reshape(2, 28, 28)
    >>> features = HOGFeatures().transform(images)
    >>> len(features), bool(np.isfinite(features).all())
    (2, True)
    """

    def __init__(
        self,
        orientations: int = 9,
        cell: int = 4,
        block: int = 2,
        compress: bool = True,
        n_jobs: int | None = None,
    ) -> None:
        self.orientations = orientations
        self.cell = cell
        self.block = block
        self.compress = compress
        self.n_jobs = n_jobs

    def _parts(self, images: fixed.AnyImages) -> Iterable[fixed.Vectors]:
        settings = self._settings()
        smallest = settings["cell"] * settings["block"]
        pixels = fixed.image_array(
            images, smallest, "one block; choose a smaller 'cell' or 'block'"
        )
        if not np.isfinite(pixels).all():
            raise InvalidInput("The images must hold finite numbers only.")
        if settings["compress"] and (pixels < 0).any():
            raise InvalidInput(
                "The images must hold no negative values when 'compress' is True. "
                "Shift them, or set compress=False."
            )
        work = partial(_compute_histograms, **settings)
        return fixed.in_threads(pixels, work, _CHUNK, self.n_jobs)

    def _settings(self) -> HOGSettings:
        return {
            "orientations": checks.check_integer("orientations", self.orientations, least=1),
            "cell": checks.check_integer("cell", self.cell, least=1),
            "block": checks.check_integer("block", self.block, least=1),
            "compress": checks.check_boolean("compress", self.compress),
        }


def _compute_histograms(
    images: fixed.Images, orientations: int, cell: int, block: int, compress: bool
) -> fixed.Vectors:
    """Return the features of a chunk of images, float32 (n, d)."""
    few = max(1, _PIXELS // images[0].size)
    parts = [images[start : start + few] for start in range(0, len(images), few)]
    plan = bin_bounds(orientations), additions(block * block * orientations)
    done = [
        features_of(*_compute_gradients_polar(part, compress), *plan, cell, block) for part in parts
    ]
    return np.concatenate(done)


def _compute_gradients_polar(images: fixed.Images, compress: bool) -> tuple[Floats, Floats]:
    """Return lengths and angles (n, h, w) of the gradients, in radians, number by number."""
    precision = np.float32 if images.dtype in (np.float16, np.float32) else np.float64
    pixels = images.astype(precision, copy=False)
    down, right = _subtract_neighbours(np.sqrt(pixels) if compress else pixels)
    if images.ndim == 4:
        steepest = np.hypot(down, right).argmax(axis=3, keepdims=True)
        down, right = (np.take_along_axis(part, steepest, 3)[..., 0] for part in (down, right))
    down, right = down.astype(np.float64, copy=False), right.astype(np.float64, copy=False)
    return np.hypot(right, down), np.arctan2(down, right)


def _subtract_neighbours(pixels: fixed.Images) -> tuple[fixed.Images, fixed.Images]:
    """Return differences of the two neighbours, down and to the right; none at the border."""
    down, right = np.zeros_like(pixels), np.zeros_like(pixels)
    np.subtract(pixels[:, 2:], pixels[:, :-2], out=down[:, 1:-1])
    np.subtract(pixels[:, :, 2:], pixels[:, :, :-2], out=right[:, :, 1:-1])
    return down, right


Sums = Ints

_TINY = 1e-5**2
"""Added to squared lengths of blocks, so that an empty one can be divided by."""

_CLIP = 0.2
"""Largest entry of a block after its first normalisation (the "Hys" of L2-Hys)."""

_IN_A_ROW = 128
"""Maximum number of terms that are added in eight interleaved sums; more are halved first."""

_DEGREES = 180.0 / np.pi


def bin_bounds(orientations: int) -> Floats:
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
    lengths: Floats, angles: Floats, bounds: Floats, sums: Sums, cell: int, block: int
) -> Floats32:
    """Return histograms (n, d) of the gradients of n images (n, h, w), normalised by blocks."""
    n, height, width = lengths.shape
    down, right, bins = height // cell, width // cell, len(bounds) - 1
    size = block * block * bins
    blocks = np.empty((n, (down - block + 1) * (right - block + 1) * size), np.float32)
    cells, values = np.empty((down, right, bins), np.float32), np.empty(size)
    for i in range(n):
        _fill_cells(lengths[i], angles[i], bounds, cell, cells)
        _write_blocks(cells, block, sums, values, blocks[i])
    return blocks


@compiled
def _fill_cells(
    lengths: Floats, angles: Floats, bounds: Floats, cell: int, cells: Floats32
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
def _bin_of(degrees: float, bounds: Floats) -> int:
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
def _write_blocks(
    cells: Floats32, block: int, sums: Sums, values: Floats, blocks: Floats32
) -> None:
    """Write every block of cells after the other, scaled, clipped and scaled again."""
    start = 0
    for top in range(cells.shape[0] - block + 1):
        for left in range(cells.shape[1] - block + 1):
            _gather(cells[top : top + block, left : left + block], values)
            _scale(values, sums)
            for i in range(len(values)):
                values[i] = min(values[i], _CLIP)
            _scale(values, sums)
            blocks[start : start + len(values)] = values
            start += len(values)


@compiled
def _gather(cells: Floats32, values: Floats) -> None:
    """Copy a block of cells into `values`, one after the other."""
    at = 0
    for down in range(cells.shape[0]):
        for right in range(cells.shape[1]):
            for o in range(cells.shape[2]):
                values[at] = cells[down, right, o]
                at += 1


@compiled
def _scale(values: Floats, sums: Sums) -> None:
    """Divide `values` by their Euclidean length."""
    length = np.sqrt(_sum_squares(values, sums) + _TINY)
    for i in range(len(values)):
        values[i] /= length


@compiled
def _sum_squares(values: Floats, sums: Sums) -> float:
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
def _in_a_row(values: Floats) -> float:
    """Return the sum of few squares, in eight interleaved sums and what is left."""
    a = b = c = d = e = f = g = h = 0.0
    full = len(values) - len(values) % 8
    for i in range(0, full, 8):
        a += values[i] * values[i]
        b += values[i + 1] * values[i + 1]
        c += values[i + 2] * values[i + 2]
        d += values[i + 3] * values[i + 3]
        e += values[i + 4] * values[i + 4]
        f += values[i + 5] * values[i + 5]
        g += values[i + 6] * values[i + 6]
        h += values[i + 7] * values[i + 7]
    total = ((a + b) + (c + d)) + ((e + f) + (g + h))
    for i in range(full, len(values)):
        total += values[i] * values[i]
    return total
