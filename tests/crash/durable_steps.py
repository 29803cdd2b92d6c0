"""Every command, to be broken off before and after each of its durable steps.

A durable step is a commit, a flush, or a change of a file or of its name. They are counted where
the package makes them, two points a step. At one it is killed or interrupted, or the disk is full.

A process of this file imports everything once, then forks for each order, a JSON line on stdin.
"""

import errno
import fcntl
import json
import os
import shutil
import signal
import sqlite3
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import store_tools as tools
from crash.store_spawner import fork, serve_orders
from vicinal.distributed import Coordinator, restore_cluster, split
from vicinal.distributed.transports import local_transports
from vicinal.errors import StorageFailed, VicinalError
from vicinal.ledger.database import Database
from vicinal.ledger.postgres import PostgresDatabase
from vicinal.ledger.sqlite import SQLiteDatabase
from vicinal.serving import ServiceSettings, serve
from vicinal.serving.app import create_app
from vicinal.store import Store

KILL, INTERRUPT, FULL = "kill", "interrupt", "full"


os_pwrite = os.pwrite


def as_much_as_fits(descriptor, content, offset):
    """Return half of a write to the end of a file; within it, one to a sector is whole or none."""
    if offset < os.fstat(descriptor).st_size:
        no_room()
    return descriptor, content[: len(content) // 2], offset


def no_room(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def commit_refused(database):
    if database.kind == "sqlite":
        raise sqlite3.OperationalError("database or disk is full")
    import psycopg

    raise psycopg.errors.DiskFull("could not extend file")


def scrub_refused(*_):
    raise StorageFailed("The disk is full.")


SEAM = [
    (Database, "_commit", commit_refused),
    (SQLiteDatabase, "_pragma", scrub_refused),
    (SQLiteDatabase, "scrub", scrub_refused),
    (PostgresDatabase, "scrub", scrub_refused),
    *((os, name, no_room) for name in ("fsync", "pwrite", "replace", "rename", "mkdir")),
    *((os, name, None) for name in ("unlink", "rmdir", "ftruncate")),
]
"""Where durable steps are made, and what a full disk makes of them."""


class Steps:
    """Counts durable steps, two points a step; breaks the process off at point `last`."""

    def __init__(self, last=0, fault=KILL):
        self.last, self.fault, self.done = last, fault, 0

    def watch(self):
        for owner, name, refused in SEAM:
            setattr(owner, name, self.counted(getattr(owner, name), refused))

    def counted(self, function, refused=None):
        def wrapper(*args, **kwargs):
            if function.__name__ == "_pragma" and not args[1].startswith("wal_checkpoint"):
                return function(*args, **kwargs)
            self.step()
            if self.fault == FULL and 0 < self.last <= self.done and refused is not None:
                if self.done > self.last or function is not os_pwrite:
                    refused(*args)
                args = as_much_as_fits(*args)
            try:
                return function(*args, **kwargs)
            finally:
                self.step()

        return wrapper

    def step(self):
        self.done += 1
        if self.done == self.last and self.fault == KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.done == self.last and self.fault == INTERRUPT:
            raise KeyboardInterrupt


# Each has a folder to work in, `note` to call once an answer has left, and whether losses are
# accepted. What it can be asked again is asked under the same key.


def init(place, note, accept):  # noqa: ARG001
    tools.make(place / "store", ledger=ledger_in(place, "case")).close()


def opening(place, note, accept):  # noqa: ARG001
    opened(place, accept).close()


def predict(place, note, accept):  # noqa: ARG001
    with opened(place) as store:
        store.predict(tools.Q[6:9], idempotency_key="p")
        note()


def evaluate(place, note, accept):  # noqa: ARG001
    with opened(place) as store:
        store.evaluate(
            tools.Q[:4], [0, 1, 2, 0], ["person-1", "person-2", "new", "newer"], accept_noise=True
        )
        note()


def add(place, note, accept):  # noqa: ARG001
    X, y = tools.points(4, 7)
    with opened(place) as store:
        store.add(X, y, ["person-1", "person-7", "new", "new"], idempotency_key="a")


def erase(place, note, accept):  # noqa: ARG001
    with opened(place) as store:
        store.erase(["person-1", "person-149", "stranger"])


def audience(place, note, accept):  # noqa: ARG001
    with opened(place) as store:
        if "press" not in store.audiences:
            store.open_audience("press", n_records=300, **tools.PLAN)


def training(place, note, accept):  # noqa: ARG001
    plan = {**tools.PLAN, "model_share": 0.3, "n_records": 300, "simulation_seed": 3}
    with opened(place) as store:
        if "press" not in store.audiences:
            store.open_audience("press", **plan)
            note()


def allow(place, note, accept):  # noqa: ARG001
    with opened(place) as store:
        store.allow("anna", 5)


def refresh(place, note, accept):  # noqa: ARG001
    with opened(place) as store:
        store.refresh_model()
        note()


def backup(place, note, accept):  # noqa: ARG001
    with opened(place) as store:
        store.backup(place / "backup")


def restore(place, note, accept):  # noqa: ARG001
    there = {"ledger": ledger_in(place, "other"), "witness": place / "store.witness"}
    Store.restore(place / "backup", place / "new", accept_loss=accept, **there).close()


def shard(place, note, accept):  # noqa: ARG001
    split(place / "store", place / "cluster", 2)


def service(place, note, accept):  # noqa: ARG001
    """Start the service, and stop it once it listens."""

    def stop(_):
        os.kill(os.getpid(), signal.SIGTERM)

    with opened(place) as store:
        serve(nullcontext(store), place / "store", "127.0.0.1", 0, ServiceSettings(), stop)


def cluster_restore(place, note, accept):  # noqa: ARG001
    restore_cluster(place / "backup", place / "cluster", accept_loss=accept)


COMMANDS = {
    one.__name__: one
    for one in (
        init, opening, predict, evaluate, add, erase, audience, training, allow, refresh, backup,
        restore, shard, service, cluster_restore,
    )
}  # fmt: skip


def opened(place, accept=False):
    """Open the store, or the cluster, that lies in a folder."""
    if (place / "cluster").exists():
        return Coordinator.open(place / "cluster", local_transports, accept_loss=accept)
    return Store.open(place / "store", accept_loss=accept)


def ledger_in(place, name):
    """Return the URL of a database for stores in a folder; None: they lie in SQLite's files."""
    return (place / "url").read_text().format(name) if (place / "url").exists() else None


def held_locks(place):
    """Return the files below a folder that this process has locked."""
    found = []
    for path in [*place.rglob("lock"), *place.rglob("*.witness"), *place.rglob("*.witnesses/*")]:
        with path.open("r+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                found.append(path.name)
    return found


def carry_out(order):
    """Carry a command out to its end or its point, and write down how it ended."""
    place, said = Path(order["place"]), Path(order["said"])
    os.environ["XDG_CONFIG_HOME"] = order["config"]  # where the server was chosen
    found = {}

    def note():
        found["answered"] = True
        said.write_text(json.dumps(found))

    steps = Steps(order["last"], order["fault"])
    steps.watch()
    ended = "done"
    try:
        COMMANDS[order["command"]](place, note, accept=order["accept"])
    except (VicinalError, KeyboardInterrupt) as error:
        ended = f"{type(error).__name__}: {error}"
    steps.last = 0
    found |= {"ended": ended, "points": steps.done, "held": held_locks(place)}
    said.write_text(json.dumps(found))


def warm_up(place):
    """Load all code before the first child."""
    assert create_app  # loads the service
    place.mkdir()
    for command in (init, predict, evaluate, training, erase, backup, restore):
        command(place, lambda: None, accept=False)
    shutil.move(place / "new", place / "store2")


if __name__ == "__main__":
    serve_orders(warm_up, partial(fork, carry_out))
