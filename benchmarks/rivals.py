"""Compare float32 searches with what others offer: `python -m benchmarks.rivals [--json]`.

numpy's bare product, our exact search, scikit-learn's and, if it is installed, faiss's. Works run
in turn; times are medians, in milliseconds a query.
"""

import argparse
import json
import math
from importlib.util import find_spec

import numpy as np
import numpy.typing as npt

from benchmarks.search import N_PUBLIC, BenchmarkData, Works, interleaved
from vicinal.neighbours import Cosine, ExactIndex, Reference
from vicinal.neighbours.radius import AdaptiveRadius

Rows = npt.NDArray[np.float32]

SIZES = ((50_000, 128), (50_000, 384), (50_000, 768))
BLOCKS = (1, 16, 64, 256)


def float32_works(data: BenchmarkData, block: int) -> Works:
    """Return float32 searches of one block: the bare product, ours, and what others offer.

    scikit-learn's and faiss's radius searches take one radius for all queries: the median of ours.
    faiss is measured if it is installed. Keep the data small: features take 4 bytes here.
    """
    kernel = Cosine()
    reference = Reference(kernel, kernel.encode(data.draw(N_PUBLIC, 1)))
    queries = kernel.encode(data.draw(block, 2))
    radius = AdaptiveRadius(reference, data.n_neighbors, data.n)
    thresholds = radius.thresholds(queries)
    records = np.concatenate([kernel.encode(rows) for rows in data.batches()])
    index = ExactIndex(kernel, data.d)
    index.add(records)
    middle = float(np.median(thresholds))
    return {
        "float32 product": lambda: queries @ records.T,
        "float32 exact": lambda: index.search(queries, thresholds),
        **_scikit_learn(records, queries, middle),
        **_faiss(records, queries, middle, data.n_neighbors),
    }


def _scikit_learn(records: Rows, queries: Rows, similarity: float) -> Works:
    from sklearn.neighbors import NearestNeighbors

    # Rows have one length, so that a radius in similarity is one in distance.
    squares = float(np.square(records[0].astype(np.float64)).sum())
    radius = math.sqrt(max(0.0, 2 * (squares - similarity)))
    search = NearestNeighbors(algorithm="brute", radius=radius, n_jobs=-1).fit(records)
    return {"scikit-learn radius": lambda: search.radius_neighbors(queries)}


def _faiss(records: Rows, queries: Rows, similarity: float, n_neighbors: int) -> Works:
    if find_spec("faiss") is None:
        return {}
    import faiss

    index = faiss.IndexFlatIP(records.shape[1])
    index.add(records)
    return {
        "faiss radius": lambda: index.range_search(queries, similarity),
        "faiss flat": lambda: index.search(queries, n_neighbors),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rivals", description=__doc__)
    parser.add_argument("--short", action="store_true", help="one small size, for a smoke test")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    rows = []
    for n, d in ((5_000, 64),) if arguments.short else SIZES:
        data = BenchmarkData(n, d)
        for block in (64,) if arguments.short else BLOCKS:
            seconds = interleaved(float32_works(data, block), 3 if arguments.short else 7)
            ms = {name: 1000 * value / block for name, value in seconds.items()}
            rows.append({"n": n, "d": d, "block": block, **ms})
    print(json.dumps(rows) if arguments.json else "\n".join(map(_line, rows)))


def _line(row: dict[str, float]) -> str:
    size = f"n = {row['n']:,}, d = {row['d']}, blocks of {row['block']}:"
    return ", ".join([size, *(f"{name} {value:.4f}" for name, value in list(row.items())[3:])])


if __name__ == "__main__":
    main()
