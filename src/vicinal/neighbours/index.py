"""Search indexes: the privacy condition, the storage of records, and exhaustive search.

Threads take blocks of consecutive records and compare them with the whole block of queries, so the
n x q matrix of similarities never exists. Memory grows in blocks: adding records copies none that
are stored, and erased rows are overwritten.

Everywhere in this module: `integers`, (m, d), and `queries`, (q, d), are integer features in the
kernel's precision. `thresholds`, int64 (q,), are the smallest similarities of a neighbour, and
`min_scores`, int64 (q,), the minimum scores of a hit (:mod:`vicinal.neighbours.scan`). A search
raises TooManyHits if it finds more hits than its `hit_budget` allows.
"""

import math
import mmap
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal.arrays import AnyArray, Ints, Ints32
from vicinal.errors import InvalidInput
from vicinal.neighbours.engines import get_engine
from vicinal.neighbours.kernels import IntegerMatrix, Kernel
from vicinal.neighbours.scan import (
    HitBudget,
    Hits,
    MinScores,
    NeighbourLists,
    QueryBlock,
    ScanEngine,
    ScanRecords,
    TooManyHits,
    get_thread_count,
    map_in_threads,
    merge_hits,
    pad_columns,
)


class GrowableArray:
    """Array of rows in blocks of memory, which grows without copying rows.

    `width`: number of columns, or None for plain numbers. Attribute `blocks`: the list of blocks,
    each an array (`block_rows`, width) or (`block_rows`,) of type `dtype`.
    """

    def __init__(self, width: int | None, dtype: npt.DTypeLike, block_rows: int) -> None:
        self._tail = () if width is None else (width,)
        self._dtype = np.dtype(dtype)
        self._block_rows = block_rows
        self.blocks: list[AnyArray] = []

    def write(self, start: int, values: AnyArray) -> None:
        """Write `values`, (k, width) or (k,), to the rows from `start` on; add blocks as needed."""
        stop = start + len(values)
        while len(self.blocks) * self._block_rows < stop:
            self.blocks.append(_allocate_zeros((self._block_rows, *self._tail), self._dtype))
        row = start
        while row < stop:
            block_number, first = divmod(row, self._block_rows)
            chunk = values[row - start : row - start + self._block_rows - first]
            self.blocks[block_number][first : first + len(chunk)] = chunk
            row += len(chunk)

    def take(self, rows: Ints) -> AnyArray:
        """Return a copy of the rows with the indices `rows`, (k,), in this order."""
        out = np.empty((len(rows), *self._tail), dtype=self._dtype)
        for indices, block, rows_in_block in self._iterate_blocks(rows):
            out[indices] = block[rows_in_block]
        return out

    def put(self, rows: Ints, values: AnyArray) -> None:
        """Overwrite the rows with the indices `rows`, (k,), by `values`, (k, width) or (k,)."""
        for indices, block, rows_in_block in self._iterate_blocks(rows):
            block[rows_in_block] = values[indices]

    def truncate(self, size: int, used: int) -> None:
        """Keep the first `size` rows: zero the rows up to `used` - 1 and release empty blocks.

        Rows from `used` on have never been written, or were overwritten before.
        """
        for block_number, block in enumerate(
            self.blocks[size // self._block_rows :], size // self._block_rows
        ):
            first = block_number * self._block_rows
            block[max(0, size - first) : max(0, used - first)] = 0
        del self.blocks[-(-size // self._block_rows) :]

    def _iterate_blocks(self, rows: Ints) -> Iterator[tuple[Ints, AnyArray, Ints]]:
        """Yield (indices, block, rows in the block) for each block that holds some of `rows`, (k,).

        ``rows[indices]`` are the row indices that lie in the block.
        """
        block_numbers = rows // self._block_rows
        for block_number in np.unique(block_numbers).tolist():
            indices = np.flatnonzero(block_numbers == block_number)
            yield (
                indices,
                self.blocks[block_number],
                rows[indices] - block_number * self._block_rows,
            )


def _allocate_zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> AnyArray:
    """Return zeros whose memory pages are allocated when they are written.

    An ordinary allocator also fills memory that it reuses: megabytes for each small data set.
    """
    size = math.prod(shape) * dtype.itemsize
    if not size or not hasattr(mmap, "MAP_PRIVATE"):
        return np.zeros(shape, dtype)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(pages, dtype).reshape(shape)


MAX_HITS = 1 << 24
"""Hits held at a time by :meth:`Index.search_in_blocks`: some 350 MB while they are ordered."""

_NO_LIMIT = int(np.iinfo(np.int64).max)  # hit budget of searches that keep all hits

NO_THRESHOLD = -(1 << 40)
"""A threshold that all similarities reach; none reaches its opposite."""

Thresholds = Ints
"""The smallest similarity of a neighbour, for each query, (q,)."""

IndexFactory = Callable[[Kernel, int], "Index"]
"""Function that returns an empty index for a kernel and a number of features."""


class Index(ABC):
    """Records that can be searched, added and erased.

    **The privacy condition.** Whether record i becomes a neighbour of query q must be a function of

    - record i itself (its integer features), the query and its threshold, and
    - public values: parameters, seeds, and anything learnt from public data,

    and of nothing else: not of other records, their number, their order, or earlier queries. The
    individual accounting relies on it: a record is charged for its own contribution, which is its
    whole influence only if its presence changes no other record's selection (ZZGW23, Theorem 3.2).
    An exhaustive scan meets the condition, and so does hashing with public hyperplanes. Graphs
    (HNSW), k-means over the private records, kd-trees and "the k nearest" do not: there, the
    presence of one subject changes which other records are neighbours. A recall below 1 costs
    accuracy, never privacy.

    ``tests/congruence/test_indexes.py`` checks the condition for each index and shows two that
    break it. A subclass selects candidates (:meth:`_scan`); those within the radius are neighbours.

    Parameters
    ----------
    kernel : Kernel
        The kernel whose similarities are compared, with its precision.
    n_features : int
        Number of integer features d of a record, the kernel's ``width``.
    engine : str, optional
        Name of the engine, see ``engines.get_engine``; all engines return the same hits.

    Examples
    --------
    >>> from vicinal.neighbours import Cosine, ExactIndex, HyperplaneLSH, Index
    >>> [isinstance(kind(Cosine(), 8), Index) for kind in (ExactIndex, HyperplaneLSH)]
    [True, True]
    """

    def __init__(self, kernel: Kernel, n_features: int, engine: str | None = None) -> None:
        self.kernel = kernel
        self.n_features = n_features
        self.engine: ScanEngine = get_engine(kernel.precision, engine)
        self.feature_rows = FeatureRows(kernel, n_features)
        self._feature_dtype = np.dtype(kernel.precision.dtype)

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.feature_rows)

    @property
    def stride(self) -> int:
        """Number of columns of a stored row."""
        return self.feature_rows.stride

    @property
    def features(self) -> IntegerMatrix:
        """Integer features of all records in the order of their rows, (n, d)."""
        return self.feature_rows.features

    def add(self, integers: IntegerMatrix) -> None:
        """Append records as the rows from ``len(self)`` on; InvalidInput is raised before that."""
        self._check_integers("integers", integers)
        self.feature_rows.add(integers)

    def remove(self, rows: Ints, movers: Ints) -> None:
        """Erase the records in `rows`, and fill the gaps with the records in the rows `movers`.

        Both are int64 row indices, ascending. `movers`: the rows among the last ``len(rows)`` that
        are not erased (:func:`vicinal.neighbours.scan.find_movers`). The memory of an erased record
        is overwritten by another record or by zeros.
        """
        new_size = len(self.feature_rows) - len(rows)
        self.feature_rows.remove(rows[rows < new_size], movers, new_size)

    @abstractmethod
    def _scan(
        self, queries: IntegerMatrix, min_scores: MinScores, hit_budget: HitBudget
    ) -> list[Hits]:
        """Return each query's hits among its candidates, for consecutive blocks of records."""

    def _prepare(self, queries: IntegerMatrix, min_scores: MinScores) -> QueryBlock:
        """Return queries with their minimum scores in the engine's layout."""
        padded = pad_columns(queries, self.stride)
        return self.engine.prepare(padded, min_scores, self.kernel.product_factor)

    def search(self, queries: IntegerMatrix, thresholds: Thresholds) -> NeighbourLists:
        """Return the neighbours: candidates with a similarity to query j >= ``thresholds[j]``.

        Raises InvalidInput if shapes or types of the arguments do not fit.
        """
        self._check_queries(queries, thresholds)
        return self._search(queries, thresholds, HitBudget(_NO_LIMIT))

    def search_in_blocks(
        self, queries: IntegerMatrix, thresholds: Thresholds, max_hits: int = MAX_HITS
    ) -> Iterator[NeighbourLists]:
        """Yield the neighbours of consecutive queries, as many queries at a time as memory allows.

        Together the blocks equal the result of :meth:`search`. A block with more than `max_hits`
        hits is discarded and halved; a single query is always answered. The split is private:
        nothing but memory may depend on it.
        """
        self._check_queries(queries, thresholds)
        start, step = 0, len(queries)
        while start < len(queries):
            stop = min(start + step, len(queries))
            hit_budget = HitBudget(max_hits if stop - start > 1 else _NO_LIMIT)
            try:
                lists = self._search(queries[start:stop], thresholds[start:stop], hit_budget)
            except TooManyHits:
                step = -(-(stop - start) // 2)
                continue
            yield lists
            start = stop

    def _search(
        self, queries: IntegerMatrix, thresholds: Thresholds, hit_budget: HitBudget
    ) -> NeighbourLists:
        """Return the neighbours of validated queries; `thresholds` are clipped to +-2^40."""
        query_offsets = self.kernel.offsets(queries)
        clipped_thresholds = np.clip(thresholds, NO_THRESHOLD, -NO_THRESHOLD)
        min_scores = clipped_thresholds + query_offsets.astype(np.int64)
        with self.engine.limit_threads():
            hits = self._scan(queries, min_scores, hit_budget)
        return merge_hits(hits, query_offsets)

    def _check_queries(self, queries: IntegerMatrix, thresholds: Thresholds) -> None:
        """Raise InvalidInput unless shapes and types of queries and thresholds fit."""
        self._check_integers("queries", queries)
        if thresholds.shape != (len(queries),) or thresholds.dtype.kind not in "iu":
            raise InvalidInput(
                f"The 'thresholds' must be integers of shape ({len(queries)},). "
                f"Got {thresholds.dtype} of shape {thresholds.shape}."
            )

    def _check_integers(self, name: str, integers: IntegerMatrix) -> None:
        """Raise InvalidInput for the argument `name` if shape or type of `integers` do not fit."""
        if integers.ndim != 2 or integers.shape[1] != self.n_features:
            raise InvalidInput(
                f"The {name!r} must be integer features of shape (n, {self.n_features}). "
                f"Got shape {integers.shape}; encode them with the index's kernel."
            )
        if integers.dtype != self._feature_dtype:
            raise InvalidInput(
                f"The {name!r} must be of type {self._feature_dtype}. "
                f"Got {integers.dtype}; encode them with the index's kernel."
            )


_MAX_TASK_RECORDS = 1 << 15  # largest number of records in the task of a thread
_MIN_TASK_RECORDS = 1024  # smallest number of records in a task

_TASKS_PER_THREAD = 4  # several, so that no thread waits long for another one

_MAX_SERIAL_BYTES = 1 << 25
"""Bytes of records times queries up to which one thread is about as fast as several.

One thread reads 32 MiB as fast as two that must be woken (decision 0023).
"""


class ExactIndex(Index):
    """Exhaustive search over records in growing memory; rows of a query are ascending.

    Every record is a candidate of every query, which meets the privacy condition.

    Parameters
    ----------
    kernel, n_features, engine
        See :class:`vicinal.neighbours.index.Index`.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.neighbours import Cosine, ExactIndex
    >>> from vicinal.neighbours.radius import FixedRadius
    >>> rows = Cosine().encode(np.eye(3))
    >>> index = ExactIndex(Cosine(), n_features=3)
    >>> index.add(rows)
    >>> index.search(rows, FixedRadius(Cosine(), 0.5, 3).thresholds(rows)).rows
    array([0, 1, 2], dtype=int32)
    """

    def _scan(
        self, queries: IntegerMatrix, min_scores: MinScores, hit_budget: HitBudget
    ) -> list[Hits]:
        """Return the hits of all queries in each block of records."""
        block = self._prepare(queries, min_scores)
        tasks = list(self.feature_rows.iterate_records(self._choose_task_size(len(queries))))
        return map_in_threads(lambda records: self.engine.scan(block, records, hit_budget), tasks)

    def compute_similarities(
        self, queries: IntegerMatrix, starts: Ints, rows: Ints32
    ) -> NeighbourLists:
        """Return the similarities of each query with given records, as lists of neighbours.

        The records of query j are in the rows ``rows[starts[j]:starts[j + 1]]``, ascending.
        """
        self._check_integers("queries", queries)
        lists = NeighbourLists(starts, rows, np.empty(len(rows), dtype=np.int32))
        padded = pad_columns(queries, self.stride)
        factor = self.kernel.product_factor
        first_row = 0
        for records in self.feature_rows.iterate_records(max(1, len(self))):
            self.engine.write_similarities(padded, factor, lists, records, first_row)
            first_row += len(records)
        query_offsets = np.repeat(self.kernel.offsets(queries), np.diff(starts))
        return NeighbourLists(starts, rows, lists.similarities - query_offsets)

    def _choose_task_size(self, n_queries: int) -> int:
        """Return the number of records of a thread's task in a search of `n_queries` together."""
        row_bytes = self.stride * self._feature_dtype.itemsize
        if n_queries * len(self) * row_bytes <= _MAX_SERIAL_BYTES:
            return max(1, len(self))
        task_records = -(-len(self) // (get_thread_count() * _TASKS_PER_THREAD))
        return min(_MAX_TASK_RECORDS, max(task_records, _MIN_TASK_RECORDS))


BLOCK_BYTES = 1 << 25
"""Memory allocated at a time; pages that hold no record yet take none."""


class FeatureRows:
    """Integer features with their offsets, in the layout that engines scan.

    `kernel`, `n_features`: of the index; rows of int8 are padded to a multiple of 4 columns.
    `block_rows`: number of records in a block of memory; default: they fill :data:`BLOCK_BYTES`.
    """

    def __init__(self, kernel: Kernel, n_features: int, block_rows: int | None = None) -> None:
        dtype = np.dtype(kernel.precision.dtype)
        self.stride = n_features if dtype.itemsize > 1 else -(-n_features // 4) * 4
        self.n_features = n_features
        self.block_rows = block_rows or max(1, BLOCK_BYTES // (self.stride * dtype.itemsize))
        self._kernel = kernel
        self._features = GrowableArray(self.stride, dtype, self.block_rows)
        self._offsets = GrowableArray(None, np.int32, self.block_rows)
        self._size = 0

    def __len__(self) -> int:
        """Return the number of records."""
        return self._size

    @property
    def features(self) -> IntegerMatrix:
        """Integer features of all records, (n, d), a copy without padding."""
        return self._features.take(np.arange(self._size))[:, : self.n_features]

    def add(self, integers: IntegerMatrix) -> None:
        """Append records with the features `integers`."""
        step = max(1, min(self.block_rows, BLOCK_BYTES // max(1, self.stride)))
        for start in range(0, len(integers), step):
            chunk = integers[start : start + step]
            first_row = self._size
            self._offsets.write(first_row, self._kernel.offsets(chunk))
            self._features.write(first_row, pad_columns(chunk, self.stride))
            self._size += len(chunk)

    def remove(self, holes: Ints, movers: Ints, new_size: int) -> None:
        """Move the records in rows `movers` (k,) to rows `holes`; erase rows from `new_size` on."""
        for column in (self._features, self._offsets):
            column.put(holes, column.take(movers))
            column.truncate(new_size, self._size)
        self._size = new_size

    def iterate_records(self, max_rows: int) -> Iterator[ScanRecords]:
        """Yield views of all records in order, at most `max_rows` consecutive ones at a time."""
        for block_number in range(-(-self._size // self.block_rows)):
            size = min(self.block_rows, self._size - block_number * self.block_rows)
            first = block_number * self.block_rows
            features = self._features.blocks[block_number]
            for start in range(0, size, max_rows):
                rows = slice(start, min(start + max_rows, size))
                row_ids = np.arange(first + rows.start, first + rows.stop, dtype=np.int32)
                yield ScanRecords(features[rows], self._offsets.blocks[block_number][rows], row_ids)
