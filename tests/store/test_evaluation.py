"""Private evaluation of a store: released counts, charges, and budgets of other subjects."""

import json
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from made_up import NoNoise, rare
from store_tools import copied, left_of, silence_noise, units
from vicinal import Store
from vicinal.accounting.budget import UNITS
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.ledger.ledger import EnrollmentStatus
from vicinal.mechanisms import DeltaSlackAccountant
from vicinal.mechanisms.tally import NoisyTally, TallyPlan
from vicinal.mechanisms.votes import SLACK_SHARE
from vicinal.store.evaluation import Evaluation, compute_binned_auc
from vicinal.store.receipts import SigningKey, create_erasure_receipt
from vicinal.store.status import Presence

pytestmark = pytest.mark.quick

PRIOR = (0.7, 0.3)
X, Y = rare(0, 400, PRIOR[1])
R, _ = rare(1, 100, PRIOR[1])
Q, T = rare(2, 60, PRIOR[1])
IDS = [f"p{i}" for i in range(400)]
PLAN = {
    "classes": [0, 1], "public": R, "n_records": 400, "epsilon": 8.0, "n_queries": 200,
    "model_share": 0,
}  # fmt: skip


@pytest.fixture(scope="module")
def answered_folder(tmp_path_factory):
    """The folder of a closed store with answered queries."""
    path = tmp_path_factory.mktemp("evaluated") / "store"
    with Store.init(path, X, Y, IDS, **PLAN, class_prior=list(PRIOR)) as store:
        store.predict(Q)
    return path


@pytest.fixture
def store(answered_folder, tmp_path):
    with Store.open(copied(answered_folder, tmp_path)) as opened:
        yield opened


def test_counts_without_noise_are_those_of_people_asked_before(store, monkeypatch):
    silence_noise(store, monkeypatch)
    reply = store.predict(Q)
    # The last five rows were never queried.
    rows, row_labels = np.vstack([Q, X[:5]]), np.concatenate([T, Y[:5]])
    evaluation = store.evaluate(rows, row_labels, [f"v{i}" for i in range(65)], accept_noise=True)
    brute = np.zeros((2, 2))
    np.add.at(brute, (T, reply.labels), 1)
    np.testing.assert_allclose(evaluation.confusion, brute, atol=1e-6)
    assert evaluation.people == pytest.approx(60)
    np.testing.assert_allclose(evaluation.scores.sum(axis=1), brute.sum(axis=1), atol=1e-6)
    exact = roc_auc_score(T == 1, reply.probabilities[:, 1])
    assert compute_binned_auc(*evaluation.scores) == pytest.approx(exact, abs=0.03)
    figures = replace(evaluation, noise=1e-9).figures
    assert figures["accuracy"][0] == pytest.approx((reply.labels == T).mean())


def test_a_person_weighs_one_however_many_rows(store, monkeypatch):
    silence_noise(store, monkeypatch)
    evaluation = store.evaluate(Q, T, ["one"] * 60, accept_noise=True)
    assert evaluation.people == pytest.approx(1, abs=1e-4)
    assert (evaluation.confusion >= 0).all()


def test_asking_private_rows_would_tell_who_was_evaluated(store, monkeypatch):
    """Broken control: private rows used as queries move a later answer by many votes."""
    state = silence_noise(store, monkeypatch)
    account, nearby_query = state.audience.account, Q[:1] + 1e-3
    votes = state.engine.votes
    poor = np.minimum(account.remaining, UNITS // 400)  # enough for little more than one vote each

    def answer_later(row_of_a_person):
        account.remaining[:] = poor
        if row_of_a_person:
            state.engine.answer(votes.kernel.encode(Q[:1]))
        return state.engine.answer(votes.kernel.encode(nearby_query)).votes

    shift = np.abs(answer_later(row_of_a_person=True) - answer_later(row_of_a_person=False)).sum()
    account.remaining[:] = account.durable
    assert shift > 5 * votes.weights.max() / votes.grid.steps, "one person hides, not five"


def test_people_without_records_get_an_account_that_is_kept(store):
    ledger, number = store._store.ledger, store._audience_states["default"].audience.number

    def read_remaining(subject_id):
        query = "SELECT units FROM departed WHERE hash = ? AND audience = ?"
        return store._store.database.read(query, (ledger.hash_id(subject_id), number))[0][0]

    store.evaluate(Q[:1], T[:1], ["visitor"], share=0.4, accept_noise=True)
    remaining_after_one = read_remaining("visitor")
    assert 0.59 * UNITS <= remaining_after_one < 0.61 * UNITS
    store.evaluate(Q[:1], T[:1], ["visitor"], share=0.4, accept_noise=True)
    assert read_remaining("visitor") < 0.21 * UNITS
    store.evaluate(Q[:1], T[:1], ["visitor"], share=0.4, accept_noise=True)
    assert 0 <= read_remaining("visitor") <= 1e-6 * UNITS
    store.add(Q[:1], T[:1], ["visitor"])
    assert units(store, "visitor") <= 1e-6 * UNITS, "enrolling brings nothing back"
    assert store.verify()


def test_whoever_was_evaluated_only_was_never_erased(store, tmp_path):
    ledger, key = store._store.ledger, SigningKey.create(tmp_path / "key")
    store.evaluate(Q[:2], T[:2], ["visitor", IDS[0]], share=0.1, accept_noise=True)
    store.erase([IDS[1]])
    assert store.presence(["visitor", IDS[0], IDS[1], "nobody"]) == Presence(1, 1, 2)
    assert store.facts(curator=True)["private"]["departed"] == 1
    with pytest.raises(PrivacyRefused, match="Not all"):
        create_erasure_receipt(store._store, ["visitor"], key)
    store.evaluate(Q[:2], T[:2], ["visitor", IDS[1]], share=0.1, accept_noise=True)
    assert ledger.find_status(IDS[1]) == EnrollmentStatus.ERASED, "evaluations undo no erasure"
    store.add(Q[:1], T[:1], ["visitor"])
    store.erase(["visitor"])
    assert ledger.find_status("visitor") == EnrollmentStatus.ERASED, "it had a record in between"
    assert create_erasure_receipt(store._store, ["visitor"], key)
    assert store.verify()


def test_a_preview_is_public_and_has_the_narrowest_intervals(store):
    """Fails if a preview charges somebody, or promises more precision than the evaluation has."""
    before = left_of(store)
    preview = store.preview_evaluation(share=1.0)
    assert preview.people == pytest.approx(60)
    assert preview.figures["accuracy"][0] == 1.0
    assert store.preview_evaluation(share=1.0, n_subjects=30).people == pytest.approx(30)
    few = store.preview_evaluation(share=0.01, n_subjects=3)
    assert np.isnan(few.figures["accuracy"]).all()
    assert left_of(store) == before
    assert store.facts()["audiences"]["default"]["evaluations"] == []
    evaluation = store.evaluate(Q, T, [f"v{i}" for i in range(60)], share=1.0)
    assert evaluation.noise == preview.noise
    assert np.ptp(evaluation.figures["accuracy"]) > np.ptp(preview.figures["accuracy"])
    with pytest.raises(InvalidInput, match="n_subjects"):
        store.preview_evaluation(n_subjects=0)


@pytest.mark.parametrize("coverage", ["overall", "per-class"])
def test_a_preview_states_the_outcomes_that_coverage_requires(store, coverage):
    """Fails if a preview ignores `coverage`, or states other numbers than the evaluation."""
    before = left_of(store)
    preview = store.preview_evaluation(share=1.0, coverage=coverage)
    assert left_of(store) == before
    evaluation = store.evaluate(
        Q, T, [f"v{i}" for i in range(60)], share=1.0, accept_noise=True, coverage=coverage
    )
    planned, actual = (
        [(each.name, each.to_dict()["levels"]) for each in result.coverage.histograms]
        for result in (preview, evaluation)
    )
    uncertified = [
        (name, level) for name, levels in actual for level in levels if level["threshold"] is None
    ]
    assert uncertified, "60 outcomes certify too much for this test"
    assert all(level in dict(planned)[name] for name, level in uncertified)
    with pytest.raises(InvalidInput, match="coverage"):
        store.preview_evaluation(coverage="all")


def test_a_refusal_counts_subjects_not_answers(tmp_path):
    """Fails if 60 answers for 3 subjects are judged, and charged, as those for 60 subjects."""
    with Store.init(tmp_path / "several", X, Y, IDS, records_per_subject=20, **PLAN) as store:
        store.predict(Q)
        before = left_of(store)
        with pytest.raises(PrivacyRefused, match="3 are expected"):
            store.evaluate(Q, T, IDS[:60], share=0.5)
        assert left_of(store) == before
        assert store.evaluate(Q, T, IDS[:60], share=0.5, n_subjects=60).people > 0


def test_an_evaluation_is_durable_and_public(store, tmp_path):
    evaluation = store.evaluate(Q, T, [f"v{i}" for i in range(60)], accept_noise=True)
    spent = left_of(store)
    store.close()
    with Store.open(tmp_path / "store") as reopened:
        (stored_figures,) = reopened.facts()["audiences"]["default"]["evaluations"]
        assert stored_figures == json.loads(json.dumps(evaluation.to_dict()))
        assert left_of(reopened) == spent
        assert reopened.verify()


def test_a_store_without_ids_has_nobody_to_charge(tmp_path):
    other = Store.init(tmp_path / "numbered", X, Y, **PLAN)
    with other, pytest.raises(InvalidInput, match="subjects"):
        other.evaluate(Q, T, IDS[:60], accept_noise=True)


def build_tally(sizes=(4, 6), share=0.1, budget=0.04, delta=1e-5):
    """Return a tally without noise, whose accountant of delta slack is new."""
    meter = DeltaSlackAccountant(delta, needs_slack=True)
    return NoisyTally(TallyPlan(sizes, share, budget, delta), NoNoise(), meter)


def test_a_tally_costs_at_most_its_share_and_scales_down_to_what_is_left():
    meter = DeltaSlackAccountant(1e-5, needs_slack=True)
    tally = NoisyTally(TallyPlan((4, 6), 0.1, 0.04, 1e-5), NoNoise(), meter)
    remaining = np.array([UNITS, UNITS // 1000, 0, UNITS], dtype=np.int64)
    cells = np.array([[0, 0], [1, 1], [2, 2], [3, 5], [3, 4]])
    sums = tally.contribute_and_charge(cells, np.array([0, 1, 2, 3, 3]), remaining)
    assert meter.spent == 0, "the grid costs what is published"
    first, second = tally.publish(sums)
    assert remaining[0] >= 0.9 * UNITS - 1
    assert remaining[0] == pytest.approx(0.9 * UNITS, rel=1e-6)
    assert 0 <= remaining[1] < 1e-6 * UNITS
    assert remaining[2] == 0
    assert first[0] == 1
    assert 0 < first[1] < 0.2
    assert first[2] == 0
    np.testing.assert_allclose([first[3], second[4], second[5]], [1, 0.5, 0.5])
    assert meter.spent > 0


def test_a_contribution_one_unit_too_expensive_shrinks_in_one_step(monkeypatch):
    """Whatever rounding does to the square root; else the shrinking might never end."""
    tally = build_tally(share=1)
    compute_charge = tally._compute_charge
    for n_rows in range(1, 50):
        full_weight, costs = tally._grid.steps // n_rows, []
        max_charge = compute_charge(n_rows * full_weight) - 1

        def record_charge(n_steps, costs=costs):
            assert len(costs) < 2
            costs.append(compute_charge(n_steps))
            return costs[-1]

        monkeypatch.setattr(NoisyTally, "_compute_charge", lambda _, steps: record_charge(steps))
        weight, cost = tally._fit_row_weight(n_rows, max_charge)
        monkeypatch.undo()
        assert cost == costs[-1] <= max_charge
        assert full_weight * (1 - 3e-9) - 2 < weight < full_weight


def test_weight_and_charge_follow_from_budget_and_number_of_rows_alone():
    """Coverage relies on it: a weight that depends on the cells depends on the scores."""
    tally = build_tally()
    spread = np.array([[0, 0], [1, 3], [3, 5]])
    together = np.array([[2, 4]] * 3)
    for budget in (UNITS, UNITS // 50, UNITS // 1000, 0):
        remaining = np.full(2, budget, dtype=np.int64)
        sums = tally.contribute_and_charge(
            np.concatenate([spread, together]), np.repeat([0, 1], 3), remaining
        )
        assert remaining[0] == remaining[1]
        first, second = np.split(sums, [4])
        weight = first[2]
        assert first.tolist() == [weight // 3, weight // 3, weight, weight // 3]
        assert second.tolist() == [weight // 3, 0, 0, weight // 3, weight, weight // 3]
        price = 2 * float(weight) ** 2 / (2 * tally.scale**2 * tally.plan.budget)
        assert price * UNITS <= budget - remaining[1] <= 0.1 * UNITS


@pytest.mark.quick
@pytest.mark.parametrize(
    ("n_tables", "delta"), [(16, 1e-12), (32, 1e-12), (128, 1e-10), (1000, 1e-9)]
)
def test_no_number_of_tables_makes_a_charge_negative(n_tables, delta):
    """With 32 tables the squared norm can exceed int64. Exact, by integers and fractions."""
    budget = 4.0
    tally = build_tally((4,) * n_tables, 1.0, budget, delta)
    budgets = [UNITS, UNITS // 2, UNITS, UNITS // 1000]
    remaining = np.array(budgets, dtype=np.int64)
    cells = np.tile(np.arange(4)[:, np.newaxis], (1, n_tables))
    sums = tally.contribute_and_charge(cells, np.arange(4), remaining).reshape(n_tables, 4)
    for slot, weight in enumerate(sums[0].tolist()):
        loss = Fraction(n_tables * weight**2, 2 * tally.scale**2) / Fraction(budget)
        charged = budgets[slot] - int(remaining[slot])
        assert loss * UNITS <= charged <= loss * UNITS * (1 + Fraction(1, 10**12)) + 1
        assert charged <= budgets[slot]
        assert charged > 0.99 * budgets[slot]


def test_however_often_a_person_is_evaluated_one_budget_pays():
    """The signal of a subject in all tallies together, in noise scales, is at most sqrt(2 B)."""
    budget, remaining = 4.2, np.array([UNITS], dtype=np.int64)
    squared_signal = 0.0
    for _ in range(15):
        meter = DeltaSlackAccountant(1.0, needs_slack=False)
        tally = NoisyTally(TallyPlan((2, 2), 0.1, budget, 1e-5), NoNoise(), meter)
        sums = tally.contribute_and_charge(np.array([[0, 1]]), np.array([0]), remaining)
        tables = tally.publish(sums)
        squared_signal += sum(
            float((table / tally.noise) @ (table / tally.noise)) for table in tables
        )
    assert 0.999 * 2 * budget < squared_signal <= 2 * budget


@pytest.mark.parametrize("sizes", [(4,), (4, 6)])
def test_a_tally_that_could_not_be_published_is_refused_before_it_charges(sizes):
    """Fails if subjects could pay for sums whose noise the slack of delta no longer allows."""
    meter = DeltaSlackAccountant(1e-5, needs_slack=True)

    def create_publication():
        tally = NoisyTally(TallyPlan(sizes, 0.1, 0.04, 1e-5), NoNoise(), meter)
        return partial(tally.publish, np.zeros(sum(sizes), dtype=np.int64))

    create_publication()()
    slack = meter.spent
    meter.resume(SLACK_SHARE * 1e-5 - 1.1 * slack)
    create_publication()()
    meter.resume(SLACK_SHARE * 1e-5 - 0.9 * slack)
    with pytest.raises(PrivacyRefused, match="1 % of delta"):
        create_publication()


def test_a_tally_of_nobody_has_tables():
    tally = build_tally((4,))
    nothing = np.zeros(0, dtype=np.int64)
    (table,) = tally.publish(tally.contribute_and_charge(nothing.reshape(0, 1), nothing, nothing))
    assert table.shape == (4,)


def test_a_tally_takes_shares_from_a_millionth():
    assert build_tally((4,), 1e-6, 1.0).noise > 700  # sqrt(1 / (2 * 1e-6))
    for share in (0.9e-6, 1.1):
        with pytest.raises(InvalidInput, match="share"):
            build_tally((4,), share, 1.0)


def test_bins_that_may_be_noise_alone_have_no_observed_share():
    """Fails if the report shows a share of classes in a bin in which noise has counted subjects."""
    scores = np.array([[70.0, 50.0], [40.0, 5.0]])  # sums of 110 and 55, with noise of 20 each
    means = np.array([0.3, 0.8])
    noise = 20 / np.sqrt(2)
    evaluation = Evaluation(["no", "yes"], np.eye(2), scores, means, noise=noise, share=0.1)
    first, second = evaluation.calibration
    assert first == pytest.approx((0.3, 40 / 110, 110))
    assert np.isnan(second[1])
    assert evaluation.to_dict()["calibration"][1][1] is None
