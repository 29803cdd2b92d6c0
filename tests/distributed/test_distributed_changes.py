"""Changes of a cluster's data: routed, durable, finished after a crash; backups as one state."""

import dataclasses
import os
import shutil
from contextlib import closing

import numpy as np
import pytest

import shard_tools
import store_tools as tools
from shard_tools import Dead, heard
from vicinal.accounting.budget import UNITS
from vicinal.distributed import ShardMissing, changes, split
from vicinal.distributed.changes import ClusterChange, ClusterChanges
from vicinal.distributed.cluster_backups import restore_cluster
from vicinal.distributed.folders import COORDINATOR, list_shard_folders
from vicinal.distributed.messages import SubjectStatuses, VoteRequest
from vicinal.distributed.shard_server import ShardServer
from vicinal.errors import (
    InvalidInput,
    KeyReused,
    NoSubjectIds,
    PrivacyRefused,
    StorageFailed,
    StoreDamaged,
)
from vicinal.store import Store

NEW_X, NEW_Y = tools.points(40, 9)
NEW = [f"new-{i // 2}" for i in range(40)]
SOON = 0.1


def find_shards(path):
    """Return the shard number of every subject of a closed cluster."""
    shard_of = {}
    for number, folder in enumerate(list_shard_folders(path, 2)):
        with closing(ShardServer.open(folder)) as server:
            shard_of |= dict.fromkeys(server._store.ledger.slot_table.slot_of, number)
    return shard_of


# ---------------------------------------------------------------- as on one machine


def test_who_comes_back_keeps_what_was_spent_wherever_they_were(tmp_path):
    """Fails if a subject that was placed goes by its hash when it comes back."""
    path = shard_tools.clustered(tmp_path, 2, place=lambda _: 1)
    with shard_tools.local(path) as cluster:
        cluster.predict(tools.Q[:20])
    spent = shard_tools.budgets(path)
    assert spent["person-3"] < UNITS
    with shard_tools.local(path) as cluster:
        assert cluster.erase(["person-3"]) == 2
        assert cluster.verify(["person-3"])
        cluster.add(tools.X[:1], tools.Y[:1], ["person-3"])
        assert not cluster.verify(["person-3"])
    assert find_shards(path)["person-3"] == 1
    assert shard_tools.budgets(path)["person-3"] == spent["person-3"]


def test_records_without_ids_are_new_people_where_all_are(tmp_path, path):
    settings = {"classes": range(3), "public": tools.R, "n_records": 300, **tools.PLAN}
    Store.init(tmp_path / "numbers", tools.X, tools.Y, **settings).close()
    split(tmp_path / "numbers", tmp_path / "numbered", 2)
    with shard_tools.local(tmp_path / "numbered") as cluster:
        with pytest.raises(NoSubjectIds, match="every row is a subject of its own"):
            cluster.erase([3])
        for _ in range(2):
            cluster.add(NEW_X[:1], NEW_Y[:1])
        with pytest.raises(InvalidInput, match="left out"):
            cluster.add(NEW_X[:1], NEW_Y[:1], [7])
        assert cluster.presence(range(302)).enrolled == 302
        assert cluster.verify()
    assert set(find_shards(tmp_path / "numbered")) == set(range(302))
    with shard_tools.local(path) as cluster, pytest.raises(InvalidInput, match="must be given"):
        cluster.add(NEW_X, NEW_Y)


def test_the_same_addition_is_made_once(path):
    with shard_tools.local(path) as cluster:
        made = cluster.add(NEW_X, NEW_Y, NEW, idempotency_key="k")
        assert cluster.add(NEW_X, NEW_Y, NEW, idempotency_key="k") == made
        with pytest.raises(KeyReused):
            cluster.add(NEW_X[1:], NEW_Y[1:], NEW[1:], idempotency_key="k")
        assert cluster.version == made


def test_a_new_audience_has_budgets_of_its_own_on_every_shard(path):
    with shard_tools.local(path) as cluster:
        cluster.open_audience("press", epsilon=2.0, n_queries=10, noise_multiplier=3.0)
        with pytest.raises(InvalidInput, match="must be new"):
            cluster.open_audience("press")
        assert cluster.guarantee("press").epsilon == 2.0
        cluster.allow("anna", 3, audience="press")
        assert cluster.predict(tools.Q[:3], audience="press", analyst="anna").charged == 3
        with pytest.raises(PrivacyRefused):
            cluster.predict(tools.Q[3:5], audience="press", analyst="anna")
    assert min(shard_tools.budgets(path, "press").values()) < UNITS
    assert set(shard_tools.budgets(path).values()) == {UNITS}
    with shard_tools.local(path) as reopened:
        assert reopened.quota("anna", audience="press").analyst_used == 3
        facts = reopened.facts(curator=True)
        assert facts["shards"] == 2
        assert sum(counts["subjects"] for counts in facts["private"].values()) == 150


# ---------------------------------------------------------------- broken off


@pytest.mark.parametrize("shard", [0, 1])
def test_an_addition_that_was_broken_off_is_finished_once(path, shard):
    """Fails if a crash between coordinator and shards loses records, or adds them twice."""
    with heard(path, Dead("Add"), SOON, shard) as cluster:
        with pytest.raises(ShardMissing, match=r"Shard \d: It is dead"):
            cluster.add(NEW_X, NEW_Y, NEW, idempotency_key="k")
        with pytest.raises(ShardMissing):
            cluster.predict(tools.Q[:2])
        assert cluster.is_consistent
    assert (path / COORDINATOR / "change").is_file()
    with shard_tools.local(path) as reopened:
        assert not (path / COORDINATOR / "change").exists()
        assert reopened.add(NEW_X, NEW_Y, NEW, idempotency_key="k") == reopened.version
        assert reopened.verify()
        private = reopened.facts(curator=True)["private"].values()
        assert sum(counts["records"] for counts in private) == 340


def test_nothing_is_answered_before_an_erasure_is_through(path):
    """Fails if a crash between coordinator and shards leaves an erased subject in the data."""
    with heard(path, Dead("Erase"), SOON) as cluster:
        with pytest.raises(ShardMissing):
            cluster.erase([f"person-{i}" for i in range(10)])
        with pytest.raises(ShardMissing):
            cluster.predict(tools.Q[:2])
    with pytest.raises(ShardMissing):
        heard(path, Dead("Erase"), SOON).close()
    with shard_tools.local(path) as reopened:
        assert reopened.verify([f"person-{i}" for i in range(10)])
    assert not tools.files_with(path, b"person-3>")


def test_a_change_that_is_not_the_one_that_was_decided_is_made_nowhere(path):
    """Fails if a changed file in the coordinator's folder can have another subject erased."""
    with heard(path, Dead("Erase"), SOON) as cluster, pytest.raises(ShardMissing):
        cluster.erase(["person-3"])
    change = path / COORDINATOR / "change"
    decided = change.read_bytes()
    dataclasses.replace(ClusterChange.read(change), subjects=["person-4"]).save(change, os.getuid())
    with pytest.raises(StoreDamaged, match="not the change that was decided"):
        shard_tools.local(path)
    change.write_bytes(decided)
    with shard_tools.local(path) as reopened:
        assert reopened.presence(["person-4"]).enrolled == 1
        assert reopened.presence(["person-3"]).enrolled == 0


def test_votes_of_who_is_erased_stay_in_no_file(path):
    """Fails if votes without an answer are deleted only after the ledger was rewritten."""
    with shard_tools.local(path) as cluster:
        shard_tools.charge_only(cluster, tools.Q[:6])
        server = cluster._clients[0].transport._server
        ((votes,),) = server._store.database.read("SELECT sums FROM carried")
        assert tools.files_with(path, votes[:64])
        cluster.erase(tools.PEOPLE[:4])
        assert not tools.files_with(path, votes[:64])


def test_digests_of_what_was_added_with_the_erased_stay_in_no_file(path):
    """Fails if the coordinator forgets them, and its log and free pages do not."""
    with shard_tools.local(path) as cluster:
        cluster.add(NEW_X[:2], NEW_Y[:2], NEW[1:3], idempotency_key="k")
        ((digest,),) = cluster._store.database.read("SELECT body FROM additions")
        assert tools.files_with(path, digest)
        cluster.erase(NEW[1:2])
        assert not tools.files_with(path, digest)


def test_a_change_that_is_not_in_a_shards_memory_has_it_opened_again(path, monkeypatch):
    with shard_tools.local(path) as cluster:
        with tools.broken_off(monkeypatch, ShardServer, "_open_audience_state", error=MemoryError):
            cluster.open_audience("more", **{**tools.PLAN, "model_share": 0})
        assert len(cluster.predict(tools.Q[:2], audience="more").labels) == 2
        assert cluster.verify()


def test_a_change_is_not_decided_without_all_shards(path):
    for kind, work in (
        ("SubjectStatuses", lambda c: c.add(NEW_X, NEW_Y, NEW)),
        ("Ping", lambda c: c.erase(["person-3"])),
        ("Ping", lambda c: c.open_audience("press")),
    ):
        with heard(path, Dead(kind), SOON) as cluster:
            version = cluster.version
            with pytest.raises(ShardMissing):
                work(cluster)
            assert cluster.version == version
    with shard_tools.local(path) as reopened:
        assert reopened.audiences == ("default",)


def test_a_change_that_was_never_decided_leaves_nothing(path, monkeypatch):
    """Fails if records that a crash left in the coordinator's folder stay there."""
    cluster = shard_tools.local(path)
    monkeypatch.setattr(ClusterChanges, "finish_pending", lambda _: pytest.fail("undecided"))
    with monkeypatch.context() as patch:
        patch.setattr(type(cluster._store.database), "put", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            cluster.erase(["person-3"])
    cluster.close()
    assert (path / COORDINATOR / "change").is_file()
    shard_tools.local(path).close()
    assert not (path / COORDINATOR / "change").exists()
    assert "person-3" in find_shards(path)


def test_a_change_told_twice_is_made_once(path):
    with shard_tools.local(path) as cluster:
        sent = []
        real = type(cluster._clients[0]).send

        def send_twice(self, task):
            sent.append(task)
            real(self, task)(1.0)
            return real(self, task)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(cluster._clients[0]), "send", send_twice)
            cluster.add(NEW_X, NEW_Y, NEW)
            cluster.open_audience("press", n_queries=5, model_share=0)
            late = list(sent)
            cluster.erase(["new-3"])
        for task in late:
            for link in cluster._clients:
                link.send(task)(1.0)
        assert cluster.verify(["new-3"])
        private = cluster.facts(curator=True)["private"].values()
        assert sum(counts["records"] for counts in private) == 338


def test_a_subject_that_two_shards_know_is_not_added(path, monkeypatch):
    """Fails if a subject that has two budgets gets records all the same."""
    do = ShardServer.run_task

    def known(self, task):
        if isinstance(task, SubjectStatuses):
            return np.full(len(task.subjects), 3, dtype=np.int8)
        return do(self, task)

    monkeypatch.setattr(ShardServer, "run_task", known)
    with shard_tools.local(path) as cluster:
        before = cluster.version
        with pytest.raises(PrivacyRefused, match="Two shards hold the same subject"):
            cluster.add(NEW_X, NEW_Y, NEW)
        assert cluster.version == before


def test_what_is_no_sum_is_not_added_up(path, monkeypatch):
    """Fails if a shard of another version spoils an answer without a word."""
    do = ShardServer.run_task

    def votes(self, task):
        sums = do(self, task)
        return sums[:, :1] if isinstance(task, VoteRequest) else sums

    with shard_tools.local(path) as cluster:
        monkeypatch.setattr(ShardServer, "run_task", votes)
        with pytest.raises(StorageFailed, match="something other than sums"):
            cluster.predict(tools.Q[:3])


# ---------------------------------------------------------------- backups


def test_a_backup_is_the_last_state_of_all_parts_or_none(tmp_path, path):
    """Fails if a backup that one part has gone on from refills a budget."""
    with shard_tools.local(path) as cluster:
        votes = cluster.predict(tools.Q[:8], idempotency_key="k").votes
        cluster.backup(tmp_path / "backup")
        with pytest.raises(InvalidInput, match="must be a new folder"):
            cluster.backup(tmp_path / "backup")
    spent = shard_tools.budgets(path)
    shutil.rmtree(path)
    with pytest.raises((InvalidInput, PrivacyRefused)):
        Store.open(tmp_path / "backup" / COORDINATOR)
    restore_cluster(tmp_path / "backup", path)
    assert shard_tools.budgets(path) == spent
    with pytest.raises(InvalidInput):
        Store.open(path / "shard-0")
    with shard_tools.local(path) as reopened:
        assert reopened.verify()
        np.testing.assert_array_equal(
            reopened.predict(tools.Q[:8], idempotency_key="k").votes, votes
        )
        reopened.predict(tools.Q[8:12])
    shutil.rmtree(path)
    with pytest.raises(PrivacyRefused):
        restore_cluster(tmp_path / "backup", path)
    shutil.rmtree(path, ignore_errors=True)
    restore_cluster(tmp_path / "backup", path, accept_loss=True)
    assert set(shard_tools.budgets(path).values()) == {0}


# ---------------------------------------------------------------- killed

MOMENTS = {
    "decided and no shard told": (ClusterChanges, "finish_pending"),
    "one shard told": (ShardServer, "_mark_change"),
    "made by one shard and not noted": (ShardServer, "_write_change_clock"),
    "made by all and the file not wiped": (changes, "wipe_file"),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_coordinator_that_is_killed_half_way_finishes_at_the_next_opening(path, moment):
    """Fails if a kill at one of these moments leaves a subject that was to be erased."""
    gone = [f"person-{i}" for i in range(10)]
    child = os.fork()
    if child == 0:
        try:
            cluster = shard_tools.local(path)
            setattr(*MOMENTS[moment], lambda *_: os._exit(9))
            cluster.erase(gone)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    with shard_tools.local(path) as reopened:
        assert reopened.verify(gone)
        private = reopened.facts(curator=True)["private"].values()
        assert sum(counts["subjects"] for counts in private) == 140
    assert not (path / COORDINATOR / "change").exists()
    assert not tools.files_with(path, b"person-3>")


def test_no_shard_makes_a_change_that_was_not_committed(path, monkeypatch):
    """Fails if a coordinator whose commit was broken off sends the change."""
    with shard_tools.local(path) as cluster:
        sent = []
        cluster.add(*tools.points(2, 5), ["a", "b"])
        change = ClusterChange("add")
        cluster._changes._digest = change.save(cluster._changes._path, os.getuid())
        monkeypatch.setattr(cluster._changes, "run_on_shards", lambda *task: sent.append(task))
        cluster._changes.pending = cluster._ledger.last_commit[0] + 1
        with pytest.raises(StorageFailed, match="not committed"):
            cluster._changes.finish_pending()
        assert not sent
        cluster._changes.pending = 0
