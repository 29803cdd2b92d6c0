"""How long a cluster takes to go on without a copy: `python -m benchmarks.takeover`.

A shard has two copies in processes of their own. One is killed, or stopped, and the next request is
timed: it waits the stated seconds, and what the takeover takes besides. Then what copies cost while
nothing fails. Ratios of one run; the shard is small, so that what is seen is the takeover.
"""

from __future__ import annotations

import logging
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import shard_tools
from crash.copy_processes import CopyProcess
from crash.store_spawner import QUERIES
from vicinal.distributed import Coordinator, MissingShardPolicy

REPEATS, REQUESTS = 5, 40
SECONDS = (0.2, 1.0)
LOSSES = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}


def opened(path: Path, takeover_s: float | None) -> Coordinator:
    """Open a cluster whose copies are processes."""
    policy = MissingShardPolicy(takeover_s=takeover_s)
    return Coordinator.open(path, lambda paths: [CopyProcess(one) for one in paths], policy)


def asked(cluster: Coordinator, number: int) -> float:
    """Ask four new queries; return the milliseconds."""
    began = time.perf_counter()
    cluster.predict(QUERIES[4 * number : 4 * number + 4])
    return 1000 * (time.perf_counter() - began)


def after_loss(path: Path, takeover_s: float, how: signal.Signals) -> float:
    """Lose the second copy; return the milliseconds of the next request beyond the stated ones."""
    with opened(path, takeover_s) as cluster:
        for number in range(3):
            asked(cluster, number)
        os.kill(cluster._transports[0].transports[1].pid, how)
        return asked(cluster, 3) - 1000 * takeover_s


def report() -> Iterator[str]:
    """Yield the lines of the table as they are measured."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "one").mkdir()
        template = shard_tools.clustered(folder, 1, copies=2, n_queries=100_000)
        alone = shard_tools.clustered(folder / "one", 1, n_queries=100_000)
        with shard_tools.local(shard_tools.transplanted(alone, folder / "warm")) as cluster:
            asked(cluster, 0)
        yield f"{'copy 2 is':<12}{'stated s':>9}{'ms besides: median':>20}{'most':>8}"
        for loss, how in LOSSES.items():
            for takeover_s in SECONDS:
                paths = [folder / f"{loss}-{takeover_s}-{n}" for n in range(REPEATS)]
                times = [
                    after_loss(shard_tools.transplanted(template, path), takeover_s, how)
                    for path in paths
                ]
                middle = statistics.median(times)
                yield f"{loss:<12}{takeover_s:9.1f}{middle:20.0f}{max(times):8.0f}"
        yield from without_failures(template, alone)


def without_failures(template: Path, alone: Path) -> Iterator[str]:
    """Yield what a request of four queries takes, asked in turn."""
    with (
        opened(alone, None) as one,
        opened(shard_tools.transplanted(template, template.parent / "off"), None) as off,
        opened(shard_tools.transplanted(template, template.parent / "on"), 1.0) as on,
    ):
        clusters = {"one copy": one, "two copies": off, "two copies, --takeover-s 1": on}
        times: dict[str, list[float]] = {name: [] for name in clusters}
        for number in range(REQUESTS):
            for name, cluster in clusters.items():
                times[name].append(asked(cluster, number))
    first = statistics.median(times["one copy"])
    yield f"{'nothing fails':<28}{'ms a request':>14}{'ratio':>8}"
    for name, its in times.items():
        yield f"{name:<28}{statistics.median(its):14.1f}{statistics.median(its) / first:8.2f}"


if __name__ == "__main__":
    logging.getLogger("vicinal").setLevel(logging.ERROR)
    for line in report():
        print(line, flush=True)
