"""The wire between network namespaces: it delays as it says, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from benchmarks import namespaces
from benchmarks.namespaces import machines, unavailable
from benchmarks.shards_apart import apart

needs_root = pytest.mark.skipif(bool(unavailable()), reason=unavailable() or "available")


def named():
    told = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True)
    return [line for line in told.stdout.splitlines() if f"-{os.getpid()}-" in line]


@pytest.mark.soak
@needs_root
def test_a_byte_takes_the_delay_both_ways_and_no_more():
    """Fails if packets are held too long, not at all, or find another way.

    A measurement of the machine, which no bound can make certain: `make test` leaves it out.
    """
    with machines(3) as found:
        assert len(named()) == 3
        for delay in (0.0, 0.02):
            found.wire.delay = delay
            before = found.wire.passed
            assert 2 * delay < found.echo(9) < 2 * delay + 0.02
            assert found.wire.passed >= before + 18
    assert named() == []


@needs_root
def test_whatever_happens_namespaces_and_their_processes_end():
    started = []

    def broken_off():
        with machines(1) as found:
            command = ["sh", "-c", "echo inside; exec sleep 600"]
            started.append(found.start(0, command, stdout=subprocess.PIPE))
            assert started[0].stdout.readline() == "inside\n"
            raise RuntimeError("anything")

    with pytest.raises(RuntimeError, match="anything"):
        broken_off()
    assert started[0].wait(120) != 0
    started[0].stdout.close()
    assert named() == []


@needs_root
def test_what_a_killed_run_left_behind_is_cleared_away():
    """Fails if namespaces of the dead stay, or if those of the living are cleared with them."""
    nobody = subprocess.Popen([sys.executable, "-c", ""])
    nobody.wait()
    left, living = f"{namespaces._NAME}-{nobody.pid}-0", f"{namespaces._NAME}-{os.getpid()}-7"
    for name in (left, living):
        subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        with machines(1):
            told = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True)
        assert left.encode() not in told.stdout
        assert living.encode() in told.stdout
    finally:
        subprocess.run(["ip", "netns", "delete", living], check=True)


def test_where_there_are_no_namespaces_it_says_so(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "root" in unavailable()
    with pytest.raises(SystemExit, match="--delays"):
        apart(1000, 8, 1, None)
