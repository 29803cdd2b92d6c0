"""Ind-KNN beside a private model: its rule, its answers, and what it says of itself."""

import numpy as np
import pytest
from vicinal.linear._model_rule import ModelRule

from made_up import clouds
from vicinal import IndKNNClassifier
from vicinal.accounting import UNITS, account
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.linear import _model_rule, _private_model
from vicinal.linear._descent import longest_step
from vicinal.linear._model_features import ModelFeatures
from vicinal.planning import IndKNNPlan

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
    margins = _private_model.margins_of(classifier._model.model.scores(Q))
    assert margins[answers.asked].max() <= margins[~answers.asked].min()
    assert (answers.labels == YQ).mean() > 0.8
    assert classifier.model_share_ == 0.5


def test_scores_and_labels_agree(both):
    _, answers = both
    assert np.isfinite(answers.votes).all()
    assert np.isfinite(answers.noise).all()
    assert (answers.votes.argmax(axis=1) == answers.labels).all()


def test_it_repeats_itself_in_simulation():
    assert (fitted().predict(Q) == fitted().predict(Q)).all()


def test_noise_of_training_and_of_votes_are_different_draws(monkeypatch):
    """One source for both: a source made anew from the seed would draw the same numbers."""
    made = []
    honest = _private_model.train
    monkeypatch.setattr(
        "vicinal.planning._engine_factory.train",
        lambda *args: made.append(args[5]) or honest(*args),
    )
    assert fitted()._engine.votes.noise is made[0]


def test_after_the_planned_questions_the_model_answers_alone():
    classifier = fitted(release="label")
    most = int(np.ceil(_model_rule.USUAL.asked * 200))
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
    new, old = ledger.slots([N])[0], ledger.slots([0])[0]
    assert ledger.remaining[new] == UNITS
    assert (left := ledger.remaining[old]) < UNITS
    assert classifier.erase([0]) == 2
    classifier.add(more[:1], labels[:1], [0])
    assert ledger.remaining[ledger.slots([0])[0]] == left


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
    classifier = make(simulation_seed=None, n_records=None).fit(X - 1e-3, Y, public=R)
    text = str(classifier.guarantee())
    assert "stays in the model" in text
    assert "is not in it" in text
    assert classifier.guarantee().epsilon == 8.0
    plan = {"delta": 1e-5, "releases": [{"kind": "ind_knn", "epsilon": 8.0, "delta": 1e-5}]}
    assert account(plan)["epsilon"] <= 8.0 * (1 + 1e-6)
    plain = fitted(model_share=0)
    assert "model" not in str(plain.guarantee())


@pytest.mark.parametrize(
    "parameters",
    [
        {"reuse_predictions": "gate"},
        {"kernel": "rbf"},
        {"min_similarity": 0.5},
        {"neighbor_count": "private"},
    ],
)
def test_what_does_not_go_together_is_refused_and_auto_leaves_the_model_out(parameters):
    with pytest.raises(InvalidInput, match="'model_share' parameter must be 0 unless"):
        fitted(**parameters)
    assert fitted(model_share="auto", **parameters).model_share_ == 0


@pytest.mark.parametrize(
    ("parameters", "rows", "reason"),
    [
        ({"reuse_predictions": "gate"}, 120, "it needs reuse_predictions=False"),
        ({"n_neighbors": 20}, 120, "'n_neighbors' is given"),
        ({"noise_multiplier": 2.0}, 120, "'noise_multiplier' is given"),
        ({"epsilon": 0.5}, 120, "with so few records of so many features"),
        ({}, _model_rule.LEAST_PUBLIC - 1, "it takes 10 public rows, and there are 9"),
    ],
)
@pytest.mark.filterwarnings("ignore:The public reference is too small")
def test_where_the_default_trains_none_the_guarantee_says_why(parameters, rows, reason):
    given = {"epsilon": 8.0, "n_queries": 20, "n_records": N} | parameters
    classifier = IndKNNClassifier(range(CLASSES), **given).fit(X + rows, Y, public=R[:rows])
    assert classifier.model_share_ == 0
    assert f"no private model was trained, as {reason}" in str(classifier.guarantee())


def test_the_default_trains_one_where_public_facts_allow_it():
    classifier = IndKNNClassifier(range(CLASSES), epsilon=8.0, n_queries=20, n_records=N)
    classifier.fit(X - 2e-3, Y, public=R[: _model_rule.LEAST_PUBLIC + 30])
    assert classifier.model_share_ == _model_rule.USUAL.share
    assert "stays in the model" in str(classifier.guarantee())


def test_the_rule_looks_at_public_numbers_alone():
    def share(n_records, epsilon, n_features):
        settings = IndKNNPlan.of(make(model_share=0.5, n_records=n_records, epsilon=epsilon))
        return _private_model.fitting_share(settings.training, n_features)

    assert share(60_000, 0.5, 100) == _model_rule.USUAL.share
    assert share(1_000, 0.5, 100) == 0
    assert share(60_000, 0.01, 100) == 0
    assert fitted(model_share="auto", epsilon=0.5).model_share_ == 0
    assert fitted(model_share=0)._model is None


def test_few_features_have_a_model_whatever_their_plan():
    """Fails if a rare class that nobody declared is left to the votes alone."""

    def share(n_records, n_queries, epsilon, n_features, **given):
        classifier = IndKNNClassifier(
            [0, 1], epsilon, n_queries=n_queries, n_records=n_records, **given
        )
        settings = IndKNNPlan.of(classifier)
        return settings.settled(n_features, 2000).model_share

    assert share(24_000, 500, 1, 10) > 0
    assert share(11_419, 500, 4, 11, records_per_subject=3.2, class_prior=(0.66, 0.34)) > 0
    assert share(20_000, 500, 1, 7) > 0
    assert share(2_000, 100, 4, 7) > 0


def test_loud_noise_takes_a_larger_share_and_shorter_steps():
    def share(epsilon):
        settings = IndKNNPlan.of(make(model_share=0.5, n_records=60_000, epsilon=epsilon))
        return _private_model.fitting_share(settings.training, 1300)

    assert [share(epsilon) for epsilon in (0.5, 0.25, 0.1)] == [_model_rule.USUAL.share, 0.9, 0]
    features = ModelFeatures.planned(100)
    quiet, loud, loudest = (longest_step(features, 10, s) for s in (1e-4, 1.4e-3, 1.0))
    assert 60 < quiet <= 64
    assert loud == pytest.approx(30)
    assert loudest == pytest.approx(0.5 * np.sqrt(1010))
    assert longest_step(ModelFeatures.planned(8), 2, 1.0) == pytest.approx(2 * np.sqrt(18))


def test_where_noise_is_low_scores_count_by_the_votes_expected():
    rule = ModelRule(prior=3.0, least_prior=0.5)
    noise, expected = np.array([0.1, 100.0]), np.array([100.0, 100.0])
    assert rule.emphasis(noise, expected) == pytest.approx([50.0 / 0.3, 1.0])
    before = ModelRule(share=0.9, asked=0.1, prior=3.0, metric=0.25)  # as stores wrote it
    assert before.emphasis(noise, expected).tolist() == [1.0, 1.0]


def test_votes_without_noise_do_not_outvote_the_model(monkeypatch):
    """The control is the rule without it: there neighbours decide against the scores."""
    changed = []
    for least in (0.0, 1e3):
        rule = ModelRule(asked=0.5, least_prior=least)
        monkeypatch.setattr("vicinal.planning._plan.chosen_rule", lambda *_, rule=rule: rule)
        classifier = fitted(epsilon=50.0)
        answers = classifier.query(Q)
        scores = classifier._model.prior(Q)
        assert answers.asked.any()
        assert (answers.votes.argmax(axis=1) == answers.labels).all()
        changed.append(int((answers.labels != scores.argmax(axis=1)).sum()))
    assert changed[0] > changed[1] == 0
