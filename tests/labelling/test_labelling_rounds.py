"""Re-embedding and resuming: budgets persist when features change."""

import numpy as np
import pytest

from vicinal import IndKNNClassifier
from vicinal.accounting.budget import UNITS
from vicinal.errors import InvalidInput
from vicinal.predictors.reembedding import check_budget_state, get_budget_state, resume_fit

N, M, C = 600, 200, 3


@pytest.fixture(scope="module")
def world():
    generator = np.random.default_rng(1)
    labels = generator.integers(C, size=N)
    centres = generator.normal(size=(C, 8)) * 2
    X = centres[labels] + generator.normal(size=(N, 8))
    public = centres[generator.integers(C, size=M)] + generator.normal(size=(M, 8))
    turn = generator.normal(size=(8, 5))
    return X, labels, public, X @ turn, public @ turn


def fitted(world, *, subjects=None, **options):
    X, y, public, _, _ = world
    options = {"n_queries": 200, "n_records": N, **options}
    options = {"model_share": 0, **options}
    return IndKNNClassifier(range(C), 1.0, 1e-5, **options).fit(X, y, subjects, public=public)


def reembed(classifier, X, y, subjects=None, *, public, **plan):
    resume_fit(classifier, X, y, subjects, public, get_budget_state(classifier), **plan)


def remaining(classifier):
    return classifier._engine.shard.ledger.remaining


@pytest.mark.parametrize("subjects", [None, np.arange(N) // 3], ids=["rows", "subjects"])
def test_reembedding_keeps_what_everybody_has_left(world, subjects):
    _, y, public, turned, turned_public = world
    classifier = fitted(world, subjects=subjects)
    classifier.predict(public[:100])
    before = remaining(classifier).copy()
    assert (before < UNITS).any()
    assert len(before) == (N if subjects is None else N // 3)
    reembed(classifier, turned, y, subjects, public=turned_public, n_queries=100, share=0.5)
    np.testing.assert_array_equal(remaining(classifier), before)
    assert classifier.n_features_in_ == 5
    classifier.predict(turned_public[:100])
    assert (remaining(classifier) <= before).all()
    assert (remaining(classifier) < before).any()
    assert (remaining(classifier) >= 0).all()


def test_reembedded_answers_equal_those_of_a_fit_while_budgets_are_full(world):
    """The plan is the same as a fit's for the queries that a whole budget would last for."""
    _, y, _, turned, turned_public = world
    classifier = fitted(world)
    reembed(classifier, turned, y, public=turned_public, n_queries=100, share=0.5)
    fresh = IndKNNClassifier(range(C), 1.0, 1e-5, 200, n_records=N, model_share=0)
    fresh.fit(turned, y, public=turned_public)
    assert classifier.n_neighbors_ == fresh.n_neighbors_
    assert classifier.noise_multiplier_ == fresh.noise_multiplier_
    assert classifier.budget_ == fresh.budget_
    assert classifier.guarantee() == fresh.guarantee()


def test_charges_of_the_second_round_are_those_of_its_own_features(world):
    _, y, public, turned, turned_public = world
    classifier, fresh = fitted(world), fitted(world)
    classifier.predict(public[:50])
    before = remaining(classifier).copy()
    for one in (classifier, fresh):
        reembed(one, turned, y, public=turned_public, n_queries=100, share=0.5)
    classifier.predict(turned_public[:20])
    fresh.predict(turned_public[:20])
    rich = before > UNITS // 2
    assert rich.sum() > N // 2
    charged = before - remaining(classifier)
    np.testing.assert_array_equal(charged[rich], (UNITS - remaining(fresh))[rich])


def test_slack_and_size_are_carried_on(world):
    _, y, public, turned, turned_public = world
    classifier = fitted(world, n_records=None)
    classifier.predict(public[:50])
    size, slack = classifier.n_records_, get_budget_state(classifier)["slack"]
    assert slack > 0
    budgets = remaining(classifier).copy()
    reembed(classifier, turned, y, public=turned_public, n_queries=50)
    assert classifier.n_records_ == size, "a second estimate would be a second release"
    np.testing.assert_array_equal(remaining(classifier), budgets)
    assert get_budget_state(classifier)["slack"] == slack
    classifier.predict(turned_public[:50])
    assert get_budget_state(classifier)["slack"] > slack


@pytest.mark.parametrize("fault", ["fewer", "subjects"])
def test_other_records_are_refused(world, fault):
    _, y, public, turned, turned_public = world
    classifier = fitted(world)
    before, engine = remaining(classifier).copy(), classifier._engine
    size = N - 1 if fault == "fewer" else N
    subjects = np.arange(N) // 2 if fault == "subjects" else None
    with pytest.raises(InvalidInput, match="same records"):
        reembed(classifier, turned[:size], y[:size], subjects, public=turned_public, n_queries=9)
    np.testing.assert_array_equal(remaining(classifier), before)
    assert classifier._engine is engine
    classifier.predict(public[:2])


@pytest.mark.parametrize("index", ["lsh", "exact"])
def test_the_index_stays_that_of_the_parameters(world, index):
    _, y, _, turned, turned_public = world
    classifier = fitted(world, index=index)
    kind = type(classifier._engine.shard.index)
    reembed(classifier, turned, y, public=turned_public, n_queries=100, share=0.5)
    assert type(classifier._engine.shard.index) is kind
    assert len(classifier.predict(turned_public[:20])) == 20


def test_resuming_goes_on_with_the_budgets_of_the_dead_process(world):
    X, y, public, _, _ = world
    dead = fitted(world, n_records=None)
    dead.predict(public[:80])
    spent = get_budget_state(dead)
    heir = IndKNNClassifier(range(C), 1.0, 1e-5)
    resume_fit(heir, X, y, None, public, spent, n_queries=100, share=0.5)
    np.testing.assert_array_equal(remaining(heir), remaining(dead))
    assert heir.n_records_ == dead.n_records_
    assert heir.n_answers_ == 80
    assert heir.noise_multiplier_ == dead.noise_multiplier_
    assert heir.guarantee() == dead.guarantee()
    assert get_budget_state(heir)["slack"] == spent["slack"]
    dead.predict(public[80:90])
    heir.predict(public[80:90])
    np.testing.assert_array_equal(remaining(heir), remaining(dead))


@pytest.mark.parametrize("units", [[UNITS + 1], [-1], [1.0], [[1]]])
def test_budgets_that_nobody_can_have_are_refused(units):
    with pytest.raises(InvalidInput):
        check_budget_state({"remaining": np.array(units), "slack": 0, "answers": 0, "n_records": 1})
