"""The adaptive radius found by a short cut is the one found by looking at everything."""

import numpy as np
import pytest

from vicinal.neighbours import RBF, Cosine, Reference
from vicinal.neighbours import radius as radii
from vicinal.neighbours.kernels import Precision

KERNELS = [Cosine(), Cosine(Precision(300, 127)), RBF(3.0, 6.0, Precision(300, 127))]


@pytest.mark.parametrize("kernel", KERNELS, ids=["float32", "int8", "rbf"])
@pytest.mark.parametrize("rank", [1, 2, 17, 300, 999, 1400])
def test_the_short_cut_is_exact(kernel, rank):
    rng = np.random.default_rng(rank)
    points = np.repeat(rng.normal(size=(700, 9)), 2, axis=0)  # every similarity twice: ties
    reference = Reference(kernel, kernel.encode(points))
    queries = kernel.encode(rng.normal(size=(300, 9)))
    largest = reference.find_similarity_at_rank(queries, rank)
    np.testing.assert_array_equal(largest, reference.scan_similarity_at_rank(queries, rank))


def test_a_guess_that_fails_is_made_good(monkeypatch):
    kernel = KERNELS[1]
    rng = np.random.default_rng(0)
    reference = Reference(kernel, kernel.encode(rng.normal(size=(1500, 9))))
    queries = kernel.encode(rng.normal(size=(50, 9)))
    high = reference.scan_similarity_at_rank(queries, 3)
    monkeypatch.setattr(
        radii.Reference, "_guess_thresholds", lambda *_: np.where(np.arange(50) % 2, high, -9999)
    )
    np.testing.assert_array_equal(
        reference.find_similarity_at_rank(queries, 20),
        reference.scan_similarity_at_rank(queries, 20),
    )


def test_the_guess_lets_enough_points_in_as_a_rule():
    kernel = KERNELS[1]
    rng = np.random.default_rng(1)
    reference = Reference(kernel, kernel.encode(rng.normal(size=(4000, 20))))
    queries = kernel.encode(rng.normal(size=(256, 20)))
    for rank in (1, 5, 40, 400):
        lists = reference._index.search(queries, reference._guess_thresholds(queries, rank))
        counts = np.diff(lists.starts)
        assert (counts >= rank).mean() > 0.98
        assert counts.mean() < 4 * rank + 120
