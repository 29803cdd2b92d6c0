"""Invalid specifications raise one clear error; mechanisms that share coins are rejected."""

import math
from inspect import signature
from pathlib import Path

import numpy as np
import pytest

from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.reports.smoothed_audit import _KINDS, audit_smoothed_dp, build_from_spec
from vicinal.smoothed import (
    Average,
    FixedSize,
    Heterogeneous,
    Histogram,
    Hull,
    Interval,
    KNNVotes,
    ListedMechanism,
    NamedMechanism,
    Poisson,
    RadiusVotes,
    Vertices,
    WithReplacement,
    adjusted_utility,
    bounds,
    compose,
    compute_level_probabilities,
    database_delta,
    profile,
    quantiles,
    smoothed_delta,
    worst_case_delta,
)  # fmt: skip

SHM = Histogram(FixedSize(3))
EVEN = Vertices([[0.5, 0.5]])

REFUSED = {
    "T > n": lambda: database_delta(SHM, [1, 1], 1.0),
    "T > n, smoothed": lambda: smoothed_delta(SHM, EVEN, 2, 1.0),
    "T > n, worst case": lambda: worst_case_delta(SHM, 2, 1.0),
    "T > n, average": lambda: database_delta(Average([0, 1], 3), [1, 1], 1.0),
    "negative T": lambda: FixedSize(-1),
    "T is a float": lambda: FixedSize(3.0),
    "gamma above 1": lambda: Poisson(1.1),
    "gamma NaN": lambda: Poisson(math.nan),
    "no sampler": lambda: Histogram(3),
    "negative counts": lambda: database_delta(SHM, [5, -1], 1.0),
    "counts NaN": lambda: database_delta(SHM, [5, math.nan], 1.0),
    "half a record": lambda: database_delta(SHM, [5, 0.5], 1.0),
    "text": lambda: database_delta(SHM, ["a", "b"], 1.0),
    "one type": lambda: database_delta(SHM, [5], 1.0),
    "nobody": lambda: database_delta(Histogram(Poisson(0.5)), [0, 0], 1.0),
    "matrix": lambda: database_delta(SHM, [[5, 5], [5, 5]], 1.0),
    "empty": lambda: database_delta(SHM, [], 1.0),
    "too many": lambda: database_delta(SHM, [10**10, 5], 1.0),
    "epsilon negative": lambda: database_delta(SHM, [5, 5], -0.1),
    "epsilon NaN": lambda: smoothed_delta(SHM, EVEN, 5, math.nan),
    "epsilon infinite": lambda: bounds(EVEN, 5, 3, math.inf),
    "no mechanism": lambda: database_delta("histogram", [5, 5], 1.0),
    "threshold 1": lambda: adjusted_utility(SHM, [5, 5], 1.0),
    "rows do not sum to 1": lambda: Vertices([[0.5, 0.4]]),
    "rows negative": lambda: Vertices([[1.5, -0.5]]),
    "rows NaN": lambda: Vertices([[math.nan, 1.0]]),
    "rows ragged": lambda: Vertices([[0.5, 0.5], [1.0]]),
    "rows flat": lambda: Vertices([0.5, 0.5]),
    "no rows": lambda: Hull([]),
    "one column": lambda: Hull([[1.0]]),
    "interval without inside": lambda: Interval([0.6, 0.6], [0.7, 0.7]),
    "interval upside down": lambda: Interval([0.6, 0.2], [0.4, 0.8]),
    "interval lengths": lambda: Interval([0.5], [0.5, 0.6]),
    "groups": lambda: Heterogeneous([3, 4]),
    "groups do not add up": lambda: smoothed_delta(SHM, Heterogeneous([(3, [0.5, 0.5])]), 4, 1.0),
    "wrong dimension": lambda: smoothed_delta(RadiusVotes(0.5, 2), EVEN, 5, 1.0),
    "wrong dimension, average": lambda: smoothed_delta(Average([0, 1, 2], 2), EVEN, 5, 1.0),
    "wrong dimension, labels": lambda: smoothed_delta(
        KNNVotes(2, 0.5), Vertices([[0.2, 0.3, 0.5]]), 5, 1.0
    ),
    "no population": lambda: smoothed_delta(SHM, [[0.5, 0.5]], 5, 1.0),
    "quantiles of three types": lambda: quantiles(SHM, Vertices([[0.2, 0.3, 0.5]]), 5, 1.0, [0.1]),
    "quantiles at 0": lambda: quantiles(SHM, EVEN, 5, 1.0, [0.0]),
    "profile too long": lambda: profile(SHM, 10**9, 1.0),
    "levels": lambda: Average([1, 1], 3),
    "levels NaN": lambda: Average([0, math.nan], 3),
    "rounding": lambda: Average([0, 1], 3, "up"),
    "labels": lambda: database_delta(KNNVotes(2, 0.5), [0, 1, 2], 1.0),
    "k": lambda: KNNVotes(0, 0.5),
    "votes": lambda: KNNVotes(500, 0.5, 5),
    "classes": lambda: RadiusVotes(0.5, 1),
    "law does not sum": lambda: database_delta(ListedMechanism(lambda _: {0: 0.7}, 2), [5, 5], 1.0),
    "law NaN": lambda: database_delta(ListedMechanism(lambda _: {0: math.nan}, 2), [5, 5], 1.0),
    "law is a list": lambda: database_delta(ListedMechanism(lambda _: [1.0], 2), [5, 5], 1.0),
    "law is no function": lambda: ListedMechanism({}, 2),
    "no releases": lambda: compose([]),
    "releases without coins": lambda: compose([SHM]),
    "gradients": lambda: compute_level_probabilities("cauchy"),
    "gradients without spread": lambda: compute_level_probabilities("gaussian", 0.0, 0.0),
    "sampler kind": lambda: build_from_spec("sampler", {"kind": "stratified"}),
    "sampler fields": lambda: build_from_spec("sampler", {"kind": "poisson", "rate": 0.5}),
    "mechanism kind": lambda: build_from_spec("mechanism", "histogram"),
    "population kind": lambda: build_from_spec("population", {"kind": "everything"}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    with pytest.raises(InvalidInput):
        REFUSED[name]()


@pytest.mark.parametrize(
    ("category", "spec", "message"),
    [
        (
            "population",
            {"kind": "hull", "rows": [[1, 1]]},
            "lacks the fields 'points' and does not have the fields 'rows'. Its fields are",
        ),
        (
            "mechanism",
            {"kind": "knn_votes", "k": 5},
            "lacks the fields 'gamma'. Its fields are 'k'",
        ),
        ("mechanism", {"kind": "composition", "releases": [{}]}, "without the field 'mechanism'"),
        ("population", {"kind": "heterogeneous", "groups": [{"count": 1}]}, "'distribution'"),
        ("population", {"kind": "heterogeneous", "groups": 3}, "value of the wrong type"),
    ],
)
def test_a_specification_is_refused_with_its_missing_fields(category, spec, message):
    with pytest.raises(InvalidInput, match=message):
        build_from_spec(category, spec)


def test_an_audit_is_refused_with_its_missing_fields():
    spec = {"mechanism": {}, "population": {}, "n": 5, "epsilon": [1]}
    message = "The audit lacks the fields 'epsilons' and does not have the fields 'epsilon'"
    with pytest.raises(InvalidInput, match=message):
        audit_smoothed_dp(spec)


def test_the_page_lists_every_kind_and_its_fields():
    page = (Path(__file__).parents[2] / "docs/explanation/smoothed.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if line.startswith("|")]
    for kinds in _KINDS.values():
        for kind, build in kinds.items():
            words = [f"`{kind}`", *(f"`{field}`" for field in signature(build).parameters)]
            assert any(all(word in row for word in words) for row in rows), words


def test_whole_counts_are_distributions():
    for population in (Vertices, Hull):
        shares = population([[0.75, 0.25], [0.0, 1.0]]).vertices
        np.testing.assert_array_equal(population([[3, 1], [0, 7]]).vertices, shares)
        np.testing.assert_array_equal(population([[0.75, 0.25], [0, 1]]).vertices, shares)
    np.testing.assert_array_equal(Heterogeneous([(5, [3, 1])]).vertices, [[0.75, 0.25]])
    for row in ([0, 0], [3, -1], [2.5, 1]):
        with pytest.raises(InvalidInput):
            Vertices([row])


def test_errors_never_echo_counts_and_own_deltas_say_that_they_are_private():
    with pytest.raises(InvalidInput) as caught:
        database_delta(SHM, [123457, -98765], 1.0)
    assert "98765" not in str(caught.value)
    assert "123457" not in str(caught.value)
    found = database_delta(SHM, [5, 5], 1.0)
    assert str(found).startswith("PRIVATE")
    assert found.to_dict()["private"] is True


def test_releases_that_share_coins_are_refused():
    with pytest.raises(PrivacyRefused, match="share their coins"):
        compose([NamedMechanism(SHM, "split"), NamedMechanism(Histogram(FixedSize(2)), "split")])


def test_both_halves_of_one_split_publish_everything():
    """Why: audited as one release, the two folds together have delta 1."""

    def folds(counts):
        half = FixedSize(sum(counts) // 2)
        whole = np.array(counts)
        return {
            (outcome, tuple((whole - outcome).tolist())): math.exp(log_p)
            for outcome, log_p in half.list_sampled_counts(whole)
        }

    assert database_delta(ListedMechanism(folds, 2), [3, 3], 1.0).value == pytest.approx(1.0)
    alone = database_delta(Histogram(FixedSize(3)), [3, 3], 1.0)
    assert alone.upper < 0.6


def test_sampling_nothing_or_everything_and_epsilons_beyond_all_floats():
    assert database_delta(Histogram(FixedSize(0)), [5, 5], 0.0).upper == 0
    assert database_delta(Histogram(FixedSize(10)), [5, 5], 3.0).value == pytest.approx(1)
    assert database_delta(Histogram(Poisson(1.0)), [5, 5], 3.0).value == pytest.approx(1)
    assert database_delta(Histogram(WithReplacement(0)), [5, 5], 0.0).upper == 0
    assert database_delta(RadiusVotes(1.0, 2), [5, 5, 2], 3.0).value == pytest.approx(1)
    assert smoothed_delta(Histogram(FixedSize(0)), EVEN, 5, 0.5).upper == 0
    assert database_delta(SHM, [1, 5], 5000.0).value == pytest.approx(0.5)
