"""The k nearest subjects of a Poisson sample, without a draw and a distance for every record.

*Who is in the sample* can be drawn first, and no other record looked at: gaps between them are
drawn, so it costs a draw and a distance for each of them. That is best for small samples of many
records.

*Who is near* can be found first: take any set of candidates that holds all records up to some
distance, draw for them alone, and stop if k are in the sample; no record further away can be among
the k. Only if there are fewer is it drawn for the others, too. The set must be fixed before the
draws; how it is found changes no law. It is found by a radius, at a rank among some of the records.
That is best for large samples.

*Order.* A smaller integer distance comes first, then a smaller row. It is a strict order of all
records; without one of them, the others keep theirs. So with one subject more or less, one record
comes and at most one goes among the k nearest.
"""

import math

import numpy as np

from vicinal import checks
from vicinal.arrays import Bools, Ints, Ints32, Places
from vicinal.compiled import compiled
from vicinal.neighbours.index import ExactIndex
from vicinal.neighbours.kernels import IntegerMatrix, Kernel
from vicinal.neighbours.radius import Reference, select_largest
from vicinal.neighbours.scan import NeighbourLists

NO_RECORD = -1  # stands in a row of chosen records where the sample held fewer than k subjects

Chosen = Ints32

_PROBES = 1024  # records whose distances tell where the radius must lie
_MARGIN = 3.0  # standard deviations by which heads, and the rank of a radius, are planned too large
_MOST_SHARE = 0.8  # beyond this share of all records a radius saves nothing
_DEAR = 2  # what a record of a sample that is drawn first costs, in candidates inside a radius

# From so many keys on it is sooner to count them by similarity, in so many bins.
_MANY, _BINS = 512, 1024

_NO_LIMIT = -(1 << 40)  # a radius that all records lie inside


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
        slots: Ints32,
        n_subjects: int,
        k: int,
        gamma: float,
    ) -> None:
        self.slots = slots
        self.n_subjects = n_subjects
        self.k = checks.check_integer("k", k, least=1)
        gamma = checks.check_real("gamma", gamma, above=0, most=1)
        self.gamma = gamma
        self._index = ExactIndex(kernel, integers.shape[1])
        self._index.add(integers)
        self._several = n_subjects < len(slots)
        self.n_expected = min(candidates(k, gamma) * len(slots) / max(n_subjects, 1), len(slots))
        self.sample_first = not self._several and _DEAR * gamma * len(slots) <= self.n_expected
        probes = integers[_scattered(len(integers), _PROBES)]
        self._probes = Reference(kernel, probes) if len(probes) else None

    def __len__(self) -> int:
        return len(self.slots)

    def candidates(self, queries: IntegerMatrix) -> NeighbourLists:
        """Return candidates of every query: all records inside some radius, rows ascending."""
        return self._index.search(queries, self._radii(queries))

    def all_records(self, queries: IntegerMatrix) -> NeighbourLists:
        """Return all records as candidates of every query, rows ascending."""
        return self._index.search(queries, np.full(len(queries), _NO_LIMIT, dtype=np.int64))

    def of_sample(self, queries: IntegerMatrix, sample: Places) -> Chosen:
        """Return the rows of the k nearest of samples that were drawn first, int32 (q, k).

        `sample`, int64 ascending: record i takes part for query j if ``j * len(self) + i`` is
        among them. Every record is a subject of its own. As of :meth:`first` else.
        """
        starts = np.searchsorted(sample, np.arange(len(queries) + 1) * len(self))
        rows = _rows_of(sample, starts, len(self))
        lists = self._index.of_pairs(queries, starts, rows)
        return self.first(lists, np.arange(len(rows)))

    def first(self, candidates: NeighbourLists, sample: Places) -> Chosen:
        """Return the nearest record of each of the k nearest sampled subjects, int32 (q, k).

        Candidates come from :meth:`candidates` or :meth:`all_records`; `sample`, int64 ascending,
        are the hits that are in it, and a subject goes by its first hit. Rows are in no order;
        :data:`NO_RECORD` where the sample holds fewer.
        """
        chosen = np.full((len(candidates), self.k), NO_RECORD, dtype=np.int32)
        lists = (candidates.starts, candidates.rows, candidates.similarities)
        if self._several:
            sampled = np.zeros(len(candidates.rows), dtype=np.bool_)
            sampled[sample] = True
            place_of = np.zeros(self.n_subjects, dtype=np.int64)
            _first_subjects(*lists, sampled, self.slots, place_of, chosen)
        else:
            _first_records(*lists, sample, chosen)
        return chosen

    def _radii(self, queries: IntegerMatrix) -> Ints:
        no_limit = np.full(len(queries), _NO_LIMIT, dtype=np.int64)
        if self._probes is None or self.n_expected > _MOST_SHARE * len(self):
            return no_limit
        expected = self.n_expected / len(self) * len(self._probes)
        rank = math.ceil(expected + _MARGIN * math.sqrt(expected) + 1)
        if rank >= len(self._probes):
            return no_limit
        return self._probes.ranked(queries, rank)


def _scattered(size: int, count: int) -> Ints:
    """Return `count` of `size` positions (or all) without any pattern, always the same ones.

    Every so many would not do: where records come in rounds of classes, it finds some classes only.
    """
    mixed = (np.arange(size, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return np.sort(np.argsort(mixed, kind="stable")[:count])


def candidates_of(candidates: NeighbourLists, which: Bools) -> NeighbourLists:
    """Return the hits of those queries of a block that `which`, bool (q,), marks."""
    if which.all():
        return candidates
    counts = np.diff(candidates.starts)
    chosen = candidates.keep(np.repeat(which, counts))
    starts = np.concatenate([chosen.starts[:1], np.cumsum(counts[which])])
    return NeighbourLists(starts, chosen.rows, chosen.similarities)


@compiled
def _rows_of(sample, starts, n_records):  # type: ignore[no-untyped-def]
    """Return who is in samples: those of query j stand at ``starts[j]:starts[j + 1]``."""
    rows = np.empty(len(sample), dtype=np.int32)
    for j in range(len(starts) - 1):
        for i in range(starts[j], starts[j + 1]):
            rows[i] = sample[i] - j * n_records
    return rows


@compiled
def _first_records(starts, rows, similarities, sample, chosen):  # type: ignore[no-untyped-def]
    """Fill `chosen`, (q, k), where every record is a subject; see :meth:`PoissonKNN.first`."""
    keys = np.empty(len(sample), dtype=np.int64)
    taken = 0
    for j in range(len(starts) - 1):
        size = 0
        while taken < len(sample) and sample[taken] < starts[j + 1]:
            hit = sample[taken]
            keys[size] = _key(similarities[hit], rows[hit])
            size += 1
            taken += 1
        _choose(keys[:size], chosen[j])


@compiled
def _first_subjects(  # type: ignore[no-untyped-def]
    starts, rows, similarities, sampled, slots, place_of, chosen
):
    """Fill `chosen`, (q, k), where subjects have several records; `place_of` is zeros."""
    longest = 0
    for j in range(len(starts) - 1):
        longest = max(longest, starts[j + 1] - starts[j])
    keys = np.empty(longest, dtype=np.int64)
    for j in range(len(starts) - 1):
        size = 0
        for hit in range(starts[j], starts[j + 1]):
            key = _key(similarities[hit], rows[hit])
            size = _take_subject(keys, size, key, sampled[hit], place_of, slots[rows[hit]])
        for hit in range(starts[j], starts[j + 1]):
            place_of[slots[rows[hit]]] = 0
        _choose(keys[:size], chosen[j])


@compiled
def _key(similarity, row):  # type: ignore[no-untyped-def]
    return (np.int64(similarity) << 32) | (0x7FFFFFFF - np.int64(row))


@compiled
def _choose(keys, chosen):  # type: ignore[no-untyped-def]
    """Write the rows of the largest keys, as many as `chosen` holds; keys lose their order.

    Of many keys all are counted by similarity first, so that only those of one bin are selected.
    """
    at, size = 0, len(keys)
    if size >= max(_MANY, len(chosen) + 1):
        at, size = _choose_bins(keys, chosen)
    left = min(len(chosen) - at, size)
    if 0 < left < size:
        select_largest(keys[:size], left)
    for i in range(size - left, size):
        chosen[at] = _row(keys[i])
        at += 1


@compiled
def _choose_bins(keys, chosen):  # type: ignore[no-untyped-def]
    """Write the rows of all keys above the bin that the least chosen one lies in.

    Returns how many, and how many keys lie in the bin: they are moved to the front.
    """
    least = most = keys[0]
    for key in keys:
        least, most = min(least, key), max(most, key)
    width = 32
    while (most >> width) - (least >> width) >= _BINS:
        width += 1
    counts, lowest = np.zeros(_BINS, dtype=np.int32), least >> width
    for key in keys:
        counts[(key >> width) - lowest] += 1
    border, above = _BINS - 1, 0
    while above + counts[border] < len(chosen):
        above += counts[border]
        border -= 1
    at, size, border = 0, 0, border + lowest
    for i in range(len(keys)):
        key = keys[i]
        if key >> width > border:
            chosen[at] = _row(key)
            at += 1
        elif key >> width == border:
            keys[size] = key
            size += 1
    return at, size


@compiled
def _row(key):  # type: ignore[no-untyped-def]
    return 0x7FFFFFFF - (key & 0x7FFFFFFF)


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
