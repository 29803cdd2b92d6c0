"""`pytest --steady 20`: what luck could decide is run so often in a row, all else once.

What tests of a file or a folder share is made anew for each run.

Noise is seeded (entropy.py), so that luck is left in the moments of processes, threads, sockets and
kills, and in true noise. Nobody lists the tests that have any of it: the interpreter tells of each.
A process that draws nothing and is waited for is no luck.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

EVENTS = {"os.fork", "os.forkpty", "os.kill", "os.killpg", "signal.pthread_kill", "socket.__new__"}
"""Audit events after which an outcome could hang on a moment."""

WAITS = ((threading.Thread, "start"), (time, "sleep"))
"""The same without an event."""


def pytest_addoption(parser):
    parser.addoption("--steady", type=int, default=0, metavar="N", help="run N times what has luck")


class Watch:
    """Notices what luck could decide, from its making to the end of this process."""

    def __init__(self) -> None:
        self._seen = False
        self._notes: set[tuple] = set()
        sys.addaudithook(lambda event, _: self._notice(event in EVENTS))
        for owner, name in WAITS:
            setattr(owner, name, self._noticed(getattr(owner, name)))

    def begin(self) -> None:
        """Forget what was seen."""
        self._seen, self._notes = False, noted()

    def luck(self) -> bool:
        """Tell whether luck had a part since the last beginning."""
        return self._seen or noted() != self._notes

    def _notice(self, lucky: bool) -> None:
        self._seen = self._seen or lucky

    def _noticed(self, function):
        def watched(*args, **kwargs):
            self._notice(lucky=True)
            return function(*args, **kwargs)

        return watched


def declared(item: pytest.Item) -> bool:
    """Tell whether a test draws true noise, or uses Ray, whose threads are not Python's."""
    return "ray_engine" in item.fixturenames or item.get_closest_marker("entropy") is not None


def noted() -> set[tuple]:
    """Return which draws of other processes have been noted, and when (see entropy.py)."""
    return {
        (path.name, path.stat().st_mtime_ns) for path in Path(os.environ["NOTED_DRAWS"]).iterdir()
    }


def pytest_configure(config):
    if config.getoption("--steady"):
        config.stash[_WATCH] = Watch()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    if (watch := item.config.stash.get(_WATCH, None)) is None:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    watch.begin()
    for _ in range(item.config.getoption("--steady")):
        reports = runtestprotocol(item, nextitem=nextitem)
        if not (declared(item) or watch.luck()) or any(report.failed for report in reports):
            break
        item.session._setupstate.teardown_exact(item.session)  # all that tests share but a session
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


_WATCH = pytest.StashKey[Watch]()
