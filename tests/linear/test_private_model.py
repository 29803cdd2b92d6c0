"""Ind-KNN beside a private model: its rule, its answers, and what it says of itself."""

import numpy as np
import pytest

from made_up import clouds
from vicinal import IndKNNClassifier, testing
from vicinal.accounting import account
from vicinal.accounting.budget import UNITS
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.linear import losses as _losses
from vicinal.linear import private_model as _private_model
from vicinal.linear.model_features import CHUNK
from vicinal.planning.plan import IndKNNPlan

pytestmark = pytest.mark.quick

N, D, CLASSES = 500, 5, 3
X, Y = clouds(0, N, D)
R, _ = clouds(1, 120, D)
Q, YQ = clouds(2, 200, D)


def make(**parameters):
    given = {"epsilon": 8.0, "n_queries": 200, "n_records": N, "model_share": 0.5}
    return IndKNNClassifier(range(CLASSES), **{"simulation_seed": 3, **given, **parameters})


def fitted(**parameters):
    return make(**parameters).fit(X, Y, public=R)


@pytest.fixture(scope="module")
def both():
    """One fitted classifier, and its answers to all queries."""
    classifier = fitted()
    return classifier, classifier.query(Q)


def test_it_asks_about_what_the_model_is_unsure_of(both):
    classifier, answers = both
    assert 0 < answers.asked.mean() < 0.5
    margins = _losses.subtract_second_best(np.log(classifier.model_probabilities(Q)))
    # As many as votes were planned for; after these the model answers alone.
    before = np.arange(len(Q)) < np.flatnonzero(answers.asked).max()
    assert margins[answers.asked].max() <= margins[~answers.asked & before].min()
    assert (answers.labels == YQ).mean() > 0.8
    assert (answers.votes.argmax(axis=1) == answers.labels).all()
    assert np.isfinite(answers.noise).all()


def test_with_declared_shares_public_rows_have_them_and_most_are_left_to_the_model():
    shares = [0.6, 0.3, 0.1]
    trained = fitted(class_prior=shares)._model
    model = _private_model.PrivateModel(
        trained.model, R, trained.spent_shares, trained.loss, trained.variance_directions
    )
    said = model.predict(R)
    np.testing.assert_allclose(said.mean(axis=0), shares, atol=1e-6)
    np.testing.assert_array_equal(model.map_rows(R)[1].values, said)
    assert model.is_certain(said).sum() == (1 - _private_model.PRIVATE_VOTE_SHARE) * len(R)


def test_it_repeats_itself_in_simulation_on_any_number_of_threads(both):
    with testing.use_threads(5):
        again = fitted()
        assert (again._model.model.weights == both[0]._model.model.weights).all()
        assert (again.predict(Q) == both[1].labels).all()


def test_noise_of_training_and_of_votes_are_different_draws(monkeypatch):
    """One source for both: a source made anew from the seed would draw the same numbers."""
    made = []
    honest = _private_model.train_private_model
    monkeypatch.setattr(
        "vicinal.planning.engine_factory.train_private_model",
        lambda *args: made.append(args[3].mechanism._noise) or honest(*args),
    )
    assert fitted()._engine.votes.noise_source is made[0]


def test_after_the_planned_questions_the_model_answers_alone():
    classifier = fitted(release="label", epsilon=4.0)
    most = int(np.ceil(_private_model.PRIVATE_VOTE_SHARE * 200))
    asked = [classifier.query(Q).asked.sum() for _ in range(4)]
    assert sum(asked) == most
    before = classifier._shard.ledger.remaining.copy()
    answers = classifier.query(Q)
    assert not answers.asked.any()
    assert (answers.labels == YQ).mean() > 0.8
    assert (classifier._shard.ledger.remaining == before).all()


def test_newcomers_have_full_budgets_and_leavers_keep_what_is_left():
    classifier = make().fit(X, Y, np.arange(N), public=R)
    more, labels = clouds(7, 2, D)
    classifier.add(more, labels, [N, 0])
    ledger = classifier._shard.ledger
    new, old = ledger.list_slots([N])[0], ledger.list_slots([0])[0]
    assert ledger.remaining[new] == UNITS
    assert (left := ledger.remaining[old]) < UNITS
    assert classifier.erase([0]) == 2
    classifier.add(more[:1], labels[:1], [0])
    assert ledger.remaining[ledger.list_slots([0])[0]] == left


@pytest.mark.counts_interactions
def test_fit_releases_so_the_same_records_are_not_fitted_again():
    shifted = X + 1e-3
    make(simulation_seed=None).fit(shifted, Y, public=R)
    with pytest.raises(PrivacyRefused, match="earlier interaction"):
        make(simulation_seed=None).fit(shifted, Y, public=R)


def test_the_proxies_start_from_what_training_cost():
    classifier = fitted()
    used = 1 - classifier._shard.ledger.remaining.mean() / UNITS
    estimate = classifier.budget_usage().used
    assert 0 < estimate < 0.5
    assert abs(estimate - used) < 0.15


def test_the_guarantee_says_what_the_model_keeps():
    """By default one is trained, where public facts allow it."""
    given = {"model_share": "auto", "simulation_seed": None, "n_records": None}
    classifier = make(**given).fit(X - 1e-3, Y, public=R)
    assert classifier.model_share_ == _private_model.MAX_TRAINING_SHARE
    text = str(classifier.guarantee())
    assert "stays in the model" in text
    assert "is not in it" in text
    assert classifier.guarantee().epsilon == 8.0
    plan = {"delta": 1e-5, "releases": [{"kind": "ind_knn", "epsilon": 8.0, "delta": 1e-5}]}
    assert account(plan)["epsilon"] <= 8.0 * (1 + 1e-6)
    plain = fitted(model_share=0)
    assert plain._model is None
    assert "model" not in str(plain.guarantee())


@pytest.mark.parametrize(
    "parameters", [{"kernel": "rbf"}, {"min_similarity": 0.5}, {"neighbor_count": "private"}]
)
def test_what_does_not_go_together_is_refused_and_auto_leaves_the_model_out(parameters):
    with pytest.raises(InvalidInput, match="'model_share' parameter must be 0 unless"):
        fitted(**parameters)
    assert fitted(model_share="auto", **parameters).model_share_ == 0


@pytest.mark.parametrize(
    ("parameters", "rows", "reason"),
    [
        ({"kernel": "rbf"}, 120, "it needs kernel='cosine'"),
        ({"n_neighbors": 20}, 120, "'n_neighbors' is given"),
        ({"noise_multiplier": 2.0}, 120, "'noise_multiplier' is given"),
        ({}, _private_model.MIN_PUBLIC_ROWS - 1, "it takes 10 public rows, and there are 9"),
    ],
)
@pytest.mark.filterwarnings("ignore:The public reference is too small")
def test_where_the_default_trains_none_the_guarantee_says_why(parameters, rows, reason):
    given = {"epsilon": 8.0, "n_queries": 20, "n_records": N} | parameters
    classifier = IndKNNClassifier(range(CLASSES), **given).fit(X + rows, Y, public=R[:rows])
    assert classifier.model_share_ == 0
    assert f"no private model was trained, as {reason}" in str(classifier.guarantee())


@pytest.mark.parametrize(("n", "epsilon"), [(40, 0.1), (500, 0.5), (500, 8.0)])
def test_there_is_no_number_of_records_below_which_nothing_is_trained(n, epsilon):
    classifier = make(n_records=n, epsilon=epsilon, model_share="auto")
    settled = IndKNNPlan.from_estimator(classifier).choose_model_share(120)
    assert settled.model_share == _private_model.MAX_TRAINING_SHARE
    assert IndKNNPlan.from_estimator(classifier).choose_model_share(0).model_share == 0


def test_two_witnesses_count_by_their_precision():
    shares, loss = np.array([[0.5, 0.5], [0.99, 0.01]]), _losses.ClassLoss(np.ones(2) / 2)
    said = _losses.Predictions(shares, np.full(2, 0.1))
    quiet, loud = (loss.convert_to_votes(said, noise, np.full(2, 100.0)) for noise in (1.0, 100.0))
    assert (loud > 50 * quiet).all(), "votes that are noise leave the model's word"
    assert (quiet[1].sum() > 5 * quiet[0].sum()).all(), "and so does a model that is sure"
    np.testing.assert_allclose(quiet / quiet.sum(axis=1, keepdims=True), shares)
    spread, error = 0.25 / 41, (1 / 100) ** 2 + 0.1**2
    assert quiet[0].sum() == pytest.approx(100 * error / spread)
    said = _losses.Predictions(shares, said.score_std, True)
    of_a_table = loss.convert_to_votes(said, 1.0, np.full(2, 100.0))
    np.testing.assert_allclose(of_a_table[0], quiet[0] * 161 / 41)
    said = _losses.Predictions(np.array([[1.0, 0.0]]), np.zeros(1))
    votes = loss.convert_to_votes(said, np.array([3.0]), np.array([100.0]))
    assert votes.sum() == pytest.approx(1e4 * 3.0), "the most that a model's word counts"


def test_scores_are_a_quarter_as_long_as_features_in_the_metric(both):
    classifier, _ = both
    rows = np.asarray(classifier._encoder.encode(R.astype(np.float32)), dtype=np.float32)
    mapped = classifier._model.compute_metric_rows(rows)
    lengths = np.linalg.norm(mapped[:, -CLASSES:], axis=1)
    assert lengths.mean() == pytest.approx(0.25, rel=1e-5)
    np.testing.assert_allclose(np.linalg.norm(mapped[:, :-CLASSES], axis=1), 1, rtol=2e-3)


@pytest.mark.parametrize("known", [1e-6, 1e6])
def test_what_a_model_is_worth_decides_who_is_right(known, monkeypatch):
    """Without a word of the model's neighbours decide; with all of it they change nothing."""
    monkeypatch.setattr(_losses, "_TABLE_DIRICHLET_VOTES", known)
    monkeypatch.setattr(_private_model, "PRIVATE_VOTE_SHARE", 0.5)
    monkeypatch.setattr("vicinal.planning.plan.PRIVATE_VOTE_SHARE", 0.5)
    classifier = fitted(epsilon=50.0)
    answers, chances = classifier.query(Q), classifier.model_probabilities(Q)
    assert answers.asked.any()
    assert (answers.votes.argmax(axis=1) == answers.labels).all()
    shares = answers.votes / answers.votes.sum(axis=1, keepdims=True)
    moved = np.abs(shares - chances)[answers.asked].max()
    assert moved > 0.1 if known < 1 else moved < 1e-2


def test_leads_of_queries_can_be_compared(both):
    """Fails if the weight of the model's own votes, which noise sets, is taken for their lead."""
    classifier, answers = both
    chances = classifier.probabilities(answers)
    expected = answers.votes.sum(axis=1)
    np.testing.assert_allclose(answers.votes, chances * expected[:, None], rtol=1e-9)
    most = expected / (np.sqrt(2) * answers.noise)
    assert (classifier.confidence(answers.votes, answers.noise) <= most * (1 + 1e-9)).all()


@pytest.mark.parametrize("width", [5, 80])
def test_records_are_mapped_as_queries_are(width):
    """Fails if what gradients keep by subject is given to other records of the index.

    There are more records than are mapped at once.
    """
    size = 2 * CHUNK + 77
    (records, labels), (public, _) = clouds(0, size, width), clouds(1, 150, width)
    subjects = np.random.default_rng(2).integers(0, size // 2, size)
    clf = IndKNNClassifier(range(CLASSES), 4.0, n_queries=50, n_records=size, simulation_seed=0)
    clf.fit(records, labels, subjects, public=public)
    assert (clf._model.model.features.kernel is None) == (width == 5)
    np.testing.assert_array_equal(clf._shard.index.features, clf._encode_features(records))
