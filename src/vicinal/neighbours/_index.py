"""What every index promises, and the search that all of them share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from vicinal.errors import InvalidInput
from vicinal.neighbours._integer_features import IntegerMatrix
from vicinal.neighbours._kernels import Kernel
from vicinal.neighbours._neighbour_lists import NeighbourLists, joined_hits
from vicinal.neighbours._tiles import Hits
from vicinal.neighbours.engines import HitBudget, QueryBlock, ScanEngine, engine_for

MOST_HITS = 1 << 24
"""Hits held at a time by :meth:`Index.parts`: at most some 350 MB while they are put in order."""

_FARTHEST = 1 << 40
"""Beyond this, either way, a threshold means everybody or nobody."""

Thresholds = npt.NDArray[np.int64]


IndexFactory = Callable[[Kernel, int], "Index"]
"""Makes an empty index for a kernel and a number of features."""


class Index(ABC):
    """Records that can be searched, added to and erased from.

    **The privacy condition.** Whether record i becomes a neighbour of query q must be a function of

    - record i itself (its integer features), the query and its threshold, and
    - public things: parameters, seeds, whatever was learnt from public data,

    and of nothing else: not of other records, their number, their order, or earlier queries. The
    individual accounting stands on it: a record is charged for what *it* contributed, which is its
    whole influence only if its presence changes nobody else's selection (ZZGW23, Theorem 3.2). An
    exhaustive scan meets the condition, and so do hashing with public hyperplanes and inverted
    lists around centroids learnt from public data. Graphs (HNSW), k-means over the private
    records, kd-trees and "the k nearest" do not: there, one person's presence moves other people's
    neighbours. A recall below 1 costs accuracy, never privacy.

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
    """

    def __init__(self, kernel: Kernel, n_features: int, engine: str | None = None) -> None:
        self.kernel = kernel
        self.n_features = n_features
        self.engine: ScanEngine = engine_for(kernel.precision, engine)

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of records."""

    @property
    @abstractmethod
    def stride(self) -> int:
        """The width of a stored row."""

    @abstractmethod
    def add(self, integers: IntegerMatrix) -> None:
        """Append records given as integer features, (m, d) in the kernel's precision.

        They become the rows ``len(self)`` and following.

        Raises
        ------
        InvalidInput
            If they are not such rows; nothing is changed.
        """

    @abstractmethod
    def remove(self, rows: npt.NDArray[np.int64], movers: npt.NDArray[np.int64]) -> None:
        """Erase `rows` physically; the records at `movers` take over the numbers of the holes.

        See :func:`vicinal.neighbours._tiles.fill_holes` for how the two are chosen. Nothing of an
        erased record stays in memory: its bytes are overwritten by another record's or by zeros.
        """

    @abstractmethod
    def _scan(
        self, queries: IntegerMatrix, block: QueryBlock, room: HitBudget
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
        found = self._search(queries, thresholds, HitBudget(np.iinfo(np.int64).max))
        assert found is not None  # noqa: S101 (there is room for everything)
        return found

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
            room = HitBudget(most if stop - start > 1 else np.iinfo(np.int64).max)
            found = self._search(queries[start:stop], thresholds[start:stop], room)
            if found is None:
                step = -(-(stop - start) // 2)
                continue
            yield found
            start = stop

    def _search(
        self, queries: IntegerMatrix, thresholds: Thresholds, room: HitBudget
    ) -> NeighbourLists | None:
        own = self.kernel.offsets(queries)
        floors = np.clip(thresholds, -_FARTHEST, _FARTHEST) + own.astype(np.int64)
        block = self.engine.prepare(queries, floors, self.kernel.product_factor, self.stride)
        with self.engine.threads():
            parts = self._scan(queries, block, room)
        return None if parts is None else joined_hits(parts, own)

    def _check(self, queries: IntegerMatrix, thresholds: Thresholds) -> None:
        """Raise InvalidInput if queries or thresholds could be misread."""
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
