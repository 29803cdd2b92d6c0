"""Verdicts on plans: the required number of records."""

import re
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from command_line import shown as run
from made_up import plan_of
from vicinal.errors import PrivacyWarning, SmallDataWarning
from vicinal.planning.plan_simulation import PlanChoice
from vicinal.planning.required_records import (
    MIN_LEAD,
    compute_unanimous_lead,
    find_min_records,
    find_model_records,
    warn_about_small_data,
)
from vicinal.predictors.averaging import IndKNNRegressor
from vicinal.predictors.ind_knn import IndKNNClassifier
from vicinal.reports.plan_report import assess_plan, describe_min_records, describe_rare_classes


def make_plan(n_records, n_queries, epsilon):
    given = {"n_records": n_records, "n_queries": n_queries, "epsilon": epsilon}
    return plan_of(**given)


def test_a_verdict_says_what_can_work():
    for n_records, n_queries, said in (
        (500, 1000, "expect noise"), (500, 30, "enough records"), (50_000, 1000, "enough records"),
    ):  # fmt: skip
        line = describe_min_records(make_plan(n_records, n_queries, 1.0), size_is_public=True)
        assert f"epsilon 1: {said}. Neighbours alone need about" in line
    noisy = make_plan(300, 100, 1.0).replanned(noise_multiplier=5.0)
    assert "expect noise with any number of records" in describe_min_records(
        noisy, size_is_public=True
    )


def test_without_a_number_of_records_the_verdict_says_how_many_are_needed():
    plan = make_plan(1, 1000, 1.0)
    least = find_min_records(plan)
    assert compute_unanimous_lead(PlanChoice.from_plan(plan.replanned(n_records=least))) >= MIN_LEAD
    assert (
        compute_unanimous_lead(PlanChoice.from_plan(plan.replanned(n_records=least // 2)))
        < MIN_LEAD
    )
    assert f"need about {least:,} records" in describe_min_records(plan, size_is_public=False)


def test_a_private_model_needs_records_by_epsilon_alone():
    plan = make_plan(1000, 1000, 1.0).changed(n_public=50).replanned(model_share=0.9)
    assert 400 < find_model_records(plan) < 600
    assert find_model_records(plan.replanned(n_queries=10**6)) == find_model_records(plan)
    assert (
        0.8 < find_model_records(plan.replanned(epsilon=0.5)) / (2 * find_model_records(plan)) < 1.2
    )
    assert "enough records. A private model needs" in describe_min_records(
        plan, size_is_public=True
    )
    assert "expect noise. A private model" in describe_min_records(
        plan.replanned(n_records=100), size_is_public=True
    )
    assert f"need about {find_model_records(plan):,} records" in describe_min_records(
        plan, size_is_public=False
    )


def test_subjects_with_several_records_count_once():
    """Fails if 3,400 rows of 425 subjects are judged as 3,400 subjects."""
    plan = make_plan(3400, 1000, 1.0).changed(n_public=50).replanned(model_share=0.9)
    several = plan.replanned(records_per_subject=8.0)
    assert find_model_records(several) == pytest.approx(8 * find_model_records(plan), rel=0.01)
    assert "3,400 records, 1,000 queries at epsilon 1: enough records" in describe_min_records(
        plan, size_is_public=True
    )
    line = describe_min_records(several, size_is_public=True)
    assert line.startswith("3,400 records of 425 subjects")
    assert "expect noise" in line
    assert line.endswith("of 512 subjects.")
    rare = describe_rare_classes(several, (0.97, 0.03), ("a", "b"))
    assert "Only the private model can find it." in rare[0]


def test_a_class_that_is_too_rare_is_named_with_what_it_would_take():
    plan = make_plan(20_000, 500, 1.0)
    assert describe_rare_classes(plan, (0.5, 0.5), ("a", "b")) == []
    (line,) = describe_rare_classes(plan, (0.99, 0.01), ("a", "b"))
    assert line.startswith("class 'b' is too rare for this plan")
    assert describe_rare_classes(plan.replanned(n_records=10**7), (0.99, 0.01), ("a", "b")) == []
    told = run(
        "plan", "--records", 20000, "--queries", 500, "--classes", 2, "--class-prior", ".99,.01"
    )
    assert "class 1 is too rare" in told
    run("plan", "--records", 200, "--queries", 5, "--classes", 2, "--class-prior", "1", code=2)


@pytest.mark.parametrize(
    ("n_records", "model_share", "warns"),
    [(40, 0, True), (40, "auto", True), (4000, 0, False), (4000, "auto", False)],
)
def test_fit_warns_if_records_are_few(n_records, model_share, warns):
    rng = np.random.default_rng(n_records)
    classifier = IndKNNClassifier(
        [0, 1], epsilon=1.0, n_queries=50, model_share=model_share, n_records=n_records
    )
    with warnings.catch_warnings(record=True, action="always") as caught:
        classifier.fit(
            rng.normal(size=(n_records, 4)),
            np.arange(n_records) % 2,
            public=rng.normal(size=(500, 4)),
        )
    assert [(w.category, w.filename) for w in caught] == [(SmallDataWarning, __file__)] * warns


@pytest.mark.parametrize("shares", [[0.05] + [0.1284] * 7, [0.016449] * 59])
def test_example_shares_of_classes_are_accepted(shares):
    """With three significant digits, the sums of these examples are off by .003."""
    n_classes = len(shares) + 1
    shares = [*shares, 1 - sum(shares)]
    plan = plan_of(n_classes, n_records=20_000, n_queries=100)
    (example,) = re.findall(r"--class-prior (\S+)\.", "".join(assess_plan(plan, shares)))
    plan_of(n_classes, class_prior=[float(share) for share in example.split(",")])


def make_planned_engine(n_records, n_neighbors=None, model=None, **changes):
    """Return the facts of a fit that decide on the warning; the noise on a lead is sqrt(2) * 4."""
    plan = make_plan(n_records, 1000, 1.0).changed(n_public=50).replanned(**changes)
    engine = SimpleNamespace(noise_multiplier=4.0)
    return SimpleNamespace(
        engine=engine, n_records=n_records, n_neighbors=n_neighbors, plan=plan, model=model
    )


# A unanimous lead of 5 standard deviations needs sqrt(k / 2) / 4 >= 5, so k >= 800.
N_SUFFICIENT = 800
N_MODEL_RECORDS = find_model_records(make_planned_engine(1000, model_share=0.9).plan)


@pytest.mark.parametrize(
    ("planned", "warns"),
    [
        (make_planned_engine(10_000, N_SUFFICIENT), False),
        (make_planned_engine(10_000, N_SUFFICIENT - 1), True),
        (make_planned_engine(10_000, N_SUFFICIENT - 1, noise_multiplier=4.0), False),
        (make_planned_engine(N_MODEL_RECORDS, 1, "model", model_share=0.9), False),
        (make_planned_engine(N_MODEL_RECORDS - 1, 1, "model", model_share=0.9), True),
        (make_planned_engine(10_000), False),
    ],
)
def test_the_warning_begins_at_the_required_numbers(planned, warns):
    with warnings.catch_warnings(record=True, action="always") as caught:
        warn_about_small_data(planned)
    assert [warning.category for warning in caught] == [SmallDataWarning] * warns


def test_a_regressor_gets_no_warning_about_votes():
    rng = np.random.default_rng(0)
    regressor = IndKNNRegressor(bounds=(0, 1), epsilon=1.0, n_queries=50, n_records=40)
    with warnings.catch_warnings(action="error"):
        regressor.fit(rng.normal(size=(40, 4)), rng.random(40), public=rng.normal(size=(500, 4)))


@pytest.mark.parametrize(
    ("n_public", "n_neighbors", "words"),
    [(500, "auto", "Noise decides"), (2, 1, "reference is too small")],
)
def test_warnings_as_errors_discard_no_charged_fit(n_public, n_neighbors, words):
    """Fails if a warning is issued after the charge and before the end of the fit."""
    rng = np.random.default_rng(0)
    classifier = IndKNNClassifier([0, 1], epsilon=1.0, n_queries=50, n_neighbors=n_neighbors)
    public = rng.normal(size=(n_public, 4))
    with warnings.catch_warnings(action="error"), pytest.raises(UserWarning, match=words):
        classifier.fit(rng.normal(size=(40, 4)), np.arange(40) % 2, public=public)
    assert classifier.n_answers_ == 0
    assert len(classifier.predict(public[:2])) == 2


def test_few_public_rows_and_weak_plans_are_reported():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(40, 4))
    labels = features[:, 0] > 0
    plan = {"classes": [False, True], "n_queries": 50, "n_records": 40}
    public = rng.normal(size=(9, 4))
    with pytest.warns(SmallDataWarning, match="There are 9 public rows, and a private model takes"):
        IndKNNClassifier(**plan, simulation_seed=0).fit(features, labels, public=public)
    public = rng.normal(size=(20, 4))
    for weak in ({"epsilon": 30.0}, {"delta": 0.1}):
        with pytest.warns(PrivacyWarning, match="Choose a smaller one"):
            IndKNNClassifier(**plan, **weak).fit(features + rng.random(), labels, public=public)
