"""What a request alone is made of: `python -m benchmarks.request_parts [--records N] [--model]`.

First the store in this process, part by part: each has its own time, without that of the parts
inside it. Then the service as its users run it, asked over one bare socket: what its threads work,
and what the client takes. Milliseconds a request, medians; of the processor, where other work runs.
"""

from __future__ import annotations

import argparse
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks import serving
from vicinal.ledger._ledger import Ledger
from vicinal.ledger._sqlite import SQLiteDatabase
from vicinal.mechanisms._votes import NoisyVotes, VoteRelease
from vicinal.neighbours._radius import AdaptiveRadius
from vicinal.predictors._class_decision import ClassDecision
from vicinal.predictors.ind_knn._proxy_ledger import ProxyLedger
from vicinal.predictors.ind_knn._shard import LocalShardBase
from vicinal.store import Query, Store
from vicinal.store._private_models import StoredModel
from vicinal.store._request_batch import RequestBatch

REST = "all else: turns, checks, marks of the witness"
PARTS = (
    (RequestBatch, "_jobs", "features, digests, keys looked up"),
    (AdaptiveRadius, "thresholds", "radius, among public points"),
    (ProxyLedger, "charge", "public points inside it, charged"),
    (ClassDecision, "beside_model", "probabilities beside a model"),
    (StoredModel, "mapped", "scores of a model"),
    (NoisyVotes, "release", "price of a step"),
    (LocalShardBase, "charge_and_sum", "search of the records"),
    (LocalShardBase, "charge", "charges of the neighbours"),
    (VoteRelease, "publish", "exact noise"),
    (Ledger, "commit", "rows and their digests"),
    (SQLiteDatabase, "_commit", "commit, with its flush"),
    (RequestBatch, "_replies", "reply"),
)


class Clock:
    """Own times of nested parts, by the clock and of the thread, in ms."""

    def __init__(self) -> None:
        self.requests: list[dict[str, np.ndarray]] = []
        self._inside: list[np.ndarray] = []

    def timed(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """Return `work`, whose time counts for `name`, and no more for what it was called by."""

        @wraps(work)
        def counted(*arguments: Any, **named: Any) -> Any:
            start = _now()
            self._inside.append(np.zeros(2))
            try:
                return work(*arguments, **named)
            finally:
                took, inner = _now() - start, self._inside.pop()
                if self._inside:
                    self._inside[-1] += took
                parts = self.requests[-1]
                parts[name] = parts.get(name, np.zeros(2)) + took - inner

        return counted

    @contextmanager
    def parts(self) -> Iterator[None]:
        """Time all parts while the body runs."""
        patches = [patch.object(kind, at, self.timed(name, getattr(kind, at)))
                   for kind, at, name in PARTS]  # fmt: skip
        for one in patches:
            one.start()
        try:
            yield
        finally:
            for one in patches:
                one.stop()

    def medians(self) -> dict[str, np.ndarray]:
        """Return (clock, processor) of every part, in the order of :data:`PARTS`."""
        names = [*(name for _, _, name in PARTS), REST]
        none = np.zeros(2)
        return {
            name: np.median([parts.get(name, none) for parts in self.requests], axis=0)
            for name in names
        }


def _now() -> np.ndarray:
    return 1e3 * np.array([time.perf_counter(), time.thread_time()])


def store_parts(folder: Path, count: int) -> dict[str, np.ndarray]:
    """Return what a store's thread does for a request, part by part."""
    clock, rng = Clock(), np.random.default_rng(time.time_ns())
    middle = serving.centres(np.random.default_rng(0))
    with Store.open(folder) as store, clock.parts():
        ask = clock.timed(REST, store.predict_many)
        for number in range(count + 20):
            place = rng.integers(0, serving.CLASSES, 1)
            rows = middle[place] + 0.3 * rng.random((1, serving.D))
            clock.requests.append({})
            ask([Query(rows.astype(np.float64), idempotency_key=f"{time.time_ns()}-{number}")])
    del clock.requests[:20]
    return clock.medians()


def asked(port: int, contents: list[bytes]) -> list[float]:
    """Send requests one after the other over one socket; return their ms."""
    took = []
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for content in contents:
            start = time.perf_counter()
            line.sendall(content)
            _read_response(line)
            took.append(1e3 * (time.perf_counter() - start))
    return took


def _read_response(line: socket.socket) -> None:
    got = b""
    while b"\r\n\r\n" not in got:
        got += line.recv(1 << 16)
    head, _, body = got.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), got
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    while len(body) < length:
        body += line.recv(1 << 16)


def thread_times(process: int) -> dict[str, float]:
    """Return the processor's ms of every thread of a process (Linux)."""
    tasks = Path(f"/proc/{process}/task").iterdir()
    return {task.name: int((task / "schedstat").read_text().split()[0]) / 1e6 for task in tasks}


def service_parts(folder: Path, key: str, count: int) -> dict[str, float]:
    """Return ms of a request to the service, by the clock, and of the processor by thread."""
    with serving.service(folder) as (port, process):
        asked(port, serving.requests(serving.bodies(30, 1, 1), key))
        contents = serving.requests(serving.bodies(count, 1, 2), key)
        before, own = thread_times(process), time.process_time()
        took = asked(port, contents)
        own = 1e3 * (time.process_time() - own) / count
        now = thread_times(process)
    worked = {name: (now[name] - before.get(name, 0.0)) / count for name in now}
    loop = worked.pop(str(process))
    return {
        "the whole request, by the clock, p50": float(np.median(took)),
        "the same, p10": float(np.quantile(took, 0.1)),
        "event loop (HTTP, keys, JSON), of the processor": loop,
        "store's thread, and others, of the processor": sum(worked.values()),
        "client, of the processor": own,
    }


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.request_parts", description=__doc__)
    parser.add_argument("--records", type=int, default=60_000)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--model", action="store_true", help="beside a private model, the default")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "store"
        plan = serving.MODEL_PLAN if arguments.model else serving.PLAN
        key = serving.make_store(folder, arguments.records, plan)
        load = os.getloadavg()[0]
        print(f"ms a request, n = {arguments.records:,}, d = {serving.D}, load {load:.1f}")
        print(f"\n{'the store, in this process':<52}{'clock':>9}{'processor':>11}")
        parts = store_parts(folder, arguments.requests)
        for name, (clock, processor) in [*parts.items(), ("together", sum(parts.values()))]:
            print(f"{name:<52}{clock:9.2f}{processor:11.2f}")
        print("\nthe service")
        for name, value in service_parts(folder, key, arguments.requests).items():
            print(f"{name:<52}{value:9.2f}")


if __name__ == "__main__":
    main()
