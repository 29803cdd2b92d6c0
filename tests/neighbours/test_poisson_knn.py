"""Probed records of a radius, and the nearest records of a list."""

import numpy as np
import pytest
from scipy.stats import chisquare

from vicinal.neighbours.poisson_knn import NO_RECORD, _scatter_indices, _write_nearest_records


def test_the_probes_follow_no_pattern():
    """Fails if records that come in rounds are probed in some places of the round only."""
    for period in (10, 58, 64):
        indices = _scatter_indices(period * 1000, 20 * period)
        assert len(set(indices.tolist())) == 20 * period
        assert chisquare(np.bincount(indices % period, minlength=period)).pvalue > 1e-6
    stride = np.arange(0, 58_000, 58)
    assert len(set((stride % 58).tolist())) == 1
    np.testing.assert_array_equal(_scatter_indices(5, 9), np.arange(5))


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
