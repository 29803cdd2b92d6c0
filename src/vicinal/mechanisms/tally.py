"""Noisy histograms of labelled rows that subjects provide for an evaluation.

Every subject is charged for its own contribution. Proof note: tally.md. Source: individual filter
of Feldman & Zrnic 2021.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from vicinal import checks
from vicinal.accounting.budget import UNITS, unit_rate
from vicinal.accounting.charges import charge
from vicinal.accounting.gaussian import compute_grid_slack
from vicinal.arrays import Floats, Steps, Units
from vicinal.mechanisms.votes import DeltaSlackAccountant, VoteGrid
from vicinal.noise.source import NoiseSource

_MIN_SHARE = 1e-6
"""Smallest share of a budget: the inverse of a smaller one may leave the range of floats."""

# Number of tallies for which the grid is chosen, so that their delta slack stays small.
_PLANNED_TALLIES = 20

# Margin for the rounding of the square root that shrinks a contribution. Whether the charge is
# affordable is decided by the surrounding loop.
_ROOT_MARGIN = 1 - 1e-9


@dataclass(frozen=True, slots=True)
class TallyPlan:
    """Table sizes and price of a tally, that is of histograms of subjects' rows; public.

    - `sizes`: number of cells of each table.
    - `share`: largest share of a full budget that a subject is charged, 1e-6 <= share <= 1.
    - `budget`: the zCDP that a full budget stands for.
    - `delta`: the delta of the guarantee, of which the grid's slack may use a share.
    """

    sizes: tuple[int, ...]
    share: float
    budget: float
    delta: float


class NoisyTally:
    """Mechanism that releases histograms of the subjects' rows with Gaussian noise.

    Each of a subject's m rows adds 1 / m to one cell of every table, rounded down to whole steps,
    so that a subject has weight at most 1 in each table. The contribution is scaled down to the
    subject's remaining budget. One object makes one release; create it before any subject is
    charged. The sums of several shards are added up, and noise is added once to the total.

    - `plan`: table sizes and price.
    - `noise`: the source of the noise.
    - `slack_accountant`: the account of the delta that rounding to the grid costs.

    Attributes: `scale`, the noise scale in grid steps; public.

    Raises PrivacyRefused if the grid's slack exceeds its share of delta.
    """

    def __init__(
        self, plan: TallyPlan, noise: NoiseSource, slack_accountant: DeltaSlackAccountant
    ) -> None:
        share = checks.check_real("share", plan.share, minimum=_MIN_SHARE, maximum=1)
        n_tables = len(plan.sizes)
        n_cells = sum(plan.sizes)
        # Rounded up: with less noise, a full contribution would cost more than the share.
        sigma = max(1.0, math.sqrt(n_tables / (2 * share * plan.budget)) * (1 + 1e-12))
        self._grid = VoteGrid.choose(sigma, _PLANNED_TALLIES, n_cells, plan.delta)
        self.scale = self._grid.convert_noise(sigma)
        self._rate = unit_rate(self.scale, plan.budget)
        self.plan = plan
        self._noise = noise
        self._slack_accountant = slack_accountant
        self._max_charge = math.floor(share * UNITS)
        slack_accountant.check_slack(n_cells * compute_grid_slack(self.scale))

    @property
    def noise(self) -> float:
        """Standard deviation of the noise of a cell, in subjects; public."""
        return self.scale / self._grid.steps

    def contribute_and_charge(self, cells: Steps, slots: Steps, remaining: Units) -> Steps:
        """Charge every subject and return the sums of all tables, one after another; private.

        - `cells`, int64 (rows, tables): the cell of every row in every table, from 0.
        - `slots`, int64 (rows,): slot of every row's subject, an index into `remaining`.
        - `remaining`, int64 (subjects,): remaining units, charged in place.

        Returns int64 (all cells,), in grid steps.
        """
        flat_cells = cells + np.concatenate([[0], np.cumsum(self.plan.sizes)[:-1]])
        entry_slots = np.repeat(slots, len(self.plan.sizes))
        n_rows = np.maximum(np.bincount(slots, minlength=len(remaining)), 1)
        # Rounded down, so that the rows of a subject together weigh at most 1.
        weights = (self._grid.steps // n_rows)[entry_slots]
        n_cells = sum(self.plan.sizes)
        # One key for each distinct pair of subject and cell, ordered by subject.
        keys, key_of_entry = np.unique(
            entry_slots * n_cells + flat_cells.ravel(), return_inverse=True
        )
        values = np.zeros(len(keys), dtype=np.int64)
        np.add.at(values, key_of_entry, weights)
        self._scale_down_and_charge(values, keys // n_cells, remaining)
        sums = np.zeros(n_cells, dtype=np.int64)
        np.add.at(sums, keys % n_cells, values)
        return sums

    def publish(self, sums: Steps) -> list[Floats]:
        """Return the noisy tables, in subjects; release them once the charges are durable.

        Charges the grid's delta slack. `sums`, int64 (all cells,): results of
        :meth:`contribute_and_charge`, added up over all shards.
        """
        self._slack_accountant.charge([self.scale], len(sums))
        noisy = self._noise.add_to(sums, self.scale) / self._grid.steps
        return np.split(noisy, np.cumsum(self.plan.sizes)[:-1])

    def _scale_down_and_charge(self, values: Steps, slots: Steps, remaining: Units) -> None:
        """Scale contributions down to affordable ones and charge the subjects, both in place.

        `values`, int64 (entries,): nonzero entries of all contributions in steps. `slots`, int64
        (entries,): slot of each entry's subject, ascending, an index into `remaining`.
        """
        starts = np.flatnonzero(np.diff(slots, prepend=-1))
        for start, stop in pairwise([*starts, len(slots)]):
            slot = slots[start]
            contribution = values[start:stop]
            max_charge = min(int(remaining[slot]), self._max_charge)
            remaining[slot] -= self._scale_down(contribution, max_charge)

    def _scale_down(self, contribution: Steps, max_charge: int) -> int:
        """Shrink a contribution in place until it is affordable; return its charge in units.

        `contribution`, int64 (entries,): one subject's nonzero entries in steps. `max_charge`: the
        largest charge, in units.
        """
        cost = self._compute_charge(contribution)
        while cost > max_charge:
            contribution[:] = np.trunc(
                contribution * (math.sqrt(max(max_charge, 0) / cost) * _ROOT_MARGIN)
            )
            cost = self._compute_charge(contribution)
        return cost

    def _compute_charge(self, contribution: Steps) -> int:
        """Return the charge, in units, of a subject's contribution, int64 (entries,), in steps."""
        return int(charge(int(np.square(contribution).sum()), self._rate))
