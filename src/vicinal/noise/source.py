"""Discrete Gaussian noise on the integers, from the operating system's entropy or from a seed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import opendp.prelude as opendp

from vicinal import checks

MAX_SCALE = 1 << 40
"""Largest noise scale in grid steps; forty standard deviations stay far inside int64."""

opendp.enable_features("contrib")


class NoiseSource(ABC):
    """Draws integers whose law is P(x) proportional to exp(-x^2 / (2 scale^2)).

    A source whose `exact` is True draws from exactly that law, independently of everything else
    and of all other draws, with randomness that nobody can predict. Only such a source carries a
    guarantee.
    """

    exact: bool

    @abstractmethod
    def discrete_gaussian(self, scale: int, size: int) -> npt.NDArray[np.int64]:
        """Return `size` independent draws, int64 (size,), of noise scale `scale` (grid steps)."""


class SystemNoise(NoiseSource):
    """Exact sampling (Canonne, Kamath & Steinke 2020) by OpenDP, entropy from the system."""

    exact = True

    def discrete_gaussian(self, scale: int, size: int) -> npt.NDArray[np.int64]:
        """Return exact draws; one vector call for all of them."""
        mechanism = _opendp_gaussian(checks.integer("scale", scale, least=1, most=MAX_SCALE))
        zeros = [0] * checks.integer("size", size, least=0)
        return np.asarray(mechanism(zeros), dtype=np.int64)


@lru_cache(maxsize=64)
def _opendp_gaussian(scale: int) -> Any:
    # "i64": OpenDP reads the plain type `int` as 32 bits, which this noise would overflow.
    space = opendp.vector_domain(opendp.atom_domain(T="i64")), opendp.l2_distance(T="f64")
    return opendp.m.make_gaussian(*space, scale=float(scale))


class SimulatedNoise(NoiseSource):
    """Repeatable noise for experiments: rounded normals from a seed, carrying no guarantee."""

    exact = False

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(checks.integer("seed", seed, least=0))

    def discrete_gaussian(self, scale: int, size: int) -> npt.NDArray[np.int64]:
        """Return rounded normal draws, the same for the same seed and the same calls."""
        scale = checks.integer("scale", scale, least=1, most=MAX_SCALE)
        return np.rint(self._generator.standard_normal(size) * scale).astype(np.int64)
