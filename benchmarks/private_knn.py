"""Time Private-kNN next to the bare product: `python -m benchmarks.private_knn [--json]`.

60,000 records of 324 features, batches of 1,000 queries, medians of 5 in one process. The product
is numpy's float32 one of all records with the queries, in blocks of 250; it is run in turn with the
answers, so that a machine that slows down slows both. All queries pass the screening, so each is
sampled twice.
"""

from __future__ import annotations

import argparse
import json

import numpy as np

from benchmarks.search import interleaved
from vicinal.neighbours import ExactIndex
from vicinal.predictors import PrivateKNNClassifier

RECORDS, FEATURES, QUERIES, BLOCK, CLASSES = 60_000, 324, 1_000, 250, 10
SETTINGS = ((0.03, 300), (0.03, 800), (0.06, 300), (0.15, 300), (0.2, 300))
REPEATS = 5


def measure(gamma: float, k: int, records: int, queries: int) -> dict[str, float]:
    """Return ms a query of the product, of the int8 search among all records, and of answers."""
    rng = np.random.default_rng([int(1000 * gamma), k])  # other people every time
    X = rng.normal(size=(records, FEATURES)).astype(np.float32)
    Q = rng.normal(size=(queries, FEATURES)).astype(np.float32)
    y = rng.integers(0, CLASSES, records)
    classifier = PrivateKNNClassifier(
        range(CLASSES), k, gamma,
        sigma_screen=75.0, threshold=-1e6, sigma_votes=25.0, n_queries=10**6,
    ).fit(X, y, public=Q + 1)  # fmt: skip
    index = ExactIndex(classifier._release.kernel, FEATURES)
    index.add(index.kernel.encode(X))
    asked = index.kernel.encode(Q)
    rare = np.full(queries, 1 << 23, dtype=np.int64)
    blocks = range(0, queries, BLOCK)
    seconds = interleaved(
        {
            "product": lambda: [Q[i : i + BLOCK] @ X.T for i in blocks],
            "search": lambda: [
                index.search(asked[i : i + BLOCK], rare[i : i + BLOCK]) for i in blocks
            ],
            "answer": lambda: classifier.predict(Q),
        },
        REPEATS,
    )
    return {name: 1000 * value / queries for name, value in seconds.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.private_knn", description=__doc__)
    parser.add_argument("--short", action="store_true", help="one small size, for a smoke test")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    records, queries = (5_000, 250) if arguments.short else (RECORDS, QUERIES)
    rows = [
        {"gamma": gamma, "k": k, **measure(gamma, k, records, queries)}
        for gamma, k in (SETTINGS[-1:] if arguments.short else SETTINGS)
    ]
    if arguments.json:
        print(json.dumps(rows))
        return
    print(f"ms a query, {records} records, {FEATURES} features, batches of {queries}")
    print(f"{'gamma':>6} {'k':>5} {'product':>9} {'search':>9} {'answer':>9} {'ratio':>6}")
    for row in rows:
        print(
            f"{row['gamma']:>6} {row['k']:>5} {row['product']:>9.3f} {row['search']:>9.3f} "
            f"{row['answer']:>9.3f} {row['answer'] / row['product']:>6.2f}"
        )


if __name__ == "__main__":
    main()
