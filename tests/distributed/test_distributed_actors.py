"""Messages to Ray actors, restarts of dead actors, and access to the engine."""

import dataclasses
import os
import pickle
import signal
import sys
from contextlib import closing, suppress
from importlib.machinery import BuiltinImporter
from types import SimpleNamespace

import numpy as np
import pytest

import shard_tools
from ray_engine import list_process_ids
from vicinal import errors
from vicinal.distributed import RayCluster
from vicinal.distributed._fan_out import ShardClient, gather_results
from vicinal.distributed._membership import ShardRecord
from vicinal.distributed.messages import Message, Ping, ShardState, VoteRequest
from vicinal.distributed.ray_cluster import (
    RayTransport,
    import_ray,
    join_message,
    run_without_traceback,
    select_resources,
    split_message,
)
from vicinal.distributed.shard_server import ShardServer

RAY_INLINES = 100 << 10
"""Bytes of an argument that Ray carries in the message."""


def create_request(queries):
    steps = np.arange(len(queries))
    return VoteRequest(b"name", 3, "default", queries, steps, steps + 1)


def create_message(task):
    return Message(task, "cluster", "shard", 0, 3, (b"epoch",), ShardState(7, 3, bytes(32)))


class Actor:
    """An actor that stores the arguments of its last call."""

    def __init__(self):
        self.handle, self.sent = self, []

    def remote(self, *sent):
        self.sent = sent


@pytest.mark.parametrize("shape", [(256, 128), (256, 768), (1, 200_000), (7, 30_000), (0, 5)])
@pytest.mark.parametrize("kind", [np.int8, np.float32])
def test_an_order_arrives_as_it_was_sent(shape, kind):
    order = create_request(np.random.default_rng(1).integers(-9, 9, shape).astype(kind))
    first, *query_chunks = split_message(create_message(order))
    back = join_message(first, query_chunks).task
    assert back.compute_digest() == order.compute_digest()
    for field in dataclasses.fields(VoteRequest):
        np.testing.assert_array_equal(getattr(back, field.name), getattr(order, field.name))


@pytest.mark.parametrize("kind", [np.int8, np.float32])
def test_no_part_of_an_order_is_too_large_for_the_message(kind):
    """Fails if a shard has to fetch its queries: on a slow network two ways and back more."""
    order = create_request(np.zeros((256, 768), dtype=kind))
    assert len(pickle.dumps(order)) > RAY_INLINES
    actor = Actor()
    RayTransport(None, actor).send(create_message(order))
    assert len(actor.sent) > 1
    assert max(len(pickle.dumps(argument)) for argument in actor.sent) < RAY_INLINES


def test_other_tasks_are_not_cut():
    actor = Actor()
    message = create_message(Ping())
    RayTransport(None, actor).send(message)
    assert actor.sent == (message,)
    assert join_message(message, ()) is message


def test_a_missing_token_is_told_before_ray_looks_for_it(monkeypatch, tmp_path):
    """Fails if Ray is left to find out: it may end the process."""
    pytest.importorskip("ray", reason="Ray is not installed (extra `ray`)")
    for name in ("TOKEN", "TOKEN_PATH"):
        monkeypatch.delenv(f"RAY_AUTH_{name}", raising=False)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(errors.StorageFailed, match="get-auth-token"):
        RayCluster("192.0.2.1:6379")


@pytest.mark.parametrize(("address", "cause"), [
    ("127.0.0.1:1", "at 127.0.0.1:1 cannot be reached: connection refused"),
    ("ray://no-such-host.invalid:10001", "no such host"), ("host:port", "auto or HOST:PORT"),
    ("tester:secret\u2105@host:1", "auto or HOST:PORT"), ("http://[::1", "auto or HOST:PORT"),
])  # fmt: skip
def test_an_engine_that_is_not_there_is_told_at_once_with_the_cause(monkeypatch, address, cause):
    """Fails if Ray is left to look for it: that takes over a minute."""
    pytest.importorskip("ray", reason="Ray is not installed (extra `ray`)")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises((errors.StorageFailed, errors.InvalidInput), match=cause) as caught:
        RayCluster(address)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(("rule", "loaded", "then"), [
    (None, False, "token"), ("disabled", False, "disabled"), (None, True, None),
])  # fmt: skip
def test_tokens_are_shown_unless_the_operator_has_another_rule(monkeypatch, rule, loaded, then):
    """Fails if tokens are off by default, or switched on when Ray no longer looks."""
    monkeypatch.setattr(os, "environ", {"RAY_AUTH_MODE": rule} if rule else {})
    monkeypatch.setattr(
        sys, "modules", {**sys.modules, "ray": None} if loaded else list_other_modules()
    )
    monkeypatch.setattr(sys, "meta_path", [BuiltinImporter])  # Ray itself is not imported
    with suppress(ImportError):
        import_ray()
    assert os.environ.get("RAY_AUTH_MODE") == then


def list_other_modules():
    return {name: module for name, module in sys.modules.items() if name.partition(".")[0] != "ray"}


class Post:
    """Stands for Ray without processes: a call is its own result."""

    class exceptions:  # noqa: N801 (Ray's name)
        class RayError(Exception):
            pass

        class GetTimeoutError(RayError):
            pass

    def get(self, call, timeout):  # noqa: ARG002 (as Ray's)
        if isinstance(call, Exception):
            raise call
        return call


class Answering(Actor):
    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def remote(self, *sent):
        super().remote(*sent)
        return self.answer


DEAD, SLOW = Post.exceptions.RayError("record 7"), Post.exceptions.GetTimeoutError()


def send_ping(link):
    try:
        return link.send(create_message(Ping()))(1.0)
    except errors.ShardUnreachable as silence:
        return str(silence)


def test_what_ray_says_of_an_actor_is_not_passed_on():
    """Fails if its words, which may quote a record, or none at all, name a cause."""
    assert send_ping(RayTransport(Post(), Answering(("done", 1)))) == 1
    gone = send_ping(RayTransport(Post(), Answering(DEAD)))
    assert gone == "Its process cannot be reached (RayError)."
    assert send_ping(RayTransport(Post(), Answering(SLOW))) == ""


def test_a_shard_runs_where_its_name_is_offered():
    offered = {"CPU": 2.0, "vicinal-shard-3": 1.0}
    assert list(select_resources("shard-3", offered)) == ["vicinal-shard-3"]
    assert select_resources("shard-1", offered) == {}


@pytest.mark.parametrize(
    "error", [errors.StoreDamaged, errors.DamagedWitness, errors.StoreOutdated, errors.InvalidInput]
)
def test_what_does_not_get_better_arrives_as_what_it_is(error):
    """Fails if a refusal inside an actor becomes silence, for which the coordinator would wait."""

    def refuse():
        raise error("Bring it back.")

    link = RayTransport(Post(), Answering(run_without_traceback(refuse)))
    with pytest.raises(error, match="Bring it back"):
        link.send(create_message(Ping()))(1.0)


def create_client(folder, link):
    """Return a client of a shard, as of a coordinator that has seen its current state."""
    with closing(ShardServer.open(folder)) as server:
        database, identity = server._store.database, server._store.folder.identity
        cluster, number = database.get("cluster"), database.get_integer("number")
        record = ShardRecord(number, identity, ShardState.from_database(database), (b"epoch",))
    return ShardClient(link, record, cluster, SimpleNamespace(clock=10**6))


def test_a_stopped_shard_is_waited_for_and_a_killed_one_comes_back(path, ray_engine):
    """Fails if a process that may go on is replaced, or one that is dead is not."""
    (link,) = ray_engine.transports([path / "shard-0"])
    client = create_client(path / "shard-0", link)
    gather_results({0: client}, Ping(), shard_tools.PATIENCE)
    (pid,) = list_process_ids(ray_engine)
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(errors.ShardMissing, match="No answer in time"):
            gather_results({0: client}, Ping(), 0.5)
    finally:
        os.kill(pid, signal.SIGCONT)
    gather_results({0: client}, Ping(), shard_tools.PATIENCE)
    assert list_process_ids(ray_engine) == [pid]
    os.kill(pid, signal.SIGKILL)
    gather_results({0: client}, Ping(), shard_tools.PATIENCE)
    assert list_process_ids(ray_engine) != [pid]
    link.close()
