"""Noisy counts: how many neighbours a query has (the paper's preset), how many records there are.

Proof note: count.md. Source: ZZGW23 Algorithm 3, lines on K.
"""

from __future__ import annotations

import math

import numpy as np

from vicinal._arrays import Bools, Floats, Ints
from vicinal.accounting import grid_slack, unit_rate
from vicinal.mechanisms._counting_kernels import charge_counts, charge_sizes
from vicinal.mechanisms._subject_table import SubjectTable
from vicinal.mechanisms._votes import DeltaSlackAccountant, VoteGrid
from vicinal.neighbours import NeighbourLists
from vicinal.noise import NoiseSource

SIZE_SHARE = 0.0005  # share of its budget that one record pays for being counted once, at the start
SIZE_RECORDS = 10  # records that one subject counts for at most in the estimate of the size


class NoisyCount:
    """The number of neighbours of each query, with noise of scale `sigma` records.

    A subject with m records inside the radius adds m and is charged m^2 / (2 sigma^2); one that
    cannot afford its charge takes no part in the query at all, neither here nor in the vote.
    """

    def __init__(
        self,
        sigma: float,
        budget: float,
        grid: VoteGrid,
        noise: NoiseSource,
        slack: DeltaSlackAccountant,
    ) -> None:
        self.grid = grid
        self.scale = grid.scale(sigma)
        self._rate = unit_rate(self.scale, budget)
        self._noise = noise
        self._slack = slack

    @property
    def slack(self) -> float:
        """The delta that the grid costs in one count."""
        return grid_slack(self.scale)

    def price(self, queries: int) -> None:
        """Meter the grid's cost of so many counts, once, before anybody is charged for them."""
        self._slack.charge([self.scale] * queries, 1)

    def contribute_and_charge(
        self, neighbours: NeighbourLists, subjects: SubjectTable
    ) -> tuple[Ints, Bools, int]:
        """Charge the neighbours and return (counts, who takes part, all charges); still private.

        After :meth:`price`, once for each shard that holds records.

        Returns
        -------
        counts : int64 (q,)
            Sums in grid steps.
        part : bool (hits,)
            Which hits belong to subjects that could pay.
        spent : int
            All charges together, in units.
        """
        counts = np.zeros(len(neighbours), dtype=np.int64)
        part = np.zeros(len(neighbours.rows), dtype=np.bool_)
        high, low = charge_counts(
            neighbours.starts, neighbours.rows,
            subjects.slots, subjects.records, subjects.remaining,
            self.grid.steps, self.scale, self._rate, counts, part,
        )  # fmt: skip
        return counts, part, (int(high) << 24) + int(low)

    def publish(self, counts: Ints) -> Floats:
        """Add the noise that the charges paid for and return counts, float64 (q,)."""
        return (counts + self._noise.discrete_gaussian(self.scale, len(counts))) / self.grid.steps


def size_noise(budget: float) -> float:
    """Return the noise scale, in records, of the estimate of the size."""
    return 1 / math.sqrt(2 * SIZE_SHARE * budget)


def noisy_size(
    subjects: SubjectTable,
    budget: float,
    grid: VoteGrid,
    noise: NoiseSource,
    slack: DeltaSlackAccountant,
) -> tuple[float, int]:
    """Estimate the number of records once, for `SIZE_SHARE` of the budget of each.

    A subject counts for min(records, 10) and pays the square of that. Returns the noisy size,
    which is public, and all charges in units, which are private.
    """
    scale = grid.scale(size_noise(budget))
    rate = unit_rate(scale, budget)
    slack.charge([scale], 1)
    total, high, low = charge_sizes(
        subjects.records, SIZE_RECORDS, subjects.remaining, grid.steps, scale, rate
    )
    estimate = (int(total) + int(noise.discrete_gaussian(scale, 1)[0])) / grid.steps
    return estimate, (int(high) << 24) + int(low)
