"""Estimate of budget usage by virtual charges to public points.

The true budgets are private, so nothing may depend on them. But the points of the public reference
are distributed like the records, and the queries, radii and noise of every release are public. So
each release also charges the points by the same rule, and the points' usage estimates that of the
records. The estimate is a function of public data alone and may be released freely.
docs/decisions/0008-automatic-plan.md has the measurements.

Everywhere in this module r is the number of points of the public reference, and m that of the
charged ones among them.
"""

import math
from dataclasses import dataclass

import numpy as np

from vicinal.accounting.budget import UNITS
from vicinal.arrays import Floats, Shares, Steps
from vicinal.errors import InvalidInput
from vicinal.mechanisms.subject_table import SubjectTable
from vicinal.mechanisms.votes import BlockRelease
from vicinal.neighbours.index import ExactIndex
from vicinal.neighbours.kernels import IntegerMatrix
from vicinal.neighbours.radius import Reference

FULL_SHARE = (1 << 16) - 1  # a full budget in :data:`Shares`, which are uint16
MAX_POINTS = 2048  # maximum number of public points that are charged

SPENT_SHARE = 0.99
"""Share of a budget above which it counts as spent: the rest pays for almost no vote."""

QUANTILES = (0.5, 0.9, 0.99)  # quantile levels of budget usage that are reported


@dataclass(frozen=True, slots=True)
class BudgetUsage:
    """Estimated shares of their budgets that subjects have spent; public.

    - `used`: mean spent share of a budget.
    - `quantiles`: quantiles of that share, at the levels `QUANTILES`.
    - `retired`: share of subjects that have spent at least `SPENT_SHARE` of their budget.
    """

    used: float
    quantiles: tuple[float, ...]
    retired: float


class ProxyLedger:
    """Virtual budgets of public points; everything in it is public.

    - `reference`: the public points, with the kernel of the votes; every s-th point is charged,
      with the least s for which they are at most `MAX_POINTS`.
    - `charge_ratio`: ratio of a subject's charge to that of one record, which a point represents.
    """

    def __init__(self, reference: Reference, charge_ratio: float) -> None:
        points = reference.points[:: -(-len(reference) // MAX_POINTS)]
        self._index = ExactIndex(reference.kernel, points.shape[1])
        self._index.add(points)
        size = len(points)
        # A subject is charged more than a single record by the ratio, so the budget of a point with
        # one record is smaller by that factor.
        self._full_units = math.floor(UNITS / charge_ratio)
        self._subjects = SubjectTable(
            targets=np.zeros(size, dtype=np.int32),
            slots=np.arange(size, dtype=np.int32),
            n_records=np.ones(size, dtype=np.int32),
            remaining=np.full(size, self._full_units, dtype=np.int64),
        )

    def __len__(self) -> int:
        """Return the number of points that are charged."""
        return len(self._subjects.remaining)

    @property
    def used_shares(self) -> Floats:
        """The spent share, 0 to 1, of each charged point's virtual budget, float64 (m,)."""
        return np.asarray(1 - self._subjects.remaining / self._full_units)

    @property
    def stored_shares(self) -> Shares:
        """The spent shares, uint16 (m,), in steps of 1 / `FULL_SHARE`, as they are stored."""
        # Rounded up, so that a restart never lowers the usage.
        return np.asarray(np.ceil(self.used_shares * FULL_SHARE), dtype=np.uint16)

    def restore_shares(self, shares: Shares) -> None:
        """Set the spent shares of virtual budgets to the stored values of :attr:`stored_shares`.

        `shares` is uint16 (m,), or empty for full budgets. Raises InvalidInput for other sizes.
        """
        if len(shares) not in (0, len(self)):
            raise InvalidInput(f"Shares must be one for each of {len(self)} points.")
        self.set_used_shares(shares / FULL_SHARE if len(shares) else np.zeros(len(self)))

    def set_used_shares(self, used: Floats) -> None:
        """Set the spent shares of virtual budgets.

        `used`, float64: share, 0 to 1, of every point of the reference (r,), or of every charged
        point (m,).
        """
        used = used[:: -(-len(used) // len(self))]
        self._subjects.remaining[:] = np.floor((1 - used) * self._full_units).astype(np.int64)

    def deduct_shares(self, shares: Floats) -> None:
        """Deduct shares of the full virtual budgets, such as those spent on training a model.

        `shares`, float64 (r,): share, 0 to 1, for every point of the reference.
        """
        shares = shares[:: -(-len(shares) // len(self))]
        units = np.ceil(shares * self._full_units).astype(np.int64)
        self._subjects.remaining[:] = np.maximum(self._subjects.remaining - units, 0)

    def charge(self, release: BlockRelease, queries: IntegerMatrix, thresholds: Steps) -> None:
        """Charge the points for answers to queries, as records are charged; discard their votes.

        `release`: the charging rule and noise scales of the queries. `queries`, (q, d): integer
        features. `thresholds`, int64 (q,): radii, as the smallest similarity of a charged point.
        """
        release.contribute_and_charge(self._index.search(queries, thresholds), self._subjects)

    def budget_usage(self) -> BudgetUsage:
        """Return statistics of the spent shares, which estimate those of the private budgets."""
        used = self.used_shares
        quantiles = tuple(np.quantile(used, QUANTILES).tolist())
        return BudgetUsage(float(used.mean()), quantiles, float((used >= SPENT_SHARE).mean()))
