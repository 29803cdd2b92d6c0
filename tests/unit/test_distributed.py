"""Shards with folders of their own: what is durable when, what comes twice, what is refused."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sqlite3
import sys

import numpy as np
import pytest

import shard_tools
import store_tools as tools
from vicinal.accounting._filter import UNITS
from vicinal.distributed import (
    Coordinator,
    MissingShardPolicy,
    RayCluster,
    ShardMissing,
    ShardServer,
    local_transports,
    split,
)
from vicinal.distributed._fan_out import ShardUnreachable
from vicinal.distributed._folders import ClusterDescription, shard_paths
from vicinal.distributed._ray_actors import ShardActor, told
from vicinal.distributed._splitting import ready_cluster
from vicinal.distributed._vote_request import COUNT, COUNTED, VOTES, VoteRequest, block_name
from vicinal.errors import InvalidInput, MissingExtra, PrivacyRefused, StorageFailed
from vicinal.ledger._database import Database
from vicinal.ledger._sqlite import SQLiteDatabase
from vicinal.store import Store

NONE = np.zeros(0, dtype=np.int64)


def order_of(keeper, name=b"a block of any id", *, turn=5, round=VOTES, size=6, **changes):
    """Return an order for the first queries, priced as the keeper's own audience is."""
    engine = keeper._audience_states["default"].engine
    block = engine.votes.kernel.encode(tools.Q[:size])
    scales = np.full(size, engine.votes.grid.scale(1.5 * np.sqrt(40)))
    counted = NONE if round == COUNT else scales
    order = VoteRequest(
        name, turn, "default", round, block, engine.radius.thresholds(block), counted
    )
    return dataclasses.replace(order, **changes)


def left(keeper):
    return keeper._parts.ledger.audiences["default"].account.remaining.copy()


@pytest.fixture
def folder(tmp_path):
    return shard_paths(shard_tools.clustered(tmp_path, 2), 2)[0]


@pytest.fixture
def keeper(folder):
    keeper = ShardServer.open(folder)
    yield keeper
    keeper.close()


# ---------------------------------------------------------------- once, however often


def test_a_repeated_block_returns_the_same_votes_and_charges_once(keeper, folder):
    votes = keeper.charge_and_sum(order_of(keeper))
    after = left(keeper)
    assert votes.shape == (6, tools.CLASSES)
    assert votes.any()
    assert (after < UNITS).any()
    np.testing.assert_array_equal(keeper.charge_and_sum(order_of(keeper)), votes)
    np.testing.assert_array_equal(left(keeper), after)
    keeper.close()
    again = ShardServer.open(folder)
    np.testing.assert_array_equal(again.charge_and_sum(order_of(again)), votes)
    np.testing.assert_array_equal(left(again), after)
    assert again.verify()
    again.close()


def test_another_name_is_another_block(keeper):
    keeper.charge_and_sum(order_of(keeper))
    before = left(keeper)
    keeper.charge_and_sum(order_of(keeper, b"another block"))
    assert (left(keeper) < before).any()


@pytest.mark.parametrize("what", ["thresholds", "scales", "queries", "turn"])
def test_a_name_belongs_to_one_block(keeper, what):
    """Fails if an order with other content gets, or pays for, the votes of the first."""
    order = order_of(keeper)
    keeper.charge_and_sum(order)
    before = left(keeper)
    with pytest.raises(InvalidInput, match="Another block was carried"):
        keeper.charge_and_sum(dataclasses.replace(order, **{what: getattr(order, what) + 1}))
    np.testing.assert_array_equal(left(keeper), before)


def test_a_late_order_is_refused_and_charges_nothing(keeper, folder):
    """Fails if a message that wandered about is charged after its block was over."""
    keeper.charge_and_sum(order_of(keeper))
    keeper.settle(6)
    before = left(keeper)
    for order in (order_of(keeper), order_of(keeper, b"never seen before")):
        with pytest.raises(PrivacyRefused, match="The block is over"):
            keeper.charge_and_sum(order)
    keeper.close()
    again = ShardServer.open(folder)
    with pytest.raises(PrivacyRefused, match="The block is over"):
        again.charge_and_sum(order_of(again))
    np.testing.assert_array_equal(left(again), before)
    again.close()


def test_a_bad_order_changes_nothing(keeper):
    before = left(keeper)
    order = order_of(keeper)
    for bad in (
        {"audience": "nobody"},
        {"queries": order.queries[:, :2]},
        {"queries": order.queries.astype(np.float64)},
        {"thresholds": order.thresholds[:3]},
        {"round": COUNT},
    ):
        with pytest.raises(InvalidInput):
            keeper.charge_and_sum(dataclasses.replace(order, **bad))
    np.testing.assert_array_equal(left(keeper), before)
    assert len(keeper._carried) == 0
    keeper.charge_and_sum(order)
    assert keeper.verify()


def test_who_was_not_counted_cannot_vote(tmp_path):
    path = shard_tools.clustered(tmp_path, 1, neighbor_count="private")
    keeper = ShardServer.open(shard_paths(path, 1)[0])
    with pytest.raises(PrivacyRefused, match="not counted"):
        keeper.charge_and_sum(order_of(keeper, round=COUNTED))
    keeper.close()


# ---------------------------------------------------------------- what is private


def test_votes_are_deleted_once_answers_are_durable(tmp_path):
    """Fails if un-noised votes stay on a shard, or in its files, longer than they must."""
    path = shard_tools.clustered(tmp_path, 2)
    with shard_tools.local(path) as cluster:
        cluster.predict(tools.Q[:6])
        keepers = [link.link.shard._keeper for link in cluster._links]
        assert [len(keeper._carried) for keeper in keepers] == [0, 0]
    for folder in shard_paths(path, 2):
        assert [file.name for file in folder.glob("ledger.db*")] == ["ledger.db"]


def test_the_next_block_deletes_the_votes_of_the_last(keeper):
    keeper.charge_and_sum(order_of(keeper))
    keeper.charge_and_sum(order_of(keeper, b"next", turn=6))
    assert len(keeper._carried) == 1


def test_what_goes_wrong_in_an_actor_quotes_nothing(folder):
    """Fails if a traceback, or the message of any exception, can leave an actor."""

    def fault():
        raise ValueError("record 7 of person-3")

    kind, words = told(fault)
    assert (kind, words) == ("silent", "A shard met with a fault (ValueError).")
    actor = ShardActor(str(folder))
    assert actor.settle(3) == ("done", None)
    assert actor.do("no order at all") == (
        "silent",
        "A shard met with a fault (AttributeError).",
    )
    actor.leave()


@pytest.mark.usefixtures("keeper")
def test_a_shard_is_no_store_and_has_one_process(folder):
    with pytest.raises(InvalidInput, match="There is no store"):
        Store.open(folder)
    with pytest.raises(PrivacyRefused, match="Another process"):
        ShardServer.open(folder)


def test_ray_reports_to_nobody_and_may_be_absent(monkeypatch):
    """Fails if Ray's usage reports can be on, or if its absence is not told in one sentence."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"vicinal\[ray\]"):
        RayCluster()
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"


# ---------------------------------------------------------------- the disk fails


def test_no_votes_leave_before_their_charge_is_durable(keeper, folder, monkeypatch):
    """Fails if a shard answers although its commit did not happen."""
    order = order_of(keeper)

    def full(self):  # noqa: ARG001 (as the method)
        raise sqlite3.OperationalError("disk full")

    monkeypatch.setattr(SQLiteDatabase, "_commit", full)
    with pytest.raises(StorageFailed):
        keeper.charge_and_sum(order)
    monkeypatch.undo()
    with pytest.raises(StorageFailed, match="Open it again"):
        keeper.charge_and_sum(order)
    keeper.close()
    again = ShardServer.open(folder)
    assert (left(again)[left(again) > 0] == UNITS).all()
    again.charge_and_sum(order)
    assert again.verify()
    again.close()


def test_the_charge_and_its_votes_are_one_transaction(keeper, monkeypatch):
    """Fails if there is a moment at which a charge is durable and its votes are not."""
    inside = []
    real = SQLiteDatabase._run

    def watched(self, statement, values):
        if statement.startswith(("INSERT INTO charges", "INSERT INTO carried")):
            inside.append(self._connection.in_transaction)
        return real(self, statement, values)

    commits = []
    monkeypatch.setattr(SQLiteDatabase, "_run", watched)
    real_commit = SQLiteDatabase._commit
    monkeypatch.setattr(
        SQLiteDatabase, "_commit", lambda self: (commits.append(len(inside)), real_commit(self))[1]
    )
    keeper.charge_and_sum(order_of(keeper))
    assert inside == [True, True]
    assert commits == [2]


# ---------------------------------------------------------------- the coordinator


def test_an_answer_leaves_only_when_it_is_durable_and_is_drawn_anew_otherwise(
    tmp_path, monkeypatch
):
    """Fails if a block is released with two noises, or charged twice, when a commit fails."""
    path = shard_tools.clustered(tmp_path, 2)
    cluster = shard_tools.local(path)
    with monkeypatch.context() as patch:
        patch.setattr(SQLiteDatabase, "_commit", refuse_answers(SQLiteDatabase._commit, cluster))
        with pytest.raises(StorageFailed):
            cluster.predict(tools.Q[:6], idempotency_key="k")
    cluster.close()
    charged = shard_tools.budgets(path)
    assert min(charged.values()) < UNITS
    with shard_tools.local(path) as again:
        reply = again.predict(tools.Q[:6], idempotency_key="k")
        assert reply.charged == 6
        replay = again.predict(tools.Q[:6], idempotency_key="k")
        np.testing.assert_array_equal(replay.votes, reply.votes)
        assert replay.charged == 0
    assert shard_tools.budgets(path) == charged


def refuse_answers(commit, cluster):
    """Return a commit that fails in the coordinator's database alone."""

    def failing(database: Database):
        if database is cluster._parts.database:
            raise sqlite3.OperationalError("disk full")
        commit(database)

    return failing


def test_a_private_count_that_was_broken_off_is_abandoned_with_its_charge(tmp_path, monkeypatch):
    """Fails if votes scaled by one noisy count are given noise for another."""
    path = shard_tools.clustered(
        tmp_path, 2, neighbor_count="private", n_queries=400, noise_multiplier=3.0
    )
    cluster = shard_tools.local(path)
    with monkeypatch.context() as patch:
        patch.setattr(SQLiteDatabase, "_commit", refuse_answers(SQLiteDatabase._commit, cluster))
        with pytest.raises(StorageFailed):
            cluster.predict(tools.Q[:6])
    cluster.close()
    before = shard_tools.budgets(path)
    with shard_tools.local(path) as again:
        assert again.predict(tools.Q[:6]).charged == 6
    after = shard_tools.budgets(path)
    assert all(after[person] <= before[person] for person in before)
    assert any(after[person] < before[person] for person in before)


# ---------------------------------------------------------------- shards that are missing


class Gone:
    """A way to a shard that nobody answers from, until it is put right."""

    def __init__(self, link, silent):
        self.link, self.silent = link, silent

    def send(self, order):
        self.silent -= 1
        return self if self.silent >= 0 else self.link.send(order)

    def result(self, seconds):  # noqa: ARG002 (as of Pending)
        raise ShardUnreachable

    def settle(self, turn):
        self.link.settle(turn)

    def close(self):
        self.link.close()


def opened(path, silent, absence):
    """Open a cluster whose shard 1 does not hear so many messages."""
    gone = []

    def links(paths):
        first, second = local_transports(paths)
        gone.append(Gone(second, silent))
        return [first, gone[0]]

    return Coordinator.open(path, links, absence), gone[0]


def test_a_block_waits_for_a_shard_that_comes_back(tmp_path):
    path = shard_tools.clustered(tmp_path, 2, simulation_seed=7)
    cluster, _ = opened(path, 4, MissingShardPolicy(deadline=20.0))
    with cluster, tools.make(tmp_path / "twin", simulation_seed=7) as store:
        reply = cluster.predict(tools.Q[:6])
        np.testing.assert_array_equal(reply.votes, store.predict(tools.Q[:6]).votes)
        assert reply.missing == ()


def test_a_block_is_refused_without_its_shard_and_charged_once_when_it_is_back(tmp_path):
    """Fails if a block is answered from the rest, or if asking again is charged again."""
    path = shard_tools.clustered(tmp_path, 2, simulation_seed=7)
    cluster, gone = opened(path, 10**6, MissingShardPolicy(deadline=0.1))
    with cluster:
        with pytest.raises(ShardMissing, match="1 of 2 shards"):
            cluster.predict(tools.Q[:6])
        assert cluster.is_consistent
        assert cluster.quota().used == 0
        gone.silent = 0
        assert cluster.predict(tools.Q[:6]).charged == 6
    with tools.make(tmp_path / "twin") as store:
        store.predict(tools.Q[:6])
        expected = {person: tools.units(store, person) for person in set(tools.PEOPLE)}
    assert shard_tools.budgets(path) == expected


def test_an_answer_without_a_shard_says_so_for_ever(tmp_path):
    path = shard_tools.clustered(tmp_path, 2)
    cluster, gone = opened(path, 10**6, MissingShardPolicy(deadline=0.1, answer_without=True))
    with cluster:
        assert cluster.predict(tools.Q[:6], idempotency_key="k").missing == (1,)
        gone.silent = 0
        assert cluster.predict(tools.Q[6:9]).missing == ()
        assert cluster.predict(tools.Q[3:9]).missing == (1,)
    with shard_tools.local(path) as again:
        reply = again.predict(tools.Q[:6], idempotency_key="k")
        assert (reply.missing, reply.charged) == ((1,), 0)
        assert again.verify()


@pytest.mark.parametrize("count", ["public", "private"])
def test_nobody_answers_without_any_shard(tmp_path, count):
    path = shard_tools.clustered(tmp_path, 1, neighbor_count=count)

    def links(paths):
        return [Gone(link, 10**6) for link in local_transports(paths)]

    absence = MissingShardPolicy(deadline=0.1, answer_without=True)
    with Coordinator.open(path, links, absence) as cluster, pytest.raises(ShardMissing):
        cluster.predict(tools.Q[:6])


@pytest.mark.parametrize("deadline", [0, -1.0, np.nan, np.inf, "soon"])
def test_a_deadline_is_a_number_of_seconds(deadline):
    with pytest.raises(InvalidInput, match="'deadline'"):
        MissingShardPolicy(deadline=deadline)


# ---------------------------------------------------------------- from a store to a cluster


def test_a_split_moves_budgets_answers_and_those_who_left(tmp_path):
    with tools.make(tmp_path / "store") as store:
        store.predict(tools.Q[:6], idempotency_key="k")
        votes = store.predict(tools.Q[:6]).votes
        store.erase(["person-7"])
        before = {p: tools.units(store, p) for p in store._parts.ledger.slot_table.slot_of}
    split(tmp_path / "store", tmp_path / "cluster", 3)
    assert shard_tools.budgets(tmp_path / "cluster") == before
    with shard_tools.local(tmp_path / "cluster") as cluster:
        reply = cluster.predict(tools.Q[:6], idempotency_key="k")
        np.testing.assert_array_equal(reply.votes, votes)
        assert reply.charged == 0
        assert cluster.quota().used == 6
        assert cluster.verify()
        gone = [
            len(link.link.shard._open()._parts.database.execute("SELECT hash FROM departed"))
            for link in cluster._links
        ]
    assert sorted(gone) == [0, 0, 1]


def test_a_store_that_was_split_answers_no_more(tmp_path):
    """Fails if budgets can be spent in two places."""
    shard_tools.clustered(tmp_path, 2)
    with pytest.raises(PrivacyRefused, match="is a backup"):
        Store.open(tmp_path / "store")
    with pytest.raises(PrivacyRefused, match="older than the store"):
        Store.restore(tmp_path / "store", tmp_path / "back", witness=tmp_path / "store.witness")


def broken_split(tmp_path, monkeypatch):
    """Break a split off just before the store retires."""
    tools.make(tmp_path / "store").close()

    def power_cut(source):  # noqa: ARG001 (as the function)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("vicinal.distributed._splitting._retire", power_cut)
        with pytest.raises(KeyboardInterrupt):
            split(tmp_path / "store", tmp_path / "cluster", 2)
    assert ClusterDescription.read(tmp_path / "cluster").state == "splitting"


def test_a_split_that_was_broken_off_is_finished(tmp_path, monkeypatch):
    broken_split(tmp_path, monkeypatch)
    assert ready_cluster(tmp_path / "cluster").state == "ready"
    with pytest.raises(PrivacyRefused, match="is a backup"):
        Store.open(tmp_path / "store")
    assert set(shard_tools.budgets(tmp_path / "cluster").values()) == {UNITS}


def test_a_broken_split_is_dropped_if_the_store_went_on(tmp_path, monkeypatch):
    """Fails if a cluster starts from budgets that have been spent since."""
    broken_split(tmp_path, monkeypatch)
    with Store.open(tmp_path / "store") as store:
        store.predict(tools.Q[:6])
    with pytest.raises(PrivacyRefused, match="has gone on since"):
        ready_cluster(tmp_path / "cluster")


@pytest.mark.parametrize("bad", [{"shards": 0}, {"shards": 1.5}, {"shards": True}])
def test_a_split_that_makes_no_sense_leaves_the_store_as_it_is(tmp_path, bad):
    tools.make(tmp_path / "store").close()
    with pytest.raises(InvalidInput):
        split(tmp_path / "store", tmp_path / "cluster", **bad)
    with pytest.raises(InvalidInput, match="'place'"):
        split(tmp_path / "store", tmp_path / "cluster", 2, place=lambda _: 2)
    with Store.open(tmp_path / "store") as store:
        assert store.predict(tools.Q[:3]).charged == 3


def test_an_old_copy_of_a_shard_is_refused(folder, tmp_path):
    """Fails if putting a shard's folder back refills its budgets."""
    shutil.copytree(folder, tmp_path / "copy")
    keeper = ShardServer.open(folder)
    keeper.charge_and_sum(order_of(keeper))
    keeper.close()
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "copy", folder)
    with pytest.raises(PrivacyRefused, match="old copy"):
        ShardServer.open(folder)


def test_names_of_blocks_do_not_run_together():
    assert block_name(b"ab", b"c") != block_name(b"a", b"bc")
