"""Shards and coordinators are killed under load: nobody pays twice, no answer is lost or doubled.

Queries, erasures, additions, and a private model that is trained: every act is repeated until it
ends, and so every charge must be exactly that of a store in which all were done once, whatever was
killed, repeated or late. When something dies is left to the machine, and no outcome may depend on
it. The short form kills up to six of three shards and two coordinators, the soak 90 and 30: a fault
that one kill of a shard in ten shows is missed with probability .9^6 = .53 by the short form and
8e-5 by the soak; what every kill breaks, by neither.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import shard_tools
import store_tools as tools
from crash.cluster_child import act, request, seen
from ray_engine import get_address

KILLS = 3
"""Shards that are killed in the life of a coordinator, before it is killed itself."""

PLAN = {"n_queries": 100_000, "noise_multiplier": 12.0}


def started(path, address, notes, seed):
    child = Path(__file__).with_name("cluster_child.py")
    errors = notes.with_suffix(f".{seed}.log").open("wb")
    command = [sys.executable, child, path, address, notes, str(seed)]
    with errors:
        return subprocess.Popen(command, stdout=errors, stderr=errors)


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def killed_again_and_again(path, address, notes, lives, pause):
    """Kill shards and `lives` coordinators; return when shards and when coordinators died.

    Up to `pause` seconds lie between two kills of shards: some die while others are starting.
    """
    shards, coordinators, rng = [], [], np.random.default_rng(lives)
    for _ in range(lives):
        child = started(path, address, notes, len(coordinators))
        try:
            before = len(seen(notes))
            wait_for(lambda before=before: len(seen(notes)) > before, child)
            for _ in range(KILLS):
                time.sleep(rng.uniform(0, 0.4))
                if kill(int(rng.choice(seen(notes)[-1]["shards"]))):
                    shards.append(time.time())
                time.sleep(rng.uniform(0, pause))
            assert child.poll() is None, "the coordinator ended by itself"
        finally:
            child.kill()
            child.wait(timeout=240)
            coordinators.append(time.time())
    return shards, coordinators


def back_after(kills, others, notes):
    """Return the seconds from each of these kills to the next answer, unless more died between."""
    answered = np.array([note["at"] for note in notes])
    every = np.sort([*kills, *others, np.inf])
    found = []
    for died in kills:
        later = answered[answered > died]
        if len(later) and later[0] < every[every > died][0]:
            found.append(later[0] - died)
    return np.sort(found)


def wait_for(happened, child):
    for _ in range(4800):
        if happened():
            return
        assert child.poll() is None, "the coordinator did not start"
        time.sleep(0.1)
    pytest.fail("nothing was answered for eight minutes")


def check(path, store, notes):
    """Everything that was seen is there, and was paid for once."""
    answered = {note["number"]: note["votes"] for note in notes}
    assert len(answered) == len(notes), "a request was answered twice"
    last = max(answered)
    assert sorted(answered) == list(range(last + 1)), "an answer was lost"
    with shard_tools.local(path) as cluster:
        before = answers(cluster)
        for number, votes in answered.items():
            assert not votes or act(cluster, number) == votes
        assert answers(cluster) == before, "an answer that was seen had not been paid for"
        # One more may have been under way when the last coordinator was killed.
        act(cluster, last + 1)
        assert cluster.verify(), cluster.verify().faults
        used = answers(cluster)
    for number in range(last + 2):
        act(store, number)
    assert used == answers(store)
    for audience in used:
        assert shard_tools.budgets(path, audience) == tools.left_of(store, audience), audience


def answers(store):
    return {name: store.quota(audience=name).used for name in store.audiences}


@pytest.mark.parametrize(
    ("lives", "pause"), [(2, 1.0), pytest.param(30, 5.0, marks=pytest.mark.soak)]
)
def test_killed_under_load_everybody_pays_exactly_once(tmp_path, ray_engine, lives, pause):
    """Fails if a kill, a repeated or a late message charges anybody twice, or loses an answer."""
    path = shard_tools.clustered(tmp_path, 3, **PLAN)
    notes = tmp_path / "seen.jsonl"
    address = get_address(ray_engine)
    shards, coordinators = killed_again_and_again(path, address, notes, lives, pause)
    assert len(shards) >= lives, "the first that a coordinator saw were alive"
    assert len(coordinators) == lives
    shard_tools.in_peace(path)
    found = seen(notes)
    gaps = np.diff([note["at"] for note in found])
    after_shards = back_after(shards, coordinators, found).round(1).tolist()
    after_coordinators = back_after(coordinators, shards, found).round(1).tolist()
    print(f"{len(found)} answers, {len(shards)} shards and {len(coordinators)} coordinators "
          f"killed, longest silences {np.sort(gaps)[-6:].round(1).tolist()} s; back after the last "
          f"kill, of a shard: {after_shards} s, of a coordinator: {after_coordinators} s; "
          f"load average {os.getloadavg()[0]:.1f}")  # fmt: skip
    with tools.make(tmp_path / "twin", **PLAN) as store:
        check(path, store, found)


def test_a_store_that_charged_twice_would_be_found_out(tmp_path):
    """The control: one request charged once more than it was answered must not pass the check."""
    path = shard_tools.clustered(tmp_path, 2, **PLAN)
    with shard_tools.local(path) as cluster:
        asked = [act(cluster, number) for number in range(3)]
        shard_tools.charge_only(cluster, request(9))
    notes = [{"number": number, "votes": votes} for number, votes in enumerate(asked)]
    with tools.make(tmp_path / "twin", **PLAN) as store, pytest.raises(AssertionError):
        check(path, store, notes)
    shutil.rmtree(path)
