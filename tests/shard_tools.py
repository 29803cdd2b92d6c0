"""What the tests of clusters share: a store split over shards, on one machine or on Ray."""

from __future__ import annotations

import dataclasses
import shutil
import time
from itertools import count

import numpy as np
import pytest

import store_tools as tools
from vicinal.distributed import (
    Coordinator,
    MissingShardPolicy,
    ShardServer,
    local_transports,
    split,
)
from vicinal.distributed._folders import COORDINATOR, ShardFolder, shard_paths, witness_of
from vicinal.distributed._splitting import ready_cluster
from vicinal.errors import StoreDamaged

PATIENCE = MissingShardPolicy(deadline=480.0)


def clustered(folder, shards, *, place=None, make=tools.make, copies=1, **plan):
    """Return the path of a new cluster of 300 records of 150 people."""
    make(folder / "store", **plan).close()
    split(folder / "store", folder / "cluster", shards, place=place, copies=copies)
    return folder / "cluster"


def transplanted(source, target):
    """Copy a cluster with its witnesses, as to the same path of another machine."""
    shutil.copytree(source, target)
    for part in (COORDINATOR, *(one.name for one in source.glob("shard-*"))):
        moved(target / part, witness_of(source, part), witness_of(target, part))
    return target


def moved(part, old, new):
    """Have a part, that was copied, look for a copy of its witness in another place."""
    new.parent.mkdir(exist_ok=True)
    shutil.copy(old, new)
    there = ShardFolder.read(part)
    dataclasses.replace(there, folder=dataclasses.replace(there.folder, witness=new)).save()


def scattered(seed, shards):
    """Return any split of the people: some shards may be empty."""
    rng = np.random.default_rng(seed)
    where = {person: int(rng.integers(shards)) for person in tools.PEOPLE}
    return where.__getitem__


def budgets(path, audience="default"):
    """Return what everybody has left, by id, of a cluster that is closed; check every shard."""
    left = {}
    for folder in shard_paths(path, ready_cluster(path).shards):
        here = budgets_of(folder, audience)
        assert not left.keys() & here.keys(), "somebody is on two shards"
        left |= here
    return left


def budgets_of(folder, audience="default"):
    """Return what everybody has left, by id, in the folder of a shard; check it."""
    server = ShardServer.open(folder)
    try:
        found = server.verify()
        assert found, found.faults
        book = server._parts.ledger
        units = book.audiences[audience].account.remaining
        return {person: int(units[slot]) for person, slot in book.slot_table.slot_of.items()}
    finally:
        server.close()


def in_peace(path, folders=None):
    """Wait until the actors of a closed or killed coordinator have let go of their folders."""
    for folder in folders or shard_paths(path, ready_cluster(path).shards):
        for _ in range(6000):
            try:
                ShardServer.open(folder).close()
                break
            except RuntimeError:
                time.sleep(0.1)
        else:
            pytest.fail(f"{folder.name} was kept for ten minutes")


def local(path, policy=PATIENCE):
    """Open a cluster whose shards are in this process."""
    return Coordinator.open(path, local_transports, policy)


def on_ray(engine, **options):
    """Return what opens a cluster whose shards are actors of this engine."""
    return lambda path: Coordinator.open(path, engine.transports, PATIENCE, **options)


class Away:
    """The ways to all copies, of which one is away for tasks of some kinds, from a number on.

    It says that it is damaged, so that nobody waits for it.
    """

    def __init__(self, place, kinds, first=0):
        self.place, self.kinds, self.first, self.seen = place, kinds, first, count()
        self.away = True

    def __call__(self, paths):
        ways = list(local_transports(paths))
        ways[self.place] = self._wrapped(ways[self.place])
        return ways

    def _wrapped(self, way):
        outer = self

        class Way:
            def send(self, message):
                kind = type(message.task).__name__
                if outer.away and kind in outer.kinds and next(outer.seen) >= outer.first:
                    return self
                return way.send(message)

            def result(self, seconds):  # noqa: ARG002 (as of PendingReply)
                raise StoreDamaged("It is away.")

            def close(self):
                way.close()

            def abandon(self):
                way.abandon()

            def sum_node(self, shards):
                return way.sum_node(shards)

        return Way()
