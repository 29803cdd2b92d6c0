"""kill -9 at any point of a store's life: no answer without its charge, no charge lost or doubled.

Two ways to choose the point: after every n-th database statement, commit, write and flush that a
life makes (its steps), and at random times, which are left to the machine: no outcome may depend on
them. The short forms take every 12th step and 20 random kills, the soaks every step and a thousand.
A fault at a single step is certain to be seen by the soak, and with probability 1/12 by the short
form; one that a share p of all moments shows is missed with (1 - p)^20 and (1 - p)^1000.
"""

import shutil

import numpy as np
import pytest

import store_tools as tools
from crash.store_watch import Spawner, Watch, seen
from vicinal.store import read_config, write_config

LIFETIME = 20
"""Kills that one store has to live through."""


@pytest.fixture(scope="module")
def spawner(tmp_path_factory):
    spawner = Spawner(tmp_path_factory.mktemp("spawner"))
    yield spawner
    spawner.close()


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    folder = tmp_path_factory.mktemp("template") / "store"
    # With a memory, whose lessons must be as durable as the answers they are drawn from.
    tools.make(folder, n_queries=100_000, reuse_predictions="gate").close()
    return folder


def copied(template, folder):
    shutil.copytree(template, folder)
    shutil.copy(
        template.with_name(template.name + ".witness"), folder.with_name(folder.name + ".witness")
    )
    # The copy's witness lies beside it, under its own name.
    found = read_config(folder)
    witness = f"../{folder.name}.witness"
    write_config(folder, found["id"], found["ledger"], witness, backup=False)
    return folder


def steps_of(spawner, template, folder, life):
    """Return how many steps a life has when nobody ends it."""
    notes = folder.parent / "count.jsonl"
    order = {"life": life, "folder": copied(template, folder), "seen": notes, "seed": 11}
    assert spawner.order(**order) == 0
    Watch().check(folder, seen(notes))
    return seen(notes)[-1]["steps"]


@pytest.mark.quick
@pytest.mark.parametrize("every", [12, pytest.param(1, marks=pytest.mark.soak)])
def test_killed_at_a_step_the_store_keeps_its_word(spawner, template, tmp_path, every):
    total = steps_of(spawner, template, tmp_path / "count", "one_of_each")
    assert total > 150
    for last in range(1, total, every):
        folder, notes = copied(template, tmp_path / f"s{last}"), tmp_path / f"{last}.jsonl"
        order = {"life": "one_of_each", "folder": folder, "seen": notes, "seed": 11}
        assert spawner.order(last=last, **order) == -9
        watch = Watch()
        watch.check(folder, seen(notes))
        # It goes on as if nothing had happened.
        assert spawner.order(**{**order, "seed": 12}) == 0
        watch.check(folder, seen(notes))
        shutil.rmtree(folder)


@pytest.mark.parametrize("every", [48, pytest.param(1, marks=pytest.mark.soak)])
def test_a_disk_that_fails_at_a_step_loses_nothing(spawner, template, tmp_path, every):
    """At each call that reaches the disk, once and from then on: StorageFailed, and no more."""
    notes = tmp_path / "count.jsonl"
    order = {"life": "one_of_each", "fault": 0, "lasting": False, "seed": 11}
    assert spawner.order(folder=copied(template, tmp_path / "count"), seen=notes, **order) == 0
    total = seen(notes)[-1]["steps"]
    assert total > 100
    for at in range(1, total, every):
        for lasting in (False, True):
            folder, notes = copied(template, tmp_path / f"f{at}"), tmp_path / f"{at}-{lasting}"
            wrong = {**order, "fault": at, "lasting": lasting, "folder": folder, "seen": notes}
            assert spawner.order(**wrong) == 0, "something else than StorageFailed was raised"
            Watch().check(folder, seen(notes))
            shutil.rmtree(folder)


@pytest.mark.quick
@pytest.mark.parametrize("kills", [20, pytest.param(1000, marks=pytest.mark.soak)])
def test_killed_at_random_again_and_again_nothing_is_lost(spawner, template, tmp_path, kills):
    """On a slow machine most lives are killed before they answer; every fifth waits for it."""
    answered = sum(
        lived_and_killed(spawner, copied(template, tmp_path / f"s{s}"), range(s, s + LIFETIME))
        for s in range(0, kills, LIFETIME)
    )
    assert answered, "killed before anything happened"


def lived_and_killed(spawner, folder, turns):
    """Have one store killed again and again; return how many requests it answered."""
    notes, watch, rng = folder.with_suffix(".jsonl"), Watch(), np.random.default_rng(turns)
    for turn in turns:
        before = len(seen(notes))
        order = {"life": "load", "folder": folder, "seen": notes, "seed": turn}
        when = {"after": rng.uniform(0.0, 0.3), "once": moment(turn)}
        assert spawner.order(**when, **order) == -9
        watch.check(folder, seen(notes), before)
    watch.check(folder, seen(notes))
    shutil.rmtree(folder)
    return sum("key" in note for note in seen(notes))


def moment(turn):
    """Return what a life notes before its end draws near: nothing, its opening, or an answer."""
    return ("", *[f'"opened": {turn}}}'] * 3, f'"key": "{turn}-')[turn % 5]


def test_killed_with_its_ledger_on_a_server_nothing_is_lost(spawner, tmp_path):
    with tools.postgres_server() as url:
        ledger = tools.fresh_database(url, "store")
        tools.make(tmp_path / "store", n_queries=100_000, ledger=ledger).close()
        assert lived_and_killed(spawner, tmp_path / "store", range(8))


@pytest.mark.quick
def test_answers_that_were_not_paid_for_are_found_out(spawner, template, tmp_path):
    """The control: a store that answers before the commit must not pass the check."""
    folder, notes = copied(template, tmp_path / "s"), tmp_path / "seen.jsonl"
    order = {"life": "load", "folder": folder, "seen": notes, "seed": 1, "broken": True}
    assert spawner.order(after=0.1, once='"key"', **order) == -9
    assert any("key" in note for note in seen(notes))
    with pytest.raises(AssertionError):
        Watch().check(folder, seen(notes))
