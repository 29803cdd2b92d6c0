"""Very many made-up records as integers, for benchmarks: no object and no float for each of them.

One batch is drawn and encoded; all others are it, each coordinate moved by one at random. So
twenty million records are made in seconds, and a radius selects about the same share of any number.
A few are longer than the kernel's bound by less than one in a hundred; no time depends on that.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.generated import Numbers
from vicinal import IndKNNClassifier
from vicinal.accounting._budget import UNITS
from vicinal.ledger._slot_table import SlotTable
from vicinal.neighbours import Kernel
from vicinal.neighbours._index import Index
from vicinal.neighbours._kernels import INT8_LIMIT, IntegerMatrix
from vicinal.reports._search_benchmark import BenchmarkData

_FEW = 64
"""Records that a classifier is fitted to before it holds others; its plan is public."""


def encoded(data: BenchmarkData, kernel: Kernel) -> Iterator[IntegerMatrix]:
    """Yield all records of some data as integers of a kernel, some at a time."""
    first = kernel.encode(next(data.batches()))
    yield first
    np.clip(first, 1 - INT8_LIMIT, INT8_LIMIT - 1, out=first)  # steps must not leave the range
    rng = np.random.default_rng(data.d)
    for start in range(len(first), data.n, len(first)):
        rows = first[: data.n - start]
        yield np.asarray(rows + rng.integers(-1, 2, rows.shape, dtype=np.int8), dtype=first.dtype)


def fill(index: Index, data: BenchmarkData) -> Index:
    """Put all records of some data into an index; return it."""
    for rows in encoded(data, index.kernel):
        index.add(rows)
    return index


def fitted(
    classifier: IndKNNClassifier, data: BenchmarkData, classes: int, owned: int
) -> IndKNNClassifier:
    """Return the classifier with all records of some data, `owned` of them a subject's.

    It is fitted to a few of them, which decides nothing but its public plan. Then its shard gets
    all, by the code that opens a store; subjects are numbers, and all have full budgets.
    """
    places = np.arange(min(_FEW, data.n))
    classifier.fit(data.draw(len(places), 100), places % classes, places, public=data.draw(2000, 1))
    shard = classifier._shard
    people = -(-data.n // owned)
    register = SlotTable()
    register.slot_of, register.size = Numbers(people), people
    shard.ledger._roll, shard.ledger._remaining = register, np.full(people, UNITS)
    shard.index = type(shard.index)(shard.index.kernel, data.d)
    rows = np.arange(data.n, dtype=np.int32)
    shard.resume(encoded(data, shard.index.kernel), rows % np.int32(classes), rows // owned)
    return classifier
