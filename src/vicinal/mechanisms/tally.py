"""Noisy histograms of what subjects bring along, once, charged to each by what it adds.

Proof note: tally.md. Source: individual filter of Feldman & Zrnic 2021.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from vicinal import checks
from vicinal.accounting.budget import UNITS, unit_rate
from vicinal.accounting.charges import charge
from vicinal.accounting.gaussian import grid_slack
from vicinal.arrays import Floats, Steps, Units
from vicinal.mechanisms.votes import DeltaSlackAccountant, VoteGrid
from vicinal.noise.source import NoiseSource

_PLANNED = 20  # tallies that the grid is planned for

_INSIDE = 1 - 1e-9  # for the rounding of the root; the loop around it decides


@dataclass(frozen=True, slots=True)
class TallyPlan:
    """Sizes and price of a tally; public.

    - `sizes`: cells of each table.
    - `share`: part of a full budget that a subject pays at most, 0 < share <= 1.
    - `budget`, `delta`: the zCDP that a full budget stands for, and the delta that the grid may use
      a share of.
    """

    sizes: tuple[int, ...]
    share: float
    budget: float
    delta: float


class NoisyTally:
    """How many subjects fall into every cell of some tables, each subject weighing one a table.

    Contribution: each of a subject's m rows adds 1 / m to one cell of every table, rounded down to
    whole steps; all of it is scaled down to what the subject can still pay. Made before any subject
    is charged; one object is one release. Sums of several shards add up before noise is added,
    once.

    - `plan`: what is counted, and what it may cost.
    - `noise`: where noise comes from.
    - `slack`: meters what the grid costs.

    - `scale`: noise scale in grid steps. Public.

    Raises PrivacyRefused if the grid's cost does not fit.
    """

    def __init__(self, plan: TallyPlan, noise: NoiseSource, slack: DeltaSlackAccountant) -> None:
        share = checks.check_real("share", plan.share, above=0, most=1)
        tables, cells = len(plan.sizes), sum(plan.sizes)
        # Rounded up: less noise would be paid for by more than the share.
        sigma = max(1.0, math.sqrt(tables / (2 * share * plan.budget)) * (1 + 1e-12))
        self._grid = VoteGrid.fitting(sigma, _PLANNED, cells, plan.delta)
        self.scale = self._grid.scale(sigma)
        self._rate = unit_rate(self.scale, plan.budget)
        self.plan, self._noise, self._slack = plan, noise, slack
        self._most = math.floor(share * UNITS)
        slack.check(cells * grid_slack(self.scale))

    @property
    def noise(self) -> float:
        """Standard deviation of the noise of a cell, in subjects. Public."""
        return self.scale / self._grid.steps

    def collect(self, cells: Steps, slots: Steps, remaining: Units) -> Steps:
        """Charge every subject for what it adds, and return the sum, int64 (all cells,); private.

        - `cells`, int64 (rows, tables): the cell of every row in every table, from 0.
        - `slots`, int64 (rows,): whose each row is: a place in `remaining`.
        - `remaining`, int64 (subjects,): units left; charged in place.
        """
        flat = cells + np.concatenate([[0], np.cumsum(self.plan.sizes)[:-1]])
        owners = np.repeat(slots, len(self.plan.sizes))
        records = np.maximum(np.bincount(slots, minlength=len(remaining)), 1)
        weight = (self._grid.steps // records)[owners]  # rounded down: together at most one subject
        size = sum(self.plan.sizes)
        places, which = np.unique(owners * size + flat.ravel(), return_inverse=True)
        values = np.zeros(len(places), dtype=np.int64)
        np.add.at(values, which, weight)
        self._charge(values, places // size, remaining)
        sums = np.zeros(size, dtype=np.int64)
        np.add.at(sums, places % size, values)
        return sums

    def publish(self, sums: Steps) -> list[Floats]:
        """Add noise and return the tables, in subjects; they may leave once charges are durable."""
        self._slack.charge([self.scale], len(sums))
        noisy = self._noise.add_to(sums, self.scale) / self._grid.steps
        return np.split(noisy, np.cumsum(self.plan.sizes)[:-1])

    def _charge(self, values: Steps, owners: Steps, remaining: Units) -> None:
        """Scale contributions to what their owners can pay, and charge it, both in place."""
        starts = np.flatnonzero(np.diff(owners, prepend=-1))
        for start, stop in pairwise([*starts, len(owners)]):
            owner, mine = owners[start], values[start:stop]
            remaining[owner] -= self._fitted(mine, min(int(remaining[owner]), self._most))

    def _fitted(self, mine: Steps, allowed: int) -> int:
        """Shrink one contribution in place until it costs at most `allowed`; return its cost."""
        cost = self._cost(mine)
        while cost > allowed:
            mine[:] = np.trunc(mine * (math.sqrt(max(allowed, 0) / cost) * _INSIDE))
            cost = self._cost(mine)
        return cost

    def _cost(self, mine: Steps) -> int:
        return int(charge(int(np.square(mine).sum()), self._rate))
