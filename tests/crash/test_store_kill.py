"""kill -9 under load: no answer without its charge, no charge lost or doubled.

At random times, which are left to the machine: no outcome may depend on them. They fall inside what
databases and arrays write, too; between durable steps test_durable_steps.py takes every one. A
fault that a share p of all moments shows is missed with (1 - p)^20, by the soak with (1 - p)^1000.
"""

import shutil

import numpy as np
import pytest

import store_tools as tools
from crash.store_watch import Spawner, Watch, seen

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
    tools.make(folder, n_queries=100_000).close()
    return folder


@pytest.mark.quick
@pytest.mark.parametrize("kills", [20, pytest.param(1000, marks=pytest.mark.soak)])
def test_killed_at_random_again_and_again_nothing_is_lost(spawner, template, tmp_path, kills):
    """On a slow machine most lives are killed before they answer; every fifth waits for it."""
    answered = 0
    for start in range(0, kills, LIFETIME):
        folder = tools.copied(template, tmp_path / str(start))
        answered += lived_and_killed(spawner, folder, range(start, start + LIFETIME))
    assert answered, "killed before anything happened"


def lived_and_killed(spawner, folder, turns):
    """Have one store killed again and again; return how many requests it answered."""
    notes, watch, rng = folder.with_suffix(".jsonl"), Watch(), np.random.default_rng(turns)
    for turn in turns:
        before = len(seen(notes))
        order = {"folder": folder, "seen": notes, "seed": turn}
        when = {"after": rng.uniform(0.0, 0.3), "once": moment(turn)}
        assert spawner.order(**when, **order) == -9
        watch.check(folder, seen(notes), before)
    watch.check(folder, seen(notes))
    shutil.rmtree(folder)
    return sum("key" in note for note in seen(notes))


def moment(turn):
    """Return what a life notes before its end draws near: nothing, its opening, or an answer."""
    return ("", *[f'"opened": {turn}}}'] * 3, f'"key": "{turn}-')[turn % 5]


@pytest.mark.quick
def test_answers_that_were_not_paid_for_are_found_out(spawner, template, tmp_path):
    """The control: a store that answers before the commit must not pass the check."""
    folder, notes = tools.copied(template, tmp_path), tmp_path / "seen.jsonl"
    order = {"folder": folder, "seen": notes, "seed": 1, "broken": True}
    assert spawner.order(after=0.1, once='"key"', **order) == -9
    assert any("key" in note for note in seen(notes))
    with pytest.raises(AssertionError):
        Watch().check(folder, seen(notes))
