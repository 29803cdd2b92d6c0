"""The damped descent: what it comes to on a quadratic loss, and under noise alone."""

import numpy as np
import pytest

from vicinal.linear._descent import SPREAD, STEPS, Descent, step_noise

M, D = 400, 5
RNG = np.random.default_rng(0)
UNIT = 1000.0
ROWS = np.rint(UNIT * np.hstack([RNG.normal(size=(M, D)) * 0.3, np.full((M, 1), 0.3)]))
EVEN = np.array([0.5, 0.5])


def descended(gradient_at, shares=EVEN, n_records=1e9, noise=1e-12):
    descent = Descent(ROWS.astype(np.float32), UNIT, shares, n_records, noise)
    for _ in range(STEPS):
        descent.step(gradient_at(descent.weights))
    return descent


def curvature():
    rows = ROWS / UNIT
    return rows.T @ rows / M / 4


def test_without_noise_it_arrives():
    target = RNG.normal(size=(D + 1, 2))
    found = descended(lambda weights: curvature() @ (weights - target)).finished()
    scores = (ROWS / UNIT) @ found
    np.testing.assert_allclose(scores, (ROWS / UNIT) @ target, atol=0.02)


def test_under_noise_it_is_ridge_regression_with_what_noise_is_worth():
    """An independent solution of the fixed point, in the weights' own coordinates."""
    target, noise, n = RNG.normal(size=(D + 1, 2)), 0.02, 1000
    descent = descended(lambda weights: curvature() @ (weights - target), EVEN, n, noise)
    rows = ROWS / UNIT
    spread = np.full(D + 1, SPREAD / np.sqrt(np.square(rows[:, :-1]).sum(axis=1).mean()))
    spread[-1] = 20.0
    moment = (rows * spread).T @ (rows * spread)
    moment += np.eye(D + 1) * np.diag(moment)[:-1].mean() / M
    lengths, directions = np.linalg.eigh(moment / (M + 1))
    back = spread[:, None] * directions
    loud = np.square(back).sum(axis=0) * noise**2 * 2 / STEPS
    ridge = 1 / n + loud / (descent._curvature() * lengths)
    bent = back.T @ curvature() @ back
    along = np.linalg.solve(bent + np.diag(ridge), back.T @ curvature() @ target)
    np.testing.assert_allclose(descent.finished(), back @ along, atol=0.05)


@pytest.mark.parametrize("noise", [1.0, 100.0])
def test_where_there_is_nothing_but_noise_nothing_moves(noise):
    rng = np.random.default_rng(1)
    shares = np.array([0.9, 0.1])
    found = descended(lambda weights: rng.normal(0, noise, weights.shape), shares, 100, noise)
    scores = (ROWS / UNIT) @ found.finished()  # the bias is nearly free, and moves
    assert (scores - scores.mean(axis=0)).std() < 0.25 * SPREAD


def test_weights_stay_where_gradients_vanish():
    shares = np.array([0.7, 0.2, 0.1])
    descent = Descent(ROWS.astype(np.float32), UNIT, shares, 100, 0.1)
    first = descent.weights.copy()
    for _ in range(STEPS):
        descent.step(np.zeros_like(first))
    np.testing.assert_allclose(descent.finished(), first, atol=1e-9)


def test_noise_of_all_steps_together_fits_the_share():
    assert STEPS / (2 * step_noise(0.3) ** 2) == pytest.approx(0.3)
