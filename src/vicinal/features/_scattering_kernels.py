r"""Compiled steps of scattering: wavelets, responses to them, moduli, averages over cells.

Every loop adds up in one fixed order, whatever else is computed. Complex numbers are pairs of
floats here, so that all arithmetic is real and the inner loops are vectors.

Wavelets are oriented Morlet wavelets (Bruna & Mallat 2013, *Invariant scattering convolution
networks*, section 2.1). That of scale j has its Gaussian envelope, :math:`0.8 \cdot 2^j` pixels
wide and drawn out along its stripes, around the frequency :math:`3 \pi / (4 \cdot 2^j)`; a multiple
of the envelope is taken off, so that it answers nothing to a constant image. All spectra are real,
and are those of periodic images: sums over the frequencies that look alike on a grid of pixels.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from vicinal._arrays import Floats, Floats32
from vicinal._compiled import compiled

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
