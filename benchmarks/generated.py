"""Shards whose records are generated where they are needed: large ones, without a store's files.

Features, labels and subjects live in memory and come from a seed. Budgets, charges and votes are
durable, by the very code of a cluster. Subjects are the numbers of the records, so that nothing
here is a Python object for every one of them.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vicinal.accounting._budget import UNITS
from vicinal.distributed import RayCluster, ShardServer, split
from vicinal.distributed._folders import ShardFolder
from vicinal.distributed._messages import SearchAhead, VoteRequest
from vicinal.distributed._ray_cluster import RayTransport, _place, join_message, run_quietly
from vicinal.distributed._transports import LocalTransport
from vicinal.ledger._account import StoredAccount
from vicinal.ledger._slot_table import SlotTable
from vicinal.predictors.ind_knn._shard import Shard
from vicinal.store import Store
from vicinal.store._opening import OpenStore, open_folder

CLASSES = 10
_CHUNK = 1 << 16
_TINY = 64


@dataclass(frozen=True)
class Scene:
    """What is measured: so many generated records of so many features, on so many shards."""

    records: int
    features: int
    shards: int
    neighbours: int
    reference: int = 2_000
    seed: int = 0

    def cluster(self, folder: Path) -> Path:
        """Make a cluster with this plan; its shards hold nobody yet who counts."""
        rng = np.random.default_rng(self.seed)
        X = rng.standard_normal(size=(_TINY, self.features), dtype=np.float32)
        R = rng.standard_normal(size=(self.reference, self.features), dtype=np.float32)
        Store.init(
            folder / "store", X, np.arange(_TINY) % CLASSES, classes=range(CLASSES), public=R,
            n_records=self.records, n_neighbors=self.neighbours, noise_multiplier=5.0,
            n_queries=10**6,
        ).close()  # fmt: skip
        split(folder / "store", folder / "cluster", self.shards)
        return folder / "cluster"

    def rows(self, shard: int) -> int:
        """Return how many records a shard gets."""
        return (shard + 1) * self.records // self.shards - shard * self.records // self.shards


class Numbers(Mapping[Any, int]):
    """The subject with number i has slot i."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __getitem__(self, number: Any) -> int:
        """Return the slot of a subject."""
        if isinstance(number, int) and 0 <= number < self._size:
            return number
        raise KeyError(number)

    def __iter__(self) -> Iterator[int]:
        """Go through all subjects."""
        return iter(range(self._size))

    def __len__(self) -> int:
        """Return how many there are."""
        return self._size


class GeneratedShard:
    """A shard of generated records, as a ReopeningShard is of stored ones.

    Parameters
    ----------
    path : str
        Folder of a shard of the scene's cluster.
    scene : Scene
        What to generate.
    number : int
        Which shard it is.
    """

    def __init__(self, path: str, scene: Scene, number: int) -> None:
        before = resident()
        self._rows = scene.rows(number)
        parts = _filled(open_folder(ShardFolder.read(Path(path)).folder), scene, number)
        self._server = ShardServer(parts)
        self._parts = parts
        self._grown = resident() - before
        self._commits: list[float] = []
        self._ahead = False
        self._searches: list[float] = []
        self._charges: list[float] = []
        self._alone: list[float] = []
        commit = parts.database._commit

        def timed() -> None:
            start = time.perf_counter()
            commit()
            self._commits.append(time.perf_counter() - start)

        parts.database._commit = timed
        self._charged = 0
        account = parts.ledger.audiences["default"].account
        mark_committed = account.mark_committed

        def counted(charges: Any) -> None:
            self._charged += charges.slots.nbytes + charges.units.nbytes
            mark_committed(charges)

        account.mark_committed = counted

    def handle(self, message: Any) -> Any:
        """Do a task; note what searches ahead take, and charges of what they have found.

        In the processor's time, of all threads: other work on the machine disturbs that least. Of a
        charge also that of this thread alone, which the others wait for.
        """
        start, alone = time.process_time(), time.thread_time()
        try:
            return self._server.handle(message)
        finally:
            task, took = message.task, time.process_time() - start
            if isinstance(task, VoteRequest) and self._ahead:
                self._charges.append(took)
                self._alone.append(time.thread_time() - alone)
            if isinstance(task, SearchAhead):
                self._searches.append(took)
            self._ahead = isinstance(task, SearchAhead)

    def close(self) -> None:
        """Let go of the folder."""
        self._server.close()

    def measured(self) -> dict[str, float]:
        """Return what this shard has cost so far."""
        return {
            "resident_bytes": resident(),
            "bytes_a_record": self._grown / max(1, self._rows),
            "charge_bytes": self._charged,
            "commit_seconds": min(self._commits, default=0.0),
            "search_seconds": _median(self._searches),
            "charge_seconds": _median(self._charges),
            "alone_seconds": _median(self._alone),
        }


class SearchingTransport(LocalTransport):
    """The way to a shard in this process that searches ahead, as one elsewhere would."""

    def send(self, message: Any) -> Future[Any]:
        """Do a task."""
        reply: Future[Any] = Future()
        reply.set_result(self.shard.handle(message))
        return reply


class GeneratedActor:
    """The same in a process of its own."""

    def __init__(self, path: str, scene: Scene, number: int) -> None:
        self._shard = GeneratedShard(path, scene, number)

    def handle(self, message: Any, *more: Any) -> Any:
        """Do a task."""
        return run_quietly(lambda: self._shard.handle(join_message(message, more)))

    def close(self) -> Any:
        """Close the folder."""
        return run_quietly(self._shard.close)

    def measured(self) -> dict[str, float]:
        """Return what this shard has cost so far."""
        return self._shard.measured()


class GeneratedLinks:
    """Makes the ways to generated shards, in this process or on Ray, and asks what they cost."""

    def __init__(self, scene: Scene, engine: RayCluster | None) -> None:
        self._scene = scene
        self._engine = engine
        self._shards: list[Any] = []

    def __call__(self, paths: Any) -> list[Any]:
        """Make the shards, in the folders of the cluster, and return the ways to them."""
        args = [(str(path), self._scene, number) for number, path in enumerate(paths)]
        if self._engine is None:
            self._shards = [GeneratedShard(*one) for one in args]
            return [SearchingTransport(shard) for shard in self._shards]
        make = self._engine._ray.remote(GeneratedActor)
        offered = self._engine._ray.cluster_resources()
        self._shards = [
            make.options(resources=_place(path.name, offered)).remote(*one)
            for path, one in zip(paths, args, strict=True)
        ]
        return [RayTransport(self._engine._ray, actor) for actor in self._shards]

    def measured(self) -> list[dict[str, float]]:
        """Return what every shard has cost."""
        if self._engine is None:
            return [shard.measured() for shard in self._shards]
        found = self._engine._ray.get([actor.measured.remote() for actor in self._shards])
        return list(found)


def _median(seconds: list[float]) -> float:
    return float(np.median(seconds)) if seconds else 0.0


def resident() -> int:
    """Return the bytes of memory that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _filled(parts: OpenStore, scene: Scene, number: int) -> OpenStore:
    """Return the parts of a shard with generated records instead of its own, budgets full."""
    book, frame, rows = parts.ledger, parts.schema, scene.rows(number)
    book.slot_table = SlotTable()
    book.slot_table.slot_of, book.slot_table.size = Numbers(rows), rows
    for audience in book.audiences.values():
        audience.account = StoredAccount(np.full(rows, UNITS, dtype=np.int64))
        audience.granted, audience.checkpointed = rows, 0
    kernel = frame.kernel_of(None)
    shard = Shard(kernel, frame.n_features, book)
    rng = np.random.default_rng([scene.seed, number])
    labels = rng.integers(0, CLASSES, rows, dtype=np.int32)
    chunks = (
        kernel.encode(rng.standard_normal((min(_CHUNK, rows - at), frame.n_features), np.float32))
        for at in range(0, rows, _CHUNK)
    )
    shard.resume(chunks, labels, np.arange(rows, dtype=np.int32))
    return dataclasses.replace(parts, shard=shard)
