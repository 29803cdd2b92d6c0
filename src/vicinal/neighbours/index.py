"""What every index promises, the search that all share, the rows they keep, and exact search.

Threads take consecutive records and meet them with the whole block of queries, so the n x Q matrix
never exists. Memory grows in blocks: adding copies nothing, and what is erased is wiped.
"""

import math
import mmap
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from vicinal.arrays import AnyArray, Ints, Ints32, Places
from vicinal.errors import InvalidInput
from vicinal.neighbours import scan as _scan
from vicinal.neighbours.engines import HitBudget, QueryBlock, ScanEngine, ScanRecords, engine_for
from vicinal.neighbours.kernels import IntegerMatrix, Kernel
from vicinal.neighbours.scan import Hits, NeighbourLists, Pairs, joined_hits, widened


class GrowableArray:
    """Rows of one width (None: plain numbers) and type, in blocks of `block` rows."""

    def __init__(self, width: int | None, dtype: npt.DTypeLike, block: int) -> None:
        self._tail = () if width is None else (width,)
        self._dtype = np.dtype(dtype)
        self._block = block
        self._used = 0
        self.blocks: list[AnyArray] = []

    def __deepcopy__(self, _: object) -> Self:
        """Copy the rows that are in use: the rest of a block takes no memory until it is."""
        copied = type(self)(self._tail[0] if self._tail else None, self._dtype, self._block)
        for first in range(0, self._used, self._block):
            copied.write(first, self.blocks[first // self._block][: self._used - first])
        return copied

    def write(self, start: int, values: AnyArray) -> None:
        """Write consecutive rows from position `start` on, making room as needed."""
        stop = start + len(values)
        while len(self.blocks) * self._block < stop:
            self.blocks.append(_zeros((self._block, *self._tail), self._dtype))
        self._used = max(self._used, stop)
        at = start
        while at < stop:
            number, first = divmod(at, self._block)
            some = values[at - start : at - start + self._block - first]
            self.blocks[number][first : first + len(some)] = some
            at += len(some)

    def take(self, positions: Places) -> AnyArray:
        out = np.empty((len(positions), *self._tail), dtype=self._dtype)
        for chosen, block, places in self._where(positions):
            out[chosen] = block[places]
        return out

    def put(self, positions: Places, values: AnyArray) -> None:
        for chosen, block, places in self._where(positions):
            block[places] = values[chosen]

    def cut(self, size: int, used: int) -> None:
        """Wipe the rows from position `size` to `used`, and give back blocks that are empty.

        Rows from `used` on have never been written, or were wiped before.
        """
        for number, block in enumerate(self.blocks[size // self._block :], size // self._block):
            first = number * self._block
            block[max(0, size - first) : max(0, used - first)] = 0
        del self.blocks[-(-size // self._block) :]
        self._used = min(self._used, size)

    def _where(self, positions: Places) -> Iterator[tuple[Places, AnyArray, Places]]:
        numbers = positions // self._block
        for number in np.unique(numbers).tolist():
            chosen = np.flatnonzero(numbers == number)
            yield chosen, self.blocks[number], positions[chosen] - number * self._block


def _zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> AnyArray:
    """Return zeros of whose pages only those are there that are written.

    An allocator fills memory that it has had before, megabytes for each small data set.
    """
    size = math.prod(shape) * dtype.itemsize
    if not size or not hasattr(mmap, "MAP_PRIVATE"):
        return np.zeros(shape, dtype)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(pages, dtype).reshape(shape)


# Hits held at a time by :meth:`Index.parts`: at most some 350 MB while they are put in order.
MOST_HITS = 1 << 24

_FARTHEST = 1 << 40  # beyond this, either way, a threshold means every record or none

Thresholds = Ints

IndexFactory = Callable[[Kernel, int], "Index"]
"""Makes an empty index for a kernel and a number of features."""


class Index(ABC):
    """Records that can be searched, added to and erased from.

    **The privacy condition.** Whether record i becomes a neighbour of query q must be a function of

    - record i itself (its integer features), the query and its threshold, and
    - public things: parameters, seeds, whatever was learnt from public data,

    and of nothing else: not of other records, their number, their order, or earlier queries. The
    individual accounting stands on it: a record is charged for what *it* contributed, which is its
    whole influence only if its presence changes no other record's selection (ZZGW23, Theorem 3.2).
    An exhaustive scan meets the condition, and so does hashing with public hyperplanes. Graphs
    (HNSW), k-means over the private records, kd-trees and "the k nearest" do not: there, one
    subject's presence moves other subjects' neighbours. A recall below 1 costs accuracy, never
    privacy.

    ``tests/congruence/test_indexes.py`` holds every index against this and catches two that break
    it. A subclass says which candidates it looks at (:meth:`_scan`); who of them is a neighbour is
    decided by the radius alone.

    Parameters
    ----------
    kernel : Kernel
        The kernel whose similarities are compared, with its precision.
    n_features : int
        d.
    engine : str, optional
        The product engine, see :func:`vicinal.neighbours.engines.engine_for`; the same answers.

    Examples
    --------
    >>> from vicinal.neighbours import Cosine, ExactIndex, HyperplaneLSH, Index
    >>> [isinstance(kind(Cosine(), 8), Index) for kind in (ExactIndex, HyperplaneLSH)]
    [True, True]
    """

    def __init__(self, kernel: Kernel, n_features: int, engine: str | None = None) -> None:
        self.kernel = kernel
        self.n_features = n_features
        self.engine: ScanEngine = engine_for(kernel.precision, engine)
        self.store = FeatureRows(kernel, n_features)

    def __len__(self) -> int:
        return len(self.store)

    @property
    def stride(self) -> int:
        """The width of a stored row."""
        return self.store.stride

    @property
    def features(self) -> IntegerMatrix:
        return self.store.features

    def add(self, integers: IntegerMatrix) -> None:
        """Append records given as integer features, (m, d) in the kernel's precision.

        They become the rows ``len(self)`` and following.

        Raises
        ------
        InvalidInput
            If they are not such rows; nothing is changed.
        """
        self._check_integers("integers", integers)
        self.store.add(integers)

    def remove(self, rows: Ints, movers: Ints) -> None:
        """Erase `rows` physically; the records at `movers` take over the numbers of the holes.

        See :func:`vicinal.neighbours.scan.fill_holes` for how the two are chosen. Nothing of an
        erased record stays in memory: its bytes are overwritten by another record's or by zeros.
        """
        new_size = len(self.store) - len(rows)
        self.store.remove(rows[rows < new_size], movers, new_size)

    @abstractmethod
    def _scan(
        self, queries: IntegerMatrix, block: QueryBlock, allowed: HitBudget
    ) -> list[Hits] | None:
        """Return the hits among all candidates in parts, or None if there is not enough room."""

    def search(self, queries: IntegerMatrix, thresholds: Thresholds) -> NeighbourLists:
        """Return the candidates whose similarity to query j is at least ``thresholds[j]``.

        Parameters
        ----------
        queries : int8 or float32 (q, d)
            Integer features of the queries, in the kernel's precision.
        thresholds : int64 (q,)
            The radii as similarities.

        Raises
        ------
        InvalidInput
            If shapes or types are not these.
        """
        self._check(queries, thresholds)
        lists = self._search(queries, thresholds, HitBudget(np.iinfo(np.int64).max))
        assert lists is not None  # noqa: S101 (there is room for everything)
        return lists

    def parts(
        self, queries: IntegerMatrix, thresholds: Thresholds, most: int = MOST_HITS
    ) -> Iterator[NeighbourLists]:
        """Yield the neighbours of consecutive queries, as many queries at a time as memory allows.

        The parts together are what :meth:`search` returns. When the hits of a part would exceed
        `most` it is given up and halved; a single query is answered whatever it takes. How queries
        are split follows from private counts, so nothing but memory may depend on it.
        """
        self._check(queries, thresholds)
        start, step = 0, len(queries)
        while start < len(queries):
            stop = min(start + step, len(queries))
            allowed = HitBudget(most if stop - start > 1 else np.iinfo(np.int64).max)
            lists = self._search(queries[start:stop], thresholds[start:stop], allowed)
            if lists is None:
                step = -(-(stop - start) // 2)
                continue
            yield lists
            start = stop

    def _search(
        self, queries: IntegerMatrix, thresholds: Thresholds, allowed: HitBudget
    ) -> NeighbourLists | None:
        own = self.kernel.offsets(queries)
        floors = np.clip(thresholds, -_FARTHEST, _FARTHEST) + own.astype(np.int64)
        rows = widened(queries, self.stride)
        block = self.engine.prepare(rows, floors, self.kernel.product_factor)
        with self.engine.threads():
            parts = self._scan(queries, block, allowed)
        return None if parts is None else joined_hits(parts, own)

    def _check(self, queries: IntegerMatrix, thresholds: Thresholds) -> None:
        self._check_integers("queries", queries)
        if thresholds.shape != (len(queries),) or thresholds.dtype.kind not in "iu":
            raise InvalidInput(
                f"The 'thresholds' must be integers of shape ({len(queries)},). "
                f"Got {thresholds.dtype} of shape {thresholds.shape}."
            )

    def _check_integers(self, name: str, integers: IntegerMatrix) -> None:
        """Raise InvalidInput unless these are rows of integer features of this index's kernel."""
        if integers.ndim != 2 or integers.shape[1] != self.n_features:
            raise InvalidInput(
                f"The {name!r} must be integer features of shape (n, {self.n_features}). "
                f"Got shape {integers.shape}; encode them with the index's kernel."
            )
        if integers.dtype != self.kernel.precision.dtype:
            raise InvalidInput(
                f"The {name!r} must be of type {np.dtype(self.kernel.precision.dtype)}. "
                f"Got {integers.dtype}; encode them with the index's kernel."
            )


TILE = 1 << 15  # records that a thread takes at a time, at most

_LEAST = 1024
_TASKS = 4  # tasks for every thread, so that none waits long for another


# Bytes of records, times queries, that one thread is through about as soon as several.
_ALONE = 1 << 25


class ExactIndex(Index):
    """All records in growing memory, searched exhaustively; rows of a query come ascending.

    A record is a candidate of every query, which meets the privacy condition at once.

    Parameters
    ----------
    kernel, n_features, engine
        See :class:`vicinal.neighbours.index.Index`.
    tile : int
        Records that a thread takes at a time, at most.

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

    def __init__(
        self, kernel: Kernel, n_features: int, tile: int = TILE, engine: str | None = None
    ) -> None:
        super().__init__(kernel, n_features, engine)
        self._tile = tile

    def _scan(
        self,
        queries: IntegerMatrix,  # noqa: ARG002 (every record is a candidate)
        block: QueryBlock,
        allowed: HitBudget,
    ) -> list[Hits] | None:
        def scan(records: ScanRecords) -> Hits | None:
            return self.engine.scan(block, records, allowed) if allowed else None

        tasks = list(self.store.parts(self._rows(len(block.floors))))
        parts = _scan.map_in_threads(scan, tasks)
        complete = [part for part in parts if part is not None]
        return complete if len(complete) == len(parts) else None

    def of_pairs(self, queries: IntegerMatrix, starts: Ints, rows: Ints32) -> NeighbourLists:
        """Return the similarities of queries, (q, d), with records of their own.

        The records of query j are ``rows[starts[j]:starts[j + 1]]``, ascending.
        """
        self._check_integers("queries", queries)
        values = np.empty(len(rows), dtype=np.int32)
        wide, first = widened(queries, self.stride), 0
        for records in self.store.parts(max(1, len(self))):
            pairs = Pairs(starts, rows, values, records, first)
            self.engine.similarities(wide, self.kernel.product_factor, pairs)
            first += len(records)
        values -= np.repeat(self.kernel.offsets(queries), np.diff(starts))
        return NeighbourLists(starts, rows, values)

    def _rows(self, queries: int) -> int:
        """Return how many records to hand to a thread at a time; all, where threads cost more."""
        row = self.stride * np.dtype(self.kernel.precision.dtype).itemsize
        if queries * len(self) * row <= _ALONE:
            return max(1, len(self))
        share = -(-len(self) // (_scan.THREADS * _TASKS))
        return min(self._tile, max(share, _LEAST))


BLOCK_BYTES = 1 << 25  # memory taken at a time; pages of it that hold nothing yet are not touched


class FeatureRows:
    """Integer features with offsets, ready to be scanned.

    Rows of int8 are stored a multiple of 4 wide, for the engines. Without `block`, the records of a
    block of memory fill :data:`BLOCK_BYTES`.
    """

    def __init__(self, kernel: Kernel, n_features: int, block: int | None = None) -> None:
        dtype = np.dtype(kernel.precision.dtype)
        self.stride = n_features if dtype.itemsize > 1 else -(-n_features // 4) * 4
        self.n_features = n_features
        self.block = block or max(1, BLOCK_BYTES // (self.stride * dtype.itemsize))
        self._kernel = kernel
        self._features = GrowableArray(self.stride, dtype, self.block)
        self._offsets = GrowableArray(None, np.int32, self.block)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def features(self) -> IntegerMatrix:
        return self._features.take(np.arange(self._size))[:, : self.n_features]

    def add(self, integers: IntegerMatrix) -> None:
        step = max(1, min(self.block, BLOCK_BYTES // max(1, self.stride)))
        for start in range(0, len(integers), step):
            part = integers[start : start + step]
            at = self._size
            self._offsets.write(at, self._kernel.offsets(part))
            self._features.write(at, widened(part, self.stride))
            self._size += len(part)

    def remove(self, holes: Places, movers: Places, new_size: int) -> None:
        """Move the records at `movers` into `holes`, then wipe everything from `new_size` on."""
        for column in (self._features, self._offsets):
            column.put(holes, column.take(movers))
            column.cut(new_size, self._size)
        self._size = new_size

    def parts(self, rows: int) -> Iterator[ScanRecords]:
        for number in range(-(-self._size // self.block)):
            size = min(self.block, self._size - number * self.block)
            first, features = number * self.block, self._features.blocks[number]
            for start in range(0, size, rows):
                part = slice(start, min(start + rows, size))
                row_ids = np.arange(first + part.start, first + part.stop, dtype=np.int32)
                yield ScanRecords(features[part], self._offsets.blocks[number][part], row_ids)
