"""Integer features, kernels, radii and exact search against plain definitions."""

import math
import mmap
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from index_tools import wiped
from vicinal.errors import InvalidInput
from vicinal.neighbours import RBF, Cosine, ExactIndex, NeighbourLists, Reference
from vicinal.neighbours import index as index_module
from vicinal.neighbours.engines import list_exact_engines
from vicinal.neighbours.kernels import (
    INTEGER_NORM,
    LEVELS,
    Precision,
    int8_precision,
    quantise_directions,
)
from vicinal.neighbours.radius import AdaptiveRadius, FixedRadius
from vicinal.neighbours.scan import find_movers

kernels = pytest.mark.parametrize("kernel", [Cosine(), RBF(1.5, 6.0)], ids=["cosine", "rbf"])
matrices = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=9),
    elements=st.floats(-1e300, 1e300),
)


@settings(deadline=None, max_examples=150)
@given(matrices, st.just(Precision()) | st.builds(Precision, st.integers(4, 4095), st.just(127)))
def test_integer_norms_are_bounded_so_that_products_are_exact(X, precision):
    for integers in (quantise_directions(X, precision), RBF(1.0, 2.5, precision).encode(X)):
        assert (integers.dtype == np.int8) == (precision.limit == 127)
        wide = integers.astype(np.float64)
        assert np.isfinite(wide).all()
        np.testing.assert_array_equal(wide, np.rint(wide))
        assert np.abs(wide).max(initial=0) <= precision.limit
        assert (np.square(wide).sum(axis=1) <= precision.norm**2).all()


@pytest.mark.parametrize("tiny", [5e-324, 1e-310, 1e-160, 1e160, 1e308])
def test_extreme_lengths_keep_their_direction(tiny):
    integers = quantise_directions(np.array([[tiny, 0, 0]]))
    np.testing.assert_array_equal(integers, [[np.rint(INTEGER_NORM - math.sqrt(3) / 2), 0, 0]])
    assert Cosine.fit_to_public(np.array([[tiny, 0, 0], [tiny / 4, 0, 0]])).bound == tiny


def test_a_row_of_zeros_stays_zeros():
    assert not quantise_directions(np.zeros((2, 3))).any()
    assert not RBF(1.0, 1.0).encode(np.zeros((2, 3))).any()


def test_int8_rounds_like_the_definition():
    x = np.array([[3.0, 4.0], [0.0, -2.0]])
    length = 200 - math.sqrt(2) / 2
    expected = np.clip(np.rint(x / [[5], [2]] * length), -127, 127)
    np.testing.assert_array_equal(quantise_directions(x, Precision(200, 127)), expected)


@pytest.mark.parametrize("d", [3, 64, 768])
def test_the_learnt_length_bends_least(d):
    """Fails if a much longer or shorter length fits the public rows better."""
    rng = np.random.default_rng(d)
    public = rng.normal(size=(300, d)) * rng.lognormal(sigma=0.5, size=d)
    public[:, 0] *= 3
    units = public / np.linalg.norm(public, axis=1, keepdims=True)

    def compute_error(precision):
        coded = quantise_directions(public, precision) / precision.compute_unit_norm(d)
        return np.square(coded - units).sum()

    learnt = int8_precision(public)
    for factor in (0.5, 0.7, 1.4, 2.0):
        other = Precision(max(1, min(INTEGER_NORM, round(learnt.norm * factor))), 127)
        assert compute_error(learnt) < compute_error(other) * 1.02


def test_a_bound_on_norms_is_learnt_in_its_own_units():
    public = np.random.default_rng(0).normal(size=(200, 30))
    assert int8_precision(public, bound=60.0).norm > 5 * int8_precision(public, bound=6.0).norm


@pytest.mark.parametrize(
    "kernel", [Cosine(Precision(300, 127)), RBF(1.5, 6.0, Precision(300, 127))], ids=["cos", "rbf"]
)
def test_levels_cover_every_similarity_of_the_precision(kernel):
    """Fails if a similarity falls off the table, or if its level's value is above its own."""
    max_similarity = 300**2 if kernel.name == "cosine" else 0
    min_similarity = 0 if kernel.name == "cosine" else -4 * 300**2
    similarity = np.unique(np.linspace(min_similarity, max_similarity, 5001).astype(np.int32))
    levels = kernel.levels(similarity)
    assert levels.min() >= 0
    assert levels.max() < LEVELS
    table = kernel.table(6)
    assert (table[levels] <= kernel.value(similarity.astype(float), 6) + 1e-12).all()
    assert table[levels[-1]] > 0.99


def test_offsets_of_int8_rows_do_not_overflow():
    rows = np.full((2, 900), 127, dtype=np.int8)
    np.testing.assert_array_equal(RBF(1.0, 2.5).offsets(rows), [127 * 127 * 900] * 2)


@pytest.mark.parametrize(
    ("norm", "limit", "name"),
    [(0, 127, "norm"), (4096, 127, "norm"), (10, 0, "limit"), (10.5, 9, "norm")],
)
def test_impossible_precisions_are_refused(norm, limit, name):
    with pytest.raises(InvalidInput, match=name):
        Precision(norm, limit)


def test_lengths_of_nothing_and_norms_of_too_many_features_are_refused():
    with pytest.raises(InvalidInput, match="'public'"):
        int8_precision(np.zeros((0, 4)))
    with pytest.raises(InvalidInput, match="columns"):
        Precision(5, 127).compute_unit_norm(100)
    with pytest.raises(InvalidInput, match="columns"):
        Cosine().table(2_000_000)


def plain_kernel(kernel, x, q):
    if isinstance(kernel, Cosine):
        return max(0.0, x @ q / (np.linalg.norm(x) * np.linalg.norm(q)))
    return math.exp(-np.square(x - q).sum() / kernel.bandwidth**2)


@kernels
def test_kernel_values_are_those_of_the_definition(kernel):
    rng = np.random.default_rng(0)
    X, Q = rng.normal(size=(50, 6)), rng.normal(size=(20, 6))
    index = ExactIndex(kernel, 6)
    index.add(kernel.encode(X))
    lists = index.search(kernel.encode(Q), np.full(20, -(2**30)))
    values = kernel.table(6)[kernel.levels(lists.similarities)]
    truth = [plain_kernel(kernel, X[i], Q[j]) for j in range(20) for i in range(50)]
    np.testing.assert_array_equal(lists.rows, np.tile(np.arange(50), 20))
    np.testing.assert_allclose(values, truth, atol=3e-3)


@kernels
def test_tables_grow_and_stay_between_zero_and_one(kernel):
    table = kernel.table(6)
    assert len(table) == LEVELS
    assert (np.diff(table) >= 0).all()
    assert table.min() >= 0
    assert table.max() <= 1
    assert table.max() > 0.999


@pytest.mark.parametrize("value", [0.05, 0.3, 0.7, 0.999])
@kernels
def test_a_radius_is_the_first_similarity_of_its_value(kernel, value):
    similarity = kernel.similarity_at(value, 6)
    inside, outside = kernel.value(np.array([similarity, similarity - 1], dtype=float), 6)
    assert inside >= value * (1 - 1e-9)
    assert outside < value * (1 + 1e-9)


@settings(deadline=None, max_examples=100)
@given(
    n=st.integers(0, 70),
    q=st.integers(1, 9),
    d=st.integers(1, 5),
    tile=st.integers(1, 80),
    seed=st.integers(0, 2**20),
    make_kernel=st.sampled_from([Cosine, partial(RBF, 1.0, 3.0)]),
    engine=st.sampled_from([None, *list_exact_engines()]),
)
def test_search_finds_exactly_the_records_inside(n, q, d, tile, seed, make_kernel, engine):
    """For every kernel, precision and engine; None: float32 features, which have one engine."""
    rng = np.random.default_rng(seed)
    kernel = make_kernel(precision=Precision(200, 127) if engine else Precision())
    X, Q = kernel.encode(rng.normal(size=(n, d))), kernel.encode(rng.normal(size=(q, d)))
    index = ExactIndex(kernel, d, engine)
    for part in np.array_split(X, 3):
        index.add(part)
    similarities = X.astype(np.int64) @ Q.astype(np.int64).T
    if kernel.name == "rbf":
        squares = np.square(X.astype(np.int64)).sum(1)[:, None]
        similarities = 2 * similarities - squares - np.square(Q.astype(np.int64)).sum(1)
    thresholds = rng.choice(np.append(similarities, 0), q) + rng.integers(0, 2, q)
    with pytest.MonkeyPatch.context() as patch:
        # Small blocks are one task otherwise.
        patch.setattr(index_module, "_MAX_SERIAL_BYTES", 0)
        patch.setattr(index_module, "_MAX_TASK_RECORDS", tile)
        lists = index.search(Q, thresholds)
    for j in range(q):
        single = lists.select_queries(j, j + 1)
        expected = np.flatnonzero(similarities[:, j] >= thresholds[j])
        np.testing.assert_array_equal(single.rows, expected)
        np.testing.assert_array_equal(single.similarities, similarities[expected, j])


def test_keeping_hits_keeps_them_by_query():
    lists = NeighbourLists(
        np.array([0, 2, 2, 5]), np.arange(5, dtype=np.int32), np.arange(5, dtype=np.int32)
    )
    remaining = lists.keep(np.array([True, False, False, True, True]))
    assert remaining.starts.tolist() == [0, 1, 1, 3]
    assert remaining.rows.tolist() == [0, 3, 4]
    assert len(remaining) == 3


def make_reference(n_queries):
    """Return a reference of 400 points, queries, and the products of each point with each query."""
    rng = np.random.default_rng(4)
    kernel = Cosine()
    reference = Reference(kernel, kernel.encode(rng.normal(size=(400, 5))))
    queries = kernel.encode(rng.normal(size=(n_queries, 5)))
    return reference, queries, reference.points.astype(np.int64) @ queries.astype(np.int64).T


def test_the_adaptive_radius_holds_its_share_of_the_reference():
    reference, queries, products = make_reference(300)
    radius = AdaptiveRadius(reference, n_neighbors=50, n_records=1000)
    counts = (products >= radius.thresholds(queries)).sum(axis=0)
    assert radius.rank == counts.min() == np.median(counts) == 20
    assert (radius.estimate_counts(queries) == 50).all()


def test_the_expected_count_of_a_fixed_radius_is_the_scaled_share():
    reference, queries, products = make_reference(7)
    kernel = reference.kernel
    radius = FixedRadius(kernel, 0.5, 5, reference, n_records=2000)
    shares = (products >= kernel.similarity_at(0.5, 5)).mean(axis=0)
    np.testing.assert_allclose(radius.estimate_counts(queries), np.maximum(2000 * shares, 30))
    with pytest.raises(InvalidInput, match="'public'"):
        FixedRadius(kernel, 0.5, 5).estimate_counts(queries)


def test_an_index_takes_memory_for_its_rows_only():
    """Fails if a store that opens fills megabytes that no row has ever used."""
    kernel = Cosine()
    index = ExactIndex(kernel, 5)
    index.add(kernel.encode(np.random.default_rng(3).normal(size=(90, 5))))
    index.remove(np.arange(30), find_movers(np.arange(30), 90))
    untouched = index.feature_rows._features.blocks[0][90:]
    assert count_resident_bytes(untouched) < untouched.nbytes / 4
    assert wiped(index.feature_rows)


def count_resident_bytes(memory):
    """Return the number of bytes of an array whose memory pages are allocated."""
    if not Path("/proc/self/pagemap").exists():
        pytest.skip("only Linux says which pages are there")
    page, start = mmap.PAGESIZE, memory.ctypes.data
    with Path("/proc/self/pagemap").open("rb") as table:
        table.seek(start // page * 8)
        entries = np.frombuffer(table.read(memory.nbytes // page * 8), dtype=np.uint64)
    return int((entries >> np.uint64(63)).sum()) * page
