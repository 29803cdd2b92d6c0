"""Scattering of images by wavelets: features that nobody has to learn, stronger than gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
from scipy import fft

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
from vicinal.features._wavelets import Shape, low_pass, wavelets

Spectra = npt.NDArray[np.complex64]

FLOORS = (0.03, 0.002, 0.0003)
"""Coefficients of order 0, 1 and 2 that count as small, for pixels between 0 and 1: about a tenth
of what they are on drawings and photographs. Below them features are linear, above logarithmic."""

_QUARTER = np.complex64(0.25)

_CHUNK = 128
"""Images handed to a worker at a time: about a tenth of a second of work."""


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
        Number of processes, as joblib counts them: None for one, -1 for every core. The features
        are the same whatever the number.

    Notes
    -----
    An image of h by w pixels has ``(h // 2**J) * (w // 2**J)`` cells of
    ``1 + J * L + J * (J - 1) / 2 * L**2`` numbers: 49 cells of 49 for 28 by 28 pixels with the
    defaults. Of a colour image every channel is scattered by itself. Borders are mirrored.

    What holds: images are worked on one at a time, so an image's features are the same bit for
    bit whichever others are passed. What does not: equality across machines and versions of
    numpy and scipy. Extract records and queries with one installation.
    """

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

    def transform(
        self, images: npt.ArrayLike, progress: Callable[[int], None] | None = None
    ) -> Vectors:
        """Return the features of `images`.

        Parameters
        ----------
        images
            Grey (n, h, w) or colour (n, h, w, 3), integers or floats between 0 and `white`.
        progress
            Called with the number of images just finished, several times in a run.

        Returns
        -------
        array (n, d) of float32
            In the order of the images; all finite and not negative.

        Raises
        ------
        InvalidInput
            If `images` has another shape, is empty, holds anything but numbers from 0 to `white`,
            or has images smaller than two cells.
        """
        settings = self._settings()
        pixels = _as_images(images, settings)
        work = partial(_features, settings=settings)
        return in_order(in_processes(pixels, work, _CHUNK, self.n_jobs), progress)

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


def _as_images(images: npt.ArrayLike, settings: _Settings) -> Images:
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
    orders = _scattered(_padded(plane, settings.cell), settings)
    parts = []
    for order, floor in zip(orders, FLOORS, strict=True):
        for means in order:
            inside = means[..., 1 : cells[0] + 1, 1 : cells[1] + 1]
            parts.append(np.log1p(np.maximum(inside, 0.0) / np.float32(floor)).ravel())
    return np.concatenate(parts)


def _padded(plane: Vectors, cell: int) -> Vectors:
    """Return the image mirrored by at least half a cell, to whole cells on every side.

    So the centre of the first cell comes to lie where a cell ends, and is kept by every
    subsampling.
    """
    half = cell // 2
    after = [half + -(length + 2 * half) % cell for length in plane.shape]
    return np.pad(plane, [(half, extra) for extra in after], mode="reflect")


def _scattered(plane: Vectors, settings: _Settings) -> tuple[list[Vectors], ...]:
    """Return the averages (..., h, w) over cells of orders 0, 1 and 2, by scales."""
    whole = fft.fft2(plane)
    first, second = [], []
    for scale in range(settings.scales):
        spectra = _moduli(whole, 0, scale, settings)
        first.append(_pooled(spectra, scale, settings.scales))
        for coarser in range(scale + 1, settings.scales):
            deeper = _moduli(spectra[:, None], scale, coarser, settings)
            second.append(_pooled(deeper, coarser, settings.scales))
    return [_pooled(whole, 0, settings.scales)], first, second


def _moduli(spectra: Spectra, level: int, scale: int, settings: _Settings) -> Spectra:
    """Return spectra (..., L, h, w) of moduli of responses, subsampled from `level` to `scale`.

    At level r only every 2**r-th pixel is left, so that the wavelets are that much finer.
    """
    filters = wavelets(_shape(spectra), scale - level, settings.orientations)
    responses = fft.ifft2(_folded(spectra * filters, scale - level))
    return np.asarray(fft.fft2(np.sqrt(responses.real**2 + responses.imag**2)))


def _pooled(spectra: Spectra, level: int, scales: int) -> Vectors:
    averages = spectra * low_pass(_shape(spectra), scales - level)
    return np.asarray(fft.ifft2(_folded(averages, scales - level)).real)


def _folded(spectra: Spectra, octaves: int) -> Spectra:
    """Return the spectra of images of which every 2**octaves-th pixel is kept."""
    for _ in range(octaves):
        height, width = (length // 2 for length in _shape(spectra))
        upper = spectra[..., :height, :] + spectra[..., height:, :]
        spectra = np.multiply(upper[..., :width] + upper[..., width:], _QUARTER)
    return spectra


def _shape(spectra: Spectra) -> Shape:
    return spectra.shape[-2], spectra.shape[-1]
