"""Inner nodes between coordinator and shards: the same sums, whatever fails on the way."""

from __future__ import annotations

import numpy as np
import pytest

import shard_tools
import store_tools as tools
from vicinal.distributed import Coordinator, MissingShardPolicy, local_transports
from vicinal.distributed._local_transport import LocalReply, LocalSums
from vicinal.distributed._messages import Message, ShardState, VoteRequest
from vicinal.distributed._ray_transport import join_message, split_message
from vicinal.distributed._sum_tree import SumNode, _fan_out
from vicinal.errors import (
    InvalidInput,
    ShardMissing,
    ShardUnreachable,
    StorageFailed,
    StoreDamaged,
    StoreOutdated,
)

SHARDS = 5
PLANS = {"votes": {}, "private count": {"neighbor_count": "private"}}
SHORT = MissingShardPolicy(deadline=0.1)


class CountedWay:
    """The way to a shard in this process: what is sent is counted, and may be lost."""

    def __init__(self, way):
        self.way, self.sent, self.silent = way, [], False

    def send(self, message):
        self.sent.append(message.task)
        if self.silent and isinstance(message.task, VoteRequest):
            return LocalReply(error=ShardUnreachable("It sleeps."))
        return self.way.send(message)

    def close(self):
        self.way.close()

    def sum_node(self, shards):
        return FailingNode(SumNode(shards))


class FailingNode(LocalSums):
    """An inner node that may die: before shards hear of anything, or after they have charged."""

    error = None
    after = False

    def send(self, messages, seconds):
        reply = super().send(messages, seconds) if self.after or not self.error else None
        return LocalReply(error=self.error()) if self.error else reply


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """Return by plan what a store answers, and what everybody has left."""
    found = {}
    for name, plan in PLANS.items():
        path = tmp_path_factory.mktemp("one") / "store"
        with tools.make(path, simulation_seed=7, **plan) as store:
            replies = [store.predict(rows) for rows in (tools.Q[:9], tools.Q[9:24])]
            left = {who: tools.units(store, who) for who in set(tools.PEOPLE)}
        found[name] = replies, left
    return found


def opened(tmp_path, policy=shard_tools.PATIENCE, plan="votes", **more):
    """Open a cluster of five shards, two behind each node; return it and the ways."""
    path = shard_tools.clustered(tmp_path, SHARDS, simulation_seed=7, **PLANS[plan])
    ways = []

    def connect(paths):
        ways.extend(CountedWay(way) for way in local_transports(paths))
        return ways

    return Coordinator.open(path, connect, policy, **{"fan_out": 2, **more}), ways, path


def check(cluster, path, expected):
    replies, left = expected
    with cluster:
        for one, rows in zip(replies, (tools.Q[:9], tools.Q[9:24]), strict=True):
            reply = cluster.predict(rows)
            np.testing.assert_array_equal(reply.votes, one.votes)
            assert (reply.missing, reply.charged, reply.left) == ((), one.charged, one.left)
    assert shard_tools.budgets(path) == left


@pytest.mark.parametrize("plan", PLANS)
def test_a_tree_answers_and_charges_as_a_store(tmp_path, expected, plan):
    """Fails if a node loses a shard, adds one twice, or a round goes past it."""
    cluster, ways, path = opened(tmp_path, plan=plan)
    assert [len(group.shards) for group in cluster._tree._groups] == [2, 2, 1]
    check(cluster, path, expected[plan])
    requests = [task for task in ways[4].sent if isinstance(task, VoteRequest)]
    assert len(requests) == (2 if plan == "votes" else 4), "a shard was asked past its node"


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("error", [ShardUnreachable, StorageFailed, StoreDamaged])
@pytest.mark.parametrize("plan", PLANS)
def test_a_node_that_dies_costs_nobody_anything(
    tmp_path, expected, monkeypatch, plan, error, after
):
    """Fails if shards that had charged are charged again, or their votes are added twice."""
    cluster, _, path = opened(tmp_path, plan=plan)
    node = cluster._tree._groups[0].nodes[0]
    monkeypatch.setattr(FailingNode, "after", after)
    monkeypatch.setattr(FailingNode, "error", property(lambda me: error if me is node else None))
    check(cluster, path, expected[plan])


def test_a_node_that_adds_wrongly_is_caught(tmp_path, expected, monkeypatch):
    """The attack: a shard that a node has added twice."""
    cluster, _, path = opened(tmp_path)
    real = SumNode.handle

    def twice(self, messages, seconds):
        answer = real(self, messages, seconds)
        answer.sums[:] += self._shards[0].send(messages[0]).result(seconds).value
        return answer

    monkeypatch.setattr(SumNode, "handle", twice)
    with pytest.raises(AssertionError, match="not equal"):
        check(cluster, path, expected["votes"])


@pytest.mark.parametrize("plan", PLANS)
def test_a_missing_shard_is_named_and_those_beside_it_are_charged_once(tmp_path, expected, plan):
    """Fails if a node hides who is missing, or the retry is charged again."""
    cluster, ways, path = opened(tmp_path, SHORT, plan)
    ways[1].silent = True
    with pytest.raises(ShardMissing, match=r"^1 of 5 shards .* Shard 1: It sleeps\.$"):
        cluster.predict(tools.Q[:9])
    ways[1].silent = False
    if plan == "votes":  # a broken private count is abandoned with its charge
        check(cluster, path, expected[plan])
    cluster.close()


@pytest.mark.parametrize("plan", PLANS)
def test_a_cluster_may_answer_without_a_shard_behind_a_node(tmp_path, plan):
    """Fails if a whole group is left out for one of it, or the answer does not say so."""
    policy = MissingShardPolicy(0.1, answer_without=True)
    cluster, ways, path = opened(tmp_path, policy, plan)
    ways[4].silent = ways[1].silent = True
    with cluster:
        assert cluster.predict(tools.Q[:9]).missing == (1, 4)
    charged = shard_tools.budgets(path)
    assert min(charged.values()) < max(charged.values())


def test_another_shard_behind_a_node_is_refused(tmp_path, monkeypatch):
    """Fails if what a shard behind a node shows of its chain is not compared."""
    cluster, _, _ = opened(tmp_path)
    real = SumNode.handle

    def exchanged(self, messages, seconds):
        answer = real(self, messages, seconds)
        object.__setattr__(answer, "links", answer.links[::-1])
        return answer

    with cluster, monkeypatch.context() as patch:
        patch.setattr(SumNode, "handle", exchanged)
        with pytest.raises(StoreOutdated, match="another way"):
            cluster.predict(tools.Q[:9])


@pytest.mark.parametrize(
    ("shards", "size"), [(1, 1), (15, 15), (16, 4), (64, 8), (65, 9), (1024, 32)]
)
def test_few_shards_have_no_nodes_and_many_have_the_root_of_their_number(shards, size):
    assert _fan_out("auto", shards) == size


@pytest.mark.parametrize("bad", [1, 0, 2.5, True, "many"])
def test_a_fan_out_is_a_number_of_shards(tmp_path, bad):
    with pytest.raises(InvalidInput, match="'fan_out'"):
        opened(tmp_path, fan_out=bad)


def test_a_node_that_was_started_anew_asks_nobody():
    with pytest.raises(ShardUnreachable, match="does not know"):
        SumNode(()).handle([None], 1.0)


def test_a_request_travels_once_to_a_node_and_arrives_whole():
    """Fails if a node is sent the queries once for every shard, or gets them in another order."""
    rows = np.random.default_rng(1).integers(-9, 9, (256, 768)).astype(np.int8)
    steps = np.arange(256)
    task = VoteRequest(b"name", 3, "default", "votes", rows, steps, steps + 1)
    state = ShardState(7, 3, bytes(32))
    messages = tuple(Message(task, "c", f"s{n}", n, 3, (b"e",), state) for n in range(8))
    first, *more = split_message(messages)
    assert len({id(one.task) for one in first}) == 1
    back = join_message(first, more)
    assert {one.task.digest() for one in back} == {task.digest()}
    assert [one.number for one in back] == list(range(8))
