"""Noisy histograms of labelled rows that subjects provide for an evaluation.

Every subject is charged for its own contribution. Proof note: tally.md. Source: individual filter
of Feldman & Zrnic 2021.
"""

import math
from dataclasses import dataclass

import numpy as np

from vicinal import checks
from vicinal.accounting.budget import UNITS, compute_unit_rate
from vicinal.accounting.charges import compute_charge
from vicinal.accounting.gaussian import compute_grid_slack
from vicinal.arrays import Floats, Steps, Units
from vicinal.mechanisms.votes import DeltaSlackAccountant, VoteGrid
from vicinal.noise.source import NoiseSource

# Smallest share of a budget: the inverse of a smaller one may leave the range of floats.
_MIN_SHARE = 1e-6

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
    so that a subject has weight at most 1 in each table; less if its remaining budget does not
    suffice. Weight and charge are those of rows in one cell, wherever the rows are. So they follow
    from the remaining budget and the number of rows alone, on which certified coverage relies
    (store/coverage.md). One object makes one release; create it before any subject is charged. The
    sums of several shards are added up, and noise is added once to the total.

    `plan`: table sizes and price. `noise`: the source of the noise. `slack_accountant`: the account
    of the delta that rounding to the grid costs. Attributes: `scale`, the noise scale in grid
    steps; public. Raises PrivacyRefused if the grid's slack exceeds its share of delta.
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
        self._rate = compute_unit_rate(self.scale, plan.budget)
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
        n_cells = sum(self.plan.sizes)
        flat_cells = cells + np.concatenate([[0], np.cumsum(self.plan.sizes)[:-1]])
        n_rows = np.bincount(slots, minlength=len(remaining))
        row_weights = np.zeros(len(remaining), dtype=np.int64)
        for slot in np.flatnonzero(n_rows):
            max_charge = min(int(remaining[slot]), self._max_charge)
            row_weights[slot], cost = self._fit_row_weight(int(n_rows[slot]), max_charge)
            remaining[slot] -= cost
        sums = np.zeros(n_cells, dtype=np.int64)
        np.add.at(sums, flat_cells, row_weights[slots][:, np.newaxis])
        return sums

    def publish(self, sums: Steps) -> list[Floats]:
        """Return the noisy tables, in subjects; release them once the charges are durable.

        Charges the grid's delta slack. `sums`, int64 (all cells,): results of
        :meth:`contribute_and_charge`, added up over all shards.
        """
        self._slack_accountant.charge([self.scale], len(sums))
        noisy = self._noise.add_to(sums, self.scale) / self._grid.steps
        return np.split(noisy, np.cumsum(self.plan.sizes)[:-1])

    def _fit_row_weight(self, n_rows: int, max_charge: int) -> tuple[int, int]:
        """Return the weight in steps of each of a subject's `n_rows` rows, and their charge.

        The weight is the largest one, up to rounding, with a charge of at most `max_charge` units.
        """
        weight = self._grid.steps // n_rows
        cost = self._compute_charge(n_rows * weight)
        while cost > max_charge:
            ratio = math.sqrt(max(max_charge, 0) / cost) * _ROOT_MARGIN
            weight = math.trunc(weight * ratio)
            cost = self._compute_charge(n_rows * weight)
        return weight, cost

    def _compute_charge(self, n_steps: int) -> int:
        """Return the charge in units of `n_steps` in one cell of every table, rounded up."""
        # With 32 tables the square can exceed int64, and wrap to a refund. As with int64, it is
        # rounded to float64 once. The rate is rounded up by more.
        return int(compute_charge(float(len(self.plan.sizes) * n_steps**2), self._rate))
