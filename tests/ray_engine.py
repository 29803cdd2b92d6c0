"""One Ray engine for all tests that want one, and one worker that runs their files.

An engine takes seconds of both cores to start. It starts with the first test that asks for it, and
ends before the first test of a file that is not ON_RAY: no other test forks beside Ray's threads.

Ray's workers are otherwise 15 steps less important than whatever else runs on the machine, and
would starve beside it.
"""

from __future__ import annotations

import os

import pytest

from distribution import ON_RAY, file_of

MEMORY = 100 << 20
"""Bytes of Ray's object store."""


class Engine:
    """A Ray engine of two cores that starts when it is first asked for."""

    def __init__(self) -> None:
        self._cluster = None

    def running(self):
        """Return the engine, started if it does not run; skip where Ray is not installed."""
        pytest.importorskip("ray", reason="Ray is not installed (extra `ray`)")
        from vicinal.distributed import RayCluster

        self._cluster = self._cluster or RayCluster(cpus=2, memory=MEMORY)
        return self._cluster

    def stop(self) -> None:
        """End the engine if it runs."""
        if self._cluster is not None:
            self._cluster.stop()
            self._cluster = None


_ENGINE = Engine()
os.environ.setdefault("RAY_worker_niceness", "0")  # engines of child processes, too


@pytest.fixture
def ray_engine(request):
    """Return the engine that runs for all files ON_RAY."""
    assert file_of(request.node.nodeid) in ON_RAY, "the file must stand in distribution.ON_RAY"
    return _ENGINE.running()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    if file_of(item.nodeid) not in ON_RAY:
        _ENGINE.stop()


def pytest_unconfigure():
    _ENGINE.stop()
