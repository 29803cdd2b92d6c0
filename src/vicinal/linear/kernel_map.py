"""Principal components of a kernel of public rows: what a private model of many features sees.

A linear model of features that are likenesses to public rows bends with the data. Its components
are those of kernel principal component analysis (Schölkopf, Smola & Müller 1998) on landmarks,
public rows alone (Nyström's method). Landmarks and projection are public, so a record's components
are a function of that record: products of whole numbers, elementwise arithmetic, and products of
whole numbers again, exact in any order and any company.

docs/decisions/0136-int16-training.md has what was measured.
"""

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from vicinal.arrays import FloatMatrix
from vicinal.compiled import compiled
from vicinal.neighbours.engines.int16 import Int16Matrix, int16_products
from vicinal.neighbours.kernels import FLOAT32, IntegerMatrix, unit_vectors

IntegerRows = npt.NDArray[np.float32]

LANDMARKS = 2000
"""Public rows that likenesses are taken to, at most."""

COMPONENTS = 400
"""Components, at most."""

KERNEL_ARRAYS = ("landmarks", "projection", "shifts")
"""What a map consists of; names on disk."""

BITS = 12
"""A likeness of 1 has 2^12 steps."""

_LARGEST_SUM = (1 << (31 - BITS)) - 1  # of one sign in a column: int32 holds all sums
_LEAST_VARIANCE = 1e-5  # of a component, over that of the first; below is rounding
_ROUNDING = 1e-10  # variance for each landmark that rounding can make up
_LARGEST = 1 << 14
_CHUNK = 128  # their likenesses stay in a core's cache


class KernelMap:
    """A kernel's likeness to public rows, projected on its principal components; public.

    Parameters
    ----------
    landmarks : int16 (L, d)
        Public integer rows of length one.
    projection : int16 (L, D)
        From likenesses to components, in steps of its column.
    shifts : int16 (D,)
        A step of column j is 2^shifts[j].
    """

    def __init__(
        self,
        landmarks: npt.NDArray[np.int16],
        projection: npt.NDArray[np.int16],
        shifts: npt.NDArray[np.int16],
    ) -> None:
        self._landmarks, self._projection, self._shifts = landmarks, projection, shifts
        self._products = int16_products()
        self._towards = self._products.prepared(np.ascontiguousarray(landmarks.T))
        self._along = self._products.prepared(projection)
        sums = np.zeros(self.width)
        for _, projected in self._projected(landmarks):
            sums += projected.sum(axis=0, dtype=np.float64)
        self._center = np.rint(sums / len(landmarks))

    @classmethod
    def of(cls, public: FloatMatrix, n_components: int = COMPONENTS, *, power: float = 0.0) -> Self:
        """Return the map of public rows (m, d), at most :data:`LANDMARKS` of them, evenly taken.

        Components are divided by their variance to this `power`: .25 half-whitens them.
        """
        landmarks = unit_vectors(public[:: -(-len(public) // LANDMARKS)])
        likeness = _likeness_of(landmarks)
        means = likeness.mean(axis=0)
        along, directions = _largest(
            likeness - means - means[:, None] + means.mean(), min(n_components, len(landmarks))
        )
        # One stays where all rows are alike: what it tells is rounding, and nothing fails.
        least = max(along[0] * _LEAST_VARIANCE, len(landmarks) * _ROUNDING)
        along = np.maximum(along[: max(1, np.count_nonzero(along > least))], least)
        projection = directions[:, : len(along)] / np.sqrt(along)
        projection *= (along[0] / along) ** power
        shifts = np.ceil(np.log2(np.abs(projection).max(axis=0) / _LARGEST)).astype(np.int16)
        integers = np.rint(projection / 2.0 ** shifts.astype(float)).astype(np.int16)
        return cls(landmarks.astype(np.int16), *_fitting(integers, shifts))

    def arrays(self) -> dict[str, npt.NDArray[np.int16]]:
        """Return the parameters by name, to be stored: another factorisation would not fit."""
        parts = self._landmarks, self._projection, self._shifts
        return dict(zip(KERNEL_ARRAYS, parts, strict=True))

    @property
    def width(self) -> int:
        """D, the number of components."""
        return len(self._shifts)

    def components(self, unit: IntegerMatrix) -> npt.NDArray[np.float64]:
        """Return the components of integer rows of length one, float64 (n, D), each by itself."""
        components = np.empty((len(unit), self.width))
        steps = 2.0 ** self._shifts.astype(float)
        for part, projected in self._projected(unit):
            np.subtract(projected, self._center, out=components[part])
            components[part] *= steps
        return components

    def _projected(self, unit: IntegerMatrix) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
        """Yield which of some rows, and their exact products with the projection."""
        factor = np.float32(0.5 / FLOAT32.scale(unit.shape[1]) ** 2)
        steps = np.float32(1 << BITS)
        for start in range(0, len(unit), _CHUNK):
            part = slice(start, start + _CHUNK)
            products = self._products.times(unit[part].astype(np.int16), self._towards)
            likeness = np.empty(products.shape, np.int16)
            _bend(products, factor, steps, likeness)
            yield part, self._products.times(likeness, self._along)


def _fitting(projection: Int16Matrix, shifts: Int16Matrix) -> tuple[Int16Matrix, Int16Matrix]:
    """Return a projection, coarse enough for its products with likenesses to fit, and its shifts.

    Entries of one sign in a column add up to less than 2^19, and likenesses are at most 2^12.
    """
    wide = projection.astype(np.int64)
    sums = np.maximum(np.maximum(wide, 0).sum(axis=0), np.maximum(-wide, 0).sum(axis=0))
    less = np.ceil(np.log2(np.maximum(sums / (_LARGEST_SUM - len(wide)), 1.0))).astype(np.int16)
    return (np.rint(wide / 2.0 ** less.astype(float)).astype(np.int16), shifts + less)


def _likeness_of(landmarks: IntegerRows) -> npt.NDArray[np.float64]:
    """Return the likenesses of public rows among themselves, in floats, (L, L)."""
    cosines = (landmarks @ landmarks.T).astype(np.float64) / FLOAT32.scale(landmarks.shape[1]) ** 2
    return np.asarray(np.clip((1 + cosines) / 2, 0.0, 1.0) ** 8)


def _largest(
    symmetric: npt.NDArray[np.float64], count: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the largest eigenvalues, falling, and their directions; public, so float32 will do."""
    from scipy.linalg import eigh  # a third of a second, and few processes train

    last = len(symmetric) - 1
    along, directions = eigh(
        symmetric.astype(np.float32), subset_by_index=[last - count + 1, last], check_finite=False
    )
    return along[::-1].astype(np.float64), directions[:, ::-1].astype(np.float64)


@compiled
def _bend(products, factor, steps, likeness):  # type: ignore[no-untyped-def]
    """Write ((1 + cosine) / 2)^8 in whole steps for integer products, both (n, L).

    Elementwise, and rounded alike everywhere. `steps`: of a likeness of 1.
    """
    for i in range(len(products)):
        row, to = products[i], likeness[i]
        for j in range(len(row)):
            value = np.float32(row[j]) * factor + np.float32(0.5)
            value = min(max(value, np.float32(0.0)), np.float32(1.0))
            value *= value
            value *= value
            value *= value
            to[j] = np.rint(value * steps)
