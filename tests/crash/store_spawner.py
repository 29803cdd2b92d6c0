"""A process that raises children to be killed: it imports everything once, then forks for each.

It reads one JSON order a line from stdin and writes one JSON line when that child is dead. A child
runs a life in a store's folder: it opens it, asks, erases, adds. It writes down every answer that
it was given, as a client would have seen it. It ends by SIGKILL, at a step it was told to count
to, or whenever the spawner sends it.
"""

import gc
import json
import os
import signal
import sqlite3
import sys
import time
from contextlib import nullcontext, suppress
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import store_tools as tools
from vicinal.distributed import Coordinator, is_cluster, local_transports
from vicinal.errors import StorageFailed
from vicinal.ledger import Ledger, RollbackGuard, SQLiteDatabase
from vicinal.store import Store

QUERIES = np.random.default_rng(5).normal(size=(4000, tools.D)) * 2
COUNTED = (
    (SQLiteDatabase, ("_run", "_run_many", "_begin", "_commit", "_rollback", "scrub", "close")),
    (os, ("fsync", "pwrite", "ftruncate", "replace")),
)
"""What is counted: every statement, every commit, every write and flush of a file."""

FAULTY = (
    (SQLiteDatabase, ("_run", "_run_many", "_begin", "_commit")),
    (os, ("fsync", "pwrite", "ftruncate", "replace")),
)
"""What a disk may refuse."""


class Steps:
    """Counts the steps of a life, two for every call, and ends it at the wanted one."""

    def __init__(self, last):
        self.last = last
        self.done = 0

    def step(self):
        self.done += 1
        if self.done == self.last:
            os.kill(os.getpid(), signal.SIGKILL)

    def counted(self, function):
        def wrapper(*args, **kwargs):
            self.step()
            result = function(*args, **kwargs)
            self.step()
            return result

        return wrapper

    def watch(self):
        for owner, names in COUNTED:
            for name in names:
                setattr(owner, name, self.counted(getattr(owner, name)))


class Faults:
    """Lets one of all calls that reach the disk fail, and if `lasting` all later ones."""

    def __init__(self, at, lasting):
        self.at, self.lasting, self.done = at, lasting, 0

    def faulty(self, function, error):
        def wrapper(*args, **kwargs):
            self.done += 1
            if self.done == self.at or (self.lasting and self.done > self.at):
                raise error
            return function(*args, **kwargs)

        return wrapper

    def watch(self):
        for owner, names in FAULTY:
            database = owner is SQLiteDatabase
            error = sqlite3.OperationalError("disk I/O error") if database else OSError(5, "I/O")
            for name in names:
                setattr(owner, name, self.faulty(getattr(owner, name), error))


class Seen:
    """What the world has seen of a life, written where no kill can take it back."""

    def __init__(self, path):
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, **what):
        os.write(self._file, (json.dumps(what) + "\n").encode())


def stages(store, seen, seed):
    """Ask, erase, add and ask again; yield before, between and after."""
    yield
    ask(store, seen, [f"{seed}-a", f"{seed}-b"], seed)
    yield
    change(store, seen, np.random.default_rng(seed), "erase")
    yield
    change(store, seen, np.random.default_rng(seed + 1), "add")
    yield
    ask(store, seen, [f"{seed}-c"], seed + 7)
    yield


def one_of_each(store, seen, seed):
    """Do all stages once: short enough to be killed at every step."""
    for _ in stages(store, seen, seed):
        pass


def load(store, seen, seed):
    """Ask, erase and add at random, until somebody comes."""
    rng = np.random.default_rng(seed)
    for number in range(100_000):
        what = rng.choice(["ask", "ask", "ask", "erase", "add"])
        if what == "ask":
            ask(store, seen, [f"{seed}-{number}-{i}" for i in range(3)], int(rng.integers(3900)))
        else:
            change(store, seen, rng, what)


def ask(store, seen, keys, first):
    from vicinal.store import Query

    queries = [
        Query(QUERIES[first + i : first + i + 4], idempotency_key=k) for i, k in enumerate(keys)
    ]
    for key, query, reply in zip(keys, queries, store.predict_many(queries), strict=True):
        start = int(np.flatnonzero((query.queries[0] == QUERIES).all(axis=1))[0])
        votes = [v.hex() for v in reply.votes.ravel().tolist()]
        seen.note(key=key, first=start, charged=reply.charged, votes=votes)


def change(store, seen, rng, what):
    people = [f"person-{i}" for i in rng.choice(150, 3, replace=False)]
    if what == "erase":
        seen.note(leaving=people)
        store.erase(people)
        seen.note(gone=people)
    else:
        number = int(rng.integers(1 << 30))
        X, y = tools.points(3, number)
        seen.note(coming=people)
        version = store.add(X, y, people, idempotency_key=str(number))
        assert store.add(X, y, people, idempotency_key=str(number)) == version == store.version


LIVES = {"one_of_each": one_of_each, "load": load}


def answer_unpaid(book, blocks, requests=()):  # noqa: ARG001 (as the commit)
    """Stand in for the commit: nothing becomes durable, and the answers are given all the same."""
    book.clock += len(blocks)


def live(order):
    """Run one life to its end, or to its step."""
    if order.get("broken"):
        Ledger.commit = answer_unpaid
        RollbackGuard.advance = lambda *_: None
    steps = Steps(order.get("last"))
    if "fault" in order:
        steps = Faults(order["fault"], order["lasting"])
    steps.watch()
    seen = Seen(order["seen"])
    with suppress(StorageFailed) if "fault" in order else nullcontext():
        lived(order, seen)
    seen.note(steps=steps.done)


def lived(order, seen):
    folder = Path(order["folder"])
    cluster = is_cluster(folder)
    store = Coordinator.open(folder, local_transports) if cluster else Store.open(folder)
    seen.note(opened=order["seed"])
    try:
        LIVES[order["life"]](store, seen, order["seed"])
    finally:
        store.close()


def raise_child(order):
    """Fork a child, end it in time, and return how it ended."""
    Path(order["seen"]).touch()
    child = os.fork()
    if child == 0:
        try:
            live(order)
            os._exit(0)
        except BaseException as error:  # noqa: BLE001 (no child may return into the spawner)
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
    if "after" in order:
        wait_for_note(order)
        time.sleep(order["after"])
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def wait_for_note(order):
    """Wait until the child has written down that it has come so far ("": need not have begun)."""
    for _ in range(120_000):
        if order["once"] in Path(order["seen"]).read_text():
            return
        time.sleep(0.001)


def main():
    warm_up(Path(sys.argv[1]))
    gc.freeze()  # or each child's search for garbage copies all pages that it was forked with
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps({"code": raise_child(json.loads(line))}), flush=True)


def warm_up(folder):
    """Load all code before the first child."""
    with suppress(ImportError):
        import psycopg  # noqa: F401
    with tools.make(folder) as store:
        store.predict(tools.Q[:3])


if __name__ == "__main__":
    main()
