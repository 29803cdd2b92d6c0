"""Indexes: refused arguments, growing memory, parameters learnt from public points."""

import numpy as np
import pytest

from index_tools import wiped
from vicinal.errors import InvalidInput
from vicinal.neighbours import RBF, Cosine, ExactIndex, HyperplaneLSH
from vicinal.neighbours.index import FeatureRows
from vicinal.neighbours.kernels import Precision

KERNEL = Cosine(Precision(128, 127))


def make_points(n, seed=0):
    return KERNEL.encode(np.random.default_rng(seed).normal(size=(n, 6)))


@pytest.mark.parametrize(
    ("queries", "thresholds", "word"),
    [
        (make_points(3)[:, :5], np.zeros(3, int), "shape"),
        (make_points(3)[0], np.zeros(3, int), "shape"),
        (make_points(3).astype(np.float32), np.zeros(3, int), "type"),
        (make_points(3), np.zeros(2, int), "thresholds"),
        (make_points(3), np.full(3, np.nan), "thresholds"),
    ],
)
def test_what_could_be_misread_is_refused(queries, thresholds, word):
    index = ExactIndex(KERNEL, 6)
    index.add(make_points(10))
    with pytest.raises(InvalidInput, match=word):
        index.search(queries, thresholds)
    with pytest.raises(InvalidInput, match=word):
        list(index.search_in_blocks(queries, thresholds))


@pytest.mark.parametrize("kind", [ExactIndex, HyperplaneLSH])
def test_records_that_could_be_misread_are_refused_before_anything_changes(kind):
    index = kind(KERNEL, 6)
    index.add(make_points(10))
    points = make_points(3)
    for rows in (points[:, :5], points[0], points.astype(np.float32), points.astype(int)):
        with pytest.raises(InvalidInput, match="'integers'"):
            index.add(rows)
        assert len(index) == 10
        lists = index.search(make_points(2), np.full(2, -(1 << 30)))
        assert set(lists.rows.tolist()) <= set(range(10))


def test_an_empty_index_and_an_empty_block_find_nothing():
    index = ExactIndex(KERNEL, 6)
    lists = index.search(make_points(3), np.zeros(3, dtype=np.int64))
    assert lists.starts.tolist() == [0, 0, 0, 0]
    index.add(make_points(5))
    assert len(index.search(make_points(0), np.zeros(0, dtype=np.int64))) == 0
    assert list(index.search_in_blocks(make_points(0), np.zeros(0, dtype=np.int64))) == []


def test_memory_grows_in_blocks_and_copies_no_record_that_is_there():
    store = FeatureRows(KERNEL, 6, block_rows=64)
    store.add(make_points(50))
    first = store._features.blocks[0]
    for start in range(50, 500, 45):
        store.add(make_points(45, start))
    assert store._features.blocks[0] is first
    assert len(store._features.blocks) == 8
    row_ids = np.concatenate([records.row_ids for records in store.iterate_records(30)])
    np.testing.assert_array_equal(row_ids, np.arange(500))


@pytest.mark.parametrize("kept", [0, 1, 63, 64, 65, 199])
def test_cutting_gives_blocks_back_and_wipes_the_rest(kept):
    kernel = RBF(1.0, 3.0)  # rows have offsets, too
    points = kernel.encode(np.random.default_rng(0).normal(size=(200, 6)))
    store = FeatureRows(kernel, 6, block_rows=64)
    store.add(points)
    no_rows = np.zeros(0, dtype=np.int64)
    store.remove(no_rows, no_rows, kept)
    assert len(store) == kept
    assert len(store._features.blocks) == -(-kept // 64)
    assert wiped(store)
    np.testing.assert_array_equal(store.features, points[:kept])


@pytest.mark.parametrize(
    ("tables", "bits", "name"), [(0, 8, "tables"), (3, 17, "bits"), (3, 0, "bits")]
)
def test_impossible_tables_are_refused(tables, bits, name):
    with pytest.raises(InvalidInput, match=name):
        HyperplaneLSH(KERNEL, 6, tables, bits)


@pytest.mark.parametrize("bits", [1, 8, 9, 16])
def test_buckets_are_the_signs_of_the_hyperplanes(bits):
    index = HyperplaneLSH(KERNEL, 6, tables=4, bits=bits, seed=2)
    rows = make_points(200)
    normals = np.random.default_rng(2).normal(size=(6, 4 * bits))
    signs = (rows.astype(float) @ np.rint(normals * 2**16) > 0).reshape(200, 4, bits)
    np.testing.assert_array_equal(index.hash_rows(rows)[:, :4], signs @ (1 << np.arange(bits)))


def test_more_tables_find_more():
    rows, queries = make_points(2000), make_points(100, 1)
    thresholds = np.full(100, KERNEL.similarity_at(0.8, 6))
    n_found = []
    for tables in (1, 5, 30, 64):
        index = HyperplaneLSH(KERNEL, 6, tables)
        index.add(rows)
        n_found.append(len(index.search(queries, thresholds).rows))
    assert n_found == sorted(n_found)
    assert n_found[0] < n_found[-1]
