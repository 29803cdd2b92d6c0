"""kill -9 between the writes of two copies: either can be lost then, and the other knows it all.

The process that has both copies is killed after the n-th database statement, commit, write or flush
of a life. Then one copy is taken away, in turn the first and the second, and the other is promoted.
Everybody must have exactly what is left after some stage of that life: one that was seen to be
over, or the one that was under way. The life begins with copies that differ by a block that nobody
was answered, so it is also killed while one takes over the ledger of the other. The short form
takes every 96th step: a fault at a single step is seen with probability 1/96, by the soak for
certain.
"""

from __future__ import annotations

import shutil

import pytest

import shard_tools
from crash.store_spawner import Seen, stages
from crash.store_watch import QUERIES, Spawner, check_answers, seen
from vicinal.distributed import Coordinator, ShardMissing, promote_copy
from vicinal.distributed._folders import copy_path
from vicinal.distributed._shard_server import ShardServer

SEED = 11


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """One shard with two copies, of which one has charged a block that was not answered."""
    folder = tmp_path_factory.mktemp("template")
    path = shard_tools.clustered(folder, 1, copies=2, n_queries=100_000)
    away = shard_tools.Away(1, {"VoteRequest", "DeleteVotes"})
    with Coordinator.open(path, away) as cluster, pytest.raises(ShardMissing):
        cluster.predict(QUERIES[:4])
    return path


@pytest.fixture(scope="module")
def after(template, tmp_path_factory):
    """What everybody has left after each stage, with the block that was not answered and without.

    Without it there are two stages: the copies are the same as soon as there is an answer.
    """
    folder = tmp_path_factory.mktemp("stages")
    without = shard_tools.clustered(folder, 1, n_queries=100_000)
    return [
        budgets_after(shard_tools.transplanted(template, folder / "with"), folder),
        budgets_after(without, folder)[:2],
    ]


def budgets_after(path, folder):
    found = []
    with shard_tools.local(path) as cluster:
        for _ in stages(cluster, Seen(folder / "notes"), SEED):
            book = cluster._transports[0].transports[0].shard._server._parts.ledger
            units = book.audiences["default"].account.remaining
            slots = book.slot_table.slot_of.items()
            found.append({person: int(units[slot]) for person, slot in slots})
    return found


def possible(after, notes):
    """Return what may be left after what was seen; whether an addition was over was not noted."""
    answers = sum("key" in note for note in notes)
    gone, coming = (any(name in note for note in notes) for name in ("gone", "coming"))
    first = 4 if answers > 2 else 2 if gone else min(answers, 1)
    last = 4 if coming else first + 1
    return [*after[0][first : last + 1], *(after[1] if not first else ())]


@pytest.fixture(scope="module")
def spawner(tmp_path_factory):
    spawner = Spawner(tmp_path_factory.mktemp("spawner"))
    yield spawner
    spawner.close()


def check_survivor(path, lost, notes, after):
    """Lose a copy, go on with the other, and compare it with what was seen."""
    shutil.rmtree(copy_path(path, 0, lost))
    survivor = 3 - lost
    promote_copy(path, 0, survivor)
    with shard_tools.local(path) as cluster:
        check_answers(cluster, notes)
        gone = {person for note in notes for person in note.get("gone", ())}
        coming = {person for note in notes for person in note.get("coming", ())}
        found = cluster.verify(sorted(gone - coming))
        assert found, found.faults
    assert shard_tools.budgets_of(copy_path(path, 0, survivor)) in possible(after, notes)


@pytest.mark.parametrize("every", [96, pytest.param(1, marks=pytest.mark.soak)])
def test_killed_at_a_step_either_copy_goes_on(spawner, template, after, tmp_path, every):
    order = {"life": "one_of_each", "seed": SEED}
    path, notes = shard_tools.transplanted(template, tmp_path / "count"), tmp_path / "count.jsonl"
    assert spawner.order(folder=path, seen=notes, **order) == 0
    total = seen(notes)[-1]["steps"]
    assert total > 500
    check_survivor(path, 1, seen(notes), after)
    for turn, last in enumerate(range(1, total, every)):
        path, notes = shard_tools.transplanted(template, tmp_path / "c"), tmp_path / f"{last}.jsonl"
        ended = spawner.order(folder=path, seen=notes, last=last, **order)
        # How often it is asked whether a batch is staged is luck, and so are some of the steps.
        assert ended == -9 or last > 0.9 * total
        check_survivor(path, 1 + turn % 2, seen(notes), after)
        shutil.rmtree(path)
        shutil.rmtree(path.with_name("c.witnesses"))


def test_an_answer_that_one_copy_has_not_charged_is_found_out(
    template, after, tmp_path, monkeypatch
):
    """The control: a coordinator that answers from one copy, and a shard that does not compare."""
    path, notes = shard_tools.transplanted(template, tmp_path / "c"), tmp_path / "notes"
    with shard_tools.local(path) as cluster:
        way = cluster._transports[0]
        both, way.transports = way.transports, way.transports[:1]
        for stage, _ in enumerate(stages(cluster, Seen(notes), SEED)):
            if stage == 1:
                break
        way.transports = both
    monkeypatch.setattr(ShardServer, "_check", lambda *_: None)
    with pytest.raises(AssertionError):
        check_survivor(path, 1, seen(notes), after)
