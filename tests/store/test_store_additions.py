"""Adding people while answers go on: which people an answer is of, and what comes in between.

What comes in between is done where an addition has written its records beyond the end of the files
and nothing is current yet, by the same thread: the addition does not hold the store's turn there.
"""

import threading
from functools import partial

import numpy as np
import pytest

import store_tools as tools
from store_tools import PEOPLE, Q, points
from store_tools import left_of as left
from vicinal.errors import KeyReused, StorageFailed
from vicinal.ledger import Standing
from vicinal.store import NumberReply, Store
from vicinal.store import _records as _additions
from vicinal.store._record_files import RecordFiles

NEW, LABELS = points(40, 8)
NEWCOMERS = [f"new-{i // 2}" for i in range(38)] + PEOPLE[:2]
"""Nineteen newcomers of two records each, and somebody who is here."""


@pytest.fixture
def between(monkeypatch):
    """Return a function that says what is done once records of an addition are staged.

    It returns a list of what came of that: whenever it is shorter than `times`, it is done again.
    """
    stage, works = RecordFiles.stage, []

    def staged(self, *args):
        stage(self, *args)
        for work, times, done in works:
            if len(done) < times:
                done.append(work())

    def between(work, times=1):
        works.append((work, times, []))
        return works[-1][2]

    monkeypatch.setattr(RecordFiles, "stage", staged)
    return between


def votes(store, queries):
    reply = store.predict(queries)
    noisy = reply.sums if isinstance(reply, NumberReply) else reply.votes
    return [value.hex() for value in noisy.ravel().tolist()]


PLANS = {
    "exact": {},
    "hashing": {"index": {"kind": "lsh", "tables": 4, "bits": 3}},
    "numbers": {"target": "numbers"},
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_answers_meanwhile_are_of_the_people_before(tmp_path, between, plan):
    """Votes and budgets are bit for bit those of a store that asks first, and adds afterwards."""
    declared = tools.TARGETS[plan["target"]][0][:40] if "target" in plan else LABELS
    results = []
    for beside in (False, True):
        with tools.make(tmp_path / f"{beside}", simulation_seed=7, **plan) as store:
            ask = partial(votes, store, Q[:20])
            found = between(ask) if beside else [ask()]
            store.add(NEW, declared, NEWCOMERS)
            found.append(votes(store, Q[20:40]))
            assert store.verify()
            results.append((found, left(store)))
        with Store.open(tmp_path / f"{beside}") as again:
            assert again.verify()
            assert left(again) == results[-1][1]
    assert results[0] == results[1]


def test_whoever_is_erased_meanwhile_is_not_added(store, between):
    calls = between(lambda: store.erase([NEWCOMERS[0], PEOPLE[0], "unknown"]))
    store.add(NEW, LABELS, NEWCOMERS, idempotency_key="k")
    assert calls == [2], "the one who was here"
    size = 300 - 2 + len(NEW) - 2 - 2
    assert len(store._parts.shard) == size
    standing = store._parts.ledger.standing
    assert standing(NEWCOMERS[0]) == Standing.UNKNOWN
    assert standing(PEOPLE[0]) == Standing.ERASED
    assert standing(NEWCOMERS[2]) == Standing.ENROLLED
    erased = np.concatenate([NEW[:2], NEW[-2:]])
    assert store.verify([NEWCOMERS[0], PEOPLE[0]], erased)
    with pytest.raises(KeyReused):  # no digest confirms who was in the batch
        store.add(NEW, LABELS, NEWCOMERS, idempotency_key="k")


def test_a_batch_of_which_everybody_is_erased_adds_nobody(store, between):
    between(lambda: store.erase(NEWCOMERS))
    store.add(NEW, LABELS, NEWCOMERS)
    assert len(store._parts.shard) == 298
    assert store.verify(NEWCOMERS, NEW)


def test_changes_that_never_end_do_not_keep_an_addition_out(store, between):
    """After a few attempts it is prepared in its turn, where nothing comes in between."""
    people = iter(sorted(set(PEOPLE[2:])))
    between(lambda: store.erase([next(people)]), _additions.ATTEMPTS)
    staged = between(lambda: None, 100)
    store.add(NEW, LABELS, NEWCOMERS)
    assert len(staged) == _additions.ATTEMPTS + 1
    assert len(store._parts.shard) == 300 + len(NEW) - 2 * _additions.ATTEMPTS
    assert store.verify()


CHANGES = {
    "audience": lambda store: store.open_audience("more", n_queries=5, n_neighbors=40,
                                                  noise_multiplier=1.5, n_records=300),
    "evaluation": lambda store: store.evaluate(Q[:5], [0] * 5, [*NEWCOMERS[:9:2]],
                                               accept_noise=True),
    "verification": lambda store: _holds(store.verify()),
    "quota": lambda store: store.allow("anna", 3),
}  # fmt: skip


def _holds(verification):
    assert verification, verification.faults


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_other_changes_meanwhile_are_kept(store, between, change):
    store.predict(Q[:5])
    calls = between(lambda: change(store))
    store.add(NEW, LABELS, NEWCOMERS)
    assert calls
    assert len(store._parts.shard) == 300 + len(NEW)
    assert store.verify()
    for name in store.audiences:
        left_of = store._parts.ledger.audiences[name].account.remaining
        assert (left_of[store._parts.ledger.slot_table.taken] >= 0).all()


def test_verification_sees_erased_features_among_what_waits_to_be_added(store, between):
    """Fails if nobody looks beyond the end of the records: they would be there, and not seen."""
    found = []
    between(lambda: found.append(store.verify(features=NEW[-1:]).faults))
    store.add(NEW, LABELS, NEWCOMERS)
    assert ["erased record" in fault for fault in found[0]] == [True]


def test_a_backup_made_meanwhile_holds_nobody_who_is_not_added(tmp_path, store, between):
    between(lambda: store.backup(tmp_path / "backup"))
    store.add(NEW, LABELS, NEWCOMERS)
    assert len(store._parts.shard) == 300 + len(NEW)
    assert (tmp_path / "backup" / "records" / "features").stat().st_size == 300 * (tools.D + 1)
    assert store.verify()


def test_a_store_that_is_closed_meanwhile_adds_nothing(tmp_path, store, between):
    between(store.close)
    with pytest.raises(StorageFailed):
        store.add(NEW, LABELS, NEWCOMERS)
    with Store.open(tmp_path / "store") as again:
        assert len(again._parts.shard) == 300
        assert again.verify(NEWCOMERS[:38], NEW)


def test_the_same_people_added_by_several_threads_have_one_budget(store):
    """They take turns; while they do, others ask, and nobody waits for ever."""
    threads = [threading.Thread(target=store.add, args=(NEW, LABELS, NEWCOMERS)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(10):
        store.predict(Q[number : number + 1])
    for thread in threads:
        thread.join(60)
    assert len(store._parts.shard) == 300 + 3 * len(NEW)
    assert len(store._parts.ledger.slot_table) == 150 + 19
    assert store.verify()


def test_an_enrollment_of_another_state_is_refused(store):
    """The guard behind it all: what was found out before a change is not made current after it."""
    ledger = store._parts.ledger
    enrollment = ledger.enrollment_of(["somebody"])
    store.erase([PEOPLE[0]])
    with pytest.raises(Exception, match="changed since"), ledger.change("add"):
        ledger.admit(enrollment)


def test_the_service_answers_while_people_are_added(tmp_path, between):
    pytest.importorskip("uvicorn")
    import serving_tools

    staged, answered = threading.Event(), threading.Event()
    body = {"vectors": NEW.tolist(), "labels": LABELS.tolist(), "subjects": NEWCOMERS}
    with serving_tools.running(tmp_path / "store") as service:
        between(lambda: (staged.set(), answered.wait(60)))
        replies = []
        call = lambda: replies.append(service.call("POST", "/v1/records", body, "curator"))  # noqa: E731
        thread = threading.Thread(target=call)
        thread.start()
        assert staged.wait(60)
        assert service.predict(Q[:2].tolist()).body["charged"] == 2
        assert not replies
        answered.set()
        thread.join(60)
        assert replies[0].body["done"] == "added"
        assert service.predict(Q[:2].tolist()).body["charged"] == 2, "a new version of the data"
