"""Adding people to a cluster while it answers: shards prepare them beside blocks.

What comes in between is done when all shards have prepared their part and nothing is decided yet.
"""

from contextlib import suppress
from functools import partial

import numpy as np
import pytest

import shard_tools
import store_tools as tools
from store_tools import PEOPLE, Q, points
from vicinal.distributed import Coordinator, local_transports
from vicinal.distributed._changes import ClusterChanges
from vicinal.distributed._messages import Add, AddStaged, Erase, Stage
from vicinal.distributed._shard_server import ShardServer
from vicinal.errors import KeyReused

NEW, LABELS = points(40, 8)
NEWCOMERS = [f"new-{i // 2}" for i in range(38)] + PEOPLE[:2]


@pytest.fixture
def between(monkeypatch):
    """Return a function that says what is done, once, when shards have prepared records."""
    stage, works = ClusterChanges.stage, []

    def staged(*args):
        found = stage(*args)
        while works:
            works.pop()()
        return found

    monkeypatch.setattr(ClusterChanges, "stage", staged)
    return works.append


@pytest.fixture
def handled(monkeypatch):
    """Return the tasks that shards were given."""
    do, tasks = ShardServer.do, []
    monkeypatch.setattr(
        ShardServer, "do", lambda self, task: (tasks.append(task), do(self, task))[1]
    )
    return tasks


def types(tasks):
    return {type(task) for task in tasks}


def test_a_cluster_adds_while_it_answers_as_a_store_does(tmp_path, between, handled):
    """Answers before the commit are of the people before; budgets are those of one store."""
    path = shard_tools.clustered(tmp_path / "cluster", 3, simulation_seed=7)
    with tools.make(tmp_path / "store", simulation_seed=7) as store:
        expected = [store.predict(Q[:20]).votes]
        store.add(NEW, LABELS, NEWCOMERS)
        expected.append(store.predict(Q[20:40]).votes)
        budgets = tools.left_of(store)
    with shard_tools.local(path) as cluster:
        found = []
        between(lambda: found.append(cluster.predict(Q[:20]).votes))
        cluster.add(NEW, LABELS, NEWCOMERS)
        found.append(cluster.predict(Q[20:40]).votes)
        assert AddStaged in types(handled)
        assert Add not in types(handled), "no records travel while nothing is answered"
        np.testing.assert_array_equal(np.array(found), np.array(expected))
        assert cluster.verify(), cluster.verify().faults
    assert shard_tools.budgets(path) == budgets
    assert not list((path / "coordinator").glob("staged*"))


def test_whoever_is_erased_meanwhile_is_not_added(tmp_path, between):
    path = shard_tools.clustered(tmp_path / "cluster", 2)
    with shard_tools.local(path) as cluster:
        between(lambda: cluster.erase([NEWCOMERS[0], PEOPLE[0]]))
        between(lambda: (cluster.erase([NEWCOMERS[2]]), _nobody_in_files(path, NEWCOMERS[2])))
        cluster.add(NEW, LABELS, NEWCOMERS, idempotency_key="k")
        erased = [NEWCOMERS[0], NEWCOMERS[2], PEOPLE[0]]
        assert cluster.verify(erased, np.concatenate([NEW[:4], NEW[-2:]]))
        assert cluster.presence([NEWCOMERS[4]]).enrolled == 1
        assert cluster.presence(erased[:2]).enrolled == 0
        with pytest.raises(KeyReused):
            cluster.add(NEW, LABELS, NEWCOMERS, idempotency_key="k")


def _nobody_in_files(path, person):
    """An erasure wipes also what is not added yet, before it returns."""
    assert not tools.files_with(path, person.encode())


def test_verification_sees_who_was_erased_among_what_waits_to_be_added(tmp_path, between):
    """Fails if nobody looks beyond the end of a shard's records, or into the batch itself."""
    found, path = [], shard_tools.clustered(tmp_path / "cluster", 2)
    asked = [(["new-3"], None), ((), NEW[6:7]), (["new-3"], NEW[6:7]), (["none"], NEW[6:7] + 9)]
    with shard_tools.local(path) as cluster:
        between(lambda: found.extend(cluster.verify(*one).faults for one in asked))
        cluster.add(NEW, LABELS, NEWCOMERS)
    batch = "A batch that waits to be added holds an erased "
    assert found[0] == (batch + "id.",)
    assert [fault[:6] for fault in found[1]] == [batch[:6], "Shard "]
    assert found[2][:2] == (batch + "id.", found[1][0])
    assert found[3] == ()


def test_records_that_arrive_after_an_erasure_are_not_prepared(tmp_path, monkeypatch):
    """Fails if a slow network writes features of an erased person into a shard's files again."""
    path, sent = shard_tools.clustered(tmp_path / "cluster", 2), []
    handle = ShardServer.handle

    def watched(server, message):
        if isinstance(message.task, Stage) and message.task.addition is not None:
            sent.append((server, message))
        return handle(server, message)

    monkeypatch.setattr(ShardServer, "handle", watched)
    with shard_tools.local(path) as cluster:
        kernel, schema = cluster.schema.kernel_of(None), cluster.schema
        cluster.add(NEW[:1], LABELS[:1], ["victim"])
        person = kernel.encode(schema.vectors(NEW[:1])).tobytes()
        assert tools.files_with(path, person) == ["features"]
        cluster.erase(["victim"])
        assert not tools.files_with(path, person)
        ((server, late),) = sent
        server.handle(late)
        if (thread := server._staging._thread) is not None:
            thread.join()
        assert not tools.files_with(path, person)
        cluster.add(NEW[1:3], LABELS[1:3], ["other", "third"])
        assert cluster.verify(["victim"], NEW[:1])


def test_a_shard_that_has_forgotten_gets_the_records(tmp_path, between, handled):
    """It was opened again between preparation and commit."""
    path = shard_tools.clustered(tmp_path / "cluster", 2)
    with shard_tools.local(path) as cluster:
        between(cluster._clients[0].transport.shard.close)
        cluster.add(NEW, LABELS, NEWCOMERS)
        assert {Add, AddStaged} <= types(handled)
        assert cluster.verify(), cluster.verify().faults
        assert cluster.predict(Q[:5]).charged == 5


def test_other_changes_meanwhile_are_kept(tmp_path, between):
    path = shard_tools.clustered(tmp_path / "cluster", 2)
    with shard_tools.local(path) as cluster:
        cluster.predict(Q[:5])
        between(
            lambda: cluster.open_audience("more", n_queries=5, n_neighbors=40, noise_multiplier=1.5)
        )
        between(lambda: cluster.evaluate(Q[:5], [0] * 5, NEWCOMERS[:9:2], accept_noise=True))
        between(lambda: cluster.backup(tmp_path / "backup"))
        cluster.add(NEW, LABELS, NEWCOMERS)
        cluster.add(*points(3, 9), ["new-1", "later", "new-3"])
        assert cluster.verify(), cluster.verify().faults
        assert cluster.presence(["later", *NEWCOMERS[::2]]).enrolled == 21


def test_records_without_ids_are_new_people(tmp_path, between):
    settings = {"classes": range(3), "public": tools.R, "n_records": 300, **tools.PLAN}
    make = partial(tools.Store.init, X=tools.X, y=tools.Y, **settings)
    path = shard_tools.clustered(tmp_path / "cluster", 2, make=make)
    with shard_tools.local(path) as cluster:
        for _ in range(2):
            between(lambda: cluster.predict(Q[:5]))
            cluster.add(NEW, LABELS)
        assert cluster.presence(range(380)).enrolled == 380
        assert cluster.verify()


class Killed(BaseException):
    """In place of a process that ends."""


@pytest.mark.parametrize("step", range(5))
def test_a_coordinator_that_ends_at_a_step_leaves_one_of_two_sets(tmp_path, monkeypatch, step):
    """Steps: messages to shards. Whatever was cut off, the next coordinator has all or nothing."""
    path = shard_tools.clustered(tmp_path / "cluster", 2)
    do, left = ShardServer.do, [step]

    def killed(self, task):
        if isinstance(task, Stage | AddStaged | Add | Erase) or left[0] < 0:
            left[0] -= 1
            if left[0] == -1:
                raise Killed
        return do(self, task)

    with monkeypatch.context() as patch:
        patch.setattr(ShardServer, "do", killed)
        cluster = Coordinator.open(path, local_transports)
        with suppress(Killed):
            cluster.add(NEW, LABELS, NEWCOMERS)
        _abandon(cluster)
    with shard_tools.local(path) as again:
        assert again.verify(), again.verify().faults
        assert again.presence(NEWCOMERS[:38:2]).enrolled in (0, 19)
        assert again.predict(Q[:3]).charged == 3
        again.add(NEW, LABELS, NEWCOMERS)
        assert again.verify()


def _abandon(cluster):
    """Let go of files and locks, and of nothing else."""
    cluster._failed = True
    cluster.close()
