"""Contribution and charge of the neighbours of a block, on all processors.

Two splits are used, and no number depends on either. Subjects with one record are taken tile by
tile, consecutive rows at a time: what a thread reads of them stays in its cache while all queries
pass. Subjects with several records may have them in any tile, so these subjects are split instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from vicinal._arrays import Ints, Steps
from vicinal._compiled import compiled
from vicinal.mechanisms._charging_kernels import (
    KernelWeights,
    NeighbourArrays,
    Scratch,
    SubjectArrays,
    VectorArrays,
    VotePrices,
    charge_vectors,
    charge_vectors_of_several,
    charge_votes,
    charge_votes_of_several,
)
from vicinal.mechanisms._subject_table import RecordVectors, SubjectTable
from vicinal.neighbours import THREADS, NeighbourLists, map_in_threads

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

    parts = [bounds[cut[0] : cut[-1] + 2] for cut in _cuts(len(bounds) - 1, threads)]
    results = map_in_threads(lambda part: charged(single, part), parts)
    if any(left_out for (_, _, left_out), _ in results):
        # By remainder of the slot: subjects that came together go to different threads.
        shares = [(number, threads) for number in range(threads)]
        results += map_in_threads(lambda share: charged(several, bounds, share), shares)
    spent = sum((int(charges[0]) << 24) + int(charges[1]) for charges, _ in results)
    return np.sum([sums for _, sums in results], axis=0), spent


def _cuts(tiles: int, threads: int) -> list[Ints]:
    return np.array_split(np.arange(tiles), min(tiles, threads))


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
