"""The durable ledger: framed ids, the register of subjects, accounts and committed charges."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_tools import completed_change
from vicinal.accounting.budget import UNITS
from vicinal.errors import InvalidInput, PrivacyRefused, StorageFailed
from vicinal.ledger import audiences as _audiences
from vicinal.ledger.answers import AnswerBlock
from vicinal.ledger.audiences import PAGE_SLOTS, StoredAccount, find_budget_faults, sum_exactly
from vicinal.ledger.id_encoding import (
    MAX_FRAME_BYTES,
    frame_id,
    frame_ids,
    match_framed_id,
    parse_framed_id,
)
from vicinal.ledger.ledger import EnrollmentStatus, Ledger
from vicinal.ledger.memory import MemoryLedger
from vicinal.ledger.sqlite import SQLiteDatabase

pytestmark = pytest.mark.quick

KEY = bytes(32)
ids = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
)


@given(ids)
def test_a_framed_id_comes_back_and_can_be_found(subject):
    stored = frame_id(subject)
    assert parse_framed_id(stored) == subject
    assert type(parse_framed_id(stored)) is type(subject)
    content = b"<id:" + stored + b"noise>"
    assert match_framed_id(content) is None
    assert match_framed_id(content, 4) == stored


@given(
    st.one_of(
        st.lists(ids, min_size=1),
        st.lists(st.integers(0, 99), min_size=1),
        st.lists(st.sampled_from(["a", "b"]), min_size=1),
        st.lists(st.sampled_from(["a", "<id:s", "50%", "é", "a\nb", ""]), min_size=1),
    )
)
def test_many_ids_are_framed_as_each_alone(subjects):
    assert frame_ids(subjects) == [frame_id(subject) for subject in subjects]


@given(st.lists(ids, min_size=2, max_size=2, unique=True))
def test_no_framed_id_is_part_of_another(pair):
    first, second = map(frame_id, pair)
    assert first not in second


def test_an_id_that_fits_into_no_page_is_refused():
    frame_id("x" * (MAX_FRAME_BYTES - 6))
    assert frame_ids(["x" * (MAX_FRAME_BYTES - 6), "y"])[1] == frame_id("y")
    with pytest.raises(InvalidInput, match="at most"):
        frame_id("x" * (MAX_FRAME_BYTES - 5))
    with pytest.raises(InvalidInput, match="at most"):
        frame_ids(["x" * (MAX_FRAME_BYTES - 5), "y"])
    assert frame_ids([]) == []


@given(st.lists(st.integers(-(2**62), 2**62), max_size=30))
def test_sums_do_not_overflow(numbers):
    assert sum_exactly(np.array(numbers, dtype=np.int64)) == sum(numbers)


def test_freed_slots_are_given_out_again():
    ledger = MemoryLedger()
    assert sorted(ledger.enroll(["a", "b", "c"])) == [0, 1, 2]
    (slot,) = ledger.list_slots(["b", "nobody"])
    ledger.erase(["b", "nobody"])
    assert ledger.enroll(["d"]) == [slot]
    assert ledger.size == 3


def make_account(units=(50, 60, 70)):
    return StoredAccount(np.array(units, dtype=np.int64))


@pytest.mark.parametrize("size", [1, 7, 8, 100])
def test_every_charge_is_found_once_by_any_number_of_threads(monkeypatch, size):
    """Fails if a chunk of the budgets is compared twice or not at all."""
    monkeypatch.setattr(_audiences, "_MIN_COMPARED", 3)
    stored = make_account(range(size, 2 * size))
    charged = np.arange(0, size, 3)
    stored.remaining[charged] -= charged + 1
    stored.note_charged_total(int((charged + 1).sum()))
    charges = stored.collect_charges()
    assert charges.slots.dtype == np.int32
    assert charges.slots.tolist() == charged.tolist()
    assert charges.units.tolist() == [size - 1] * len(charged)
    assert charges.spent == (charged + 1).sum()
    stored.mark_committed(charges)
    assert not len(stored.collect_charges().slots)


@pytest.mark.parametrize(
    ("change", "spent"), [([0, 1, 0], -1), ([-51, 0, 0], 51), ([-5, 0, 0], 4), ([0, 0, 0], 1)]
)
def test_a_budget_that_grows_or_charges_that_do_not_add_up_are_refused(change, spent):
    stored = make_account()
    stored.remaining[:] += change
    stored.note_charged_total(spent)
    with pytest.raises(PrivacyRefused, match="do not add up"):
        stored.collect_charges()


def test_what_was_charged_for_a_block_that_broke_off_stays_charged():
    """Fails if a charge without its note is refunded, or blocks the ledger."""
    stored = make_account()
    assert not stored.recount_charges()
    stored.remaining[:] -= 7
    stored.note_charged_total(14)
    assert stored.recount_charges()
    assert stored.collect_charges().spent == 21


def create_ledger(path):
    return Ledger.create(SQLiteDatabase(path, create=True), KEY)


def reopen(ledger, path):
    ledger.database.close()
    return Ledger(SQLiteDatabase(path), KEY)


def create_filled_ledger(path, n_subjects=20):
    ledger = create_ledger(path)
    with completed_change(ledger, "add"):
        ledger.open_audience("one", "{}")
        ledger.enroll(list(range(n_subjects)))
    return ledger


def charge(ledger, audience, slots, units):
    account = ledger.audiences[audience].account
    account.remaining[slots] -= units
    account.note_charged_total(len(slots) * units)
    block = AnswerBlock(ledger.audiences[audience], b"d" * 16, np.zeros((1, 3)), 0.0, {"anna": 1})
    ledger.commit([block])


@pytest.mark.parametrize("min_bytes", [0, 100, 1 << 20])
def test_budgets_come_back_however_often_charges_were_checkpointed(
    tmp_path, monkeypatch, min_bytes
):
    monkeypatch.setattr(_audiences, "CHECKPOINT_BYTES", min_bytes)
    ledger = create_filled_ledger(tmp_path / "db", n_subjects=3 * PAGE_SLOTS)
    rng = np.random.default_rng(0)
    for step in range(40):
        # Large charges are written to the pages only.
        n_charged = 23_333 if step % 8 == 0 else int(rng.integers(1, 901))
        slots = rng.choice(3 * PAGE_SLOTS, n_charged, replace=False)
        charge(ledger, "one", slots, 12345)
    before = ledger.audiences["one"]
    after = reopen(ledger, tmp_path / "db").audiences["one"]
    np.testing.assert_array_equal(after.account.remaining, before.account.remaining)
    assert after.used == 40
    assert after.analysts["anna"].used == 40
    spent, queries = _audiences.sum_logged_charges(SQLiteDatabase(tmp_path / "db"), after.number)
    assert after.checkpointed + spent == before.n_granted_budgets * UNITS - sum_exactly(
        before.account.remaining
    )
    assert after.checkpointed_queries + queries == 40


def test_a_release_that_is_no_answer_moves_the_clock_on_the_disk(tmp_path):
    """Fails if a ledger that is opened after the release looks older than its witness."""
    ledger = create_filled_ledger(tmp_path / "db")
    with ledger.release(ledger.audiences["one"]):
        ledger.audiences["one"].account.remaining[3] -= 1000
        ledger.audiences["one"].account.note_charged_total(1000)
    after = reopen(ledger, tmp_path / "db")
    assert after.clock == ledger.clock
    assert after.audiences["one"].account.remaining[3] == UNITS - 1000


def test_newcomers_leave_the_log_of_charges_and_budgets_come_back(tmp_path):
    """Fails if a logged charge is applied to a new subject, or lost when pages are written."""
    ledger = create_filled_ledger(tmp_path / "db", n_subjects=PAGE_SLOTS + 20)
    charge(ledger, "one", [3, 4, PAGE_SLOTS + 5], 1000)
    with completed_change(ledger, "erase"):
        ledger.erase([4])
    charge(ledger, "one", [3, 5, PAGE_SLOTS + 5], 77)
    with completed_change(ledger, "add"):
        slots = ledger.enroll(["first", "second"])
    assert slots.tolist() == [PAGE_SLOTS + 20, 4], (
        "the second newcomer gets the slot of the erased subject"
    )
    assert len(ledger.database.read("SELECT seq FROM charges")) == 1, "the log is not emptied"
    charge(ledger, "one", [3, 4], 5)
    before = ledger.audiences["one"].account.remaining.tolist()
    assert before[3:6] == [UNITS - 1082, UNITS - 5, UNITS - 77]
    ledger = reopen(ledger, tmp_path / "db")
    audience = ledger.audiences["one"]
    assert audience.account.remaining.tolist() == before
    assert not list(find_budget_faults(ledger.database, audience, ledger.slot_table.find_unused()))
    with completed_change(ledger, "erase"):
        ledger.erase(["second"])
    assert not ledger.database.read("SELECT seq FROM charges")
    assert reopen(ledger, tmp_path / "db").audiences["one"].account.remaining[4] == 0


def test_coming_back_refills_nothing_for_any_audience(tmp_path):
    ledger = create_filled_ledger(tmp_path / "db")
    charge(ledger, "one", [3], 1000)
    with completed_change(ledger, "audience"):
        ledger.open_audience("two", "{}")
    charge(ledger, "two", [3], 77)
    with completed_change(ledger, "erase"):
        ledger.erase([3, "nobody"])
    ledger = reopen(ledger, tmp_path / "db")
    assert 3 not in ledger.slot_table.slot_of
    assert ledger.find_status(3) == EnrollmentStatus.ERASED
    with completed_change(ledger, "add"):
        (slot,) = ledger.enroll([3])
    assert ledger.audiences["one"].account.remaining[slot] == UNITS - 1000
    assert ledger.audiences["two"].account.remaining[slot] == UNITS - 77
    assert not ledger.database.read("SELECT hash FROM departed WHERE audience > 0")


def test_an_audience_opened_while_somebody_was_away_owes_them_a_budget(tmp_path):
    ledger = create_filled_ledger(tmp_path / "db")
    with completed_change(ledger, "erase"):
        ledger.erase([3])
    with completed_change(ledger, "audience"):
        ledger.open_audience("two", "{}")
    with completed_change(ledger, "add"):
        (slot,) = ledger.enroll([3])
    assert ledger.audiences["two"].account.remaining[slot] == UNITS
    assert ledger.audiences["two"].n_granted_budgets == 20


def test_a_change_that_breaks_off_closes_the_book_and_leaves_the_disk_as_it_was(tmp_path):
    ledger = create_filled_ledger(tmp_path / "db")
    with suppress(ZeroDivisionError), completed_change(ledger, "add"):
        ledger.enroll(["new"])
        raise ZeroDivisionError
    with pytest.raises(StorageFailed, match="Open it again"):
        charge(ledger, "one", [0], 1)
    ledger = reopen(ledger, tmp_path / "db")
    assert "new" not in ledger.slot_table.slot_of
    assert len(ledger.slot_table.slot_of) == 20


def test_history_that_is_lost_spends_everything_and_welcomes_nobody(tmp_path):
    ledger = create_filled_ledger(tmp_path / "db")
    charge(ledger, "one", [3], 1000)
    with completed_change(ledger, "erase"):
        ledger.erase([5])
    with completed_change(ledger, "lost"):
        ledger.spend_all_budgets()
        ledger.enroll([5, "new"])
    ledger = reopen(ledger, tmp_path / "db")
    assert not ledger.audiences["one"].account.remaining.any()
    assert ledger.audiences["one"].checkpointed == 20 * UNITS


def test_a_ledger_refuses_everything_from_the_commit_of_a_change_until_it_is_complete(tmp_path):
    """Whatever line an exception meets in between: record files may not agree with it yet."""
    book = create_ledger(tmp_path / "ledger")
    seen = []
    commit = book.database._commit

    def watched():
        seen.append(book.is_between_changes)
        commit()
        seen.append(book._change_incomplete)

    book.database._commit = watched
    with book.change("add"):
        pass
    assert seen == [False, True], "known before the commit, so no line separates the two"
    with pytest.raises(StorageFailed), book.change("add"):
        pass
    assert book.is_consistent, "a health check during a change reports no failure"
    book.complete_change()
    with completed_change(book, "add"):
        pass


def test_a_transaction_that_was_left_open_refuses_everything(tmp_path):
    """As after an exception in the standard library's code for `with`."""
    book = create_ledger(tmp_path / "ledger")
    transaction = book.database.transaction()
    transaction.__enter__()
    with pytest.raises(StorageFailed):
        book.check_usable()
    book.database._begin = lambda: None  # PostgreSQL only warns of a second one
    with pytest.raises(StorageFailed), book.database.transaction():
        pass
    assert book.database.failed
