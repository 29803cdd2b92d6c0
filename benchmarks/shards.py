"""Measure what shards cost next to one machine, and what follows for large data.

`python -m benchmarks.shards [--json]` prints the table: what Ray adds to a block, throughput of two
actors next to two threads, bytes and commits. `--large` puts 20,000,000 records of 128 features
into two actors. `--model` prints the cost model of scaling.md, read out for 1e8 and 1e9 records,
from constants measured now, or before (`--constants FILE`, of an earlier --json).
`--namespaces` runs a Ray node in each of several network namespaces with delays between them, and
puts what the model says beside what was measured; it needs root. `--under-way` shows what two
blocks under way gain, by delay, one shard without Ray. `--no-ray FILE` measures the
constants without Ray, and takes those that need it from an earlier --json.
Works that are compared run in turn, so that a machine that slows down slows all of them.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pickle
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.generated import CLASSES, GeneratedLinks, Scene
from benchmarks.shard_model import Constants, read_out
from benchmarks.shards_apart import TOGETHER, apart
from vicinal.distributed import Coordinator, MissingShardPolicy, RayCluster
from vicinal.distributed._messages import VoteRequest
from vicinal.neighbours import _scan

BLOCK = 256
REFERENCE = 20_000
"""Public points: enough to tell the radius of one record in 10,000."""

_PATIENCE = MissingShardPolicy(deadline=600.0)
_MEMORY = 256 << 20
_MANY = 1_000_000
_TABLES = ("large", "under_way", "delays", "model", "namespaces")
"""Options with a table of their own in cluster-figures.txt."""


class Running:
    """A cluster of generated shards that is open.

    Parameters
    ----------
    folder : Path
        Where it may write.
    scene : Scene
        What is in it.
    engine : RayCluster or None
        Where its shards run; None: in this process.
    delay : float
        Seconds that every message takes, either way.
    """

    def __init__(
        self, folder: Path, scene: Scene, engine: RayCluster | None, delay: float = 0.0
    ) -> None:
        self._links = GeneratedLinks(scene, engine)
        self._rng = np.random.default_rng(5)
        self._features = scene.features
        self.watched: list[Watched] = []
        self.worked: list[float] = []
        """Seconds of a processor that this process worked for each block."""

        def connect(paths: Any) -> list[Watched]:
            self.watched = [Watched(link, delay) for link in self._links(paths)]
            return self.watched

        self.coordinator = Coordinator.open(scene.cluster(folder), connect, _PATIENCE)

    def block(self, together: int = 1) -> float:
        """Have a block of new queries answered; return the seconds it took.

        Or a block of some `together`, in one request: shards search the next ones meanwhile.
        """
        size = together * BLOCK
        rows = self._rng.standard_normal(size=(size, self._features), dtype=np.float32)
        start, busy = time.perf_counter(), time.process_time()
        reply = self.coordinator.predict(rows)
        took = time.perf_counter() - start
        self.worked.append((time.process_time() - busy) / together)
        assert reply.charged == size
        return took / together

    def measured(self) -> list[dict[str, float]]:
        """Return what every shard has cost."""
        return self._links.measured()


class Watched:
    """A way to a shard that counts bytes, and on which messages may take their time."""

    def __init__(self, link: Any, delay: float) -> None:
        self._link = link
        self._delay = delay
        self._pool = ThreadPoolExecutor(1) if delay else None
        self.sent = self.received = 0

    def send(self, message: Any) -> Any:
        """Send a message; it arrives after the delay, as does its answer."""
        order = message.task
        if isinstance(order, VoteRequest):
            self.sent = len(pickle.dumps(message, 5))
            self.received = len(pickle.dumps(np.zeros((len(order.queries), CLASSES), np.int64), 5))
        if self._pool is None:
            return self._link.send(message)
        arrives = time.perf_counter() + self._delay
        return Late(self._pool.submit(self._handled, message, arrives))

    def close(self) -> None:
        """Close the shard."""
        if self._pool is not None:
            self._pool.shutdown()
        self._link.close()

    def _handled(self, message: Any, arrives: float) -> tuple[Any, float]:
        """Return what came of a message, and when that is back; the next may be on its way."""
        time.sleep(max(0.0, arrives - time.perf_counter()))
        found = self._link.send(message).result(_PATIENCE.deadline)
        return found, time.perf_counter() + self._delay


class Late:
    """A task under way through a slow network."""

    def __init__(self, future: Future[tuple[Any, float]]) -> None:
        self._future = future

    def result(self, seconds: float) -> Any:
        """Return what came of it, when it is back."""
        found, back = self._future.result(seconds)
        time.sleep(max(0.0, back - time.perf_counter()))
        return found


@contextmanager
def running(**scenes: tuple[Scene, bool]) -> Iterator[dict[str, Running]]:
    """Open clusters by name, each with whether it runs on Ray; warm them up."""
    with ExitStack() as resources:
        engine = None
        if any(on_ray for _, on_ray in scenes.values()):
            engine = RayCluster(memory=_MEMORY, cpus=max(4, _scan.THREADS))
            resources.callback(engine.stop)
        found = {}
        for name, (scene, on_ray) in scenes.items():
            folder = Path(resources.enter_context(tempfile.TemporaryDirectory()))
            found[name] = Running(folder, scene, engine if on_ray else None)
            resources.callback(found[name].coordinator.close)
        for one in found.values():
            one.block()
        yield found


def interleaved(
    clusters: dict[str, Running], repeats: int, together: int = 1
) -> dict[str, list[float]]:
    """Return the seconds of blocks, asked of all clusters in turn, some of them `together`."""
    times: dict[str, list[float]] = {name: [] for name in clusters}
    for _ in range(repeats):
        for name, cluster in clusters.items():
            times[name].append(cluster.block(together))
    return times


def added(times: dict[str, list[float]], more: str, less: str) -> float:
    """Return the median of what one cluster takes longer than another, pair by pair."""
    return statistics.median(np.subtract(times[more], times[less]).tolist())


def small(n: int, d: int, repeats: int, known: dict[str, float] | None = None) -> dict[str, Any]:
    """Return what shards add, and the constants of the model; those that need Ray may be known."""
    whole = Scene(n, d, 1, max(10, n // 10_000), reference=REFERENCE)
    tiny = Scene(2_000, d, 1, 10, reference=REFERENCE)
    scenes = {"local": (whole, False), "tiny": (tiny, False)}
    if known is None:
        scenes |= {
            "ray": (whole, True), "two": (dataclasses.replace(whole, shards=2), True),
            "tiny_ray": (tiny, True), "tiny_three": (dataclasses.replace(tiny, shards=3), True),
        }  # fmt: skip
    with running(**scenes) as clusters:
        times = interleaved(clusters, repeats)
        worked = {name: statistics.median(one.worked) for name, one in clusters.items()}
        shard, link = clusters["local"].measured()[0], clusters["local"].watched[0]
        pairs = interleaved(clusters, max(1, repeats // TOGETHER), TOGETHER)
        parts = {name: clusters[name].measured()[0] for name in ("local", "tiny")}
    middle = {name: statistics.median(found) for name, found in times.items()}
    if known is None:
        known = {
            "engine": max(0.0, added(times, "tiny_ray", "tiny")),
            "shard": max(0.0, (worked["tiny_three"] - worked["tiny_ray"]) / 2),
        }

    def more(part: str) -> float:
        return max(0.0, parts["local"][part] - parts["tiny"][part])

    alone = more("alone_seconds") / (n - tiny.records)
    constants = Constants(
        product=more("search_seconds") / ((n - tiny.records) * d * BLOCK),
        charge=max(0.0, more("charge_seconds") / (n - tiny.records) - alone),
        write=alone,
        block=worked["tiny"],
        engine=known["engine"],
        shard=known["shard"],
        commit=shard["commit_seconds"],
        sent=link.sent,
        received=link.received,
        charged=shard["charge_bytes"] / (repeats + 1),
        record=memory_of_a_record(d),
        features=d,
        queries=BLOCK,
    )
    return {
        "records": n,
        "features": d,
        "threads": _scan.THREADS,
        "block_ms": {name: 1e3 * value for name, value in middle.items()},
        f"block_ms, {TOGETHER} in a request": {
            name: 1e3 * statistics.median(found) for name, found in pairs.items()
        },
        **(_on_ray(times, middle) if "ray" in times else {}),
        "constants": asdict(constants),
    }


def _on_ray(times: dict[str, list[float]], middle: dict[str, float]) -> dict[str, Any]:
    return {
        "ray_adds_ms": 1e3 * added(times, "ray", "local"),
        "third_shard_on_the_same_cores_ms": 1e3 * added(times, "tiny_three", "tiny_ray") / 2,
        "queries_a_second": {
            "two threads": BLOCK / middle["local"],
            "two actors": BLOCK / middle["two"],
        },
    }


def memory_of_a_record(d: int) -> float:
    """Return the bytes of a record in memory with its budget, of very many."""
    scene = Scene(_MANY, d, 1, 100)
    with tempfile.TemporaryDirectory() as folder:
        cluster = Running(Path(folder), scene, None)
        try:
            return cluster.measured()[0]["bytes_a_record"]
        finally:
            cluster.coordinator.close()


def large(n: int, d: int, repeats: int) -> dict[str, Any]:
    """Return memory and time of two actors that hold `n` records."""
    scene = Scene(n, d, 2, max(10, n // 10_000), reference=REFERENCE)
    start = time.perf_counter()
    with running(large=(scene, True)) as clusters:
        made = time.perf_counter() - start
        times = interleaved(clusters, repeats)["large"]
        shards = clusters["large"].measured()
    return {
        "records": n,
        "features": d,
        "generated_and_warm_seconds": made,
        "ms_a_query": 1e3 * statistics.median(times) / BLOCK,
        "gib": [one["resident_bytes"] / 2**30 for one in shards],
        "gib_together": sum(one["resident_bytes"] for one in shards) / 2**30,
        "bytes_a_record": [one["bytes_a_record"] for one in shards],
        "charge_bytes_a_block": [one["charge_bytes"] / (repeats + 1) for one in shards],
        "commit_ms": [1e3 * one["commit_seconds"] for one in shards],
    }


def under_way(n: int, d: int, repeats: int) -> dict[str, Any]:
    """Return milliseconds of a block one at a time, and with two under way, by delay, in turn.

    One shard without Ray, in a thread of its own, behind messages that take the delay each way.
    """
    found: dict[str, Any] = {}
    scene = Scene(n, d, 1, max(10, n // 10_000), reference=REFERENCE)
    for delay in (0.001, 0.005, 0.020):
        with tempfile.TemporaryDirectory() as folder:
            cluster = Running(Path(folder), scene, None, delay)
            cluster.block(TOGETHER)
            times = [[cluster.block(k) for k in (1, TOGETHER)] for _ in range(repeats)]
            cluster.coordinator.close()
        alone, together = np.median(np.array(times), axis=0)
        found[f"{1e3 * delay:g} ms"] = {
            "one at a time": 1e3 * float(alone),
            "two under way": 1e3 * float(together),
            "ratio, median of pairs": float(np.median([b / a for a, b in times])),
        }
    return found


def delayed(n: int, d: int, repeats: int) -> dict[str, float]:
    """Return the milliseconds of a block with so many milliseconds of network, either way."""
    found = {}
    for milliseconds in (0.0, 1.0, 5.0, 20.0):
        scene = Scene(n, d, 3, max(10, n // 1000))
        with ExitStack() as resources:
            engine = RayCluster(memory=_MEMORY, cpus=4)
            resources.callback(engine.stop)
            folder = Path(resources.enter_context(tempfile.TemporaryDirectory()))
            cluster = Running(folder, scene, engine, milliseconds / 1e3)
            resources.callback(cluster.coordinator.close)
            cluster.block()
            times = [cluster.block() for _ in range(repeats)]
        found[f"{milliseconds:g} ms"] = 1e3 * statistics.median(times)
    return found


def lines(found: dict[str, Any], indent: str = "") -> Iterator[str]:
    """Yield nested figures, a line each."""
    for name, value in found.items():
        if isinstance(value, dict):
            yield f"{indent}{name}"
            yield from lines(value, indent + "  ")
        else:
            yield f"{indent + name:<30} {_figure(value)}"


def write(path: Path, name: str, text: str) -> None:
    """Put figures between the marks of a page that have their name, so that nobody types them."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, found, rest = path.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    assert found, f"{path} has no place for {name}"
    assert closed, f"the place for {name} in {path} has no end"
    path.write_text(f"{before}{begin}\n```\n{text}\n```\n{end}{after}")


def _figure(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_figure(one) for one in value)
    if isinstance(value, str):
        return value
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shards", description=__doc__)
    parser.add_argument("--records", type=int, help="default: 200,000; large: 20,000,000")
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--large", action="store_true", help="two actors with many records")
    parser.add_argument("--under-way", action="store_true", help="two blocks beside one, no Ray")
    parser.add_argument("--delays", action="store_true", help="three shards, a slow network")
    parser.add_argument("--namespaces", action="store_true", help="machines apart, a slow network")
    parser.add_argument("--model", action="store_true", help="read the cost model out")
    parser.add_argument("--constants", type=Path, help="measured before, with --json")
    parser.add_argument("--no-ray", type=Path, help="where what needs Ray was measured before")
    parser.add_argument("--write", type=Path, help="put the figures here: cluster-figures.txt")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    given = parser.parse_args()
    d, repeats = given.features, given.repeats
    if given.large:
        found = large(given.records or 20_000_000, d, repeats)
    elif given.under_way:
        found = under_way(given.records or 200_000, d, repeats)
    elif given.delays:
        found = delayed(given.records or 200_000, d, repeats)
    elif given.constants:
        found = json.loads(given.constants.read_text())
    else:
        known = given.no_ray and json.loads(given.no_ray.read_text())["constants"]
        found = small(given.records or 200_000, d, repeats, known)
    if given.namespaces:
        constants = Constants(**found["constants"])
        found = apart(given.records or 200_000, d, repeats, constants)
    elif given.model:
        constants = Constants(**found["constants"])
        found = {"constants": constants.told(), **read_out(constants)}
    text = json.dumps(found) if given.json else "\n".join(lines(found))
    if given.write is None:
        print(text)
    else:
        name = next(
            (what for what in _TABLES if getattr(given, what)),
            "blocks",
        )
        write(given.write, name, text)


if __name__ == "__main__":
    main()
