"""Votes of a least-squares model, joined with private votes: exact values on small numbers."""

import numpy as np
import pytest

from vicinal import IndKNNRegressor
from vicinal.linear.losses import (
    _NEIGHBOUR_MISMATCH_STD,
    _VECTOR_MISFIT_STD,
    Predictions,
    VectorLoss,
)
from vicinal.mechanisms.subject_table import RecordVectors
from vicinal.neighbours import Cosine

LOSS = VectorLoss(2, 0.6, 0.5)
PREDICTED = np.array([[0.2, -0.4], [0.5, 0.1]])
NOISE, EXPECTED, DOUBT = 30.0, 100.0, np.array([0.05, 0.4])
PREDICTIONS = Predictions(PREDICTED, DOUBT)


def count_model_votes():
    """Return the number of model votes of each query, by the variances of both witnesses."""
    return (
        EXPECTED
        * ((NOISE / EXPECTED) ** 2 + _NEIGHBOUR_MISMATCH_STD**2)
        / (_VECTOR_MISFIT_STD**2 + DOUBT**2)
    )


def test_a_record_s_weight_is_not_learnt_and_predictions_are_as_short_as_records():
    vectors = RecordVectors.from_rows([[0.6, 0.25, -0.5], [0.6, 0.0, 0.125]])
    np.testing.assert_array_equal(
        LOSS.convert_targets(vectors) / 2**30, [[0.25, -0.5], [0.0, 0.125]]
    )
    np.testing.assert_array_equal(LOSS.predict(np.array([[1.5, -7.0]])), [[1.0, -1.0]])


def test_its_votes_are_vectors_of_as_many_records_as_it_is_worth():
    votes = LOSS.convert_to_votes(PREDICTIONS, np.full(2, NOISE), np.full(2, EXPECTED))
    np.testing.assert_allclose(votes[:, 0], 0.6 * count_model_votes())
    np.testing.assert_allclose(votes[:, 1:], PREDICTED * count_model_votes()[:, None])


def test_joined_sums_are_of_as_many_as_were_expected_and_averages_stay():
    """Fails if the noise that is stated is not that of the sums, or lacks that of the training."""
    votes = LOSS.convert_to_votes(PREDICTIONS, np.full(2, NOISE), np.full(2, EXPECTED))
    released = votes + EXPECTED * np.array([[0.6, 0.1, 0.3], [0.6, 0.0, 0.2]])
    queried = np.array([True, False])
    sums, probabilities = LOSS.pool_votes(
        PREDICTED, votes, released[:1], queried, np.full(2, EXPECTED)
    )
    assert probabilities is None
    np.testing.assert_allclose(sums[0] / sums[0, 0], released[0] / released[0, 0])
    np.testing.assert_allclose(sums[0, 0], 0.6 * EXPECTED)
    np.testing.assert_allclose(sums[1, 1:] / sums[1, 0] * 0.6, PREDICTED[1])
    scale = EXPECTED / (EXPECTED + count_model_votes())
    noise_std = LOSS.compute_pooled_std(NOISE, EXPECTED, DOUBT)
    np.testing.assert_allclose(noise_std, scale * np.hypot(NOISE, count_model_votes() * DOUBT))


@pytest.mark.parametrize("epsilon", [0.1, 0.5])
def test_the_doubt_is_not_below_what_the_noise_of_training_does(epsilon):
    """Gradients are cut there, and numbers at the ends of their range are harder than typical."""
    rng = np.random.default_rng(0)
    X, public = rng.normal(size=(500, 4)), rng.normal(size=(100, 4))
    y = np.sign(X[:, 0])
    models = [
        IndKNNRegressor(
            {"y": (-1, 1)}, epsilon, n_queries=10, n_records=500, simulation_seed=seed
        ).fit(X, y[:, None], public=public)._model
        for seed in range(12)
    ]  # fmt: skip
    encoded = Cosine.fit_to_public(public).encode(public).astype(np.float32)
    rows = np.stack([model.predict(encoded) for model in models])
    assert rows.std(axis=0).mean() < 1.3 * models[0].score_std
    assert models[0].score_std == models[-1].score_std
