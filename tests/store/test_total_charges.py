"""Everything that is charged reaches the total: trainings, evaluations, blocks broken off."""

import math

import numpy as np
import pytest

import store_tools as tools
from made_up import raising
from store_tools import PEOPLE, PLAN, Q, completed_change, make, points
from vicinal.accounting.budget import UNITS, gdp_delta
from vicinal.errors import PrivacyRefused
from vicinal.ledger.total import TotalFilter
from vicinal.mechanisms.votes import SLACK_SHARE
from vicinal.noise import NoiseSource
from vicinal.planning.guarantees import compute_total_budget
from vicinal.store import Query, Store

pytestmark = pytest.mark.quick

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


@pytest.mark.parametrize("reopened", [False, True])
def test_trainings_reach_the_total(tmp_path, reopened):
    store = Store.init(
        tmp_path / "store", tools.X, tools.Y, tools.PEOPLE, classes=range(3),
        public=np.vstack([tools.R] * 4), epsilon_total=8.0, **MODEL,
    )  # fmt: skip
    assert_total_paid(store)
    before = left_of_total(store).sum()
    if reopened:
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
        store.evaluate(
            Q[:6], points(60, 2)[1][:6], tools.PEOPLE[:12:2], share=1.0, accept_noise=True
        )
        assert left_of_total(store).sum() < before
        assert_total_paid(store)


def breaking_noise(monkeypatch, store, name):
    """Let the noise of an audience's votes fail, after its people were charged."""
    noise = store._audience_states[name].engine.votes.noise_source
    drawn = type(noise).discrete_gaussian

    def broken(self, *args):
        if self is noise:
            raise MemoryError
        return drawn(self, *args)

    monkeypatch.setattr(type(noise), "discrete_gaussian", broken)


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
