"""Accuracy on similar public tables, which plans show without labelled public rows."""

import json
import re

import pytest

from command_line import invoked as run
from made_up import plan_of
from vicinal.planning.measured_accuracy import (
    N_SIMILAR_TABLES,
    AccuracyRange,
    MeasuredAccuracy,
    describe_unmeasured_plan,
    find_accuracy_range,
    find_similar_tables,
)
from vicinal.planning.plan import IndKNNPlan
from vicinal.targets.kinds import declared_target

PLAN = {"n_records": 2000, "n_queries": 1000, "epsilon": 1.0, "model_share": 0.9}


def find_range(n_features=20, **changes):
    return find_accuracy_range(plan_of(**{**PLAN, **changes}), n_features)


def measured(table, **changes):
    defaults = {
        "table": table, "n_records": 1000, "n_features": 10, "n_classes": 2,
        "largest_class_share": 0.6, "epsilon": 1.0, "accuracy": 0.8,
    }  # fmt: skip
    return MeasuredAccuracy(**{**defaults, **changes})


def test_each_table_counts_once_by_its_nearest_records_and_epsilon():
    accuracies = [
        measured("near", n_records=2000),
        measured("near", n_records=1000),
        measured("far", n_records=1000, epsilon=4.0),
        measured("wide", n_features=100),
        measured("many classes", n_classes=3),
    ]
    plan = {"n_records": 1100, "epsilon": 1.0, "n_classes": 2}
    similar = find_similar_tables(accuracies, **plan, n_features=10)
    assert [each.table for each in similar] == ["near", "far", "wide"]
    assert similar[0].n_records == 1000
    unknown = find_similar_tables(accuracies, **plan, n_features=None)
    assert [each.table for each in unknown] == ["near", "wide", "far"]
    several = find_similar_tables(accuracies, **{**plan, "n_classes": 3}, n_features=10)
    assert several[0].table == "many classes"
    many = [measured(str(number)) for number in range(30)]
    assert len(find_similar_tables(many, **plan, n_features=10)) == N_SIMILAR_TABLES


def test_declared_shares_apply_the_error_reduction_of_the_tables():
    similar = [measured("a"), measured("b", largest_class_share=0.9, accuracy=0.89)]
    unknown = AccuracyRange.from_tables(similar, None)
    assert (unknown.low, unknown.high, unknown.uses_class_shares) == (0.8, 0.89, False)
    known = AccuracyRange.from_tables(similar, 0.7)
    assert known.uses_class_shares
    # Table "a" halves the errors of the constant answer; "b" makes a tenth more.
    assert (known.low, known.high) == pytest.approx((0.7 - 0.03, 0.7 + 0.15))
    # Three classes of unknown shares are assumed to be equally frequent.
    several = AccuracyRange.from_tables(similar, None, n_classes=3)
    assert several.assumes_equal_shares
    assert (several.low, several.high) == pytest.approx((1 / 3 - 2 / 30, 1 / 3 + 1 / 3))


def test_the_range_depends_on_records_epsilon_and_shares():
    plain = find_range()
    assert 0.5 < plain.low < plain.lower_quartile < plain.upper_quartile < plain.high < 1
    assert plain.n_tables == N_SIMILAR_TABLES
    assert not plain.is_too_high
    narrow = find_range(class_prior=(0.5, 0.5))
    assert narrow.high - narrow.low < plain.high - plain.low
    assert find_range(class_prior=(0.7, 0.3)).low > narrow.low


@pytest.mark.parametrize(
    "changes", [{"n_records": 499}, {"epsilon": 0.4}, {"records_per_subject": 5.0}]
)
def test_plans_below_the_measured_ones_are_marked(changes):
    assert find_range(**changes).is_too_high


@pytest.mark.parametrize(
    "changes",
    [
        {"model_share": 0},
        {"release": "label"},
        {"class_prior": (0.9, 0.1), "cost": "balanced"},
        {"interactions": 2},
        {"n_classes": 21, "class_prior": (1 / 21,) * 21},
        {"n_features": 1000},
    ],
)
def test_plans_of_kinds_that_were_not_measured_have_no_range(changes):
    assert find_range(**changes) is None
    n_features = changes.pop("n_features", 20)
    assert describe_unmeasured_plan(plan_of(**{**PLAN, **changes}), n_features) != ""


def test_plans_with_renewed_budgets_have_no_range():
    assert find_accuracy_range(plan_of(**PLAN).changed(n_periods=2), 20) is None


def test_declared_shares_of_several_classes_replace_equal_ones_and_narrow_the_range():
    declared = find_range(n_classes=3, class_prior=(0.5, 0.3, 0.2))
    assumed = find_range(n_classes=3)
    assert (declared.assumes_equal_shares, assumed.assumes_equal_shares) == (False, True)
    assert declared.high - declared.low < assumed.high - assumed.low


def test_numbers_have_a_range_of_r_squared_on_tables_of_numbers():
    values = {"bounds": (0, 100), "n_records": 2000, "epsilon": 1.0, "model_share": 0.9}
    plan = IndKNNPlan.of_target(declared_target(values), values)
    found = find_accuracy_range(plan, 20)
    assert (found.measure, found.n_tables, found.uses_class_shares) == ("R squared", 10, False)
    assert found.outside_share == 2 / 11
    values["bounds"] = {"stay": (0, 100), "cost": (0, 1)}
    several = IndKNNPlan.of_target(declared_target(values), values)
    assert "several numbers" in describe_unmeasured_plan(several, 20)


def test_the_command_shows_the_range_its_source_and_the_exact_method():
    options = ("plan", "--records", 2000, "--classes", "healthy,ill", "--epsilon", 1)
    text = " ".join(run(*options).stdout.split())
    found = json.loads(run(*options, "--json").stdout)
    range_ = found["plan"]["similar_tables"]
    low, high = f"{range_['low']:.0%}"[:-1], f"{range_['high']:.0%}"[:-1]
    assert f"similar data accuracy {low} % to {high} %, for half of the tables" in text
    assert f"{low}-{high} %" in text
    for part in ("docs/reference/report-set.md", "--public FILE --label COLUMN", "--class-prior"):
        assert part in text
    assert "expect less" not in text
    by_name = {option["name"]: option for option in found["alternatives"]}
    assert by_name["label alone"]["similar_tables"] is None
    assert by_name["twice the epsilon"]["similar_tables"]["low"] > 0.5


def test_the_command_is_honest_about_few_records():
    options = ("--classes", "healthy,ill", "--class-prior", ".8,.2", "--epsilon", 1)
    text = " ".join(run("plan", "--records", 300, *options).stdout.split())
    assert "Fewer than 500 records, or epsilon below .5, were not measured: expect less" in text
    assert "the same share of the errors of a constant answer is avoided" in text
    # The table shows no accuracy that was not measured.
    assert re.search(r"\d-\d+ %", text) is None


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--classes", 5), "Classes of equal size are assumed: if one is common, expect more"),
        (("--target", "price=0..9"), "similar data R squared 15 % to 82 %, for half of the tables"),
        (("--labels", "a,b"), "because no plans with several numbers or labels in a record were"),
        (("--classes", 2, "--model-share", 0), "because no plans without a private model were"),
    ],
)
def test_the_command_shows_a_range_or_why_there_is_none(options, text):
    assert text in " ".join(run("plan", "--records", 2000, *options).stdout.split())
