"""NoisySGD: clipping against independent gradients, exact sums, the plan, and refusals."""

import pickle
from collections import Counter

import numpy as np
import pytest

from made_up import corners
from vicinal.accounting import account
from vicinal.baselines.noisy_sgd import NoisySGDClassifier
from vicinal.errors import PrivacyRefused
from vicinal.mechanisms import create_noise_source
from vicinal.mechanisms.gradients import NoisyGradient, NoisySize, SubjectRows
from vicinal.mechanisms.noise_sources import BernoulliSource, SystemBernoulli
from vicinal.mechanisms.planned_releases import ReleaseCounter
from vicinal.noise import NoiseSource

UNIT, CLASSES = 1000.0, 4


def records(n=30, d=6, seed=0, per_subject=1):
    """Return integer rows, labels and subject slots, `per_subject` records for each subject."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(-400, 400, size=(n, d)).astype(np.float32)
    labels = rng.integers(0, CLASSES, n).astype(np.int32)
    slots = np.arange(n) // per_subject if per_subject > 1 else np.arange(n)
    return rows, labels, slots.astype(np.int32)


def gradient_of(rows, labels, slots, clip=0.5, sigma=1.0, steps=10, source=None, gamma=0.5):
    subject_rows = SubjectRows(rows, labels, slots, int(slots.max()) + 1)
    return NoisyGradient(
        subject_rows, CLASSES, UNIT, gamma, clip, sigma, ReleaseCounter(steps, "steps"),
        create_noise_source(),
        source or SystemBernoulli(),
    )  # fmt: skip


def weights_on_grid(d, seed=1, size=3.0):
    rng = np.random.default_rng(seed)
    return np.rint(rng.normal(size=(d, CLASSES)) * size * 2**18) / 2**18


def loss(weights, rows, labels):
    """Return the summed cross-entropy of records, from its definition."""
    scores = rows.astype(np.float64) / UNIT @ weights
    return float((np.log(np.exp(scores).sum(axis=1)) - scores[range(len(rows)), labels]).sum())


def by_differences(weights, rows, labels, h=1e-5):
    gradient = np.zeros_like(weights)
    for index in np.ndindex(weights.shape):
        up, down = weights.copy(), weights.copy()
        up[index] += h
        down[index] -= h
        gradient[index] = (loss(up, rows, labels) - loss(down, rows, labels)) / (2 * h)
    return gradient


def compute_contribution(gradient, subject, weights):
    """Return the contribution of a single subject, in clipping bounds and in integer grid steps."""
    batch = np.zeros(len(gradient.records), dtype=bool)
    batch[subject] = True
    whole = gradient.clip_and_sum(weights, batch)
    return whole / gradient.steps, whole


@pytest.mark.parametrize("per_subject", [1, 3])
@pytest.mark.parametrize("clip", [0.02, 0.3, 50.0])
def test_contributions_are_the_clipped_gradients(per_subject, clip):
    rows, labels, slots = records(per_subject=per_subject)
    gradient = gradient_of(rows, labels, slots, clip)
    weights = weights_on_grid(6)
    clipped = 0
    for subject in range(0, slots.max() + 1, 3):
        mine = slots == subject
        true = by_differences(weights, rows[mine], labels[mine])
        norm = np.linalg.norm(true)
        clipped += norm > clip
        expected = true / clip * min(1.0, clip / norm)
        np.testing.assert_allclose(
            compute_contribution(gradient, subject, weights)[0], expected, atol=2e-6
        )
    assert (clipped > 0) == (clip < 1)


@pytest.mark.parametrize("per_subject", [1, 2, 7])
@pytest.mark.parametrize("clip", [1e-6, 1e-3, 0.4])
def test_no_contribution_is_longer_than_the_bound(per_subject, clip):
    """Fails if rounding lets a norm, in exact arithmetic, pass the bound, or clipping is idle."""
    rows, labels, slots = records(per_subject=per_subject, n=70)
    gradient = gradient_of(rows, labels, slots, clip, sigma=0.7)
    longest = 0
    for subject in range(slots.max() + 1):
        for seed in range(3):
            _, whole = compute_contribution(gradient, subject, weights_on_grid(6, seed, size=10.0))
            longest = max(longest, sum(int(g) ** 2 for g in whole.ravel()))
    assert 0.99 * gradient.steps**2 < longest <= gradient.steps**2


def test_a_bound_on_records_rather_than_subjects_is_caught():
    """Fails if the check above would let every record of a subject count in full."""
    rows, labels, slots = records(per_subject=7, n=70)
    gradient = gradient_of(rows, labels, np.arange(70, dtype=np.int32), 1e-3)
    weights = weights_on_grid(6)
    whole = sum(
        compute_contribution(gradient, subject, weights)[1]
        for subject in np.flatnonzero(slots == 0)
    )
    assert sum(int(g) ** 2 for g in whole.ravel()) > gradient.steps**2


@pytest.mark.parametrize("per_subject", [1, 3])
def test_nobody_changes_what_others_contribute(per_subject, monkeypatch):
    """Fails if a sum differs in a single grid step from the sum of the separate contributions."""
    rows, labels, slots = records(n=300, d=20, per_subject=per_subject)
    gradient = gradient_of(rows, labels, slots, sigma=0.5)
    weights = weights_on_grid(20)
    batch = np.random.default_rng(0).random(slots.max() + 1) < 0.6
    alone = sum(
        compute_contribution(gradient, subject, weights)[1] for subject in np.flatnonzero(batch)
    )
    np.testing.assert_array_equal(gradient.clip_and_sum(weights, batch), alone)
    monkeypatch.setattr("vicinal.mechanisms.gradients._MAX_EXACT_FLOAT", 7 * gradient.steps)
    np.testing.assert_array_equal(gradient.clip_and_sum(weights, batch), alone)


def test_whole_numbers_stay_exact_at_the_largest():
    """Fails if scores or sums of the longest rows and weights are rounded."""
    rows = np.full((4096, 16), 1023, dtype=np.float32)
    labels = (np.arange(4096) % CLASSES).astype(np.int32)
    gradient = gradient_of(rows, labels, np.arange(4096, dtype=np.int32), 1e-6, sigma=0.01)
    weights = np.zeros((16, CLASSES))
    batch = np.ones(4096, dtype=bool)
    classes = [
        compute_contribution(gradient, subject, weights)[1].astype(object)
        for subject in range(CLASSES)
    ]
    np.testing.assert_array_equal(gradient.clip_and_sum(weights, batch), 1024 * sum(classes))


def test_extreme_weights_and_rows():
    """Fails if scores overflow, or a row of zeros produces a NaN."""
    rows, labels, slots = records()
    rows[0] = 0
    rows[0, -1] = 1
    gradient = gradient_of(rows, labels, slots)
    for weights in (np.full((6, CLASSES), 1e300), weights_on_grid(6) * 1e4, np.zeros((6, CLASSES))):
        assert np.isfinite(gradient.publish(weights)).all()


class Counted(BernoulliSource):
    """A source of Bernoulli samples that records all batches."""

    exact = True

    def __init__(self):
        self.batches = []

    def bernoulli(self, probability, size):
        self.batches.append(SystemBernoulli().bernoulli(probability, size))
        return self.batches[-1]


def test_every_step_has_noise_and_a_batch_of_its_own():
    """Fails if a batch is repeated, samples records instead of subjects, or lacks noise."""
    rows, labels, slots = records(n=900, per_subject=3)
    coins = Counted()
    gradient = gradient_of(rows, labels, slots, sigma=3.0, source=coins, gamma=0.3)
    weights = weights_on_grid(6)
    noise = []
    for _ in range(10):
        noisy = gradient.publish(weights)
        noise.append(noisy - gradient.clip_and_sum(weights, coins.batches[-1]) / gradient.steps)
    assert {len(batch) for batch in coins.batches} == {300}
    assert np.unique(coins.batches, axis=0).shape[0] == 10
    assert np.mean(coins.batches) == pytest.approx(0.3, abs=0.06)
    assert np.std(noise) == pytest.approx(3.0, rel=0.25)
    with pytest.raises(PrivacyRefused, match="10 steps"):
        gradient.publish(weights)


def test_the_size_is_released_once():
    size = NoisySize(5.0, create_noise_source())
    assert size.publish(1000) == pytest.approx(1000, abs=60)
    with pytest.raises(PrivacyRefused, match="sizes"):
        size.publish(1000)


def classifier(**overrides):
    defaults = {"epsilon": 2.0, "n_steps": 60, "simulation_seed": 0}
    return NoisySGDClassifier(range(3), **{**defaults, **overrides})


def test_it_learns_and_predicts_for_nothing():
    X, y = corners(0, 3000)
    Q, truth = corners(1, 500)
    fitted = classifier().fit(X, y)
    for _ in range(3):
        assert (fitted.predict(Q) == truth).mean() > 0.9
    assert fitted.coef_.shape == (3, 8)
    assert fitted.n_records_ == pytest.approx(3000, abs=300)
    probabilities = fitted.predict_proba(Q)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    np.testing.assert_array_equal(probabilities.argmax(axis=1), fitted.predict(Q))
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(Q), fitted.predict(Q))
    named = NoisySGDClassifier(["a", "b", "c"], 2.0, n_steps=60, n_records=3000)
    letters = np.array(["a", "b", "c"])
    assert (named.fit(X, letters[y]).predict(Q) == letters[truth]).mean() > 0.85


def test_a_trained_classifier_holds_no_record():
    X, y = corners(0, 3000)
    fitted = classifier().fit(X, y)
    sizes = [np.size(value) for name, value in vars(fitted).items() if name != "classes"]
    assert max(sizes) == 3 * 8


def test_public_rows_standardise():
    """Fails if features far from zero cannot be learnt despite public rows."""
    X, y = corners(0, 3000)
    Q, truth = corners(1, 500)
    shift, stretch = 100.0, np.geomspace(1, 1e3, 8)
    public = corners(2, 400)[0] * stretch + shift
    fitted = classifier().fit(X * stretch + shift, y, public=public)
    assert (fitted.predict(Q * stretch + shift) == truth).mean() > 0.9
    plain = classifier().fit(X * stretch + shift, y)
    assert (plain.predict(Q * stretch + shift) == truth).mean() < 0.7
    constant = np.concatenate([public[:, :7], np.ones((400, 1))], axis=1)
    assert np.isfinite(classifier().fit(X, y, public=constant).coef_).all()


@pytest.mark.parametrize("more", [{}, {"n_records": 3000}, {"sampling_rate": 1.0, "n_steps": 20}])
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_the_guarantee_is_what_vicinal_account_says(more, epsilon):
    estimator = NoisySGDClassifier(range(10), epsilon, n_steps=more.pop("n_steps", 100), **more)
    stated = estimator.guarantee()
    assert 0.99 * epsilon < stated.epsilon <= epsilon
    assert stated.delta == 1e-5
    by_hand = [
        {"kind": "gaussian", "sigma": estimator.plan()["releases"][0]["sigma"],
         "gamma": estimator.sampling_rate, "count": estimator.n_steps},
    ]  # fmt: skip
    if estimator.n_records is None:
        by_hand.append({"kind": "gaussian", "sigma": 50 / epsilon, "count": 1})
    assert stated.epsilon == account({"delta": 1e-5, "releases": by_hand})["epsilon"]
    assert estimator.guarantee(1e-7).epsilon > stated.epsilon


@pytest.mark.parametrize("width", [8, 64, 450])
@pytest.mark.parametrize("features", ["scaled rows", "columns", "kernel"])
def test_every_noise_sample_has_its_share_of_delta(width, features, monkeypatch):
    """Fails if the guarantee counts other samples than those of the training's own features."""
    samples = Counter()
    add_to = NoiseSource.add_to

    def count(self, sums, scale):
        samples[scale] += sums.size
        return add_to(self, sums, scale)

    monkeypatch.setattr(NoiseSource, "add_to", count)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(250, width))
    # Rows of signs and their opposites stay equally long when they are standardized.
    rows = np.sign(rows) if features == "kernel" else rows
    public = None if features == "scaled rows" else np.concatenate([rows, -rows])
    estimator = NoisySGDClassifier(range(3), n_steps=5)
    assert "at most 1,000 features" in str(estimator.guarantee())
    estimator.fit(rng.normal(size=(90, width)), rng.integers(0, 3, 90), public=public)
    assert estimator._count_noise_samples() == samples
    assert "at most 1,000 features" not in str(estimator.guarantee())
    if features == "kernel" and width == 64:
        assert sum(samples.values()) == 1 + 5 * 3 * (estimator.coef_.shape[1] + 1)
        assert estimator.coef_.shape[1] > width


def test_noise_in_use_is_the_noise_that_is_priced():
    fitted = NoisySGDClassifier(range(3), n_steps=5, n_records=200).fit(*corners(0, 200))
    assert fitted.noise_multiplier_ == fitted.plan()["releases"][0]["sigma"]
