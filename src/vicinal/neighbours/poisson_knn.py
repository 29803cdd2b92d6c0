"""The k nearest subjects of a Poisson sample, with less than one draw and distance per record.

*Sample first.* The sample is drawn by the gaps between its members, and distances are computed to
its members alone. This is best for small samples of many records.

*Search first.* A set of candidates that contains all records up to some distance is found, and only
candidates are sampled. If k of them are in the sample, no record farther away can be among the k
nearest; otherwise all remaining records are sampled, too. The set, which must be fixed before the
Bernoulli samples are drawn, changes no distribution. It is the records within a radius that is
estimated from the similarities of some of them. This is best for large samples.

*Order.* A smaller integer distance comes first, then a smaller row: a strict order of all records
that does not depend on which other records exist. If one subject is added or removed, one record
enters or leaves the k nearest, and at most one other record does the reverse. A *key* is an int64
with the similarity of a hit in its high 32 bits and its row, in reverse order, in its low 32 bits:
the nearer hit has the larger key.

Everywhere in this module, `queries`, (q, d), are integer features. Arguments of the compiled
functions: the hits (candidates) of query j are ``starts[j]`` to
``starts[j + 1] - 1`` of `rows`, int32 (hits,), and `similarities`, int32 (hits,), with `starts`,
int64 (q + 1,). `nearest_rows`, int32 (q, k), is written; entries without a record are unchanged.
"""

import math

import numpy as np

from vicinal import checks
from vicinal.arrays import Bools, Ints, Ints32
from vicinal.compiled import compiled
from vicinal.neighbours.index import NO_THRESHOLD, ExactIndex
from vicinal.neighbours.kernels import IntegerMatrix, Kernel
from vicinal.neighbours.radius import Reference, select_largest
from vicinal.neighbours.scan import NeighbourLists

NO_RECORD = -1
"""Padding of rows where the sample holds fewer than k subjects."""

NearestRows = Ints32
"""Rows of the k nearest records of each query, (q, k)."""

_N_PROBES = 1024  # records from whose similarities the radius is estimated
_MARGIN_DEVIATIONS = 3.0  # standard deviations added to expected counts of subjects and probes
_MAX_RADIUS_SHARE = 0.8  # with a larger share of candidates a radius saves nothing
_SAMPLED_RECORD_COST = 2  # cost of a record that is sampled first, in candidates inside a radius


class PoissonKNN:
    """Records of subjects, prepared for searches of the k nearest sampled subjects.

    - `kernel`: its exact integer similarities order the records.
    - `integers` (n, d): integer features of the records.
    - `slots`, int32 (n,): the subject of each record, 0 <= slot < `n_subjects`.
    - `k`: number of subjects to find.
    - `gamma`: sampling probability of a subject.

    Attributes: `sample_first`, whether drawing the sample before the search is faster;
    `n_expected_candidates`, expected number of candidates of a query if the search comes first.
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
        self.k = checks.check_integer("k", k, minimum=1)
        gamma = checks.check_real("gamma", gamma, above=0, maximum=1)
        self.gamma = gamma
        self._index = ExactIndex(kernel, integers.shape[1])
        self._index.add(integers)
        self._has_shared_subjects = n_subjects < len(slots)
        # Of so many subjects at least k are almost surely sampled.
        n_needed_subjects = (k + _MARGIN_DEVIATIONS * math.sqrt(k * (1 - gamma))) / gamma
        self.n_expected_candidates = min(
            n_needed_subjects * len(slots) / max(n_subjects, 1), len(slots)
        )
        self.sample_first = (
            not self._has_shared_subjects
            and _SAMPLED_RECORD_COST * gamma * len(slots) <= self.n_expected_candidates
        )
        probes = integers[_scatter_indices(len(integers), _N_PROBES)]
        self._probes = Reference(kernel, probes) if len(probes) else None

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.slots)

    def find_candidates(self, queries: IntegerMatrix) -> NeighbourLists:
        """Return the records in a radius that probably has k sampled subjects, rows ascending."""
        return self._index.search(queries, self._compute_thresholds(queries))

    def list_all_records(self, queries: IntegerMatrix) -> NeighbourLists:
        """Return all records as candidates of each query, rows ascending."""
        return self._index.search(queries, np.full(len(queries), NO_THRESHOLD))

    def find_nearest_sampled(self, queries: IntegerMatrix, sample: Ints) -> NearestRows:
        """Return the rows of the k nearest sampled records, int32 (q, k), for samples drawn first.

        Every record must be a subject of its own. Rows: in no order, padded with :data:`NO_RECORD`.
        `sample`, int64 ascending: ``j * len(self) + i`` if record i is sampled for query j.
        """
        starts = np.searchsorted(sample, np.arange(len(queries) + 1) * len(self))
        rows = _find_sampled_rows(sample, starts, len(self))
        lists = self._index.compute_similarities(queries, starts, rows)
        return self.select_nearest(lists, np.arange(len(rows)))

    def select_nearest(self, candidates: NeighbourLists, sample: Ints) -> NearestRows:
        """Return the row of the nearest record of the k nearest sampled subjects, int32 (q, k).

        Rows are in no order, padded with :data:`NO_RECORD`.

        - `candidates`: result of :meth:`find_candidates` or :meth:`list_all_records`.
        - `sample`, int64 (s,), ascending: indices of the sampled hits in ``candidates.rows``. Of a
          subject with several hits for a query, the first alone decides whether it is sampled.
        """
        nearest_rows = np.full((len(candidates), self.k), NO_RECORD, dtype=np.int32)
        lists = (candidates.starts, candidates.rows, candidates.similarities)
        if self._has_shared_subjects:
            is_sampled = np.zeros(len(candidates.rows), dtype=np.bool_)
            is_sampled[sample] = True
            key_state = np.zeros(self.n_subjects, dtype=np.int64)
            _write_nearest_subjects(*lists, is_sampled, self.slots, key_state, nearest_rows)
        else:
            _write_nearest_records(*lists, sample, nearest_rows)
        return nearest_rows

    def _compute_thresholds(self, queries: IntegerMatrix) -> Ints:
        """Return the smallest similarity of a candidate of each query, int64 (q,)."""
        unlimited = np.full(len(queries), NO_THRESHOLD)
        if self._probes is None or self.n_expected_candidates > _MAX_RADIUS_SHARE * len(self):
            return unlimited
        expected_probes = self.n_expected_candidates / len(self) * len(self._probes)
        rank = math.ceil(expected_probes + _MARGIN_DEVIATIONS * math.sqrt(expected_probes) + 1)
        if rank >= len(self._probes):
            return unlimited
        return self._probes.scan_similarity_at_rank(queries, rank)


def _scatter_indices(size: int, count: int) -> Ints:
    """Return `count` indices below `size` (or all) without a pattern, ascending; deterministic.

    They are those with the smallest hashes (splitmix64). If the classes of records repeat
    periodically, equidistant indices would miss some of them.
    """
    hashes = (np.arange(size, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        hashes = (hashes ^ (hashes >> np.uint64(shift))) * np.uint64(factor)
    hashes ^= hashes >> np.uint64(31)
    return np.sort(np.argsort(hashes, kind="stable")[:count])


def select_candidates(candidates: NeighbourLists, is_selected: Bools) -> NeighbourLists:
    """Return the candidates of the queries at which `is_selected`, bool (q,), is true."""
    if is_selected.all():
        return candidates
    counts = np.diff(candidates.starts)
    selected = candidates.keep(np.repeat(is_selected, counts))
    starts = np.concatenate([selected.starts[:1], np.cumsum(counts[is_selected])])
    return NeighbourLists(starts, selected.rows, selected.similarities)


@compiled
def _find_sampled_rows(sample, starts, n_records):  # type: ignore[no-untyped-def]
    """Return the row of the record of each sampled pair of query and record, int32 (s,).

    `sample`, int64 (s,), ascending: ``j * n_records + row`` of each pair, with query j.
    """
    rows = np.empty(len(sample), dtype=np.int32)
    for j in range(len(starts) - 1):
        for i in range(starts[j], starts[j + 1]):
            rows[i] = sample[i] - j * n_records
    return rows


@compiled
def _write_nearest_records(starts, rows, similarities, sample, nearest_rows):  # type: ignore[no-untyped-def]
    """Write the rows of each query's k nearest sampled records to `nearest_rows`.

    The caller ensures that every record has a subject of its own. `sample`, int64 (s,), ascending:
    indices of the sampled candidates in `rows`.
    """
    keys = np.empty(len(sample), dtype=np.int64)
    next_sampled = 0
    for j in range(len(starts) - 1):
        size = 0
        while next_sampled < len(sample) and sample[next_sampled] < starts[j + 1]:
            hit = sample[next_sampled]
            keys[size] = _make_key(similarities[hit], rows[hit])
            size += 1
            next_sampled += 1
        _write_largest_rows(keys[:size], nearest_rows[j])


@compiled
def _write_nearest_subjects(  # type: ignore[no-untyped-def]
    starts, rows, similarities, is_sampled, slots, key_state, nearest_rows
):
    """Write the row of the nearest record of each query's k nearest sampled subjects.

    - `is_sampled`, bool (hits,): whether each candidate is sampled; the first of a subject decides.
    - `slots`, int32 (n,): subject of each row.
    - `key_state`, int64 (n_subjects,): scratch of :func:`_merge_subject_hit`, 0 before and after.
    """
    max_hits = 0
    for j in range(len(starts) - 1):
        max_hits = max(max_hits, starts[j + 1] - starts[j])
    keys = np.empty(max_hits, dtype=np.int64)
    for j in range(len(starts) - 1):
        size = 0
        for hit in range(starts[j], starts[j + 1]):
            key = _make_key(similarities[hit], rows[hit])
            size = _merge_subject_hit(keys, size, key, is_sampled[hit], key_state, slots[rows[hit]])
        for hit in range(starts[j], starts[j + 1]):
            key_state[slots[rows[hit]]] = 0
        _write_largest_rows(keys[:size], nearest_rows[j])


@compiled
def _make_key(similarity, row):  # type: ignore[no-untyped-def]
    """Return the key of a hit: larger for a larger similarity, and then for a smaller row."""
    return (np.int64(similarity) << 32) | (0x7FFFFFFF - np.int64(row))


@compiled
def _write_largest_rows(keys, largest_rows):  # type: ignore[no-untyped-def]
    """Write the rows of the k largest `keys`, int64 (n,), to `largest_rows`, int32 (k,).

    The keys are reordered.
    """
    count = min(len(largest_rows), len(keys))
    if 0 < count < len(keys):
        select_largest(keys, count)
    first = len(keys) - count
    for i in range(count):
        largest_rows[i] = 0x7FFFFFFF - (keys[first + i] & 0x7FFFFFFF)


@compiled
def _merge_subject_hit(keys, size, key, is_sampled, key_state, slot):  # type: ignore[no-untyped-def]
    """Merge a hit of a subject into `keys`, and return the number of keys in use.

    Two rules: a subject is sampled for a query if the first of its hits is; a sampled subject keeps
    the largest key of its hits, that of its nearest record.

    - `keys`, int64: the first `size` are the keys of the sampled subjects found, one each.
    - `key`, `is_sampled`, `slot`: the hit's key, whether it is sampled, and its subject.
    - `key_state`, int64 (n_subjects,): 0 before the first hit of a subject, -1 if the subject is
      not sampled, otherwise the index of its key plus 1.
    """
    if key_state[slot] == 0:
        key_state[slot] = -1
        if is_sampled:
            keys[size] = key
            size += 1
            key_state[slot] = size
    elif key_state[slot] > 0:
        keys[key_state[slot] - 1] = max(keys[key_state[slot] - 1], key)
    return size
