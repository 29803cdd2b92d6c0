r"""Cosine and RBF kernels over integer features.

A pair (record x, query q) has an exact integer *similarity*, int32:

=======  ==========================  ==============================
kernel   similarity                  kernel value
=======  ==========================  ==============================
cosine   <x, q>                      max(<x, q>, 0) / S^2
rbf      -|x - q|^2                  exp(-|x - q|^2 (b / S)^2 / nu^2)
=======  ==========================  ==============================

with S the integer length of a unit vector and b the public bound on norms. (Rounding to int8
leaves unit vectors within about 1 % of length S; dividing by their integer norms changed answers
less than the rounding itself, see docs/decisions/0022.) Radii are compared on
similarities, exactly. A kernel value is looked up in a public table of 2^16 levels of similarity,
rounded towards zero, so that it is the same bits wherever it is computed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

from vicinal import _checks
from vicinal.neighbours._integer_features import (
    FLOAT32,
    IntegerMatrix,
    Precision,
    bounded_vectors,
    squared_norms,
    unit_vectors,
)

LEVELS = 1 << 16
"""Number of levels of similarity that a kernel value can depend on."""

KernelTable = npt.NDArray[np.float64]


class Kernel(ABC):
    """A positive kernel with values in [0, 1] that grows with an integer similarity.

    The similarity is ``product_factor * <x, q> - offset(x) - offset(q)``; its level is
    ``clip((similarity + level_origin) >> level_shift, 0, LEVELS - 1)``.
    """

    name: str
    precision: Precision
    product_factor: int
    level_origin: int
    level_shift: int

    @abstractmethod
    def encode(self, X: npt.NDArray[np.floating]) -> IntegerMatrix:
        """Return integer features (n, d) in the kernel's precision.

        Row i is a function of row i of `X` and the precision alone.
        """

    @abstractmethod
    def offsets(self, integers: IntegerMatrix) -> npt.NDArray[np.int32]:
        """Return what each row takes off the similarity, int32 (n,)."""

    @abstractmethod
    def value(self, similarity: npt.NDArray[np.float64], n_features: int) -> KernelTable:
        """Return kernel values in [0, 1] of similarities, elementwise."""

    @abstractmethod
    def similarity_at(self, value: float, n_features: int) -> int:
        """Return the smallest similarity whose kernel value is at least `value`."""

    @abstractmethod
    def squared_distance(
        self, similarity: npt.NDArray[np.int64], n_features: int
    ) -> npt.NDArray[np.float64]:
        """Return squared distances in integer steps, at least one, elementwise."""

    def table(self, n_features: int) -> KernelTable:
        """Return the kernel value of every level, float64 (LEVELS,), at the level's lower edge."""
        edges = (np.arange(LEVELS, dtype=np.int64) << self.level_shift) - self.level_origin
        return self.value(edges.astype(np.float64), n_features)

    def levels(self, similarity: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """Return the level of every similarity, int64, as the compiled code computes it."""
        level = (similarity.astype(np.int64) + self.level_origin) >> self.level_shift
        return np.asarray(np.clip(level, 0, LEVELS - 1))


class Cosine(Kernel):
    """The cosine of the angle between record and query; negative cosines count as zero.

    Parameters
    ----------
    precision : Precision
        How features become integers.
    """

    name = "cosine"
    product_factor = 1
    level_origin = 0

    def __init__(self, precision: Precision = FLOAT32) -> None:
        self.precision = precision
        self.level_shift = _shift_to_levels(precision.norm**2)

    def encode(self, X: npt.NDArray[np.floating]) -> IntegerMatrix:
        """Return unit vectors rounded to integers."""
        return unit_vectors(X, self.precision)

    def offsets(self, integers: IntegerMatrix) -> npt.NDArray[np.int32]:
        """Return zeros: the similarity is the product itself."""
        return np.zeros(len(integers), dtype=np.int32)

    def value(self, similarity: npt.NDArray[np.float64], n_features: int) -> KernelTable:
        """Return the cosine of integer products, between 0 and 1."""
        return np.clip(similarity / self.precision.scale(n_features) ** 2, 0.0, 1.0)

    def squared_distance(
        self, similarity: npt.NDArray[np.int64], n_features: int
    ) -> npt.NDArray[np.float64]:
        """Return squared distances of unit vectors."""
        squares = 2.0 * (self.precision.scale(n_features) ** 2 - similarity)
        return np.asarray(np.maximum(squares, 1.0))

    def similarity_at(self, value: float, n_features: int) -> int:
        """Return the integer product of a cosine, which may be negative here."""
        value = _checks.real("radius", value, least=-1, most=1)
        return math.ceil(value * self.precision.scale(n_features) ** 2)


class RBF(Kernel):
    """The Gaussian kernel exp(-|x - q|^2 / bandwidth^2) of features in a ball of radius `bound`.

    Parameters
    ----------
    bandwidth : float
        nu, in the units of the features. (ZZGW23 print nu = e^1.5, so nu^2 = e^3.)
    bound : float
        Public bound on the norm of a feature vector; longer ones are pulled back to it.
    precision : Precision
        How features become integers.
    """

    name = "rbf"
    product_factor = 2

    def __init__(self, bandwidth: float, bound: float, precision: Precision = FLOAT32) -> None:
        self.bandwidth = _checks.real("bandwidth", bandwidth, above=0)
        self.bound = _checks.real("norm_bound", bound, above=0)
        self.precision = precision
        # No squared distance exceeds (2 N)^2; the level of -(2 N)^2 is the lowest.
        self.level_origin = 1 << (4 * precision.norm**2).bit_length()
        self.level_shift = _shift_to_levels(self.level_origin - 1)

    def encode(self, X: npt.NDArray[np.floating]) -> IntegerMatrix:
        """Return vectors in units of the bound, rounded to integers."""
        return bounded_vectors(X, self.bound, self.precision)

    def offsets(self, integers: IntegerMatrix) -> npt.NDArray[np.int32]:
        """Return squared norms, exact: each is at most 4095^2 < 2^24."""
        return squared_norms(integers)

    def unit(self, n_features: int) -> float:
        """Return the length of one integer step in the units of the features."""
        return self.bound / self.precision.scale(n_features)

    def _exponent(self, n_features: int) -> float:
        """Return what one unit of similarity adds to the logarithm of the kernel value."""
        return (self.unit(n_features) / self.bandwidth) ** 2

    def value(self, similarity: npt.NDArray[np.float64], n_features: int) -> KernelTable:
        """Return the kernel value of negative squared integer distances."""
        return np.exp(np.minimum(similarity, 0.0) * self._exponent(n_features))

    def squared_distance(
        self,
        similarity: npt.NDArray[np.int64],
        n_features: int,  # noqa: ARG002 (the same for any)
    ) -> npt.NDArray[np.float64]:
        """Return what similarities are the negatives of."""
        return np.asarray(np.maximum(-similarity.astype(np.float64), 1.0))

    def similarity_at(self, value: float, n_features: int) -> int:
        """Return the negative squared integer distance at which the kernel takes `value`."""
        value = _checks.real("radius", value, above=0, most=1)
        lowest = -((2 * self.precision.norm) ** 2)
        return max(lowest, math.ceil(math.log(value) / self._exponent(n_features)))


def _shift_to_levels(largest: int) -> int:
    """Return by how many bits `largest` must be shifted to be a level."""
    return max(0, largest.bit_length() - (LEVELS - 1).bit_length())
