"""What a private model is linear in: columns with their lengths, and a bias."""

import numpy as np
import pytest

from made_up import plan_of
from vicinal.linear import model_features
from vicinal.linear._random_trees import LANDMARKS
from vicinal.linear.model_features import BIAS, ModelFeatures, are_columns, compute_scores
from vicinal.mechanisms.gradients import WEIGHT_STEPS
from vicinal.neighbours import Cosine
from vicinal.planning.engine_factory import create_kernel

D = 4
RNG = np.random.default_rng(0)
SCALES = np.array([1.0, 2.0, 0.5, 3.0])
PUBLIC = RNG.normal(2.0, 1.0, size=(300, D)) * SCALES
X = RNG.normal(2.0, 1.0, size=(200, D)) * SCALES
KERNEL = Cosine.fit_to_public(PUBLIC)
ROWS = KERNEL.encode(PUBLIC).astype(np.float32)
FEATURES = ModelFeatures.from_rows(ROWS, lifted=KERNEL.lifts)


def features_of(X):
    return FEATURES.compute_rows(KERNEL.encode(X).astype(np.float32))


def test_rows_are_standardised_columns_over_the_longest_public_row_and_a_bias():
    """An independent computation in floats."""
    assert KERNEL.lifts
    fine = Cosine(bound=KERNEL.bound)
    features = ModelFeatures.from_rows(fine.encode(PUBLIC), lifted=True)
    deviation = PUBLIC.std(axis=0)
    longest = np.linalg.norm((PUBLIC - PUBLIC.mean(axis=0)) / deviation, axis=1).max()
    expected = model_features.COLUMNS_NORM * (X - PUBLIC.mean(axis=0)) / deviation / longest
    encoded = fine.encode(X)
    found = features.compute_rows(encoded) / features.steps_per_unit
    uncut = (encoded[:, :D] - features.center[:D]) * features.factors[:D]
    trees = (
        features.trees.count_shared_leaves(encoded[:, :D]) - features.center[D:]
    ) * features.factors[D:]
    inside = np.square(np.hstack([uncut, trees])).sum(axis=1) < 1
    inside &= np.linalg.norm(X, axis=1) < KERNEL.bound
    assert inside.sum() > 150
    np.testing.assert_allclose(found[inside][:, :D], expected[inside], atol=0.02)
    np.testing.assert_allclose(found[:, -1], BIAS, atol=1e-3)


def test_directions_alone_count_where_public_rows_are_alike_long():
    unit = PUBLIC / np.linalg.norm(PUBLIC, axis=1, keepdims=True)
    kernel = Cosine.fit_to_public(unit)
    assert not kernel.lifts
    assert ModelFeatures.from_rows(kernel.encode(unit), lifted=False).block_sizes == (D, LANDMARKS)
    assert FEATURES.block_sizes == (D, LANDMARKS)


@pytest.mark.parametrize("rows", [X, 1e6 * X, np.zeros((2, D)), PUBLIC])
def test_a_row_does_not_depend_on_others_and_is_short_enough(rows):
    found = features_of(rows)
    for part in (slice(1, 2), slice(0, 250, 3)):
        assert (features_of(rows[part]) == found[part]).all()
    assert np.linalg.norm(found.astype(np.float64), axis=1).max() < 8191
    assert (found == np.rint(found)).all()
    assert found.any(axis=1).all()


def test_a_column_that_public_rows_do_not_have_is_not_divided_by_nothing():
    flat = np.column_stack([PUBLIC, np.zeros(len(PUBLIC))])
    features = ModelFeatures.from_rows(flat, lifted=False)
    assert np.isfinite(features.compute_rows(np.eye(D + 1))).all()
    alike = ModelFeatures.from_rows(np.ones((5, D)), lifted=False)
    assert np.isfinite(alike.compute_rows(X)).all()


@pytest.mark.parametrize("width", [3, 8, 401])
def test_scores_are_exact_sums_of_whole_numbers(width):
    rng = np.random.default_rng(width)
    rows = rng.integers(-8191, 8192, (5, width)).astype(np.float32)
    weights = rng.integers(-(2**30), 2**30, (width, 7)).astype(np.float64)
    expected = rows.astype(np.int64) @ weights.astype(np.int64)
    found = compute_scores(rows, weights, 1.0) * WEIGHT_STEPS
    np.testing.assert_array_equal(found, expected.astype(np.float64))


def categories(seed, size, width):
    """Return rows of `width` columns of which each has one, as categories and counts are coded."""
    rng = np.random.default_rng(seed)
    return np.eye(width)[rng.integers(0, width, size)] + rng.integers(0, 3, (size, width))


@pytest.mark.parametrize(
    ("rows", "columns"),
    [
        (categories(0, 300, 70), True),
        (np.random.default_rng(0).normal(size=(300, 64)), False),
        (np.random.default_rng(0).normal(size=(300, 63)), True),
        (categories(0, 300, 401), False),
        (
            np.hstack([categories(0, 300, 40), np.random.default_rng(0).normal(size=(300, 41))]),
            False,
        ),
    ],
)
def test_columns_of_a_table_are_told_from_embeddings_by_public_values_that_come_again(
    rows, columns
):
    """Whatever their number, a model is linear in them; an embedding's becomes components."""
    assert are_columns(rows) == columns
    plan = plan_of(n_records=300, n_queries=10)
    kernel = create_kernel(plan, rows)
    assert kernel.lifts == columns
    encoded = np.asarray(kernel.encode(rows), dtype=np.float32)
    made = ModelFeatures.for_training(encoded, 300, lifted=kernel.lifts)
    assert (made.kernel is None) == columns
    assert made.width <= ModelFeatures.compute_max_width(encoded.shape[1], 300)
