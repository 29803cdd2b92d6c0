"""What the process has done, as Prometheus text: requests, times, blocks. Nothing private.

Everything here is known to the clients that send the requests. It never holds numbers of records,
subjects, neighbours or charges; queries used stand behind a key.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
_KEPT = 4096
_RECENT_SECONDS = 60.0


class BucketCounts:
    """Counts below each of some bounds, as Prometheus has them."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, text: str) -> list[str]:
        """Return the exposition."""
        lines, below = _head(name, text, "histogram"), 0
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            below += count
            lines.append(f'{name}_bucket{{le="{bound}"}} {below}')
        return [*lines, f"{name}_sum {self.total:.9g}", f"{name}_count {below}"]


class Metrics:
    """Counters of one process, written by its event loop; `waiting` and `failed` by others, too."""

    def __init__(self, is_consistent: Callable[[], bool]) -> None:
        self._is_consistent = is_consistent
        self.failed = False
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.seconds = BucketCounts(SECONDS)
        self.blocks = BucketCounts(SIZES)
        self.waiting = 0
        self.connections = 0
        self.dropped: Counter[str] = Counter()
        self.missing = 0
        self._began = time.monotonic()
        self._recent: deque[tuple[float, float, int]] = deque(maxlen=_KEPT)

    @property
    def up(self) -> bool:
        """Whether the store answers: it is open, and nothing that the worker did has failed."""
        return self._is_consistent() and not self.failed

    def answered(self, queries: int, seconds: float) -> None:
        """Count an answered prediction request."""
        self.seconds.add(seconds)
        self._recent.append((time.monotonic(), seconds, queries))

    def text(self) -> str:
        """Return all of it in the text format of Prometheus."""
        requests = {
            f'{{path="{path}",method="{method}",status="{status}"}}': count
            for (path, method, status), count in sorted(self.requests.items())
        }
        dropped = {f'{{reason="{why}"}}': count for why, count in sorted(self.dropped.items())}
        families = (
            ("requests_total", "HTTP requests by path, method and status.", "counter", requests),
            ("waiting_queries", "Queries before the worker.", "gauge", {"": self.waiting}),
            ("shard_missing_total", "Blocks refused as a shard was away.", "counter",
             {"": self.missing}),
            ("connections", "Open connections.", "gauge", {"": self.connections}),
            ("connections_dropped_total",
             "Connections that were ended before a request, by reason.", "counter", dropped),
            ("up", "0 once the store has failed.", "gauge", {"": int(self.up)}),
        )  # fmt: skip
        lines = self.seconds.lines("vicinal_predict_seconds", "Time to answer a prediction.")
        lines += self.blocks.lines("vicinal_block_queries", "Queries asked for in a block.")
        for name, text, kind, values in families:
            lines += _head(f"vicinal_{name}", text, kind)
            lines += [f"vicinal_{name}{labels} {value}" for labels, value in values.items()]
        return "\n".join([*lines, ""])

    def speed(self) -> dict[str, Any]:
        """Return throughput and latency of the last minute, at most the last 4,096 requests."""
        now = time.monotonic()
        recent = [entry for entry in self._recent if entry[0] > now - _RECENT_SECONDS]
        times = np.array([seconds for _, seconds, _ in recent])
        span = min(_RECENT_SECONDS, max(now - self._began, 1e-9))
        if len(recent) == _KEPT:
            span = now - recent[0][0]
        p50, p99 = (1e3 * np.quantile(times, [0.5, 0.99])).tolist() if len(times) else (None, None)
        return {
            "up_seconds": round(now - self._began, 1),
            "requests_per_second": round(len(recent) / span, 3),
            "queries_per_second": round(sum(queries for *_, queries in recent) / span, 3),
            "p50_ms": p50,
            "p99_ms": p99,
            "waiting_queries": self.waiting,
        }


def _head(name: str, text: str, kind: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


MOST = 240
"""Samples of an audience at most; beyond it every second of the older ones goes."""


class UsageLog:
    """Samples by audience, oldest first; equal ones in a row are kept once, with their end."""

    def __init__(self) -> None:
        self._samples: dict[str, list[dict[str, Any]]] = {}

    def note(self, audience: str, used: int, wear: float | None, at: float | None = None) -> None:
        """Add a sample, at present unless `at` (seconds since 1970) is given.

        `wear` is the share of a budget that public points have used up.
        """
        samples = self._samples.setdefault(audience, [])
        if len(samples) > 1 and samples[-1]["used"] == samples[-2]["used"] == used:
            samples.pop()
        samples.append({"at": time.time() if at is None else at, "used": used, "wear": wear})
        if len(samples) > MOST:
            samples[1:-1] = samples[1:-1:2]

    def of(self, audience: str) -> list[dict[str, Any]]:
        """Return the samples of an audience as JSON has them."""
        return list(self._samples.get(audience, ()))
