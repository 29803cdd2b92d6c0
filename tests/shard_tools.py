"""What the tests of clusters share: a store split over shards, on one machine or on Ray."""

import dataclasses
import shutil
import sqlite3
import time
from contextlib import closing, contextmanager

import numpy as np
import pytest

import store_tools as tools
from made_up import raising
from vicinal.distributed import Coordinator, split
from vicinal.distributed.folders import (
    COORDINATOR,
    ClusterDescription,
    MemberFolder,
    get_witness_path,
    list_shard_folders,
)
from vicinal.distributed.messages import Verify
from vicinal.distributed.shard_server import ShardServer
from vicinal.distributed.splitting import finish_interrupted_split
from vicinal.distributed.transports import local_transports
from vicinal.errors import ShardUnreachable, StorageFailed
from vicinal.ledger.sqlite import SQLiteDatabase

PATIENCE = 480.0


def clustered(folder, shards, *, place=None, make=tools.make, **plan):
    """Return the path of a new cluster of 300 records of 150 people."""
    make(folder / "store", **plan).close()
    split(folder / "store", folder / "cluster", shards, choose_shard=place)
    return folder / "cluster"


def transplanted(source, target):
    """Copy a cluster with its witnesses, as to the same path of another machine."""
    shutil.copytree(source, target)
    for part in (COORDINATOR, *(one.name for one in source.glob("shard-*"))):
        moved(target / part, get_witness_path(source, part), get_witness_path(target, part))
    return target


def moved(part, old, new):
    """Have a part, that was copied, look for a copy of its witness in another place."""
    new.parent.mkdir(exist_ok=True)
    shutil.copy(old, new)
    there = MemberFolder.read(part)
    dataclasses.replace(there, folder=dataclasses.replace(there.folder, witness=new)).save()


def resealed(path, **changes):
    """Write other things into cluster.json, digest and all."""
    dataclasses.replace(ClusterDescription.read(path), **changes).save(path)


def scattered(seed, shards):
    """Return any split of the people: some shards may be empty."""
    rng = np.random.default_rng(seed)
    where = {person: int(rng.integers(shards)) for person in tools.PEOPLE}
    return where.__getitem__


def budgets(path, audience="default"):
    """Return what everybody has left, by id, of a cluster that is closed; check every shard."""
    left = {}
    for folder in list_shard_folders(path, finish_interrupted_split(path).shards):
        with closing(ShardServer.open(folder)) as server:
            found = server.run_task(Verify())
            assert found, found.faults
            book = server._store.ledger
            units = book.audiences[audience].account.remaining
            slot_of = book.slot_table.slot_of
            assert not left.keys() & slot_of.keys(), "somebody is on two shards"
            left |= {person: int(units[slot]) for person, slot in slot_of.items()}
    return left


def charge_only(cluster, queries):
    """Have shards charge for queries that nobody answers."""
    engine = cluster._audience_states["default"].engine
    block = engine.votes.kernel.encode(queries)
    noise = engine.noise_multiplier * np.sqrt(engine.radius.estimate_counts(block))
    release, radii = engine.votes.prepare_release(noise), engine.radius.thresholds(block)
    cluster._remote_shards["default"].charge_and_sum(release, block, radii)


def kept_votes(server):
    """Return of how many blocks a shard keeps the votes."""
    return server._store.database.read("SELECT COUNT(*) FROM carried")[0][0]


def in_peace(path):
    """Wait until the actors of a closed or killed coordinator have let go of their folders."""
    for folder in list_shard_folders(path, finish_interrupted_split(path).shards):
        for _ in range(6000):
            try:
                ShardServer.open(folder).close()
                break
            except RuntimeError:
                time.sleep(0.1)
        else:
            pytest.fail(f"{folder.name} was kept for ten minutes")


def local(path, deadline=PATIENCE):
    """Open a cluster whose shards are in this process."""
    return Coordinator.open(path, local_transports, deadline)


class Heard:
    """A way to a shard: what `hear(message, send)` returns or raises becomes of a message."""

    def __init__(self, transport, hear):
        self.transport, self.hear = transport, hear

    def send(self, message):
        try:
            return self.hear(message, self.transport.send)
        except ShardUnreachable as silence:
            return raising(silence)

    def close(self):
        self.transport.close()


def heard(path, hear, deadline=PATIENCE, shard=1):
    """Open a cluster whose way to a shard goes by `hear(message, send)`."""

    def links(paths):
        found = list(local_transports(paths))
        found[shard] = Heard(found[shard], hear)
        return found

    return Coordinator.open(path, links, deadline)


class Dead:
    """A hearing of a shard that is gone from a task of this kind on, for so many messages."""

    def __init__(self, kind="", messages=10**9):
        self.kind, self.messages, self.begun = kind, messages, not kind

    def __call__(self, message, send):
        self.begun |= type(message.task).__name__ == self.kind
        if self.begun and self.messages:
            self.messages -= 1
            raise ShardUnreachable("It is dead.")
        return send(message)


@contextmanager
def full_disk(owner, monkeypatch):
    """Have the database of a coordinator, or of a shard, alone refuse to commit what is done."""
    commit = SQLiteDatabase._commit

    def failing(database):
        if database is owner._store.database:
            raise sqlite3.OperationalError("disk full")
        commit(database)

    with monkeypatch.context() as patch:
        patch.setattr(SQLiteDatabase, "_commit", failing)
        with pytest.raises(StorageFailed):
            yield


def on_ray(engine):
    """Return what opens a cluster whose shards are actors of this engine."""
    return lambda path: Coordinator.open(path, engine.transports, PATIENCE)
