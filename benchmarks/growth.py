"""How cost grows with work: `python -m benchmarks --growth [--short] [--part NAME]`.

Milliseconds a query of whole predictions in blocks of 256, one thing varied at a time, and the
power that it grows with (the slope on logarithmic axes): the processor's time divided by its cores,
which is what the clock shows when nothing else is at work, and in brackets the clock's. Then which
engine and index is best where. Then our exact search beside those of
faiss, usearch and scikit-learn, as far as installed: all of them find every neighbour. Last our
public centroids beside inverted lists of faiss and graphs of usearch, which are tuned until they
find as much; both are made from the private records, so neither meets the privacy condition.

`python -m benchmarks.growth_plot PRINTED.txt FILE.svg` draws what was printed on another machine.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.best_engine import best_of
from benchmarks.many_records import fitted
from benchmarks.rivals import float32_works
from vicinal import IndKNNClassifier
from vicinal.neighbours import _scan
from vicinal.reports._search_benchmark import (
    BenchmarkData,
    SearchBenchmark,
    Works,
    exponent,
    interleaved,
)

BLOCK = 256
SHARE = 0.002
MANY = 1_000_000
"""Records from which two blocks are asked at a time, three times."""


@dataclass(frozen=True)
class Workload:
    """What is answered: n records of d features, so many classes, queries, records a subject."""

    n: int = 50_000
    d: int = 128
    classes: int = 10
    queries: int = 1_000
    owned: int = 1

    def ms(self, repeats: int) -> tuple[float, float]:
        """Return the median ms a query of whole predictions: by the clock, and of the processor."""
        data = BenchmarkData(self.n, self.d, SHARE)
        classifier = fitted(
            IndKNNClassifier(
                range(self.classes), n_queries=max(10**6, self.queries), noise_multiplier=5.0,
                n_neighbors=data.n_neighbors, n_records=self.n, interactions="public",
            ),
            data, self.classes, self.owned,
        )  # fmt: skip
        queries = data.draw(self.asked, 2)
        classifier.predict(queries[:BLOCK])
        times = []
        for _ in range(repeats):
            start, worked = time.perf_counter(), time.process_time()
            classifier.predict(queries)
            times.append((time.perf_counter() - start, time.process_time() - worked))
        clock, processor = (1e3 * statistics.median(took) for took in zip(*times, strict=True))
        return clock / self.asked, processor / self.asked / _scan.THREADS

    @property
    def asked(self) -> int:
        """How many queries are asked at once: two blocks where each takes long."""
        return min(self.queries, 2 * BLOCK) if self.n > MANY else self.queries


VARIED: dict[str, tuple[int, ...]] = {
    "n": (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000, 20_000_000),
    "d": (64, 128, 256, 512, 1024),
    "classes": (2, 10, 100, 1000),
    "queries": (256, 1024, 4096, 16384),
    "owned": (1, 10, 100, 1000),
}
WORDS = {
    "n": "records",
    "d": "features",
    "classes": "classes",
    "queries": "queries asked at once",
    "owned": "records a subject",
}
MOST_TOGETHER = 2
"""Sizes that --short measures of each."""


def report(short: bool, part: str | None = None) -> Iterator[str]:
    """Yield the lines of all tables as they are measured, or of one of :data:`PARTS`."""
    for name in PARTS if part is None else (part,):
        yield from PARTS[name](short)


def _varied(short: bool) -> Iterator[str]:
    usual = Workload(n=5_000, d=32, queries=256) if short else Workload()
    yield f"ms a query, blocks of {BLOCK}, {SHARE:.1%} inside; else {usual}"
    for name, all_sizes in VARIED.items():
        sizes = all_sizes[:MOST_TOGETHER] if short else all_sizes
        cells, times = [], []
        for size in sizes:
            load = replace(usual, **{name: size})
            clock, processor = load.ms(1 if short else 3 if load.n > MANY else 5)
            times.append(processor)
            cells.append(f"{size:,} {processor:.3f} ({clock:.3f})")
        power = exponent(sizes, times)
        last = exponent(sizes[-2:], times[-2:])
        yield (
            f"  {WORDS[name]:<22} power {power:5.2f}:  {', '.join(cells)}; at the end {last:.2f}"
        )


def _of_others(short: bool) -> Iterator[str]:
    yield "\nexact searches, ms a query, blocks of 256, .1 % inside"
    for n in (5_000,) if short else (10_000, 50_000, 200_000):
        seconds = interleaved(rivals(n, 32 if short else 128), 1 if short else 5)
        cells = ", ".join(f"{name} {1e3 * s / BLOCK:.4f}" for name, s in seconds.items())
        yield f"  n = {n:,}: {cells}"
    yield "\nms a query, .1 % inside; in brackets what is found of the neighbours"
    for n in (5_000,) if short else (50_000, 200_000):
        for block in (BLOCK, 1):
            yield f"  n = {n:,}, blocks of {block}: {_found(n, 32 if short else 128, block, short)}"


PARTS: dict[str, Callable[[bool], Iterator[str]]] = {
    "work": _varied,
    "best": best_of,
    "others": _of_others,
}


def _found(n: int, d: int, block: int, short: bool) -> str:
    """Return times of exact and approximate searches, those of others at our recall."""
    data = BenchmarkData(n, d)
    ours = SearchBenchmark(data, BLOCK)
    recalls = ours.recalls()
    works = ours.works(block)
    for name, (recall, work) in approximate(data, block, recalls["centroids"]).items():
        recalls[name], works[name] = recall, work
    seconds = interleaved(works, 1 if short else 5)
    return ", ".join(
        f"{name} {1e3 * s / block:.4f} ({recalls[name]:.2f})" for name, s in seconds.items()
    )


def rivals(n: int, d: int) -> Works:
    """Return our exact searches and theirs, over the same records."""
    data = BenchmarkData(n, d)
    ours = SearchBenchmark(data, BLOCK).works(BLOCK)
    return {"int8 exact": ours["exact"], **float32_works(data, BLOCK), **_usearch(data)}


def _usearch(data: BenchmarkData) -> dict[str, Callable[[], object]]:
    if find_spec("usearch") is None:
        return {}
    from usearch.index import search

    records, queries = np.concatenate(list(data.batches())), data.draw(BLOCK, 2)
    k = data.n_neighbors
    return {"usearch exact": lambda: search(records, queries, k, "ip", exact=True)}


def approximate(
    data: BenchmarkData, block: int, recall: float
) -> dict[str, tuple[float, Callable[[], object]]]:
    """Return approximate searches of others that find at least `recall`, as far as installed."""
    records, queries = np.concatenate(list(data.batches())), data.draw(BLOCK, 2)
    records /= np.linalg.norm(records, axis=1, keepdims=True)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    k, size = data.n_neighbors, max(16, data.n // 512)
    tuned = {}
    if find_spec("faiss") is not None:
        tuned["faiss IVF"] = _inverted_lists(records, k, size)
    if find_spec("usearch") is not None:
        tuned["usearch HNSW"] = _graph(records, k)
    found = {}
    for name, (efforts, search) in tuned.items():
        exact = _nearest(records, queries, k)
        for effort in efforts:
            found[name] = share = _share(search(queries, effort), exact), effort, search
            if share[0] >= recall:
                break
    asked = queries[:block]
    return {
        name: (share, lambda e=effort, s=search: s(asked, e))
        for name, (share, effort, search) in found.items()
    }


Neighbours = npt.NDArray[np.integer]
Search = Callable[[npt.NDArray[np.float32], int], Neighbours]


def _nearest(
    records: npt.NDArray[np.float32], queries: npt.NDArray[np.float32], k: int
) -> Neighbours:
    """Return who the k nearest are, (q, k)."""
    return np.argpartition(-(queries @ records.T), k - 1, axis=1)[:, :k]


def _share(found: Neighbours, exact: Neighbours) -> float:
    """Return the share of exact neighbours that were found."""
    both = (len(np.intersect1d(one, all_)) for one, all_ in zip(found, exact, strict=True))
    return sum(both) / exact.size


def _inverted_lists(records: Any, k: int, cells: int) -> tuple[list[int], Search]:
    import faiss

    index = faiss.IndexIVFFlat(
        faiss.IndexFlatIP(records.shape[1]), records.shape[1], cells, faiss.METRIC_INNER_PRODUCT
    )
    index.train(records[:: max(1, len(records) // (64 * cells))])
    index.add(records)

    def search(asked: npt.NDArray[np.float32], probes: int) -> Neighbours:
        index.nprobe = probes
        return np.asarray(index.search(asked, k)[1])

    return [*(2**power for power in range(cells.bit_length())), cells], search


def _graph(records: Any, k: int) -> tuple[list[int], Search]:
    from usearch.index import Index

    index = Index(ndim=records.shape[1], metric="ip")
    index.add(np.arange(len(records)), records)

    def search(asked: npt.NDArray[np.float32], expansion: int) -> Neighbours:
        index.expansion_search = expansion
        return np.asarray(index.search(asked, k).keys).reshape(len(asked), -1)

    return [k * 2**power for power in range(5)], search
