"""One Ray engine for all tests that want one: it takes seconds of both cores to start.

Files with such tests come first, so that one worker runs them all. The engine ends before the first
test of another file: no other test forks beside Ray's threads.

Ray's workers are otherwise 15 steps less important than whatever else runs on the machine, and
would starve beside it.
"""

import os

import pytest

MEMORY = 100 << 20
"""Bytes of Ray's object store."""


class Engine:
    """A Ray engine of two cores that starts when it is first asked for."""

    def __init__(self):
        self._cluster = None

    def running(self):
        """Return the engine, started if it does not run; skip where Ray is not installed."""
        pytest.importorskip("ray", reason="Ray is not installed (extra `ray`)")
        from vicinal.distributed import RayCluster

        self._cluster = self._cluster or RayCluster(cpus=2, memory=MEMORY)
        return self._cluster

    def stop(self):
        """End the engine if it runs."""
        if self._cluster is not None:
            self._cluster.stop()
            self._cluster = None


def get_address(cluster):
    """Return the address at which other processes reach the engine of a RayCluster."""
    return str(cluster._ray.get_runtime_context().gcs_address)


def list_process_ids(cluster):
    """Return the process id of every shard's actor of a RayCluster, waiting until all run."""
    calls = [
        link.actor.get_process_id.options(max_task_retries=-1).remote()
        for link in cluster._transports
    ]
    return [int(pid) for pid in cluster._ray.get(calls)]


_ENGINE = Engine()
os.environ.setdefault("RAY_worker_niceness", "0")  # engines of child processes, too


@pytest.fixture
def ray_engine():
    """Return the engine that runs for all files with tests that want one."""
    return _ENGINE.running()


_FILES = pytest.StashKey[set]()


def pytest_collection_modifyitems(config, items):
    config.stash[_FILES] = {item.path for item in items if "ray_engine" in item.fixturenames}
    items.sort(key=lambda item: item.path not in config.stash[_FILES])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    if item.path not in item.config.stash[_FILES]:
        _ENGINE.stop()


def pytest_unconfigure():
    _ENGINE.stop()
