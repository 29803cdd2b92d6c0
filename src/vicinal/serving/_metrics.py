"""Metrics of the service in the text format of Prometheus.

They contain no number of records, subjects, neighbours or charges. Durations are counted in
buckets, because an exact duration could reveal that a query was near many records.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

_SECONDS_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_SIZE_BOUNDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)


class BucketCounts:
    """Histogram in Prometheus form, without the sum, which would reveal every single value."""

    def __init__(self, upper_bounds: Sequence[float]) -> None:
        self._upper_bounds = tuple(upper_bounds)
        self._counts = [0] * (len(upper_bounds) + 1)

    def add(self, value: float) -> None:
        """Count a value in its bucket."""
        self._counts[bisect_left(self._upper_bounds, value)] += 1

    def format_lines(self, name: str, help_text: str) -> list[str]:
        """Return the lines of the metric `name` with cumulative counts."""
        lines = _format_header(name, help_text, "histogram")
        cumulative_count = 0
        for bound, count in zip((*self._upper_bounds, "+Inf"), self._counts, strict=True):
            cumulative_count += count
            lines.append(f'{name}_bucket{{le="{bound}"}} {cumulative_count}')
        return [*lines, f"{name}_count {cumulative_count}"]


class Metrics:
    """Counters of one process; `is_consistent` returns whether the store can answer.

    Only its event loop writes them, except `waiting` and `failed`, which other threads write too.
    """

    def __init__(self, is_consistent: Callable[[], bool]) -> None:
        self._is_consistent = is_consistent
        self.failed = False  # whether an operation of the store has failed for good
        self.requests: Counter[tuple[str, str, int]] = Counter()  # by path, method and status
        self.seconds = BucketCounts(_SECONDS_BOUNDS)  # durations of predictions
        self.blocks = BucketCounts(_SIZE_BOUNDS)  # numbers of queries of blocks
        self.waiting = 0  # queries that wait for the store's thread
        self.connections = 0  # open connections
        self.dropped: Counter[str] = Counter()  # connections closed before a request, by reason
        self.missing = 0  # blocks that were refused because a shard was missing

    @property
    def up(self) -> bool:
        """Whether the store is open and none of its operations has failed."""
        return self._is_consistent() and not self.failed

    def format_text(self, audiences: Mapping[str, tuple[int, float | None]]) -> str:
        """Return all metrics in the text format of Prometheus.

        `audiences`: number of remaining answers, and mean used share of a budget as estimated from
        public rows (None: no estimate), by audience; both are public.
        """
        remaining_answers = {}
        used_shares = {}
        for name, (n_answers, used_share) in sorted(audiences.items()):
            quoted = name.replace("\\", r"\\").replace('"', r"\"")
            label = f'{{audience="{quoted}"}}'
            remaining_answers[label] = n_answers
            if used_share is not None:
                used_shares[label] = round(used_share, 4)
        requests = {
            f'{{path="{path}",method="{method}",status="{status}"}}': count
            for (path, method, status), count in sorted(self.requests.items())
        }
        dropped = {
            f'{{reason="{reason}"}}': count for reason, count in sorted(self.dropped.items())
        }
        lines = self.seconds.format_lines("vicinal_predict_seconds", "Time to answer a prediction.")
        lines += self.blocks.format_lines("vicinal_block_queries", "Queries per block.")

        def add_metric(
            name: str, help_text: str, values: Mapping[str, float], kind: str = "gauge"
        ) -> None:
            """Append the lines of a metric; `values` by Prometheus labels, such as {path="/"}."""
            lines.extend(_format_header(f"vicinal_{name}", help_text, kind))
            lines.extend(f"vicinal_{name}{labels} {value}" for labels, value in values.items())

        add_metric(
            "requests_total", "HTTP requests by path, method and status.", requests, "counter"
        )
        add_metric("waiting_queries", "Queries waiting for the store.", {"": self.waiting})
        missing_text = "Blocks refused because a shard was missing."
        add_metric("shard_missing_total", missing_text, {"": self.missing}, "counter")
        add_metric("connections", "Open connections.", {"": self.connections})
        dropped_text = "Connections closed before a request, by reason."
        add_metric("connections_dropped_total", dropped_text, dropped, "counter")
        add_metric("answers_left", "Remaining answers of the plan.", remaining_answers)
        add_metric("budget_used", "Mean share of a budget used, estimated.", used_shares)
        add_metric("up", "0 once the store has failed.", {"": int(self.up)})
        return "\n".join([*lines, ""])


def _format_header(name: str, help_text: str, kind: str) -> list[str]:
    """Return the first lines of a metric; `kind` is its type: gauge, counter or histogram."""
    return [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]
