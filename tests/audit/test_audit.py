"""Audits: statistical bounds against exact tails, claims against formulas, attacks, bad input."""

import json
import math
from dataclasses import replace
from functools import partial
from operator import attrgetter

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from audit_tools import Shift
from command_line import invoked
from vicinal import Store, audit
from vicinal.accounting.budget import zcdp_budget as budget
from vicinal.audit import schedule
from vicinal.audit._attacks import NoisySGDAttack, compute_first_class_probabilities
from vicinal.audit.catalogue import (
    list_plan_attacks,
    list_store_attacks,
    list_unaudited_attacks,
    list_unaudited_releases,
    list_vector_attacks,
)
from vicinal.audit.claims import (
    GaussianClaim,
    PlanClaim,
    RateBounds,
    bound_rates,
    compute_lower_rate_bounds,
    create_ind_knn_claim,
)
from vicinal.audit.ind_knn import IndKNNAudit
from vicinal.audit.interactions import REFERENCE_COSINE, compute_directions
from vicinal.audit.schedule import CONFIDENCE, run_audits, run_control
from vicinal.distributed.shard_server import ShardServer
from vicinal.engine.engine import QueryEngine
from vicinal.engine.shard import LocalShardBase
from vicinal.errors import InvalidInput
from vicinal.mechanisms.votes import NoisyVotes
from vicinal.testing import MEMORY_FAULT, charges_broken, remaining_budgets


def run_audit(attack, seconds, confidence=CONFIDENCE, **options):
    return run_audits([attack], seconds, confidence, **options)[0]


# ---------------------------------------------------------------- bounds on the rates of a test


@pytest.mark.parametrize(("successes", "total"), [(0, 5), (3, 5), (5, 5), (17, 40)])
def test_bounds_of_a_rate_invert_the_binomial_tail(successes, total):
    low = compute_lower_rate_bounds(successes, total, 0.05)
    high = 1 - compute_lower_rate_bounds(total - successes, total, 0.05)
    assert binom.sf(successes - 1, total, low) == pytest.approx(0.05) or low == 0 == successes
    assert binom.cdf(successes, total, high) == pytest.approx(0.05) or high == 1


COMPUTE_MU = attrgetter("mu")


def compute_error_rate(noise_std=1.0, n_audits=150, mu=1.0):
    """Return the share of small audits of a Gaussian shift whose lower bound exceeds the shift."""
    rng = np.random.default_rng(5)
    absent, present = rng.normal(scale=noise_std, size=(2, n_audits, 100))
    lower_bounds = [
        bound_rates(shifted + mu, unshifted, 0.9, COMPUTE_MU).mu
        for shifted, unshifted in zip(present, absent, strict=True)
    ]
    return np.mean(np.array(lower_bounds) > mu)


def test_small_audits_are_wrong_as_seldom_as_they_say_and_that_check_can_fail():
    assert compute_error_rate() <= 0.1
    assert compute_error_rate(noise_std=0.5) > 0.3


@pytest.mark.parametrize(
    "probabilities",
    [
        np.repeat([0.5, 0.9], 30),
        np.repeat([0.55, 0.6], 30),
        np.repeat([0.97, 0.97], 30),
        np.linspace(0.5, 0.6, 30),
        *(np.repeat(ndtr(mu / 2), 400) for mu in (0.2, 0.8, 2.0)),
    ],
)
def test_a_lower_bound_holds_for_coins_of_unequal_probabilities(probabilities):
    """By exact tails: two rates, the canaries of one run, and guesses about a Gaussian shift."""
    n_coins, failure = len(probabilities), 0.05
    distribution = np.ones(1)
    for probability in probabilities:
        distribution = np.convolve(distribution, [1 - probability, probability])
    lows = compute_lower_rate_bounds(np.arange(n_coins + 1), n_coins, failure)
    assert distribution[lows > probabilities.mean() + 1e-12].sum() <= failure


@pytest.mark.parametrize(
    ("n_runs", "mu", "min_proved", "equal_errors"),
    [(50_000, 0.3, 0.24, True), (200_000, 1, 0.93, False)],
)
def test_many_scores_prove_nearly_all_of_a_shift(n_runs, mu, min_proved, equal_errors):
    rng = np.random.default_rng(1)
    rates = bound_rates(rng.normal(size=n_runs) + mu, rng.normal(size=n_runs), 1 - 1e-6, COMPUTE_MU)
    assert min_proved < rates.mu <= mu
    assert rates.equal_errors == equal_errors


def test_epsilon_of_rates_is_the_better_direction():
    rates = RateBounds(power=0.5, false_positive_rate=0.1)
    assert rates.bound_epsilon(0.1) == pytest.approx(math.log(0.4 / 0.1))
    assert RateBounds(0.9, 0.5).bound_epsilon(0.1) == pytest.approx(math.log(0.4 / 0.1))


@pytest.mark.parametrize("scores", [np.zeros(3), np.array([np.nan] * 30)])
def test_scores_that_prove_nothing_are_refused(scores):
    with pytest.raises(InvalidInput):
        bound_rates(scores, scores, 0.9, COMPUTE_MU)


# ---------------------------------------------------------------- claims

ALARMS = [0.001, 0.02, 0.3, 0.5, 0.9]


@pytest.mark.parametrize("alarms", ALARMS)
def test_plans_claim_what_the_gaussian_and_the_likelihood_ratio_do(alarms):
    plan = {"delta": 1e-5, "releases": [{"kind": "gaussian", "sigma": 1.25}]}
    exact = GaussianClaim(0.8, 1e-5).bound_power(alarms)
    assert exact <= PlanClaim(plan).bound_power(alarms) <= exact * 1.003
    # The claim is evaluated in the tested direction; the other direction would give a looser one.
    plan = {"delta": 1e-5, "releases": [{"kind": "gaussian", "sigma": 0.8, "gamma": 0.2}]}
    exact = 0.8 * alarms + 0.2 * ndtr(ndtri(alarms) + 1.25)
    assert exact <= PlanClaim(plan).bound_power(alarms) <= exact * 1.003


def test_an_attack_on_gradients_without_sampling_has_finite_ratios_and_no_control_of_sampling():
    attack = NoisySGDAttack(gamma=1.0)
    assert np.isfinite(attack.compute_scores(present=True)).all()
    assert set(NoisySGDAttack().create_controls()) - set(attack.create_controls()) == {
        "everybody sampled"
    }


def test_the_advantage_of_a_plan_is_its_total_variation():
    plan = {"delta": 1e-5, "releases": [{"kind": "gaussian", "sigma": 0.8, "gamma": 0.2}]}
    exact = 0.2 * (2 * ndtr(0.625) - 1)
    assert exact <= PlanClaim(plan).advantage <= exact * 1.001
    assert GaussianClaim(1.25, 1e-5).advantage == pytest.approx(2 * ndtr(0.625) - 1)


@pytest.mark.parametrize(
    "classes", [2, *(pytest.param(c, marks=pytest.mark.slow) for c in (3, 10))]
)
@pytest.mark.parametrize("ahead", [-1.0, 0.0, 1.0, 2.5])
def test_a_label_keeps_the_claim_of_the_votes_behind_it(classes, ahead):
    """One label that costs a whole budget, by the exact distribution of the winning class.

    With two classes the claim is nearly tight.
    """
    audit_settings = IndKNNAudit(classes)
    votes = np.zeros((2, classes))
    votes[:, 1:], votes[1, 0] = ahead, audit_settings._find_affordable_label_shift()
    absent, present = compute_first_class_probabilities(votes).tolist()
    claim = create_ind_knn_claim(audit_settings._create_plan("label"))
    assert present <= claim.bound_power(absent)
    assert 1 - absent <= claim.bound_power(1 - present)
    tightness = (ndtri(present) - ndtri(absent)) / claim.bound_mu(absent)
    assert classes > 2 or tightness > 0.75


# ---------------------------------------------------------------- one run


def test_canaries_lie_apart():
    axes = compute_directions(3000, 1.0).astype(np.float64)
    nearest = (axes @ axes.T - np.eye(len(axes))).max()
    assert nearest <= 0.5 + 1e-6 < REFERENCE_COSINE


@pytest.mark.parametrize("kind", [{}, {"release": "label"}, {"target_spec": {"bounds": (-1, 3)}}])
def test_canaries_are_local_and_one_that_is_not_is_seen(kind):
    """Fails if the private sum beside a canary may depend on the coin of another canary."""
    found = audit.audit_in_one_run(IndKNNAudit(2), canaries=300, controls=False, **kind)
    assert found.is_local
    assert found.is_consistent
    with charges_broken(MEMORY_FAULT):
        found = audit.audit_in_one_run(IndKNNAudit(2), canaries=300, controls=False, **kind)
    assert not found.is_consistent
    assert found.mu_lower_bound == 0


# ---------------------------------------------------------------- charges, exactly


def test_a_model_that_neither_charges_nor_stops_is_contradicted():
    """An attack on the noise alone missed this fault: it proved .208 of the claimed .224."""
    attack = IndKNNAudit(3).build_model_attack(share=0.7, refreshes=0)
    fault = "training neither charged nor stopped"
    attack._faults = {fault: attack._faults[fault]}
    found = run_audit(attack.create_controls()[fault], 0.0, controls=False)
    assert not found.is_consistent
    assert found.total_shift_mu > found.max_total_shift_mu


def test_what_leaves_beside_the_noisy_sums_is_seen(monkeypatch):
    """Fails if answers may contain values that do not follow from noisy sums and public data."""
    honest = QueryEngine.answer

    def telling(engine, *args, **named):
        found = honest(engine, *args, **named)
        return replace(found, noise=found.noise + len(engine.shard.ledger.remaining))

    monkeypatch.setattr(QueryEngine, "answer", telling)
    for target in (None, {"bounds": (-1, 3)}):
        found = run_audit(IndKNNAudit(3).build_votes_attack(target), 0.0, controls=False)
        assert not found.is_consistent
        assert found.mu_lower_bound > found.claimed_mu


def test_what_a_store_says_beside_its_answers_is_seen(monkeypatch):
    honest = Store.predict_many

    def telling(store, queries):
        known = len(remaining_budgets(store))
        return [replace(reply, charged=known) for reply in honest(store, queries)]

    assert run_audit(IndKNNAudit(3).build_restart_attack(), 0.0, controls=False).is_consistent
    monkeypatch.setattr(Store, "predict_many", telling)
    assert not run_audit(IndKNNAudit(3).build_restart_attack(), 0.0, controls=False).is_consistent


def test_a_course_that_follows_from_private_things_is_seen(monkeypatch):
    """Fails if a noise scale may depend on the enrolled subjects."""
    honest = NoisyVotes.prepare_release

    def following(votes, noise):
        known = sum(len(shard.ledger.remaining) for shard in here)
        return honest(votes, noise * (1 + 1e-3 * known))

    here = []
    charged = LocalShardBase.charge_and_sum

    def seen(shard, release, queries, thresholds):
        here[:] = [shard]
        return charged(shard, release, queries, thresholds)

    monkeypatch.setattr(LocalShardBase, "charge_and_sum", seen)
    trial = IndKNNAudit(3).build_votes_attack()
    assert trial._worlds.has_equal_outputs
    monkeypatch.setattr(NoisyVotes, "prepare_release", following)
    assert not IndKNNAudit(3).build_votes_attack()._worlds.has_equal_outputs


def test_what_has_no_trial_is_named_and_a_plan_without_worlds_is_refused():
    facts = facts_of(model_share=0.3, neighbor_count="private")
    listed = list_unaudited_attacks(facts, {"default": {"votes", "model"}})
    assert "count (default)" in listed
    assert not {"votes (default)", "model (default)"} & set(listed)
    plan = {"delta": 1e-5, "releases": [{"kind": "multilabel", "tau": 2.0, "sigma": 20.0}]}
    with pytest.raises(InvalidInput, match="no attacks on multilabel"):
        list_plan_attacks(plan)
    screening = {"kind": "screening", "k": 300, "threshold": 210, "sigma": 85, "gamma": 0.25}
    mixed = {"delta": 1e-5, "releases": [screening, *plan["releases"]]}
    assert list_unaudited_releases(mixed, {"screening"}) == ["multilabel"]
    assert list_unaudited_releases(mixed, set()) == ["screening", "multilabel"]


def test_a_cluster_is_attacked_through_its_shards(monkeypatch):
    """Fails if a fault of shards alone is not detected, or affects the audit of a single store."""
    honest = ShardServer.run_task

    def doubled(server, task):
        found = honest(server, task)
        return 2 * found if type(task).__name__ == "VoteRequest" else found

    monkeypatch.setattr(ShardServer, "run_task", doubled)
    found = list_store_attacks({**facts_of(), "shards": {0: 2}})
    assert not run_audit(found["restart"](), 0.0, controls=False).is_consistent
    assert run_audit(list_store_attacks(facts_of())["restart"](), 0.0, controls=False).is_consistent


# ---------------------------------------------------------------- the attacks on plans and stores


def test_trials_of_a_plan_are_those_of_its_releases():
    plan = {"delta": 1e-5, "releases": [
        {"kind": "screening", "k": 300, "threshold": 210, "sigma": 85, "gamma": 0.25},
        {"kind": "noisy_max", "sigma": 20, "gamma": 0.2},
        {"kind": "ind_knn", "epsilon": 1.0, "release": "label"},
    ]}  # fmt: skip
    modelled = {"kind": "ind_knn", "epsilon": 1.0, "model_share": 0.3}
    assert "model" in list_plan_attacks({"delta": 1e-5, "releases": [modelled]})
    assert set(list_plan_attacks(plan)) == {"screening", "private-knn", "labels", "labels-alone"}


def facts_of(**plan):
    """Return public facts of a made-up store of two classes, with a plan of these parameters."""
    whole = {
        "epsilon": 1.0, "delta": 1e-5, "accounting": "gdp", "release": "votes",
        "neighbor_count": "public", **plan,
    }  # fmt: skip
    return {
        "classes": ["a", "b"], "target": {"kind": "classes"}, "kernel": "cosine",
        "audiences": {"default": {"plan": whole}},
    }  # fmt: skip


def test_a_store_is_attacked_under_its_own_accounting(tmp_path):
    """Fails if the public plan does not state it, or the audit uses another accounting."""
    X = np.random.default_rng(0).normal(size=(60, 3))
    given = {"classes": [0, 1], "public": X[:20] + 1, "n_queries": 5, "n_records": 60}
    with Store.init(tmp_path / "s", X, np.arange(60) % 2, accounting="rdp", **given) as store:
        facts = store.facts()
    assert facts["audiences"]["default"]["plan"]["accounting"] == "rdp"
    claim = list_store_attacks(facts)["votes"]().claim
    assert claim.mu == pytest.approx(math.sqrt(2 * budget(1.0, 1e-5, "rdp")))
    assert claim.mu < list_store_attacks(facts_of())["votes"]().claim.mu


@pytest.mark.parametrize(
    ("plan", "further"),
    [
        ({}, set()),
        ({"neighbor_count": "private", "accounting": "rdp"}, {"count"}),
        ({"model_share": 0.3}, {"model"}),
    ],
)
def test_a_store_is_attacked_where_its_plan_spends(plan, further):
    found = list_store_attacks(facts_of(**plan))
    assert set(found) == {"votes", "votes-two-labels", "votes-return", "restart"} | further
    for name in further:
        trial = found[name]()
        assert run_audit(trial, 0.0, 1 - 1e-10, controls=False).is_consistent


@pytest.mark.parametrize("release", ["votes", "label"])
def test_a_model_of_a_store_is_attacked_in_its_own_release(release):
    trial = list_store_attacks(facts_of(model_share=0.3, release=release))["model"]()
    assert run_audit(trial, 0.0, 1 - 1e-10, controls=False).is_consistent
    trial._faults = {"noise a quarter": trial._faults["noise a quarter"]}
    (control,) = trial.create_controls().values()
    assert run_control("noise", control, 60.0, 0.999).caught


TARGETS = {
    "numbers": {"kind": "bounds", "bounds": {"age": [0, 110], "stay": [0, 30]}},
    "typical": {"kind": "bounds", "bounds": [0, 100], "typical_range": [20, 60]},
    "tau": {"kind": "labels", "labels": ["a", "b", "c", "d"], "tau": 2.0},
}
SURE = 1 - 1e-10


@pytest.mark.parametrize("target", TARGETS)
def test_a_store_of_vectors_is_attacked_in_worlds_of_its_own_targets(target):
    """Fails if vectors leak more than claimed, or an injected fault is not detected."""
    facts = {**facts_of(), "classes": [], "target": TARGETS[target]}
    found = list_store_attacks(facts)
    assert list(found) == ["vectors", "vectors-opposite", "vectors-return", "restart"]
    carried = {name: value for name, value in TARGETS[target].items() if name != "kind"}
    for make in list_vector_attacks(IndKNNAudit(2), carried).values():
        trial = make()
        assert run_audit(trial, 0.0, SURE, controls=False).is_consistent
        for name, control in trial.create_controls().items():
            seen = control.exceeds_max_shift or run_control(name, control, 60.0, 0.999).caught
            assert seen, name


def test_every_mechanism_has_a_row_and_every_world_of_the_list():
    found = audit.list_all_attacks(IndKNNAudit(2))
    assert {"votes", "votes-two-labels", "votes-return", "vectors-return", "labels-alone"} < set(
        found
    )
    further = {"count", "model", "screening", "pate", "size", "evaluation", "total", "shards"}
    assert further < set(found)


def test_broken_versions_stop_when_they_are_caught():
    controls = {"far": Shift(4.0, 1.0), "near": Shift(1.0, 1.0)}
    found = run_audit(Shift(1.0, 1.0, controls), math.inf, max_runs=3200)
    assert found.is_consistent
    assert [(c.name, c.caught, c.runs) for c in found.controls] == [
        ("far", True, 100), ("near", False, 3200),
    ]  # fmt: skip
    assert found.runs == 3200
    assert run_audit(Shift(1.0, 1.0, controls), 0.0, controls=False).controls == ()


def test_every_control_has_an_equal_share_of_the_time(monkeypatch):
    shares = []
    monkeypatch.setattr(schedule._AttackRuns, "time_weight", 1.0)
    monkeypatch.setattr(schedule, "_run_controls", lambda _, share, *__: shares.append(share) or ())
    attacks = [Shift(1.0, 1.0, dict.fromkeys(names)) for names in ("a", "bcd")]
    run_audits(attacks, 1000.0, max_runs=1)
    assert shares[1] == pytest.approx(3 * shares[0])
    assert 490 < sum(shares) < 500


run = partial(invoked, "audit")


def test_the_command_says_what_it_measured_and_what_it_would_have_seen(tmp_path):
    plan = tmp_path / "plan.json"
    plan.write_text('{"delta": 1e-5, "releases": [{"kind": "gnmax", "sigma": 40, "count": 9}]}')
    found = run(plan, "--minutes", 1e-3, "--confidence", 0.999, "--json")
    (claim,) = json.loads(found.stdout)["claims"]
    assert 0 < claim["lower"] <= claim["claim"]
    assert claim["ratio"] == claim["lower"] / claim["claim"]
    assert all(control["caught"] for control in claim["controls"])
    assert "would have been seen" in run(plan, "--minutes", 1e-3).stdout


def test_one_run_of_a_few_canaries_contradicts_nothing_and_says_that_it_tells_little():
    found = run("--one-run", "--canaries", 8, "--json", code=4)
    (claim,) = json.loads(found.stdout)["claims"]
    assert claim["local"]
    assert claim["lower"] <= claim["claim"]
    assert not all(control["caught"] for control in claim["controls"])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("missing.json", "--one-run"), "not a file"),
        (("missing.json",), "cannot be read"),
        (("--minutes", "0"), "--minutes option must be"),
        (("--minutes", "nan"), "--minutes option must be"),
        (("--confidence", "1"), "--confidence option must be"),
        (("--only", "nobody"), "--only option must name"),
        ("[1, 2]", "must be a JSON object"),
        ("{}", "The plan plan.json: The 'delta' field is missing."),
        ('{"delta": 2, "releases": [{"kind": "gaussian", "sigma": 3}]}', "The 'delta' field"),
        ('{"delta": NaN, "releases": [{"kind": "gaussian", "sigma": 3}]}', "not valid JSON"),
        ('{"delta": 1e-5, "releases": [{"kind": "gaussian", "sigma": -1}]}', "sigma' field must"),
        ('{"delta": 1e-5, "releases": [{"kind": "multilabel", "tau": 2, "sigma": 5}]}',
         "no attacks on multilabel"),
    ],
)  # fmt: skip
def test_bad_input_is_one_clear_line(tmp_path, given, words):
    """`given`: arguments, or the text of a plan, whose fields are not confused with options."""
    if isinstance(given, str):
        (tmp_path / "plan.json").write_text(given)
        given = (tmp_path / "plan.json",)
    found = run(*given, code=2)
    assert words in found.stderr
    assert found.stderr.count("\n") == 1


def test_a_report_that_cannot_be_written_is_refused_before_the_audit_and_no_store_is_one_clear_line(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("vicinal.audit.run_audits", None, raising=False)
    found = run("--out", tmp_path / "missing" / "report.json", code=2)
    assert "report.json cannot be written" in found.stderr
    assert not list(tmp_path.iterdir())
    assert "There is no store at" in run(tmp_path, code=2).stderr


def test_too_few_runs_are_not_a_contradiction(monkeypatch, tmp_path):
    plan = tmp_path / "plan.json"
    plan.write_text('{"delta": 1e-5, "releases": [{"kind": "gnmax", "sigma": 40, "count": 9}]}')
    monkeypatch.setattr(audit.AuditResult, "is_conclusive", False)
    assert "too few runs to find a fault" in run(plan, "--minutes", 1e-3, code=4).stdout
    monkeypatch.setattr(audit.AuditResult, "is_consistent", False)
    assert "CONTRADICTED: 1 of 1" in run(plan, "--minutes", 1e-3, code=1).stdout
