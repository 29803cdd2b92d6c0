"""Shards on machines of their own, as network namespaces: what a block costs there, by delay.

`python -m benchmarks.shards --namespaces` runs it. A Ray node runs in every namespace, so order and
votes cross the wire as they would between machines; the processor's cores are shared by all.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.generated import Scene
from benchmarks.namespaces import Machines, address, machines, unavailable
from benchmarks.shard_model import Constants
from vicinal.neighbours import _scan

MOST_ACTORS = 4
DELAYS = (0.0, 0.001, 0.005, 0.020)
_PORT = 6379
_STORE = 100 << 20
_STARTING = 120.0
TOGETHER = 4
"""Blocks of a request, of which the next is searched while one is answered."""

_ROUNDS = 3
"""How often all delays are measured in turn."""


def apart(records: int, d: int, repeats: int, constants: Constants) -> dict[str, Any]:
    """Return milliseconds of a block by actors and delay, beside what the model says.

    Raises
    ------
    SystemExit
        If this machine cannot have network namespaces.
    """
    if why := unavailable():
        sys.exit(f"{why} Measure --delays instead: messages that are held back by a thread.")
    with machines(MOST_ACTORS + 1) as found:
        echo = {_told(delay): 1e3 * _echo(found, delay) for delay in DELAYS}
        figures: dict[str, dict[str, Any]] = {}
        with nodes(found):
            for actors in range(1, MOST_ACTORS + 1):
                scene = Scene(records, d, actors, max(10, records // 1000))
                times = blocks(found, scene, repeats)
                for together, took in times.items():
                    kind = "one block at a time" if together == 1 else "two under way"
                    said = {
                        delay: constants.seconds_apart(
                            records, actors, delay, together=together > 1
                        )
                        for delay in DELAYS
                    }
                    for name, seconds in (("measured_ms", took), ("model_ms", said)):
                        part = figures.setdefault(f"{name}, {kind}", {})
                        part[f"{actors} actors"] = {
                            _told(delay): 1e3 * one for delay, one in seconds.items()
                        }
    return {
        "records": records, "features": d, "cores": _scan.THREADS, "echo_ms": echo,
        **dict(sorted(figures.items())),
    }  # fmt: skip


@contextmanager
def nodes(found: Machines) -> Iterator[None]:
    """Run a Ray head on machine 0, and on every other machine a node for one shard."""
    with ExitStack() as resources:
        folder = resources.enter_context(
            tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True)
        )
        secret = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        os.environ.update(secret, RAY_USAGE_STATS_ENABLED="0")
        _node(found, 0, folder, "--head", f"--port={_PORT}", "--include-dashboard=false")
        for number in range(MOST_ACTORS):
            offer = json.dumps({f"vicinal-shard-{number}": 1})
            head = f"--address={address(0)}:{_PORT}"
            _node(found, number + 1, folder, head, f"--resources={offer}")
        yield


def blocks(found: Machines, scene: Scene, repeats: int) -> dict[int, dict[float, float]]:
    """Return the median seconds of a block by delay, measured in turn by a coordinator there.

    By how many blocks a request has: one, and several, of which two are under way.
    """
    asked = [scene.records, scene.features, scene.shards, scene.neighbours]
    command = [sys.executable, "-m", "benchmarks.shards_apart", *map(str, asked)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    times: dict[int, dict[float, list[float]]] = {
        together: {delay: [] for delay in DELAYS} for together in (1, TOGETHER)
    }
    with found.start(0, command, **pipes) as coordinator:
        _heard(coordinator)
        for _ in range(_ROUNDS):
            for together, delay in product(times, DELAYS):
                found.wire.delay = delay
                times[together][delay].extend(_asked(coordinator, repeats, together))
        found.wire.delay = 0.0
        coordinator.communicate(timeout=_STARTING)
    return {
        together: {delay: statistics.median(took) for delay, took in by_delay.items()}
        for together, by_delay in times.items()
    }


def _node(found: Machines, number: int, folder: str, *words: str) -> None:
    """Start a Ray node, and wait until it runs; it ends with its machine."""
    command = [
        str(Path(sys.executable).with_name("ray")), "start", f"--temp-dir={folder}",
        f"--node-ip-address={address(number)}", "--num-cpus=1", f"--object-store-memory={_STORE}",
    ]  # fmt: skip
    with found.start(number, [*command, *words], stdout=subprocess.DEVNULL) as node:
        assert node.wait(_STARTING) == 0, "a node of the engine does not start"


def _echo(found: Machines, delay: float) -> float:
    found.wire.delay = delay
    try:
        return found.echo()
    finally:
        found.wire.delay = 0.0


def _asked(coordinator: subprocess.Popen[str], repeats: int, together: int) -> list[float]:
    """Have a coordinator measure some requests, after one that is not counted."""
    assert coordinator.stdin is not None
    coordinator.stdin.write(f"{repeats + 1} {together}\n")
    coordinator.stdin.flush()
    return _heard(coordinator)[1:]


def _heard(coordinator: subprocess.Popen[str]) -> list[float]:
    assert coordinator.stdout is not None
    line = coordinator.stdout.readline()
    assert line, "the coordinator ended by itself"
    return list(json.loads(line))


def _told(delay: float) -> str:
    return f"{1e3 * delay:g} ms"


# ---------------------------------------------------------------- on machine 0


def main() -> None:
    """Be a coordinator: measure as many requests, of so many blocks, as each line says."""
    from benchmarks.shards import Running
    from vicinal.distributed import RayCluster

    parser = argparse.ArgumentParser(prog="python -m benchmarks.shards_apart", description=__doc__)
    for name in ("records", "features", "shards", "neighbours"):
        parser.add_argument(name, type=int)
    scene = Scene(**vars(parser.parse_args()))
    with ExitStack() as resources:
        engine = RayCluster(f"{address(0)}:{_PORT}")
        resources.callback(engine.stop)
        offered = engine._ray.cluster_resources()
        assert all(f"vicinal-shard-{number}" in offered for number in range(scene.shards))
        folder = Path(resources.enter_context(tempfile.TemporaryDirectory()))
        cluster = Running(folder, scene, engine)
        resources.callback(cluster.coordinator.close)
        print(json.dumps([cluster.block()]), flush=True)
        for line in sys.stdin:
            repeats, together = map(int, line.split())
            print(json.dumps([cluster.block(together) for _ in range(repeats)]), flush=True)


if __name__ == "__main__":
    main()
