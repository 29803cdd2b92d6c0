"""A trend through released answers: against literal formulas, and as post-processing of sums."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from vicinal import IndKNNMultiLabelClassifier, IndKNNRegressor
from vicinal.errors import InvalidInput
from vicinal.targets import _answer_trend
from vicinal.targets._answer_trend import AnswerTrend, PublicSurroundings, refined

T, D, P = 200, 4, 300
SLOPE = np.array([[0.4, 0.0], [-0.2, 0.1], [0.0, 0.0], [0.1, 0.3]])


def around(seed=0, near=20):
    """Return the public points that are nearest to queries; all points are a bit to the right."""
    rng = np.random.default_rng(seed)
    queries, points = rng.normal(size=(T, D)), rng.normal(0.3, 1, (P, D))
    far = np.square(queries[:, None] - points).sum(axis=2)
    rows = np.argsort(far, axis=1)[:, :near].ravel()
    starts, weights = np.arange(T + 1) * near, rng.uniform(0.2, 1, T * near)
    return PublicSurroundings.of(queries, points, starts, rows, weights)


def literal_centres(where):
    table = where.shares.toarray()
    return np.array([
        sum(share * point for share, point in zip(row, where.points, strict=True)) for row in table
    ])  # fmt: skip


def test_averages_along_a_line_become_its_values_at_the_queries():
    """Fails if neighbours that lie beside the query are not corrected for."""
    where = around()
    values = 0.1 + literal_centres(where) @ SLOPE
    got, errors = refined(where, values, np.full((T, 2), 1e-4))
    np.testing.assert_allclose(got, 0.1 + where.queries @ SLOPE, atol=0.01)
    assert (errors < 0.01).all()


def test_centres_and_distances_are_those_of_the_points_one_by_one():
    where = around(near=3)
    np.testing.assert_allclose(where.centres, literal_centres(where))
    away, doubt = where.distances(SLOPE)
    marks, table = where.points @ SLOPE, where.shares.toarray()
    for j in range(2):
        raw = np.array([row @ marks[:, j] for row in table]) - where.queries @ SLOPE[:, j]
        spread = np.array([
            row @ np.square(marks[:, j] - row @ marks[:, j]) * np.square(row).sum() for row in table
        ])  # fmt: skip
        true = (np.square(raw) - spread).mean()
        np.testing.assert_allclose(away[:, j], raw * true / (true + spread))
        np.testing.assert_allclose(doubt[:, j], spread * true / (true + spread))


def test_a_query_without_public_points_stays_where_it_is():
    queries = np.arange(6.0).reshape(3, 2)
    nobody = csr_array((3, 5))
    where = PublicSurroundings(queries, np.ones((5, 2)), nobody)
    np.testing.assert_array_equal(where.centres, queries)
    np.testing.assert_array_equal(where.distances(np.ones((2, 1)))[0], 0)
    weightless = PublicSurroundings.of(
        queries, np.ones((5, 2)), np.array([0, 1, 1, 1]), np.array([4]), np.zeros(1)
    )
    np.testing.assert_array_equal(weightless.centres, queries)


def test_slopes_are_those_of_the_ridge_regression_that_cross_validates_best():
    """Fails if weights, penalty or intercept are not those of the textbook's formulas."""
    rng = np.random.default_rng(1)
    centres = rng.normal(size=(40, D))
    values = centres @ SLOPE[:, :1] + rng.normal(size=(40, 1))
    weights = 1 / rng.uniform(0.5, 2.0, 40)
    trend, residuals, freedom = AnswerTrend._round(centres, values, 1 / weights, np.ones(1))
    root = np.sqrt(np.diag(weights))
    centred = centres - weights @ centres / weights.sum()
    aside = values - weights @ values / weights.sum()
    best = (np.inf, None, None)
    for penalty in _answer_trend._PENALTIES[:-1]:
        ridge = penalty * np.linalg.norm(root @ centred, 2) ** 2 * np.eye(D)
        hat = np.linalg.solve(centred.T @ root @ root @ centred + ridge, centred.T @ root @ root)
        count = 1 + np.trace(hat @ centred)
        lost = (root @ (aside - centred @ hat @ aside)) ** 2
        best = min(best, (lost.sum() / (1 - 1.4 * count / 40) ** 2, count, hat), key=lambda b: b[0])
    np.testing.assert_allclose(trend.slope, best[2] @ aside, rtol=1e-6)
    np.testing.assert_allclose(freedom, best[1])
    np.testing.assert_allclose(residuals, aside - centred @ trend.slope, atol=1e-12)


@pytest.mark.parametrize("noise", [0.05, 0.3, 2.0])
@pytest.mark.parametrize("slope", [0.0, 1.0], ids=["no relation", "a relation"])
def test_answers_are_nearer_to_what_is_true_and_say_by_how_much(noise, slope):
    """Fails if noise is not taken out by as much as is known of it, or errors say another size."""
    where, rng = around(3), np.random.default_rng(4)
    beyond = rng.normal(size=(T, 2)) * 0.3
    truth = slope * where.queries @ SLOPE + beyond
    variances = noise**2 * rng.uniform(0.5, 1.5, (T, 2))
    values = slope * where.centres @ SLOPE + beyond + rng.normal(size=(T, 2)) * np.sqrt(variances)
    got, errors = refined(where, values, np.sqrt(variances))
    off = np.square(got - truth).mean()
    assert off < 1.02 * np.square(values - truth).mean()
    assert off < 1.3 * 0.09 * noise**2 / (0.09 + noise**2) + 0.02 + 0.04 * noise**2
    assert 0.2 < off / np.square(errors).mean() < 1.7


# ---------------------------------------------------------------- in estimators


def fitted(kind, **more):
    rng = np.random.default_rng(5)
    X, public, queries = (rng.normal(size=(size, 3)) for size in (3000, 400, 60))
    shared = {"n_queries": 60, "simulation_seed": 2, "n_records": 3000, "kernel": "rbf", **more}
    if kind == "number":
        model = IndKNNRegressor((-4, 4), 1.0, n_thresholds=16, **shared)
        return model.fit(X, X[:, 0], public=public), queries
    model = IndKNNMultiLabelClassifier(["left", "up"], 1.0, **shared)
    return model.fit(X, X[:, :2] > 0, public=public), queries


def test_a_trend_is_made_of_what_was_released_and_costs_nothing():
    """Fails if an answer by the trend reads anything but noisy sums, or anybody pays for it."""
    plain, queries = fitted("number")
    sums = plain.query(queries)
    model, _ = fitted("number")
    means, errors, shares = model.predict(queries, return_std=True, quantiles=[0.5], trend=True)
    where = model._surroundings(queries)
    raw = plain._settings.target.answers(sums.votes, sums.noise)
    same = raw.along_trend(where)
    np.testing.assert_array_equal(means, same.means[:, 0])
    np.testing.assert_array_equal(errors, same.errors[:, 0])
    np.testing.assert_array_equal(shares, raw.quantiles([0.5])[:, 0])
    np.testing.assert_array_equal(model._shard.ledger.remaining, plain._shard.ledger.remaining)
    off = np.abs(means - queries[:, 0]).mean(), np.abs(raw.means[:, 0] - queries[:, 0]).mean()
    assert off[0] < 0.7 * off[1]


def test_labels_by_a_trend_are_right_more_often():
    plain, queries = fitted("labels")
    model, _ = fitted("labels")
    true = queries[:, :2] > 0
    by_trend = model.predict(queries, trend=True)
    assert (by_trend == true).mean() > (plain.predict(queries) == true).mean()
    again, _ = fitted("labels")
    sums = again.query(queries)
    same = again._settings.target.answers(sums.votes, sums.noise).along_trend(
        again._surroundings(queries)
    )
    np.testing.assert_array_equal(by_trend, same.present)
    assert ((same.shares >= 0) & (same.shares <= 1)).all()


@pytest.mark.parametrize("kind", ["number", "labels"])
def test_what_no_trend_can_be_fitted_to_is_refused_before_anything_is_paid(kind):
    model, queries = fitted(kind)
    with pytest.raises(InvalidInput, match="at least 30 queries"):
        model.predict(queries[:29], trend=True)
    with pytest.raises(InvalidInput, match="'trend' parameter must be True or False"):
        model.predict(queries, trend="linear")
    counted, _ = fitted(kind, neighbor_count="private")
    with pytest.raises(InvalidInput, match="public reference"):
        counted.predict(queries, trend=True)
    assert model.n_answers_ == counted.n_answers_ == 0
