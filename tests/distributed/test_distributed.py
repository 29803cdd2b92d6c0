"""Shards with their own folders: durability, repeated requests and refusals."""

import dataclasses
import os
import shutil
import subprocess
import sys
import threading
from contextlib import closing

import numpy as np
import pytest

import shard_tools
import store_tools as tools
from distributed.orders import copy_remaining_units, create_request
from shard_tools import Dead, heard
from vicinal.accounting.budget import UNITS
from vicinal.distributed import Coordinator, RayCluster, ShardMissing, split
from vicinal.distributed.folders import list_shard_folders
from vicinal.distributed.messages import DeleteSums, Facts, Verify, VoteRequest, create_request_name
from vicinal.distributed.ray_cluster import ShardActor, run_without_traceback
from vicinal.distributed.shard_server import ShardServer
from vicinal.distributed.transports import local_transports
from vicinal.engine.shard import LocalShardBase
from vicinal.errors import InvalidInput, MissingExtra, PrivacyRefused, StorageFailed
from vicinal.ledger.answers import AnswerBlock
from vicinal.ledger.sqlite import SQLiteDatabase
from vicinal.store import Store


@pytest.fixture
def folder(path):
    return path / "shard-0"


@pytest.fixture
def server(folder):
    with closing(ShardServer.open(folder)) as server:
        yield server


# ---------------------------------------------------------------- once, however often


def test_a_repeated_block_returns_the_same_votes_and_charges_once(server, folder):
    votes = server.run_task(create_request(server))
    after = copy_remaining_units(server)
    assert votes.shape == (6, tools.CLASSES)
    assert votes.any()
    assert (after < UNITS).any()
    np.testing.assert_array_equal(server.run_task(create_request(server)), votes)
    np.testing.assert_array_equal(copy_remaining_units(server), after)
    server.close()
    with closing(ShardServer.open(folder)) as reopened:
        np.testing.assert_array_equal(reopened.run_task(create_request(reopened)), votes)
        np.testing.assert_array_equal(copy_remaining_units(reopened), after)
        assert reopened.run_task(Verify())


def test_a_charge_that_is_broken_off_on_a_shard_stays_charged(server, folder, monkeypatch):
    """Fails if it is only in memory: the next block would not add up, and an opening refund it."""
    with monkeypatch.context() as patch:
        charge = LocalShardBase.charge_and_sum

        def charge_and_fail(*args):
            charge(*args)
            raise MemoryError

        patch.setattr(LocalShardBase, "charge_and_sum", charge_and_fail)
        with pytest.raises(MemoryError):
            server.run_task(create_request(server))
    after = copy_remaining_units(server)
    assert (after < UNITS).any()
    server.close()
    with closing(ShardServer.open(folder)) as reopened:
        np.testing.assert_array_equal(copy_remaining_units(reopened), after)
        assert reopened.run_task(Verify())


@pytest.mark.parametrize("what", ["thresholds", "scales", "queries", "clock"])
def test_a_name_belongs_to_one_block(server, what):
    request = create_request(server)
    server.run_task(request)
    before = copy_remaining_units(server)
    with pytest.raises(InvalidInput, match="Another block was charged"):
        server.run_task(dataclasses.replace(request, **{what: getattr(request, what) + 1}))
    np.testing.assert_array_equal(copy_remaining_units(server), before)


@pytest.mark.parametrize("reason", ["answered", "overtaken"])
def test_a_late_request_is_refused_and_charges_nothing(server, folder, reason):
    """Fails if a shard charges a block that is over or out of order, also once opened again."""
    late = create_request(server, b"first", sequence=1)
    if reason == "answered":
        server.run_task(late)
        server.run_task(DeleteSums(late.clock + 1))
    else:
        server.run_task(create_request(server, b"second", sequence=2))
    before = copy_remaining_units(server)
    for request in (late, dataclasses.replace(late, name=b"never seen before")):
        with pytest.raises(PrivacyRefused, match="The block is over"):
            server.run_task(request)
    server.close()
    with closing(ShardServer.open(folder)) as reopened:
        with pytest.raises(PrivacyRefused, match="The block is over"):
            reopened.run_task(late)
        np.testing.assert_array_equal(copy_remaining_units(reopened), before)


def test_a_bad_order_changes_nothing(server):
    before = copy_remaining_units(server)
    request = create_request(server)
    for bad in (
        {"audience": "nobody"},
        {"queries": request.queries[:, :2]},
        {"queries": request.queries.astype(np.float64)},
        {"thresholds": request.thresholds[:3]},
    ):
        with pytest.raises(InvalidInput):
            server.run_task(dataclasses.replace(request, **bad))
    np.testing.assert_array_equal(copy_remaining_units(server), before)
    assert shard_tools.kept_votes(server) == 0
    server.run_task(request)
    assert server.run_task(Verify())


def test_private_counts_are_for_one_machine(tmp_path):
    """Fails if a plan that shards cannot answer is split, or opened: every query would fail."""
    for count in ("private", "public"):
        tools.make(tmp_path / count, neighbor_count=count).close()
    with pytest.raises(InvalidInput, match="for a store on one machine"):
        split(tmp_path / "private", tmp_path / "no", 2)
    with Store.open(tmp_path / "private") as store:
        assert store.predict(tools.Q[:3]).charged == 3
    split(tmp_path / "public", tmp_path / "cluster", 2)
    with shard_tools.local(tmp_path / "cluster") as cluster:
        with pytest.raises(InvalidInput, match="for a store on one machine"):
            cluster.open_audience("press", n_queries=20, neighbor_count="private")
        assert cluster.predict(tools.Q[:3]).charged == 3


def test_votes_are_deleted_once_answers_are_durable(path):
    """Fails if un-noised votes stay on a shard, or in its files, longer than they must."""
    with shard_tools.local(path) as cluster:
        cluster.predict(tools.Q[:6])
        servers = [client.transport._server for client in cluster._clients]
        assert [shard_tools.kept_votes(server) for server in servers] == [0, 0]
    for folder in list_shard_folders(path, 2):
        assert [file.name for file in folder.glob("ledger.db*")] == ["ledger.db"]


def test_the_next_block_deletes_the_votes_of_the_last(server):
    server.run_task(create_request(server))
    server.run_task(create_request(server, b"next", clock=6))
    assert shard_tools.kept_votes(server) == 1


def test_what_goes_wrong_in_an_actor_quotes_nothing(folder):
    """Fails if a traceback, or the message of any exception, can leave an actor."""

    def fail():
        raise ValueError("record 7 of person-3")

    kind, words = run_without_traceback(fail)
    assert (kind, words) == ("unreachable", "A shard failed (ValueError).")
    actor = ShardActor(str(folder))
    for task in ("no task at all", Facts(), DeleteSums(3)):  # it needs a message
        assert actor.handle(task) == ("unreachable", "A shard failed (AttributeError).")
    actor.close()


@pytest.mark.usefixtures("server")
def test_a_shard_is_no_store_and_has_one_process_by_whatever_path(folder, tmp_path):
    with pytest.raises(InvalidInput, match="There is no store"):
        Store.open(folder)
    (tmp_path / "mounted").symlink_to(folder.parent)
    for path in (folder, tmp_path / "mounted" / folder.name):
        with pytest.raises(PrivacyRefused, match="Another process"):
            ShardServer.open(path)


@pytest.mark.usefixtures("server")
def test_a_shard_has_one_process_in_whatever_network_and_mount(folder, tmp_path):
    """As a container has them: a network of its own, and the folder under another mount."""
    (there := tmp_path / "there").mkdir()
    apart = ["unshare", "--user", "--map-root-user", "--net", "--mount", "sh", "-c"]
    bind = f"mount --bind {folder} {there}"
    if shutil.which("unshare") is None or subprocess.run([*apart, bind], check=False).returncode:
        pytest.skip("no namespaces of one's own here")
    opening = (
        f"from vicinal.distributed.shard_server import ShardServer as S; S.open({str(there)!r})"
    )
    command = f'{bind} && exec {sys.executable} -c "{opening}"'
    done = subprocess.run([*apart, command], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Another process has" in done.stderr


def test_many_shards_of_one_process_wait_for_their_disks_side_by_side(tmp_path, monkeypatch):
    """Fails if commits are made one after the other, or if charges differ from those of a store."""
    path = shard_tools.clustered(tmp_path, 8)
    handle, together = ShardServer.handle, threading.Barrier(8)

    def wait_for_all(server, message):
        if isinstance(message.task, (VoteRequest, DeleteSums)):
            together.wait(timeout=60)  # broken if one is done before another has begun
        return handle(server, message)

    with shard_tools.local(path) as cluster, tools.make(tmp_path / "one") as store:
        monkeypatch.setattr(ShardServer, "handle", wait_for_all)
        cluster.predict(tools.Q[:9])
        store.predict(tools.Q[:9])
        expected = tools.left_of(store)
    assert shard_tools.budgets(path) == expected


def test_ray_reports_to_nobody_and_may_be_absent(monkeypatch):
    """Fails if Ray's usage reports can be on, or if a missing Ray is not reported clearly."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"vicinal\[ray\]"):
        RayCluster()
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"


# ---------------------------------------------------------------- the disk fails


def test_no_votes_leave_before_their_charge_is_durable(server, folder, monkeypatch):
    request = create_request(server)
    with shard_tools.full_disk(server, monkeypatch):
        server.run_task(request)
    with pytest.raises(StorageFailed, match="Open it again"):
        server.run_task(request)
    server.close()
    with closing(ShardServer.open(folder)) as reopened:
        units = copy_remaining_units(reopened)
        assert (units[units > 0] == UNITS).all()
        reopened.run_task(request)
        assert reopened.run_task(Verify())


def test_the_charge_and_its_votes_are_one_transaction(server, monkeypatch):
    """Fails if there is a moment at which a charge is durable and its votes are not."""
    inside = []
    real = SQLiteDatabase._run_many

    def record_statement(self, statement, rows):
        if "INTO charges" in statement or "INTO carried" in statement:
            inside.append(self._connection.in_transaction)
        return real(self, statement, rows)

    commits = []
    monkeypatch.setattr(SQLiteDatabase, "_run_many", record_statement)
    real_commit = SQLiteDatabase._commit
    monkeypatch.setattr(
        SQLiteDatabase, "_commit", lambda self: (commits.append(len(inside)), real_commit(self))[1]
    )
    server.run_task(create_request(server))
    assert inside == [True, True]
    assert commits == [2]


# ---------------------------------------------------------------- the coordinator


def test_an_answer_leaves_only_when_it_is_durable_and_is_drawn_anew_otherwise(path, monkeypatch):
    """Fails if a block is released with two noises, or charged twice, when a commit fails."""
    cluster = shard_tools.local(path)
    with shard_tools.full_disk(cluster, monkeypatch):
        cluster.predict(tools.Q[:6], idempotency_key="k")
    cluster.close()
    charged = shard_tools.budgets(path)
    assert min(charged.values()) < UNITS
    with shard_tools.local(path) as reopened:
        reply = reopened.predict(tools.Q[:6], idempotency_key="k")
        assert reply.charged == 6
        replay = reopened.predict(tools.Q[:6], idempotency_key="k")
        np.testing.assert_array_equal(replay.votes, reply.votes)
        assert replay.charged == 0
    assert shard_tools.budgets(path) == charged


def test_a_commit_that_meets_no_disk_s_failure_shuts_nobody_out(path, monkeypatch):
    """Fails if shards learn of a commit that failed: they would refuse the coordinator as old."""
    with shard_tools.local(path) as cluster:
        with tools.broken_off(monkeypatch, AnswerBlock, "to_row", error=MemoryError):
            cluster.predict(tools.Q[:6])
        assert not cluster.is_consistent
    charged = shard_tools.budgets(path)
    with shard_tools.local(path) as reopened:
        assert reopened.predict(tools.Q[:6]).charged == 6
    assert shard_tools.budgets(path) == charged


# ---------------------------------------------------------------- shards that are missing


def test_a_block_waits_for_a_shard_that_comes_back(path, tmp_path):
    cluster = heard(path, Dead(messages=4), 20.0)
    with cluster, tools.make(tmp_path / "twin", simulation_seed=7) as store:
        reply = cluster.predict(tools.Q[:6])
        np.testing.assert_array_equal(reply.votes, store.predict(tools.Q[:6]).votes)


def test_a_block_is_refused_without_its_shard_and_charged_once_when_it_is_back(path, tmp_path):
    """Fails if a block is answered from the rest, or if asking again is charged again."""
    dead = Dead()
    with heard(path, dead, 0.1) as cluster:
        with pytest.raises(ShardMissing, match="1 of 2 shards"):
            cluster.predict(tools.Q[:6])
        assert cluster.quota().used == 0
        dead.messages = 0
        assert cluster.predict(tools.Q[:6]).charged == 6
    with tools.make(tmp_path / "twin") as store:
        store.predict(tools.Q[:6])
        expected = tools.left_of(store)
    assert shard_tools.budgets(path) == expected


@pytest.mark.parametrize("deadline", [0, -1.0, np.nan, np.inf, "soon"])
def test_a_deadline_is_a_number_of_seconds(tmp_path, deadline):
    with pytest.raises(InvalidInput, match="'deadline'"):
        Coordinator.open(tmp_path, local_transports, deadline)


# ---------------------------------------------------------------- from a store to a cluster

ERASED_HASHES = "SELECT hash FROM departed WHERE audience > 0"


def test_a_split_moves_budgets_answers_and_those_who_left(tmp_path):
    with tools.make(tmp_path / "store") as store:
        store.predict(tools.Q[:6], idempotency_key="k")
        votes = store.predict(tools.Q[:6]).votes
        store.erase(["person-7"])
        before = tools.left_of(store)
    split(tmp_path / "store", tmp_path / "cluster", 3)
    assert shard_tools.budgets(tmp_path / "cluster") == before
    with shard_tools.local(tmp_path / "cluster") as cluster:
        reply = cluster.predict(tools.Q[:6], idempotency_key="k")
        np.testing.assert_array_equal(reply.votes, votes)
        assert reply.charged == 0
        assert cluster.quota().used == 6
        assert cluster.verify()
        erased_counts = [
            len(client.transport._server._store.database.read(ERASED_HASHES))
            for client in cluster._clients
        ]
    assert sorted(erased_counts) == [0, 0, 1]


def test_a_store_that_was_split_answers_no_more(tmp_path):
    with tools.make(tmp_path / "store") as store:
        store.backup(tmp_path / "backup")
    split(tmp_path / "store", tmp_path / "cluster", 2)
    for accept in (False, True):
        with pytest.raises(PrivacyRefused, match="was split"):
            Store.open(tmp_path / "store", accept_loss=accept)
    with pytest.raises(PrivacyRefused, match="older than the store"):
        Store.restore(tmp_path / "backup", tmp_path / "b", witness=tmp_path / "store.witness")


def test_a_split_that_makes_no_sense_leaves_the_store_as_it_is(tmp_path):
    tools.make(tmp_path / "store").close()
    for shards in (0, 1.5, True):
        with pytest.raises(InvalidInput, match="'shards'"):
            split(tmp_path / "store", tmp_path / "cluster", shards)
    with pytest.raises(InvalidInput, match="'choose_shard'"):
        split(tmp_path / "store", tmp_path / "cluster", 2, choose_shard=lambda _: 2)
    with Store.open(tmp_path / "store") as store:
        assert store.predict(tools.Q[:3]).charged == 3


def test_names_of_blocks_do_not_run_together():
    assert create_request_name(b"ab", b"c") != create_request_name(b"a", b"bc")
