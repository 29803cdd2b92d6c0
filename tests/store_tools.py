"""What the tests of the store share: small data, a store made of it, and a PostgreSQL server."""

import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import programs
from made_up import NoNoise, raising
from vicinal.ledger.postgres import choose_server
from vicinal.store import Store

D, CLASSES = 4, 3
CENTRES = 3 * np.eye(CLASSES, D)
PLAN = {"epsilon": 4.0, "n_queries": 60, "n_neighbors": 40, "noise_multiplier": 1.5}


@contextmanager
def completed_change(ledger, kind):
    """Make the body a change of a ledger that has no record files, and complete it."""
    with ledger.change(kind):
        yield
    ledger.complete_change()


def points(size, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, size)
    return CENTRES[y] + 0.3 * rng.normal(size=(size, D)), y


X, Y = points(300, 0)
R, _ = points(80, 1)
Q, _ = points(60, 2)
PEOPLE = [f"person-{i // 2}" for i in range(len(X))]
"""Two records a person."""


TARGETS = {
    "numbers": (X[:, 0], {"bounds": (-1, 4)}),
    "labels": ((X[:, :3] > 1).astype(int), {"labels": ["a", "b", "c"]}),
}
"""What records carry in place of a class, and the parameters that declare it."""


def make(path, target=None, **parameters):
    """Return a new store of 300 records of 150 people, with classes or one of `TARGETS`."""
    y, declared = TARGETS.get(target, (Y, {"classes": range(CLASSES)}))
    settings = {**declared, "public": R, "n_records": 300, **PLAN, **parameters}
    return Store.init(path, X, y, PEOPLE, **settings)


def units(store, person, audience="default"):
    """Return what a person has left."""
    book = store._store.ledger
    return int(book.audiences[audience].account.remaining[book.slot_table.slot_of[person]])


def left_of(store, audience="default"):
    """Return what everybody has left, by id."""
    ledger = store._store.ledger
    remaining = ledger.audiences[audience].account.remaining
    return {who: int(remaining[slot]) for who, slot in ledger.slot_table.iterate_slots()}


def remaining(store):
    """Return what everybody has left, in the order of slots."""
    return store._store.ledger.audiences["default"].account.remaining.copy()


def silence_noise(store, patch):
    """Let a store answer and evaluate without noise; return the state of its audience."""
    state = store._audience_states["default"]
    patch.setattr(state.engine.votes, "noise_source", NoNoise())
    return state


def framed_ids(database):
    """Return the framed id at every slot that somebody has."""
    rows = [row for part in database.scan("subject_pages") for row in part]
    pairs = [(np.frombuffer(slots, "<i4").tolist(), ids.split(b">")) for *_, slots, ids in rows]
    return {slot: one + b">" for slots, ids in pairs for slot, one in zip(slots, ids, strict=False)}


def copied(store, folder):
    """Copy a closed store, with its witness, into a folder; return its path there."""
    shutil.copytree(store, folder / "store")
    shutil.copy(f"{store}.witness", folder / "store.witness")
    return folder / "store"


def files_with(folder, needle):
    """Return the names of all files below `folder` that hold `needle`."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return [path.name for path in found if needle in path.read_bytes()]


def contents(folder):
    """Return what is in all files below `folder`."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@contextmanager
def broken_off(monkeypatch, *target, error=KeyboardInterrupt):
    """Break the body off where it calls `target`, by a name or of an owner: as Ctrl-C would."""
    with monkeypatch.context() as patch:
        patch.setattr(*target, raising(error))
        with pytest.raises(error if isinstance(error, type) else type(error)):
            yield


@contextmanager
def postgres_server():
    """Run a server of its own, where there is one; yield the URL of its socket, without a database.

    It lies beside pytest's folders, in memory as they do (scratch.py): only their owner may enter
    these, and the server is another user.
    """
    pytest.importorskip("psycopg")
    binaries, user = Path(programs.needed("postgresql")).parent, _server_user()
    with tempfile.TemporaryDirectory(dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")) as folder:
        data, sockets = Path(folder, "data"), Path(folder, "run")
        sockets.mkdir()
        for place in (folder, sockets):
            Path(place).chmod(0o755)
            if user:
                shutil.chown(place, user)

        def run(program, *options):
            command = [binaries / program, *options]
            subprocess.run(command, check=True, capture_output=True, user=user, cwd=folder)

        run("initdb", "--auth=trust", "--username=tester", "--no-sync", "-D", data)
        settings = f"-k {sockets} -c listen_addresses="
        run("pg_ctl", "-D", data, "-l", f"{folder}/log", "-w", "-o", settings, "start")
        try:
            url = f"postgresql:///{{}}?host={sockets}&user=tester"
            choose_server(url.format("any"))
            yield url
        finally:
            run("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")


def fresh_database(url, name):
    """Make an empty database on the server and return its URL."""
    import psycopg

    with psycopg.connect(url.format("postgres"), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return url.format(name)


def _server_user():
    """Return as whom a server runs: not as root."""
    return "postgres" if os.getuid() == 0 else None
