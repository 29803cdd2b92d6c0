"""Histograms of oriented gradients: image features without a fit.

The compiled functions sum in the order of scikit-image and numpy, so the features equal those of
``skimage.feature.hog`` bit for bit (``tests/features/test_hog_against_scikit_image.py``).

Everywhere in this module: `cell` is the side of a square cell in pixels, `block` that of a square
block in cells. `bounds`, float64 (bins + 1,), are the edges of the bins of a histogram, in degrees.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np

from vicinal import checks
from vicinal.arrays import Floats, Floats32
from vicinal.compiled import compiled
from vicinal.errors import InvalidInput
from vicinal.features import fixed

_CHUNK = 256  # images that a thread takes at a time

_CACHED_NUMBERS = 1 << 15
"""Pixel values processed at a time, so that intermediate arrays stay in the processor's cache."""

_MIN_SQUARED_LENGTH = 1e-5**2
"""Added to squared lengths of blocks to prevent a division by zero, as in scikit-image."""

_MAX_ENTRY = 0.2
"""Largest entry of a block after its first normalisation (the "Hys" of L2-Hys)."""

_MAX_UNSPLIT_TERMS = 128
"""Most numbers that numpy's pairwise summation adds in eight interleaved sums without halving."""

_MAX_PARAMETERS = {"orientations": 360, "cell": 1 << 16, "block": 1 << 16}
"""Maximal values: two bins for each degree, and sides, in pixels and cells, beyond all images."""

_DEGREES = 180.0 / np.pi  # degrees per radian


class HOGFeatures(fixed.FixedImageFeatures):
    """Histogram of oriented gradients of every image, after Dalal and Triggs (CVPR 2005).

    The features of an image are a function of that image alone, so extracting them from private
    images costs no privacy.

    Parameters
    ----------
    orientations
        Number of directions in a histogram, 1 to 360.
    cell
        Side of a square cell in pixels; every cell has one histogram.
    block
        Side of a square block in cells; histograms are normalised block by block ("L2-Hys").
    compress
        Take the square root of intensities first, which gives shading less weight than shape.
        Requires images without negative values.
    n_jobs
        Number of threads as in joblib: None for one, -1 for every core. It does not change the
        features.

    Notes
    -----
    An image of h by w pixels gives ``(h // cell - block + 1) * (w // cell - block + 1)`` blocks of
    ``block**2 * orientations`` numbers between 0 and 1: 1,296 features for 28 by 28 pixels with the
    defaults. In a colour image each pixel uses the channel with the steepest gradient. Pixels are
    not rescaled; use one scale (0 to 255, or 0 to 1) for records, public rows and queries.

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

    def check_parameters(self) -> dict[str, Any]:
        """Return the parameters of the computation by name; raise InvalidInput for invalid ones."""
        settings: dict[str, Any] = {
            name: checks.check_integer(name, getattr(self, name), minimum=1, maximum=maximum)
            for name, maximum in _MAX_PARAMETERS.items()
        }
        settings["compress"] = checks.check_boolean("compress", self.compress)
        return settings

    def _compute_blocks(self, images: fixed.AnyImages) -> Iterable[fixed.Vectors]:
        """Yield the features (b, d) of consecutive blocks of images, in threads."""
        settings = self.check_parameters()
        block_side = settings["cell"] * settings["block"]
        remedy = "choose a smaller 'cell' or 'block'"
        pixels = fixed.check_images(images, block_side, "one block", remedy)
        if not np.isfinite(pixels).all():
            raise InvalidInput("The images must hold finite numbers only.")
        if settings["compress"] and (pixels < 0).any():
            raise InvalidInput(
                "The images must hold no negative values when 'compress' is True. "
                "Shift them, or set compress=False."
            )
        extract = partial(_compute_features, **settings)
        return fixed.extract_in_threads(pixels, extract, _CHUNK, self.n_jobs)


def _compute_features(
    images: fixed.Images, orientations: int, cell: int, block: int, compress: bool
) -> fixed.Vectors:
    """Return the features, float32 (n, d), of a chunk of images (n, h, w) or (n, h, w, 3).

    `orientations`: number of bins of a histogram. `compress`: whether the square roots of
    intensities are used.
    """
    size = max(1, _CACHED_NUMBERS // images[0].size)
    width = np.float32(180.0 / orientations)
    # Bounds of the bins of 0 to 180 degrees, rounded to float32.
    bounds = np.asarray(width * np.arange(orientations + 1, dtype=np.float32), dtype=np.float64)
    features = []
    for start in range(0, len(images), size):
        lengths, angles = _compute_polar_gradients(images[start : start + size], compress)
        features.append(compute_histograms(lengths, angles, bounds, cell, block))
    return np.concatenate(features)


def _compute_polar_gradients(images: fixed.Images, compress: bool) -> tuple[Floats, Floats]:
    """Return lengths and angles, in radians, of the gradients at all pixels, both (n, h, w).

    `images`: (n, h, w) or (n, h, w, 3); in colour, the steepest channel counts. `compress`: whether
    the square roots of intensities are used.
    """
    precision = np.float32 if images.dtype in (np.float16, np.float32) else np.float64
    pixels = images.astype(precision, copy=False)
    if compress:
        pixels = np.sqrt(pixels)
    # Central differences: the next minus the previous pixel, not halved; 0 at the border.
    dy, dx = np.zeros_like(pixels), np.zeros_like(pixels)
    np.subtract(pixels[:, 2:], pixels[:, :-2], out=dy[:, 1:-1])
    np.subtract(pixels[:, :, 2:], pixels[:, :, :-2], out=dx[:, :, 1:-1])
    if images.ndim == 4:
        steepest_channel = np.hypot(dy, dx).argmax(axis=3, keepdims=True)
        dy = np.take_along_axis(dy, steepest_channel, 3)[..., 0]
        dx = np.take_along_axis(dx, steepest_channel, 3)[..., 0]
    dy = dy.astype(np.float64, copy=False)
    dx = dx.astype(np.float64, copy=False)
    return np.hypot(dx, dy), np.arctan2(dy, dx)


@compiled
def compute_histograms(
    lengths: Floats, angles: Floats, bounds: Floats, cell: int, block: int
) -> Floats32:
    """Return the normalised histograms (n, d) of gradients with `lengths` and `angles` (n, h, w).

    `angles`: in radians.
    """
    n, height, width = lengths.shape
    n_cell_rows, n_cell_columns, n_bins = height // cell, width // cell, len(bounds) - 1
    size = block * block * n_bins
    n_blocks = (n_cell_rows - block + 1) * (n_cell_columns - block + 1)
    features = np.empty((n, n_blocks * size), np.float32)
    cells, values = np.empty((n_cell_rows, n_cell_columns, n_bins), np.float32), np.empty(size)
    for i in range(n):
        _fill_cells(lengths[i], angles[i], bounds, cell, cells)
        _write_blocks(cells, block, values, features[i])
    return features


@compiled
def _fill_cells(
    lengths: Floats, angles: Floats, bounds: Floats, cell: int, cells: Floats32
) -> None:
    """Write the histogram of every cell: for each bin, the mean over pixels of gradient lengths.

    Sums are rounded to single precision after every term. `lengths`, `angles`: gradients (h, w) of
    one image, angles in radians. `cells`: the result, (cell rows, cell columns, bins).
    """
    cells[:] = 0.0
    for row in range(cells.shape[0]):
        for column in range(cells.shape[1]):
            histogram = cells[row, column]
            for y in range(row * cell, row * cell + cell):
                for x in range(column * cell, column * cell + cell):
                    if lengths[y, x] > 0:
                        bin_index = _find_bin(angles[y, x] * _DEGREES, bounds)
                        if bin_index >= 0:
                            histogram[bin_index] += lengths[y, x]
    cells /= np.float32(cell * cell)


@compiled
def _find_bin(degrees: float, bounds: Floats) -> int:
    """Return the bin's index of a direction, -180 to 180 `degrees`, or -1 above the last bin."""
    n_bins = len(bounds) - 1
    # Opposite directions share a bin.
    unsigned = degrees + 180.0 if degrees < 0 else degrees
    if (unsigned >= 180.0 and degrees >= 0) or degrees == -180.0:
        unsigned = 0.0
    bin_index = min(int(unsigned / bounds[1]), n_bins - 1)
    while unsigned < bounds[bin_index]:
        bin_index -= 1
    while bin_index < n_bins and unsigned >= bounds[bin_index + 1]:
        bin_index += 1
    return bin_index if bin_index < n_bins else -1


@compiled
def _write_blocks(cells: Floats32, block: int, values: Floats, features: Floats32) -> None:
    """Write all blocks of cells of an image, each normalised, clipped and normalised again.

    `cells`: histograms (cell rows, cell columns, bins). `values`: a buffer for the numbers of one
    block. `features` (blocks * numbers of a block,): the result, which is overwritten.
    """
    start = 0
    for row in range(cells.shape[0] - block + 1):
        for column in range(cells.shape[1] - block + 1):
            block_cells = cells[row : row + block, column : column + block]
            for i, value in enumerate(block_cells.flat):
                values[i] = value
            _normalise(values)
            for i in range(len(values)):
                values[i] = min(values[i], _MAX_ENTRY)
            _normalise(values)
            features[start : start + len(values)] = values
            start += len(values)


@compiled
def _normalise(values: Floats) -> None:
    """Divide `values` (n,) by their Euclidean length, in place."""
    length = np.sqrt(_sum_squares(values) + _MIN_SQUARED_LENGTH)
    for i in range(len(values)):
        values[i] /= length


@compiled
def _sum_squares(values: Floats) -> float:
    """Return the sum of the squares of `values` (n,), added pairwise in numpy's order."""
    if len(values) > _MAX_UNSPLIT_TERMS:
        half = len(values) // 2
        middle = half - half % 8
        return float(_sum_squares(values[:middle]) + _sum_squares(values[middle:]))
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
