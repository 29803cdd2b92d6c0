"""Blocks are charged in the coordinator's order, even if messages are late, lost or repeated."""

import dataclasses
from contextlib import closing, nullcontext

import numpy as np
import pytest

import shard_tools
import store_tools as tools
from distributed.orders import copy_remaining_units, create_request
from shard_tools import heard
from vicinal.distributed._vote_charging import ChargeJournal
from vicinal.distributed.messages import VoteRequest
from vicinal.distributed.shard_server import ShardServer
from vicinal.errors import PrivacyRefused, ShardMissing, ShardUnreachable

BLOCK = 5


def set_block_size(source):
    """Have a store or a cluster answer `BLOCK` queries in each block, and return it."""
    for state in source._audience_states.values():
        state.engine = dataclasses.replace(state.engine, block_size=BLOCK)
    return source


def play_history(source):
    """Yield replies to queries, between additions and erasures of records."""
    yield source.predict(tools.Q[:12])
    source.add(tools.X[:40], tools.Y[:40], [f"new-{i}" for i in range(40)])
    yield source.predict(tools.Q[12:27])
    source.erase(tools.PEOPLE[:80])
    yield source.predict(tools.Q[27:40])
    yield source.predict(tools.Q[40:58])


@pytest.fixture
def server(path):
    with closing(ShardServer.open(path / "shard-0")) as server:
        yield server


def test_a_block_that_comes_again_later_is_the_same_block(server):
    """Fails if a new place in the order makes another block of the one that was charged."""
    votes = server.run_task(create_request(server, b"first", sequence=1))
    server.run_task(create_request(server, b"second", sequence=2))
    before = copy_remaining_units(server)
    for sequence in (1, 3):
        np.testing.assert_array_equal(
            server.run_task(create_request(server, b"first", sequence=sequence)), votes
        )
    np.testing.assert_array_equal(copy_remaining_units(server), before)


@pytest.mark.parametrize("mutated", [False, True])
def test_a_message_that_arrives_after_its_block_was_answered_charges_nobody(
    path, monkeypatch, mutated
):
    """Fails if it does; and the attack: with the order unchecked it would."""
    if mutated:
        monkeypatch.setattr(ChargeJournal, "refuse_overtaken_request", lambda *_: None)
    lost = []

    def lose_first_block(message, send):
        if isinstance(message.task, VoteRequest) and not lost:
            lost.append(message)
        elif lost and message.task is lost[0].task:
            raise ShardUnreachable
        else:
            return send(message)
        raise ShardUnreachable

    with heard(path, lose_first_block, 0.05) as cluster:
        with pytest.raises(ShardMissing):
            set_block_size(cluster).predict(tools.Q[:12])
        assert cluster.predict(tools.Q[20:24]).charged == 4
    before = shard_tools.budgets(path)
    refused = nullcontext() if mutated else pytest.raises(PrivacyRefused, match="over")
    with closing(ShardServer.open(path / "shard-1")) as server, refused:
        server.run_task(dataclasses.replace(lost[0].task, clock=server._journal.clock))
    assert (shard_tools.budgets(path) == before) != mutated


def test_a_coordinator_begins_to_count_anew(path):
    """Fails if the sequence of an earlier opening shuts out the blocks of this one."""
    for rows in (tools.Q[:20], tools.Q[20:22], tools.Q[22:24]):
        with set_block_size(shard_tools.local(path)) as cluster:
            assert cluster.predict(rows).charged == len(rows)


@pytest.mark.parametrize("error", [None, ShardUnreachable, KeyboardInterrupt])
def test_a_life_in_blocks_is_that_of_a_store_though_one_breaks_off(path, tmp_path, error):
    """Fails if the block that was charged before a shard or the coordinator was gone costs again.

    `error`: raised for the second block that is sent to a shard; None for no error.
    """
    with tools.make(tmp_path / "one", simulation_seed=7) as store:
        replies, left = list(play_history(set_block_size(store))), tools.left_of(store)
    calls = []

    def second_block_is_lost(message, send):
        if isinstance(message.task, VoteRequest):
            calls.append(message)
            if len(calls) > 1:
                raise error
        return send(message)

    if error is not None:
        cluster = heard(path, second_block_is_lost, 0.05)
        with cluster, pytest.raises((ShardMissing, KeyboardInterrupt)):
            set_block_size(cluster).predict(tools.Q[:12])
    with set_block_size(shard_tools.local(path)) as cluster:
        for reply, one in zip(play_history(cluster), replies, strict=True):
            np.testing.assert_array_equal(reply.votes, one.votes)
            assert (reply.charged, reply.left) == (one.charged, one.left)
    assert shard_tools.budgets(path) == left
