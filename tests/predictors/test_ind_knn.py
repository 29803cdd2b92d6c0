"""Edge cases of Ind-KNN: invalid inputs, empty data, spent budgets and unusual queries."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from store_tools import CLASSES, D, R, X, Y, broken_off, points
from vicinal import IndKNNClassifier
from vicinal.accounting.budget import UNITS
from vicinal.errors import InvalidInput, PrivacyRefused, PrivacyWarning

Q, YQ = points(40, seed=2)


def make(**parameters):
    return IndKNNClassifier(
        range(CLASSES), **{"n_queries": 40, "epsilon": 4.0, "model_share": 0, **parameters}
    )


def fitted(**parameters):
    return make(**parameters).fit(X, Y, public=R)


BAD_FIT = {
    "NaN feature": (np.where(np.eye(300, D) > 0, np.nan, X), Y, None, R, "NaN"),
    "infinite feature": (np.where(np.eye(300, D) > 0, np.inf, X), Y, None, R, "infinity"),
    "text features": (np.full((300, D), "a"), Y, None, R, "float"),
    "one dimension": (X[:, 0], Y, None, R, "2D"),
    "no records": (X[:0], Y[:0], None, R, "0 sample"),
    "unseen class": (X, Y + 1, None, R, "'y'"),
    "labels too short": (X, Y[:-1], None, R, "'y'"),
    "labels in a matrix": (X, np.stack([Y, Y]), None, R, "'y'"),
    "labels between classes": (X, Y + 0.5, None, R, "'y'"),
    "an endless number": ([[10**400] * D] * 300, Y, None, R, "too large"),
    "labels as text": (X, np.char.add("class ", Y.astype(str)), None, R, "'y'"),
    "too few subjects": (X, Y, np.arange(5), R, "'subjects'"),
    "subjects as floats": (X, Y, np.full(300, 0.5), R, "'subjects'"),
    "one subject as text": (X, Y, "me", R, "'subjects'"),
    "no reference": (X, Y, None, None, "'public'"),
    "wrong reference width": (X, Y, None, R[:, :2], "'public'"),
    "empty reference": (X, Y, None, R[:0], "'public'"),
    "NaN in the reference": (X, Y, None, R * np.nan, "'public'"),
    "reference of text": (X, Y, None, R.astype(str), "'public'"),
    "private rows in the reference": (X, Y, None, X[17:40], "part of the private"),
}


@pytest.mark.parametrize("case", BAD_FIT)
def test_bad_data_is_refused_and_the_state_stays(case):
    features, labels, subjects, public, match = BAD_FIT[case]
    classifier = fitted()
    before = classifier._engine
    with pytest.raises(ValueError, match=match):
        classifier.fit(features, labels, subjects, public)
    assert classifier._engine is before
    assert classifier.n_features_in_ == D
    assert classifier.predict(Q[:1]).shape == (1,)


@pytest.mark.parametrize(
    "query",
    [Q * np.nan, Q[:, :2], Q[0], np.full(Q.shape, "a"), Q[:0]],
    ids=["NaN", "narrow", "one dimension", "text", "empty"],
)
def test_a_bad_query_costs_nothing(query):
    classifier = fitted()
    before = classifier._engine.shard.ledger.remaining.copy()
    with pytest.raises(ValueError, match=r"NaN|features|1D|float|0 sample"):
        classifier.predict(query)
    np.testing.assert_array_equal(before, classifier._engine.shard.ledger.remaining)
    assert classifier.n_answers_ == 0


@pytest.mark.parametrize(
    ("features", "labels", "subjects"),
    [(X[:3] * np.nan, Y[:3], None), (X[:3], [9, 9, 9], None), (X[:3], Y[:3], [1])],
    ids=["NaN", "unseen class", "too few subjects"],
)
def test_a_bad_addition_changes_nothing(features, labels, subjects):
    classifier = fitted()
    before = len(classifier._engine.shard)
    with pytest.raises(ValueError, match=r"NaN|'y'|'subjects'"):
        classifier.add(features, labels, subjects)
    assert len(classifier._engine.shard) == before


def test_rows_that_coincide_with_the_reference_are_records_like_others():
    """A refusal would tell whoever makes the reference which rows are records."""
    classifier = make().fit(X, Y, public=np.vstack([R, X[17]]))
    classifier.add(R[:1], [0])
    assert len(classifier._engine.shard) == len(X) + 1


def test_errors_never_echo_private_values():
    private = "patient-4711"
    with pytest.raises(InvalidInput) as caught:
        make().fit(X[:2], [private, private], public=R)
    assert private not in str(caught.value)
    with pytest.raises(InvalidInput) as caught:
        make().fit(X[:2], Y[:2], [private, 1.5], public=R)
    assert private not in str(caught.value)
    for features in (
        [[private, "1"]],
        [[f"O'Brien {private}"]],
        [[private.encode()]],
        [private],
        private,
    ):
        with pytest.raises(ValueError, match=r"array|float") as caught:
            make().fit(features, [0], public=R)
        assert private not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__


def test_before_fit_everything_is_refused():
    classifier = make()
    for call in (
        lambda: classifier.predict(Q),
        lambda: classifier.decision_function(Q),
        lambda: classifier.add(X, Y),
        lambda: classifier.erase([1]),
        classifier.guarantee,
        lambda: classifier.predict(Q, abstain_below=1.0),
    ):
        with pytest.raises(NotFittedError):
            call()


def test_it_learns():
    assert fitted().score(Q, YQ) > 0.9
    assert fitted(kernel="rbf").score(Q, YQ) > 0.9
    preset = IndKNNClassifier.zhu2023(
        range(CLASSES), 4.0, n_queries=40, tau=0.5, noise_multiplier=1.5
    )
    assert preset.fit(X, Y).score(Q, YQ) > 0.7


def test_an_empty_store_answers_with_noise():
    classifier = fitted(n_queries=1000)
    assert classifier.erase(np.arange(300)) == 300
    votes = classifier.decision_function(Q)
    assert votes.shape == (40, CLASSES)
    assert (votes != 0).all()
    classifier.add(X, Y)
    assert classifier.decision_function(Q).shape == (40, CLASSES)


def test_spent_budgets_answer_with_noise_and_stay_at_zero():
    classifier = fitted(noise_multiplier=0.02, n_neighbors=100, n_records=300)
    with pytest.warns(PrivacyWarning, match="planned"):
        classifier.predict(np.vstack([Q] * 5))
    left = classifier._engine.shard.ledger.remaining
    assert (left >= 0).all()
    assert left.max() < UNITS // 100
    votes = classifier.decision_function(Q)
    assert np.abs(votes).max() < 20 * 0.02 * np.sqrt(100) + 1
    assert len(np.unique(votes)) > 100


def test_abstention_follows_the_noisy_votes_only():
    classifier = fitted(simulation_seed=3)
    votes = fitted(simulation_seed=3).decision_function(Q)
    confidence = classifier.confidence(votes)
    assert (confidence >= 0).all()
    labels = classifier.predict(Q, abstain_below=float(np.median(confidence)))
    np.testing.assert_array_equal(labels == -1, confidence < np.median(confidence))
    sure = labels != -1
    np.testing.assert_array_equal(labels[sure], votes.argmax(axis=1)[sure])


def test_abstention_with_names_and_with_a_class_called_minus_one():
    names = np.array(["a", "b", "c"])
    classifier = IndKNNClassifier(names, 4.0, n_queries=100).fit(X, names[Y], public=R)
    answers = classifier.predict(Q, abstain_below=1e9)
    assert all(answer is None for answer in answers)
    assert set(classifier.predict(Q[:5]).tolist()) <= set(names.tolist())
    clash = IndKNNClassifier([-1, 0, 1], 4.0, n_queries=40).fit(X, Y - 1, public=R)
    before = clash._engine.shard.ledger.remaining.copy()
    with pytest.raises(InvalidInput, match="abstain_below"):
        clash.predict(Q, abstain_below=1.0)
    with pytest.raises(InvalidInput, match="abstain_below"):
        fitted().predict(Q, abstain_below=np.nan)
    np.testing.assert_array_equal(before, clash._engine.shard.ledger.remaining)


def test_an_interrupted_change_is_not_answered_from(monkeypatch):
    classifier = fitted()
    with broken_off(monkeypatch, classifier._engine.shard.index, "remove"):
        classifier.erase([1])
    for call in (lambda: classifier.predict(Q), lambda: classifier.add(X, Y)):
        with pytest.raises(PrivacyRefused, match="interrupted"):
            call()


def test_the_guarantee_rounds_up_and_does_not_follow_parameters():
    classifier = fitted(epsilon=1.0000004)
    assert "(1.01, 1e-05)" in str(classifier.guarantee())
    classifier.set_params(n_records=300, epsilon=9.0)
    assert "estimated once with noise" in str(classifier.guarantee())
    assert classifier.guarantee().epsilon == 1.0000004


def test_the_guarantee_is_whole():
    text = str(fitted().guarantee())
    for part in ("(4, 1e-05)", "added or removed", "Protected", "Public", "Assumed", "reference"):
        assert part in text
    guarantee = fitted(simulation_seed=1).guarantee()
    assert not guarantee.holds
    assert guarantee.epsilon == np.inf
    assert str(guarantee).startswith("NO GUARANTEE")
    assert fitted().guarantee().to_dict()["delta"] == 1e-5


def test_the_size_is_private_unless_declared():
    sizes = {fitted(epsilon=20.0, simulation_seed=seed).n_records_ for seed in range(5)}
    assert len(sizes) > 1
    assert all(abs(size - 300) < 150 for size in sizes)
    estimated = fitted(simulation_seed=1)._engine.shard.ledger
    assert 0.999 * UNITS < estimated.remaining.min() < UNITS
    declared = fitted(n_records=300)
    assert declared.n_records_ == 300
    assert declared._engine.shard.ledger.remaining.min() == UNITS


def test_a_small_reference_raises_the_number_of_neighbours_with_a_warning():
    with pytest.warns(UserWarning, match="reference is too small") as warned:
        classifier = make(n_neighbors=2, n_records=300).fit(X, Y, public=R[:10])
    assert (classifier.n_neighbors_, warned[0].filename) == (30, __file__)


def test_too_little_noise_for_exact_arithmetic_is_refused():
    with pytest.raises(InvalidInput, match="noise_multiplier"):
        fitted(noise_multiplier=1e-6)


def test_answers_stop_before_the_grid_uses_up_its_share_of_delta():
    classifier = fitted()
    classifier._engine.votes.slack_accountant._limit = 1e-13
    before = classifier._engine.shard.ledger.remaining.copy()
    with pytest.raises(PrivacyRefused, match="1 % of delta"):
        classifier.predict(Q)
    np.testing.assert_array_equal(before, classifier._engine.shard.ledger.remaining)


@pytest.mark.parametrize("index", ["lsh", {"kind": "lsh", "tables": 12, "bits": 4, "seed": 3}])
def test_every_index_answers_and_forgets(index):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 900)
    X = 3 * np.eye(3, 8)[y] + rng.normal(size=(900, 8))
    classifier = IndKNNClassifier(range(3), epsilon=4.0, n_queries=100, index=index)
    classifier.fit(X[:600], y[:600], public=X[600:800])
    assert (classifier.predict(X[800:]) == y[800:]).mean() > 0.8
    assert classifier.erase(list(range(590))) == 590
    assert len(classifier._engine.shard.index) == 10


def test_a_bad_option_of_an_index_is_refused_by_name():
    classifier = make(index={"kind": "lsh", "tables": 0})
    with pytest.raises(InvalidInput, match="'tables'"):
        classifier.fit(X, Y, public=R)
    assert not hasattr(classifier, "classes_")


def test_queries_unlike_the_public_set_are_warned_of_once():
    rng = np.random.default_rng(0)
    around = np.zeros(D)
    around[0] = 4
    records, public, like = (rng.normal(size=(n, D)) + around for n in (400, 200, 40))
    labels = rng.integers(0, 3, 400)

    def fresh():
        return IndKNNClassifier(range(3), 2.0, n_queries=200).fit(records, labels, public=public)

    classifier, other = fresh(), fresh()
    with pytest.warns(UserWarning, match="do not look like the public reference"):
        classifier.predict(like - 2 * around)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classifier.predict(like - 2 * around)
        other.predict(like)
