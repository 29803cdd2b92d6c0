"""Split a store of many people into a cluster: `python -m benchmarks.splitting [--people N]`.

The store is made without objects for its people: ids `p0`, `p1`, ... go to its files as columns,
with a record of two features each. Printed are seconds, bytes of memory a person, and objects that
are left. `--people 20000000` is the figure of the documentation.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread
from typing import TypeVar

import numpy as np

from benchmarks.generated import resident
from vicinal.accounting._budget import UNITS
from vicinal.distributed import split
from vicinal.distributed._folders import shard_paths
from vicinal.ledger._subject_pages import write_all
from vicinal.store import Store
from vicinal.store._checksums import write_digests
from vicinal.store._opening import open_store

FEATURES = 2
_ROWS = 1 << 16
_LOOK = 0.02
T = TypeVar("T")


def filled_store(path: Path, people: int) -> None:
    """Make a store of so many people, with full budgets and a record each."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2, FEATURES))
    public = rng.standard_normal((64, FEATURES))
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
                rows = rng.integers(-99, 99, (stop - at, FEATURES)).astype(np.int8)
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


def watched(work: Callable[[], T]) -> tuple[T, float, int]:
    """Return what some work returns, its seconds, and how much memory it took at most, in bytes."""
    gc.collect()
    before, most, over = resident(), [0], Event()

    def watch() -> None:
        while not over.wait(_LOOK):
            most[0] = max(most[0], resident())

    thread = Thread(target=watch, daemon=True)
    thread.start()
    start = time.perf_counter()
    try:
        result = work()
    finally:
        took = time.perf_counter() - start
        over.set()
        thread.join()
    return result, took, max(0, most[0] - before)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.splitting", description=__doc__)
    parser.add_argument("--people", type=int, default=100_000)
    parser.add_argument("--shards", type=int, default=4)
    given = parser.parse_args()
    people = given.people
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        small = place / "small"
        filled_store(small / "store", 1_000)  # compiles and loads what the measurement needs
        split(small / "store", small / "cluster", given.shards)
        filled_store(place / "store", people)
        blocks = sys.getallocatedblocks()
        _, took, most = watched(lambda: split(place / "store", place / "cluster", given.shards))
        left = sys.getallocatedblocks() - blocks
        written = sum(
            file.stat().st_size
            for path in shard_paths(place / "cluster", given.shards)
            for file in path.rglob("*")
            if file.is_file()
        )
    figures = {
        "people": people, "shards": given.shards, "seconds": took,
        "microseconds a person": 1e6 * took / people, "MiB of memory": most / 2**20,
        "bytes of memory a person": most / people, "bytes on disk a person": written / people,
        "objects that are left": left,
    }  # fmt: skip
    for name, value in figures.items():
        print(f"{name:<30} {value:,.4g}" if isinstance(value, float) else f"{name:<30} {value:,}")


if __name__ == "__main__":
    main()
