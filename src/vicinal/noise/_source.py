"""Discrete noise on the integers: what a source must deliver, and one for simulations."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

from vicinal import _checks
from vicinal.noise._cks20 import MAX_SCALE

__all__ = ["MAX_SCALE", "NoiseSource", "SimulatedNoise", "checked"]


class NoiseSource(ABC):
    """Draws integers from discrete Gaussian and discrete Laplace laws.

    A source whose `exact` is True draws from exactly the stated law, independently of everything
    else and of all other draws, with randomness that nobody can predict. Only such a source
    carries a guarantee.
    """

    exact: bool

    @abstractmethod
    def discrete_gaussian(self, scale: int, size: int) -> npt.NDArray[np.int64]:
        """Return `size` draws, int64 (size,), P(x) proportional to exp(-x^2 / (2 scale^2)).

        `scale` is in grid steps, a whole number from 1 to 2^40; anything else raises InvalidInput.
        """

    def discrete_laplace(self, scale: int, size: int) -> npt.NDArray[np.int64]:
        """Return `size` draws, int64 (size,), P(x) proportional to exp(-|x| / scale).

        `scale` is in grid steps, a whole number from 1 to 2^40; anything else raises InvalidInput.
        A source without Laplace noise raises NotImplementedError.
        """
        raise NotImplementedError


def checked(scale: object, size: object) -> tuple[int, int]:
    """Return a noise scale in grid steps and a number of draws, or raise InvalidInput."""
    return (
        _checks.integer("scale", scale, least=1, most=MAX_SCALE),
        _checks.integer("size", size, least=0),
    )


class SimulatedNoise(NoiseSource):
    """Repeatable noise for experiments: rounded reals from a seed, carrying no guarantee."""

    exact = False

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(_checks.integer("seed", seed, least=0))

    def discrete_gaussian(self, scale: int, size: int) -> npt.NDArray[np.int64]:
        """Return rounded normal draws, the same for the same seed and the same calls."""
        scale, size = checked(scale, size)
        return np.rint(self._generator.standard_normal(size) * scale).astype(np.int64)

    def discrete_laplace(self, scale: int, size: int) -> npt.NDArray[np.int64]:
        """Return rounded Laplace draws, the same for the same seed and the same calls."""
        scale, size = checked(scale, size)
        return np.rint(self._generator.laplace(0.0, scale, size)).astype(np.int64)
