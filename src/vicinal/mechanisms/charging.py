"""Compiled functions that compute and charge the contributions of the neighbours of a query block.

The individual filter (votes.md) charges every subject for its own contribution, in the order of
the queries. Subjects can be processed in any order and on any number of threads with the same
result: a budget belongs to one subject, and sums of integers do not depend on the order.

Subjects with one record are processed by tiles of consecutive rows, so that the data of a tile
stays in the cache of a core while all queries pass over it. Subjects with several records, which
may lie in different tiles, are split among the threads by their slot instead.

Terms: a *slot* is the index of a subject in the arrays of subjects; a *hit* is one (query, record)
pair in the neighbour lists; a *unit* is 2^-48 of a full budget; a *step* is one step of the vote
grid; a *rate* is the number of units charged for a squared step. "Kernel" always means the
similarity kernel that weights votes.

Arguments of the four compiled ``charge_...`` functions: `hits` is a :class:`NeighbourArrays`;
`labels`, int32 (n,), the class index of each row, or `vectors` a :class:`VectorArrays`; `subjects`
a :class:`SubjectArrays`, whose remaining units are charged in place; `kernel_weights` a
:class:`KernelWeights`; `vote_prices` a :class:`VotePrices`; `slot_residue` a (remainder, modulus),
which restricts a call to subjects whose slot has this remainder; `scratch` a :class:`Scratch` of
the thread. The contributions are added to `votes` or `sums`, int64 (q, c), in steps. The sum of
all charges is returned as (high, low), and is ``high * 2^24 + low`` units; `n_skipped` is the
number of hits that belong to subjects with several records and were not charged.

Arguments of the other functions: `vector` (a contribution in steps), `is_touched` and `touched` are
the buffers of :class:`Scratch`; `rows`, int32 (hits,), is the row of each hit; `slots`, int32 (n,),
the slot of each row's subject; `n_records`, int32 (m,), the number of rows of each subject.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from vicinal.accounting.budget import MAX_NORM
from vicinal.accounting.charges import compute_charge, compute_label_charge, find_affordable_norm
from vicinal.arrays import Bools, Floats, Ints, Ints32, Steps
from vicinal.compiled import compiled
from vicinal.mechanisms.subject_table import RecordVectors, SubjectTable, multiply_towards_zero
from vicinal.neighbours.kernels import LEVELS
from vicinal.neighbours.scan import NeighbourLists, get_thread_count, map_in_threads
from vicinal.prefetch import prefetch

# Mask of the low 24 bits of a charge. Charges are added up as two int64 sums, of the low 24 bits
# and of the remaining high bits, so that neither sum can overflow.
LOW_BITS = (1 << 24) - 1

# The (remainder, modulus) of slots that selects every subject.
ALL_SUBJECTS = (0, 1)

# Number of hits between a prefetch instruction and the use of the prefetched data. With many
# records, most of the run time is waiting for memory, and prefetching reduces it to a third.
# Prefetching changes no result. The instructions stand in the loops themselves because passing
# arrays to a function would cost more than prefetching saves.
_PREFETCH_DISTANCE = 12


class NeighbourArrays(NamedTuple):
    """The neighbour lists of q queries, cut into tiles of consecutive rows.

    The hits of query j in a tile are those at indices ``bounds[tile, j]`` to
    ``bounds[tile + 1, j] - 1`` of `rows` and `similarities`.

    - `bounds`, int64 (tiles + 1, q): offsets into the other two arrays.
    - `rows`, int32 (hits,): row of the record.
    - `similarities`, int32 (hits,): integer similarity of query and record.
    """

    bounds: Ints
    rows: Ints32
    similarities: Ints32


class VectorArrays(NamedTuple):
    """Sparse target vectors of the records; private.

    - `starts`, int64 (n + 1,): row i has the entries ``starts[i]`` to ``starts[i + 1] - 1``.
    - `coordinates`, int32 (entries,): coordinate of each entry, ascending within a row.
    - `values`, int32 (entries,): value of each entry in steps of 2^-30.
    """

    starts: Ints
    coordinates: Ints32
    values: Ints32


class KernelWeights(NamedTuple):
    """Table of the similarity kernel; public.

    - `weights`, int64 (levels,): the vote of a record in steps, by similarity level.
    - `origin`, `shift`: a similarity s has level ``(s + origin) >> shift``, clipped to the table.
    """

    weights: Ints
    origin: int
    shift: int


class VotePrices(NamedTuple):
    """Noise scales and prices of the votes of q queries; public.

    A contribution costs its squared norm in steps times a rate. A label reveals less than the votes
    behind it: where only labels are released, a contribution to a single coordinate is charged a
    share of that price. The shares are those of a
    :class:`~vicinal.accounting.label_filter.ChargeTable`.

    - `scales`, int64 (q,): noise scale of each query in grid steps.
    - `rates`, float64 (q,): units charged for a squared step of a contribution, rounded up.
    - `single_rates`, float64 (q,): the same for a contribution to a single coordinate.
    - `cells_per_step`, float64 (q,): in row i >= 1 of `shares`, a contribution of s steps is in
      cell ``s * cells_per_step / i``; row 0 has the cells of row 1.
    - `shares`, float64 (rows, cells): row i is used if at least (i / rows)^2 of a full budget
      remains after the charge.
    - `label_only`: whether only labels are released. Only then the two fields before are used, by
      :func:`~vicinal.accounting.charges.compute_label_charge`.
    """

    scales: Ints
    rates: Floats
    single_rates: Floats
    cells_per_step: Floats
    shares: Floats
    label_only: bool

    def select_queries(self, queries: slice) -> VotePrices:
        """Return the prices of a slice of the queries."""
        return self._replace(
            scales=self.scales[queries],
            rates=self.rates[queries],
            single_rates=self.single_rates[queries],
            cells_per_step=self.cells_per_step[queries],
        )


class Scratch(NamedTuple):
    """Buffers in which one thread assembles the contribution of one subject at a time.

    - `vector`, int64 (c,): the contribution in steps.
    - `is_touched`, bool (c,): whether a record of the subject has an entry at the coordinate.
    - `touched`, int64 (c,): the touched coordinates. Only as many leading entries are valid as the
      function has counted; the remaining entries are those of earlier subjects.

    `vector` and `is_touched` are all zero before and after each subject. A remainder would be
    added to the next subject's contribution without being charged to the right subject.
    """

    vector: Ints
    is_touched: Bools
    touched: Ints

    @classmethod
    def allocate(cls, width: int) -> Scratch:
        """Return zeroed buffers for contributions with `width` coordinates."""
        return cls(np.zeros(width, np.int64), np.zeros(width, np.bool_), np.empty(width, np.int64))

    def check_clean(self) -> None:
        """Raise RuntimeError if a function has left a contribution in the buffers.

        Call it before the function's sums are used.
        """
        if self.vector.any() or self.is_touched.any():
            raise RuntimeError("A function left a contribution in its memory. Nothing is released.")


class QueryPrice(NamedTuple):
    """Noise scale and prices of the votes of one query; see :class:`VotePrices`."""

    scale: int
    rate: float
    single_rate: float
    cells_per_step: float
    shares: Floats
    label_only: bool


@compiled
def charge_single_record_votes(  # type: ignore[no-untyped-def]
    hits, labels, subjects, kernel_weights, vote_prices, _scratch, votes
):
    """Add and charge the class votes of subjects with one record; return (high, low, n_skipped).

    The arguments and results of the four ``charge_...`` functions are defined by the module.
    A contribution is the kernel weight of a record near the query, scaled down to the subject's
    remaining budget and added to the votes for the record's class. `_scratch` is not used.
    """
    bounds, rows, similarities = hits
    slots, n_records, remaining = subjects
    weights, origin, shift = kernel_weights
    scales, _, single_rates, cells_per_step, shares, label_only = vote_prices
    high = 0
    low = 0
    n_skipped = 0
    for tile in range(len(bounds) - 1):
        for j in range(bounds.shape[1]):
            max_norm = compute_max_norm(scales[j])
            rate = single_rates[j]
            query_cells_per_step = cells_per_step[j]
            stop = bounds[tile + 1, j]
            for hit in range(bounds[tile, j], stop):
                if hit + 2 * _PREFETCH_DISTANCE < stop:
                    # The slot of a row is prefetched first: the address of the subject's budget
                    # is known only once the slot has been read.
                    prefetch(rows[hit + 2 * _PREFETCH_DISTANCE], slots, labels)
                    prefetch(slots[rows[hit + _PREFETCH_DISTANCE]], n_records, remaining)
                row = np.uint32(rows[hit])  # unsigned: spares the check for negative indices
                slot = np.uint32(slots[row])
                if n_records[slot] > 1:
                    # The other records of this subject may lie in other tiles. All of them are
                    # charged together by charge_multirecord_votes.
                    n_skipped += 1
                    continue
                weight = min(weights[_compute_level(similarities[hit], origin, shift)], max_norm)
                remaining_units = remaining[slot]
                weight = find_affordable_norm(weight, remaining_units, rate)
                if label_only:
                    cost = compute_label_charge(
                        weight, remaining_units, rate, query_cells_per_step, shares
                    )
                else:
                    cost = compute_charge(weight * weight, rate)
                remaining[slot] -= cost
                votes[j, labels[row]] += weight
                high += cost >> 24
                low += cost & LOW_BITS
    return high, low, n_skipped


@compiled
def charge_multirecord_votes(  # type: ignore[no-untyped-def]
    hits, labels, subjects, kernel_weights, vote_prices, slot_residue, scratch, votes
):
    """Add and charge the class votes of subjects with several records; return (high, low).

    A contribution is the sum, for each class, of the kernel weights of the subject's records near
    the query, scaled down to its remaining budget.
    """
    bounds, rows, similarities = hits
    slots, n_records, remaining = subjects
    weights, origin, shift = kernel_weights
    vector, _, all_classes = scratch
    # There are few classes: visiting all of them is cheaper than recording the touched ones.
    all_classes[:] = np.arange(len(all_classes))
    high = 0
    low = 0
    for j in range(bounds.shape[1]):
        price = select_price(vote_prices, j)
        order = group_hits_by_subject(
            bounds[0, j], bounds[-1, j], rows, slots, n_records, slot_residue
        )
        first = 0
        while first < len(order):
            last = find_subject_end(order, first, rows, slots)
            for hit in order[first:last]:
                level = _compute_level(similarities[hit], origin, shift)
                vector[labels[rows[hit]]] += weights[level]
            slot = slots[rows[order[first]]]
            cost = scale_down_to_budget(vector, all_classes, remaining[slot], price)
            remaining[slot] -= cost
            for c in all_classes:
                votes[j, c] += vector[c]
                vector[c] = 0
            high += cost >> 24
            low += cost & LOW_BITS
            first = last
    return high, low


@compiled
def charge_single_record_vectors(  # type: ignore[no-untyped-def]
    hits, vectors, subjects, kernel_weights, vote_prices, scratch, sums
):
    """Add and charge the contributions of subjects with one record; return (high, low, n_skipped).

    A contribution is the kernel weight of a record near the query times the record's vector,
    rounded towards zero and scaled down to the subject's remaining budget.
    """
    bounds, rows, similarities = hits
    slots, n_records, remaining = subjects
    weights, origin, shift = kernel_weights
    vector, is_touched, touched = scratch
    high = 0
    low = 0
    n_skipped = 0
    for tile in range(len(bounds) - 1):
        for j in range(bounds.shape[1]):
            price = select_price(vote_prices, j)
            stop = bounds[tile + 1, j]
            for hit in range(bounds[tile, j], stop):
                if hit + 2 * _PREFETCH_DISTANCE < stop:
                    prefetch(rows[hit + 2 * _PREFETCH_DISTANCE], slots, vectors.starts)
                    prefetch(slots[rows[hit + _PREFETCH_DISTANCE]], n_records, remaining)
                row = rows[hit]
                slot = slots[row]
                if n_records[slot] > 1:
                    n_skipped += 1
                    continue
                weight = weights[_compute_level(similarities[hit], origin, shift)]
                n_touched = _add_record(vectors, row, weight, vector, is_touched, touched, 0)
                cost = scale_down_to_budget(vector, touched[:n_touched], remaining[slot], price)
                remaining[slot] -= cost
                _add_and_reset_scratch(sums[j], vector, is_touched, touched[:n_touched])
                high += cost >> 24
                low += cost & LOW_BITS
    return high, low, n_skipped


@compiled
def charge_multirecord_vectors(  # type: ignore[no-untyped-def]
    hits, vectors, subjects, kernel_weights, vote_prices, slot_residue, scratch, sums
):
    """Add and charge the contributions of subjects with several records; return (high, low).

    A contribution is the sum of kernel weight times record vector over the subject's records near
    the query, rounded towards zero and scaled down to the subject's remaining budget.
    """
    bounds, rows, similarities = hits
    slots, n_records, remaining = subjects
    weights, origin, shift = kernel_weights
    vector, is_touched, touched = scratch
    high = 0
    low = 0
    for j in range(bounds.shape[1]):
        price = select_price(vote_prices, j)
        order = group_hits_by_subject(
            bounds[0, j], bounds[-1, j], rows, slots, n_records, slot_residue
        )
        first = 0
        while first < len(order):
            last = find_subject_end(order, first, rows, slots)
            n_touched = 0
            for hit in order[first:last]:
                weight = weights[_compute_level(similarities[hit], origin, shift)]
                n_touched = _add_record(
                    vectors, rows[hit], weight, vector, is_touched, touched, n_touched
                )
            # `scale_down_to_budget` adds squares in floating point, where the order of coordinates
            # matters. The order of a subject's records can depend on erasures of other subjects,
            # so the coordinates are sorted (votes.md, "Vectors", item on order).
            sort_ascending(touched[:n_touched])
            slot = slots[rows[order[first]]]
            cost = scale_down_to_budget(vector, touched[:n_touched], remaining[slot], price)
            remaining[slot] -= cost
            _add_and_reset_scratch(sums[j], vector, is_touched, touched[:n_touched])
            high += cost >> 24
            low += cost & LOW_BITS
            first = last
    return high, low


@compiled
def compute_max_norm(scale):  # type: ignore[no-untyped-def]
    """Return the largest allowed norm of a contribution, in steps, at noise scale `scale`.

    The delta slack of the grid is proven for norms up to the scale. A norm above 2^31 would
    overflow when squared in int64 and give a negative charge, that is, refund budget.
    """
    return min(scale, MAX_NORM)


@compiled
def select_price(vote_prices, query):  # type: ignore[no-untyped-def]
    """Return the :class:`QueryPrice` of the query with index `query` in :class:`VotePrices`."""
    return QueryPrice(
        vote_prices.scales[query],
        vote_prices.rates[query],
        vote_prices.single_rates[query],
        vote_prices.cells_per_step[query],
        vote_prices.shares,
        vote_prices.label_only,
    )


@compiled
def scale_down_to_budget(vector, touched, remaining, price):  # type: ignore[no-untyped-def]
    """Shrink a contribution in place until it is affordable; return its charge in units.

    The norm is first reduced to the noise scale, because the bound on the grid's delta slack holds
    for shifts up to it, and to 2^31, so that its square fits into int64; then to the remaining
    budget. Coordinates are rounded towards zero. A contribution with a single nonzero coordinate
    keeps the largest affordable value, as for a subject with a single record.

    - `vector`, int64 (c,): the contribution in steps.
    - `touched`, int64: coordinates, ascending; all other coordinates of `vector` are 0.
    - `remaining`: remaining budget of the subject in units.
    - `price`: :class:`QueryPrice` of the query.
    """
    max_norm = compute_max_norm(price.scale)
    remaining = max(remaining, 0)  # with a negative budget only the zero contribution is affordable
    n_nonzero = 0
    last_nonzero = 0
    # A sum of squares in int64 could overflow before the vector is shortened (votes.md,
    # "Products"), so this one is a float.
    squares = 0.0
    for c in touched:
        if vector[c] != 0:
            n_nonzero += 1
            last_nonzero = c
            squares += float(vector[c]) * float(vector[c])
    if n_nonzero == 0:
        return 0
    if n_nonzero == 1:
        rate = price.single_rate
        cells_per_step = price.cells_per_step
        shares = price.shares
        norm = find_affordable_norm(min(abs(vector[last_nonzero]), max_norm), remaining, rate)
        if price.label_only:
            cost = compute_label_charge(norm, remaining, rate, cells_per_step, shares)
        else:
            cost = compute_charge(norm * norm, rate)
        vector[last_nonzero] = norm if vector[last_nonzero] > 0 else -norm
        return cost
    factor = 1.0
    if squares >= float(max_norm) * float(max_norm):
        # The root, the quotient and sums of up to 1,000 squares have a relative error below 1e-12.
        # Without this margin the norm could exceed the noise scale, where no slack is proven.
        factor = float(max_norm) / math.sqrt(squares) * (1 - 1e-12)
    square = _scale_vector(vector, touched, factor)
    # A floating-point sum of a million squares is accurate to 1e-10 only. The exact integer square
    # decides, and factors of 1 - 1e-9 suffice to correct the error. Every nonzero entry loses at
    # least one step per iteration, so the loop ends.
    while square > max_norm * max_norm:
        square = _scale_vector(vector, touched, 1 - 1e-9)
    cost = compute_charge(square, price.rate)
    # The charge is proportional to the squared norm; the margin covers the rounding of the root.
    if cost > remaining:
        factor = math.sqrt(remaining / cost) * (1 - 1e-12)
        cost = compute_charge(_scale_vector(vector, touched, factor), price.rate)
    # Charges above 2^62 units are reported as 2^62, for which the factor above is too large, and
    # charges are rounded up. Losing a thousandth of the contribution matters less than the noise.
    while cost > remaining:
        cost = compute_charge(_scale_vector(vector, touched, 0.999), price.rate)
    return cost


@compiled
def _scale_vector(vector, touched, factor):  # type: ignore[no-untyped-def]
    """Multiply a contribution by `factor` in place and return its new squared norm.

    `vector`, int64 (c,), in steps, is 0 except at the coordinates `touched`. Rounds towards zero; a
    `factor` of 1 or more changes nothing.
    """
    square = 0
    for c in touched:
        if factor < 1.0:  # a floating-point product with 1.0 would round entries beyond 2^53
            vector[c] = int(vector[c] * factor)
        square += vector[c] * vector[c]
    return square


@compiled
def _add_record(vectors, row, weight, vector, is_touched, touched, n_touched):  # type: ignore[no-untyped-def]
    """Add the weighted vector of one record to a contribution; return the new `n_touched`.

    `vectors`: :class:`VectorArrays`; `row`: index of the record in it; `weight`: its kernel weight
    in steps; `n_touched`: number of valid entries of `touched`.
    """
    starts, coordinates, values = vectors
    for entry in range(starts[row], starts[row + 1]):
        c = coordinates[entry]
        # `vector[c] == 0` would not do: the entries of opposite records may cancel to 0.
        if not is_touched[c]:
            is_touched[c] = True
            touched[n_touched] = c
            n_touched += 1
        vector[c] += multiply_towards_zero(weight, values[entry])
    return n_touched


@compiled
def _add_and_reset_scratch(sums, vector, is_touched, touched):  # type: ignore[no-untyped-def]
    """Add a contribution to the sums of one query and reset the buffers of :class:`Scratch`.

    `sums`, int64 (c,): sums of the query in steps. `vector` is 0 except at the coordinates
    `touched`, where alone `is_touched` holds.
    """
    for c in touched:
        sums[c] += vector[c]
        vector[c] = 0
        is_touched[c] = False


@compiled
def _compute_level(similarity, origin, shift):  # type: ignore[no-untyped-def]
    """Return the level of an integer similarity s, its index in the table of kernel weights.

    It is ``(s + origin) >> shift``, clipped to the table's levels.
    """
    return min(max((np.int64(similarity) + origin) >> shift, 0), LEVELS - 1)


@compiled
def group_hits_by_subject(start, stop, rows, slots, n_records, slot_residue):  # type: ignore[no-untyped-def]
    """Return the indices of the hits of subjects with several records, grouped by subject.

    Subjects are in ascending order of their slots; the hits of a subject keep their order. Only the
    hits of one query, from `start` to ``stop - 1``, are grouped, and of these only the hits of
    subjects whose slot has the `slot_residue` (remainder, modulus).
    """
    remainder, modulus = slot_residue
    # The key has the slot in its high 31 bits and the hit in its low 32 bits: a single sort of
    # integers groups the hits by subject and keeps their order.
    keys = np.empty(stop - start, dtype=np.int64)
    size = 0
    for hit in range(start, stop):
        slot = slots[rows[hit]]
        if n_records[slot] > 1 and slot % modulus == remainder:
            keys[size] = (np.int64(slot) << 32) + (hit - start)
            size += 1
    order = keys[:size]
    sort_ascending(order)
    for i in range(size):
        order[i] = start + (order[i] & 0xFFFFFFFF)
    return order


@compiled
def find_subject_end(order, first, rows, slots):  # type: ignore[no-untyped-def]
    """Return the index in `order` after the last hit of a subject.

    `order`, int64: indices of hits, grouped by subject. `first`: index in `order` of its first hit.
    """
    slot = slots[rows[order[first]]]
    last = first + 1
    while last < len(order) and slots[rows[order[last]]] == slot:
        last += 1
    return last


@compiled
def find_differences(first_values, second_values, offset):  # type: ignore[no-untyped-def]
    """Return the indices at which two arrays differ, int32, ascending.

    `first_values`, `second_values`, (n,): the arrays. `offset`: number added to every index.
    """
    # Only the pages that are written to take up memory.
    indices = np.empty(len(first_values) + 1, dtype=np.int32)
    count = 0
    for i in range(len(first_values)):
        # Every index is written, and kept only if the count advances: no branch to mispredict.
        indices[count] = offset + i
        count += first_values[i] != second_values[i]
    return indices[:count].copy()


@compiled
def sort_ascending(values):  # type: ignore[no-untyped-def]
    """Sort `values`, int64 (n,), in place; pass a view of the filled part of a buffer."""
    for i in range(1, len(values)):
        if values[i - 1] > values[i]:
            # Merge sort, because a single late record would make a quicksort quadratic.
            values[:] = values[np.argsort(values, kind="mergesort")]
            return
    # The rows of a subject that was enrolled at once are already in order: one pass is enough.


# Rows of a tile. Their labels, slots, record counts and budgets (20 bytes a row) fit into the
# cache of a core together with the hits.
_TILE_ROWS = 1 << 15

# Fewer hits than this are processed by one thread before further threads have woken up.
_MIN_HITS_PER_THREAD = 1 << 15


def charge_neighbours(
    neighbours: NeighbourLists,
    subjects: SubjectTable,
    weights: KernelWeights,
    prices: VotePrices,
    width: int,
) -> tuple[Steps, int]:
    """Return the sums of all contributions, in steps without noise, and of all charges, in units.

    Both are private; the sums are int64 (q, c).

    - `neighbours`: neighbours of q queries.
    - `subjects`: the shard's subjects; their remaining units are charged in place.
    - `weights`: kernel weights by similarity.
    - `prices`: noise scales and prices of the q queries.
    - `width`: number of coordinates c: of classes, or of a record's vector.
    """
    subject_arrays = subjects.arrays
    targets: Any = subjects.targets
    charge_single = charge_single_record_votes
    charge_multirecord = charge_multirecord_votes
    if isinstance(targets, RecordVectors):
        targets = VectorArrays(targets.starts, targets.coordinates, targets.values)
        charge_single = charge_single_record_vectors
        charge_multirecord = charge_multirecord_vectors
    n_threads = max(1, min(get_thread_count(), len(neighbours.rows) // _MIN_HITS_PER_THREAD))
    bounds = compute_tile_bounds(neighbours, len(subjects.slots), n_threads)

    def charge_tiles(
        charge_hits: Callable[..., Any], tile_bounds: Steps, *slot_residue: object
    ) -> tuple[Any, Steps]:
        """Return the result of `charge_hits`, one of the four functions above, and its sums.

        `tile_bounds`: the :class:`NeighbourArrays` bounds of the tiles to process.
        """
        sums = np.zeros((len(neighbours), width), dtype=np.int64)
        scratch = Scratch.allocate(width)
        hits = NeighbourArrays(tile_bounds, neighbours.rows, neighbours.similarities)
        charges = charge_hits(
            hits, targets, subject_arrays, weights, prices, *slot_residue, scratch, sums
        )
        # Checked before the sums are used: they would contain an uncharged remainder.
        scratch.check_clean()
        return charges, sums

    n_tiles = len(bounds) - 1
    # Every thread gets consecutive tiles.
    tile_groups = np.array_split(np.arange(n_tiles), min(n_tiles, n_threads))
    group_bounds = [bounds[group[0] : group[-1] + 2] for group in tile_groups]
    results = map_in_threads(
        lambda tile_bounds: charge_tiles(charge_single, tile_bounds), group_bounds
    )
    if any(n_skipped for (_, _, n_skipped), _ in results):
        # Subjects are divided by the remainder of their slot, so that subjects enrolled together,
        # with adjacent slots, go to different threads.
        residues = [(remainder, n_threads) for remainder in range(n_threads)]
        results += map_in_threads(
            lambda slot_residue: charge_tiles(charge_multirecord, bounds, slot_residue), residues
        )
    spent = sum((int(charges[0]) << 24) + int(charges[1]) for charges, _ in results)
    return np.sum([sums for _, sums in results], axis=0), spent


def compute_tile_bounds(neighbours: NeighbourLists, n_rows: int, n_threads: int) -> Steps:
    """Return the offsets of the hits of each query in each tile, int64 (tiles + 1, q).

    `neighbours`: neighbour lists of q queries. `n_rows`: number of rows of the shard. The number of
    tiles is a multiple of `n_threads`, or 1 if the rows of some query are not ascending.
    """
    starts = neighbours.starts
    rows = neighbours.rows
    n_tiles = n_threads * -(-n_rows // (n_threads * _TILE_ROWS))
    if n_tiles <= 1 or not _are_ascending(starts, rows):
        return np.stack([starts[:-1], starts[1:]])
    return np.asarray(_find_tile_bounds(starts, rows, np.arange(n_tiles + 1) * n_rows // n_tiles))


@compiled
def _are_ascending(starts, rows):  # type: ignore[no-untyped-def]
    """Return whether ``rows[starts[j] : starts[j + 1]]`` ascend strictly for every query j.

    `starts`, int64 (q + 1,): offsets of the queries' hits in `rows`, int32 (hits,).
    """
    ascending = True  # without an early exit the comparisons are vectorized
    for j in range(len(starts) - 1):
        for hit in range(starts[j] + 1, starts[j + 1]):
            ascending &= rows[hit - 1] < rows[hit]
    return ascending


@compiled
def _find_tile_bounds(starts, rows, edges):  # type: ignore[no-untyped-def]
    """Return the index in `rows` of each query's first row in each tile, int64 (edges, q).

    `edges`: first row of each tile, and the number of rows. The rows of query j, ascending, are
    ``rows[starts[j] : starts[j + 1]]``.
    """
    bounds = np.empty((len(edges), len(starts) - 1), dtype=np.int64)
    for j in range(len(starts) - 1):
        query_rows = rows[starts[j] : starts[j + 1]]
        for tile in range(len(edges)):
            bounds[tile, j] = starts[j] + np.searchsorted(query_rows, edges[tile])
    return bounds
