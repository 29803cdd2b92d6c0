"""Exact search: every record inside every query's radius, without the n x Q matrix.

Threads take consecutive records and meet them with the whole block of queries; only lists of
neighbours leave an engine.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vicinal.neighbours import _threads
from vicinal.neighbours._growable_array import FeatureRows
from vicinal.neighbours._index import Index
from vicinal.neighbours._integer_features import IntegerMatrix
from vicinal.neighbours._kernels import Kernel
from vicinal.neighbours._tiles import Hits
from vicinal.neighbours.engines import HitBudget, QueryBlock, ScanRecords

TILE = 1 << 15
"""Records that a thread takes at a time, at most."""

_LEAST = 1024
_TASKS = 4
"""Tasks for every thread, so that none waits long for another."""


class ExactIndex(Index):
    """All records in growing memory, searched exhaustively; rows of a query come ascending.

    A record is a candidate of every query, which meets the privacy condition at once.

    Parameters
    ----------
    kernel, n_features, engine
        See :class:`vicinal.neighbours._index.Index`.
    tile : int
        Records that a thread takes at a time, at most.
    """

    def __init__(
        self, kernel: Kernel, n_features: int, tile: int = TILE, engine: str | None = None
    ) -> None:
        super().__init__(kernel, n_features, engine)
        self._tile = tile
        self.store = FeatureRows(kernel, n_features)

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.store)

    @property
    def stride(self) -> int:
        """The width of a stored row."""
        return self.store.stride

    @property
    def features(self) -> IntegerMatrix:
        """A copy of the integer features in use, (n, d)."""
        return self.store.features

    def add(self, integers: IntegerMatrix) -> None:
        """Append records given as integer features, (m, d)."""
        self._check_integers("integers", integers)
        size = len(self.store)
        self.store.add(integers, np.arange(size, size + len(integers), dtype=np.int32))

    def remove(self, rows: npt.NDArray[np.int64], movers: npt.NDArray[np.int64]) -> None:
        """Erase `rows` physically: records at `movers` fill the holes, the tail is zeroed."""
        kept = len(self.store) - len(rows)
        self.store.remove(rows[rows < kept], movers, kept, names=False)

    def _scan(
        self,
        queries: IntegerMatrix,  # noqa: ARG002 (everybody is a candidate)
        block: QueryBlock,
        room: HitBudget,
    ) -> list[Hits] | None:
        """Scan everybody."""

        def scan(records: ScanRecords) -> Hits | None:
            return self.engine.scan(block, records, room) if room else None

        parts = list(_threads.mapped(scan, list(self.store.parts(self._rows()))))
        found = [part for part in parts if part is not None]
        return found if len(found) == len(parts) else None

    def _rows(self) -> int:
        """Return how many records to hand to a thread at a time."""
        share = -(-len(self) // (_threads.COUNT * _TASKS))
        return min(self._tile, max(share, _LEAST))
