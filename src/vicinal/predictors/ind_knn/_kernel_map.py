"""Principal components of a kernel of public rows: what a private model of many features sees.

A linear model of features that are likenesses to public rows bends with the data. Its components
are those of kernel principal component analysis (Schölkopf, Smola & Müller 1998) on landmarks,
public rows alone (Nyström's method). Landmarks and projection are public, so a record's components
are a function of that record: products of whole numbers, elementwise arithmetic, and products of
whole numbers again, exact in any order and any company.

docs/decisions/0119-kernel-components.md has what was measured.
"""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt

from vicinal._arrays import FloatMatrix
from vicinal.neighbours._kernels import FLOAT32, unit_vectors

IntegerRows = npt.NDArray[np.float32]

LANDMARKS = 2000
"""Public rows that likenesses are taken to, at most."""

COMPONENTS = 400
"""Components, at most."""

KERNEL_ARRAYS = ("landmarks", "projection", "shifts")
"""What a map consists of; names on disk."""

_SQUARINGS = 3
_LIKENESS_STEPS = 1 << 16
_LEAST_VARIANCE = 1e-5  # of a component, over that of the first; below is rounding
_ROUNDING = 1e-10  # variance for each landmark that rounding can make up
_LARGEST = 1 << 14
_CHUNK = 4096


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

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.predictors.ind_knn._kernel_map import KernelMap
    >>> kernel = KernelMap.of(np.random.default_rng(0).normal(size=(100, 30)), 40)
    >>> kernel.width, kernel.components(kernel._landmarks[:2]).shape
    (40, (2, 40))
    """

    def __init__(
        self,
        landmarks: npt.NDArray[np.int16],
        projection: npt.NDArray[np.int16],
        shifts: npt.NDArray[np.int16],
    ) -> None:
        self._landmarks = landmarks.astype(np.float32)
        self._projection = projection.astype(np.float64)
        self._shifts = shifts
        everywhere = _likeness(self._landmarks, self._landmarks).sum(axis=0, dtype=np.float64)
        self._center = np.rint(everywhere @ self._projection / len(landmarks))

    @classmethod
    def of(cls, public: FloatMatrix, n_components: int = COMPONENTS) -> Self:
        """Return the map of public rows (m, d), at most :data:`LANDMARKS` of them, evenly taken."""
        landmarks = unit_vectors(public[:: -(-len(public) // LANDMARKS)])
        likeness = _likeness(landmarks, landmarks).astype(np.float64) / _LIKENESS_STEPS
        means = likeness.mean(axis=0)
        along, directions = np.linalg.eigh(likeness - means - means[:, None] + means.mean())
        along = along[::-1][:n_components]
        # One stays where all rows are alike: what it tells is rounding, and nothing fails.
        least = max(along[0] * _LEAST_VARIANCE, len(landmarks) * _ROUNDING)
        along = np.maximum(along[: max(1, np.count_nonzero(along > least))], least)
        # Half whitened: components as long as the fourth root of their variance.
        projection = directions[:, ::-1][:, : len(along)] / np.sqrt(along)
        projection *= (along[0] / along) ** 0.25
        shifts = np.ceil(np.log2(np.abs(projection).max(axis=0) / _LARGEST)).astype(np.int16)
        whole = np.rint(projection / 2.0 ** shifts.astype(float)).astype(np.int16)
        return cls(landmarks.astype(np.int16), whole, shifts)

    def arrays(self) -> dict[str, npt.NDArray[np.int16]]:
        """Return the parameters by name, to be stored: another factorisation would not fit."""
        parts = self._landmarks, self._projection, self._shifts
        wholes = (part.astype(np.int16) for part in parts)
        return dict(zip(KERNEL_ARRAYS, wholes, strict=True))

    @property
    def width(self) -> int:
        """D, the number of components."""
        return len(self._shifts)

    def components(self, unit: IntegerRows) -> npt.NDArray[np.float64]:
        """Return the components of integer rows of length one, float64 (n, D), each by itself.

        Sums stay below 2^16 2^14 L steps, exact in any order.
        """
        mapped = np.empty((len(unit), self.width))
        for start in range(0, len(unit), _CHUNK):
            part = slice(start, start + _CHUNK)
            likeness = _likeness(unit[part], self._landmarks).astype(np.float64)
            mapped[part] = likeness @ self._projection - self._center
        return mapped * 2.0 ** self._shifts.astype(float)


def _likeness(left: IntegerRows, right: IntegerRows) -> npt.NDArray[np.float32]:
    """Return ((1 + cosine) / 2)^8 in whole steps, float32 (n, L).

    Products of whole numbers are exact; what follows is elementwise, and rounded alike everywhere.
    """
    likeness = left @ right.T
    likeness *= np.float32(0.5 / FLOAT32.scale(left.shape[1]) ** 2)
    likeness += np.float32(0.5)
    np.clip(likeness, 0.0, 1.0, out=likeness)
    for _ in range(_SQUARINGS):
        likeness *= likeness
    likeness *= np.float32(_LIKENESS_STEPS)
    return np.asarray(np.rint(likeness, out=likeness))
