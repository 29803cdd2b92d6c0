"""No answer and no error leaves before the rollback guard knows every commit.

Else a copy of the folder from before that commit could be put back: charges of a block that broke
off, a quota, a change would be undone without any notice.
"""

from contextlib import contextmanager
from functools import partial

import pytest

import shard_tools
import store_tools as tools
from vicinal.distributed import _vote_charging
from vicinal.distributed._fan_out import ShardClient
from vicinal.distributed.messages import GradientRequest
from vicinal.ledger.rollback_guard import WitnessState
from vicinal.linear.descent import STEPS
from vicinal.store import Store


def is_behind(parts):
    """Return whether the guard has not recorded the last commit."""
    state = parts.witness.state
    return (state.clock, state.head) != parts.ledger.last_commit


@contextmanager
def interrupt_after(monkeypatch, owner, name):
    """Interrupt a method of `owner` after it has run; the body must raise the interruption."""
    honest = getattr(owner, name)

    def broken(*args):
        honest(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, broken)
        with pytest.raises(KeyboardInterrupt):
            yield


@pytest.fixture
def store(tmp_path):
    with tools.make(tmp_path / "store") as store:
        yield store


@pytest.fixture
def cluster(path):
    with shard_tools.local(path) as cluster:
        yield cluster


def list_open_stores(anything):
    """Return the open folders of a store, or of a coordinator and its shards."""
    links = getattr(anything, "_clients", ())
    return [anything._store, *(one.transport._server._store for one in links)]


OPERATIONS = {
    "predict": lambda store: store.predict(tools.Q[:3], idempotency_key="k"),
    "allow": lambda store: store.allow("bob", 3),
    "add": lambda store: store.add(tools.X[:2], tools.Y[:2], ["new", "person-5"]),
    "erase": lambda store: store.erase(["person-3"]),
    "open_audience": lambda store: store.open_audience("press", n_queries=5, n_records=300),
}


@pytest.mark.parametrize("kind", ["store", "cluster"])
def test_every_door_leaves_the_guard_at_the_last_commit(request, kind):
    found = request.getfixturevalue(kind)
    for name, operation in OPERATIONS.items():
        before = found._store.ledger.last_commit
        operation(found)
        assert found._store.ledger.last_commit != before
        assert not any(map(is_behind, list_open_stores(found))), name


@pytest.mark.parametrize("kind", ["store", "cluster"])
def test_a_batch_that_is_interrupted_after_its_commit_is_in_the_guard(request, kind, monkeypatch):
    found = request.getfixturevalue(kind)
    before = found._store.ledger.last_commit
    with interrupt_after(monkeypatch, type(found._audience_states["default"]), "add_block"):
        found.predict(tools.Q[:3])
    assert found._store.ledger.last_commit != before
    assert not any(map(is_behind, list_open_stores(found)))


def test_the_guard_knows_of_an_answer_before_shards_delete_its_votes(cluster, monkeypatch):
    """Fails if a coordinator from before the answer could be put back, and draw a second noise."""
    is_behind_at_call = []
    monkeypatch.setattr(
        type(cluster), "_delete_sums", lambda one: is_behind_at_call.append(is_behind(one._store))
    )
    cluster.predict(tools.Q[:3])
    assert is_behind_at_call == [False]


def test_the_guard_knows_of_every_step_before_shards_delete_the_last_one(cluster, monkeypatch):
    """Fails if a coordinator from before a noisy sum could be put back, and draw a second noise."""
    is_behind_at_call, honest = [], ShardClient.send

    def send(client, task):
        if isinstance(task, GradientRequest):
            is_behind_at_call.append(is_behind(cluster._store))
        return honest(client, task)

    monkeypatch.setattr(ShardClient, "send", send)
    cluster.open_audience("press", n_queries=60, n_records=300, model_share=0.5)
    assert is_behind_at_call == [False] * 2 * STEPS


def test_a_shard_that_is_interrupted_after_a_charge_has_it_in_its_guard(cluster, monkeypatch):
    before = [parts.ledger.last_commit for parts in list_open_stores(cluster)[1:]]
    with interrupt_after(monkeypatch, _vote_charging, "charge_votes"):
        cluster.predict(tools.Q[:3])
    shards = list_open_stores(cluster)[1:]
    assert any(now.ledger.last_commit != old for now, old in zip(shards, before, strict=True))
    assert not any(map(is_behind, shards))


GUARD_CALLS = {
    "an epoch": lambda parts: parts.witness.begin_epoch(9, bytes(32)),
    "how far": lambda parts: parts.witness.record_commit(9, bytes(32)),
    "who was erased": lambda parts: parts.witness.add_erased([bytes(32)], 9),
    "an audience": lambda parts: parts.witness.add_audiences(["press"], 9),
    "what it knows": lambda parts: parts.report_commit(),
}


@pytest.mark.parametrize("kind", ["made", "opened", "postgres", "cluster"])
def test_a_guard_is_told_nothing_before_its_commit(tmp_path, monkeypatch, postgres_url, kind):
    """Fails if a rollback, or a loss of power, can leave a witness that agrees with no ledger."""
    if kind == "cluster":
        found = shard_tools.local(shard_tools.clustered(tmp_path, 2))
    else:
        ledger = {"ledger": postgres_url()} if kind == "postgres" else {}
        found = tools.make(tmp_path / "store", **ledger)
        if kind == "opened":
            found.close()
            found = Store.open(tmp_path / "store")
    with found:
        found.predict(tools.Q[:3])
        for parts in list_open_stores(found):
            before, told = parts.folder.witness.read_bytes(), []

            def tell(honest, parts=parts, told=told):
                for tell in GUARD_CALLS.values():
                    with pytest.raises(RuntimeError, match="before its commit"):
                        tell(parts)
                told.append(honest())

            with monkeypatch.context() as patch:
                for name in ("_begin", "_commit"):
                    honest = getattr(parts.database, name)
                    patch.setattr(parts.database, name, partial(tell, honest))
                with parts.database.transaction():
                    tell(lambda: None)
            assert len(told) == 3
            assert parts.folder.witness.read_bytes() == before
            parts.report_change()


@pytest.mark.parametrize("kind", ["store", "cluster"])
def test_an_audience_that_was_never_open_is_not_in_the_guard(request, kind, monkeypatch):
    """Fails if the guard records an uncommitted audience: its name would be barred after a loss."""
    found = request.getfixturevalue(kind)
    before = [parts.witness.state.audiences for parts in list_open_stores(found)]
    with interrupt_after(monkeypatch, type(found._store.ledger), "open_audience"):
        found.open_audience("press", n_queries=5, n_records=300)
    assert [parts.witness.state.audiences for parts in list_open_stores(found)] == before


def test_audiences_are_those_among_all_entries():
    """Digests hold the letters of kinds too: the first byte of an entry determines its kind."""
    digests = [bytes([97, 101] * 15 + [place, 97]) for place in range(6)]
    entries = [b"ea"[i % 2 :][:1] + each + i.to_bytes(8) for i, each in enumerate(digests)]
    state = WitnessState(bytes(16), bytes(16), 9, None)
    state = state.with_entries(b"".join(entries))
    assert state.audiences == set(digests[1::2])
    assert state.erased == set(digests[::2])
