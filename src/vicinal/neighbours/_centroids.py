"""Inverted lists around public centroids: a query meets the records of a few cells only."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vicinal.neighbours import _tiles
from vicinal.neighbours._cells import CentroidCells
from vicinal.neighbours._index import FeatureRows, Index
from vicinal.neighbours._kernels import IntegerMatrix, Kernel
from vicinal.neighbours._tiles import Hits, fill_holes
from vicinal.neighbours.engines import HitBudget, QueryBlock

_BLOCK = 2048
"""Records of a cell's block of memory."""

_CHUNK = 1 << 18
_TOGETHER = 16
"""Cells that a thread takes at a time, at least."""

_TASKS = 4


class PublicCentroids(Index):
    """Records by cell, cells around centroids learnt from public data; rows come cell by cell.

    Record i is a candidate of query q if q looks at the cell that i falls into. Both are functions
    of the record, the query and public numbers (see
    :class:`vicinal.neighbours._cells.CentroidCells`). With centroids learnt from the private
    records themselves this would be false.

    Parameters
    ----------
    kernel, n_features, engine
        See :class:`vicinal.neighbours._index.Index`.
    cells : CentroidCells
        What was learnt, see :func:`vicinal.neighbours._cells.learn_cells`.
    """

    def __init__(
        self, kernel: Kernel, n_features: int, cells: CentroidCells, engine: str | None = None
    ) -> None:
        super().__init__(kernel, n_features, engine)
        self.cells = cells
        self.stores = [FeatureRows(kernel, n_features, _BLOCK) for _ in range(len(cells))]
        self._cells = np.zeros(0, dtype=np.int32)
        self._slots = np.zeros(0, dtype=np.int32)
        self._size = 0

    def __len__(self) -> int:
        """Return the number of records."""
        return self._size

    @property
    def stride(self) -> int:
        """The width of a stored row."""
        return self.stores[0].stride

    def add(self, integers: IntegerMatrix) -> None:
        """Append records given as integer features, (m, d)."""
        self._check_integers("integers", integers)
        self._reserve(self._size + len(integers))
        for start in range(0, len(integers), _CHUNK):
            self._add(integers[start : start + _CHUNK])

    def remove(self, rows: npt.NDArray[np.int64], movers: npt.NDArray[np.int64]) -> None:
        """Erase `rows` physically, cell by cell; `movers` take over the numbers of the holes."""
        for cell, members in _groups(self._cells[rows]):
            self._remove(cell, np.sort(self._slots[rows[members]].astype(np.int64)))
        kept = self._size - len(rows)
        holes = rows[rows < kept]
        for cell, members in _groups(self._cells[movers]):
            slots = self._slots[movers[members]].astype(np.int64)
            self.stores[cell].rename(slots, holes[members].astype(np.int32))
        for column in (self._cells, self._slots):
            column[holes] = column[movers]
            column[kept : self._size] = 0
        self._size = kept

    def _reserve(self, size: int) -> None:
        """Make room for the whereabouts of `size` records, with some to spare."""
        if size > len(self._cells):
            more = np.zeros(max(size, len(self._cells) * 5 // 4) - len(self._cells), dtype=np.int32)
            self._cells = np.concatenate([self._cells, more])
            self._slots = np.concatenate([self._slots, more])

    def _add(self, integers: IntegerMatrix) -> None:
        homes = self.cells.of(integers)
        names = np.arange(self._size, self._size + len(integers), dtype=np.int32)
        for cell, members in _groups(homes):
            store = self.stores[cell]
            self._slots[names[members]] = np.arange(len(store), len(store) + len(members))
            store.add(integers[members], names[members])
        self._cells[names] = homes
        self._size += len(integers)

    def _remove(self, cell: int, slots: npt.NDArray[np.int64]) -> None:
        """Erase the records at sorted `slots` of a cell."""
        store = self.stores[cell]
        kept = len(store) - len(slots)
        holes, movers = slots[slots < kept], fill_holes(slots, len(store))
        self._slots[store.name(movers)] = holes
        store.remove(holes, movers, kept, names=True)

    def _scan(
        self, queries: IntegerMatrix, block: QueryBlock, room: HitBudget
    ) -> list[Hits] | None:
        """Scan the cells that any query looks at, each for the queries that do."""
        probed = self.cells.probed(queries)
        looked = [
            cell for cell in np.flatnonzero(probed.any(axis=0)).tolist() if len(self.stores[cell])
        ]

        def scan(cells: list[int]) -> list[list[Hits] | None]:
            return [self._scan_cell(cell, block, probed[:, cell], room) for cell in cells]

        together = max(_TOGETHER, -(-len(looked) // (_tiles.COUNT * _TASKS)))
        tasks = [looked[at : at + together] for at in range(0, len(looked), together)]
        found = [parts for some in _tiles.mapped(scan, tasks) for parts in some]
        return None if None in found else [hits for parts in found if parts for hits in parts]

    def _scan_cell(
        self, cell: int, block: QueryBlock, asking: npt.NDArray[np.bool_], room: HitBudget
    ) -> list[Hits] | None:
        """Return the hits of the queries `asking`, bool (q,), in one cell, or None."""
        chosen = np.flatnonzero(asking)
        some = block if len(chosen) == len(block) else self.engine.pick(block, chosen)
        parts: list[Hits] = []
        for records in self.stores[cell].parts(_BLOCK):
            hits = self.engine.scan(some, records, room)
            if hits is None:
                return None
            counts = np.zeros(len(block), dtype=np.int64)
            counts[chosen] = hits[0]
            parts.append((counts, hits[1], hits[2]))
        return parts


def _groups(keys: npt.NDArray[np.int32]) -> list[tuple[int, npt.NDArray[np.int64]]]:
    """Return every key with the positions that have it, ascending."""
    order = np.argsort(keys, kind="stable")
    found, starts = np.unique(keys[order], return_index=True)
    stops = np.append(starts[1:], len(keys))
    spans = zip(starts.tolist(), stops.tolist(), strict=False)
    return [(int(key), order[a:b]) for key, (a, b) in zip(found, spans, strict=False)]
