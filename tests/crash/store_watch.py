"""What must hold after a kill, checked from outside."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

import store_tools as tools
from vicinal.store import Store

QUERIES = np.random.default_rng(5).normal(size=(4000, tools.D)) * 2


class Spawner:
    """The process of a file of this folder, to be given orders."""

    def __init__(self, folder, name="store_spawner.py"):
        script = Path(__file__).with_name(name)
        self._process = subprocess.Popen(
            [sys.executable, script, folder / "warm"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._line() == "ready"

    def order(self, **order):
        """Have one life lived, and return its exit code; -9 if it was killed."""
        self._process.stdin.write(json.dumps(order, default=str) + "\n")
        self._process.stdin.flush()
        return json.loads(self._line())["code"]

    def close(self):
        self._process.stdin.close()
        self._process.wait(timeout=240)
        self._process.stdout.close()

    def _line(self):
        return self._process.stdout.readline().strip()


def seen(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Watch:
    """Remembers budgets from one opening to the next: nobody's may ever grow."""

    def __init__(self):
        self._left: dict = {}

    def check(self, folder, notes, first=0):
        """Open the store and compare it with what the world has seen of it.

        Answers are compared from note number `first` on; who was erased, from the beginning.
        """
        with Store.open(folder) as store:
            found = store.verify()
            assert found, found.faults
            self._check_budgets(store)
            check_answers(store, notes[first:])
            check_erased(store, notes)

    def _check_budgets(self, store):
        book = store._store.ledger
        left = book.audiences["default"].account.remaining
        for person, slot in book.slot_table.slot_of.items():
            now = int(left[slot])
            assert now <= self._left.get(person, now), "a budget grew"
            self._left[person] = now


def check_answers(store, notes):
    """Every answer that was seen is there, charged (verify counts them), and replays for free.

    A request that repeats earlier answers only is not stored under its key: after a
    change of the data it is a new request, so its answers are looked up where they were charged.
    """
    before = store.quota().used
    for note in (n for n in notes if n.get("charged")):
        queries = QUERIES[note["first"] : note["first"] + 4]
        reply = store.predict(queries, idempotency_key=note["key"])
        assert [v.hex() for v in reply.votes.ravel().tolist()] == note["votes"]
    assert store.quota().used == before, "an answer that was seen had not been charged"


def check_erased(store, notes):
    """Whoever was erased, to the end, is nowhere any more unless somebody added them again."""
    gone: set[str] = set()
    for note in notes:
        gone |= set(note.get("gone", ()))
        gone -= set(note.get("coming", ()))
    here = store._store.ledger.slot_table.slot_of
    assert not any(person in here for person in gone)
    assert store.verify(sorted(gone))
