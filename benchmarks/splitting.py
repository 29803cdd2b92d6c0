"""Split a store of many people into a cluster: `python -m benchmarks.splitting [--people N]`.

The store is made without objects for its people: ids `p0`, `p1`, ... go to its files as columns,
with a record each, of two features or `--features`. A process of its own splits it, so that the
most memory it has held is the split's. The documentation has `--people 20000000 --features 16`.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benchmarks.generated import resident
from vicinal.accounting._budget import UNITS
from vicinal.distributed import split
from vicinal.distributed._folders import shard_paths
from vicinal.ledger._subject_pages import write_all
from vicinal.store import Store
from vicinal.store._checksums import write_digests
from vicinal.store._opening import open_store

_ROWS = 1 << 16


def filled_store(path: Path, people: int, features: int) -> None:
    """Make a store of so many people, with full budgets and a record each."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2, features))
    public = rng.standard_normal((64, features))
    Store.init(
        path, X, [0, 1], ["p0", "p1"], classes=[0, 1], public=public, n_records=people,
        n_queries=100, model_share=0,
    ).close()  # fmt: skip
    parts = open_store(path)
    try:
        with parts.ledger.change("fill"):
            parts.database.execute("DELETE FROM subject_pages")
            ids = b"".join(
                b"".join([b"<id:sp%d>" % number for number in range(at, stop)])
                for at, stop in _chunks(people)
            )
            parts.database.put("slots", str(write_all(parts.database, ids)))
            del ids
            for at, stop in _chunks(people):
                rows = rng.integers(-99, 99, (stop - at, features)).astype(np.int8)
                slots = np.arange(at, stop, dtype=np.int32)
                parts.record_files.append(at, rows, (slots % 2), slots)
            write_digests(parts.database, parts.record_files, people)
            for audience in parts.ledger.audiences.values():
                slots = np.arange(people, dtype=np.int32)
                audience.account.assign(slots, np.full(people, UNITS), people)
                audience.granted = people
                audience.checkpoint(parts.database)
        parts.mark_change()
    finally:
        parts.resources.close()


def _chunks(people: int) -> Iterator[tuple[int, int]]:
    return ((at, min(at + _ROWS, people)) for at in range(0, people, _ROWS))


@dataclass(frozen=True)
class Measured:
    """What a split took: seconds, of the processor too, most bytes beyond those before, objects."""

    seconds: float
    processor: float
    bytes: int
    objects: int


def measured_split(folder: Path, shards: int) -> Measured:
    """Split the stores `small` and `large` of a folder, and measure the second, in this process.

    The first compiles and loads what the measurement needs.
    """
    split(folder / "small", folder / "small-cluster", shards)
    gc.collect()
    before, blocks = resident(), sys.getallocatedblocks()
    start, worked = time.perf_counter(), time.process_time()
    split(folder / "large", folder / "cluster", shards)
    took, worked = time.perf_counter() - start, time.process_time() - worked
    left = sys.getallocatedblocks() - blocks
    return Measured(took, worked, max(0, most_resident() - before), left)


def most_resident() -> int:
    """Return the most bytes of memory that this process has held."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def figures(people: int, features: int, shards: int) -> dict[str, float | int]:
    """Make a store, split it in a process of its own, and return what that took."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        filled_store(folder / "small", 1_000, features)
        start = time.process_time()
        filled_store(folder / "large", people, features)
        made = time.process_time() - start
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            took = process.submit(measured_split, folder, shards).result()
        written = sum(
            file.stat().st_size
            for path in shard_paths(folder / "cluster", shards)
            for file in path.rglob("*")
            if file.is_file()
        )
    return {
        "people": people, "features": features, "shards": shards,
        "seconds of a processor to make it": made,
        "seconds": took.seconds, "seconds of a processor": took.processor,
        "microseconds of it a person": 1e6 * took.processor / people,
        "MiB of memory": took.bytes / 2**20, "bytes of memory a person": took.bytes / people,
        "bytes on disk a person": written / people, "objects that are left": took.objects,
    }  # fmt: skip


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.splitting", description=__doc__)
    parser.add_argument("--people", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=2)
    parser.add_argument("--shards", type=int, default=4)
    given = parser.parse_args()
    for name, value in figures(given.people, given.features, given.shards).items():
        print(f"{name:<34} {value:,.4g}" if isinstance(value, float) else f"{name:<34} {value:,}")


if __name__ == "__main__":
    main()
