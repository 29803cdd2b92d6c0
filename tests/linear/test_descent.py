"""Kalman updates of the weights: the limit on a quadratic loss, and behavior under noise alone."""

from dataclasses import replace

import numpy as np
import pytest

from vicinal import IndKNNRegressor
from vicinal.linear.descent import RETAINED_INFORMATION, STEPS, KalmanWeights
from vicinal.linear.losses import ClassLoss, VectorLoss
from vicinal.linear.model_features import softmax
from vicinal.linear.private_model import MAX_CLIP, MIN_CLIP, TrainingBudget

M, D, SPREAD = 400, 5, 2.0
RNG = np.random.default_rng(0)
UNIT = 1000.0
ROWS = np.rint(UNIT * np.hstack([RNG.normal(size=(M, D)) * 0.3, np.full((M, 1), 0.3)]))


def create_class_loss(count):
    return ClassLoss(np.full(count, 1 / count))


def create_budget(training_budget, n_records, loss):
    return TrainingBudget(n_records, training_budget, 1.0, 1, loss, 1.0, 1.0)


def create_weights(loss=None, *, spread=SPREAD, n_records=1e9, clip=2.0, noise=1e-9):
    """Return the filter before its first update; two classes by default."""
    loss = loss or create_class_loss(2)
    rows = ROWS.astype(np.float32)
    return KalmanWeights(rows, UNIT, [(D, spread)], loss, n_records, clip, noise)


def run_descent(gradient_at, n_records=1e9, noise=1e-9):
    kalman = create_weights(n_records=n_records, noise=noise)
    for _ in range(STEPS):
        kalman.update(gradient_at(kalman.weights))
    return kalman.weights


def test_without_noise_it_arrives():
    """The weights reproduce the label probabilities of every row."""
    target = RNG.normal(size=(D + 1, 2))
    target -= target.mean(axis=1, keepdims=True)
    probabilities = softmax(ROWS / UNIT @ target)
    found = run_descent(
        lambda weights: ROWS.T @ (softmax(ROWS / UNIT @ weights) - probabilities) / UNIT / M
    )
    np.testing.assert_allclose(ROWS / UNIT @ found, ROWS / UNIT @ target, atol=0.02)


def test_without_noise_it_arrives_at_least_squares():
    """Three steps suffice, as the loss is exactly quadratic."""
    values = RNG.uniform(-0.7, 0.7, (M, 2))
    kalman = create_weights(VectorLoss(2, 0.5, 0.5), spread=0.5)
    for _ in range(3):
        kalman.update(ROWS.T @ (ROWS / UNIT @ kalman.weights - values) / UNIT / M)
    best = np.linalg.lstsq(ROWS / UNIT, values, rcond=None)[0]
    np.testing.assert_allclose(kalman.weights, best, atol=1e-2)


def test_under_noise_it_is_the_mean_given_all_gradients():
    """The reference is one Gaussian regression on all noisy gradients."""
    rng = np.random.default_rng(5)
    target, noise = 0.1 * RNG.normal(size=(D + 1, 2)), 0.02
    kalman = create_weights(n_records=1e12, noise=noise)
    rows = ROWS / UNIT
    spread = np.full(D + 1, SPREAD / np.sqrt(np.square(rows[:, :-1]).sum(axis=1).mean()))
    spread[-1] = 20.0
    moment = (rows * spread).T @ (rows * spread)
    moment += np.eye(D + 1) * np.diag(moment)[:-1].mean() / M
    moment /= M + 1
    precisions, information_vector = np.eye(D + 1), np.zeros((D + 1, 2))
    covariance = noise**2 * np.diag(spread**2)  # equal on all weights
    for _ in range(STEPS):
        curvature = kalman._compute_curvature() * moment  # as the filter assumes it
        gradient = curvature @ ((kalman.weights - target) / spread[:, None]) / spread[:, None]
        gradient += rng.normal(0, noise, gradient.shape)
        measured = kalman.weights / spread[:, None]
        measured = measured - np.linalg.solve(curvature, spread[:, None] * gradient)
        information = curvature.T @ np.linalg.inv(covariance) @ curvature
        information_vector = RETAINED_INFORMATION * information_vector + information @ measured
        precisions = (
            np.eye(D + 1) + RETAINED_INFORMATION * (precisions - np.eye(D + 1)) + information
        )
        kalman.update(gradient)
    found = kalman.weights / spread[:, None]
    np.testing.assert_allclose(found, np.linalg.solve(precisions, information_vector), atol=2e-4)


@pytest.mark.parametrize("noise", [3.0, 100.0])
def test_where_there_is_nothing_but_noise_nothing_moves(noise):
    rng = np.random.default_rng(1)
    found = run_descent(lambda weights: rng.normal(0, noise, weights.shape), 100, noise)
    scores = (ROWS / UNIT) @ found  # the bias is nearly free, and moves
    assert (scores - scores.mean(axis=0)).std() < 0.25 * SPREAD


def test_weights_stay_where_gradients_vanish_and_noise_of_all_steps_fits_the_share():
    assert not run_descent(np.zeros_like, 100, 0.1).any()
    step_noise = create_budget(0.3, 100, create_class_loss(2)).step_noise
    assert STEPS / (2 * step_noise**2) == pytest.approx(0.3)


def test_the_clip_follows_from_the_noise():
    """The noise of the mean over all steps is a fixed share of the sampling variance."""
    share, n, width, loss = 0.03, 800, 20, create_class_loss(2)
    budget = create_budget(share, n, loss)
    clip = budget.compute_clip(width)
    assert MIN_CLIP < clip < MAX_CLIP
    noise = (clip * budget.step_noise / n) ** 2 / STEPS
    assert width * 2 * noise == pytest.approx(1 / (loss.sampling_to_noise_variance * n))
    assert create_budget(share, 50, loss).compute_clip(width) == MIN_CLIP
    assert create_budget(share, 10**9, loss).compute_clip(width) == MAX_CLIP
    vector_budget = create_budget(share, 4 * n, VectorLoss(2, 0.5, 0.5))
    assert vector_budget.compute_clip(width) == pytest.approx(clip / 2), "they differ by half"


@pytest.mark.parametrize("clip", [0.1, 0.25, 1.0])
def test_the_curvature_is_that_of_cut_gradients(clip):
    """The reference sums over rows and labels, weighted by the label probabilities."""
    kalman = create_weights(create_class_loss(3), n_records=100, clip=clip, noise=0.1)
    kalman.weights = RNG.normal(size=(D + 1, 3))
    curved = []
    for row in ROWS / UNIT:
        p = softmax(row[None] @ kalman.weights)[0]
        norms = [np.linalg.norm(row) * np.linalg.norm(p - np.eye(3)[y]) for y in range(3)]
        uncut = sum(p[y] * min(1.0, clip / norms[y]) for y in range(3))
        curved.append((p * (1 - p)).sum() / 2 * uncut)
    assert kalman._compute_curvature() == pytest.approx(np.mean(curved), rel=1e-4)


def test_no_step_is_longer_than_the_bound_of_the_curvature_allows():
    """With ten classes the curvature at the start is a fifth of its bound."""
    kalman = create_weights(create_class_loss(10), n_records=1e12, clip=9.0)
    gradient = RNG.normal(size=(D + 1, 10))
    scaled_rows = ROWS / UNIT * kalman._prior_std.T
    moment = scaled_rows.T @ scaled_rows
    moment += np.eye(D + 1) * np.diag(moment)[:-1].mean() / M
    max_step = np.linalg.solve(moment / (M + 1) / 2, kalman._prior_std * gradient)
    kalman.update(gradient)
    np.testing.assert_allclose(kalman._scaled_weights, -max_step, rtol=1e-6)


def test_trainings_that_share_a_budget_share_the_clip_s_noise():
    budget = TrainingBudget(2000, 0.06, 0.5, 3, create_class_loss(2), 1.0, 1.0)
    single = create_budget(0.01, 2000, create_class_loss(2))
    assert budget.step_noise == single.step_noise
    assert MIN_CLIP < budget.compute_clip(20) < MAX_CLIP
    assert budget.compute_clip(20) == pytest.approx(single.compute_clip(20))


@pytest.mark.parametrize(
    ("n_variance_directions", "is_exact"), [(0, False), (3, False), (D + 1, True), (64, True)]
)
def test_doubts_are_the_variance_that_gradients_have_left_in_a_row_s_score(
    n_variance_directions, is_exact, monkeypatch
):
    """The variance is exact per row with all directions, else exact on average of public rows."""
    monkeypatch.setattr(VectorLoss, "n_variance_directions", n_variance_directions)
    loss = VectorLoss(2, 0.5, 0.5)
    kalman = create_weights(loss, spread=0.5, n_records=1e3, clip=1.0, noise=0.01)
    for _ in range(5):
        kalman.update(RNG.normal(0, 0.01, (D + 1, 2)))
    to_weights = kalman._eigenbasis_to_weights
    rows = np.vstack([ROWS, 3 * ROWS[:3]]) / UNIT
    rows[:, -1] = 0.3
    variances = np.einsum(
        "ij,jk,ik->i", rows, to_weights @ np.diag(1 / kalman._precision) @ to_weights.T, rows
    )
    found = np.square(rows @ kalman.variance_directions).sum(axis=1)
    if is_exact:
        np.testing.assert_allclose(found, variances, rtol=1e-9)
    assert found[:M].mean() == pytest.approx(variances[:M].mean(), rel=0.02)
    assert len(np.unique(found.round(12))) > 1 or n_variance_directions == 0


def test_subjects_with_many_records_do_not_hold_numbers_back():
    """Fails if the curvature ignores that a subject's gradient is clipped as a whole (.74)."""
    n = 16_000
    rows, subjects = RNG.normal(size=(n, 3)), np.repeat(np.arange(1000), 16)
    model = IndKNNRegressor(
        (0, 1), n_queries=300, n_records=n, records_per_subject=16, simulation_seed=0
    )
    model.fit(rows, np.full(n, 0.9), subjects, public=RNG.normal(size=(500, 3)))
    assert model.predict(RNG.normal(size=(300, 3))).mean() == pytest.approx(0.9, abs=0.02)


def test_declared_records_change_neither_noise_nor_clip():
    """They change the curvature alone: noise and clip of what is charged are those of a subject."""
    budget = create_budget(0.03, 800, create_class_loss(2))
    budgets = [replace(budget, records_per_subject=number) for number in (1, 16, 1e6)]
    assert len({(budget.step_noise, budget.compute_clip(20)) for budget in budgets}) == 1
    assert [budget.subject_norm_ratio for budget in budgets[:2]] == [1, 8]
