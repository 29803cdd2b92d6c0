"""Intercepts of class scores, fitted to the released gradients of a private training."""

import weakref
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import check_grad, minimize

from vicinal import IndKNNClassifier
from vicinal.errors import InvalidInput
from vicinal.linear import class_intercepts, private_model
from vicinal.linear.class_intercepts import (
    ReleasedGradients,
    choose_row_stride,
    fit_intercepts,
    list_posteriors,
)
from vicinal.linear.losses import ClassLoss
from vicinal.linear.model_features import compute_residual_squares, softmax

pytestmark = pytest.mark.quick

N_ROWS, N_STEPS, N_CLASSES = 80, 12, 3
CLASSES = ("healthy", "ill")
PLAN = {"epsilon": 1.0, "n_queries": 100, "n_records": 2000, "simulation_seed": 4}


def create_table(seed, n_rows):
    """Return features (n, 4), and labels of which about an eighth are "ill"."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 4))
    is_ill = rng.random(n_rows) < 1 / (1 + np.exp(2.2 - X[:, 0]))
    return X, np.where(is_ill, "ill", "healthy")


RECORDS, LABELS = create_table(0, 2000)
PUBLIC, _ = create_table(1, 300)
QUERIES, QUERY_LABELS = create_table(2, 2000)


def fit_classifier(labels=LABELS, **parameters):
    classifier = IndKNNClassifier(CLASSES, **{**PLAN, **parameters})
    return classifier.fit(RECORDS, labels, public=PUBLIC)


@pytest.fixture(scope="module")
def classifier():
    return fit_classifier()


INTERCEPTS = np.array([1.0, -0.2, -0.8])


def create_gradients(n_records=1.0):
    """Return noiseless gradients, given the scores plus INTERCEPTS, of subjects of equal records.

    A subject's gradient is `n_records` times as long as that of one of its records.
    """
    rng = np.random.default_rng(5)
    scores = rng.normal(size=(N_ROWS, N_CLASSES))
    step_scores = scores * np.linspace(0, 1, N_STEPS)[:, None, None]
    norms = rng.uniform(2.0, 4.0, N_ROWS)
    p = softmax(step_scores)
    lengths = np.sqrt(compute_residual_squares(p)) * norms[:, None] * n_records
    weighted = softmax(scores + INTERCEPTS) / np.maximum(lengths, 1.0)
    gradients = (p * weighted.sum(axis=-1, keepdims=True) - weighted).mean(axis=1)
    return ReleasedGradients(gradients, 1e-6, step_scores, scores, norms, n_records)


@pytest.mark.parametrize(("n_records", "scale"), [(1.0, 1.0), (3.0, 1.0), (1.0, 0.25), (1.0, 4.0)])
def test_intercepts_that_clipping_removed_are_found(n_records, scale):
    """Whatever the scale: the declared number of records, which divides the sums, may be wrong."""
    released = create_gradients(n_records)
    scaled = replace(released, intercept_gradients=scale * released.intercept_gradients)
    np.testing.assert_allclose(fit_intercepts(scaled), INTERCEPTS, atol=0.01)


def test_intercepts_are_zero_where_noise_is_all_there_is():
    released = replace(create_gradients(), noise_std=1e3)
    np.testing.assert_allclose(fit_intercepts(released), 0, atol=1e-3)


@pytest.mark.parametrize("n_records", [1.0, 2.5])
def test_the_posterior_agrees_with_loops_over_rows_and_classes(n_records):
    """Gradients, noise and prior have similar weights: the minimum depends on all three."""
    rng = np.random.default_rng(3)
    steps, rows, classes, noise = 3, 4, 3, 0.15
    scores = rng.normal(size=(rows, classes))
    step_scores = rng.normal(size=(steps, rows, classes))
    norms = rng.uniform(0.5, 3.0, rows)
    gradients = rng.normal(0, 0.3, (steps, classes))
    released = ReleasedGradients(gradients, noise, step_scores, scores, norms, n_records)

    def compute_cost(parameters, correlation):
        cost = float(np.square(parameters).sum()) / 2
        for step in range(steps):
            expected = np.zeros(classes)
            for row in range(rows):
                p = softmax(step_scores[step, row])
                q = softmax(scores[row] + parameters[:-1])
                residuals = p - np.eye(classes)
                squares = np.square(residuals).sum(axis=1)
                same, other = squares * n_records**2, squares + (n_records - 1) * (p @ squares)
                lengths = np.sqrt(correlation * same + (1 - correlation) * other) * norms[row]
                factors = q / np.maximum(lengths, 1)
                expected += np.exp(parameters[-1]) * factors @ residuals / rows
            cost += float(np.square((expected - gradients[step]) / noise).sum()) / 2
        return cost

    correlations = (0.0, 0.25, 0.5, 1.0) if n_records > 1 else (0.0,)
    start = np.zeros(classes + 1)
    fits = [minimize(compute_cost, start, (c,), options={"gtol": 1e-7}) for c in correlations]
    posteriors = list_posteriors(released)
    for parameters in rng.normal(size=(3, classes + 1)):
        for posterior, correlation in zip(posteriors, correlations, strict=True):
            cost = compute_cost(parameters, correlation)
            assert posterior.compute_cost(parameters)[0] == pytest.approx(cost, rel=1e-9)
            error = check_grad(
                lambda x, f=posterior: f.compute_cost(x)[0],
                lambda x, f=posterior: f.compute_cost(x)[1],
                parameters,
            )
            assert error < 1e-3
    best = min(fits, key=lambda fit: fit.fun)
    np.testing.assert_allclose(fit_intercepts(released), best.x[:-1], atol=2e-3)


def test_declared_shares_are_applied_once():
    """Shares that agree with the records add nothing; other shares add the log ratio."""
    released = create_gradients()
    fitted = fit_intercepts(released)
    base_rates = softmax(released.scores + fitted).mean(axis=0)
    agreeing = ClassLoss(base_rates, fits_intercepts=True).compute_intercepts(released)
    np.testing.assert_allclose(agreeing, fitted, atol=1e-9)
    shares = np.array([0.1, 0.3, 0.6])
    shifted = ClassLoss(shares, fits_intercepts=True).compute_intercepts(released)
    np.testing.assert_allclose(shifted - fitted, np.log(shares / base_rates), atol=1e-9)
    equal = ClassLoss(np.ones(3) / 3, fits_intercepts=True).compute_intercepts(released)
    np.testing.assert_array_equal(equal, fitted)


def test_many_rows_and_classes_are_thinned(classifier, monkeypatch):
    assert choose_row_stride(500, 2, 40) == 1
    monkeypatch.setattr(class_intercepts, "_MAX_ELEMENTS", 300 * 2 * 40 // 3)
    assert choose_row_stride(300, 2, 40) == 3
    thinned, mean = (
        each.model_probabilities(QUERIES)[:, 1].mean() for each in (fit_classifier(), classifier)
    )
    assert thinned == pytest.approx(mean, abs=0.02)


def test_training_keeps_the_scores_of_sampled_rows_only(monkeypatch):
    """Of 40 steps with all public rows, the scores would be many times the promised memory."""
    references = []
    n_kept = []
    compute_scores = private_model.compute_scores
    compute_intercepts = ClassLoss.compute_intercepts

    def record_scores(*arguments):
        scores = compute_scores(*arguments)
        references.append(weakref.ref(scores))
        return scores

    def record_kept(loss, released):
        n_kept.append(sum(reference() is not None for reference in references))
        return compute_intercepts(loss, released)

    monkeypatch.setattr(private_model, "compute_scores", record_scores)
    monkeypatch.setattr(ClassLoss, "compute_intercepts", record_kept)
    fit_classifier()
    assert len(references) > 40
    assert n_kept[0] <= 2, "views keep the scores of every step"


@pytest.mark.parametrize("n_records", [500, 4000])
def test_a_wrong_number_of_records_leaves_base_rates_as_they_are(n_records):
    """A store whose records were added after planning keeps its first number of records."""
    classifier = fit_classifier(n_records=n_records, epsilon=4.0)
    mean = classifier.model_probabilities(QUERIES)[:, 1].mean()
    assert mean == pytest.approx((LABELS == "ill").mean(), abs=0.02)


@pytest.mark.parametrize(("seed", "share"), [(4, None), (5, None), (4, 0.125)])
def test_the_mean_probability_of_a_rare_class_is_its_base_rate(seed, share):
    """Without intercepts it is .09 instead of .125: clipping shortens gradients of the ill."""
    prior = None if share is None else (1 - share, share)
    classifier = fit_classifier(simulation_seed=seed, class_prior=prior)
    base_rate = pytest.approx((LABELS == "ill").mean(), abs=0.015)
    assert classifier.model_probabilities(QUERIES)[:, 1].mean() == base_rate
    probabilities = classifier.predict_proba(QUERIES)
    assert probabilities[:, 1].mean() == base_rate
    losses = -np.log(probabilities[np.arange(2000), (QUERY_LABELS == "ill").astype(int)])
    constant = (QUERY_LABELS == "ill").mean()
    assert losses.mean() < -constant * np.log(constant) - (1 - constant) * np.log(1 - constant)


def test_intercepts_are_a_function_of_released_gradients(monkeypatch):
    """Other records, with the gradients that the first ones released, give the same intercepts."""
    released = []
    charge_and_publish = private_model.LocalGradients.charge_and_publish

    def record(self, release, weights):
        released.append(charge_and_publish(self, release, weights))
        return released[-1]

    monkeypatch.setattr(private_model.LocalGradients, "charge_and_publish", record)
    first = fit_classifier()._model.to_arrays()
    replayed = iter(released)
    monkeypatch.setattr(
        private_model.LocalGradients, "charge_and_publish", lambda *_: next(replayed)
    )
    second = fit_classifier(LABELS[::-1])._model.to_arrays()
    np.testing.assert_array_equal(second["intercepts"], first["intercepts"])


def test_plans_of_labels_alone_have_no_intercepts():
    assert "intercepts" not in fit_classifier(release="label")._model.to_arrays()


def test_intercepts_are_stored_and_damaged_ones_are_refused(classifier):
    model = classifier._model
    arrays, lifted = model.to_arrays(), classifier._encoder.lifts
    points = np.asarray(classifier._encoder.encode(PUBLIC), dtype=np.float32)

    def restore(**changes):
        stored = {**arrays, **changes}
        return private_model.PrivateModel.from_arrays(stored, points, model.loss, lifted=lifted)

    np.testing.assert_array_equal(restore().predict(points), model.predict(points))
    for damaged in (np.ones(3), np.array([0.0, np.nan]), np.ones(2, dtype=np.complex128)):
        with pytest.raises(InvalidInput, match="stored private model"):
            restore(intercepts=damaged)
    del arrays["intercepts"]
    with pytest.raises(InvalidInput, match="stored private model"):
        restore()
