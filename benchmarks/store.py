"""Time the store on this machine: `python -m benchmarks.store [--records N] [--features D]`.

Making, restarting, erasing 10,000 subjects, verifying, and answers with every commit on the disk.
The bare cost of flushing a file stands beside it, because it decides what a commit can cost. With
`--open`: only restarts, and what digests and chain add to the processor time of a block. With
`--shards`: what a cluster takes, all its shards in one process, for every number of shards given.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from vicinal.distributed import Coordinator, split
from vicinal.distributed.transports import local_transports
from vicinal.store import Query, Store

CLASSES = 10


def timed(name: str, work: Callable[[], object]) -> object:
    """Run `work` once and print how long it took, by the clock and of the processor's time."""
    start, busy = time.perf_counter(), time.process_time()
    result = work()
    took, worked = time.perf_counter() - start, time.process_time() - busy
    print(f"{name:<52} {took:9.2f} s   {worked:.2f} s of the processor's time", flush=True)
    return result


def median(name: str, works: list[Callable[[], object]], queries: int) -> None:
    """Print the median and the 99th percentile of works that answer `queries` queries each."""
    times = []
    for work in works:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    middle, late = statistics.median(times), float(np.quantile(times, 0.99))
    each = 1e3 * middle / queries
    print(f"{name:<52} {1e3 * middle:9.2f} ms  p99 {1e3 * late:.2f} ms  {each:.3f} ms a query")


def flush(folder: Path, size: int) -> list[Callable[[], object]]:
    """Return works that append `size` bytes to a file and flush it."""
    file = os.open(folder / "flush", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    content = os.urandom(size)

    def one() -> None:
        os.write(file, content)
        os.fsync(file)

    return [one] * 50


def answers(store: Store, rng: np.random.Generator, size: int, times: int) -> list:
    """Return works that answer a batch of `size` new queries, one request each."""
    d = store.schema.n_features

    def one() -> None:
        rows = rng.normal(size=(size, d)).astype(np.float32)
        replies = store.predict_many([Query(row[None]) for row in rows])
        assert all(reply.charged == 1 for reply in replies)

    return [one] * times


def digest_share(store: Store, rng: np.random.Generator, size: int, times: int) -> None:
    """Print by how much digests and chain lengthen a block; the store cannot be used afterwards."""
    database, (work, *_) = store._store.database, answers(store, rng, size, 1)
    chain, pairs = database.chain, []
    for number in range(times):
        pair = {}
        for digested in (number % 2 == 0, number % 2 == 1):
            database.chain = chain if digested else None
            start = time.process_time()
            work()
            pair[digested] = time.process_time() - start
        pairs.append(pair)
    without = statistics.median(pair[False] for pair in pairs)
    more = statistics.median(pair[True] - pair[False] for pair in pairs)
    print(
        f"{f'a block of {size}, of the processor, {times} pairs':<52} {1e3 * without:9.2f} ms   "
        f"digests and chain {more / without:+.1%} of that"
    )


def openings(path: Path, rng: np.random.Generator) -> None:
    """Print what opening a store takes, three times, and what digests cost a block."""
    for _ in range(3):
        timed("restart", lambda: Store.open(path)).close()
    with Store.open(path) as store:
        for size, times in ((1, 400), (64, 160), (256, 80)):
            digest_share(store, rng, size, times)


def clusters(path: Path, make: Callable[..., Store], counts: list[int]) -> None:
    """Print what clusters of the same records take, each in a process of its own."""
    for count in counts:
        if (child := os.fork()) == 0:
            make(path / f"{count}").close()
            cluster(path / f"{count}", path / f"cluster-{count}", count)
            os._exit(0)
        os.waitpid(child, 0)


def cluster(store: Path, path: Path, shards: int) -> None:
    """Print what a cluster takes whose shards are in this process."""
    before, rng, name = memory(), np.random.default_rng(1), f"{shards} shards"
    timed(f"{name}: split", lambda: split(store, path, shards))
    here = timed(f"{name}: open", lambda: Coordinator.open(path, local_transports))
    for size, times in ((1, 40), (256, 10)):
        median(f"{name}: a block of {size}", answers(here, rng, size, times), size)
    print(f"{name + ': memory':<52} {memory() - before:9.0f} MB")
    plan = {"n_queries": 1000, "epsilon": 1.0, "model_share": 0.3}
    timed(f"{name}: train a model", lambda: here.open_audience("more", **plan))
    here.close()


def memory() -> float:
    """Return the megabytes of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store", description=__doc__)
    parser.add_argument("--records", type=int, default=60_000)
    parser.add_argument("--features", type=int, default=324)
    parser.add_argument("--ledger", help="a postgresql:// URL instead of SQLite")
    parser.add_argument("--open", action="store_true", help="openings and digests alone")
    parser.add_argument("--shards", type=int, nargs="+", help="clusters alone, of so many shards")
    parser.add_argument("--folder", help="where to write; default: the system's temporary folder")
    arguments = parser.parse_args()
    n, d = arguments.records, arguments.features
    rng = np.random.default_rng(0)
    X = rng.standard_normal(size=(n, d), dtype=np.float32)
    y = rng.integers(0, CLASSES, n)
    R = rng.standard_normal(size=(2000, d), dtype=np.float32)
    people = [f"person-{i}" for i in range(n)]
    plan = {"n_queries": 10**6, "n_neighbors": n // 200, "noise_multiplier": 5.0, "n_records": n}
    plan["delta"] = min(1e-5, 1 / n)
    print(f"{n:,} records of {d} features, one a person, {n // 200} neighbours a query")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        path = Path(name) / "store"
        settings = {"classes": range(CLASSES), "public": R, "ledger": arguments.ledger, **plan}
        if arguments.shards:
            make = partial(Store.init, X=X, y=y, subjects=people, **settings)
            clusters(Path(name), make, arguments.shards)
            return
        store = timed("init", lambda: Store.init(path, X, y, people, **settings))
        if arguments.open:
            store.close()
            openings(path, rng)
            return
        store.predict(R[:1])
        for size in (4_000, 60_000, 480_000):
            median(f"write and flush {size:,} bytes, no database", flush(Path(name), size), 1)
        for size, times in ((1, 60), (16, 30), (64, 20), (256, 10)):
            median(f"{size} requests in one commit", answers(store, rng, size, times), size)
        store.close()
        store = timed("restart", lambda: Store.open(path))
        gone = people[:: n // 10_000][:10_000]
        timed("erase 10,000 people", lambda: store.erase(gone))
        found = timed("verify, for 100 of them", lambda: store.verify(gone[:100]))
        print(*(found.faults or ["all is well"]))
        timed("backup", lambda: store.backup(Path(name) / "backup"))
        store.close()


if __name__ == "__main__":
    main()
