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
    in_processes,
)


class HOGSettings(TypedDict):
    """Checked parameters of the extraction."""

    orientations: int
    cell: int
    block: int
    compress: bool


_CHUNK = 256
"""Images handed to a worker at a time: about a tenth of a second of work."""


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
        Number of processes, as joblib counts them: None for one, -1 for every core. The features
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
        return in_order(in_processes(pixels, work, _CHUNK, self.n_jobs), progress)

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
    from skimage.feature import hog

    of_image = partial(
        hog,
        orientations=orientations,
        pixels_per_cell=(cell, cell),
        cells_per_block=(block, block),
        block_norm="L2-Hys",
        transform_sqrt=compress,
        feature_vector=True,
        channel_axis=-1 if images.ndim == 4 else None,
    )
    return np.stack([of_image(image) for image in images]).astype(np.float32)
