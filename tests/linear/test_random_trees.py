"""Trees grown on public rows: the same everywhere, of their row alone, and some for any rows."""

import hashlib

import numpy as np
import pytest

from vicinal.linear._random_trees import DEPTH, LANDMARKS, TREES, RandomTrees
from vicinal.linear.model_features import ModelFeatures
from vicinal.neighbours import Cosine

RNG = np.random.default_rng(0)
PUBLIC = RNG.integers(-60, 60, (400, 6)).astype(np.float32)
PUBLIC[:, 1:3] = PUBLIC[:, 1:3] > 30  # yes or no
X = RNG.integers(-90, 90, (500, 6)).astype(np.float32)
GROWN = RandomTrees(PUBLIC)


def walked(rows):
    """Return the leaves of rows, (n, trees), by a walk from each root, a step after the other."""
    leaves = np.empty((len(rows), TREES), dtype=np.int64)
    for row, found in zip(rows, leaves, strict=True):
        for tree in range(TREES):
            node = 0
            for _ in range(DEPTH):
                above = row[GROWN.columns[tree, node]] > GROWN.cuts[tree, node]
                node = 2 * node + (2 if above else 1)
            found[tree] = node
    return leaves


def test_features_are_how_many_leaves_are_shared_with_public_rows():
    """An independent walk."""
    landmarks = PUBLIC[[i * len(PUBLIC) // LANDMARKS for i in range(LANDMARKS)]]
    expected = (walked(X)[:, None] == walked(landmarks)).sum(axis=2)
    np.testing.assert_array_equal(GROWN.count_shared_leaves(X), expected)
    assert (np.diag(GROWN.count_shared_leaves(landmarks)) == TREES).all()


def test_they_are_these_on_every_machine():
    """Whole numbers, by comparisons of whole numbers: a digest, made once."""
    cuts = np.where(np.isinf(GROWN.cuts), 1e6, 2 * GROWN.cuts).astype("<i8")
    digest = hashlib.sha256(GROWN.columns.astype("<i8").tobytes() + cuts.tobytes())
    digest.update(GROWN.count_shared_leaves(X).astype("<i8").tobytes())
    assert digest.hexdigest()[:16] == "fdcba9ebb0f51170"


def test_a_row_s_leaves_do_not_depend_on_others():
    whole = GROWN.count_shared_leaves(X)
    for part in (slice(0, 1), slice(5, 400, 7), slice(None, None, -1)):
        np.testing.assert_array_equal(GROWN.count_shared_leaves(X[part]), whole[part])
        np.testing.assert_array_equal(
            GROWN.count_shared_leaves(np.asfortranarray(X[part])), whole[part]
        )
    np.testing.assert_array_equal(
        GROWN.count_shared_leaves(X.astype(np.int8)), GROWN.count_shared_leaves(X.astype("f8"))
    )


def test_a_cut_lies_between_public_values_and_most_nodes_have_one():
    """Fails if columns that are alike in a node are drawn, or rows of another node."""
    cut = np.isfinite(GROWN.cuts)
    assert cut.mean() > 0.9
    for column in range(6):
        here = GROWN.cuts[cut & (GROWN.columns == column)]
        assert len(here) > 50
        assert (here > PUBLIC[:, column].min()).all()
        assert (here < PUBLIC[:, column].max()).all()
    leaves = walked(PUBLIC)
    assert np.mean([len(np.unique(tree)) for tree in leaves.T]) > 10


@pytest.mark.parametrize(
    "public",
    [
        PUBLIC[:10], PUBLIC[:1], PUBLIC[:50, :1], np.ones((300, 4), np.float32),
        np.zeros((3, 2), np.float32), np.column_stack([PUBLIC[:, 0], np.zeros(400)]),
        np.vstack([np.ones((299, 4)), np.full((1, 4), 50.0)]),
    ],
    ids=["ten", "one", "a column", "alike", "zeros", "a constant", "all but one alike"],
)  # fmt: skip
def test_few_rows_or_columns_and_rows_that_are_alike_leave_features_to_train_on(public):
    kernel = Cosine.fit_to_public(public)
    features = ModelFeatures.from_rows(kernel.encode(public), lifted=kernel.lifts)
    assert features.block_sizes == (public.shape[1], min(len(public), LANDMARKS))
    rows = features.compute_rows(kernel.encode(X[:, : public.shape[1]]))
    assert np.isfinite(rows).all()
    assert 0 < np.linalg.norm(rows, axis=1).max() < 1.1 * features.steps_per_unit


def test_none_are_grown_where_components_stand_in_place_of_columns():
    """On 5,000 rows of 512 features they took seconds, at every opening."""
    features = ModelFeatures.for_training(PUBLIC[:384].reshape(36, 64), 100, lifted=False)
    kept = ModelFeatures.from_arrays(
        PUBLIC[:384].reshape(36, 64), features.to_arrays(), lifted=False
    )
    for made in (features, kept):
        assert made.kernel is not None
        assert np.isinf(made.trees.cuts).all()
