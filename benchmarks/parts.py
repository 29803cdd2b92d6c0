"""What a prediction is made of: `python -m benchmarks --parts [--short]`.

One block of 256 queries; every part is timed where it is called, so the parts are those of the
prediction itself. What no part accounts for is named. The minimum of some repetitions, as other
work on the machine can only lengthen them; the ratio to the search stands beside, because it
changes least from machine to machine.
"""

import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from benchmarks.search import BenchmarkData
from vicinal import IndKNNClassifier
from vicinal.mechanisms.votes import BlockRelease, NoisyVotes
from vicinal.neighbours import Cosine, ExactIndex
from vicinal.neighbours.radius import AdaptiveRadius

BLOCK, CLASSES = 256, 10
SIZES = ((50_000, 768, 0.003), (50_000, 768, 0.01), (500_000, 128, 0.003), (500_000, 128, 0.01))
SEARCH = "search: product, radius, lists"
PARTS: tuple[tuple[str, type, str], ...] = (
    ("queries as integers", Cosine, "encode"),
    ("radius", AdaptiveRadius, "thresholds"),
    ("prices and noise scales", NoisyVotes, "prepare_release"),
    (SEARCH, ExactIndex, "search_in_blocks"),
    ("walk: contribution and charge", BlockRelease, "contribute_and_charge"),
    ("noise", BlockRelease, "_add_noise"),
)
"""What is timed: a name, and the method that does it. None of them is called within another."""

Times = dict[str, float]


@contextmanager
def timed(times: Times) -> Iterator[None]:
    """Add to `times` the seconds that every part takes while this lasts."""
    kept = [(owner, name, owner.__dict__[name]) for _, owner, name in PARTS if name in vars(owner)]
    wrapped = _Wrapped(times)
    try:
        for part, owner, name in PARTS:
            setattr(owner, name, wrapped.method(part, getattr(owner, name)))
        yield
    finally:
        for _, owner, name in PARTS:
            if name in vars(owner):
                delattr(owner, name)
        for owner, name, method in kept:
            setattr(owner, name, method)


class _Wrapped:
    """Methods that note how long they take; of two that are open at once the outer one counts."""

    def __init__(self, times: Times) -> None:
        self._times = times
        self._open = 0

    def method(self, part: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def measured(*args: Any, **options: Any) -> Any:
            if self._open:
                return method(*args, **options)
            with self._running(part):
                found = method(*args, **options)
                # An iterator does its work when it is asked for more.
                return iter(list(found)) if isinstance(found, Iterator) else found

        return measured

    @contextmanager
    def _running(self, part: str) -> Iterator[None]:
        self._open += 1
        start = time.perf_counter()
        try:
            yield
        finally:
            self._times[part] = self._times.get(part, 0.0) + time.perf_counter() - start
            self._open -= 1


def measure(n: int, d: int, share: float, repeats: int) -> Times:
    """Return ms of every part for one block, and of the whole, at one size."""
    data = BenchmarkData(n, d, share)
    classifier = IndKNNClassifier(
        range(CLASSES), n_queries=10**6, n_neighbors=data.n_neighbors, noise_multiplier=5.0,
        n_records=n, interactions="public",
    ).fit(
        np.concatenate(list(data.batches())), np.arange(n) % CLASSES, public=data.draw(2000, 1)
    )  # fmt: skip
    queries = data.draw(BLOCK, 2)
    classifier.query(queries)
    found: dict[str, list[float]] = defaultdict(list)
    for _ in range(repeats):
        times: Times = {}
        start = time.perf_counter()
        with timed(times):
            classifier.query(queries)
        whole = time.perf_counter() - start
        times["everything else"] = whole - sum(times.values())
        for part, seconds in {**times, "whole prediction": whole}.items():
            found[part].append(1e3 * seconds)
    return {part: min(values) for part, values in found.items()}


def report(short: bool) -> str:
    """Return the table of all sizes."""
    lines = [f"ms a block of {BLOCK} queries, {CLASSES} classes; in brackets over the search"]
    for n, d, share in ((20_000, 128, 0.01),) if short else SIZES:
        times = measure(n, d, share, 3 if short else 15)
        lines.append(f"\nn = {n:,}, d = {d}, {share:.1%} of the records inside")
        lines += [
            f"  {part:<34}{ms:9.2f}   ({ms / times[SEARCH]:.2f})" for part, ms in times.items()
        ]
    return "\n".join(lines)
