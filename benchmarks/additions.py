"""How long answers wait while people are added: `python -m benchmarks.additions [--records N]`.

A store of N records of 128 features answers one block of 16 queries after the other; meanwhile
another thread adds N more. Once as it is done, once all of it in the turn that answers need.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np

from vicinal.store import Store, _store

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


def waits(store: Store, n: int) -> tuple[float, float, float]:
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


def block(store: Store, queries: np.ndarray, number: int) -> float:
    """Answer a block; return the milliseconds."""
    start = number * BLOCK % (len(queries) - BLOCK)
    began = time.perf_counter()
    store.predict(queries[start : start + BLOCK])
    return 1000 * (time.perf_counter() - began)


def report(n: int) -> Iterator[str]:
    """Yield the lines of the table as they are measured."""
    yield f"{n:,} people are added to {n:,}; blocks of {BLOCK} queries, ms"
    yield f"{'':<24}{'longest before':>16}{'longest meanwhile':>19}{'addition':>10}"
    for name, attempts in {"in the turn of answers": 0, "beside answers": _store.ATTEMPTS}.items():
        with (
            tempfile.TemporaryDirectory() as folder,
            mock.patch.object(_store, "ATTEMPTS", attempts),
            made(Path(folder) / "store", n) as store,
        ):
            before, during, took = waits(store, n)
        yield f"{name:<24}{before:16.0f}{during:19.0f}{took:10.0f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.additions", description=__doc__)
    parser.add_argument("--records", type=int, default=100_000, help="people before, and added")
    for line in report(parser.parse_args().records):
        print(line, flush=True)


if __name__ == "__main__":
    main()
