"""What a product engine does: scan records for all that lie inside the radii of a block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal.neighbours._kernels import IntegerMatrix
from vicinal.neighbours._tiles import Hits


@dataclass(frozen=True, slots=True)
class ScanRecords:
    """Records to be scanned; a view of an index's own memory, never a copy.

    Attributes
    ----------
    features : int8 or float32 (n, stride)
        Integer features, C-contiguous, zeros beyond the features that there are.
    offsets : int32 (n,)
        What each record takes off its similarity; at least 0.
    row_ids : int32 (n,)
        The number by which each record is known outside.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.neighbours.engines import ScanRecords
    >>> offsets, row_ids = np.zeros(2, np.int32), np.arange(2, dtype=np.int32)
    >>> ScanRecords(np.eye(2, dtype=np.float32), offsets, row_ids).row_ids
    array([0, 1], dtype=int32)
    """

    features: IntegerMatrix
    offsets: npt.NDArray[np.int32]
    row_ids: npt.NDArray[np.int32]

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.row_ids)

    def __getitem__(self, part: slice) -> ScanRecords:
        """Return consecutive records."""
        return ScanRecords(self.features[part], self.offsets[part], self.row_ids[part])


@dataclass(frozen=True, slots=True)
class QueryBlock:
    """A block of queries, made ready for one engine; good for any number of scans.

    Attributes
    ----------
    floors : int64 (q,)
        ``factor * <x, q_j> - offset(x)`` must reach ``floors[j]``.
    factor : int
        The kernel's product factor, at least 1.
    packed : object
        The queries' integers as the engine wants them.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.neighbours import Precision
    >>> from vicinal.neighbours.engines import engine_for
    >>> queries = 100 * np.eye(4, dtype=np.float32)
    >>> engine_for(Precision(), "float32").prepare(queries, np.full(4, 5000), 1, 4).floors
    array([5000, 5000, 5000, 5000])
    """

    floors: npt.NDArray[np.int64]
    factor: int
    packed: Any

    def __len__(self) -> int:
        """Return the number of queries."""
        return len(self.floors)


class HitBudget:
    """How many more hits may be kept, shared by the scans of one search.

    The count is taken without a lock, between tiles, by compiled code of several threads. It can
    lag behind by a few tiles; it bounds memory and decides nothing else.

    Examples
    --------
    >>> from vicinal.neighbours.engines import HitBudget
    >>> room = HitBudget(1 << 20)
    """

    def __init__(self, hits: int) -> None:
        self.left = np.array([hits], dtype=np.int64)

    def __bool__(self) -> bool:
        """Tell whether nothing has been given up for lack of room."""
        return bool(self.left[0] >= 0)


class ScanEngine(ABC):
    """Finds the pairs (record, query) with ``factor * <x, q> - offset(x) >= floor(q)``, exactly.

    All engines return the same hits, bit for bit, because every product of integer features is
    exact whatever computes it (:mod:`vicinal.neighbours._kernels`). An engine knows
    nothing of labels, budgets or noise, and takes no decision from what it sees.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.neighbours import Precision
    >>> from vicinal.neighbours.engines import HitBudget, ScanRecords, engine_for
    >>> rows = 100 * np.eye(4, dtype=np.float32)
    >>> records = ScanRecords(rows, np.zeros(4, np.int32), np.arange(4, dtype=np.int32))
    >>> engine = engine_for(Precision(), "float32")
    >>> block = engine.prepare(rows[:1], floors=np.array([5000]), factor=1, stride=4)
    >>> engine.scan(block, records, HitBudget(100)) is not None
    True
    """

    name: str

    @abstractmethod
    def prepare(
        self,
        queries: IntegerMatrix,
        floors: npt.NDArray[np.int64],
        factor: int,
        stride: int,
    ) -> QueryBlock:
        """Return a block for records whose rows are `stride` numbers wide.

        Parameters
        ----------
        queries : int8 or float32 (q, d)
            Integer features, d at most `stride`.
        floors : int64 (q,)
            See :class:`QueryBlock`.
        factor, stride : int
            The kernel's product factor; the width of a stored row.
        """

    @abstractmethod
    def pick(self, block: QueryBlock, chosen: npt.NDArray[np.int64]) -> QueryBlock:
        """Return a block of the queries at `chosen`, int64 ascending, of the same factor."""

    @abstractmethod
    def scan(self, block: QueryBlock, records: ScanRecords, room: HitBudget) -> Hits | None:
        """Return the hits of every query in the records' order, or None if they need more room.

        Safe to call from several threads at a time; it holds no lock of the interpreter while it
        multiplies.
        """

    def threads(self) -> AbstractContextManager[Any]:
        """Return a context for a search, in which a product takes no more than its own thread."""
        return nullcontext()

    def scan_some(
        self,
        block: QueryBlock,
        records: ScanRecords,
        chosen: npt.NDArray[np.int32],
        room: HitBudget,
    ) -> Hits | None:
        """Scan only the records at the positions `chosen`, int32 ascending."""
        some = ScanRecords(
            records.features[chosen], records.offsets[chosen], records.row_ids[chosen]
        )
        return self.scan(block, some, room)


def padded(queries: IntegerMatrix, stride: int) -> IntegerMatrix:
    """Return queries widened with zeros to the width of stored rows."""
    wide = np.zeros((len(queries), stride), dtype=queries.dtype)
    wide[:, : queries.shape[1]] = queries
    return wide
