"""A declared number of records a subject: planning alone reads it, and budgets then last."""

import json

import numpy as np
import pytest

from command_line import printed
from made_up import clouds, plan_of
from vicinal import IndKNNClassifier, IndKNNRegressor, Store
from vicinal.accounting.budget import UNITS
from vicinal.planning.plan_simulation import PlanChoice

PEOPLE, EACH = 300, 4
ONE, LABEL = clouds(0, PEOPLE, 4)
X = np.repeat(ONE, EACH, axis=0) + 0.05 * np.random.default_rng(1).normal(size=(PEOPLE * EACH, 4))
Y, WHO = np.repeat(LABEL, EACH), np.repeat(np.arange(PEOPLE), EACH)
R, _ = clouds(2, 200, 4)
Q, _ = clouds(3, 400, 4)
PLAN = {
    "epsilon": 2.0, "n_queries": 400, "n_records": len(X), "simulation_seed": 0, "model_share": 0
}  # fmt: skip


def fitted(declared, **more):
    made = IndKNNClassifier(range(3), **{**PLAN, "records_per_subject": declared, **more})
    return made.fit(X, Y, WHO, R)


def late_votes(declared):
    """Return votes of the last hundred queries over those that were planned."""
    made = fitted(declared)
    return made.query(Q).votes[-100:].sum() / (100 * made.n_neighbors_)


def test_budgets_last_where_the_number_is_declared():
    """All records of a person are alike here, so half-way to that is not quite enough."""
    assert late_votes(1) < 0.05, "by the end nobody has anything left"
    assert late_votes(EACH) > 0.15


def test_the_mechanism_does_not_read_it():
    """Fails if a wrong declaration changes a charge or an answer other than through the plan."""
    fixed = {"n_neighbors": 60, "noise_multiplier": 2.0}
    right, wrong = (fitted(declared, **fixed) for declared in (EACH, 1000))
    np.testing.assert_array_equal(right.query(Q).votes, wrong.query(Q).votes)
    left = [made._engine.shard.ledger.remaining for made in (right, wrong)]
    np.testing.assert_array_equal(*left)
    assert right.budget_ == wrong.budget_
    assert str(right.guarantee()) == str(wrong.guarantee())


def test_the_plan_is_that_of_a_smaller_budget():
    """Four records are charged 4^1.5 times as much as one: between never and always together."""
    one = PlanChoice.from_plan(plan_of(2, n_records=20_000, n_queries=500, epsilon=1.0))
    four = PlanChoice.from_plan(
        plan_of(2, n_records=20_000, n_queries=500, epsilon=1.0, records_per_subject=4)
    )
    assert four.budget == pytest.approx(one.budget / 8)
    assert four.n_neighbors > one.n_neighbors
    assert four.queries_until_spent == pytest.approx(one.queries_until_spent, rel=0.05)


def test_public_points_wear_as_subjects_do():
    """What they tell of budgets used stands for subjects with so many records."""
    noise = {"n_neighbors": 60, "noise_multiplier": 4.0}
    used = []
    for declared in (1, EACH):
        made = fitted(declared, **noise)
        made.predict(Q)
        used.append(made._engine.proxies.used_shares.mean())
    true = 1 - made._engine.shard.ledger.remaining.mean() / UNITS
    assert used[0] < 0.5 * true
    assert used[1] == pytest.approx(true, rel=0.4)


def test_training_is_expected_to_cost_a_subject_more():
    """At an epsilon whose clip is above what one record's gradient is long."""
    plan = {"model_share": 0.5, "epsilon": 8.0}
    used = [fitted(declared, **plan)._model.spent_shares.mean() for declared in (1, EACH, 1e6)]
    assert 2 * used[0] < used[1] < used[2] <= 0.5


def test_a_store_and_its_commands_take_it(tmp_path):
    store = Store.init(
        tmp_path / "store", X, Y, WHO, classes=range(3), public=R, records_per_subject=EACH, **PLAN
    )
    with store:
        assert store.plans[0]["records_per_subject"] == EACH
    arguments = ["plan", "--records", 9000, "--queries", 50, "--classes", 2, "--json"]
    one, four = (
        json.loads(printed(*arguments, *more))["plan"]
        for more in ([], ["--records-per-subject", 4])
    )
    assert four["noise_multiplier"] > one["noise_multiplier"]
    assert four["records_per_subject"] == 4


def test_estimators_of_numbers_take_it():
    one, four = (
        IndKNNRegressor((0, 3), n_records=len(X), records_per_subject=declared)
        .fit(X, Y, WHO, public=R)
        .noise_multiplier_
        for declared in (1, EACH)
    )
    assert four > 2 * one
