"""The compiled walk through the neighbours of a block: contribute, charge, go on.

Queries are taken in order, and within a query each subject once, so every subject meets its own
charges in the order of the queries. Subjects do not touch each other's budgets; sums of integers
do not depend on order. Hence the result is the same for any order and any split of the records.
"""

from __future__ import annotations

import math

import numpy as np

from vicinal._compiled import compiled
from vicinal.accounting._filter import MAX_NORM, afford, charge
from vicinal.accounting._label_only import label_afford, label_charge
from vicinal.neighbours._kernels import LEVELS

_LOW = (1 << 24) - 1


@compiled
def charge_votes(  # type: ignore[no-untyped-def]
    starts, rows, similarities, labels, slots, records, remaining,
    weights, origin, shift, scales, rates, cells, shares, votes,
):  # fmt: skip
    """Add every subject's contribution to `votes` and take its charge from `remaining`.

    See :class:`vicinal.mechanisms._votes.VoteRelease` for the arrays. Returns the charges summed
    as (high, low) with low parts of 24 bits, which cannot overflow.
    """
    high, low = 0, 0
    vector = np.zeros(votes.shape[1], dtype=np.int64)
    for j in range(len(starts) - 1):
        several = 0
        for hit in range(starts[j], starts[j + 1]):
            row = rows[hit]
            slot = slots[row]
            if records[slot] > 1:
                several += 1
                continue
            weight = min(weights[_level(similarities[hit], origin, shift)], scales[j])
            weight = _afford_one(weight, remaining[slot], rates[j], cells[j], shares)
            cost = _charge_one(weight, rates[j], cells[j], shares)
            remaining[slot] -= cost
            votes[j, labels[row]] += weight
            high += cost >> 24
            low += cost & _LOW
        if several == 0:
            continue
        order = _hits_by_subject(starts[j], starts[j + 1], rows, slots, records, several)
        first = 0
        while first < several:
            last = _run_end(order, first, rows, slots)
            vector[:] = 0
            for hit in order[first:last]:
                level = _level(similarities[hit], origin, shift)
                vector[labels[rows[hit]]] += weights[level]
            slot = slots[rows[order[first]]]
            cost = scale_down(vector, remaining[slot], scales[j], rates[j], cells[j], shares)
            remaining[slot] -= cost
            votes[j] += vector
            high += cost >> 24
            low += cost & _LOW
            first = last
    return high, low


@compiled
def charge_counts(  # type: ignore[no-untyped-def]
    starts, rows, slots, records, remaining, steps, scale, rate, counts, part
):
    """Count every subject that can pay for it; mark its hits in `part`.

    See :class:`vicinal.mechanisms._count.NoisyCount`. Returns charges as :func:`charge_votes`.
    """
    high, low = 0, 0
    for j in range(len(starts) - 1):
        several = 0
        for hit in range(starts[j], starts[j + 1]):
            slot = slots[rows[hit]]
            if records[slot] > 1:
                several += 1
                continue
            cost = charge(steps * steps, rate)
            if steps <= scale and cost <= remaining[slot]:
                remaining[slot] -= cost
                counts[j] += steps
                high += cost >> 24
                low += cost & _LOW
                part[hit] = True
        if several == 0:
            continue
        order = _hits_by_subject(starts[j], starts[j + 1], rows, slots, records, several)
        first = 0
        while first < several:
            last = _run_end(order, first, rows, slots)
            slot = slots[rows[order[first]]]
            # A sum longer than the scale is left out before its square could overflow.
            contribution = (last - first) * steps
            cost = charge(min(contribution, scale) ** 2, rate)
            if contribution <= scale and cost <= remaining[slot]:
                remaining[slot] -= cost
                counts[j] += contribution
                high += cost >> 24
                low += cost & _LOW
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
    for slot in range(len(records)):
        contribution = min(records[slot], most) * steps
        cost = charge(min(contribution, scale) ** 2, rate)
        if contribution <= scale and cost <= remaining[slot]:
            remaining[slot] -= cost
            total += contribution
            high += cost >> 24
            low += cost & _LOW
    return total, high, low


@compiled
def scale_down(vector, remaining, scale, rate, cells, shares):  # type: ignore[no-untyped-def]
    """Shrink `vector` in place to what `remaining` units pay for; return its charge.

    Its norm is first brought down to `scale`, the largest shift that the grid's slack allows, and
    below 2^31, so that its square fits into int64.
    Coordinates are rounded towards zero. A vector with one coordinate keeps the largest value
    that can be afforded, as for a subject with a single record.
    """
    longest = min(scale, MAX_NORM)
    moved = 0
    only = 0
    squares = 0.0
    for c in range(len(vector)):
        if vector[c] > 0:
            moved += 1
            only = c
            squares += float(vector[c]) * float(vector[c])
    if moved == 0:
        return 0
    if moved == 1:
        vector[only] = _afford_one(min(vector[only], longest), remaining, rate, cells, shares)
        return _charge_one(vector[only], rate, cells, shares)
    shrink = 1.0
    if squares >= float(longest) * float(longest):
        shrink = float(longest) / math.sqrt(squares) * (1 - 1e-12)
    cost = _shrunk(vector, shrink, rate)
    if cost > remaining:
        shrink = math.sqrt(max(remaining, 0) / cost) * (1 - 1e-12)
        cost = _shrunk(vector, shrink, rate)
    while cost > remaining:
        cost = _shrunk(vector, 0.999, rate)
    return cost


@compiled
def _charge_one(norm, rate, cells, shares):  # type: ignore[no-untyped-def]
    """Return the charge of moving one coordinate by `norm` steps; a single share stands for 1."""
    if len(shares) == 1:
        return charge(norm * norm, rate)
    return label_charge(norm, rate, cells, shares)


@compiled
def _afford_one(norm, remaining, rate, cells, shares):  # type: ignore[no-untyped-def]
    """Return the largest whole norm <= `norm` that `remaining` units pay for."""
    if len(shares) == 1:
        return afford(norm, remaining, rate)
    return label_afford(norm, remaining, rate, cells, shares)


@compiled
def _shrunk(vector, factor, rate):  # type: ignore[no-untyped-def]
    """Multiply in place, rounding towards zero; return the charge of the result."""
    square = 0
    for c in range(len(vector)):
        if factor < 1.0:
            vector[c] = int(vector[c] * factor)
        square += vector[c] * vector[c]
    return charge(square, rate)


@compiled
def _level(similarity, origin, shift):  # type: ignore[no-untyped-def]
    """Return the level of one similarity, as ``Kernel.levels`` defines it."""
    return min(max((np.int64(similarity) + origin) >> shift, 0), LEVELS - 1)


@compiled
def _hits_by_subject(start, stop, rows, slots, records, several):  # type: ignore[no-untyped-def]
    """Return the `several` hits of subjects with more than one record, grouped by subject."""
    chosen = np.empty(several, dtype=np.int64)
    keys = np.empty(several, dtype=np.int64)
    at = 0
    for hit in range(start, stop):
        slot = slots[rows[hit]]
        if records[slot] > 1:
            chosen[at] = hit
            keys[at] = slot
            at += 1
    return chosen[np.argsort(keys, kind="mergesort")]


@compiled
def _run_end(order, first, rows, slots):  # type: ignore[no-untyped-def]
    """Return where the run of hits of the subject at `first` ends."""
    slot = slots[rows[order[first]]]
    last = first + 1
    while last < len(order) and slots[rows[order[last]]] == slot:
        last += 1
    return last
