"""Measure searches on this machine: milliseconds a query, beside the bare matrix product.

`python -m benchmarks.search [--short] [--large] [--json]`. Works that are compared run in turn, so
that a machine that slows down slows all of them; times are medians. Indexes are compared at what
they find of the records inside a radius that holds .1 % of all (recall). Everything here is made-up
data: points around a thousand centres, from fixed seeds.
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from vicinal.neighbours import Cosine, ExactIndex, HyperplaneLSH, Index, Reference
from vicinal.neighbours.engines import get_engine
from vicinal.neighbours.kernels import INT8_LIMIT, Precision, int8_precision
from vicinal.neighbours.radius import AdaptiveRadius
from vicinal.neighbours.scan import get_thread_count, map_in_threads

Works = dict[str, Callable[[], object]]

TABLES = (10, 20, 30)
"""Numbers of hash tables that ZZGW23 report, of 8 bits each (Table 3, Figure 4)."""

_CENTRES = 1000
_LATENT = 12
_BATCH = 1 << 17
N_PUBLIC = 20_000
"""Points of a public reference."""

SIZES = ((50_000, 128), (50_000, 384), (50_000, 768), (500_000, 128), (500_000, 384))
LARGE = ((500_000, 768), (5_000_000, 128))
BLOCKS = (1, 16, 64, 256, 1024)
SHORT_SIZES, SHORT_BLOCKS = ((5_000, 64), (20_000, 64)), (1, 64)

_TILE = 2048
_LEAST_SECONDS = 0.02


def interleaved(works: Works, repeats: int) -> dict[str, float]:
    """Return the median seconds of every work, run in turn `repeats` times after a warm-up.

    A work of a few microseconds is repeated within its turn, so that the clock can tell.
    """
    often = {name: _calls(work) for name, work in works.items()}
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            start = time.perf_counter()
            for _ in range(often[name]):
                work()
            times[name].append((time.perf_counter() - start) / often[name])
    return {name: statistics.median(values) for name, values in times.items()}


def _calls(work: Callable[[], object]) -> int:
    """Warm up and return how many calls fill a turn."""
    work()
    start = time.perf_counter()
    work()
    return max(1, math.ceil(_LEAST_SECONDS / max(time.perf_counter() - start, 1e-6)))


@dataclass(frozen=True, slots=True)
class BenchmarkData:
    """Made-up records of one size, in batches that are drawn anew each time.

    `share` is the part of the records that a radius selects.
    """

    n: int
    d: int
    share: float = 0.001

    @property
    def n_neighbors(self) -> int:
        """The number of records that a radius is to select."""
        return max(1, round(self.n * self.share))

    def draw(self, size: int, seed: int) -> npt.NDArray[np.float32]:
        """Return points of the mixture, float32 (size, d)."""
        fixed = np.random.default_rng(0)
        centres = fixed.normal(size=(_CENTRES, self.d)).astype(np.float32)
        axes = fixed.normal(size=(_LATENT, self.d)).astype(np.float32)
        drawn = np.random.default_rng(seed)
        points = drawn.normal(size=(size, _LATENT)).astype(np.float32) @ (
            axes * (0.6 / math.sqrt(_LATENT))
        )
        points += centres[drawn.integers(0, _CENTRES, size)]
        points += 0.1 * drawn.normal(size=(size, self.d)).astype(np.float32)
        return points

    def batches(self) -> Iterator[npt.NDArray[np.float32]]:
        """Yield all records, some at a time."""
        for number, start in enumerate(range(0, self.n, _BATCH)):
            yield self.draw(min(_BATCH, self.n - start), 100 + number)


class SearchBenchmark:
    """Indexes over one data, and the same radii for all of them.

    `block` is the largest number of queries asked together, `hashing` the numbers of hash tables to
    measure.
    """

    def __init__(self, data: BenchmarkData, block: int, hashing: Sequence[int] = ()) -> None:
        self.data = data
        public = data.draw(N_PUBLIC, 1)
        self.kernel = Cosine(int8_precision(public))
        reference = Reference(self.kernel, self.kernel.encode(public))
        radius = AdaptiveRadius(reference, data.n_neighbors, data.n)
        self.queries = self.kernel.encode(data.draw(block, 2))
        self.thresholds = radius.thresholds(self.queries)
        self.indexes: dict[str, Index] = {"exact": ExactIndex(self.kernel, data.d)}
        for tables in hashing:
            self.indexes[f"hashing {tables}"] = HyperplaneLSH(self.kernel, data.d, tables)
        for rows in data.batches():
            integers = self.kernel.encode(rows)
            for index in self.indexes.values():
                index.add(integers)

    def works(self, block: int) -> Works:
        """Return one search of `block` queries for every index; blocks follow each other."""
        return {name: self._search(index, block) for name, index in self.indexes.items()}

    def _search(self, index: Index, block: int) -> Callable[[], object]:
        at = 0

        def search() -> object:
            nonlocal at
            at = at + block if at + 2 * block <= len(self.queries) else 0
            part = slice(at, at + block)
            return list(index.search_in_blocks(self.queries[part], self.thresholds[part]))

        return search

    def recalls(self) -> dict[str, float]:
        """Return the share of the exact search's hits that every index finds."""
        hits = {
            name: sum(
                len(near.rows) for near in index.search_in_blocks(self.queries, self.thresholds)
            )
            for name, index in self.indexes.items()
        }
        return {name: count / max(1, hits["exact"]) for name, count in hits.items()}

    def products(self, block: int) -> Works:
        """Return bare products of `block` queries with all records, in one-thread tiles."""
        block_rows, index = self.queries[:block], self.indexes["exact"]
        assert isinstance(index, ExactIndex)
        tiles = [part.features for part in index.feature_rows.iterate_records(_TILE)]
        wide = np.zeros((block, index.stride), dtype=np.int8)
        wide[:, : block_rows.shape[1]] = block_rows
        works: Works = {}
        if find_spec("torch") is not None:
            works["int8 product"] = _torch_product(wide, tiles)
        return works


def _torch_product(queries: npt.NDArray[np.int8], tiles: list[Any]) -> Callable[[], object]:
    import torch

    block = torch.from_numpy(queries)

    def multiply(tile: npt.NDArray[np.int8]) -> object:
        return torch._int_mm(block, torch.from_numpy(np.ascontiguousarray(tile)).T)

    def product() -> None:
        with threadpool_limits(1, "openmp"):
            for _ in map_in_threads(multiply, tiles):
                pass

    return product


def measured(data: BenchmarkData, blocks: Sequence[int], repeats: int) -> list[dict[str, Any]]:
    """Return one row for each size of block: ms a query by method, and recalls."""
    tables = TABLES if data.n <= SIZES[0][0] else ()
    indexes = SearchBenchmark(data, max(256, *blocks), tables)
    recalls = indexes.recalls()
    rows = []
    for block in blocks:
        seconds = interleaved(indexes.products(block) | indexes.works(block), repeats)
        ms = {name: 1000 * value / block for name, value in seconds.items()}
        rows.append({"n": data.n, "d": data.d, "block": block, "ms": ms, "recall": recalls})
    return rows


def growth(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the power of n that costs grow with, at the largest block and the smallest d."""
    width, block = min(row["d"] for row in rows), max(row["block"] for row in rows)
    chosen = [row for row in rows if row["d"] == width and row["block"] == block]
    names = [name for name in chosen[0]["ms"] if all(name in row["ms"] for row in chosen)]
    sizes = np.log([row["n"] for row in chosen])
    return {
        name: float(np.polyfit(sizes, np.log([row["ms"][name] for row in chosen]), 1)[0])
        for name in names
    }


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    parser.add_argument("--short", action="store_true", help="small sizes: some seconds")
    parser.add_argument("--large", action="store_true", help="also 5,000,000 records: 4 GB")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    arguments = parser.parse_args()
    sizes = SHORT_SIZES if arguments.short else SIZES + (LARGE if arguments.large else ())
    blocks, repeats = SHORT_BLOCKS if arguments.short else BLOCKS, 3 if arguments.short else 7
    rows = [row for n, d in sizes for row in measured(BenchmarkData(n, d), blocks, repeats)]
    engine = get_engine(Precision(limit=INT8_LIMIT)).name
    if arguments.json:
        about = {"engine": engine, "threads": get_thread_count(), "growth": growth(rows)}
        print(json.dumps(about | {"rows": rows}, indent=2))
        return
    print(f"int8 engine: {engine}, {get_thread_count()} threads; ms a query (recall)")
    for row in rows:
        base = row["ms"].get("int8 product")
        print(f"\nn = {row['n']:,}, d = {row['d']}, blocks of {row['block']}")
        for name, value in row["ms"].items():
            ratio = f"{value / base:8.2f} x" if base else ""
            recall = f"  {row['recall'][name]:.3f}" if name in row["recall"] else ""
            print(f"  {name:<20}{value:10.4f}{ratio}{recall}")
    print("\ncost grows with n to the power of")
    for name, power in growth(rows).items():
        print(f"  {name:<20}{power:10.2f}")


if __name__ == "__main__":
    main()
