"""kill -9 and SIGSTOP of a copy of a shard under load, and of the coordinator that gives it up.

Each copy has a process of its own. It is killed, or stopped so that it goes on later, and the
coordinator goes on with the other one by itself. Then the coordinator is killed in turn, at steps
from the loss to the second answer after it. Whatever is left must have exactly the budgets of a
cluster that never lost a copy, after a number of requests that was seen or the one under way. The
short form takes every 12th step; the soak takes all.
"""

from __future__ import annotations

import pytest

import shard_tools
from crash.store_spawner import QUERIES
from crash.store_watch import Spawner, check_answers, seen
from vicinal.distributed import _promotion as promotion
from vicinal.distributed._folders import copy_path

SEED = 11
FIRSTS = [SEED, SEED + 7, SEED + 14, SEED + 21, SEED + 70]
LIFE = {"life": "lose_a_copy", "seed": SEED, "takeover_s": 0.1}

lost_how = pytest.mark.parametrize(
    ("lost", "signal"), [(1, "SIGKILL"), (2, "SIGKILL"), (1, "SIGSTOP"), (2, "SIGSTOP")]
)


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """One shard with two copies."""
    return shard_tools.clustered(
        tmp_path_factory.mktemp("template"), 1, copies=2, n_queries=100_000
    )


@pytest.fixture(scope="module")
def unhurt(template, tmp_path_factory):
    """What everybody has left after each request, in a cluster that lost nothing."""
    path = shard_tools.transplanted(template, tmp_path_factory.mktemp("unhurt") / "c")
    found = [shard_tools.budgets_of(copy_path(path, 0, 1))]
    for first in FIRSTS:
        with shard_tools.local(path) as cluster:
            cluster.predict(QUERIES[first : first + 4])
        found.append(shard_tools.budgets_of(copy_path(path, 0, 1)))
    return found


@pytest.fixture(scope="module")
def spawner(tmp_path_factory):
    spawner = Spawner(tmp_path_factory.mktemp("spawner"))
    yield spawner
    spawner.close()


def listed(path):
    with promotion._opened(path, 0) as (_, _records, record):
        return record.copies


@lost_how
def test_the_service_goes_on_and_charges_are_those_of_a_cluster_that_lost_nothing(
    spawner, template, unhurt, tmp_path, lost, signal
):
    path, notes = shard_tools.transplanted(template, tmp_path / "c"), tmp_path / "notes"
    loss = {"copy": lost, "signal": signal}
    assert spawner.order(folder=path, seen=notes, loss=loss, **LIFE) == 0
    assert listed(path) == (3 - lost,)
    with shard_tools.local(path) as cluster:
        check_answers(cluster, seen(notes))
    assert shard_tools.budgets_of(copy_path(path, 0, 3 - lost)) == unhurt[-1]


def test_a_copy_whose_process_starts_again_in_time_is_kept(spawner, template, unhurt, tmp_path):
    path, notes = shard_tools.transplanted(template, tmp_path / "c"), tmp_path / "notes"
    order = {**LIFE, "takeover_s": 20.0, "restarts": True}
    loss = {"copy": 2, "signal": "SIGKILL"}
    assert spawner.order(folder=path, seen=notes, loss=loss, **order) == 0
    assert listed(path) == (1, 2)
    for copy in (1, 2):
        assert shard_tools.budgets_of(copy_path(path, 0, copy)) == unhurt[-1]


@pytest.mark.parametrize("every", [12, pytest.param(1, marks=pytest.mark.soak)])
def test_the_coordinator_is_killed_while_it_gives_a_copy_up(
    spawner, template, unhurt, tmp_path, every
):
    loss = {"copy": 2, "signal": "SIGKILL"}
    path, notes = shard_tools.transplanted(template, tmp_path / "count"), tmp_path / "count.notes"
    assert spawner.order(folder=path, seen=notes, loss=loss, **LIFE) == 0
    (first,) = [note["lost"] for note in seen(notes) if "lost" in note]
    second = [note["answered"] for note in seen(notes) if "answered" in note][1]
    states = set()
    for turn, last in enumerate(range(first + 1, second, every)):
        loss = {"copy": 1 + turn % 2, "signal": "SIGKILL"}
        path, notes = shard_tools.transplanted(template, tmp_path / f"{last}"), tmp_path / "n"
        notes.unlink(missing_ok=True)
        assert spawner.order(folder=path, seen=notes, loss=loss, last=last, **LIFE) == -9
        states.add(len(listed(path)))
        check_rest(path, listed(path), seen(notes), unhurt)
    assert states == {1, 2}


def check_rest(path, copies, notes, unhurt):
    """Open what is left, both copies if both are listed, and compare it with what was seen."""
    answered = sum("key" in note for note in notes)
    with shard_tools.local(path) as cluster:
        check_answers(cluster, notes)
        cluster.predict(QUERIES[FIRSTS[answered] :][:4])
        assert cluster.verify(), cluster.verify().faults
    for copy in copies:
        assert shard_tools.budgets_of(copy_path(path, 0, copy)) == unhurt[answered + 1]
