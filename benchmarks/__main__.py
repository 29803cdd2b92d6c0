"""Measure what an answer costs on this machine, next to the bare float32 product of its block.

`python -m benchmarks [--short] [--json]`. Every row interleaves the product with the work that is
compared to it, so that a machine that slows down slows both; times are medians.
Noise has a table of its own: `python -m benchmarks.noise`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import numpy as np

from vicinal import IndKNNClassifier
from vicinal.neighbours import Cosine, ExactIndex

CLASSES, BLOCK = 10, 256


def interleaved(works: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the median seconds of every work, run in turn `repeats` times after a warm-up."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(repeats + 1):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            if turn:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def measure(n: int, d: int, neighbors: int, repeats: int) -> dict[str, float]:
    """Return ms a query of the product, the search, and the whole prediction, at one size."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)).astype(np.float32)
    y = rng.integers(0, CLASSES, n)
    reference = rng.normal(size=(2000, d)).astype(np.float32)
    queries = rng.normal(size=(BLOCK, d)).astype(np.float32)
    kernel = Cosine()
    integers, asked = kernel.encode(X), kernel.encode(queries)
    index = ExactIndex(kernel, d)
    index.add(integers)
    place = n - neighbors
    thresholds = np.partition(asked @ integers.T, place, axis=1)[:, place].astype(np.int64)
    classifier = IndKNNClassifier(
        range(CLASSES), n_queries=10**6, n_neighbors=neighbors, noise_multiplier=5.0, n_records=n
    ).fit(X, y, public=reference)
    seconds = interleaved(
        {
            "product": lambda: asked @ integers.T,
            "search": lambda: index.search(asked, thresholds),
            "predict": lambda: classifier.predict(queries),
        },
        repeats,
    )
    return {name: 1000 * value / BLOCK for name, value in seconds.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--short", action="store_true", help="one small size, for a smoke test")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    sizes = [(20_000, 128)] if arguments.short else [(50_000, 128), (50_000, 768), (500_000, 128)]
    rows = []
    for n, d in sizes:
        found = measure(n, d, neighbors=n // 200, repeats=3 if arguments.short else 9)
        rows.append({"n": n, "d": d, **found, "ratio": found["search"] / found["product"]})
    if arguments.json:
        print(json.dumps(rows))
        return
    print(f"ms a query, blocks of {BLOCK}, {CLASSES} classes, .5 % of the records in the radius")
    print(f"{'n':>8} {'d':>5} {'product':>9} {'search':>9} {'ratio':>6} {'predict':>9}")
    for row in rows:
        print(
            f"{row['n']:>8} {row['d']:>5} {row['product']:>9.3f} {row['search']:>9.3f} "
            f"{row['ratio']:>6.2f} {row['predict']:>9.3f}"
        )


if __name__ == "__main__":
    main()
