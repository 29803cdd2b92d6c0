"""Principal components of a kernel: the nonlinear features of a private model of many features.

The components are those of kernel principal component analysis (Schölkopf, Smola & Müller 1998) on
landmarks, a sample of public rows (Nyström's method). Landmarks and projection are public, and a
record's components depend on that record alone: the products are of whole numbers, hence exact in
any order, and everything between them is elementwise arithmetic. The kernel value of two rows is
((1 + cosine) / 2)^8.

Unit rows are rows of length one in whole steps, ``FLOAT32.compute_unit_norm(d)`` of which are 1. L
is the number of landmarks, D that of components.

docs/decisions/0136-int16-training.md has the measurements.
"""

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from vicinal.arrays import FloatMatrix, Floats, Ints16
from vicinal.compiled import compiled
from vicinal.neighbours.engines.int16 import get_int16_products
from vicinal.neighbours.kernels import FLOAT32, IntegerMatrix, quantise_directions

IntegerRows = npt.NDArray[np.float32]
"""Whole numbers, held as float32."""

LANDMARKS = 2000
"""Maximum number of landmarks (public rows)."""

COMPONENTS = 400
"""Maximum number of components."""

KERNEL_ARRAYS = ("landmarks", "projection", "shifts")
"""Names of the stored arrays of a map."""

BITS = 12
"""A kernel value of 1 is 2^12 integer steps."""

_MAX_COLUMN_SUM = (1 << (31 - BITS)) - 1  # of a column's entries of one sign: products fit int32
_MIN_VARIANCE_RATIO = 1e-5  # of a component to the first; smaller ones are rounding errors
_ROUNDING_VARIANCE = 1e-10  # maximum variance per landmark that rounding alone can cause
_MAX_ENTRY = 1 << 14  # of the integer projection, inside int16
_CHUNK = 128  # rows at a time: their kernel values stay in a core's cache


class KernelMap:
    """Map of rows to principal components of their kernel values with landmarks; public.

    - `landmarks`, (L, d): public unit rows.
    - `projection`, (L, D): matrix from kernel values to components, in whole steps.
    - `shifts`, (D,): exponents; a step of column j of the projection is 2^shifts[j].
    """

    def __init__(self, landmarks: Ints16, projection: Ints16, shifts: Ints16) -> None:
        self._landmarks = landmarks
        self._projection = projection
        self._shifts = shifts
        self._products = get_int16_products()
        self._prepared_landmarks = self._products.prepare(np.ascontiguousarray(landmarks.T))
        self._prepared_projection = self._products.prepare(projection)
        sums = np.zeros(self.width)
        for _, projected in self._project_chunks(landmarks):
            sums += projected.sum(axis=0, dtype=np.float64)
        self._center = np.rint(sums / len(landmarks))

    @classmethod
    def from_public_rows(
        cls, public: FloatMatrix, n_components: int = COMPONENTS, *, power: float = 0.0
    ) -> Self:
        """Return the map to the kernel principal components of public rows.

        - `public`, (m, d): rows of the public set, as floats or as integer features of a cosine
          kernel (:mod:`vicinal.neighbours.kernels`); only their directions matter. At most
          :data:`LANDMARKS` of them become landmarks.
        - `n_components`: maximum number of components.
        - `power`: component j is divided by (variance of j / variance of the first)^power, to
          whiten partly: with 1/4, relative standard deviations become their square roots.
        """
        landmarks = quantise_directions(public[:: -(-len(public) // LANDMARKS)])
        cosines = (landmarks @ landmarks.T).astype(np.float64) / FLOAT32.compute_unit_norm(
            public.shape[1]
        ) ** 2
        kernel_values = np.clip((1 + cosines) / 2, 0.0, 1.0) ** 8
        means = kernel_values.mean(axis=0)
        centered = kernel_values - means - means[:, None] + means.mean()
        n_components = min(n_components, len(landmarks))
        eigenvalues, eigenvectors = _compute_top_eigenpairs(centered, n_components)
        # At least one component remains, even if all rows are equal and it is only rounding.
        minimum = max(eigenvalues[0] * _MIN_VARIANCE_RATIO, len(landmarks) * _ROUNDING_VARIANCE)
        n_retained = max(1, np.count_nonzero(eigenvalues > minimum))
        eigenvalues = np.maximum(eigenvalues[:n_retained], minimum)
        projection = eigenvectors[:, :n_retained] / np.sqrt(eigenvalues)
        projection *= (eigenvalues[0] / eigenvalues) ** power
        shifts = np.ceil(np.log2(np.abs(projection).max(axis=0) / _MAX_ENTRY)).astype(np.int16)
        integers = np.rint(projection / 2.0 ** shifts.astype(float)).astype(np.int16)
        integers, shifts = _coarsen_projection(integers, shifts)
        return cls(landmarks.astype(np.int16), integers, shifts)

    def to_arrays(self) -> dict[str, Ints16]:
        """Return the constructor's arguments by name, for storage: eigenvectors vary by machine."""
        parameters = self._landmarks, self._projection, self._shifts
        return dict(zip(KERNEL_ARRAYS, parameters, strict=True))

    @property
    def width(self) -> int:
        """D, the number of components."""
        return len(self._shifts)

    def compute_components(self, unit_rows: IntegerMatrix) -> Floats:
        """Return the centered components, float64 (n, D), of `unit_rows` (n, d)."""
        components = np.empty((len(unit_rows), self.width))
        steps = 2.0 ** self._shifts.astype(float)
        for chunk, projected in self._project_chunks(unit_rows):
            np.subtract(projected, self._center, out=components[chunk])
            components[chunk] *= steps
        return components

    def _project_chunks(self, unit_rows: IntegerMatrix) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
        """Yield slices of `unit_rows` (n, d), and these rows' components, int32 (k, D), uncentered.

        They are exact: in steps of the kernel values times those of the projection.
        """
        factor = np.float32(0.5 / FLOAT32.compute_unit_norm(unit_rows.shape[1]) ** 2)
        steps_per_unit = np.float32(1 << BITS)
        for start in range(0, len(unit_rows), _CHUNK):
            chunk = slice(start, start + _CHUNK)
            rows = unit_rows[chunk].astype(np.int16)
            products = self._products.multiply(rows, self._prepared_landmarks)
            kernel_values = np.empty(products.shape, np.int16)
            _write_kernel_values(products, factor, steps_per_unit, kernel_values)
            yield chunk, self._products.multiply(kernel_values, self._prepared_projection)


def _coarsen_projection(projection: Ints16, shifts: Ints16) -> tuple[Ints16, Ints16]:
    """Return the projection (L, D) and shifts (D,), with coarser steps where sums exceed int32.

    `projection`, `shifts`: those of :class:`KernelMap`, int16. In the result, entries of one sign
    in a column add up to less than 2^19; kernel values are at most 2^12.
    """
    entries = projection.astype(np.int64)
    sums = np.maximum(np.maximum(entries, 0).sum(axis=0), np.maximum(-entries, 0).sum(axis=0))
    excess = np.maximum(sums / (_MAX_COLUMN_SUM - len(entries)), 1.0)
    extra = np.ceil(np.log2(excess)).astype(np.int16)
    return np.rint(entries / 2.0 ** extra.astype(float)).astype(np.int16), shifts + extra


def _compute_top_eigenpairs(symmetric: Floats, count: int) -> tuple[Floats, Floats]:
    """Return the `count` largest eigenvalues, descending, and their eigenvectors (L, count).

    `symmetric`, (L, L): the matrix, which is decomposed in float32.
    """
    from scipy.linalg import eigh  # imported late: it takes .3 s, and few processes train

    last = len(symmetric) - 1
    eigenvalues, eigenvectors = eigh(
        symmetric.astype(np.float32), subset_by_index=[last - count + 1, last], check_finite=False
    )
    return eigenvalues[::-1].astype(np.float64), eigenvectors[:, ::-1].astype(np.float64)


@compiled
def _write_kernel_values(products, factor, steps_per_unit, kernel_values):  # type: ignore[no-untyped-def]
    """Write ((1 + cosine) / 2)^8 in integer steps to `kernel_values`, int16 (n, L).

    `products`, (n, L): integer inner products; times `factor` they are cosine / 2.
    `steps_per_unit`: integer steps of a kernel value of 1. Elementwise, so it rounds equally on
    every machine.
    """
    for i in range(len(products)):
        row, output = products[i], kernel_values[i]
        for j in range(len(row)):
            value = np.float32(row[j]) * factor + np.float32(0.5)
            value = min(max(value, np.float32(0.0)), np.float32(1.0))
            value *= value
            value *= value
            value *= value
            output[j] = np.rint(value * steps_per_unit)
