r"""Wavelets for images, as spectra: oriented Morlet wavelets and the Gaussian that pools them.

Source: Bruna & Mallat 2013, *Invariant scattering convolution networks*, section 2.1. The wavelet
of scale j has its Gaussian envelope, :math:`0.8 \cdot 2^j` pixels wide and drawn out along its
stripes, around the frequency :math:`3 \pi / (4 \cdot 2^j)`; a multiple of the envelope is taken
off, so that it answers nothing to a constant image.

All spectra are real, and are those of periodic images: sums over the frequencies that look alike
on a grid of pixels.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Spectrum = npt.NDArray[np.float32]
Shape = tuple[int, int]

_WIDTH = 0.8
"""Deviation in pixels of the finest envelope."""

_FREQUENCY = 3 * math.pi / 4
"""Centre of the finest wavelet, in radians a pixel."""

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


def _morlet(shape: Shape, scale: int, turn: float, slant: float) -> npt.NDArray[np.float64]:
    width, frequency = _WIDTH * 2.0**scale, _FREQUENCY / 2.0**scale
    centre = frequency * math.sin(turn), frequency * math.cos(turn)
    wave = _gaussian(shape, width, centre, turn, slant)
    envelope = _gaussian(shape, width, (0.0, 0.0), turn, slant)
    return np.asarray(wave - wave[0, 0] / envelope[0, 0] * envelope)


def _gaussian(
    shape: Shape, width: float, centre: tuple[float, float], turn: float, slant: float
) -> npt.NDArray[np.float64]:
    """Return a Gaussian around a frequency (down, right), longer across `turn` for slant < 1."""
    down, right = np.meshgrid(
        *(2 * math.pi * np.fft.fftfreq(length) for length in shape), indexing="ij"
    )
    found = np.zeros(shape)
    for m in _ALIASES:
        for n in _ALIASES:
            y, x = down + 2 * math.pi * m - centre[0], right + 2 * math.pi * n - centre[1]
            along = x * math.cos(turn) + y * math.sin(turn)
            across = y * math.cos(turn) - x * math.sin(turn)
            found += np.exp(-(width**2) / 2 * (along**2 + (across / slant) ** 2))
    return found


def _frozen(spectrum: npt.NDArray[np.float64]) -> Spectrum:
    single = spectrum.astype(np.float32)
    single.flags.writeable = False
    return single
