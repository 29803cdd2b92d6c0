"""Histograms of oriented gradients: image features that nobody has to learn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Self, TypedDict

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin

from vicinal import checks
from vicinal.errors import InvalidInput

Images = npt.NDArray[Any]
Vectors = npt.NDArray[np.float32]


class Settings(TypedDict):
    """Checked parameters of the extraction."""

    orientations: int
    cell: int
    block: int
    compress: bool


_CHUNK = 256
"""Images handed to a worker at a time: about a tenth of a second of work."""


class HOGFeatures(TransformerMixin, BaseEstimator):
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

    def fit(self, images: object = None, y: object = None) -> Self:  # noqa: ARG002
        """Return self; there is nothing to learn."""
        return self

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
        pixels = _as_images(images, smallest=settings["cell"] * settings["block"])
        if settings["compress"] and (pixels < 0).any():
            raise InvalidInput(
                "The images must hold no negative values when 'compress' is True. "
                "Shift them, or set compress=False."
            )
        parts = []
        for part in self._extracted(pixels, settings):
            parts.append(part)
            if progress is not None:
                progress(len(part))
        return np.concatenate(parts)

    def _settings(self) -> Settings:
        return {
            "orientations": checks.integer("orientations", self.orientations, least=1),
            "cell": checks.integer("cell", self.cell, least=1),
            "block": checks.integer("block", self.block, least=1),
            "compress": checks.boolean("compress", self.compress),
        }

    def _extracted(self, pixels: Images, settings: Settings) -> Iterator[Vectors]:
        from joblib import Parallel, delayed

        chunks = (pixels[start : start + _CHUNK] for start in range(0, len(pixels), _CHUNK))
        work = Parallel(n_jobs=self.n_jobs, return_as="generator")
        results: Iterator[Vectors] = work(delayed(_histograms)(c, **settings) for c in chunks)
        return results

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that images go in, and that no fit is needed."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.requires_fit = False
        return tags


def _as_images(images: npt.ArrayLike, smallest: int) -> Images:
    """Return `images` as an array of numbers, or say what is wrong with them."""
    try:
        pixels = np.asarray(images)
    except ValueError:
        raise InvalidInput("The images must all have the same height and width.") from None
    if pixels.dtype.kind not in "uif":
        raise InvalidInput(f"The images must hold integers or floats. Got dtype {pixels.dtype}.")
    if pixels.ndim not in (3, 4) or pixels.shape[3:] not in ((), (3,)):
        raise InvalidInput(
            "The images must be an array (n, h, w), or (n, h, w, 3) for colour. "
            f"Got {pixels.ndim} dimensions; put a single image into an array of one."
        )
    if len(pixels) == 0:
        raise InvalidInput("The images must be at least one. Got none.")
    if min(pixels.shape[1:3]) < smallest:
        raise InvalidInput(
            f"The images must be at least {smallest} pixels high and wide, which is one block. "
            f"Got {pixels.shape[1]} by {pixels.shape[2]}; choose a smaller 'cell' or 'block'."
        )
    if not np.isfinite(pixels).all():
        raise InvalidInput("The images must hold finite numbers only.")
    return pixels


def _histograms(
    images: Images, orientations: int, cell: int, block: int, compress: bool
) -> Vectors:
    """Return the features of a chunk of images, float32 (n, d)."""
    from skimage.feature import hog

    def one(image: Images) -> npt.NDArray[Any]:
        features: npt.NDArray[Any] = hog(
            image,
            orientations=orientations,
            pixels_per_cell=(cell, cell),
            cells_per_block=(block, block),
            block_norm="L2-Hys",
            transform_sqrt=compress,
            feature_vector=True,
            channel_axis=-1 if image.ndim == 3 else None,
        )
        return features

    return np.stack([one(image) for image in images]).astype(np.float32)
