"""Compiled counts of neighbours and of records, charged to each subject.

Queries are taken in order, as in :mod:`vicinal.mechanisms._charging_kernels`.
"""

from __future__ import annotations

from vicinal._compiled import compiled
from vicinal.accounting import charge
from vicinal.mechanisms._charging_kernels import (
    EVERYBODY,
    LOW,
    hits_by_subject,
    longest_norm,
    run_end,
)


@compiled
def charge_counts(  # type: ignore[no-untyped-def]
    starts, rows, slots, records, remaining, steps, scale, rate, counts, part
):
    """Count every subject that can pay for it; mark its hits in `part`.

    See :class:`vicinal.mechanisms._count.NoisyCount`. Returns charges as :func:`charge_votes`.
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
        order = hits_by_subject(starts[j], starts[j + 1], rows, slots, records, EVERYBODY)
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

    See :func:`vicinal.mechanisms._count.noisy_size`. Returns (count in steps, high, low).
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
