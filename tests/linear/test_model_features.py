"""What a private model is linear in, and how products of features are shrunk."""

import numpy as np
import pytest

from vicinal.linear._descent import PLAIN, RATE, SHORT, TRIAL, Descent
from vicinal.linear._model_features import (
    BIAS,
    PRODUCTS,
    ModelFeatures,
    WeightNoise,
    scores_of,
    shrunk,
)
from vicinal.mechanisms import WEIGHT_STEPS

D = 4
FEATURES = ModelFeatures.planned(D)
X = np.random.default_rng(0).normal(size=(300, D))
ROWS = FEATURES.rows(X)


def test_rows_are_features_products_and_a_bias():
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    for row, u in zip(ROWS[:20] / FEATURES.unit, unit, strict=False):
        products = [
            PRODUCTS * (u[i] * u[j] * 2**0.5 if i != j else u[i] ** 2 - 1 / D)
            for i in range(D)
            for j in range(i, D)
        ]
        np.testing.assert_allclose(row, [*u, *products, BIAS], atol=1.5 / FEATURES.unit)


def test_a_row_does_not_depend_on_others_and_is_short_enough():
    for part in (slice(3, 4), slice(7, 250, 3)):
        assert (FEATURES.rows(X[part]) == ROWS[part]).all()
    widest = ModelFeatures.planned(24)
    assert widest.with_products
    rows = widest.rows(np.random.default_rng(1).normal(size=(50, 24)))
    for each in (rows, widest.rows(np.eye(24)), widest.rows(np.zeros((1, 24)))):
        assert np.linalg.norm(each.astype(np.float64), axis=1).max() < 8191
        assert (each == np.rint(each)).all()
        assert each.any(axis=1).all()


def test_many_features_have_no_products():
    assert ModelFeatures.planned(25).width == 26
    assert ModelFeatures.of_weights(D, np.zeros((D + 1, 2))).width == D + 1
    assert ModelFeatures.of_weights(D, np.zeros((FEATURES.width, 2))) == FEATURES


NOISE = WeightNoise(deviation=0.01, rates=(2.0,) * 10 + (8.0,) * 30, momentum=0.9, averaged=20)


def test_the_noise_of_weights_is_that_of_a_descent():
    """A thousand descents on a quadratic loss, with nothing but noise."""
    rng = np.random.default_rng(2)
    curvature = np.diag([0.0, 0.003, 0.05, 0.2])
    weights, velocity, total = (np.zeros((1000, 4)) for _ in range(3))
    for step, rate in enumerate(NOISE.rates):
        gradient = weights @ curvature + rng.normal(0, NOISE.deviation, weights.shape)
        velocity = NOISE.momentum * velocity + gradient
        weights = weights - rate * velocity
        total += weights * (step >= len(NOISE.rates) - NOISE.averaged)
    seen = (total / NOISE.averaged).var(axis=0)
    np.testing.assert_allclose(np.diag(NOISE.covariance(curvature)), seen, rtol=0.2)


@pytest.mark.parametrize(("signal", "least", "most"), [(0.0, 0.0, 0.5), (3.0, 0.9, 1.0)])
def test_products_count_as_far_as_they_stand_out(signal, least, most):
    rng = np.random.default_rng(3)
    chances = np.full((300, 2), 0.5)
    unit = ROWS / FEATURES.unit
    covariance = NOISE.covariance(unit.T @ (0.5 * unit) / 300)
    noise = rng.multivariate_normal(
        np.zeros(FEATURES.width), covariance, 2, method="eigh", check_valid="ignore"
    ).T
    weights = noise + signal * np.array([1.0, -1.0]) * rng.normal(size=(FEATURES.width, 1)) * (
        np.sqrt(np.trace(covariance))
    )
    less = shrunk(weights, FEATURES, ROWS, chances, NOISE)
    kept = np.ones(FEATURES.width, dtype=bool)
    kept[FEATURES.products] = False
    (factor,) = np.unique(np.round(less[~kept] / weights[~kept], 9))
    assert least <= factor <= most
    moved = unit @ (less - weights)
    removed = unit[:, ~kept] @ (weights[~kept] * (1 - factor))
    if factor < 1:
        part = np.square(moved).sum() / np.square(removed).sum()
        assert part < 1, "other features take over a part of what products have lost"


@pytest.mark.parametrize(("signal", "shortest"), [(0.0, True), (1.0, False)])
def test_steps_are_long_only_where_products_stand_out(signal, shortest):
    """Gradients of a quadratic loss around weights of products, with noise."""
    rng = np.random.default_rng(4)
    target = np.zeros((FEATURES.width, 2))
    target[FEATURES.products, 0] = signal * rng.normal(size=FEATURES.width - D - 1) * 8
    target[:, 1] = -target[:, 0]
    unit = ROWS / FEATURES.unit
    curvature = unit.T @ (0.5 * unit) / len(unit)
    descent = Descent(FEATURES, np.array([0.5, 0.5]), ROWS, 0.003)
    for _ in range(PLAIN.steps):
        noise = rng.normal(0, 0.003, target.shape)
        descent.step(curvature @ (descent.weights - target) + noise)
    rates = np.array(descent._rates) / RATE / np.sqrt(2 * (D + 1))
    np.testing.assert_allclose(rates[:TRIAL], SHORT)
    assert len(set(rates[TRIAL:])) == 1
    assert rates[-1] == SHORT if shortest else 0.6 < rates[-1] <= 1


def test_steps_of_a_model_without_products_are_alike():
    rows = ModelFeatures.planned(40).rows(np.random.default_rng(5).normal(size=(50, 40)))
    descent = Descent(ModelFeatures.planned(40), np.array([0.9, 0.1]), rows, 0.01)
    for _ in range(PLAIN.steps):
        descent.step(np.zeros((41, 2)))
    assert len(set(descent._rates)) == 1
    np.testing.assert_allclose(descent.finished()[:-1], 0)


@pytest.mark.parametrize("width", [3, 8, 401])
def test_scores_are_exact_sums_of_whole_numbers(width):
    rng = np.random.default_rng(width)
    rows = rng.integers(-8191, 8192, (5, width)).astype(np.float32)
    weights = rng.integers(-(2**30), 2**30, (width, 7)).astype(np.float64)
    expected = rows.astype(np.int64) @ weights.astype(np.int64)
    found = scores_of(rows, weights, 1.0) * WEIGHT_STEPS
    np.testing.assert_array_equal(found, expected.astype(np.float64))
