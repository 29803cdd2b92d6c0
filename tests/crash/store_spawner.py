"""A process that raises children to be killed: it imports everything once, then forks for each.

It reads one JSON order a line from stdin and writes one JSON line when that child is dead. A child
runs a life in a store's folder: it opens it, asks, erases, adds. It writes down every answer that
it was given, as a client would have seen it. It ends by SIGKILL, whenever the spawner sends it.
"""

import gc
import json
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import store_tools as tools
from vicinal.ledger.ledger import Ledger
from vicinal.ledger.rollback_guard import RollbackGuard
from vicinal.store import Store

QUERIES = np.random.default_rng(5).normal(size=(4000, tools.D)) * 2


class Seen:
    """What the world has seen of a life, written where no kill can take it back."""

    def __init__(self, path):
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, **what):
        os.write(self._file, (json.dumps(what) + "\n").encode())


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


def answer_unpaid(book, blocks, requests=()):  # noqa: ARG001 (as the commit)
    """Stand in for the commit: nothing becomes durable, and the answers are given all the same."""
    book.clock += len(blocks)


def live(order):
    """Run one life until it is killed."""
    if order.get("broken"):
        Ledger.commit = answer_unpaid
        RollbackGuard.record_commit = lambda *_: None
    seen, seed = Seen(order["seen"]), order["seed"]
    with Store.open(order["folder"]) as store:
        seen.note(opened=seed)
        load(store, seen, seed)


def fork(run, order):
    """Run an order in a child process, and return its id."""
    child = os.fork()
    if child:
        return child
    try:
        run(order)
        os._exit(0)
    except BaseException as error:  # noqa: BLE001 (no child may return into the spawner)
        print(order, repr(error), file=sys.stderr, flush=True)
        os._exit(1)


def raise_child(order):
    """Start a life, and kill it in time; return its process id."""
    Path(order["seen"]).touch()
    child = fork(live, order)
    wait_for_note(order)
    time.sleep(order["after"])
    os.kill(child, signal.SIGKILL)
    return child


def wait_for_note(order):
    """Wait until the child has written down that it has come so far ("": need not have begun)."""
    for _ in range(120_000):
        if order["once"] in Path(order["seen"]).read_text():
            return
        time.sleep(0.001)


def serve_orders(warm_up, raise_child):
    """Load all code, then raise a child for each order on stdin; write how it ended."""
    warm_up(Path(sys.argv[1]))
    gc.freeze()  # or each child's search for garbage copies all pages that it was forked with
    print("ready", flush=True)
    for line in sys.stdin:
        _, status = os.waitpid(raise_child(json.loads(line)), 0)
        print(json.dumps({"code": os.waitstatus_to_exitcode(status)}), flush=True)


def warm_up(folder):
    """Load all code before the first child."""
    with suppress(ImportError):
        import psycopg  # noqa: F401
    with tools.make(folder) as store:
        store.predict(tools.Q[:3])


if __name__ == "__main__":
    serve_orders(warm_up, raise_child)
