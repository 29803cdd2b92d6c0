"""Nearest records and largest similarities, found by selection, are those of sorting."""

import numpy as np
import pytest
from scipy.stats import chisquare

from vicinal.neighbours import RBF, Cosine, Reference
from vicinal.neighbours import radius as radii
from vicinal.neighbours.kernels import Precision
from vicinal.neighbours.poisson_knn import NO_RECORD, _scatter_indices, _write_nearest_records
from vicinal.neighbours.radius import select_largest, select_rank

INT8 = Cosine(Precision(300, 127))
KERNELS = {"float32": Cosine(), "int8": INT8, "rbf": RBF(3.0, 6.0, Precision(300, 127))}


@pytest.mark.parametrize("size", [1, 2, 3, 10, 300])
@pytest.mark.parametrize("distinct", [1, 3, 1 << 40])
def test_the_largest_stand_last_and_the_least_of_them_first(size, distinct):
    rng = np.random.default_rng([size, distinct])
    for count in {1, 2, size // 2, size - 1, size} & set(range(1, size + 1)):
        values = rng.integers(-distinct, distinct, size)
        for ordered in (values, np.sort(values), np.sort(values)[::-1].copy()):
            selected = ordered.copy()
            select_largest(selected, count)
            assert (np.sort(selected[-count:]) == np.sort(values)[-count:]).all()
            assert selected[size - count] == selected[-count:].min()
            assert (np.sort(selected) == np.sort(values)).all()


@pytest.mark.parametrize("rank", [1, 2, 20, 64, 65])
@pytest.mark.parametrize("distinct", [1, 3, 1 << 31])
def test_a_rank_is_as_by_sorting(rank, distinct):
    """Few largest values are kept in order, more are selected; none is smaller than int32 holds."""
    rng = np.random.default_rng([rank, distinct])
    sizes = [0, rank - 1, rank, rank + 1, 200]
    values = rng.integers(-distinct, distinct, sum(sizes)).astype(np.int32)
    selected = select_rank(np.concatenate([[0], np.cumsum(sizes)]), values, rank)
    for query_values, value in zip(np.split(values, np.cumsum(sizes)[:-1]), selected, strict=True):
        assert value == (np.sort(query_values)[-rank] if len(query_values) >= rank else 0)


@pytest.mark.parametrize("kind", ["spread", "narrow", "equal", "outlier", "extremes"])
@pytest.mark.parametrize("size", [0, 5, 511, 512, 1500])
@pytest.mark.parametrize("k", [1, 5, 300, 1500])
def test_the_nearest_are_those_of_a_sort_however_similarities_lie(kind, size, k):
    rng = np.random.default_rng(size + k)
    similarities = {
        "spread": rng.integers(-(2**31), 2**31, size),
        "narrow": rng.integers(-5, 5, size),
        "equal": np.full(size, -(2**31)),
        "outlier": np.where(np.arange(size) == 3, 2**31 - 1, rng.integers(0, 9, size)),
        "extremes": rng.choice([-(2**31), 2**31 - 1], size),
    }[kind]
    rows = rng.permutation(size).astype(np.int32)
    chosen = np.full((1, k), NO_RECORD, dtype=np.int32)
    lists = np.array([0, size]), rows, similarities.astype(np.int32)
    _write_nearest_records(*lists, np.arange(size), chosen)
    expected = rows[np.lexsort((rows, -similarities))][:k]
    assert sorted(chosen[0, :size]) == sorted(expected)
    assert (chosen[0, size:] == NO_RECORD).all()


def test_the_probes_follow_no_pattern():
    """Fails if records that come in rounds are probed in some places of the round only."""
    for period in (10, 58, 64):
        indices = _scatter_indices(period * 1000, 20 * period)
        assert len(set(indices.tolist())) == 20 * period
        assert chisquare(np.bincount(indices % period, minlength=period)).pvalue > 1e-6
    np.testing.assert_array_equal(_scatter_indices(5, 9), np.arange(5))


def make_reference(kernel, n_points, n_queries, n_features=9, copies=1):
    """Return a reference of random points and random queries."""
    rng = np.random.default_rng(n_points)
    points = np.repeat(rng.normal(size=(n_points, n_features)), copies, axis=0)
    queries = kernel.encode(rng.normal(size=(n_queries, n_features)))
    return Reference(kernel, kernel.encode(points)), queries


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_thresholds_from_a_guess_are_those_of_a_complete_search(kernel):
    reference, queries = make_reference(kernel, 700, 300, copies=2)  # with ties
    for rank in (1, 2, 17, 300, 999, 1400):
        largest = reference.find_similarity_at_rank(queries, rank)
        np.testing.assert_array_equal(largest, reference.scan_similarity_at_rank(queries, rank))


def test_a_guess_that_fails_is_made_good(monkeypatch):
    reference, queries = make_reference(INT8, 1500, 50)
    high = reference.scan_similarity_at_rank(queries, 3)
    guess = np.where(np.arange(50) % 2, high, -9999)
    monkeypatch.setattr(radii.Reference, "_guess_thresholds", lambda *_: guess)
    largest = reference.find_similarity_at_rank(queries, 20)
    np.testing.assert_array_equal(largest, reference.scan_similarity_at_rank(queries, 20))


def test_the_guess_lets_enough_points_in_as_a_rule():
    reference, queries = make_reference(INT8, 4000, 256, n_features=20)
    for rank in (1, 5, 40, 400):
        lists = reference._index.search(queries, reference._guess_thresholds(queries, rank))
        counts = np.diff(lists.starts)
        assert (counts >= rank).mean() > 0.98
        assert counts.mean() < 4 * rank + 120
