"""Scattering of images by wavelets: features that nobody has to learn, stronger than gradients."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import numpy.typing as npt
from scipy import fft

from vicinal import _checks
from vicinal.errors import InvalidInput
from vicinal.features._fixed import (
    AnyImages,
    FixedImageFeatures,
    Images,
    Vectors,
    image_array,
    in_threads,
)
from vicinal.features._scattering_kernels import Shape

FLOORS = (0.03, 0.002, 0.0003)
"""Coefficients of order 0, 1 and 2 that count as small, for pixels between 0 and 1: about a tenth
of what they are on drawings and photographs. Below them features are linear, above logarithmic."""

_CHUNK = 128
"""Images handed to a thread at a time."""


class ScatteringFeatures(FixedImageFeatures):
    r"""Logarithms of the scattering coefficients of every image, orders 0 to 2.

    Order 0 is the image, order 1 the modulus of its response to an oriented wavelet, order 2 the
    modulus of *that* image's response to a coarser one; each is averaged over cells. What order 1
    keeps is much like a histogram of gradients; order 2 brings back the textures, corners and
    stripes that averaging loses. Source: Bruna & Mallat 2013, *Invariant scattering convolution
    networks*; logarithms as in Anden & Mallat 2014, *Deep scattering spectrum*.

    The features of an image are a function of that image alone: nothing is learnt, and no other
    image is looked at. That is why extracting them from private images costs no privacy. They are
    many, so give them to a :class:`~vicinal.features.PublicMap`; the one that measured best keeps
    400 components and whitens them, ``power=1``. That is for many records: where noise is large, as
    with a few thousand of them, it loses to gradients (docs/decisions/0012-scattering.md).

    Parameters
    ----------
    white : float
        The pixel value that counts as one: 255 for bytes, 1 for floats between 0 and 1.
    scales : int
        Number J of octaves. A cell is 2**J pixels wide and high.
    orientations : int
        Number L of directions of a wavelet.
    n_jobs : int, optional
        Number of threads, as joblib counts them: None for one, -1 for every core. The features
        are the same whatever the number.

    Notes
    -----
    An image of h by w pixels has ``(h // 2**J) * (w // 2**J)`` cells of
    ``1 + J * L + J * (J - 1) / 2 * L**2`` numbers: 49 cells of 49 for 28 by 28 pixels with the
    defaults. Of a colour image every channel is scattered by itself. Borders are mirrored.

    What holds: images are worked on one at a time, so an image's features are the same bit for
    bit whichever others are passed. What does not: equality across machines and versions of
    numpy and scipy. Extract records and queries with one installation.

    Attributes
    ----------
    edition : int
        Which definition of the arithmetic this is; a store refuses another than it was made with.
        1 averaged in the Fourier domain; 2 averages in space, and differs by 1e-6.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import ScatteringFeatures
    >>> images = np.zeros((2, 28, 28), dtype=np.uint8)
    >>> len(ScatteringFeatures().transform(images))
    2
    """

    edition = 2

    def __init__(
        self,
        white: float = 255.0,
        scales: int = 2,
        orientations: int = 6,
        n_jobs: int | None = None,
    ) -> None:
        self.white = white
        self.scales = scales
        self.orientations = orientations
        self.n_jobs = n_jobs

    def _parts(self, images: AnyImages) -> Iterable[Vectors]:
        settings = self._settings()
        pixels = _as_images(images, settings)
        work = partial(_features, settings=settings)
        return in_threads(pixels, work, _CHUNK, self.n_jobs)

    def _settings(self) -> _Settings:
        return _Settings(
            _checks.real("white", self.white, above=0),
            _checks.integer("scales", self.scales, least=1, most=6),
            _checks.integer("orientations", self.orientations, least=1, most=32),
        )


@dataclass(frozen=True, slots=True)
class _Settings:
    """Checked parameters of the extraction."""

    white: float
    scales: int
    orientations: int

    @property
    def cell(self) -> int:
        return int(2**self.scales)


def _as_images(images: AnyImages, settings: _Settings) -> Images:
    """Return `images` as an array of numbers, or say what is wrong with them."""
    pixels = image_array(images, 2 * settings.cell, "two cells; choose a smaller 'scales'")
    if not (np.isfinite(pixels).all() and pixels.min() >= 0 and pixels.max() <= settings.white):
        raise InvalidInput(
            f"The images must hold numbers from 0 to 'white', which is {settings.white:g}. Got "
            "others; shift or scale the images, or set 'white'."
        )
    return pixels


def _features(images: Images, settings: _Settings) -> Vectors:
    """Return the features of a chunk of images, (n, d); no computation sees two of them."""
    return np.stack([_of_one(image, settings) for image in images])


def _of_one(image: Images, settings: _Settings) -> Vectors:
    planes = image[None] if image.ndim == 2 else np.moveaxis(image, -1, 0)
    scaled = planes.astype(np.float64) / settings.white
    parts = [_of_plane(plane.astype(np.float32), settings) for plane in scaled]
    return np.concatenate(parts)


def _of_plane(plane: Vectors, settings: _Settings) -> Vectors:
    """Return the features of one channel (h, w), order after order, (d,)."""
    cells = plane.shape[0] // settings.cell, plane.shape[1] // settings.cell
    orders = _scattered(_padded(plane, settings.cell), cells, settings)
    floors = zip(orders, map(np.float32, FLOORS), strict=True)
    parts = [np.log1p(np.maximum(means, 0) / floor) for order, floor in floors for means in order]
    return np.concatenate([part.ravel() for part in parts])


def _padded(plane: Vectors, cell: int) -> Vectors:
    """Return the image mirrored by at least half a cell, to whole cells on every side.

    So the centre of the first cell comes to lie where a cell ends, and is kept by every
    subsampling.
    """
    down, right = (_mirrored(length, cell) for length in plane.shape)
    return plane[down[:, None], right]


@lru_cache(maxsize=64)
def _mirrored(length: int, cell: int) -> npt.NDArray[np.intp]:
    half = cell // 2
    return np.pad(np.arange(length), (half, half + -(length + 2 * half) % cell), mode="reflect")


def _scattered(plane: Vectors, cells: Shape, settings: _Settings) -> tuple[list[Vectors], ...]:
    """Return the averages (k, *cells) of orders 0, 1 and 2, by scales.

    At scale r only every 2**r-th pixel is left, so that coarser wavelets are that much finer.
    """
    from vicinal.features._scattering_kernels import averages, moduli, responses

    scales, directions = settings.scales, settings.orientations
    first, second = [], []
    spectrum = fft.fft2(plane)[None]
    for scale in range(scales):
        planes = moduli(fft.ifft2(responses(spectrum, scale, directions)))
        first.append(averages(planes, scales - scale, cells))
        for coarser in range(scale + 1, scales):
            deeper = fft.ifft2(responses(fft.fft2(planes), coarser - scale, directions))
            second.append(averages(moduli(deeper), scales - coarser, cells))
    return [averages(plane[None], scales, cells)], first, second
