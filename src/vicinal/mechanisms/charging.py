"""Contribution and charge of the neighbours of a block: compiled kernels, and who works on what.

Every subject meets its own charges in the order of the queries, and each query once. Subjects do
not touch each other's budgets; sums of integers do not depend on order. Hence the result is the
same for any order and any split of the subjects.

Two splits are used. Subjects with one record are taken tile by tile, consecutive rows at a time:
what a thread reads of them stays in its cache while all queries pass. Subjects with several records
may have them in any tile, so these subjects are split instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from vicinal.accounting.budget import MAX_NORM
from vicinal.accounting.charges import charge, find_affordable_norm, label_charge
from vicinal.arrays import Bools, Floats, Ints, Ints32, Steps
from vicinal.compiled import compiled
from vicinal.mechanisms.subject_table import RecordVectors, SubjectTable, towards_zero
from vicinal.neighbours.kernels import LEVELS
from vicinal.neighbours.scan import THREADS, NeighbourLists, map_in_threads
from vicinal.prefetch import prefetch

LOW = (1 << 24) - 1  # what of a charge is summed by itself, so that sums of charges cannot overflow

# The share of subjects that leaves no subject out, see :func:`charge_vectors_of_several`.
ALL_SUBJECTS = (0, 1)

# Hits between the hint that a subject's numbers are wanted and their use. With many records most of
# a walk is waiting for memory, and hints make it a third. They change no number. They stand in the
# loops, because handing arrays to a function costs more than they save.
_AHEAD = 12


class NeighbourArrays(NamedTuple):
    """The neighbours of q queries: `bounds` (tiles + 1, q), `rows` and `similarities` (hits,).

    Those of query j in one tile stand at ``bounds[tile, j]:bounds[tile + 1, j]``.
    """

    bounds: Ints
    rows: Ints32
    similarities: Ints32


class SubjectArrays(NamedTuple):
    """Subjects of records, (n,); records and remaining units of subjects, (m,)."""

    slots: Ints32
    records: Ints32
    remaining: Ints


class VectorArrays(NamedTuple):
    """The arrays of :class:`vicinal.mechanisms.subject_table.RecordVectors`."""

    starts: Ints
    coordinates: Ints32
    values: Ints32


class KernelWeights(NamedTuple):
    """Votes by level of similarity, int64 (levels,), and how a similarity becomes a level."""

    weights: Ints
    origin: int
    shift: int


class VotePrices(NamedTuple):
    """What votes cost; the arrays of :class:`vicinal.mechanisms.votes.BlockRelease`.

    `label_only` says whether moving one coordinate, at `single_rates`, costs a share of the price,
    by `price_table`.
    """

    scales: Ints
    rates: Floats
    single_rates: Floats
    table_scale: Floats
    price_table: Floats
    label_only: bool


class Scratch(NamedTuple):
    """Memory in which a kernel puts one subject's contribution together; for one thread at a time.

    - `vector`, int64 (c,): the contribution; `moved`, bool (c,): its coordinates that were touched.
      Both are zero whenever a kernel begins or ends a subject: what is left in them would be added
      to the next subject's contribution, uncharged or charged to another.
    - `touched`, int64 (c,): the first of them name the coordinates; what stands behind is old.
    """

    vector: Ints
    moved: Bools
    touched: Ints

    @classmethod
    def of(cls, width: int) -> Scratch:
        """Return clean memory for contributions with `width` coordinates."""
        return cls(np.zeros(width, np.int64), np.zeros(width, np.bool_), np.empty(width, np.int64))

    def check_clean(self) -> None:
        """Raise RuntimeError if a contribution was left behind, before any sum is used."""
        if self.vector.any() or self.moved.any():
            raise RuntimeError("A kernel left a contribution in its memory. Nothing is released.")


class OnePrice(NamedTuple):
    """What the votes of one query cost; see :class:`VotePrices`."""

    scale: int
    rate: float
    single_rate: float
    table_scale: float
    price_table: Floats
    label_only: bool


@compiled
def charge_votes(hits, labels, subjects, kernel, prices, _scratch, votes):  # type: ignore[no-untyped-def]
    """Do what :func:`charge_vectors` does, faster, where every record carries one class.

    `labels`, int32 (n,), are the coordinates at which the records' vectors have their one. A
    contribution is one number here, and needs no scratch.
    """
    bounds, rows, similarities = hits
    slots, records, remaining = subjects
    weights, origin, shift = kernel
    scales, _, rates, table_scale, price_table, label_only = prices
    high, low, several = 0, 0, 0
    for tile in range(len(bounds) - 1):
        for j in range(bounds.shape[1]):
            longest, rate, cells = longest_norm(scales[j]), rates[j], table_scale[j]
            stop = bounds[tile + 1, j]
            for hit in range(bounds[tile, j], stop):
                if hit + 2 * _AHEAD < stop:
                    # A row's slot is asked for first: only then it is known whose budget comes.
                    prefetch(rows[hit + 2 * _AHEAD], slots, labels)
                    prefetch(slots[rows[hit + _AHEAD]], records, remaining)
                row = np.uint32(rows[hit])  # unsigned: nothing is counted from the end
                slot = np.uint32(slots[row])
                if records[slot] > 1:
                    # Its other records may lie in any tile: all of them are charged at once, later.
                    several += 1
                    continue
                weight = min(weights[_level(similarities[hit], origin, shift)], longest)
                left = remaining[slot]
                weight = find_affordable_norm(weight, left, rate)
                if label_only:
                    cost = label_charge(weight, left, rate, cells, price_table)
                else:
                    cost = charge(weight * weight, rate)
                remaining[slot] -= cost
                votes[j, labels[row]] += weight
                high, low = high + (cost >> 24), low + (cost & LOW)
    return high, low, several


@compiled
def charge_votes_of_several(  # type: ignore[no-untyped-def]
    hits, labels, subjects, kernel, prices, share, scratch, votes
):
    """Do what :func:`charge_vectors_of_several` does where every record carries one class."""
    bounds, rows, similarities = hits
    slots, records, remaining = subjects
    weights, origin, shift = kernel
    vector, _, every = scratch
    # Classes are few: all of them are looked at, and none is noted as touched.
    every[:] = np.arange(len(every))
    high, low = 0, 0
    for j in range(bounds.shape[1]):
        price = one_price(prices, j)
        order = hits_by_subject(bounds[0, j], bounds[-1, j], rows, slots, records, share)
        first = 0
        while first < len(order):
            last = run_end(order, first, rows, slots)
            for hit in order[first:last]:
                vector[labels[rows[hit]]] += weights[_level(similarities[hit], origin, shift)]
            slot = slots[rows[order[first]]]
            cost = scale_down(vector, every, remaining[slot], price)
            remaining[slot] -= cost
            for c in every:
                votes[j, c] += vector[c]
                vector[c] = 0
            high, low = high + (cost >> 24), low + (cost & LOW)
            first = last
    return high, low


@compiled
def charge_vectors(  # type: ignore[no-untyped-def]
    hits, vectors, subjects, kernel, prices, scratch, sums
):
    """Add what every subject with one record contributes to `sums`, and take its charge.

    A subject's contribution is the sum, over its records, of the kernel weight times the record's
    vector, each rounded towards zero, then scaled down to what is left of its budget.

    Returns the charges summed as (high, low) with low parts of 24 bits, which cannot overflow, and
    how many hits were left out as those of subjects with several records.
    """
    bounds, rows, similarities = hits
    slots, records, remaining = subjects
    weights, origin, shift = kernel
    vector, moved, touched = scratch
    high, low, several = 0, 0, 0
    for tile in range(len(bounds) - 1):
        for j in range(bounds.shape[1]):
            price = one_price(prices, j)
            stop = bounds[tile + 1, j]
            for hit in range(bounds[tile, j], stop):
                if hit + 2 * _AHEAD < stop:
                    prefetch(rows[hit + 2 * _AHEAD], slots, vectors.starts)
                    prefetch(slots[rows[hit + _AHEAD]], records, remaining)
                row = rows[hit]
                slot = slots[row]
                if records[slot] > 1:
                    several += 1
                    continue
                weight = weights[_level(similarities[hit], origin, shift)]
                size = _add_record(vectors, row, weight, vector, moved, touched, 0)
                cost = scale_down(vector, touched[:size], remaining[slot], price)
                remaining[slot] -= cost
                _move_to(sums[j], vector, moved, touched[:size])
                high, low = high + (cost >> 24), low + (cost & LOW)
    return high, low, several


@compiled
def charge_vectors_of_several(  # type: ignore[no-untyped-def]
    hits, vectors, subjects, kernel, prices, share, scratch, sums
):
    """Add what subjects with several records contribute to `sums`, and take their charges.

    `share` is (number, of how many): the subjects whose slot leaves that remainder. Returns charges
    as :func:`charge_vectors`.
    """
    bounds, rows, similarities = hits
    slots, records, remaining = subjects
    weights, origin, shift = kernel
    vector, moved, touched = scratch
    high, low = 0, 0
    for j in range(bounds.shape[1]):
        price = one_price(prices, j)
        order = hits_by_subject(bounds[0, j], bounds[-1, j], rows, slots, records, share)
        first = 0
        while first < len(order):
            last = run_end(order, first, rows, slots)
            size = 0
            for hit in order[first:last]:
                weight = weights[_level(similarities[hit], origin, shift)]
                size = _add_record(vectors, rows[hit], weight, vector, moved, touched, size)
            # `scale_down` adds up in floating point, where order shows; that of a subject's records
            # can be set by other subjects' erasures (votes.md, "Order").
            sort_ascending(touched[:size])
            slot = slots[rows[order[first]]]
            cost = scale_down(vector, touched[:size], remaining[slot], price)
            remaining[slot] -= cost
            _move_to(sums[j], vector, moved, touched[:size])
            high, low = high + (cost >> 24), low + (cost & LOW)
            first = last
    return high, low


@compiled
def longest_norm(scale):  # type: ignore[no-untyped-def]
    """Return the longest contribution at a noise scale, in steps.

    The grid's slack is proven up to the scale, and a longer square than that of 2^31 would wrap
    around in int64: to a charge below 0, which refunds budget.
    """
    return min(scale, MAX_NORM)


@compiled
def one_price(prices, query):  # type: ignore[no-untyped-def]
    """Return what the votes of one query cost, as :class:`OnePrice`."""
    return OnePrice(
        prices.scales[query], prices.rates[query], prices.single_rates[query],
        prices.table_scale[query], prices.price_table, prices.label_only,
    )  # fmt: skip


@compiled
def scale_down(vector, touched, remaining, price):  # type: ignore[no-untyped-def]
    """Shrink `vector` in place to what `remaining` units pay for; return its charge.

    Only the coordinates in `touched`, ascending, can be other than 0. The norm is first brought
    down to the scale, the largest shift that the grid's slack allows, and to 2^31, so that its
    square fits into int64. Coordinates are rounded towards zero. A vector with one coordinate keeps
    the largest value that can be afforded, as for a subject with a single record.
    """
    longest = longest_norm(price.scale)
    remaining = max(remaining, 0)  # below 0 no contribution but 0 is short enough
    moved = 0
    only = 0
    squares = 0.0  # whole ones could wrap around before the vector is cut (votes.md, "Products")
    for c in touched:
        if vector[c] != 0:
            moved += 1
            only = c
            squares += float(vector[c]) * float(vector[c])
    if moved == 0:
        return 0
    if moved == 1:
        rate, cells, shares = price.single_rate, price.table_scale, price.price_table
        norm = find_affordable_norm(min(abs(vector[only]), longest), remaining, rate)
        if price.label_only:
            cost = label_charge(norm, remaining, rate, cells, shares)
        else:
            cost = charge(norm * norm, rate)
        vector[only] = norm if vector[only] > 0 else -norm
        return cost
    shrink = 1.0
    if squares >= float(longest) * float(longest):
        # The root, the quotient and sums of up to 1,000 squares lose less than 1e-12. Without the
        # margin the vector could come out longer than the scale, for which no slack is proven.
        shrink = float(longest) / math.sqrt(squares) * (1 - 1e-12)
    square = _shrunk(vector, touched, shrink)
    # A floating sum of a million squares is known to 1e-10 only: the whole one decides, and 1e-9
    # is enough for that. Every entry that is left loses at least a step, so the loop ends.
    while square > longest * longest:
        square = _shrunk(vector, touched, 1 - 1e-9)
    cost = charge(square, price.rate)
    # The charge goes with the square; the margin is for the root's own rounding.
    if cost > remaining:
        shrink = math.sqrt(remaining / cost) * (1 - 1e-12)
        cost = charge(_shrunk(vector, touched, shrink), price.rate)
    # Beyond 2^62 units the charge is given as 2^62, so that the root does not shrink enough, and
    # it is rounded up. What a thousandth too much costs the answer is less than its noise.
    while cost > remaining:
        cost = charge(_shrunk(vector, touched, 0.999), price.rate)
    return cost


@compiled
def _shrunk(vector, touched, factor):  # type: ignore[no-untyped-def]
    """Multiply in place, rounding towards zero; return the squared norm of the result."""
    square = 0
    for c in touched:
        if factor < 1.0:  # a product with 1.0 would round entries beyond 2^53
            vector[c] = int(vector[c] * factor)
        square += vector[c] * vector[c]
    return square


@compiled
def _add_record(vectors, row, weight, vector, moved, touched, size):  # type: ignore[no-untyped-def]
    """Add a record's vector times its weight; return how many coordinates are in `touched`."""
    starts, coordinates, values = vectors
    for entry in range(starts[row], starts[row + 1]):
        c = coordinates[entry]
        if not moved[c]:  # not `vector[c] == 0`: opposite records may add up to 0
            moved[c] = True
            touched[size] = c
            size += 1
        vector[c] += towards_zero(weight, values[entry])
    return size


@compiled
def _move_to(sums, vector, moved, touched):  # type: ignore[no-untyped-def]
    """Add a contribution to the sums, and leave the buffers as they were."""
    for c in touched:
        sums[c] += vector[c]
        vector[c] = 0
        moved[c] = False


@compiled
def _level(similarity, origin, shift):  # type: ignore[no-untyped-def]
    return min(max((np.int64(similarity) + origin) >> shift, 0), LEVELS - 1)


@compiled
def hits_by_subject(start, stop, rows, slots, records, share):  # type: ignore[no-untyped-def]
    """Return the hits of subjects with several records, those in `share`, grouped by subject."""
    number, shares = share
    # Slot, then hit, 31 bits each: one sort of numbers groups by subject and keeps hits in order.
    keys = np.empty(stop - start, dtype=np.int64)
    size = 0
    for hit in range(start, stop):
        slot = slots[rows[hit]]
        if records[slot] > 1 and slot % shares == number:
            keys[size] = (np.int64(slot) << 32) + (hit - start)
            size += 1
    order = keys[:size]
    sort_ascending(order)
    for i in range(size):
        order[i] = start + (order[i] & 0xFFFFFFFF)
    return order


@compiled
def run_end(order, first, rows, slots):  # type: ignore[no-untyped-def]
    """Return where the run of hits of the subject at `first` ends."""
    slot = slots[rows[order[first]]]
    last = first + 1
    while last < len(order) and slots[rows[order[last]]] == slot:
        last += 1
    return last


@compiled
def find_differences(one, other, first):  # type: ignore[no-untyped-def]
    """Return where two arrays differ, counted from `first`, int32 ascending."""
    places = np.empty(len(one) + 1, dtype=np.int32)  # memory for what is written, no more
    at = 0
    for i in range(len(one)):
        places[at] = first + i  # written first, kept or not: no branch is foreseen wrongly
        at += one[i] != other[i]
    return places[:at].copy()


@compiled
def sort_ascending(values):  # type: ignore[no-untyped-def]
    """Sort all of `values`, int64 (n,), in place.

    A caller hands over a view of what it filled: entries of a longer buffer beyond it would belong
    to another subject.
    """
    for i in range(1, len(values)):
        if values[i - 1] > values[i]:
            # Not quicksort: one record that came late would make it quadratic.
            values[:] = values[np.argsort(values, kind="mergesort")]
            return
    # Rows of a subject that came together are in order already: reading them once is enough.


_TILE = 1 << 15  # rows whose labels, subjects and budgets fit a core's cache beside the hits
_ALONE = 1 << 15  # hits that one thread is through before others have woken up


def charge_neighbours(
    neighbours: NeighbourLists,
    subjects: SubjectTable,
    weights: KernelWeights,
    prices: VotePrices,
    width: int,
) -> tuple[Steps, int]:
    """Charge every neighbour for its contribution; return (sums, all charges). Private.

    - `neighbours`: of q queries.
    - `subjects`: whose `remaining` is charged.
    - `weights`, `prices`: what a neighbour contributes, and what that costs.
    - `width`: the number of coordinates c of the sums, int64 (q, c).
    """
    targets: Any = subjects.targets
    single, several = charge_votes, charge_votes_of_several
    if isinstance(targets, RecordVectors):
        targets = VectorArrays(targets.starts, targets.coordinates, targets.values)
        single, several = charge_vectors, charge_vectors_of_several
    budgets = SubjectArrays(subjects.slots, subjects.records, subjects.remaining)
    threads = max(1, min(THREADS, len(neighbours.rows) // _ALONE))
    bounds = tile_bounds(neighbours, len(subjects.slots), threads)

    def charged(kernel: Callable[..., Any], part: Steps, *share: object) -> tuple[Any, Steps]:
        sums, scratch = np.zeros((len(neighbours), width), dtype=np.int64), Scratch.of(width)
        hits = NeighbourArrays(part, neighbours.rows, neighbours.similarities)
        charges = kernel(hits, targets, budgets, weights, prices, *share, scratch, sums)
        scratch.check_clean()  # before the sum is used: an uncharged remainder would be in it
        return charges, sums

    tiles = len(bounds) - 1
    cuts = np.array_split(np.arange(tiles), min(tiles, threads))  # consecutive ones for each thread
    parts = [bounds[cut[0] : cut[-1] + 2] for cut in cuts]
    results = map_in_threads(lambda part: charged(single, part), parts)
    if any(left_out for (_, _, left_out), _ in results):
        # By remainder of the slot: subjects that came together go to different threads.
        shares = [(number, threads) for number in range(threads)]
        results += map_in_threads(lambda share: charged(several, bounds, share), shares)
    spent = sum((int(charges[0]) << 24) + int(charges[1]) for charges, _ in results)
    return np.sum([sums for _, sums in results], axis=0), spent


def tile_bounds(neighbours: NeighbourLists, size: int, threads: int) -> Steps:
    """Return where the hits of each query begin in each tile, (tiles + 1, q).

    One tile holds all rows where a query's rows do not ascend.
    """
    starts, rows = neighbours.starts, neighbours.rows
    tiles = threads * -(-size // (threads * _TILE))
    if tiles <= 1 or not _ascending(starts, rows):
        return np.stack([starts[:-1], starts[1:]])
    return np.asarray(_tile_bounds(starts, rows, np.arange(tiles + 1) * size // tiles))


@compiled
def _ascending(starts, rows):  # type: ignore[no-untyped-def]
    """Tell whether the rows of every query ascend."""
    ascending = True  # without an early exit the comparisons fill vectors
    for j in range(len(starts) - 1):
        for hit in range(starts[j] + 1, starts[j + 1]):
            ascending &= rows[hit - 1] < rows[hit]
    return ascending


@compiled
def _tile_bounds(starts, rows, edges):  # type: ignore[no-untyped-def]
    """Return where rows of at least each edge begin in the list of every query."""
    bounds = np.empty((len(edges), len(starts) - 1), dtype=np.int64)
    for j in range(len(starts) - 1):
        own = rows[starts[j] : starts[j + 1]]
        for tile in range(len(edges)):
            bounds[tile, j] = starts[j] + np.searchsorted(own, edges[tile])
    return bounds
