"""Who is a neighbour depends on the record, the query and public things: for every index.

The condition is stated in ``vicinal.neighbours.index.Index``. Two indexes that break it stand at
the end, to show that the test catches them.
"""

from itertools import pairwise

import numpy as np
import pytest

from index_tools import lived
from vicinal import neighbours
from vicinal.neighbours.kernels import int8_precision
from vicinal.neighbours.radius import AdaptiveRadius
from vicinal.neighbours.scan import find_movers

pytestmark = pytest.mark.quick

D, N, Q = 21, 300, 60


def points(size, seed):
    """Return points in clumps, so that cells and buckets have something to tell apart."""
    rng = np.random.default_rng(seed)
    clumps = np.random.default_rng(0).normal(size=(12, D))
    return clumps[rng.integers(0, 12, size)] + 0.5 * rng.normal(size=(size, D))


PUBLIC = points(400, 1)
PRECISE = {"int8": int8_precision(PUBLIC), "float32": neighbours.Cosine().precision}
KERNELS = {
    "cosine-int8": neighbours.Cosine(PRECISE["int8"]),
    "cosine-float32": neighbours.Cosine(),
    "rbf-int8": neighbours.RBF(3.0, 8.0, int8_precision(PUBLIC, 8.0)),
    "rbf-float32": neighbours.RBF(3.0, 8.0),
}


def exact(kernel):
    return neighbours.ExactIndex(kernel, D)


def hashing(kernel):
    return neighbours.HyperplaneLSH(kernel, D, tables=5, bits=4, seed=3)


INDEXES = {"exact": exact, "hashing": hashing}

kernels = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
indexes = pytest.mark.parametrize("make", INDEXES.values(), ids=INDEXES)


def thresholds_of(kernel, queries, share=0.2):
    """Return radii that hold `share` of the public points."""
    reference = neighbours.Reference(kernel, kernel.encode(PUBLIC))
    return AdaptiveRadius(reference, round(share * N), N).thresholds(queries)


def found(index, names, queries, thresholds):
    """Return the set of (query, record's own name, similarity) that a search finds."""
    near = index.search(queries, thresholds)
    who = np.repeat(np.arange(len(near)), np.diff(near.starts))
    return set(
        zip(who.tolist(), names[near.rows].tolist(), near.similarities.tolist(), strict=True)
    )


def effects_of_company(make, kernel, rounds=12):
    """Return how many hits of those who stay differ when others leave or change places."""
    rng = np.random.default_rng(8)
    records, queries = kernel.encode(points(N, 2)), kernel.encode(points(Q, 3))
    thresholds = thresholds_of(kernel, queries)
    index = make(kernel)
    index.add(records)
    everyone = found(index, np.arange(N), queries, thresholds)
    assert len(everyone) > 200
    changed = 0
    for _ in range(rounds):
        present = rng.permutation(N)[: rng.integers(N // 2, N)]
        index = make(kernel)
        for part in np.array_split(present, 3):
            index.add(records[part])
        some = found(index, present, queries, thresholds)
        changed += len(some ^ {hit for hit in everyone if hit[1] in set(present.tolist())})
    return changed


@kernels
@indexes
def test_a_neighbours_candidacy_does_not_depend_on_company(make, kernel):
    """Fails if anybody is found or lost because of who else is there, or in which order."""
    assert effects_of_company(make, kernel) == 0


@kernels
@indexes
def test_only_those_inside_the_radius_are_found_with_their_similarity(make, kernel):
    """Fails if an index returns anything that the exact search does not."""
    records, queries = kernel.encode(points(N, 2)), kernel.encode(points(Q, 3))
    thresholds = thresholds_of(kernel, queries)
    index, truth = make(kernel), exact(kernel)
    index.add(records)
    truth.add(records)
    all_hits = found(truth, np.arange(N), queries, thresholds)
    hits = found(index, np.arange(N), queries, thresholds)
    assert hits <= all_hits
    assert len(hits) > 0.5 * len(all_hits)


@kernels
@indexes
def test_no_record_is_listed_twice_for_a_query(make, kernel):
    """Fails if buckets or cells overlap: a record listed twice would add more than it pays for."""
    index = make(kernel)
    queries, hits = kernel.encode(points(Q, 3)), 0
    for _ in lived(index, kernel.encode(points(N, 2)), np.random.default_rng(4), 4):
        near = index.search(queries, thresholds_of(kernel, queries, 0.5))
        hits += len(near.rows)
        for start, stop in pairwise(near.starts):
            assert len(np.unique(near.rows[start:stop])) == stop - start
    assert hits > Q


@kernels
@indexes
def test_an_index_that_lived_is_one_that_was_built_anew(make, kernel):
    rng = np.random.default_rng(6)
    pool, queries = kernel.encode(points(N, 7)), kernel.encode(points(40, 9))
    thresholds = thresholds_of(kernel, queries, 0.5)
    index = make(kernel)
    for here in lived(index, pool, rng, 10):
        fresh = make(kernel)
        fresh.add(pool[here])
        assert len(index) == len(here)
        rows = np.arange(len(here))
        assert found(index, rows, queries, thresholds) == found(fresh, rows, queries, thresholds)


@kernels
@indexes
def test_nothing_of_an_erased_record_stays_in_memory(make, kernel):
    """Fails if a row's bytes survive its erasure anywhere in the index."""
    rng = np.random.default_rng(1)
    records = kernel.encode(points(N, 2))
    index = make(kernel)
    index.add(records)
    going = np.flatnonzero(rng.random(N) < 0.4)
    index.remove(going, find_movers(going, N))
    blocks = index.feature_rows._features.blocks
    left = np.concatenate([block.reshape(-1, index.stride)[:, :D] for block in blocks])
    left = {row.tobytes() for row in left}
    staying = {row.tobytes() for row in np.delete(records, going, axis=0)}
    assert not {row.tobytes() for row in records[going]} & (left - staying)
    assert left - staying <= {np.zeros(D, dtype=records.dtype).tobytes()}


@indexes
def test_parts_are_the_search_in_pieces(make):
    """Fails if splitting a block to bound memory changes what is found."""
    kernel = KERNELS["cosine-int8"]
    records, queries = kernel.encode(points(N, 2)), kernel.encode(points(Q, 3))
    thresholds = thresholds_of(kernel, queries, 0.5)
    index = make(kernel)
    index.add(records)
    whole = index.search(queries, thresholds)
    for most in (0, 100, 2000, 10**6):
        parts = list(index.search_in_blocks(queries, thresholds, most))
        assert sum(len(part) for part in parts) == Q
        for name in ("rows", "similarities"):
            joined = np.concatenate([getattr(part, name) for part in parts])
            np.testing.assert_array_equal(joined, getattr(whole, name))
        assert all(len(part.rows) <= most or len(part) == 1 for part in parts)
        assert len(parts) == 1 if most == 10**6 else len(parts) > 1


class PrivateHyperplanes(neighbours.HyperplaneLSH):
    """Broken on purpose: the hyperplanes go through the mean of the private records."""

    def _scan(self, queries, min_scores, allowed):
        shift = np.rint(self.features.mean(axis=0)).astype(queries.dtype)
        moved = neighbours.HyperplaneLSH(self.kernel, D, tables=5, bits=4, seed=3)
        moved.add(self.features - shift)
        self._buckets = moved._buckets
        hash_rows = self.hash_rows
        self.hash_rows = lambda rows: moved.hash_rows(rows - shift)
        try:
            return super()._scan(queries, min_scores, allowed)
        finally:
            self.hash_rows = hash_rows


class TheNearest(neighbours.ExactIndex):
    """Broken on purpose: a query has no more than its 40 nearest records."""

    def search(self, queries, thresholds):
        near = super().search(queries, thresholds)
        keep = np.zeros(len(near.rows), dtype=bool)
        for j in range(len(near)):
            hits = np.arange(near.starts[j], near.starts[j + 1])
            keep[hits[np.argsort(-near.similarities[hits], kind="stable")[:40]]] = True
        return near.keep(keep)


@pytest.mark.parametrize(
    "make",
    [lambda k: PrivateHyperplanes(k, D, tables=5, bits=4, seed=3), lambda k: TheNearest(k, D)],
    ids=["hyperplanes", "nearest"],
)
def test_an_index_that_breaks_the_condition_is_caught(make):
    """Shows that the tests above are about something."""
    assert effects_of_company(make, KERNELS["cosine-int8"], rounds=3) > 0
