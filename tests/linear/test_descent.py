"""The damped descent: what it comes to on a quadratic loss, and under noise alone."""

import numpy as np
import pytest

from vicinal.linear.descent import KEPT, LEAST_CLIP, MOST_CLIP, STEPS, Descent, clip_of, step_noise
from vicinal.linear.losses import ClassLoss, VectorLoss
from vicinal.linear.model_features import softmax
from vicinal.linear.private_model import TrainingBudget

M, D, SPREAD = 400, 5, 2.0
RNG = np.random.default_rng(0)
UNIT = 1000.0
ROWS = np.rint(UNIT * np.hstack([RNG.normal(size=(M, D)) * 0.3, np.full((M, 1), 0.3)]))


def classes(count):
    return ClassLoss(np.full(count, 1 / count))


def descended(gradient_at, n_records=1e9, noise=1e-9):
    descent = Descent(
        ROWS.astype(np.float32), UNIT, [(D, SPREAD)], classes(2), n_records, 2.0, noise
    )
    for _ in range(STEPS):
        descent.step(gradient_at(descent.weights))
    return descent.weights


def test_without_noise_it_arrives():
    """At the weights by which every row has the chances that its labels have."""
    target = RNG.normal(size=(D + 1, 2))
    target -= target.mean(axis=1, keepdims=True)
    chances = softmax(ROWS / UNIT @ target)
    found = descended(
        lambda weights: ROWS.T @ (softmax(ROWS / UNIT @ weights) - chances) / UNIT / M
    )
    np.testing.assert_allclose(ROWS / UNIT @ found, ROWS / UNIT @ target, atol=0.02)


def test_without_noise_it_arrives_at_least_squares():
    """In few steps: the loss is the parabola that a gradient is read by."""
    values = RNG.uniform(-0.7, 0.7, (M, 2))
    descent = Descent(
        ROWS.astype(np.float32), UNIT, [(D, 0.5)], VectorLoss(2, 0.5, 0.5), 1e9, 2.0, 1e-9
    )
    for _ in range(3):
        descent.step(ROWS.T @ (ROWS / UNIT @ descent.weights - values) / UNIT / M)
    best = np.linalg.lstsq(ROWS / UNIT, values, rcond=None)[0]
    np.testing.assert_allclose(descent.weights, best, atol=1e-2)


def test_under_noise_it_is_the_mean_given_all_gradients():
    """An independent solution: one Gaussian regression on all noisy gradients."""
    rng = np.random.default_rng(5)
    target, noise = 0.1 * RNG.normal(size=(D + 1, 2)), 0.02
    descent = Descent(ROWS.astype(np.float32), UNIT, [(D, SPREAD)], classes(2), 1e12, 2.0, noise)
    rows = ROWS / UNIT
    spread = np.full(D + 1, SPREAD / np.sqrt(np.square(rows[:, :-1]).sum(axis=1).mean()))
    spread[-1] = 20.0
    moment = (rows * spread).T @ (rows * spread)
    moment += np.eye(D + 1) * np.diag(moment)[:-1].mean() / M
    moment /= M + 1
    precisions, told = np.eye(D + 1), np.zeros((D + 1, 2))
    covariance = noise**2 * np.diag(spread**2)  # alike on all weights
    for _ in range(STEPS):
        bent = descent._curvature() * moment  # what the descent takes for the curvature
        gradient = bent @ ((descent.weights - target) / spread[:, None]) / spread[:, None]
        gradient += rng.normal(0, noise, gradient.shape)
        seen = descent.weights / spread[:, None]
        seen = seen - np.linalg.solve(bent, spread[:, None] * gradient)
        information = bent.T @ np.linalg.inv(covariance) @ bent
        told = KEPT * told + information @ seen
        precisions = np.eye(D + 1) + KEPT * (precisions - np.eye(D + 1)) + information
        descent.step(gradient)
    found = descent.weights / spread[:, None]
    np.testing.assert_allclose(found, np.linalg.solve(precisions, told), atol=2e-4)


@pytest.mark.parametrize("noise", [3.0, 100.0])
def test_where_there_is_nothing_but_noise_nothing_moves(noise):
    rng = np.random.default_rng(1)
    found = descended(lambda weights: rng.normal(0, noise, weights.shape), 100, noise)
    scores = (ROWS / UNIT) @ found  # the bias is nearly free, and moves
    assert (scores - scores.mean(axis=0)).std() < 0.25 * SPREAD


def test_weights_stay_where_gradients_vanish_and_noise_of_all_steps_fits_the_share():
    assert not descended(np.zeros_like, 100, 0.1).any()
    assert STEPS / (2 * step_noise(0.3) ** 2) == pytest.approx(0.3)


def test_the_clip_follows_from_the_noise():
    """Noise of the mean of all steps is a part of the scatter, 1 / n, unless a bound says more."""
    share, n, width, loss = 0.03, 800, 20, classes(2)
    clip = clip_of(share, n, width, loss)
    assert LEAST_CLIP < clip < MOST_CLIP
    noise = (clip * step_noise(share) / n) ** 2 / STEPS
    assert width * 2 * noise == pytest.approx(1 / (loss.scatter * n))
    assert clip_of(share, 50, width, loss) == LEAST_CLIP
    assert clip_of(share, 10**9, width, loss) == MOST_CLIP
    vectors = VectorLoss(2, 0.5, 0.5)
    assert clip_of(share, 4 * n, width, vectors) == pytest.approx(clip / 2), "they differ by half"


@pytest.mark.parametrize("clip", [0.1, 0.25, 1.0])
def test_the_curvature_is_that_of_cut_gradients(clip):
    """Row by row and label by label, as often as the model expects it."""
    descent = Descent(ROWS.astype(np.float32), UNIT, [(D, SPREAD)], classes(3), 100, clip, 0.1)
    descent.weights = RNG.normal(size=(D + 1, 3))
    curved = []
    for row in ROWS / UNIT:
        p = softmax(row[None] @ descent.weights)[0]
        norms = [np.linalg.norm(row) * np.linalg.norm(p - np.eye(3)[y]) for y in range(3)]
        uncut = sum(p[y] * min(1.0, clip / norms[y]) for y in range(3))
        curved.append((p * (1 - p)).sum() / 2 * uncut)
    assert descent._curvature() == pytest.approx(np.mean(curved), rel=1e-4)


def test_no_step_is_longer_than_the_bound_of_the_curvature_allows():
    """With ten classes the curvature at the start is a fifth of its bound."""
    descent = Descent(ROWS.astype(np.float32), UNIT, [(D, SPREAD)], classes(10), 1e12, 9.0, 1e-9)
    gradient = RNG.normal(size=(D + 1, 10))
    wide = ROWS / UNIT * descent._before.T
    moment = wide.T @ wide
    moment += np.eye(D + 1) * np.diag(moment)[:-1].mean() / M
    longest = np.linalg.solve(moment / (M + 1) / 2, descent._before * gradient)
    descent.step(gradient)
    np.testing.assert_allclose(descent._scaled, -longest, rtol=1e-6)


def test_trainings_that_share_a_budget_share_the_clip_s_noise():
    budget = TrainingBudget(2000, 0.06, 0.5, 3, classes(2), 1.0)
    assert budget.step_noise == step_noise(0.01)
    assert LEAST_CLIP < budget.clip(20) < MOST_CLIP
    assert budget.clip(20) == pytest.approx(clip_of(0.01, 2000, 20, classes(2)))


@pytest.mark.parametrize(("n_doubts", "each"), [(0, False), (3, False), (D + 1, True), (64, True)])
def test_doubts_are_the_variance_that_gradients_have_left_in_a_row_s_score(
    n_doubts, each, monkeypatch
):
    """Along the row's own features, or what public rows have of it on average."""
    monkeypatch.setattr(VectorLoss, "n_doubts", n_doubts)
    loss = VectorLoss(2, 0.5, 0.5)
    descent = Descent(ROWS.astype(np.float32), UNIT, [(D, 0.5)], loss, 1e3, 1.0, 0.01)
    for _ in range(5):
        descent.step(RNG.normal(0, 0.01, (D + 1, 2)))
    back = descent._from_directions
    rows = np.vstack([ROWS, 3 * ROWS[:3]]) / UNIT
    rows[:, -1] = 0.3
    variances = np.einsum("ij,jk,ik->i", rows, back @ np.diag(1 / descent._known) @ back.T, rows)
    found = np.square(rows @ descent.doubts).sum(axis=1)
    if each:
        np.testing.assert_allclose(found, variances, rtol=1e-9)
    assert found[:M].mean() == pytest.approx(variances[:M].mean(), rel=0.02)
    assert len(np.unique(found.round(12))) > 1 or n_doubts == 0
