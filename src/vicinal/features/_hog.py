"""Histograms of oriented gradients: image features that nobody has to learn."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypedDict

import numpy as np
import numpy.typing as npt

from vicinal import _checks
from vicinal.errors import InvalidInput
from vicinal.features._fixed import (
    FixedImageFeatures,
    Images,
    Vectors,
    image_array,
    in_order,
    in_threads,
)

Doubles = npt.NDArray[np.float64]


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


class HOGFeatures(FixedImageFeatures):
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
    An image of h by w pixels gives ``(h // cell - block + 1) * (w // cell - block + 1)`` blocks
    of ``block**2 * orientations`` numbers: 1,296 features for 28 by 28 pixels with the defaults.
    Of a colour image the channel with the steepest gradient counts, pixel by pixel. Pixels are
    taken as they are; keep to one scale (0 to 255, or 0 to 1) for records, public rows and queries.
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

    def transform(
        self, images: npt.ArrayLike, progress: Callable[[int], None] | None = None
    ) -> Vectors:
        """Return the features of `images`.

        Parameters
        ----------
        images
            Grey (n, h, w) or colour (n, h, w, 3), integers or finite floats.
        progress
            Called with the number of images just finished, several times in a run.

        Returns
        -------
        array (n, d) of float32
            In the order of the images; all finite and between 0 and 1.

        Raises
        ------
        InvalidInput
            If `images` has another shape, is empty, holds anything but finite numbers (negative
            ones with `compress`), or has images smaller than one block.
        """
        settings = self._settings()
        smallest = settings["cell"] * settings["block"]
        pixels = image_array(images, smallest, "one block; choose a smaller 'cell' or 'block'")
        if not np.isfinite(pixels).all():
            raise InvalidInput("The images must hold finite numbers only.")
        if settings["compress"] and (pixels < 0).any():
            raise InvalidInput(
                "The images must hold no negative values when 'compress' is True. "
                "Shift them, or set compress=False."
            )
        work = partial(_histograms, **settings)
        return in_order(in_threads(pixels, work, _CHUNK, self.n_jobs), progress)

    def _settings(self) -> HOGSettings:
        return {
            "orientations": _checks.integer("orientations", self.orientations, least=1),
            "cell": _checks.integer("cell", self.cell, least=1),
            "block": _checks.integer("block", self.block, least=1),
            "compress": _checks.boolean("compress", self.compress),
        }


def _histograms(
    images: Images, orientations: int, cell: int, block: int, compress: bool
) -> Vectors:
    """Return the features of a chunk of images, float32 (n, d)."""
    from vicinal.features._hog_kernels import additions, bin_bounds, features_of

    few = max(1, _PIXELS // images[0].size)
    parts = [images[start : start + few] for start in range(0, len(images), few)]
    plan = bin_bounds(orientations), additions(block * block * orientations)
    done = [features_of(*_polar(part, compress), *plan, cell, block) for part in parts]
    return np.concatenate(done)


def _polar(images: Images, compress: bool) -> tuple[Doubles, Doubles]:
    """Return lengths and angles (n, h, w) of the gradients, in radians, number by number."""
    precision = np.float32 if images.dtype in (np.float16, np.float32) else np.float64
    pixels = images.astype(precision, copy=False)
    down, right = _gradients(np.sqrt(pixels) if compress else pixels)
    if images.ndim == 4:
        steepest = np.hypot(down, right).argmax(axis=3, keepdims=True)
        down, right = (np.take_along_axis(part, steepest, 3)[..., 0] for part in (down, right))
    down, right = down.astype(np.float64, copy=False), right.astype(np.float64, copy=False)
    return np.hypot(right, down), np.arctan2(down, right)


def _gradients(pixels: Images) -> tuple[Images, Images]:
    """Return differences of the two neighbours, down and to the right; none at the border."""
    down, right = np.zeros_like(pixels), np.zeros_like(pixels)
    np.subtract(pixels[:, 2:], pixels[:, :-2], out=down[:, 1:-1])
    np.subtract(pixels[:, :, 2:], pixels[:, :, :-2], out=right[:, :, 1:-1])
    return down, right
