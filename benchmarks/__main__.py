"""Measure what an answer costs on this machine, next to the bare products of its block.

`python -m benchmarks [--short] [--json]`; `--goals` prints every goal of speed with its figure,
`--parts` what a prediction is made of. Works that are compared run in turn, so that a machine that
slows down slows all of them; times are medians. `python -m benchmarks.search` has more sizes and
all indexes, `python -m benchmarks.rivals` what other libraries offer; here is the way from the
product to the private answer, and `python -m benchmarks.private_knn` has that of Private-kNN.
"""

from __future__ import annotations

import argparse
import json

import numpy as np

from benchmarks import goals, parts
from benchmarks.rivals import float32_works
from benchmarks.search import BenchmarkData, SearchBenchmark, interleaved
from vicinal import IndKNNClassifier

CLASSES, BLOCK = 10, 256
SIZES = ((50_000, 128), (50_000, 768), (500_000, 128))
SHARE = 0.01


def measure(n: int, d: int, repeats: int) -> dict[str, float]:
    """Return ms a query of products, searches, and the whole prediction, at one size."""
    data = BenchmarkData(n, d, SHARE)
    indexes = SearchBenchmark(data, BLOCK)
    exact = {"int8 exact": indexes.works(BLOCK)["exact"]}
    ours = {
        name: work
        for name, work in float32_works(data, BLOCK).items()
        if name.startswith("float32")
    }
    queries = data.draw(BLOCK, 2)
    classifier = IndKNNClassifier(
        range(CLASSES), n_queries=10**6, n_neighbors=data.n_neighbors, noise_multiplier=5.0,
        n_records=n,
    ).fit(
        np.concatenate(list(data.batches())), np.arange(n) % CLASSES, public=data.draw(2000, 1)
    )  # fmt: skip
    predict = {"predict": lambda: classifier.predict(queries)}
    works = ours | indexes.products(BLOCK) | exact | predict
    seconds = interleaved(works, repeats)
    return {name: 1000 * value / BLOCK for name, value in seconds.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--short", action="store_true", help="one small size, for a smoke test")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    tables = parser.add_mutually_exclusive_group()
    tables.add_argument("--goals", action="store_true", help="every goal with its figure")
    tables.add_argument("--parts", action="store_true", help="what a prediction is made of")
    parser.add_argument("--only", choices=goals.GROUPS, help="one group of goals")
    arguments = parser.parse_args()
    if arguments.goals or arguments.only:
        for line in goals.report(arguments.short, arguments.only):
            print(line, flush=True)
        return
    if arguments.parts:
        print(parts.report(arguments.short))
        return
    rows = []
    for n, d in ((20_000, 128),) if arguments.short else SIZES:
        rows.append({"n": n, "d": d, **measure(n, d, 3 if arguments.short else 9)})
    if arguments.json:
        print(json.dumps(rows))
        return
    print(f"ms a query, blocks of {BLOCK}, {CLASSES} classes, {SHARE:.0%} of the records inside")
    for row in rows:
        print(f"\nn = {row['n']:,}, d = {row['d']}")
        for name, value in list(row.items())[2:]:
            print(f"  {name:<16}{value:9.4f}")


if __name__ == "__main__":
    main()
