"""Evaluating a store privately: what leaves, who pays, and that nobody else's budget moves."""

import json

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from made_up import NoNoise, rare
from store_tools import copied
from vicinal import Store
from vicinal.accounting.budget import UNITS
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.ledger.ledger import Standing
from vicinal.mechanisms import DeltaSlackAccountant, create_noise_source
from vicinal.mechanisms.tally import NoisyTally, TallyPlan
from vicinal.store.evaluation import Evaluation, compute_binned_auc
from vicinal.store.receipts import SigningKey, erasure_receipt
from vicinal.store.status import Presence

PRIOR = (0.7, 0.3)


def data(size, seed):
    return rare(seed, size, PRIOR[1])


X, Y = data(400, 0)
R, _ = data(100, 1)
Q, T = data(60, 2)
IDS = [f"p{i}" for i in range(400)]


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """A store whose queries have been answered, closed."""
    path = tmp_path_factory.mktemp("evaluated") / "store"
    with Store.init(
        path, X, Y, IDS, classes=[0, 1], public=R, n_records=400, epsilon=8.0, n_queries=200,
        model_share=0,
        class_prior=list(PRIOR),
    ) as store:  # fmt: skip
        store.predict(Q)
    return path


@pytest.fixture
def store(asked, tmp_path):
    with Store.open(copied(asked, tmp_path)) as opened:
        yield opened


def silenced(store, monkeypatch):
    state = store._audience_states["default"]
    monkeypatch.setattr(state.engine.votes, "noise", NoNoise())
    return state


def budgets(store, subjects):
    state = store._audience_states["default"]
    slots = store._parts.ledger.slot_table.find(subjects)
    return state.audience.account.remaining[slots].copy()


def test_counts_without_noise_are_those_of_people_asked_before(store, monkeypatch):
    silenced(store, monkeypatch)
    given = store.predict(Q)
    rows, more = np.vstack([Q, X[:5]]), np.concatenate([T, Y[:5]])  # the last five: never asked
    found = store.evaluate(rows, more, [f"v{i}" for i in range(65)], accept_noise=True)
    brute = np.zeros((2, 2))
    np.add.at(brute, (T, given.labels), 1)
    np.testing.assert_allclose(found.confusion, brute, atol=1e-6)
    assert found.people == pytest.approx(60)
    np.testing.assert_allclose(found.scores.sum(axis=1), brute.sum(axis=1), atol=1e-6)
    exact = roc_auc_score(T == 1, given.probabilities[:, 1])
    assert compute_binned_auc(*found.scores) == pytest.approx(exact, abs=0.03)
    assert _figures(found)["accuracy"] == pytest.approx((given.labels == T).mean())


def _figures(found):
    exact = Evaluation(found.classes, found.confusion, found.scores, found.means, 1e-9, found.share)
    return {name: value for name, (value, _, _) in exact.figures.items()}


def test_a_person_weighs_one_however_many_rows(store, monkeypatch):
    silenced(store, monkeypatch)
    found = store.evaluate(Q, T, ["one"] * 60, accept_noise=True)
    assert found.people == pytest.approx(1, abs=1e-4)
    assert (found.confusion >= 0).all()


def test_asking_private_rows_would_tell_who_was_evaluated(store, monkeypatch):
    """The broken control: rows put to the neighbours move a later answer by many people's votes."""
    state = silenced(store, monkeypatch)
    account, place = state.audience.account, Q[:1] + 1e-3
    votes = state.engine.votes
    poor = np.minimum(account.remaining, UNITS // 400)  # enough for little more than one vote each

    def later(row_of_a_person):
        account.remaining[:] = poor
        if row_of_a_person:
            state.engine.answer(votes.kernel.encode(Q[:1]))
        return state.engine.answer(votes.kernel.encode(place)).votes

    shift = np.abs(later(row_of_a_person=True) - later(row_of_a_person=False)).sum()
    account.remaining[:] = account.durable
    assert shift > 5 * votes.weights.max() / votes.grid.steps, "one person hides, not five"


def test_people_without_records_get_an_account_that_is_kept(store):
    ledger, number = store._parts.ledger, store._audience_states["default"].audience.number

    def left(who):
        query = "SELECT units FROM departed WHERE hash = ? AND audience = ?"
        return store._parts.database.read(query, (ledger.hash(who), number))[0][0]

    store.evaluate(Q[:1], T[:1], ["visitor"], share=0.4, accept_noise=True)
    once = left("visitor")
    assert 0.59 * UNITS <= once < 0.61 * UNITS
    store.evaluate(Q[:1], T[:1], ["visitor"], share=0.4, accept_noise=True)
    assert left("visitor") < 0.21 * UNITS
    store.evaluate(Q[:1], T[:1], ["visitor"], share=0.4, accept_noise=True)
    assert 0 <= left("visitor") <= 1e-6 * UNITS
    store.add(Q[:1], T[:1], ["visitor"])
    assert budgets(store, ["visitor"])[0] <= 1e-6 * UNITS, "enrolling brings nothing back"
    assert store.verify()


def test_whoever_was_evaluated_only_was_never_erased(store, tmp_path):
    ledger, key = store._parts.ledger, SigningKey.create(tmp_path / "key")
    store.evaluate(Q[:2], T[:2], ["visitor", IDS[0]], share=0.1, accept_noise=True)
    store.erase([IDS[1]])
    assert store.presence(["visitor", IDS[0], IDS[1], "nobody"]) == Presence(1, 1, 2)
    assert store.facts(curator=True)["private"]["departed"] == 1
    with pytest.raises(PrivacyRefused, match="Not all"):
        erasure_receipt(store._parts, ["visitor"], key)
    store.evaluate(Q[:2], T[:2], ["visitor", IDS[1]], share=0.1, accept_noise=True)
    assert ledger.standing(IDS[1]) == Standing.ERASED, "an evaluation does not undo an erasure"
    store.add(Q[:1], T[:1], ["visitor"])
    store.erase(["visitor"])
    assert ledger.standing("visitor") == Standing.ERASED, "it had a record in between"
    assert erasure_receipt(store._parts, ["visitor"], key)
    assert store.verify()


def test_an_evaluation_is_durable_and_public(store, tmp_path):
    found = store.evaluate(Q, T, [f"v{i}" for i in range(60)], accept_noise=True)
    spent = budgets(store, IDS)
    store.close()
    with Store.open(tmp_path / "store") as again:
        (kept,) = again.facts()["audiences"]["default"]["evaluations"]
        assert kept == json.loads(json.dumps(found.to_dict()))
        np.testing.assert_array_equal(budgets(again, IDS), spent)
        assert again.verify()


def test_a_store_without_ids_has_nobody_to_charge(tmp_path):
    with (
        Store.init(tmp_path / "numbered", X, Y, classes=[0, 1], public=R, n_records=400) as other,
        pytest.raises(InvalidInput, match="subjects"),
    ):
        other.evaluate(Q, T, IDS[:60], accept_noise=True)


def test_a_tally_costs_at_most_its_share_and_scales_down_to_what_is_left():
    meter = DeltaSlackAccountant(1e-5, needed=True)
    tally = NoisyTally(TallyPlan((4, 6), 0.1, 0.04, 1e-5), NoNoise(), meter)
    remaining = np.array([UNITS, UNITS // 1000, 0, UNITS], dtype=np.int64)
    cells = np.array([[0, 0], [1, 1], [2, 2], [3, 5], [3, 4]])
    sums = tally.collect(cells, np.array([0, 1, 2, 3, 3]), remaining)
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


def test_however_often_a_person_is_evaluated_one_budget_pays():
    """What an attacker can see in all tallies together, in noise scales, is at most sqrt(2 B)."""
    budget, remaining = 4.2, np.array([UNITS], dtype=np.int64)
    seen = 0.0
    for _ in range(15):
        meter = DeltaSlackAccountant(1.0, needed=False)
        tally = NoisyTally(TallyPlan((2, 2), 0.1, budget, 1e-5), NoNoise(), meter)
        tables = tally.publish(tally.collect(np.array([[0, 1]]), np.array([0]), remaining))
        seen += sum(float((table / tally.noise) @ (table / tally.noise)) for table in tables)
    assert 0.999 * 2 * budget < seen <= 2 * budget


def test_a_tally_of_nobody_charges_nobody():
    tally = NoisyTally(
        TallyPlan((4,), 0.1, 1.0, 1e-5),
        create_noise_source(0),
        DeltaSlackAccountant(1e-5, needed=True),
    )
    nothing = np.zeros(0, dtype=np.int64)
    (table,) = tally.publish(tally.collect(nothing.reshape(0, 1), nothing, nothing))
    assert table.shape == (4,)
