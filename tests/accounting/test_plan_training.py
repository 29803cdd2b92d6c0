"""Plans with a trained model: closed forms, an independent composition, audits and refusals."""

import json
import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm
from typer.testing import CliRunner

from vicinal.accounting._counts import ProbabilisticDisclosure
from vicinal.accounting.budget import zcdp_budget as budget
from vicinal.accounting.calibration import calibrate
from vicinal.accounting.plan import account
from vicinal.audit.catalogue import list_plan_attacks
from vicinal.cli.main import app
from vicinal.errors import InvalidInput
from vicinal.linear.descent import STEPS
from vicinal.linear.private_model import MAX_TRAINING_SHARE
from vicinal.mechanisms.linear_model import IndividualGradient
from vicinal.mechanisms.votes import SLACK_SHARE
from vicinal.planning.plan import IndKNNPlan
from vicinal.predictors import IndKNNClassifier

DELTA = 1e-5
FILTER, TRAINING = {"kind": "ind_knn", "epsilon": 1.0}, {"kind": "training", "sigma": 3.0}


def price(*releases):
    return account({"delta": DELTA, "releases": list(releases)})


GRID_DELTA = 0.01 * DELTA
"""The part of a filter's own delta that its grid may use, see mechanisms/votes.md."""


def gaussian_epsilon(mu, delta=DELTA - GRID_DELTA):
    """Solve delta(epsilon) of a Gaussian pair, as Dong, Roth & Su 2022 print it."""

    def delta_error(epsilon):
        log_tail = norm.cdf(mu / 2 - epsilon / mu)
        return log_tail - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) - delta

    return brentq(delta_error, 0, 60)


@pytest.mark.parametrize(("steps", "count"), [(1, 1), (40, 1), (40, 3)])
def test_full_batches_beside_a_filter_add_up_in_squares(steps, count):
    priced = price(FILTER, {**TRAINING, "sigma": 20.0, "steps": steps, "count": count})
    mu = math.sqrt(2 * budget(1.0, DELTA - GRID_DELTA, "gdp") + steps * count / 20**2)
    assert priced["by_method"]["gdp"] == pytest.approx(gaussian_epsilon(mu), rel=1e-6)
    assert priced["lower"] <= priced["epsilon"] <= priced["by_method"]["gdp"]


def compose_by_dp_accounting(steps):
    """Return epsilon of a filter and `steps` sampled gradients by an independent accountant."""
    from dp_accounting.pld import privacy_loss_distribution as pld  # takes long to import

    fine = {"value_discretization_interval": 1e-3, "use_connect_dots": True}
    mu = math.sqrt(2 * budget(1.0, DELTA - GRID_DELTA, "gdp"))
    step = pld.from_gaussian_mechanism(3.0, sampling_prob=0.2, **fine)
    filtered = pld.from_gaussian_mechanism(1 / mu, **fine)
    return filtered.compose(step.self_compose(steps)).get_epsilon_for_delta(DELTA - GRID_DELTA)


def test_sampled_training_beside_a_filter_is_what_an_independent_accountant_composes():
    priced = price(FILTER, {**TRAINING, "steps": 12, "gamma": 0.2})
    assert priced["lower"] <= compose_by_dp_accounting(12)
    assert priced["epsilon"] == pytest.approx(compose_by_dp_accounting(12), rel=1e-3)
    alone = [price(part)["epsilon"] for part in (FILTER, {**TRAINING, "steps": 12, "gamma": 0.2})]
    assert priced["epsilon"] < 0.95 * sum(alone)
    assert (
        compose_by_dp_accounting(11) < 0.999 * priced["epsilon"]
    )  # one gradient fewer would be seen


def test_a_model_in_the_filter_costs_nothing_beside_it():
    plain, trained = price(FILTER), price({**FILTER, "model_share": 0.7})
    assert trained["by_method"] == plain["by_method"]
    training, answers = trained["releases"][0]["parts"]
    whole = budget(1.0, DELTA - GRID_DELTA, "gdp")
    assert training["alone"] == pytest.approx(gaussian_epsilon(math.sqrt(1.4 * whole)), rel=1e-6)
    assert training["budget_at_most"] + answers["budget_at_least"] == pytest.approx(whole)
    assert (
        answers["alone"] == trained["epsilon"]
    )  # a subject enrolled later spends all of it on answers
    assert "parts" not in plain["releases"][0]
    assert any("does not change when a subject" in words for words in trained["assumptions"])


@pytest.mark.parametrize("delta", [1e-4, 1e-5, 2e-6, 1.01e-7])
def test_a_filter_is_priced_with_all_that_its_meter_admits(delta):
    """At any delta of the plan: the meter of the filter stops at its own share, not the plan's."""
    enforced = IndKNNPlan.from_estimator(
        IndKNNClassifier(range(2), epsilon=1.0, delta=DELTA, n_records=100)
    )
    assert enforced.grid_delta * SLACK_SHARE == pytest.approx(GRID_DELTA)
    mu = math.sqrt(2 * enforced.interaction_budget)
    priced = account({"delta": delta, "releases": [FILTER | {"delta": DELTA}]})
    for method, tolerance in (("gdp", 1e-6), ("pld", 1e-3)):
        expected = gaussian_epsilon(mu, delta - GRID_DELTA)
        assert priced["by_method"][method] == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize("release", ["votes", "label"])
@pytest.mark.parametrize("delta", [1e-7, 1e-8])
def test_no_epsilon_is_stated_where_the_grid_alone_may_use_more(release, delta):
    with pytest.raises(InvalidInput, match="Take a larger delta"):
        account({"delta": delta, "releases": [FILTER | {"delta": DELTA, "release": release}]})


@pytest.mark.parametrize("release", ["votes", "label"])
def test_the_plan_has_the_noise_that_fit_trains_with(release, monkeypatch):
    used, honest = [], IndividualGradient.__init__

    def record_noise(self, records, n_classes, unit, clip, most_noise, *rest):
        used.append(most_noise)
        honest(self, records, n_classes, unit, clip, most_noise, *rest)

    monkeypatch.setattr(IndividualGradient, "__init__", record_noise)
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), rng.integers(0, 2, 60)
    IndKNNClassifier(
        range(2), n_queries=10, n_records=60, model_share=0.7, release=release, simulation_seed=1
    ).fit(X, y, public=rng.normal(size=(40, 3)))
    plan = price({**FILTER, "model_share": 0.7, "release": release})
    training = plan["releases"][0]["parts"][0]
    assert training["steps"] == STEPS
    # 1 % of delta is kept for the grid where votes leave.
    assert training["sigma"] == pytest.approx(used[0], rel=2e-3)


def test_training_is_calibrated_to_what_a_filter_leaves():
    plan = {
        "delta": DELTA,
        "releases": [{**FILTER, "epsilon": 0.7}, {"kind": "training", "steps": 200, "gamma": 0.1}],
    }
    priced = calibrate(plan, 1.0, "sigma", 1)
    assert 0.999 < priced.price["epsilon"] <= 1.0
    plan["releases"][1]["sigma"] = priced.value
    assert 190 < calibrate(plan, 1.0, "steps", 1).value <= 200


def test_a_training_is_audited_as_gradients():
    plan = {"delta": DELTA, "releases": [{**TRAINING, "steps": 9, "gamma": 0.5}]}
    assert set(list_plan_attacks(plan)) == {"noisy-sgd"}


@pytest.mark.parametrize(
    ("release", "named"),
    [
        ({**FILTER, "model_steps": 40}, "'releases[0].model_steps'"),
        ({**TRAINING, "steps": 10**6, "count": 10**6}, "'releases[0].steps'"),
        (TRAINING, "'releases[0].steps'"),
    ],
)
def test_what_cannot_be_trained_is_refused_by_name(release, named):
    with pytest.raises(InvalidInput) as error:
        price(release)
    assert named in str(error.value)


def run_plan_command(*options):
    arguments = ("--records", "6000", "--queries", "400", "--classes", "3", "--json", *options)
    return CliRunner().invoke(app, ["plan", *arguments])


def test_a_plan_beside_a_model_asks_a_tenth_with_what_training_leaves():
    plans = [
        json.loads(run_plan_command("--model-share", share).stdout)["plan"] for share in ("0", ".7")
    ]
    plain, trained = plans
    assert [plan_values["model_share"] for plan_values in plans] == [0, 0.7]
    assert trained["queries_expected"] == 40 < plain["queries_expected"] == 400
    # Noise for a tenth of the queries from three tenths of the budget, at the same headroom.
    ratio = trained["noise_multiplier"] / plain["noise_multiplier"]
    assert ratio == pytest.approx(math.sqrt(0.1 / 0.3), rel=1e-6)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--model-share", "1"), ">= 1e-06 and < 1"),
        (("--model-share", "some"), ">= 1e-06 and < 1"),
        (("--model-share", ".5", "--kernel", "rbf"), "must be 0 unless"),
    ],
)
def test_what_a_plan_cannot_have_beside_a_model_is_refused(options, words):
    priced = run_plan_command(*options)
    assert priced.exit_code == 2
    assert words in priced.stderr


def test_the_rule_decides_by_the_features_of_public_points(tmp_path):
    points = np.random.default_rng(0).normal(size=(120, 4)).astype(np.float32)
    np.savez(tmp_path / "points.npz", x=points)
    priced = run_plan_command("--model-share", "auto", "--public", str(tmp_path / "points.npz"))
    result = json.loads(priced.stdout)
    assert result["plan"]["model_share"] == MAX_TRAINING_SHARE
    assert result["plan"]["outlook"] is None
    alternatives = {option["name"]: option for option in result["alternatives"]}
    assert alternatives["label alone"]["model_share"] == 0
    assert alternatives["beside a private model"]["release"] == "label"


def test_a_small_failure_counts_in_both_directions():
    """Fails if a probability below the rounding of stated masses is dropped."""
    pair = ProbabilisticDisclosure(1e-13).build_dominating_pair()
    assert pair.infinite_masses == (1e-13, 1e-13)
    low = 2e-9
    high = low * math.exp(5)
    stated = {
        "kind": "pld", "losses": [-5.0, math.log((1 - low) / (1 - high))],
        "probabilities": [low, 1 - low],
    }  # fmt: skip
    many = {"kind": "ind_knn", "epsilon": 1e-5, "delta": 9e-11, "count": 10_000}
    price = account({"delta": 1e-8, "releases": [many, stated]})
    failures = 1 - (1 - 9e-13) ** 10_000
    # Hockey stick of failures and the two losses alone, in the direction without to with.
    excess = failures + (1 - failures) * (high - math.exp(price["epsilon"]) * low)
    assert excess <= 1e-8


@pytest.mark.parametrize("epsilon", [200, 1000, 5000])
def test_a_label_filter_without_any_privacy_is_refused_and_does_not_divide_by_zero(epsilon):
    with pytest.raises(InvalidInput, match="Take a larger delta"):
        price({"kind": "ind_knn", "epsilon": epsilon, "release": "label"})


def test_shares_of_a_filter_are_shares_of_its_rdp():
    steps = price(FILTER, {"kind": "gaussian", "sigma": 5.0, "count": 4})["releases"]
    assert [step["share"] for step in steps] == pytest.approx([0.310, 0.690], abs=0.01)
