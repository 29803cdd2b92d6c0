"""The k nearest subjects of a Poisson sample, without a draw for every record.

Drawing for all records and looking at the sample costs n draws and n distances a query. Equal in
distribution: take any set of candidates that holds all records up to some distance, draw for them
alone, and stop if k are in the sample; nobody further away can be among the k. Only if there are
fewer is it drawn for the others, too. The set must be fixed before the draws; how it is found
changes no law. It is found by a radius, at a rank among some of the records.

*Order.* A smaller integer distance comes first, then a smaller row. It is a strict order of all
records; without one of them, the others keep theirs. So with one subject more or less, one record
comes and at most one goes among the k nearest.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from vicinal import _checks
from vicinal._compiled import compiled
from vicinal.neighbours._index import ExactIndex
from vicinal.neighbours._kernels import IntegerMatrix, Kernel
from vicinal.neighbours._radius import Reference
from vicinal.neighbours._scan import NeighbourLists

NOBODY = -1
"""Stands in a row of chosen records where the sample held fewer than k subjects."""

Chosen = npt.NDArray[np.int32]

_PROBES = 1024
"""Records whose distances tell where the radius must lie."""

_MARGIN = 3.0
"""Standard deviations by which heads, and the rank of a radius, are planned too large."""

_MOST_SHARE = 0.8
"""Beyond this share of all records a radius saves nothing."""

_EVERYBODY = -(1 << 40)
"""A radius that all records lie inside."""


def candidates(k: int, gamma: float) -> float:
    """Return how many candidates almost surely show k heads at probability `gamma`."""
    return (k + _MARGIN * math.sqrt(k * (1 - gamma))) / gamma


class PoissonKNN:
    """Records of subjects, ready to be walked from the nearest on.

    The kernel's exact integer similarities order the records: features (n, d), and the subject of
    each, 0 <= slot < n_subjects. `k` subjects are to be found; every coin comes up with probability
    `gamma`.
    """

    def __init__(
        self,
        kernel: Kernel,
        integers: IntegerMatrix,
        slots: npt.NDArray[np.int32],
        n_subjects: int,
        k: int,
        gamma: float,
    ) -> None:
        self.slots = slots
        self.n_subjects = n_subjects
        self.k = _checks.integer("k", k, least=1)
        gamma = _checks.real("gamma", gamma, above=0, most=1)
        self._index = ExactIndex(kernel, integers.shape[1])
        self._index.add(integers)
        self._several = n_subjects < len(slots)
        self.n_expected = min(candidates(k, gamma) * len(slots) / max(n_subjects, 1), len(slots))
        probes = integers[_scattered(len(integers), _PROBES)]
        self._probes = Reference(kernel, probes) if len(probes) else None

    def __len__(self) -> int:
        """Return the number of records. Private."""
        return len(self.slots)

    def candidates(self, queries: IntegerMatrix) -> NeighbourLists:
        """Return candidates of every query: all records inside some radius, rows ascending."""
        return self._index.search(queries, self._radii(queries))

    def all_records(self, queries: IntegerMatrix) -> NeighbourLists:
        """Return all records as candidates of every query, rows ascending."""
        return self._index.search(queries, np.full(len(queries), _EVERYBODY, dtype=np.int64))

    def first(self, candidates: NeighbourLists, sampled: npt.NDArray[np.bool_]) -> Chosen:
        """Return the nearest record of each of the k nearest sampled subjects, int32 (q, k).

        Candidates come from :meth:`candidates` or :meth:`all_records`; `sampled` says of every hit
        whether it is in the sample, and a subject goes by its first hit. Rows are in no order;
        :data:`NOBODY` where the sample holds fewer.
        """
        chosen = np.full((len(candidates), self.k), NOBODY, dtype=np.int32)
        place_of = np.zeros(self.n_subjects if self._several else 0, dtype=np.int64)
        _first(
            candidates.starts,
            candidates.rows,
            candidates.similarities,
            sampled,
            self.slots,
            place_of,
            chosen,
        )
        return chosen

    def _radii(self, queries: IntegerMatrix) -> npt.NDArray[np.int64]:
        no_limit = np.full(len(queries), _EVERYBODY, dtype=np.int64)
        if self._probes is None or self.n_expected > _MOST_SHARE * len(self):
            return no_limit
        expected = self.n_expected / len(self) * len(self._probes)
        rank = math.ceil(expected + _MARGIN * math.sqrt(expected) + 1)
        if rank >= len(self._probes):
            return no_limit
        return self._probes.ranked(queries, rank)


def _scattered(size: int, count: int) -> npt.NDArray[np.int64]:
    """Return `count` of `size` positions (or all) without any pattern, always the same ones.

    Every so many would not do: where records come in rounds of classes, it finds some classes only.
    """
    mixed = (np.arange(size, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return np.sort(np.argsort(mixed, kind="stable")[:count])


def candidates_of(candidates: NeighbourLists, which: npt.NDArray[np.bool_]) -> NeighbourLists:
    """Return the hits of those queries of a block that `which`, bool (q,), marks."""
    if which.all():
        return candidates
    counts = np.diff(candidates.starts)
    chosen = candidates.keep(np.repeat(which, counts))
    starts = np.concatenate([chosen.starts[:1], np.cumsum(counts[which])])
    return NeighbourLists(starts, chosen.rows, chosen.similarities)


@compiled
def _first(starts, rows, similarities, sampled, slots, place_of, chosen):  # type: ignore[no-untyped-def]
    """Fill `chosen`, (q, k); see :meth:`PoissonKNN.first`.

    `place_of` is empty if every record is a subject of its own. A key orders records: a larger
    similarity first, then a smaller row.
    """
    k = chosen.shape[1]
    longest = 0
    for j in range(len(starts) - 1):
        longest = max(longest, starts[j + 1] - starts[j])
    keys = np.empty(longest, dtype=np.int64)
    for j in range(len(starts) - 1):
        size = 0
        for hit in range(starts[j], starts[j + 1]):
            key = (np.int64(similarities[hit]) << 32) | (0x7FFFFFFF - np.int64(rows[hit]))
            if len(place_of):
                size = _take_subject(keys, size, key, sampled[hit], place_of, slots[rows[hit]])
            else:
                # Branchless: a coin is the least predictable thing there is.
                keys[size] = key
                size += sampled[hit]
        if len(place_of):
            for hit in range(starts[j], starts[j + 1]):
                place_of[slots[rows[hit]]] = 0
        smallest = keys[:size]
        if size > k:
            smallest = np.partition(smallest, size - k)[size - k :]
        for i in range(len(smallest)):
            chosen[j, i] = 0x7FFFFFFF - (smallest[i] & 0x7FFFFFFF)


@compiled
def _take_subject(keys, size, key, coin, place_of, slot):  # type: ignore[no-untyped-def]
    """Take up a hit of a subject that may have had hits before; return the number of keys.

    ``seen[slot]`` is 0 before the subject's first hit, -1 if its coin was tails, else one more
    than the place of its key.
    """
    if place_of[slot] == 0:
        place_of[slot] = -1
        if coin:
            keys[size] = key
            size += 1
            place_of[slot] = size
    elif place_of[slot] > 0:
        keys[place_of[slot] - 1] = max(keys[place_of[slot] - 1], key)
    return size
