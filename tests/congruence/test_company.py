"""The kernel value of a record and a query is the same bits in any company.

Individual accounting needs it: whoever comes or goes must not change what others contribute.
"""

import warnings
from itertools import product

import numpy as np
import pytest

from vicinal.neighbours import RBF, Cosine, ExactIndex

pytestmark = pytest.mark.quick

KERNELS = [Cosine(), Cosine(bound=12.0), RBF(bandwidth=2.0, bound=12.0)]
TILES = (1, 7, 2048)
BLOCKS = (1, 2, 3, 37, 256, 300)
EVERYBODY = np.iinfo(np.int64).min // 4
N, Q = 400, 300

kernels = pytest.mark.parametrize("kernel", KERNELS, ids=["cosine", "lifted", "rbf"])


def points(size, d, seed):
    """Return features of widely different lengths, so that the RBF kernel clips some."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(size, d)) * rng.lognormal(size=(size, 1))


def exact_similarities(kernel, records, queries):
    """Return similarities, int64 (q, n), by integer arithmetic alone."""
    x, q = records.astype(np.int64), queries.astype(np.int64)
    inner = q @ x.T
    if kernel.name == "cosine":
        return inner
    return 2 * inner - np.square(x).sum(axis=1) - np.square(q).sum(axis=1)[:, None]


def index_of(kernel, records, tile):
    index = ExactIndex(kernel, records.shape[1], tile)
    index.add(records)
    return index


def searched(index, queries, thresholds, block):
    """Return (query, row, similarity) of all hits, searching `block` queries at a time."""
    hits = []
    for start in range(0, len(queries), block):
        stop = start + block
        near = index.search(queries[start:stop], thresholds[start:stop])
        numbers = np.repeat(np.arange(len(near)), np.diff(near.starts)) + start
        hits.append(np.stack([numbers, near.rows, near.similarities], axis=1))
    return np.concatenate(hits).astype(np.int64)


def expected(similarities, thresholds):
    numbers, rows = np.nonzero(similarities >= thresholds[:, None])
    return np.stack([numbers, rows, similarities[numbers, rows]], axis=1)


@kernels
@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("d", [3, 64, 257])
def test_similarities_are_the_same_in_any_slot_company_and_block(kernel, tile, d):
    """Fails if any product, in any subset, order, tile or block, is not the exact integer."""
    rng = np.random.default_rng(d)
    records, queries = (kernel.encode(points(size, d, seed)) for seed, size in ((1, N), (2, Q)))
    everyone = exact_similarities(kernel, records, queries)
    nearby = np.full(Q, EVERYBODY)
    for block in BLOCKS if tile > 1 else (37, 300):
        present = rng.permutation(N)[: rng.integers(1, N)]
        found = searched(index_of(kernel, records[present], tile), queries, nearby, block)
        np.testing.assert_array_equal(found, expected(everyone[:, present], nearby))


@kernels
@pytest.mark.parametrize("tile", TILES)
def test_a_record_exactly_at_the_rim_stays_in_in_any_company(kernel, tile):
    """Fails if a record at the threshold is lost, or one a step below is let in."""
    rng = np.random.default_rng(5)
    records, queries = (kernel.encode(points(size, 40, seed)) for seed, size in ((3, N), (4, Q)))
    everyone = exact_similarities(kernel, records, queries)
    rim = everyone[np.arange(Q), rng.integers(0, N, Q)]
    for block, step in product((1, 100, 300) if tile > 1 else (300,), (0, 1)):
        present = rng.permutation(N)[: rng.integers(N // 2, N)]
        index = index_of(kernel, records[present], tile)
        found = searched(index, queries, rim + step, block)
        np.testing.assert_array_equal(found, expected(everyone[:, present], rim + step))


@kernels
@pytest.mark.parametrize("d", [1, 2, 7, 8, 9, 127, 128, 129, 324, 768, 9000])
def test_a_row_is_encoded_alone_as_in_company(kernel, d):
    X = points(33, d, d)
    together = kernel.encode(X)
    alone = np.concatenate([kernel.encode(X[i : i + 1]) for i in range(len(X))])
    np.testing.assert_array_equal(together, alone)
    np.testing.assert_array_equal(together[5:30], kernel.encode(X[5:30]))
    np.testing.assert_array_equal(together[::-3], kernel.encode(X[::-3]))
    np.testing.assert_array_equal(together, kernel.encode(np.asfortranarray(X)))


@kernels
def test_encoding_does_not_depend_on_chunks(kernel):
    """Fails if a row's place in a large matrix, where work goes on in chunks, matters."""
    X = points(9001, 5, 0)
    together = kernel.encode(X)
    np.testing.assert_array_equal(together[8000:], kernel.encode(X[8000:]))
    np.testing.assert_array_equal(together[1:], kernel.encode(X[1:]))


@kernels
@pytest.mark.parametrize("magnitude", [1e-320, 1e-308, 1e-200, 1e-30, 1e30, 1e200, 1e307])
def test_encoded_rows_are_integers_of_bounded_norm_at_any_magnitude(kernel, magnitude):
    """Fails if a tiny or huge row overflows: products would not be exact, or not numbers."""
    X = np.clip(points(50, 30, 1), -17, 17) * magnitude
    with warnings.catch_warnings(action="error"):  # a warning would tell of a record
        integers = kernel.encode(X)
    np.testing.assert_array_equal(integers, np.rint(integers))
    assert (np.square(integers.astype(np.int64)).sum(axis=1) <= 4095**2).all()
