"""A shard's process is killed (SIGKILL) while records are added to it, and is started again.

One of two shards dies before or after a durable step of its part in an addition; the coordinator
goes on, and its client asks again with the same keys. The addition is there in whole or not at all,
and everybody has paid exactly what a store would have charged. The short form takes every 4th of
these points, so it sees a fault at a single one with probability 1/4; the soak takes each.
"""

import mmap
import os
import shutil
import signal

import numpy as np
import pytest

import shard_tools
import store_tools as tools
from crash.durable_steps import Steps
from crash.shard_processes import ShardProcess
from store_tools import PEOPLE, Q, points
from vicinal.distributed import Coordinator, ShardMissing

NEW, LABELS = points(40, 8)
NEWCOMERS = [f"new-{i // 2}" for i in range(38)] + PEOPLE[:2]
PLAN = {"n_queries": 100_000}


class SharedSteps(Steps):
    """Steps of a shard, counted over all its processes, so that only one of them is killed."""

    def __init__(self, last):
        self.last, self.fault = last, None
        self._count = np.frombuffer(mmap.mmap(-1, 8), np.int64)

    @property
    def done(self):
        return int(self._count[0])

    def step(self):
        self._count[0] += 1
        if self._count[0] == self.last:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    return shard_tools.clustered(tmp_path_factory.mktemp("template"), 2, **PLAN)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What everybody has left in a store that was asked the same, once."""
    with tools.make(tmp_path_factory.mktemp("twin") / "store", **PLAN) as store:
        store.predict(Q[:5])
        store.add(NEW, LABELS, NEWCOMERS)
        store.predict(Q[5:8])
        store.predict(Q[8:12])
        return {person: tools.units(store, person) for person in {*PEOPLE, *NEWCOMERS}}


def repeated(work):
    """Do something until no shard is missing, as a client would; at most some times."""
    for _ in range(6):
        try:
            return work()
        except ShardMissing:
            continue
    pytest.fail("a shard stays away")


def life(path, steps):
    """Ask, add, and ask again; return the addition's steps."""
    begun = []

    def ways(paths):
        return [
            ShardProcess(one, in_child=steps.watch if number else lambda: None)
            for number, one in enumerate(paths)
        ]

    with Coordinator.open(path, ways) as cluster:
        repeated(lambda: cluster.predict(Q[:5], idempotency_key="a"))
        begun.append(steps.done)
        repeated(lambda: cluster.add(NEW, LABELS, NEWCOMERS, idempotency_key="n"))
        begun.append(steps.done)
        assert repeated(lambda: cluster.presence(NEWCOMERS[:38:2])).enrolled == 19
        repeated(lambda: cluster.predict(Q[5:8], idempotency_key="b"))
        repeated(lambda: cluster.predict(Q[8:12], idempotency_key="c"))
        found = repeated(cluster.verify)
        assert found, found.faults
    return range(*begun)


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.soak)])
def test_a_shard_killed_while_it_adds_costs_nobody_anything(template, expected, tmp_path, every):
    """Fails if a kill leaves a part of the batch, brings a budget back, or charges twice."""
    within = life(shard_tools.transplanted(template, tmp_path / "c"), SharedSteps(0))
    assert len(within) > 12
    for last in within[every // 2 :: every]:
        path, steps = shard_tools.transplanted(template, tmp_path / f"{last}"), SharedSteps(last)
        life(path, steps)
        assert steps.done >= last, "it was not killed"
        assert shard_tools.budgets(path) == expected
        shutil.rmtree(path)


def test_a_shard_that_adds_nothing_is_found_out(template, tmp_path, monkeypatch):
    """The control: one that takes a batch for added that it has not must not pass the check."""
    monkeypatch.setattr("vicinal.distributed.shard_server.add_records", lambda *_: None)
    with pytest.raises(AssertionError):
        life(shard_tools.transplanted(template, tmp_path / "c"), SharedSteps(0))
