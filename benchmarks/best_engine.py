"""Which engine and which index is fastest for how many records, features and queries at a time."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.many_records import fill
from vicinal.neighbours._centroids import PublicCentroids, learn_cells
from vicinal.neighbours._index import ExactIndex, Index, Thresholds
from vicinal.neighbours._kernels import Cosine, IntegerMatrix, int8_precision
from vicinal.neighbours._lsh import HyperplaneLSH
from vicinal.neighbours._radius import AdaptiveRadius, Reference
from vicinal.neighbours.engines import proven_engines
from vicinal.reports._search_benchmark import N_PUBLIC, BenchmarkData, interleaved

SIZES = ((10_000, 128), (100_000, 128), (1_000_000, 128), (50_000, 32), (50_000, 1024))
BLOCKS = (1, 16, 256)
TABLES = 20
RECALL = 0.97


def best_of(short: bool) -> Iterator[str]:
    """Yield for each size which engine and index answers a block soonest, and what all take."""
    yield "\nms a query of searches, .1 % inside; in brackets what is found of the neighbours"
    for n, d in ((5_000, 32),) if short else SIZES:
        data = BenchmarkData(n, d)
        indexes, queries, thresholds = _indexes(data)
        found = {
            name: sum(len(near.rows) for near in index.parts(queries, thresholds))
            for name, index in indexes.items()
        }
        for block in BLOCKS:
            works = {
                name: lambda index=index, block=block: list(
                    index.parts(queries[:block], thresholds[:block])  # noqa: B023 (of this turn)
                )
                for name, index in indexes.items()
            }
            seconds = interleaved(works, 1 if short else 3)
            cells = ", ".join(
                f"{name} {1e3 * took / block:.4f} ({found[name] / max(1, found['exact']):.2f})"
                for name, took in seconds.items()
            )
            best = min(seconds, key=seconds.__getitem__)
            yield f"  n = {n:,}, d = {d}, blocks of {block}: {best} ({cells})"


def _indexes(data: BenchmarkData) -> tuple[dict[str, Index], IntegerMatrix, Thresholds]:
    """Return indexes of the same records, the exact one with every engine; and queries."""
    public = data.draw(N_PUBLIC, 1)
    kernel = Cosine(int8_precision(public))
    reference = Reference(kernel, kernel.encode(public))
    radius = AdaptiveRadius(reference, data.n_neighbors, data.n)
    queries = kernel.encode(data.draw(max(BLOCKS), 2))
    exact = fill(ExactIndex(kernel, data.d), data)
    assert isinstance(exact, ExactIndex)
    indexes: dict[str, Index] = {"exact": exact}
    for name in proven_engines():
        indexes[f"exact, {name}"] = same = ExactIndex(kernel, data.d, engine=name)
        same.store = exact.store
    cells = min(N_PUBLIC // 16, max(16, data.n // 512))
    indexes["centroids"] = fill(
        PublicCentroids(kernel, data.d, learn_cells(reference, radius, cells, RECALL)), data
    )
    indexes[f"hashing {TABLES}"] = fill(HyperplaneLSH(kernel, data.d, TABLES), data)
    return indexes, queries, radius.thresholds(queries)
