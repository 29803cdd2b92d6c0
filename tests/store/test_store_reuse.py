"""Indexes and reuse in a store: decisions follow released answers alone, across any restart."""

import base64
import copy

import numpy as np
import pytest

from store_tools import PEOPLE, PLAN, R, X, Y, make, points
from vicinal.engine import FLOOR, GatedNoiseSchedule, QueryEngine
from vicinal.errors import StorageFailed
from vicinal.ledger import ReuseEntry, Tables
from vicinal.mechanisms import NoisyVotes
from vicinal.store import Store

GATE = {"reuse_predictions": "gate", "n_queries": 2000, "epsilon": 20.0}
Q, QY = points(700, 5)
OPENS = 200


def decisions(store, queries, audience="default"):
    """Return which answers asked nobody, and all labels."""
    reply = store.predict(queries, audience=audience)
    return np.isnan(reply.votes).any(axis=1), reply.labels


def reopened(store, path):
    store.close()
    return Store.open(path)


# ---------------------------------------------------------------- reuse


def test_a_gate_answers_for_nothing_and_its_answers_are_kept(tmp_path):
    store = make(tmp_path / "store", **GATE)
    store.predict(Q[:OPENS])
    reply = store.predict(Q[OPENS:300])
    free = np.isnan(reply.votes).all(axis=1)
    assert 0 < free.sum() < 100, "the gate is sure of some"
    assert reply.charged == 100
    assert (reply.labels == QY[OPENS:300]).mean() > 0.95
    assert np.array_equal(np.isnan(reply.confidence), free)
    memory, asked = store._audience_states["default"].engine.reuse, 300
    while memory._n_sure % FLOOR == 0:  # the turn of one that is asked although the gate is sure
        store.predict(Q[asked : asked + 1])
        asked += 1
    charged = store._parts.ledger.audiences["default"].account.remaining
    before, kernel = charged.copy(), store._parts.shard.index.kernel
    sure = next(q for q in Q[350:, None] if copy.deepcopy(memory).reusable(kernel.encode(q)) >= 0)
    assert np.isnan(store.predict(sure).votes).all()
    np.testing.assert_array_equal(charged, before)
    store = reopened(store, tmp_path / "store")
    again = store.predict(Q[OPENS:300])
    assert again.charged == 0
    np.testing.assert_array_equal(again.votes, reply.votes)
    np.testing.assert_array_equal(again.labels, reply.labels)
    assert store.verify()
    store.close()


@pytest.mark.parametrize("release", ["votes", "label"])
@pytest.mark.parametrize("noise", [1.5, "auto"])
def test_a_restart_changes_no_decision(tmp_path, monkeypatch, release, noise):
    """Two stores, the same released answers; one is opened again before every batch."""
    monkeypatch.setattr(QueryEngine, "_ask", scripted)
    plan = {**GATE, "release": release, "noise_multiplier": noise}
    store, other = make(tmp_path / "a", **plan), make(tmp_path / "b", **plan)
    for start in range(0, 700, 70):
        store = reopened(store, tmp_path / "a")
        part = Q[start : start + 70]
        replies = [found.predict(part) for found in (store, other)]
        np.testing.assert_array_equal(replies[0].labels, replies[1].labels)
        engines = [found._audience_states["default"].engine for found in (store, other)]
        assert engines[0].reuse._n_sure == engines[1].reuse._n_sure
        assert engines[0].schedule.multiplier == engines[1].schedule.multiplier
    asked = [reuse_replay(found) for found in (store, other)]
    np.testing.assert_array_equal(*asked)
    assert 200 < asked[0].sum() < 600
    assert store.verify()
    store.close()
    other.close()


def test_a_store_whose_gate_asks_no_more_charges_nobody_after_a_restart_too(tmp_path, monkeypatch):
    worthwhile = property(lambda pace: pace._n_asked < OPENS)
    monkeypatch.setattr(GatedNoiseSchedule, "worthwhile", worthwhile)
    store = make(tmp_path / "store", **{**GATE, "noise_multiplier": "auto"})
    for start in range(0, 400, 50):
        store.predict(Q[start : start + 50])
    charged = store._parts.ledger.audiences["default"].account.remaining.copy()
    memory = store._audience_states["default"].engine.reuse
    known = sum(map(len, memory._labels))
    assert not memory.asking
    free, labels = decisions(store, Q[400:500])
    assert free.all()
    assert (labels == QY[400:500]).mean() > 0.9
    store = reopened(store, tmp_path / "store")
    assert decisions(store, Q[500:600])[0].all()
    memory = store._audience_states["default"].engine.reuse
    assert not memory.asking
    assert sum(map(len, memory._labels)) == known
    account = store._parts.ledger.audiences["default"].account
    np.testing.assert_array_equal(account.remaining, charged)
    assert store.verify()
    store.close()


def test_two_worlds_with_the_same_answers_decide_alike(tmp_path, monkeypatch):
    """The gate sees no record: other records, other labels, the same decisions and noise scales."""
    monkeypatch.setattr(QueryEngine, "_ask", scripted)
    found = []
    for name, data in {"a": (X, Y, PEOPLE), "b": (*points(40, 77), None)}.items():
        settings = {"classes": range(3), "public": R, "n_records": 300, **PLAN, **GATE}
        settings |= {"noise_multiplier": "auto"}
        with Store.init(tmp_path / name, *data, **settings) as store:
            for start in range(0, 700, 50):
                store.predict(Q[start : start + 50])
            found.append(
                (reuse_replay(store), store._audience_states["default"].engine.schedule.multiplier)
            )
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]
    assert not found[0][0].all(), "the gate has opened"


def scripted(engine, block, _thresholds=None):
    """Stand in for the mechanism: answers that follow from the queries alone, and their noise."""
    best = np.abs(block[:, :3]).argmax(axis=1)
    return best if engine.votes.label_only else np.eye(3)[best] * 40.0, np.ones(len(block))


def reuse_replay(store):
    rows = store._parts.database.read("SELECT asked FROM lessons ORDER BY seq")
    return np.frombuffer(b"".join(base64.b64decode(row[0]) for row in rows), dtype=np.bool_)


def test_each_audience_learns_from_its_own_answers_only(tmp_path):
    store = make(tmp_path / "store", **GATE)
    store.open_audience("press", **{**PLAN, **GATE, "n_records": 300})
    store.open_audience("plain", **{**PLAN, "n_records": 300})
    store.predict(Q[:400])
    free, _ = decisions(store, Q[400:450], "press")
    assert not free.any(), "an audience that has asked nothing knows nothing"
    assert decisions(store, Q[400:450])[0].any()
    assert not decisions(store, Q[400:450], "plain")[0].any()
    store = reopened(store, tmp_path / "store")
    assert not decisions(store, Q[450:500], "press")[0].any()
    assert decisions(store, Q[450:500])[0].any()
    memory = store._audience_states["press"].engine.reuse
    assert sum(map(len, memory._queries)) == 100
    store.close()


def test_what_is_not_released_teaches_nothing(tmp_path, monkeypatch):
    """A block that fails before its commit is forgotten by memory and pace too."""
    with make(tmp_path / "store", **GATE) as store:
        store.predict(Q[:100])
        engine = store._audience_states["default"].engine
        release, calls = NoisyVotes.release, []

        def failing(*arguments):
            calls.append(1)
            if len(calls) == 2:
                raise RuntimeError
            return release(*arguments)

        monkeypatch.setattr(NoisyVotes, "release", failing)
        with pytest.raises(RuntimeError):
            store.predict(Q[100:350])  # two blocks of the gate's; the second one fails
        monkeypatch.undo()
        desk = store._audience_states["default"]
        assert desk.engine is not engine
        assert sum(map(len, desk.engine.reuse._queries)) == 100
        assert store.predict(Q[100:110]).charged == 10
        assert store.verify()


def test_a_commit_that_fails_teaches_nothing(tmp_path, monkeypatch):
    store = make(tmp_path / "store", **GATE)
    store.predict(Q[:100])
    monkeypatch.setattr(type(store._parts.ledger), "_enter", failed)
    with pytest.raises(OSError, match="full"):
        store.predict(Q[100:150])
    monkeypatch.undo()
    store = reopened(store, tmp_path / "store")
    assert sum(map(len, store._audience_states["default"].engine.reuse._queries)) == 100
    assert store.predict(Q[100:150]).charged == 50
    store.close()


def failed(*_):
    raise StorageFailed("The disk is full.")


def test_queries_cannot_pass_for_people(tmp_path):
    """Whoever asks chooses the numbers that are stored; they must not read as somebody's id."""
    words = b"<id:sghost>"
    with make(tmp_path / "store", reuse_predictions="gate", kernel="cosine") as store:
        desk = store._audience_states["default"]
        integers = np.frombuffer(words + b" " * 13, dtype=np.int8).reshape(-1, 4).copy()
        row = ReuseEntry(integers, np.ones(6, dtype=np.bool_)).row(10**6, desk.audience.number)
        with store._parts.database.transaction():
            store._parts.database.insert(Tables.LESSONS, [row])
        assert not any("id of somebody" in fault for fault in store.verify().faults)


def test_a_journal_with_a_gap_is_noticed(tmp_path):
    with make(tmp_path / "store", **GATE) as store:
        store.predict(Q[:10])
        store.predict(Q[10:20])
        assert store.verify()
        with store._parts.database.transaction():
            store._parts.database.delete(Tables.LESSONS, "seq = (SELECT MAX(seq) FROM lessons)")
        assert any("learnt" in fault for fault in store.verify().faults)


def test_memory_survives_backup_and_erasure(tmp_path):
    store = make(tmp_path / "store", **GATE)
    store.predict(Q[:300])
    store.erase(["person-3"])
    store.backup(tmp_path / "backup")
    store.close()
    witness = tmp_path / "store.witness"
    with Store.restore(tmp_path / "backup", tmp_path / "other", witness=witness) as found:
        assert sum(map(len, found._audience_states["default"].engine.reuse._queries)) > OPENS
        assert decisions(found, Q[300:350])[0].any()
        assert found.verify(["person-3"])


# ---------------------------------------------------------------- indexes


@pytest.mark.parametrize("kernel", ["cosine", "rbf"])
def test_an_index_is_the_same_after_a_restart_and_an_erasure(tmp_path, kernel):
    index = {"kind": "lsh", "tables": 6, "bits": 3}
    store = make(tmp_path / "store", index=index, kernel=kernel, n_queries=400, epsilon=20.0)
    assert store.facts()["index"] == index
    store.predict(Q[:20])
    store.erase(["person-3", "person-148"])
    store.add(*points(6, 9), ["person-3", *["new"] * 5])
    # So little noise that a label is wrong where neighbours are: no draw can decide this test.
    quiet = {"n_records": 300, "n_queries": 200, "epsilon": 20.0, "noise_multiplier": 0.2}
    store.open_audience("press", **{**PLAN, **quiet})
    wanted = found_by(store)
    kind = type(store._parts.shard.index)
    store = reopened(store, tmp_path / "store")
    assert type(store._parts.shard.index) is kind
    assert found_by(store) == wanted
    reply = store.predict(Q[20:120], audience="press")
    assert (reply.labels == QY[20:120]).mean() > 0.7
    assert store.verify(["person-148"])
    store.close()


def found_by(store):
    """Return the rows that an index finds, as a set for each of some queries."""
    engine = store._audience_states["default"].engine
    queries = engine.votes.kernel.encode(Q[:30])
    near = store._parts.shard.search(queries, engine.radius.thresholds(queries))
    return [
        set(near.rows[a:b].tolist()) for a, b in zip(near.starts, near.starts[1:], strict=False)
    ]
