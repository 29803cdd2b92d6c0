"""A proxy ledger: public points that are charged as records are, to estimate budget usage.

The true budgets are private; nothing may depend on them. But points of the public reference lie
where records lie, and every release is public: its queries, radii and noise. So the same charging
rule is run on the points, with the very object that charges the records, and what they have left
estimates what records around them have left. It is a function of public things alone: whatever
is decided from it is post-processing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vicinal import _checks
from vicinal.accounting._filter import UNITS
from vicinal.errors import InvalidInput
from vicinal.mechanisms import SubjectTable
from vicinal.mechanisms._votes import BlockRelease
from vicinal.neighbours import (
    CentroidCells,
    ExactIndex,
    NeighbourLists,
    Radius,
    Reference,
    learn_cells,
)
from vicinal.neighbours._integer_features import IntegerMatrix

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]
Shares = npt.NDArray[np.uint16]
"""Shares of a budget that are used, in steps of 1 / `WHOLE`, rounded up."""

WHOLE = (1 << 16) - 1
"""A budget in :data:`Shares`."""

WATCHED = 2048
"""Public points that are charged, at most, where nothing follows them: enough for a few regions."""

FOLLOWED = 8192
"""The same where the noise of every query follows the points around it."""

REGIONS = 16
"""Regions that budget usage is estimated for by default."""

RETIRED = 0.99
"""Share of a budget from which on it counts as spent: what is left buys next to no vote."""

QUANTILES = (0.5, 0.9, 0.99)
"""Quantiles of budget usage that are stated."""


@dataclass(frozen=True, slots=True)
class BudgetUsage:
    """How much of their budgets subjects have used, estimated from public things; public.

    Attributes
    ----------
    used : float
        Mean share of a budget that is used.
    quantiles : tuple of float
        Of that share, at `QUANTILES`.
    retired : float
        Share of subjects that have used at least `RETIRED` of their budget.
    regions : tuple of float
        Mean share used in each region around a public centroid.
    points : tuple of int
        Public points that stand for each region.
    """

    used: float
    quantiles: tuple[float, ...]
    retired: float
    regions: tuple[float, ...]
    points: tuple[int, ...]

    @classmethod
    def of(cls, used: Floats, homes: npt.NDArray[np.int32], regions: int) -> BudgetUsage:
        """Sum up shares used (n,) and regions (n,); a region without anybody has used nothing."""
        sizes = np.bincount(homes, minlength=regions)
        sums = np.bincount(homes, weights=used, minlength=regions)
        return cls(
            float(used.mean()),
            tuple(np.quantile(used, QUANTILES).tolist()),
            float((used >= RETIRED).mean()),
            tuple((sums / np.maximum(sizes, 1)).tolist()),
            tuple(sizes.tolist()),
        )


class ProxyLedger:
    """Virtual budgets of public points; everything in it is public.

    Parameters
    ----------
    reference : Reference
        The public points, with the kernel of the votes.
    radius : Radius
        Which points take part in a query: as for records.
    most : int
        Where there are more points, an even choice of so many is charged.
    """

    def __init__(self, reference: Reference, radius: Radius, most: int = FOLLOWED) -> None:
        points = reference.points[:: -(-len(reference) // most)]
        self._points = Reference(reference.kernel, points)
        self._radius = radius
        self._index = ExactIndex(reference.kernel, points.shape[1])
        self._index.add(points)
        size = len(points)
        self._people = SubjectTable(
            targets=np.zeros(size, dtype=np.int32),
            slots=np.arange(size, dtype=np.int32),
            records=np.ones(size, dtype=np.int32),
            remaining=np.full(size, UNITS, dtype=np.int64),
        )
        self._counts = np.zeros(size, dtype=np.int64)
        self.asked = 0
        self._cells: dict[int, CentroidCells] = {}

    def __len__(self) -> int:
        """Return the number of points that are charged."""
        return len(self._counts)

    @property
    def used(self) -> Floats:
        """The share of its virtual budget that every point has used, (m,)."""
        return np.asarray(1 - self._people.remaining / UNITS)

    @property
    def shares(self) -> Shares:
        """The same in few bytes, to be stored and resumed from."""
        return np.asarray(np.ceil(self.used * WHOLE), dtype=np.uint16)

    def resume(self, shares: Shares) -> None:
        """Go on from shares used (m,); from full budgets if there are none.

        Raises
        ------
        InvalidInput
            If they belong to other points.
        """
        if len(shares) not in (0, len(self)):
            raise InvalidInput(f"Shares must be one for each of {len(self)} points.")
        used = np.zeros(len(self)) if not len(shares) else shares / WHOLE
        self._people.remaining[:] = np.floor((1 - used) * UNITS).astype(np.int64)

    def start(self, used: Floats) -> None:
        """Take off shares that every reference point (m,) has used before the first query."""
        used = used[:: -(-len(used) // len(self))]
        self._people.remaining[:] = np.floor((1 - used) * UNITS).astype(np.int64)

    def near(self, queries: IntegerMatrix, thresholds: Places) -> NeighbourLists:
        """Return the points inside each query's radius."""
        return self._index.search(queries, thresholds)

    def add_query(self, near: NeighbourLists) -> None:
        """Count who takes part in the queries of a block, before it is answered."""
        self._counts += np.bincount(near.rows, minlength=len(self))
        self.asked += len(near)

    def charge(self, release: BlockRelease, near: NeighbourLists) -> None:
        """Charge the points for a release as it charges records; their votes are dropped."""
        release.contribute_and_charge(near, self._people)

    def left(self, near: NeighbourLists) -> Floats:
        """Return the mean share that points near each query have left, (q,); 1 for no points."""
        return np.asarray(1 - _means(near, self.used, 0.0))

    def asked_near(self, near: NeighbourLists) -> Floats:
        """Return how often points near each query took part in *other* queries seen, (q,)."""
        return _means(near, self._counts.astype(np.float64), 1.0) - 1

    def cells(self, regions: int = REGIONS) -> CentroidCells:
        """Return regions around centroids of the public points, fewer if these are few."""
        wanted = min(_checks.integer("regions", regions, least=1), max(1, len(self) // 16))
        if wanted not in self._cells:
            self._cells[wanted] = learn_cells(self._points, self._radius, cells=wanted)
        return self._cells[wanted]

    def budget_usage(self, regions: int = REGIONS) -> BudgetUsage:
        """Return the estimate of how far the private budgets are used."""
        cells = self.cells(regions)
        return BudgetUsage.of(self.used, cells.of(self._points.points), len(cells))


def _means(near: NeighbourLists, values: Floats, nobody: float) -> Floats:
    """Return the mean of the points' values (m,) around each query; `nobody` where none is."""
    sizes = np.diff(near.starts)
    homes = np.repeat(np.arange(len(near)), sizes)
    sums = np.bincount(homes, weights=values[near.rows], minlength=len(near))
    return np.asarray(np.where(sizes > 0, sums / np.maximum(sizes, 1), nobody))
