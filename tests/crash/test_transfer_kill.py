"""Killed and resumed at any point: the same total cost, no answer lost, none asked twice.

What a kill at a random time interrupts is left to the machine, and no outcome may depend on it.
"""

import multiprocessing
import os
import signal
import time
from multiprocessing import forkserver
from pathlib import Path

import numpy as np
import pytest

from crash import transfer_child
from crash.transfer_child import QUESTIONS
from vicinal.errors import PrivacyRefused
from vicinal.labelling import FileJournal

# Children of a server that has loaded everything once: that takes longer than the rounds.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["crash.transfer_warm_up"])
TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module", autouse=True)
def server():
    """Start it; Python 3.11 hands it no path, so that without this it finds no module of tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TESTS), prepend=os.pathsep)
        forkserver.ensure_running()


def start(folder, *death, main=transfer_child.main):
    process = PROCESSES.Process(target=main, args=(folder, *death))
    process.start()
    return process


def ended(process):
    """Return how the process ended."""
    process.join(timeout=600)
    assert process.exitcode is not None
    return process.exitcode


def finish(folder, **how):
    assert ended(start(folder, **how)) == 0
    return read(folder)


def read(folder):
    with FileJournal(folder) as journal:
        return journal.read()


def killed(folder, *death):
    assert ended(start(folder, *death)) == -signal.SIGKILL
    return read(folder)


def answers(entry):
    """Return all answers so far as one array of (round, query, label, margin)."""
    rounds = [] if entry is None else entry.rounds
    parts = [
        np.column_stack(
            [np.full(len(a.labels), n), a.queries[: len(a.labels)], a.labels, a.margins]
        )
        for n, a in enumerate(rounds)
    ]
    return np.concatenate([np.zeros((0, 4)), *parts])


def assert_goes_on(before, after):
    """What was answered before a kill is there afterwards, unchanged and in the same place."""
    earlier, later = answers(before), answers(after)
    assert len(later) >= len(earlier)
    np.testing.assert_array_equal(later[: len(earlier)], earlier)


def lived(kills, folder, **how):
    """Kill a run again and again, and let it finish; each must go on from where it was."""
    entry = None
    for death in [*kills, lambda: finish(folder, **how)]:
        later = death()
        assert_goes_on(entry, later)
        entry = later
    return entry


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    return finish(tmp_path_factory.mktemp("whole"))


def assert_costs_the_same(entry, uninterrupted):
    np.testing.assert_array_equal(entry.state["remaining"], uninterrupted.state["remaining"])
    assert int(entry.state["answers"]) == 2 * QUESTIONS
    np.testing.assert_allclose(entry.state["slack"], uninterrupted.state["slack"], rtol=1e-9)
    for mine, theirs in zip(entry.rounds, uninterrupted.rounds, strict=True):
        assert mine.complete
        np.testing.assert_array_equal(mine.queries, theirs.queries)


def test_the_uninterrupted_run_spends_and_answers_everything(uninterrupted):
    assert len(answers(uninterrupted)) == 2 * QUESTIONS
    left = uninterrupted.state["remaining"]
    assert (left < 2**48).all()
    assert (left >= 0).all()


def test_killed_at_every_kind_of_point_and_resumed(tmp_path, uninterrupted):
    # Before and after a commit, and inside one: file written but not renamed, renamed but the
    # folder not synced; in the first round, between the rounds, in the second.
    deaths = [("before commit", 1), ("after commit", 1), ("before fsync", 9), ("after fsync", 12)]
    deaths += [("before commit", 16), ("after commit", 11)]
    last = lived([lambda death=death: killed(tmp_path, *death) for death in deaths], tmp_path)
    assert_costs_the_same(last, uninterrupted)


def test_killed_at_random_times_and_resumed(tmp_path, uninterrupted):
    generator = np.random.default_rng(3)
    last = lived([lambda: killed_at_random(tmp_path, generator)] * 3, tmp_path)
    assert_costs_the_same(last, uninterrupted)


def test_planned_labellers_are_killed_at_random_times_and_resumed(tmp_path):
    """Private-kNN: as many queries as planned, each answered once, whatever is killed."""
    generator, how = np.random.default_rng(3), {"main": transfer_child.main_planned}
    last = lived([lambda: killed_at_random(tmp_path, generator, **how)] * 3, tmp_path, **how)
    assert last.state["asked"].tolist() == [QUESTIONS, QUESTIONS]
    assert all(asked.complete for asked in last.rounds)
    for asked in last.rounds:
        assert len(np.unique(asked.queries)) == QUESTIONS, "no query is asked twice"


def killed_at_random(folder, generator, **how):
    """Kill a process some commits after its start, at any moment between two; return the rest."""
    process = start(folder, **how)
    for _ in range(generator.integers(1, 12)):
        wait_for_commit(folder, process)
    time.sleep(generator.uniform(0, 0.05))
    process.kill()
    assert ended(process) in (-signal.SIGKILL, 0)
    return read(folder)


def wait_for_commit(folder, process):
    """Wait until the process has written the journal once more, or has ended."""
    journal = folder / "journal.npz"
    before = journal.stat().st_mtime_ns if journal.exists() else 0
    for _ in range(150_000):
        if process.exitcode is not None:
            return
        if journal.exists() and journal.stat().st_mtime_ns != before:
            return
        time.sleep(0.002)
    pytest.fail("the process wrote nothing in five minutes")


def test_a_journal_that_forgets_charges_would_be_noticed(tmp_path, uninterrupted):
    """The comparison has teeth: with budgets refilled half-way the totals differ."""
    killed(tmp_path, "after commit", 10)
    with FileJournal(tmp_path) as journal:
        entry = journal.read()
        entry.state["remaining"][:] = 2**48
        journal.commit(entry)
    last = finish(tmp_path)
    assert (last.state["remaining"] != uninterrupted.state["remaining"]).any()


def test_two_processes_cannot_work_in_one_folder(tmp_path):
    with FileJournal(tmp_path):
        assert ended(start(tmp_path)) == 1
        with pytest.raises(PrivacyRefused, match="Another process"):
            FileJournal(tmp_path)
