"""Compiled steps of scattering: responses to wavelets, their moduli, averages over cells.

Every loop adds up in one fixed order, whatever else is computed. Complex numbers are pairs of
floats here, so that all arithmetic is real and the inner loops are vectors.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from vicinal._compiled import compiled
from vicinal.features._wavelets import Shape, low_pass, wavelets

Singles = npt.NDArray[np.float32]
Spectra = npt.NDArray[np.complex64]


def responses(spectra: Spectra, scale: int, orientations: int) -> Spectra:
    """Return responses of spectra (k, h, w) to all wavelets of a scale, every 2**scale-th pixel.

    Shape (k * orientations, h / 2**scale, w / 2**scale); the wavelets of scale 0 are the finest.
    """
    filters = _pairs(spectra.shape[1:], scale, orientations)
    found = folded(spectra.view(np.float32), filters, 1 << scale)
    return np.asarray(found.view(np.complex64))


@lru_cache(maxsize=64)
def _pairs(shape: Shape, scale: int, orientations: int) -> Singles:
    """Return wavelets divided by the number of aliases, each number twice in a row."""
    share = np.float32(0.25**scale)
    return np.repeat(wavelets(shape, scale, orientations) * share, 2, axis=2)


@compiled
def folded(spectra: Singles, filters: Singles, step: int) -> Singles:
    """Return products of spectra (k, h, 2 w) and filters (l, h, 2 w), aliases added up."""
    k, height, width = spectra.shape
    few, narrow = height // step, width // step
    found = np.zeros((k * len(filters), few, narrow), np.float32)
    sums = np.empty(width, np.float32)
    for i in range(len(found)):
        image, wavelet = spectra[i // len(filters)], filters[i % len(filters)]
        for y in range(few):
            sums[:] = 0
            for alias in range(y, height, few):
                for x in range(width):
                    sums[x] += image[alias, x] * wavelet[alias, x]
            for start in range(0, width, narrow):
                for x in range(narrow):
                    found[i, y, x] += sums[start + x]
    return found


@compiled
def moduli(values: Spectra) -> Singles:
    """Return the moduli (k, h, w) of complex numbers."""
    found = np.empty(values.shape, np.float32)
    for i in range(values.shape[0]):
        for y in range(values.shape[1]):
            for x in range(values.shape[2]):
                real, imaginary = values[i, y, x].real, values[i, y, x].imag
                found[i, y, x] = np.sqrt(real * real + imaginary * imaginary)
    return found


def averages(planes: Singles, octaves: int, cells: Shape) -> Singles:
    """Return averages (k, *cells) of planes (k, h, w) around the inner multiples of 2**octaves."""
    down, right = (
        _sampling(length, octaves, count)
        for length, count in zip(planes.shape[1:], cells, strict=True)
    )
    return np.asarray(pooled(planes, down, right.T.copy()))


@lru_cache(maxsize=64)
def _sampling(length: int, octaves: int, count: int) -> Singles:
    """Return the matrix (count, length) that averages one direction of a periodic plane.

    The average of the plane is the product of two such, as a Gaussian's spectrum is one.
    """
    spectrum = low_pass((length, length), octaves)[:, 0].astype(np.float64)
    kernel = np.fft.ifft(spectrum).real
    centres = (1 + np.arange(count)) << octaves
    return np.asarray(kernel[centres[:, None] - np.arange(length)], dtype=np.float32)


@compiled
def pooled(planes: Singles, down: Singles, right: Singles) -> Singles:
    """Return ``down @ plane @ right`` for planes (k, h, w): (k, cells down, cells to the right)."""
    found = np.zeros((len(planes), down.shape[0], right.shape[1]), np.float32)
    sums = np.empty(planes.shape[2], np.float32)
    for i in range(len(planes)):
        for y in range(down.shape[0]):
            sums[:] = 0
            for u in range(planes.shape[1]):
                for v in range(len(sums)):
                    sums[v] += down[y, u] * planes[i, u, v]
            for v in range(len(sums)):
                for x in range(right.shape[1]):
                    found[i, y, x] += sums[v] * right[v, x]
    return found
