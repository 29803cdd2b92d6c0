"""Load the service on this machine: `python -m benchmarks.serving [--short]`.

The service runs as its users run it (`vicinal serve`), every commit on the disk; the clients are in
this process, and both share the machine. Then: where the time goes, and what response times tell.

`--memory SECONDS` measures instead how the memory of the service grows: new queries for half of the
time, then repeated queries. Compare with `MALLOC_ARENA_MAX=2` in the environment.
"""

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from starlette.responses import JSONResponse

from vicinal.serving.keys import KeyFile
from vicinal.serving.models import PredictRequest, decode_rows
from vicinal.store import Query, Store

CLASSES, D = 10, 324
PLAN: dict[str, Any] = {"n_queries": 10**6, "n_neighbors": 300, "noise_multiplier": 300.0}
MODEL_PLAN: dict[str, Any] = {"n_queries": 10**4, "epsilon": 1.0, "delta": 1e-5}
"""What a store has by default: a private model answers most queries alone."""


def centres(rng: np.random.Generator) -> np.ndarray:
    """Return one centre a class."""
    return rng.random((CLASSES, D), dtype=np.float32)


def make_store(folder: Path, n: int, plan: dict[str, Any] = PLAN) -> str:
    """Make a store of n records in clusters, and return an analyst's key."""
    rng = np.random.default_rng(0)
    middle, y = centres(rng), rng.integers(0, CLASSES, n)
    X = middle[y] + 0.3 * rng.random((n, D), dtype=np.float32)
    public = middle[rng.integers(0, CLASSES, 3000)] + 0.3 * rng.random((3000, D))
    Store.init(
        folder, X, y, classes=range(CLASSES), public=public, n_records=n, **plan
    ).close()  # fmt: skip
    return KeyFile(folder).add("bench", "analyst", "default")


def bodies(count: int, size: int, seed: int) -> list[bytes]:
    """Return request bodies of `size` queries each, all of them new."""
    rng = np.random.default_rng(seed)
    middle = centres(np.random.default_rng(0))
    found = []
    for _ in range(count):
        rows = middle[rng.integers(0, CLASSES, size)] + 0.3 * rng.random((size, D))
        found.append(json_body(rows))
    return found


def json_body(rows: np.ndarray) -> bytes:
    """Return rows as most clients send them."""
    return json.dumps({"vectors": np.round(rows, 5).tolist()}).encode()


def requests(contents: list[bytes], key: str) -> list[bytes]:
    """Return whole HTTP requests, each with an idempotency key of its own."""
    stamp = time.time_ns()
    return [
        b"POST /v1/predict HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
        + f"Authorization: Bearer {key}\r\nIdempotency-Key: {stamp}-{i}\r\n".encode()
        + f"Content-Length: {len(content)}\r\n\r\n".encode()
        + content
        for i, content in enumerate(contents)
    ]


# ---------------------------------------------------------------- clients


async def one_client(port: int, todo: Iterator[bytes], times: list[float]) -> None:
    """Send requests one after the other, over one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for content in todo:
        begin = time.perf_counter()
        writer.write(content)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head + await reader.read(500)
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
        times.append(time.perf_counter() - begin)
    writer.close()


async def load(port: int, contents: list[bytes], clients: int) -> list[float]:
    """Send all requests from so many clients at once; return their times."""
    times: list[float] = []
    todo = iter(contents)  # shared: each client takes the next one
    await asyncio.gather(*(one_client(port, todo, times) for _ in range(clients)))
    return times


# ---------------------------------------------------------------- the service


@contextmanager
def service(folder: Path, *options: str) -> Iterator[tuple[int, int]]:
    """Run `vicinal serve` and yield port and process id."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "vicinal", "serve", str(folder), "--port", str(port)]
    process = subprocess.Popen([*command, "--rate", "0", *options], stderr=subprocess.DEVNULL)
    try:
        _until_it_listens(port, process)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait(60)


def _until_it_listens(port: int, process: subprocess.Popen) -> None:
    for _ in range(1200):
        assert process.poll() is None, "the service did not start"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the service does not listen")


def busy_seconds(pid: int) -> float:
    """Return the processor's time that a process has used (Linux)."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def measure(name: str, at: tuple[int, int], contents: list[bytes], size: int, clients: int) -> None:
    """Load the service and print one row."""
    port, pid = at
    begin, server, client = time.perf_counter(), busy_seconds(pid), time.process_time()
    times = 1e3 * np.array(asyncio.run(load(port, contents, clients)))
    took = time.perf_counter() - begin
    server, client = busy_seconds(pid) - server, time.process_time() - client
    p50, p99 = np.quantile(times, [0.5, 0.99])
    count = len(contents)
    print(
        f"{name:<28}{count / took:11,.0f}{count * size / took:11,.0f}{p50:10.1f}{p99:10.1f}"
        f"{1e3 * server / count:11.2f}{1e3 * client / count:11.2f}",
        flush=True,
    )


def throughput(folder: Path, key: str, short: bool) -> None:
    """Print the table of loads."""
    print(
        f"\n{'load':<28}{'requests/s':>11}{'queries/s':>11}{'p50 ms':>10}{'p99 ms':>10}"
        f"{'server ms':>11}{'client ms':>11}   (processor's time a request)"
    )
    with service(folder) as at:
        asyncio.run(load(at[0], requests(bodies(300, 1, 1), key), 16))  # warm
        for i, clients in enumerate((32, 64) if short else (32, 64, 128, 256)):
            contents = requests(bodies(500 if short else 4000, 1, 10 + i), key)
            measure(f"1 query, {clients} clients", at, contents, 1, clients)
        for i, clients in enumerate((4,) if short else (1, 4, 8)):
            contents = requests(bodies(8 if short else 80, 256, 20 + i), key)
            measure(f"256 queries, {clients} clients", at, contents, 256, clients)


# ---------------------------------------------------------------- where the time goes


def median(work: Callable[[], object], times: int) -> float:
    """Return the median time of a work in ms."""
    took = []
    for _ in range(times):
        begin = time.perf_counter()
        work()
        took.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(took)


def profile(folder: Path, key: str) -> None:
    """Print what the parts of a request take, measured one by one in this process."""
    print(f"\n{'where the time goes, ms':<44}{'1 query':>12}{'block of 64':>12}{'of 256':>10}")
    with Store.open(folder) as store:
        rows: dict[str, list[float]] = {"check the JSON of a body": [], "make an array of it": []}
        rows["write the JSON of a reply"] = []
        for size in (1, 64, 256):
            (content,) = bodies(1, size, 30 + size)
            body = PredictRequest.model_validate_json(content)
            reply = store.predict(decode_rows(body, store, 1024)[0])
            one = {
                "check the JSON of a body": lambda c=content: PredictRequest.model_validate_json(c),
                "make an array of it": lambda b=body: decode_rows(b, store, 1024),
                "write the JSON of a reply": lambda r=reply: JSONResponse(r.to_dict()),
            }
            for name, work in one.items():
                rows[name].append(median(work, 21))
        ring = KeyFile(folder)
        from vicinal.serving.keys import KeyCache

        found = KeyCache(ring)
        rows["look up the key"] = [median(lambda: found.find(key), 101)] * 3
        rows["answer, charge and commit, 1 request"] = [_asked(store, 1, n) for n in (1, 64, 256)]
        rows["the same, a request a query"] = [_asked(store, n, 1) for n in (1, 64, 256)]
        for name, values in rows.items():
            print(f"{name:<44}{values[0]:12.3f}{values[1]:12.2f}{values[2]:10.2f}")


def _asked(store: Store, count: int, size: int) -> float:
    rng = np.random.default_rng(time.time_ns())
    middle = centres(np.random.default_rng(0))

    def one() -> None:
        rows = middle[rng.integers(0, CLASSES, (count, size))] + 0.3 * rng.random((count, size, D))
        store.predict_many([Query(part) for part in rows.astype(np.float64)])

    return median(one, 15)


# ---------------------------------------------------------------- what response times tell


def timing(folder: Path, key: str, short: bool) -> None:
    """Print how well a response time tells queries amid records from queries far from all."""
    print(f"\n{'response times, one client':<28}{'near ms':>10}{'far ms':>10}{'told apart':>12}")
    for name, options in (
        ("as soon as it can", ()),
        ("at beats of 25 ms", ("--response-interval-ms", "25")),
    ):
        with service(folder, *options) as (port, _):
            asyncio.run(load(port, requests(bodies(20, 1, 40), key), 1))
            near, far = asyncio.run(_mixed(port, key, 60 if short else 400))
        told = np.mean(near[:, None] > far) + np.mean(near[:, None] == far) / 2
        print(
            f"{name:<28}{1e3 * np.median(near):10.2f}{1e3 * np.median(far):10.2f}{told:12.3f}"
            "   (0.5: not at all)"
        )


async def _mixed(port: int, key: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(time.time_ns() % 2**32)
    far = [
        json.dumps({"vectors": np.round(-rng.random((1, D)), 5).tolist()}).encode()
        for _ in range(count)
    ]
    near = bodies(count, 1, int(rng.integers(2**31)))
    # In random order: what one request leaves behind must not count for the other kind.
    order = rng.permutation(2 * count)
    mixed = [(near + far)[i] for i in order]
    times = np.array(await load(port, requests(mixed, key), 1))
    return times[order < count], times[order >= count]


# ---------------------------------------------------------------- memory

SAMPLE_SECONDS = 20.0
"""Seconds between two rows of the table of memory."""
REPEATED_BODIES = 512
"""Requests of one query each that are repeated; fewer than the service has answered before."""


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process in bytes (Linux)."""
    n_pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return n_pages * os.sysconf("SC_PAGE_SIZE")


def memory(folder: Path, key: str, seconds: float) -> None:
    """Print the memory of the service under new queries, then under repeated ones."""
    print(f"\n{'memory':<12}{'s':>6}{'requests':>12}{'answers':>10}{'MiB':>9}{'bytes/answer':>14}")
    with service(folder) as (port, pid):
        repeated = bodies(REPEATED_BODIES, 1, 50)
        # Warm: compiled functions, and the first answers to the queries that are repeated later.
        asyncio.run(load(port, requests(repeated, key), 16))
        begin = time.monotonic()
        n_answers = REPEATED_BODIES
        for phase in ("new", "repeated"):
            n_requests = 0
            first_bytes = resident_bytes(pid)
            first_answers = n_answers
            phase_end = time.monotonic() + seconds / 2
            while time.monotonic() < phase_end:
                sample_end = min(phase_end, time.monotonic() + SAMPLE_SECONDS)
                while time.monotonic() < sample_end:
                    is_new = phase == "new"
                    contents = bodies(500, 1, 10**6 + n_answers) if is_new else repeated
                    asyncio.run(load(port, requests(contents, key), 16))
                    n_requests += len(contents)
                    n_answers += is_new * len(contents)
                size = resident_bytes(pid)
                added = n_answers - first_answers
                growth = f"{(size - first_bytes) / added:14,.0f}" if added else f"{'':>14}"
                print(
                    f"{phase:<12}{time.monotonic() - begin:6.0f}{n_requests:12,}{n_answers:10,}"
                    f"{size / 2**20:9.1f}{growth}",
                    flush=True,
                )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    parser.add_argument("--records", type=int, default=60_000)
    parser.add_argument("--folder", help="where to write; default: the system's temporary folder")
    parser.add_argument("--short", action="store_true", help="small, for a smoke test")
    parser.add_argument("--memory", type=float, metavar="SECONDS", help="measure memory instead")
    arguments = parser.parse_args()
    n = 5000 if arguments.short else arguments.records
    with tempfile.TemporaryDirectory(dir=arguments.folder) as temporary:
        folder = Path(temporary) / "store"
        key = make_store(folder, n)
        print(f"n = {n:,}, d = {D}, every commit durable; load {os.getloadavg()[0]:.1f}")
        if arguments.memory:
            memory(folder, key, arguments.memory)
            return
        throughput(folder, key, arguments.short)
        profile(folder, key)
        timing(folder, key, arguments.short)


if __name__ == "__main__":
    main()
