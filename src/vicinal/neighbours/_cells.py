"""Cells around public centroids: which cell a record falls into, which cells a query looks at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal import _checks
from vicinal.errors import InvalidInput
from vicinal.neighbours._kernels import FloatMatrix, IntegerMatrix, Kernel, unit_vectors
from vicinal.neighbours._radius import Radius, Reference

LEAST_PER_CELL = 8
"""Public points for a cell, at least: with fewer, cells follow single points."""

MOST_CELLS = 4096

_ROUNDS = 10
_PROBES = 2000
_NEAREST = 5
_CHUNK = 4096


@dataclass(frozen=True, slots=True)
class CentroidCells:
    """Centroids learnt from public data, and how far beyond the best a query looks.

    The *score* of a vector x and a centroid c is ``factor * <x, c> - offset(c)``, an exact integer.
    x falls into the cell of the highest score (of the lowest number, if several are equal). A query
    looks at every cell whose score is within `margin` of its best.

    Attributes
    ----------
    centroids : float32 (cells, d)
        Integers of norm at most 4095.
    offsets : int32 (cells,)
        What each centroid takes off its score.
    factor : int
        The kernel's product factor.
    margin : float
        At least 0.
    """

    centroids: FloatMatrix
    offsets: npt.NDArray[np.int32]
    factor: int
    margin: float

    def __len__(self) -> int:
        """Return the number of cells."""
        return len(self.centroids)

    def scores(self, integers: IntegerMatrix) -> npt.NDArray[np.float32]:
        """Return the score of every vector with every centroid, (m, cells); exact."""
        products = integers.astype(np.float32, copy=False) @ self.centroids.T
        # Products, offsets and scores of RBF are integers below 2^25, of cosine below 2^24; the
        # sum is taken in float64, which holds either.
        return np.asarray(self.factor * products.astype(np.float64) - self.offsets)

    def of(self, integers: IntegerMatrix) -> npt.NDArray[np.int32]:
        """Return the cell of every vector, int32 (m,)."""
        chunks = range(0, len(integers), _CHUNK)
        cells = [self.scores(integers[at : at + _CHUNK]).argmax(axis=1) for at in chunks]
        return np.concatenate([np.zeros(0, dtype=np.int64), *cells]).astype(np.int32)

    def probed(self, queries: IntegerMatrix) -> npt.NDArray[np.bool_]:
        """Return which cells each query looks at, bool (q, cells)."""
        scores = self.scores(queries)
        best = scores.max(axis=1, keepdims=True)
        return np.asarray(scores >= best - self.margin)


def learn_cells(
    reference: Reference, radius: Radius, cells: int | None = None, recall: float = 0.95
) -> CentroidCells:
    """Learn centroids from a public reference by k-means, and the margin that finds enough.

    The margin is the smallest that keeps the share `recall` of pairs of public points inside the
    radius. Nothing private is looked at, so the recall among private records is an estimate.

    Parameters
    ----------
    reference : Reference
        Public points; half of them place the centroids, the other half set the margin.
    radius : Radius
        The radius that queries will have.
    cells : int, optional
        Number of cells; by default one for every 16 public points, at most 4096.
    recall : float
        Share of what the radius selects that should be found, above 0 and below 1.

    Raises
    ------
    InvalidInput
        If there are fewer than 8 public points in the learning half for every cell.
    """
    _checks.real("recall", recall, above=0, below=1)
    most = len(reference) // (2 * LEAST_PER_CELL)
    wanted = min(MOST_CELLS, max(1, most)) if cells is None else cells
    count = _checks.integer("cells", wanted, least=1)
    if count > max(1, most):
        raise InvalidInput(
            f"The 'cells' parameter must be at most {max(1, most)} for {len(reference)} public "
            f"points. Got {count}; pass more public points."
        )
    found = _placed(reference.kernel, reference.points[::2], count)
    margin = _margin(found, reference.points[1::2], reference.kernel, radius, recall)
    return CentroidCells(found.centroids, found.offsets, found.factor, margin)


def _placed(kernel: Kernel, points: IntegerMatrix, count: int) -> CentroidCells:
    """Return centroids of public points by Lloyd's iteration, as integers, with no margin yet."""
    cells = _cells(kernel, points[np.linspace(0, len(points) - 1, count).astype(np.int64)])
    for _ in range(_ROUNDS):
        homes = cells.of(points)
        order = np.argsort(homes, kind="stable")
        kept, starts, sizes = np.unique(homes[order], return_index=True, return_counts=True)
        sums = np.add.reduceat(points[order].astype(np.float64), starts, axis=0)
        # A cell that nobody is nearest to stays where it is.
        centers = cells.centroids.astype(np.float64)
        centers[kept] = sums / sizes[:, None]
        cells = _cells(kernel, centers)
    return cells


def _cells(kernel: Kernel, centers: npt.NDArray[Any]) -> CentroidCells:
    """Return cells around centers, given in the units of integer features."""
    # Cosine compares directions. A mean is no longer than what it is the mean of, and cutting
    # digits off does not make it longer, so products with it stay exact.
    integers = unit_vectors(centers) if kernel.name == "cosine" else np.trunc(centers)
    integers = np.asarray(integers, dtype=np.float32)
    return CentroidCells(integers, kernel.offsets(integers), kernel.product_factor, 0.0)


def _margin(
    cells: CentroidCells, points: IntegerMatrix, kernel: Kernel, radius: Radius, recall: float
) -> float:
    """Return how far below its best score a query must look, by pairs of public points."""
    probes, others = points[:_PROBES], Reference(kernel, points)
    thresholds, scores = radius.thresholds(probes), cells.scores(probes)
    homes = cells.of(points)
    gaps, start = [np.zeros(1)], 0
    for similarities in others.similarities(probes):
        rows = np.arange(start, start + len(similarities))
        similarities[np.arange(len(rows)), rows] = np.iinfo(np.int64).min
        # Where the radius holds few public points, the nearest few stand in for it.
        place = max(0, len(points) - _NEAREST)
        nearest = np.partition(similarities, place, axis=1)[:, place]
        reached = np.minimum(thresholds[rows], nearest)
        who, found = np.nonzero(similarities >= reached[:, None])
        gaps.append(scores[rows].max(axis=1)[who] - scores[rows[who], homes[found]])
        start += len(similarities)
    return float(np.quantile(np.concatenate(gaps), recall, method="higher"))
