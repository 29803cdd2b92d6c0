"""A total over all audiences: a bound on the loss of a subject, even if answers change records.

Everything that is charged reaches it: trainings, evaluations, blocks that were broken off.
"""

import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

import store_tools as tools
from made_up import raising
from store_tools import PEOPLE, PLAN, Q, completed_change, make, points
from vicinal.accounting.budget import UNITS, gdp_delta, gdp_epsilon, zcdp_budget
from vicinal.distributed import split
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.ledger.total import TotalFilter
from vicinal.mechanisms.votes import SLACK_SHARE
from vicinal.noise import NoiseSource
from vicinal.planning.guarantees import compute_total_budget
from vicinal.store import Query, Store

pytestmark = pytest.mark.quick

E = 6.0


@given(st.floats(1e-6, 1.02), st.integers(0, UNITS), st.integers(0, UNITS))
def test_what_is_allowed_costs_no_more_than_what_is_left(ratio, left, units):
    total = TotalFilter.create(E, 1e-5, 0.5)
    total.add_audience(1, 0.5 * ratio)
    (price,) = total.price(1, np.array([units])).tolist()
    assert price >= Fraction(0.5 * ratio) / Fraction(0.5) * units
    assert price <= (ratio + 2**-22) * units + 1
    (most,) = total.compute_max_units(1, np.array([left])).tolist()
    assert 0 <= most <= UNITS
    assert total.price(1, np.array([most]))[0] <= left
    assert most == UNITS or total.price(1, np.array([most + 1]))[0] > left


def ratio_of(store, name):
    """Return the budget of an audience in parts of the total's, exactly."""
    budget = store._audience_states[name].plan.interaction_budget
    return Fraction(budget) / Fraction(compute_total_budget(E, 1e-5))


@pytest.mark.parametrize("seed", range(2))
def test_nobody_pays_more_to_all_audiences_than_the_total(tmp_path, seed):
    """Charges are computed from the budgets of the called audience, before and after each call."""
    rng = np.random.default_rng(seed)
    loud = {**PLAN, "noise_multiplier": 0.5}
    plans = {"one": {**loud, "epsilon": 5.0}, "two": {**loud, "epsilon": 0.7, "delta": 1e-6}}
    store, paid = make(tmp_path / "store", epsilon_total=E, noise_multiplier=0.5), {}

    def left(name):
        return tools.left_of(store, name)

    def charged(name, call):
        before = left(name)
        call()
        after = left(name)
        for who, units in before.items():
            paid[who] = paid.get(who, 0) + ratio_of(store, name) * (units - after[who])

    for step in range(24):
        if step == 3:
            for name, plan in plans.items():
                store.open_audience(name, n_records=300, **plan)
        name = str(rng.choice(store.audiences))
        ask = points(8, rng.integers(1 << 30))[0]
        if store.quota(audience=name).left >= len(ask):
            charged(name, partial(store.predict, ask, audience=name))
        if step % 5 == 4:
            labels = points(8, 0)[1]
            rows, known = Q[:8], [f"person-{i}" for i in range(8)]
            store.predict(rows, audience=name) if store.quota(audience=name).left >= 8 else None
            before = left(name)
            store.evaluate(rows, labels, known, audience=name, share=1.0, accept_noise=True)
            assert all(left(name)[who] <= units for who, units in before.items())
        if step % 6 == 5:
            store.erase(["person-3", "person-4"])
            store.add(*points(3, step), ["person-3", "person-3", f"new {step}"])
            assert store.verify()
            store.close()
            store = Store.open(tmp_path / "store")
    assert len(paid) > 150
    assert max(paid.values()) <= UNITS
    assert max(paid.values()) > 0.9 * UNITS, "the test must reach the bound"
    assert store.facts()["total"]["epsilon"] == E
    store.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_audiences_of_one_batch_share_the_total(tmp_path, request, kind):
    """Fails if the second block is charged before the first has reached the total."""
    ledger = request.getfixturevalue("postgres_url")() if kind == "postgres" else kind
    with make(tmp_path / "store", epsilon_total=4.0, ledger=ledger) as store:
        for name in ("one", "two"):
            store.open_audience(name, n_records=300, **PLAN)
        for at in range(0, 60, 20):
            replies = store.predict_many([Query(Q[at : at + 20], each) for each in store.audiences])
            assert all(reply.charged == 20 for reply in replies)
        total = store._store.ledger.total.audience.account.remaining
        assert (total >= 0).all()
        assert total.min() < UNITS // 100
        assert store.verify()


def test_evaluated_visitors_pay_the_total_and_newcomers_start_from_it(tmp_path):
    with make(tmp_path / "store", epsilon_total=4.0) as store:
        store.open_audience("one", n_records=300, **PLAN)
        rows, labels = Q[:6], points(60, 2)[1][:6]
        for name in store.audiences:
            store.predict(rows, audience=name)
            for _ in range(6):
                store.evaluate(rows, labels, ["v"] * 6, audience=name, share=1.0, accept_noise=True)
        store.add(rows[:1], labels[:1], ["v"])
        book = store._store.ledger
        assert tools.units(store, "v", "one") < UNITS // 100
        left = book.total.audience.account.remaining[book.list_slots(["v"])]
        assert 0 <= left[0] < UNITS // 100
        assert store.verify()


@pytest.mark.parametrize(
    "plan",
    [
        {"release": "label"}, {"accounting": "rdp"}, {"epsilon": 6.1}, {"delta": 2e-5},
        {"simulation_seed": 1}, {"interactions": "public"}, {"interactions": 3},
    ],
)  # fmt: skip
def test_what_a_total_cannot_add_up_is_refused(tmp_path, plan):
    (name,) = plan
    with make(tmp_path / "store", epsilon_total=E, n_queries=5) as store:
        with pytest.raises(InvalidInput, match=name):
            store.open_audience("other", n_records=300, **{**PLAN, **plan})
        assert store.audiences == ("default",)
        assert store.facts()["total"]["epsilon"] == E
        assert store.predict(Q[:1]).charged == 1
    if name != "delta":
        with pytest.raises(InvalidInput, match=name):
            make(tmp_path / "new", epsilon_total=E, **plan)
        assert not (tmp_path / "new").exists()


def test_a_store_with_a_total_has_ten_audiences_and_no_shards(tmp_path):
    with make(tmp_path / "store", epsilon_total=E, n_queries=5) as store:
        for number in range(9):
            store.open_audience(f"{number}", n_records=300, **{**PLAN, "n_queries": 5})
        with pytest.raises(InvalidInput, match="at most 10 audiences"):
            store.open_audience("more", n_records=300, **PLAN)
    with Store.open(tmp_path / "store") as store:  # which reads what each costs the total
        store.predict(Q[:1], audience="8")
    with pytest.raises(InvalidInput, match="cannot be split"):
        split(tmp_path / "store", tmp_path / "cluster", 2)


def test_the_total_is_stated_beside_every_audience(tmp_path):
    with make(tmp_path / "store") as store:
        assert store.facts()["total"]["epsilon"] == 4.0
        store.open_audience("other", n_records=300, **{**PLAN, "epsilon": 2.0})
        total = store.facts()["total"]
        budget = sum(zcdp_budget(each, 0.99e-5) for each in (4.0, 2.0))
        assert total["epsilon"] == pytest.approx(gdp_epsilon(math.sqrt(2 * budget), 0.98e-5))
        assert 4 < total["epsilon"] < 6
        assert not total["capped"]
        for name in store.audiences:
            assert f"together holds: {total['text']}" in str(store.guarantee(name))
        store.open_audience("labels", n_records=300, **{**PLAN, "release": "label"})
        budget += zcdp_budget(4.0, 0.99e-5)
        with_labels = gdp_epsilon(math.sqrt(2 * budget), 0.97e-5)
        assert store.facts()["total"]["epsilon"] == pytest.approx(with_labels)
    with make(tmp_path / "capped", epsilon_total=4.5) as store:
        assert "epsilon 4.5 at delta 1e-05, for all audiences" in str(store.guarantee())


CANARIES, SPARE, ASKED, BOBS, STORES = 150, 8, 10, 60, 3
ASKING = ("ward", "lab", "trial", "insurer")
EPSILON = 8.0


def near(directions, number, rng):
    """Return queries near directions, no two of them the same."""
    rows = np.zeros((len(directions) * number, 2 * CANARIES + SPARE))
    rows[np.arange(len(rows)), np.repeat(directions, number)] = 1
    rows[:, 2 * CANARIES :] = 0.03 * rng.normal(size=(len(rows), SPARE))
    return rows


def count_right_guesses(folder, seed, **total):
    """Return how often the press guesses right, from its own answers, who of the Anns is there.

    Every Ann is there by a coin. Others ask about her until her budgets end. Where their answers
    speak for her, Bobs are treated, and come back as records: about them the press asks.
    """
    rng = np.random.default_rng(seed)
    is_present = rng.random(CANARIES) < 0.5
    rows, reference = (
        near(np.flatnonzero(is_present), 1, rng),
        near(np.arange(2 * CANARIES), 1, rng),
    )
    plan = {
        "n_queries": ASKED * CANARIES, "n_records": 300, "min_similarity": 0.9,
        "noise_multiplier": 0.3, "epsilon": EPSILON, "model_share": 0,
    }  # fmt: skip
    press = {**plan, "n_queries": CANARIES, "epsilon": 0.5, "noise_multiplier": 0.5}
    subject_ids = [f"ann {i}" for i in range(len(rows))]
    with Store.init(
        folder, rows, np.ones(len(rows), int), subject_ids, classes=range(2), public=reference,
        **press, **total,
    ) as store:  # fmt: skip
        votes = np.zeros(CANARIES)
        for name in ASKING:
            store.open_audience(name, **plan)
            reply = store.predict(near(np.arange(CANARIES), ASKED, rng), audience=name)
            votes += reply.votes[:, 1].reshape(CANARIES, ASKED).sum(axis=1)
        treated = np.flatnonzero(votes > votes.mean())
        bobs = near(np.repeat(CANARIES + treated, BOBS), 1, rng)
        store.add(bobs, np.ones(len(bobs), int), [f"bob {i}" for i in range(len(bobs))])
        reply = store.predict(near(CANARIES + np.arange(CANARIES), 1, rng))
        seen = reply.votes[:, 1] > reply.votes[:, 1].mean()
        bound = store.guarantee().epsilon
        assert bound == 0.5
    return (seen == is_present).sum()


def bound_of(epsilon):
    """Return how often the best guess is right under Gaussian DP at this epsilon."""
    return norm.cdf(math.sqrt(2 * compute_total_budget(epsilon, 1e-5)) / 2)


@pytest.mark.parametrize("capped", [True, False])
def test_data_that_adapt_tell_no_more_than_the_total(tmp_path, capped):
    """The total holds for the press, whose own epsilon does not; and only where it is enforced.

    450 guesses: four standard errors are .095 at most, and without a total 600 were right .93 of
    the time where the bound is .80.
    """
    total = {"epsilon_total": EPSILON} if capped else {}
    runs = [count_right_guesses(tmp_path / f"{seed}", seed, **total) for seed in range(STORES)]
    right, error = sum(runs) / (STORES * CANARIES), 0.5 / math.sqrt(STORES * CANARIES)
    assert (right <= bound_of(EPSILON) + 4 * error) == capped


# ---------------------------------------------------------------- all charges reach the total

SMALL = {**PLAN, "epsilon": 0.5, "noise_multiplier": 10.0, "n_records": 300}
MODEL = {
    "epsilon": 0.5, "n_queries": 60, "n_records": 300, "model_share": 0.3, "model_refreshes": 1,
}  # fmt: skip


def left_of_total(store):
    """Return the remaining units of all subjects in the total."""
    book = store._store.ledger
    return book.total.audience.account.remaining[book.slot_table.taken_slots]


def assert_total_paid(store):
    """Where the total is large nothing is cut: all that audiences lack was charged to it."""
    book = store._store.ledger
    paid = np.zeros(len(book.slot_table.taken_slots), int)
    for each in book.audiences.values():
        units = each.account.remaining[book.slot_table.taken_slots]
        paid += book.total.price(each.number, UNITS - units)
    assert paid.any()
    assert (UNITS - left_of_total(store) >= paid).all()
    assert store.verify()


def test_trainings_reach_the_total(tmp_path):
    store = Store.init(
        tmp_path / "store", tools.X, tools.Y, PEOPLE, classes=range(3),
        public=np.vstack([tools.R] * 4), epsilon_total=8.0, **MODEL,
    )  # fmt: skip
    assert_total_paid(store)
    before = left_of_total(store).sum()
    store.close()
    store = Store.open(tmp_path / "store")
    assert left_of_total(store).sum() == before
    store.refresh_model()
    assert_total_paid(store)
    assert left_of_total(store).sum() < before
    store.open_audience("other", **MODEL)
    assert_total_paid(store)
    store.close()


def test_people_with_records_pay_the_total_for_their_evaluation(tmp_path):
    with make(tmp_path / "store", epsilon_total=8.0, **SMALL) as store:
        store.predict(Q[:6])
        before = left_of_total(store).sum()
        store.evaluate(Q[:6], points(60, 2)[1][:6], PEOPLE[:12:2], share=1.0, accept_noise=True)
        assert left_of_total(store).sum() < before
        assert_total_paid(store)


class NoiseThatFails(NoiseSource):
    def discrete_gaussian(self, *_):
        raise MemoryError


def breaking_noise(monkeypatch, store, name):
    """Let the noise of an audience's votes fail, after its subjects were charged."""
    votes = store._audience_states[name].engine.votes
    monkeypatch.setattr(votes, "noise_source", NoiseThatFails())


def breaking_total(monkeypatch, store, name):  # noqa: ARG001
    """Let the total fail once, just before it is taken from."""
    account = store._store.ledger.total.audience.account
    whole = account.remaining

    class Breaking(np.ndarray):
        def __setitem__(self, *_):
            account.remaining = whole
            raise MemoryError

    account.remaining = whole.view(Breaking)


def breaking_note(monkeypatch, store, name):  # noqa: ARG001
    """Let the total fail once, when it was taken from and takes note of that."""
    account = store._store.ledger.total.audience.account

    def broken(_):
        del account.note_charged_total
        raise MemoryError

    account.note_charged_total = broken


def dropping_broken(monkeypatch, store, name):
    """Interrupt also the step after a failed block."""
    breaking_noise(monkeypatch, store, name)
    interrupted = raising(KeyboardInterrupt)
    monkeypatch.setattr(type(store._audience_states[name]), "reset_counters", interrupted)


@pytest.mark.parametrize("asked", [["default"], ["default", "two"]], ids=len)
@pytest.mark.parametrize("broken", [breaking_noise, breaking_total, breaking_note, dropping_broken])
def test_what_was_broken_off_reaches_the_total_in_one_commit(tmp_path, monkeypatch, asked, broken):
    with make(tmp_path / "store", epsilon_total=8.0, **SMALL) as store:
        store.open_audience("two", **SMALL)
        links = store._store.database.chain.last.number
        with monkeypatch.context() as patch:
            broken(patch, store, asked[-1])
            with pytest.raises((MemoryError, KeyboardInterrupt)):
                store.predict_many([Query(points(20, 9)[0], name) for name in asked])
        assert store._store.database.chain.last.number == links + 1
        assert store._store.ledger.is_consistent
        slack = [state.slack.spent for state in store._audience_states.values()]
    with Store.open(tmp_path / "store") as store:
        assert_total_paid(store)
        assert [state.slack.spent for state in store._audience_states.values()] == slack
        if broken in (breaking_noise, dropping_broken):
            assert all(tools.units(store, "person-1", name) < UNITS for name in asked)


def test_cuts_that_were_broken_off_are_made_up_for(tmp_path, monkeypatch):
    with make(tmp_path / "store", epsilon_total=4.0) as store:
        store.open_audience("two", **PLAN, n_records=300)
        cut, failed = TotalFilter._cut_units, []

        def broken(self, audience, slots):
            if audience.name == "two" and not failed:
                failed.append(slots)
                raise MemoryError
            cut(self, audience, slots)

        monkeypatch.setattr(TotalFilter, "_cut_units", broken)
        with pytest.raises(MemoryError):
            store.predict(Q[:5])
        assert store.verify()
        assert 0 <= left_of_total(store).min() < UNITS
        store.predict(Q[:5], audience="two")


def test_nothing_is_answered_past_the_total(tmp_path, monkeypatch):
    with make(tmp_path / "store", epsilon_total=4.0) as store:
        price = TotalFilter.price
        monkeypatch.setattr(TotalFilter, "price", lambda *args: price(*args) + UNITS)
        with pytest.raises(PrivacyRefused, match="do not add up"):
            store.predict(Q[:5])
    with Store.open(tmp_path / "store") as store:
        assert store.quota().used == 0
        assert (left_of_total(store) == UNITS).all()


def test_answers_total_and_cuts_are_one_commit_and_the_clock_tells_of_no_cut(tmp_path):
    """A receipt has the clock, and it is private which subjects the total has cut."""
    with make(tmp_path / "store", epsilon_total=6.0, noise_multiplier=0.5) as store:
        store.open_audience("two", **PLAN, n_records=300)
        book, ticks, cut = store._store.ledger, set(), set()
        for row in Q[:40]:
            links, clock = book.database.chain.last.number, book.clock
            before = book.audiences["two"].account.remaining.sum()
            store.predict(row[None])
            assert book.database.chain.last.number == links + 1
            ticks.add(book.clock - clock)
            cut.add(before > book.audiences["two"].account.remaining.sum())
        assert cut == {True, False}
        assert len(ticks) == 1


@pytest.mark.parametrize("total", [{}, {"epsilon_total": 6.0}])
def test_an_answer_that_was_broken_off_moves_the_clock_whoever_was_charged(
    total, tmp_path, monkeypatch
):
    """Fails if a receipt reveals that a subject was near a query without an answer."""

    def moves(row):
        links, clock = book.database.chain.last.number, book.clock
        with tools.broken_off(monkeypatch, NoiseSource, "add_to", error=MemoryError):
            store.predict(row[None])
        store.predict(row[None] + 1e-3)
        return book.database.chain.last.number - links, book.clock - clock

    with make(tmp_path / "store", **total, **SMALL) as store:
        store.open_audience("two", **SMALL)
        book = store._store.ledger
        before = book.audiences["default"].account.remaining.sum()
        somebody = moves(Q[0])
        assert book.audiences["default"].account.remaining.sum() < before
        store.erase(PEOPLE)
        before = book.audiences["default"].account.remaining.sum()
        assert moves(Q[1]) == somebody
        assert book.audiences["default"].account.remaining.sum() == before


@pytest.mark.parametrize(("name", "told"), [("", "more left than"), ("default", "lacks what")])
def test_verify_compares_the_total_with_audiences(tmp_path, name, told):
    with make(tmp_path / "store", epsilon_total=8.0, **SMALL) as store:
        store.open_audience("two", **SMALL)
        store.predict(Q[:5])
        book = store._store.ledger
        (account,) = [each.account for each in book.accounts if each.name == name]
        slot = book.slot_table.slot_of["person-1"]
        with completed_change(book, "test"):
            account.note_charged_total(int(account.remaining[slot]))
            account.remaining[slot] = 0
            account.mark_charged_to_total()
        store._note_change()
        faults = store.verify().faults
        assert faults
        assert all(told in fault for fault in faults)


def test_after_a_lost_history_nobody_has_a_budget_of_an_old_or_a_new_audience(tmp_path):
    with make(tmp_path / "store", epsilon_total=6.0) as store:
        store.backup(tmp_path / "backup")
        store.add(*points(1, 3), ["lost"])
        store.predict(Q[:5])
    with Store.restore(tmp_path / "backup", tmp_path / "again", accept_loss=True) as store:
        assert not store._store.ledger.total.audience.account.remaining.any()
        store.add(*points(1, 3), ["lost"])
        assert tools.units(store, "lost") == 0
        store.open_audience("new", n_records=300, **PLAN)
        assert tools.units(store, "lost", "new") == 0
        assert tools.units(store, "person-1", "new") == 0
        assert store.verify()


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (6.0, 1e-5), (10.0, 1e-9)])
def test_budget_and_grids_of_ten_audiences_fit_the_delta(epsilon, delta):
    slack = 10 * SLACK_SHARE * delta
    budget = compute_total_budget(epsilon, delta)
    assert gdp_delta(math.sqrt(2 * budget), epsilon) + slack <= delta * (1 + 1e-12)


def test_a_total_that_protects_next_to_nobody_has_to_be_meant(tmp_path):
    with pytest.raises(PrivacyRefused, match=r"'epsilon_total' parameter, 1e\+300"):
        make(tmp_path / "store", epsilon_total=1e300)
    assert not (tmp_path / "store").exists()
    with make(tmp_path / "store", epsilon_total=21.0, accept_weak_plan=True) as store:
        assert store.facts()["total"]["epsilon"] == 21.0
