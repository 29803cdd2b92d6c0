"""How long answers wait while people are added: `python -m benchmarks.additions [--records N]`.

A store of N records of 128 features answers one block of 16 queries after the other; meanwhile
another thread adds N more. Once as it is done, once all of it in the turn that answers need.
`--cluster` has the records on two shards, in processes of their own.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from crash.copy_processes import CopyProcess

from vicinal.distributed import Coordinator, _coordinator, split
from vicinal.store import Store, _store

SHARDS = 2
FEATURES, CLASSES, BLOCK = 128, 10, 16


def people(n: int, seed: int) -> np.ndarray:
    """Return made-up features in clusters."""
    rng = np.random.default_rng(seed)
    middle = np.random.default_rng(0).normal(size=(100, FEATURES)).astype(np.float32)
    return middle[rng.integers(0, 100, n)] + 0.3 * rng.random((n, FEATURES), dtype=np.float32)


def made(folder: Path, n: int) -> Store:
    """Return a store of n people."""
    return Store.init(
        folder, people(n, 1), np.arange(n) % CLASSES, subjects=np.arange(n), public=people(3000, 2),
        classes=range(CLASSES), n_records=n, n_queries=10**7, noise_multiplier=5.0, n_neighbors=200,
    )  # fmt: skip


def clustered(folder: Path, n: int) -> Coordinator:
    """Return a cluster of n people, its shards in processes of their own."""
    made(folder / "store", n).close()
    split(folder / "store", folder / "cluster", SHARDS)
    return Coordinator.open(folder / "cluster", lambda paths: [CopyProcess(one) for one in paths])


def waits(store: Store | Coordinator, n: int) -> tuple[float, float, float]:
    """Return the longest block before an addition and during it, and its own duration, in ms."""
    queries = people(20_000, 3)
    before = [block(store, queries, number) for number in range(60)][10:]
    added = threading.Thread(
        target=store.add, args=(people(n, 4), np.arange(n) % CLASSES, np.arange(n, 2 * n))
    )
    during: list[float] = []
    began = time.perf_counter()
    added.start()
    while added.is_alive():
        during.append(block(store, queries, 60 + len(during)))
    took = 1000 * (time.perf_counter() - began)
    added.join()
    return max(before), max(during), took


def block(store: Store | Coordinator, queries: np.ndarray, number: int) -> float:
    """Answer a block; return the milliseconds."""
    start = number * BLOCK % (len(queries) - BLOCK)
    began = time.perf_counter()
    store.predict(queries[start : start + BLOCK])
    return 1000 * (time.perf_counter() - began)


def report(n: int, cluster: bool) -> Iterator[str]:
    """Yield the lines of the table as they are measured."""
    where = f"{SHARDS} shards" if cluster else "a store"
    yield f"{n:,} people are added to {n:,} of {where}; blocks of {BLOCK} queries, ms"
    yield f"{'':<24}{'longest before':>16}{'longest meanwhile':>19}{'addition':>10}"
    module = _coordinator if cluster else _store
    for name, attempts in {"in the turn of answers": 0, "beside answers": _store.ATTEMPTS}.items():
        with (
            tempfile.TemporaryDirectory() as folder,
            mock.patch.object(module, "ATTEMPTS", attempts),
            clustered(Path(folder), n) if cluster else made(Path(folder) / "store", n) as store,
        ):
            before, during, took = waits(store, n)
        yield f"{name:<24}{before:16.0f}{during:19.0f}{took:10.0f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.additions", description=__doc__)
    parser.add_argument("--records", type=int, default=100_000, help="people before, and added")
    parser.add_argument("--cluster", action="store_true", help="on two shards")
    given = parser.parse_args()
    for line in report(given.records, given.cluster):
        print(line, flush=True)


if __name__ == "__main__":
    main()
