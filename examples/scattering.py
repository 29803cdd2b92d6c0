"""A custom extractor: scattering of images by wavelets, in place of histograms of gradients.

An extractor maps each image to a vector that depends on that image alone, so it may see private
images before any budget is spent. Its vectors go into an estimator, or into a store as columns:

    features = ScatteringFeatures().transform(images)          # float32 (n, d)
    reduced = PublicMap(400, power=1.0).fit(public).transform(features)

On small grey images it gains one to three points of accuracy over `HOGFeatures`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import numpy.typing as npt
from scipy import fft

from vicinal import checks
from vicinal.arrays import AnyArray, Floats, Floats32
from vicinal.compiled import compiled
from vicinal.errors import InvalidInput
from vicinal.features import fixed

# ---------------------------------------------------------------- compiled steps

Spectrum = Floats32
Shape = tuple[int, int]

_WIDTH = 0.8
"""Deviation in pixels of the finest envelope."""

_FREQUENCY = 3 * math.pi / 4
"""Centre of the finest wavelet, in radians a pixel."""

_UNROLLED, _LANES = 4, 8
"""Rows that are added up at a time, and numbers in a vector."""

_ALIASES = range(-2, 3)
"""Periods of 2 pi that are added up; beyond them a Gaussian is below 1e-16."""


@lru_cache(maxsize=64)
def wavelets(shape: Shape, scale: int, orientations: int) -> Spectrum:
    """Return spectra (orientations, h, w) of the wavelets of one scale, read-only.

    Directions are spread evenly over half a turn, which is enough for real images.
    """
    turns = math.pi * np.arange(orientations) / orientations
    return _frozen(np.stack([_morlet(shape, scale, turn, 4 / orientations) for turn in turns]))


@lru_cache(maxsize=64)
def low_pass(shape: Shape, scale: int) -> Spectrum:
    """Return the spectrum (h, w) of a Gaussian that is 0.4 * 2**scale pixels wide, read-only.

    Its values in space add up to one.
    """
    averaging = _gaussian(shape, _WIDTH * 2.0 ** (scale - 1), (0.0, 0.0), 0.0, 1.0)
    return _frozen(averaging / averaging[0, 0])


def _morlet(shape: Shape, scale: int, turn: float, slant: float) -> Floats:
    width, frequency = _WIDTH * 2.0**scale, _FREQUENCY / 2.0**scale
    centre = frequency * math.sin(turn), frequency * math.cos(turn)
    wave = _gaussian(shape, width, centre, turn, slant)
    envelope = _gaussian(shape, width, (0.0, 0.0), turn, slant)
    return np.asarray(wave - wave[0, 0] / envelope[0, 0] * envelope)


def _gaussian(
    shape: Shape, width: float, centre: tuple[float, float], turn: float, slant: float
) -> Floats:
    """Return a Gaussian around a frequency (down, right), longer across `turn` for slant < 1."""
    down, right = np.meshgrid(
        *(2 * math.pi * np.fft.fftfreq(length) for length in shape), indexing="ij"
    )
    values = np.zeros(shape)
    for m in _ALIASES:
        for n in _ALIASES:
            y, x = down + 2 * math.pi * m - centre[0], right + 2 * math.pi * n - centre[1]
            along = x * math.cos(turn) + y * math.sin(turn)
            across = y * math.cos(turn) - x * math.sin(turn)
            values += np.exp(-(width**2) / 2 * (along**2 + (across / slant) ** 2))
    return values


def _frozen(spectrum: Floats) -> Spectrum:
    single = spectrum.astype(np.float32)
    single.flags.writeable = False
    return single


Spectra = npt.NDArray[np.complex64]


def responses(spectra: Spectra, scale: int, orientations: int) -> Spectra:
    """Return responses of spectra (k, h, w) to all wavelets of a scale, every 2**scale-th pixel.

    Shape (k * orientations, h / 2**scale, w / 2**scale); the wavelets of scale 0 are the finest.
    """
    filters = _pairs(spectra.shape[1:], scale, orientations)
    planes = folded(spectra.view(np.float32), filters, 1 << scale)
    return np.asarray(planes.view(np.complex64))


@lru_cache(maxsize=64)
def _pairs(shape: Shape, scale: int, orientations: int) -> Floats32:
    """Return wavelets divided by the number of aliases, each number twice in a row."""
    share = np.float32(0.25**scale)
    return np.repeat(wavelets(shape, scale, orientations) * share, 2, axis=2)


@compiled
def folded(spectra: Floats32, filters: Floats32, step: int) -> Floats32:
    """Return products of spectra (k, h, 2 w) and filters (l, h, 2 w), aliases added up."""
    k, height, width = spectra.shape
    few, narrow = height // step, width // step
    planes = np.zeros((k * len(filters), few, narrow), np.float32)
    sums = np.empty(width, np.float32)
    for i in range(len(planes)):
        image, wavelet = spectra[i // len(filters)], filters[i % len(filters)]
        for y in range(few):
            if step == 2:  # both sums at once, each of two products
                z = y + few
                for x in range(narrow):
                    first = image[y, x] * wavelet[y, x] + image[z, x] * wavelet[z, x]
                    v = x + narrow
                    second = image[y, v] * wavelet[y, v] + image[z, v] * wavelet[z, v]
                    planes[i, y, x] = (planes[i, y, x] + first) + second
                continue
            sums[:] = 0
            for alias in range(y, height, few):
                for x in range(width):
                    sums[x] += image[alias, x] * wavelet[alias, x]
            for start in range(0, width, narrow):
                for x in range(narrow):
                    planes[i, y, x] += sums[start + x]
    return planes


@compiled
def moduli(values: Spectra) -> Floats32:
    """Return the moduli (k, h, w) of complex numbers."""
    lengths = np.empty(values.shape, np.float32)
    for i in range(values.shape[0]):
        for y in range(values.shape[1]):
            for x in range(values.shape[2]):
                real, imaginary = values[i, y, x].real, values[i, y, x].imag
                lengths[i, y, x] = np.sqrt(real * real + imaginary * imaginary)
    return lengths


def averages(planes: Floats32, octaves: int, cells: Shape) -> Floats32:
    """Return averages (k, *cells) of planes (k, h, w) around the inner multiples of 2**octaves."""
    down, right = (
        _sampling(length, octaves, count)
        for length, count in zip(planes.shape[1:], cells, strict=True)
    )
    return np.asarray(pooled(planes, down, right))


@lru_cache(maxsize=64)
def _sampling(length: int, octaves: int, count: int) -> Floats32:
    """Return the matrix (count, length) that averages one direction of a periodic plane.

    The average of the plane is the product of two such, as a Gaussian's spectrum is one.
    """
    spectrum = low_pass((length, length), octaves)[:, 0].astype(np.float64)
    kernel = np.fft.ifft(spectrum).real
    centres = (1 + np.arange(count)) << octaves
    return np.asarray(kernel[centres[:, None] - np.arange(length)], dtype=np.float32)


@compiled
def pooled(planes: Floats32, down: Floats32, right: Floats32) -> Floats32:
    """Return ``down @ plane @ right.T`` for planes (k, h, w): (k, cells down, cells to the right).

    Every sum begins with the first pixel; columns and cells to the right are the vectors.
    """
    height, width = planes.shape[1:]
    tall, wide = height + -height % _UNROLLED, width + -width % _UNROLLED
    means = np.empty((len(planes), len(down), len(right)), np.float32)
    # What is filled up with zeros adds nothing, and changes no bit.
    weights = np.zeros((len(down), tall), np.float32)
    weights[:, :height] = down
    across = np.zeros((wide, len(right) + -len(right) % _LANES), np.float32)
    across[:width, : len(right)] = right.T
    plane = np.zeros((tall, width), np.float32)
    sums, row = np.zeros(wide, np.float32), np.empty(across.shape[1], np.float32)
    for i in range(len(planes)):
        plane[:height] = planes[i]
        for y in range(len(down)):
            sums[:] = 0
            for u in range(0, tall, _UNROLLED):
                a, b, c, d = weights[y, u], weights[y, u + 1], weights[y, u + 2], weights[y, u + 3]
                for v in range(width):
                    two = (sums[v] + a * plane[u, v]) + b * plane[u + 1, v]
                    sums[v] = (two + c * plane[u + 2, v]) + d * plane[u + 3, v]
            row[:] = 0
            for v in range(0, wide, _UNROLLED):
                a, b, c, d = sums[v], sums[v + 1], sums[v + 2], sums[v + 3]
                for x in range(len(row)):
                    two = (row[x] + a * across[v, x]) + b * across[v + 1, x]
                    row[x] = (two + c * across[v + 2, x]) + d * across[v + 3, x]
            means[i, y] = row[: len(right)]
    return means


FLOORS = (0.03, 0.002, 0.0003)
"""Coefficients of order 0, 1 and 2 that count as small, for pixels between 0 and 1: about a tenth
of what they are on drawings and photographs. Below them features are linear, above logarithmic."""

_CHUNK = 128
"""Images handed to a thread at a time."""

_TOGETHER = 8
"""Channels whose planes fit a core's cache beside each other."""


class ScatteringFeatures(fixed.FixedImageFeatures):
    r"""Logarithms of the scattering coefficients of every image, orders 0 to 2.

    Order 0 is the image, order 1 the modulus of its response to an oriented wavelet, order 2 the
    modulus of *that* image's response to a coarser one; each is averaged over cells. What order 1
    keeps is much like a histogram of gradients; order 2 brings back the textures, corners and
    stripes that averaging loses. Source: Bruna & Mallat 2013, *Invariant scattering convolution
    networks*; logarithms as in Anden & Mallat 2014, *Deep scattering spectrum*.

    The features of an image are a function of that image alone: nothing is learnt, and no other
    image is looked at. That is why extracting them from private images costs no privacy. There are
    many of them, so pass them through a :class:`~vicinal.features.PublicMap`. The best one that we
    measured keeps 400 components and whitens them, ``power=1``. With only a few thousand records,
    noise is large, and gradients are better (docs/decisions/0012-scattering.md).

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

    Examples
    --------
    >>> import numpy as np
    >>> from examples.scattering import ScatteringFeatures
    >>> images = np.zeros((2, 28, 28), dtype=np.uint8)
    >>> len(ScatteringFeatures().transform(images))
    2
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

    def _compute_blocks(self, images: fixed.AnyImages) -> Iterable[fixed.Vectors]:
        settings = self._settings()
        pixels = _as_images(images, settings)
        work = partial(_features, settings=settings)
        return fixed.extract_in_threads(pixels, work, _CHUNK, self.n_jobs)

    def _settings(self) -> _Settings:
        return _Settings(
            checks.check_real("white", self.white, above=0),
            checks.check_integer("scales", self.scales, minimum=1, maximum=6),
            checks.check_integer("orientations", self.orientations, minimum=1, maximum=32),
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


def _as_images(images: fixed.AnyImages, settings: _Settings) -> fixed.Images:
    """Return `images` as an array of numbers, or say what is wrong with them."""
    pixels = fixed.check_images(images, 2 * settings.cell, "two cells", "choose a smaller 'scales'")
    if not (np.isfinite(pixels).all() and pixels.min() >= 0 and pixels.max() <= settings.white):
        raise InvalidInput(
            f"The images must hold numbers from 0 to 'white', which is {settings.white:g}. Got "
            "others; shift or scale the images, or set 'white'."
        )
    return pixels


def _features(images: fixed.Images, settings: _Settings) -> fixed.Vectors:
    """Return the features of a chunk of images, (n, d), some at a time."""
    planes = images[:, None] if images.ndim == 3 else np.moveaxis(images, -1, 1)
    scaled = (planes.astype(np.float64) / settings.white).astype(np.float32)
    flat = scaled.reshape(-1, *scaled.shape[2:])
    parts = [
        _of_planes(flat[start : start + _TOGETHER], settings)
        for start in range(0, len(flat), _TOGETHER)
    ]
    return np.concatenate(parts).reshape(len(images), -1)


def _of_planes(planes: fixed.Vectors, settings: _Settings) -> fixed.Vectors:
    """Return the features of some channels (n, h, w), order after order, (n, d)."""
    cells = planes.shape[1] // settings.cell, planes.shape[2] // settings.cell
    orders = _scattered(_padded(planes, settings.cell), cells, settings)
    floors = zip(orders, map(np.float32, FLOORS), strict=True)
    parts = [np.log1p(np.maximum(means, 0) / floor) for order, floor in floors for means in order]
    return np.concatenate([part.reshape(len(planes), -1) for part in parts], axis=1)


def _padded(planes: fixed.Vectors, cell: int) -> fixed.Vectors:
    """Return images mirrored by at least half a cell, to whole cells on every side.

    So the centre of the first cell comes to lie where a cell ends, and is kept by every
    subsampling.
    """
    down, right = (_mirrored(length, cell) for length in planes.shape[1:])
    return planes[:, down[:, None], right]


@lru_cache(maxsize=64)
def _mirrored(length: int, cell: int) -> npt.NDArray[np.intp]:
    half = cell // 2
    return np.pad(np.arange(length), (half, half + -(length + 2 * half) % cell), mode="reflect")


def _scattered(
    planes: fixed.Vectors, cells: Shape, settings: _Settings
) -> tuple[list[fixed.Vectors], ...]:
    """Return the averages (n * k, *cells) of orders 0, 1 and 2, by scales, image after image.

    At scale r only every 2**r-th pixel is left, so that coarser wavelets are that much finer.
    """
    scales, directions, count = settings.scales, settings.orientations, len(planes)
    first, second = [], []
    spectra = _transformed(fft.fft2, planes, count)
    for scale in range(scales):
        responded = responses(spectra, scale, directions)
        once = moduli(_transformed(fft.ifft2, responded, count))
        first.append(averages(once, scales - scale, cells))
        for coarser in range(scale + 1, scales):
            responded = responses(_transformed(fft.fft2, once, count), coarser - scale, directions)
            twice = moduli(_transformed(fft.ifft2, responded, count))
            second.append(averages(twice, scales - coarser, cells))
    return [averages(planes, scales, cells)], first, second


def _transformed(
    transform: Callable[[AnyArray], AnyArray], planes: AnyArray, count: int
) -> AnyArray:
    """Return transforms of planes (n * k, h, w) of n = `count` images, one image after the other.

    A library takes lines in groups as wide as the processor's vectors, and may fuse products into
    sums in groups but not in what is left of them: then a line's last bits follow from its place.
    """
    return np.concatenate([transform(each) for each in np.split(planes, count)])
