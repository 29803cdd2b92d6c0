"""Noisy counts: how many neighbours a query has (the paper's preset), how many records there are.

Proof note: count.md. Source: ZZGW23 Algorithm 3, lines on K.
"""

import math

import numpy as np

from vicinal.accounting.budget import unit_rate
from vicinal.accounting.charges import charge
from vicinal.accounting.gaussian import grid_slack
from vicinal.arrays import Bools, Floats, Ints
from vicinal.compiled import compiled
from vicinal.mechanisms.charging import ALL_SUBJECTS, LOW, hits_by_subject, longest_norm, run_end
from vicinal.mechanisms.subject_table import SubjectTable
from vicinal.mechanisms.votes import DeltaSlackAccountant, VoteGrid
from vicinal.neighbours.scan import NeighbourLists
from vicinal.noise.source import NoiseSource

SIZE_SHARE = 0.0005  # share of its budget that one record pays for being counted once, at the start
SIZE_RECORDS = 10  # records that one subject counts for at most in the estimate of the size
MOST_OF_SIZE = SIZE_SHARE * SIZE_RECORDS**2
"""The share of its budget that any subject pays for that estimate."""


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
        """Meter the grid's cost of so many counts, once, before any subject is charged for them."""
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
        return self._noise.add_to(counts, self.scale) / self.grid.steps


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
    (noisy,) = noise.add_to(np.array([total], dtype=np.int64), scale)
    return int(noisy) / grid.steps, (int(high) << 24) + int(low)


@compiled
def charge_counts(  # type: ignore[no-untyped-def]
    starts, rows, slots, records, remaining, steps, scale, rate, counts, part
):
    """Count every subject that can pay for it; mark its hits in `part`.

    See :class:`vicinal.mechanisms.count.NoisyCount`. Returns charges as :func:`charge_votes`.
    """
    high, low = 0, 0
    longest = longest_norm(scale)
    cost = charge(min(steps, longest) ** 2, rate)
    for j in range(len(starts) - 1):
        several = 0
        for hit in range(starts[j], starts[j + 1]):
            slot = slots[rows[hit]]
            if records[slot] > 1:
                several += 1
                continue
            if steps <= longest and cost <= remaining[slot]:
                remaining[slot] -= cost
                counts[j] += steps
                high, low = high + (cost >> 24), low + (cost & LOW)
                part[hit] = True
        if several == 0:
            continue
        order = hits_by_subject(starts[j], starts[j + 1], rows, slots, records, ALL_SUBJECTS)
        first = 0
        while first < several:
            last = run_end(order, first, rows, slots)
            slot = slots[rows[order[first]]]
            contribution = (last - first) * steps
            whole_cost = charge(min(contribution, longest) ** 2, rate)
            if contribution <= longest and whole_cost <= remaining[slot]:
                remaining[slot] -= whole_cost
                counts[j] += contribution
                high, low = high + (whole_cost >> 24), low + (whole_cost & LOW)
                for hit in order[first:last]:
                    part[hit] = True
            first = last
    return high, low


@compiled
def charge_sizes(records, most, remaining, steps, scale, rate):  # type: ignore[no-untyped-def]
    """Count min(records, most) of every subject that can pay for it.

    See :func:`vicinal.mechanisms.count.noisy_size`. Returns (count in steps, high, low).
    """
    total, high, low = 0, 0, 0
    longest = longest_norm(scale)
    for slot in range(len(records)):
        contribution = min(records[slot], most) * steps
        cost = charge(min(contribution, longest) ** 2, rate)
        if contribution <= longest and cost <= remaining[slot]:
            remaining[slot] -= cost
            total += contribution
            high, low = high + (cost >> 24), low + (cost & LOW)
    return total, high, low
