"""Audits: statistical bounds against exact tails, claims against formulas, attacks, bad input."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import binom
from typer.testing import CliRunner

from vicinal import Store, audit
from vicinal.accounting.budget import zcdp_budget as budget
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
from vicinal.audit.schedule import CONFIDENCE, Attack, run_audits, run_control
from vicinal.cli.main import app
from vicinal.distributed.shard_server import ShardServer
from vicinal.engine.engine import QueryEngine
from vicinal.engine.shard import LocalShardBase
from vicinal.errors import InvalidInput
from vicinal.mechanisms.votes import NoisyVotes
from vicinal.testing import CHARGE_FAULTS, MEMORY_FAULT, charges_broken, remaining_budgets


def run_audit(attack, seconds, confidence=CONFIDENCE, **options):
    return run_audits([attack], seconds, confidence, **options)[0]


# ---------------------------------------------------------------- bounds on the rates of a test


@pytest.mark.parametrize(("successes", "total"), [(0, 5), (3, 5), (5, 5), (17, 40)])
def test_bounds_of_a_rate_invert_the_binomial_tail(successes, total):
    low = compute_lower_rate_bounds(successes, total, 0.05)
    high = 1 - compute_lower_rate_bounds(total - successes, total, 0.05)
    assert binom.sf(successes - 1, total, low) == pytest.approx(0.05) or low == 0 == successes
    assert binom.cdf(successes, total, high) == pytest.approx(0.05) or high == 1


def compute_mu(rates):
    return rates.mu


def compute_error_rate(noise_std=1.0, n_audits=150, mu=1.0):
    """Return the share of small audits of a Gaussian shift whose lower bound exceeds the shift."""
    rng = np.random.default_rng(5)
    absent, present = rng.normal(scale=noise_std, size=(2, n_audits, 100))
    lower_bounds = [
        bound_rates(shifted + mu, unshifted, 0.9, compute_mu).mu
        for shifted, unshifted in zip(present, absent, strict=True)
    ]
    return np.mean(np.array(lower_bounds) > mu)


def test_small_audits_are_wrong_as_seldom_as_they_say_and_that_check_can_fail():
    assert compute_error_rate() <= 0.1
    assert compute_error_rate(noise_std=0.5) > 0.3


@pytest.mark.parametrize("probabilities", [(0.5, 0.9), (0.55, 0.6), (0.97, 0.97)])
def test_equal_coins_have_the_heaviest_tail(probabilities):
    """The bound on the difference of both rates holds for unequal rates, by exact tails."""
    runs, failure = 30, 0.05
    distribution = np.convolve(*(binom.pmf(np.arange(runs + 1), runs, p) for p in probabilities))
    lows = compute_lower_rate_bounds(np.arange(2 * runs + 1), 2 * runs, failure)
    assert distribution[lows > sum(probabilities) / 2].sum() <= failure


def test_many_scores_prove_nearly_all_of_a_shift_and_equal_errors_are_bounded_by_their_sum():
    rng = np.random.default_rng(1)
    rates = bound_rates(
        rng.normal(size=50_000) + 0.3, rng.normal(size=50_000), 1 - 1e-6, compute_mu
    )
    assert rates.equal_errors
    assert 0.24 < rates.mu <= 0.3
    rng = np.random.default_rng(0)
    rates = bound_rates(
        rng.normal(size=200_000) + 1, rng.normal(size=200_000), 1 - 1e-6, compute_mu
    )
    assert 0.93 < rates.mu <= 1


def test_epsilon_of_rates_is_the_better_direction():
    rates = RateBounds(power=0.5, false_positive_rate=0.1)
    assert rates.bound_epsilon(0.1) == pytest.approx(math.log(0.4 / 0.1))
    assert RateBounds(0.9, 0.5).bound_epsilon(0.1) == pytest.approx(math.log(0.4 / 0.1))


@pytest.mark.parametrize("scores", [np.zeros(3), np.array([np.nan] * 30)])
def test_scores_that_prove_nothing_are_refused(scores):
    with pytest.raises(InvalidInput):
        bound_rates(scores, scores, 0.9, compute_mu)


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


def test_coins_of_any_chances_below_a_half_more_are_guessed_no_better_than_equal_ones():
    """The bound of one run: the binomial at the largest probability has the heavier upper tail."""
    probabilities = np.linspace(0.5, 0.6, 30)
    n_coins = len(probabilities)
    distribution = np.ones(1)
    for probability in probabilities:
        distribution = np.convolve(distribution, [1 - probability, probability])
    tails = np.cumsum(distribution[::-1])[::-1]
    binomial_tails = binom.sf(np.arange(n_coins + 1) - 1, n_coins, probabilities.max())
    assert (tails <= binomial_tails + 1e-12).all()
    lows = compute_lower_rate_bounds(np.arange(n_coins + 1), n_coins, 0.05)
    assert distribution[lows > probabilities.max()].sum() <= 0.05


def test_guesses_prove_no_more_than_the_gaussian_shift_that_is_there():
    """By the exact distribution: a guess about a Gaussian shift is right with rate Phi(mu / 2)."""
    for mu in (0.2, 0.8, 2.0):
        rights = np.arange(401)
        lows = compute_lower_rate_bounds(rights, 400, 0.05)
        proved = 2 * ndtri(np.maximum(lows, 0.5))
        assert binom.pmf(rights[proved > mu], 400, ndtr(mu / 2)).sum() <= 0.05


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


def test_one_run_catches_what_shows_in_few_canaries():
    found = audit.audit_in_one_run(IndKNNAudit(2, epsilon=8.0), canaries=2500, confidence=0.999)
    assert [control.name for control in found.controls if not control.caught] == []
    assert found.is_consistent


# ---------------------------------------------------------------- charges, exactly

BROKEN_CHARGES = [*CHARGE_FAULTS, MEMORY_FAULT]


@pytest.mark.parametrize("name", ["votes", "votes-return", "vectors", "vectors-sparse", "size",
                                  "evaluation", "restart", "total", "model", "model-labels",
                                  "model-vectors", "labels-alone", "count",
                                  "shards"])  # fmt: skip
def test_charges_are_met_to_the_last_digit_and_every_broken_one_is_seen(name):
    trial = audit.list_all_attacks(IndKNNAudit(3))[name]()
    most = trial.claim.max_total_shift_mu
    assert most * (1 - 1e-8) < trial.total_shift_mu <= most
    assert trial._worlds.has_equal_outputs
    broken = {
        k: v for k, v in trial.create_controls().items() if k in BROKEN_CHARGES or "charged" in k
    }
    assert broken
    assert [k for k, version in broken.items() if not version.exceeds_max_shift] == []


def test_a_model_that_neither_charges_nor_stops_is_contradicted():
    """An attack on the noise alone missed this fault: it proved .208 of the claimed .224."""
    control = IndKNNAudit(3).build_model_attack(share=0.7, refreshes=0).create_controls()
    broken = control["training neither charged nor stopped"]
    found = run_audit(broken, 0.0, controls=False)
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


class Shift(Attack):
    """A Gaussian shift, with a claim that may be too small."""

    mechanism, scenario = "shift", "anywhere"

    def __init__(self, shift, claim, block=100):
        self.shift, self.claim, self.block = shift, GaussianClaim(claim, 1e-5), block
        self.rng, self.broken = np.random.default_rng(3), {}

    def compute_scores(self, present):
        return self.rng.normal(size=self.block) + self.shift * present

    def create_controls(self):
        return self.broken


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
    """Re-enrolled subjects, budgets nearly spent, many records, two labels."""
    found = audit.list_all_attacks(IndKNNAudit(2))
    assert {"votes", "votes-two-labels", "votes-return", "vectors-return", "labels-alone"} < set(
        found
    )
    further = {"count", "model", "screening", "pate", "size", "evaluation", "total", "shards"}
    assert further < set(found)
    assert "budget nearly spent" in found["votes-return"]().scenario
    assert "many records" in found["votes"]().scenario


def test_broken_versions_stop_when_they_are_caught():
    trial = Shift(1.0, 1.0)
    trial.broken = {"far": Shift(4.0, 1.0), "near": Shift(1.0, 1.0)}
    found = run_audit(trial, math.inf, max_runs=3200)
    assert found.is_consistent
    assert [(c.name, c.caught, c.runs) for c in found.controls] == [
        ("far", True, 100), ("near", False, 3200),
    ]  # fmt: skip
    assert found.runs == 3200


def run(*arguments):
    return CliRunner().invoke(app, ["audit", *map(str, arguments)])


def test_the_command_says_what_it_measured_and_what_it_would_have_seen(tmp_path):
    plan = tmp_path / "plan.json"
    plan.write_text('{"delta": 1e-5, "releases": [{"kind": "gnmax", "sigma": 40, "count": 9}]}')
    found = run(plan, "--minutes", 1e-3, "--confidence", 0.999, "--json")
    assert found.exit_code == 0, found.output
    (claim,) = json.loads(found.stdout)["claims"]
    assert 0 < claim["lower"] <= claim["claim"]
    assert claim["ratio"] == claim["lower"] / claim["claim"]
    assert all(control["caught"] for control in claim["controls"])
    assert "would have been seen" in run(plan, "--minutes", 1e-3).stdout


def test_one_run_of_a_few_canaries_contradicts_nothing_and_says_that_it_tells_little():
    found = run("--one-run", "--canaries", 8, "--json")
    assert found.exit_code == 4, found.output
    (claim,) = json.loads(found.stdout)["claims"]
    assert claim["local"]
    assert claim["lower"] <= claim["claim"]
    assert not all(control["caught"] for control in claim["controls"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("missing.json", "--one-run"), "not a file"),
        (("missing.json",), "cannot be read"),
        (("--minutes", "0"), "--minutes option must be"),
        (("--minutes", "nan"), "--minutes option must be"),
        (("--confidence", "1"), "--confidence option must be"),
        (("--only", "nobody"), "--only option must name"),
    ],
)
def test_bad_input_is_one_clear_line(arguments, words):
    found = run(*arguments)
    assert found.exit_code == 2
    assert words in found.stderr
    assert found.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ("[1, 2]", "must be a JSON object"),
        ("{}", "The plan plan.json: The 'delta' field is missing."),
        ('{"delta": 2, "releases": [{"kind": "gaussian", "sigma": 3}]}', "The 'delta' field"),
        ('{"delta": NaN, "releases": [{"kind": "gaussian", "sigma": 3}]}', "not valid JSON"),
        ('{"delta": 1e-5, "releases": [{"kind": "gaussian", "sigma": -1}]}', "sigma' field must"),
        ('{"delta": 1e-5, "releases": [{"kind": "multilabel", "tau": 2, "sigma": 5}]}',
         "no attacks on multilabel"),
    ],
)  # fmt: skip
def test_a_bad_plan_is_one_clear_line_about_the_file(tmp_path, plan, words):
    """Fails if a field of the file is confused with the command-line flag of the same name."""
    (tmp_path / "plan.json").write_text(plan)
    found = run(tmp_path / "plan.json")
    assert found.exit_code == 2
    assert words in found.stderr
    assert found.stderr.count("\n") == 1


def test_a_report_that_cannot_be_written_is_refused_before_the_audit_and_no_store_is_one_clear_line(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("vicinal.audit.run_audits", None, raising=False)
    found = run("--out", tmp_path / "missing" / "report.json")
    assert found.exit_code == 2
    assert "report.json cannot be written" in found.stderr
    assert not list(tmp_path.iterdir())
    found = run(tmp_path)
    assert found.exit_code == 2
    assert "There is no store at" in found.stderr


def test_too_few_runs_are_not_a_contradiction(monkeypatch, tmp_path):
    plan = tmp_path / "plan.json"
    plan.write_text('{"delta": 1e-5, "releases": [{"kind": "gnmax", "sigma": 40, "count": 9}]}')
    monkeypatch.setattr(audit.AuditResult, "is_conclusive", False)
    found = run(plan, "--minutes", 1e-3)
    assert found.exit_code == 4
    assert "too few runs to find a fault" in found.stdout
    monkeypatch.setattr(audit.AuditResult, "is_consistent", False)
    found = run(plan, "--minutes", 1e-3)
    assert found.exit_code == 1
    assert "CONTRADICTED: 1 of 1" in found.stdout
