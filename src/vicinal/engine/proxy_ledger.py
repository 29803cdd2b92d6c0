"""Budget usage, estimated on public points that are charged along.

The true budgets are private; nothing may depend on them. But points of the public reference lie
where records lie, and every release is public: its queries, radii and noise. So the same charging
rule is run on the points, with the very object that charges the records, and what they have used
estimates what records have used. This proxy ledger is a function of public things alone: whatever
is told from it is post-processing. docs/decisions/0008-automatic-plan.md has measurements.
"""

import math
from dataclasses import dataclass

import numpy as np

from vicinal.accounting.budget import UNITS
from vicinal.arrays import Floats, Places, Shares
from vicinal.errors import InvalidInput
from vicinal.mechanisms.subject_table import SubjectTable
from vicinal.mechanisms.votes import BlockRelease
from vicinal.neighbours.index import ExactIndex
from vicinal.neighbours.kernels import IntegerMatrix
from vicinal.neighbours.radius import Radius, Reference

WHOLE = (1 << 16) - 1
"""A budget in :data:`Shares`."""

WATCHED = 2048
"""Public points that are charged, at most."""

RETIRED = 0.99
"""Share of a budget from which on it counts as spent: what is left buys next to no vote."""

QUANTILES = (0.5, 0.9, 0.99)
"""Quantiles of budget usage that are stated."""


@dataclass(frozen=True, slots=True)
class BudgetUsage:
    """How much of their budgets subjects have used, estimated from public things; public.

    - `used`: mean share of a budget that is used.
    - `quantiles`: of that share, at `QUANTILES`.
    - `retired`: share of subjects that have used at least `RETIRED` of their budget.
    """

    used: float
    quantiles: tuple[float, ...]
    retired: float


class ProxyLedger:
    """Virtual budgets of public points; everything in it is public.

    - `reference`: the public points, with the kernel of the votes. Where there are more than
      `WATCHED`, an even choice of so many is charged.
    - `radius`: which points take part in a query: as for records.
    - `use`: what a subject is charged, over what each of its records would be: a point stands for
      one.
    """

    def __init__(self, reference: Reference, radius: Radius, use: float) -> None:
        points = reference.points[:: -(-len(reference) // WATCHED)]
        self._points = points
        self._radius = radius
        self._index = ExactIndex(reference.kernel, points.shape[1])
        self._index.add(points)
        size = len(points)
        # A point has one record, a subject `use` records' worth of charges: so it starts with less.
        self._full = math.floor(UNITS / use)
        self._subjects = SubjectTable(
            targets=np.zeros(size, dtype=np.int32),
            slots=np.arange(size, dtype=np.int32),
            records=np.ones(size, dtype=np.int32),
            remaining=np.full(size, self._full, dtype=np.int64),
        )

    def __len__(self) -> int:
        """Return the number of points that are charged."""
        return len(self._points)

    @property
    def used(self) -> Floats:
        """The share of its virtual budget that every point has used, (m,)."""
        return np.asarray(1 - self._subjects.remaining / self._full)

    @property
    def shares(self) -> Shares:
        """The same in few bytes, to be stored and resumed from."""
        # Rounded up: after a restart points must not seem less used than they are.
        return np.asarray(np.ceil(self.used * WHOLE), dtype=np.uint16)

    def resume(self, shares: Shares) -> None:
        """Go on from shares used (m,); from full budgets if there are none.

        Raises InvalidInput if they belong to other points.
        """
        if len(shares) not in (0, len(self)):
            raise InvalidInput(f"Shares must be one for each of {len(self)} points.")
        self.start(shares / WHOLE if len(shares) else np.zeros(len(self)))

    def start(self, used: Floats) -> None:
        """Take off shares that every reference point (m,) has used before the first query."""
        used = used[:: -(-len(used) // len(self))]
        self._subjects.remaining[:] = np.floor((1 - used) * self._full).astype(np.int64)

    def spend(self, used: Floats) -> None:
        """Take off shares that every reference point (m,) uses at once, as far as they have any."""
        used = used[:: -(-len(used) // len(self))]
        taken = np.ceil(used * self._full).astype(np.int64)
        self._subjects.remaining[:] = np.maximum(self._subjects.remaining - taken, 0)

    def charge(self, release: BlockRelease, queries: IntegerMatrix, thresholds: Places) -> None:
        """Charge the points for a release as it charges records; their votes are dropped."""
        release.contribute_and_charge(self._index.search(queries, thresholds), self._subjects)

    def budget_usage(self) -> BudgetUsage:
        """Return the estimate of how far the private budgets are used."""
        used = self.used
        quantiles = tuple(np.quantile(used, QUANTILES).tolist())
        return BudgetUsage(float(used.mean()), quantiles, float((used >= RETIRED).mean()))
