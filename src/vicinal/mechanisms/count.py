"""Noisy counts: the number of a query's neighbours (paper preset) and the number of records.

Proof note: count.md. Source: ZZGW23 Algorithm 3, lines on K.

Parameters of both mechanisms: `budget`, the zCDP that a subject's full budget stands for; `grid`,
the grid of counts and noise; `noise`, the source of the noise; `slack_accountant`, the account of
the *delta slack*, the part of delta that rounding to the grid costs.

`subjects` are the shard's subjects, or their :class:`SubjectArrays`, of which `n_records` and
`remaining` are two; the remaining units are charged in place. Arguments of the compiled functions:
`steps`, grid steps of one record; `scale`, noise scale in grid steps; `rate`, units charged for a
squared step. They return the sum of all charges as (high, low), ``high * 2^24 + low`` units.

A *hit* is one (query, record) pair in the neighbour lists of queries.
"""

import math

import numpy as np

from vicinal.accounting.budget import compute_unit_rate
from vicinal.accounting.charges import compute_charge
from vicinal.accounting.gaussian import compute_grid_slack
from vicinal.arrays import Bools, Floats, Ints
from vicinal.compiled import compiled
from vicinal.mechanisms.charging import (
    ALL_SUBJECTS,
    LOW_BITS,
    compute_max_norm,
    find_subject_end,
    group_hits_by_subject,
)
from vicinal.mechanisms.subject_table import SubjectTable
from vicinal.mechanisms.votes import DeltaSlackAccountant, VoteGrid
from vicinal.neighbours.scan import NeighbourLists
from vicinal.noise.source import NoiseSource

# Share of its budget that a subject with one record is charged for the estimate of the data size.
SIZE_SHARE = 0.0005

# A subject's count in the estimate of the data size is clipped to this many records.
MAX_COUNTED_RECORDS = 10

# Largest share of its budget that a subject is charged for it: charges grow with the square.
MAX_SIZE_SHARE = SIZE_SHARE * MAX_COUNTED_RECORDS**2


class NoisyCount:
    """Mechanism that releases the number of neighbours of each query with Gaussian noise.

    A subject with m records inside the radius adds m and is charged m^2 / (2 sigma^2). A subject
    that cannot afford its charge is excluded from the query, from the count and from the vote.

    `sigma`: standard deviation of the noise, in records. Attribute: `scale`, in grid steps.
    """

    def __init__(
        self,
        sigma: float,
        budget: float,
        grid: VoteGrid,
        noise: NoiseSource,
        slack_accountant: DeltaSlackAccountant,
    ) -> None:
        self.grid = grid
        self.scale = grid.convert_noise(sigma)
        self._rate = compute_unit_rate(self.scale, budget)
        self._noise = noise
        self._slack_accountant = slack_accountant

    @property
    def slack_per_count(self) -> float:
        """Delta slack of one count."""
        return compute_grid_slack(self.scale)

    def charge_slack(self, n_queries: int) -> None:
        """Charge the delta slack of `n_queries` counts; raise PrivacyRefused if it is used up.

        Call it once, before any subject is charged for these counts.
        """
        self._slack_accountant.charge([self.scale] * n_queries, 1)

    def contribute_and_charge(
        self, neighbours: NeighbourLists, subjects: SubjectTable
    ) -> tuple[Ints, Bools, int]:
        """Return the counts, whether each hit is counted, and the sum of charges; all private.

        The counts, int64 (q,), are in grid steps without noise. A hit is counted, bool (hits,), if
        its subject could afford its charge. The charges are in units. Call it after
        :meth:`charge_slack`, once for each shard. `neighbours`: those of the q queries.
        """
        counts = np.zeros(len(neighbours), dtype=np.int64)
        is_counted = np.zeros(len(neighbours.rows), dtype=np.bool_)
        high, low = charge_neighbour_counts(
            neighbours.starts,
            neighbours.rows,
            subjects.arrays,
            self.grid.steps,
            self.scale,
            self._rate,
            counts,
            is_counted,
        )
        return counts, is_counted, (int(high) << 24) + int(low)

    def publish(self, counts: Ints) -> Floats:
        """Return the noisy counts in records, float64 (q,); they may be released.

        `counts`, int64 (q,): sums of :meth:`contribute_and_charge` over all shards, in steps.
        """
        return self._noise.add_to(counts, self.scale) / self.grid.steps


def compute_size_noise(budget: float) -> float:
    """Return the standard deviation, in records, of the noise of the estimated data size.

    `budget`: the zCDP of a full budget, of which a subject with one record is charged `SIZE_SHARE`.
    """
    return 1 / math.sqrt(2 * SIZE_SHARE * budget)


def release_noisy_size(
    subjects: SubjectTable,
    budget: float,
    grid: VoteGrid,
    noise: NoiseSource,
    slack_accountant: DeltaSlackAccountant,
) -> tuple[float, int]:
    """Return a noisy number of records (public) and the sum of all charges in units (private).

    A subject with m records counts for c = min(m, 10) and is charged `SIZE_SHARE` * c^2 of its
    budget, or neither if less remains. Raises PrivacyRefused, before any charge, if the delta slack
    is used up.
    """
    scale = grid.convert_noise(compute_size_noise(budget))
    rate = compute_unit_rate(scale, budget)
    slack_accountant.charge([scale], 1)
    total, high, low = charge_sizes(
        subjects.n_records, MAX_COUNTED_RECORDS, subjects.remaining, grid.steps, scale, rate
    )
    (noisy,) = noise.add_to(np.array([total], dtype=np.int64), scale)
    return int(noisy) / grid.steps, (int(high) << 24) + int(low)


@compiled
def charge_neighbour_counts(  # type: ignore[no-untyped-def]
    starts, rows, subjects, steps, scale, rate, counts, is_counted
):
    """Charge each subject for its records among a query's neighbours, and count these records.

    A subject with m such records adds all of them for one charge, or none if it cannot afford it.

    - `starts`, int64 (q + 1,), `rows`, int32 (hits,): rows of the neighbours of query j are
      ``rows[starts[j] : starts[j + 1]]``.
    - `counts`, int64 (q,): sums in steps, to which the contributions are added.
    - `is_counted`, bool (hits,): set for the hits of subjects that are counted.
    """
    slots, n_records, remaining = subjects
    high = 0
    low = 0
    max_norm = compute_max_norm(scale)
    cost = compute_charge(min(steps, max_norm) ** 2, rate)
    for j in range(len(starts) - 1):
        n_multirecord_hits = 0
        for hit in range(starts[j], starts[j + 1]):
            slot = slots[rows[hit]]
            if n_records[slot] > 1:
                n_multirecord_hits += 1
                continue
            if steps <= max_norm and cost <= remaining[slot]:
                remaining[slot] -= cost
                counts[j] += steps
                high += cost >> 24
                low += cost & LOW_BITS
                is_counted[hit] = True
        if n_multirecord_hits == 0:
            continue
        order = group_hits_by_subject(
            starts[j], starts[j + 1], rows, slots, n_records, ALL_SUBJECTS
        )
        first = 0
        while first < n_multirecord_hits:
            last = find_subject_end(order, first, rows, slots)
            slot = slots[rows[order[first]]]
            contribution = (last - first) * steps
            # For all hits of the subject together.
            subject_cost = compute_charge(min(contribution, max_norm) ** 2, rate)
            if contribution <= max_norm and subject_cost <= remaining[slot]:
                remaining[slot] -= subject_cost
                counts[j] += contribution
                high += subject_cost >> 24
                low += subject_cost & LOW_BITS
                for hit in order[first:last]:
                    is_counted[hit] = True
            first = last
    return high, low


@compiled
def charge_sizes(n_records, max_records, remaining, steps, scale, rate):  # type: ignore[no-untyped-def]
    """Charge every subject that can afford it for its record count, and sum the counts.

    Returns (sum of the counts in steps, high, low). `max_records`: largest count of one subject.
    """
    total = 0
    high = 0
    low = 0
    max_norm = compute_max_norm(scale)
    for slot in range(len(n_records)):
        contribution = min(n_records[slot], max_records) * steps
        cost = compute_charge(min(contribution, max_norm) ** 2, rate)
        if contribution <= max_norm and cost <= remaining[slot]:
            remaining[slot] -= cost
            total += contribution
            high += cost >> 24
            low += cost & LOW_BITS
    return total, high, low
