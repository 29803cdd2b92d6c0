"""Indexes that look at a part of the records: hashing, and inverted lists around public centroids.

Hashing with random hyperplanes, as ZZGW23 (section 3.2, Table 3) use it for efficiency: each of L
tables cuts space with b hyperplanes through the origin, whose normals are Gaussian and drawn from a
public seed; a record falls into one of 2^b buckets by the signs. The candidates of a query are the
union of its L buckets.

Inverted lists: a query meets the records of a few cells only. Cells say which one a record falls
into, and which ones a query looks at.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vicinal import _checks
from vicinal._arrays import AnyArray, Bools, FloatMatrix, Floats, Floats32, Ints, Ints32
from vicinal._compiled import compiled
from vicinal.errors import InvalidInput
from vicinal.neighbours import _scan
from vicinal.neighbours._index import FeatureRows, GrowableArray, Index, RowIndex
from vicinal.neighbours._kernels import IntegerMatrix, Kernel, unit_vectors
from vicinal.neighbours._radius import Radius, Reference
from vicinal.neighbours._scan import Hits, fill_holes
from vicinal.neighbours.engines import HitBudget, QueryBlock

# Steps of a standard deviation that normals are rounded to; their products stay below 2^53.
_STEPS = 1 << 16

_LANES = 32  # tables are stored in multiples of this, so that comparisons fill a vector

_HASHED = 1 << 14


class HyperplaneLSH(RowIndex):
    """L tables of b random hyperplanes; rows of a query come ascending.

    Record i is a candidate of query q if they fall into the same bucket of any table: a function
    of the two and the public seed. Codes are computed in integers, so that no sign depends on
    what other records are hashed with it.

    Parameters
    ----------
    kernel, n_features, engine
        See :class:`Index`.
    tables : int
        L; more find more. ZZGW23 take 10, 20 and 30.
    bits : int
        b, at most 16; more make smaller buckets. ZZGW23 take 8.
    seed : int
        Public seed of the hyperplanes.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.neighbours import Cosine, FixedRadius, HyperplaneLSH
    >>> rows = Cosine().encode(np.eye(3))
    >>> index = HyperplaneLSH(Cosine(), n_features=3, tables=10, bits=4, seed=1)
    >>> index.add(rows)
    >>> index.search(rows, FixedRadius(Cosine(), 0.5, 3).thresholds(rows)).rows
    array([0, 1, 2], dtype=int32)
    """

    def __init__(
        self,
        kernel: Kernel,
        n_features: int,
        tables: int = 30,
        bits: int = 8,
        seed: int = 0,
        engine: str | None = None,
    ) -> None:
        super().__init__(kernel, n_features, engine)
        self.tables = _checks.integer("tables", tables, least=1)
        self.bits = _checks.integer("bits", bits, least=1, most=16)
        self._normals = _normals(n_features, tables * bits, _checks.integer("seed", seed, least=0))
        width = -(-tables // _LANES) * _LANES
        self._dtype = np.uint8 if bits <= 8 else np.uint16
        self._codes = GrowableArray(width, self._dtype, self.store.block)

    def keys(self, integers: IntegerMatrix) -> npt.NDArray[np.unsignedinteger]:
        chunks = range(0, max(1, len(integers)), _HASHED)
        return np.concatenate([self.codes(integers[at : at + _HASHED]) for at in chunks])

    def add(self, integers: IntegerMatrix, keys: AnyArray | None = None) -> None:
        self._check_integers("integers", integers)
        self._codes.write(len(self.store), self.keys(integers) if keys is None else keys)
        super().add(integers)

    def remove(self, rows: Ints, movers: Ints) -> None:
        new_size = len(self.store) - len(rows)
        holes = rows[rows < new_size]
        super().remove(rows, movers)
        self._codes.put(holes, self._codes.take(movers))
        self._codes.cut(new_size, new_size + len(rows))

    def codes(self, integers: IntegerMatrix) -> npt.NDArray[np.unsignedinteger]:
        """Return the bucket of every row in every table, (m, tables filled up with zeros)."""
        bits = (integers.astype(np.float64) @ self._normals) > 0
        values = bits.reshape(len(integers), self.tables, self.bits) @ (1 << np.arange(self.bits))
        codes = np.zeros((len(integers), -(-self.tables // _LANES) * _LANES), dtype=self._dtype)
        codes[:, : self.tables] = values
        return codes

    def _scan(
        self, queries: IntegerMatrix, block: QueryBlock, allowed: HitBudget
    ) -> list[Hits] | None:
        codes = self.codes(queries)
        # What fills the tables up is 0 for records and 1 for queries, so that it never matches.
        codes[:, self.tables :] = 1
        records = list(zip(self.store.parts(self.store.block), self._codes.blocks, strict=True))

        def scan(query: int) -> list[Hits] | None:
            alone = self.engine.pick(block, np.array([query]))
            scanned = [
                self.engine.scan_some(
                    alone, part, _matching(codes_, codes[query], len(part)), allowed
                )
                for part, codes_ in records
            ]
            hits = [part for part in scanned if part is not None]
            return hits if len(hits) == len(scanned) else None

        scanned = _scan.map_in_threads(scan, range(len(queries)))
        parts = [part for part in scanned if part is not None]
        return [_scan.in_turn(parts)] if len(parts) == len(scanned) else None


def _normals(n_features: int, count: int, seed: int) -> Floats:
    """Return integer-valued Gaussian normals, float64 (d, count), from a public seed."""
    # Public hyperplanes: no privacy hangs on the draw.
    generator = np.random.default_rng(seed)  # noqa: TID251
    return np.asarray(np.rint(generator.normal(size=(n_features, count)) * _STEPS))


@compiled
def _matching(codes, code, size):  # type: ignore[no-untyped-def]
    """Return the positions below `size` whose codes meet `code` in any table, int32 ascending."""
    matching = np.empty(size + 1, dtype=np.int32)
    at = 0
    for i in range(size):
        met = 0
        for table in range(len(code)):
            met |= codes[i, table] == code[table]
        matching[at] = i
        at += met
    return matching[:at]


LEAST_PER_CELL = 8  # public points for a cell, at least: with fewer, cells follow single points

MOST_CELLS = 4096

_ROUNDS = 10
_PROBES = 2000
_NEAREST = 5
_SCORED = 4096
_CHUNK = 1 << 18

_BLOCK = 2048  # records of a cell's block of memory
_TOGETHER = 16  # cells that a thread takes at a time, at least

_TASKS = 4


@dataclass(frozen=True, slots=True)
class CentroidCells:
    """Centroids learnt from public data, and how far beyond the best a query looks.

    The *score* of a vector x and a centroid c is ``factor * <x, c> - offset(c)``, an exact integer.
    x falls into the cell of the highest score (of the lowest number, if several are equal). A query
    looks at every cell whose score is within `margin` of its best.

    - `centroids`, float32 (cells, d): integers of norm at most 4095.
    - `offsets`, int32 (cells,): what each centroid takes off its score.
    - `factor`: the kernel's product factor.
    - `margin`: at least 0.
    """

    centroids: FloatMatrix
    offsets: Ints32
    factor: int
    margin: float

    def __len__(self) -> int:
        return len(self.centroids)

    def scores(self, integers: IntegerMatrix) -> Floats32:
        """Return the score of every vector with every centroid, (m, cells); exact."""
        products = integers.astype(np.float32, copy=False) @ self.centroids.T
        # Products, offsets and scores of RBF are integers below 2^25, of cosine below 2^24; the
        # sum is taken in float64, which holds either.
        return np.asarray(self.factor * products.astype(np.float64) - self.offsets)

    def of(self, integers: IntegerMatrix) -> Ints32:
        """Return the cell of every vector, int32 (m,)."""
        chunks = range(0, len(integers), _SCORED)
        cells = [self.scores(integers[at : at + _SCORED]).argmax(axis=1) for at in chunks]
        return np.concatenate([np.zeros(0, dtype=np.int64), *cells]).astype(np.int32)

    def probed(self, queries: IntegerMatrix) -> Bools:
        """Return which cells each query looks at, bool (q, cells)."""
        scores = self.scores(queries)
        best = scores.max(axis=1, keepdims=True)
        return np.asarray(scores >= best - self.margin)


def cell_count(n_points: int, cells: int | None = None) -> int:
    """Return how many cells so many public points place; raises as :func:`learn_cells`."""
    most = max(1, n_points // (2 * LEAST_PER_CELL))
    count = _checks.integer("cells", min(MOST_CELLS, most) if cells is None else cells, least=1)
    if count > most:
        raise InvalidInput(
            f"The 'cells' parameter must be at most {most} for {n_points} public points. Got "
            f"{count}; pass more public points."
        )
    return count


def learn_cells(
    reference: Reference, radius: Radius, cells: int | None = None, recall: float = 0.95
) -> CentroidCells:
    """Learn centroids from a public reference by k-means, and the margin that finds enough.

    The margin is the smallest that keeps the share `recall` of pairs of public points inside the
    radius. Nothing private is looked at, so the recall among private records is an estimate.

    - `reference`: public points; half of them place the centroids, the other half set the margin.
    - `radius`: the radius that queries will have.
    - `cells`, optional: number of cells; by default one for every 16 public points, at most 4096.
    - `recall`: share of what the radius selects that should be found, above 0 and below 1.

    Raises InvalidInput if there are fewer than 8 public points in the learning half for every cell.
    """
    _checks.real("recall", recall, above=0, below=1)
    count = cell_count(len(reference), cells)
    placed = _placed(reference.kernel, reference.points[::2], count)
    margin = _margin(placed, reference.points[1::2], reference.kernel, radius, recall)
    return CentroidCells(placed.centroids, placed.offsets, placed.factor, margin)


def _placed(kernel: Kernel, points: IntegerMatrix, count: int) -> CentroidCells:
    """Return centroids of public points by Lloyd's iteration, as integers, with no margin yet."""
    cells = _cells(kernel, points[np.linspace(0, len(points) - 1, count).astype(np.int64)])
    for _ in range(_ROUNDS):
        homes = cells.of(points)
        order = np.argsort(homes, kind="stable")
        occupied, starts, sizes = np.unique(homes[order], return_index=True, return_counts=True)
        sums = np.add.reduceat(points[order].astype(np.float64), starts, axis=0)
        # A cell that no point is nearest to stays where it is.
        centers = cells.centroids.astype(np.float64)
        centers[occupied] = sums / sizes[:, None]
        cells = _cells(kernel, centers)
    return cells


def _cells(kernel: Kernel, centers: AnyArray) -> CentroidCells:
    """Return cells around centers, given in the units of integer features."""
    # Cosine compares directions. A mean is no longer than what it is the mean of, and cutting
    # digits off does not make it longer, so products with it stay exact.
    integers = unit_vectors(centers) if kernel.name == "cosine" else np.trunc(centers)
    integers = np.asarray(integers, dtype=np.float32)
    return CentroidCells(integers, kernel.offsets(integers), kernel.product_factor, 0.0)


def _margin(
    cells: CentroidCells, points: IntegerMatrix, kernel: Kernel, radius: Radius, recall: float
) -> float:
    """Return how far below its best score a query must look, by pairs of public points."""
    probes, others = points[:_PROBES], Reference(kernel, points)
    thresholds, scores = radius.thresholds(probes), cells.scores(probes)
    homes = cells.of(points)
    gaps, start = [np.zeros(1)], 0
    for similarities in others.similarities(probes):
        rows = np.arange(start, start + len(similarities))
        similarities[np.arange(len(rows)), rows] = np.iinfo(np.int64).min
        # Where the radius holds few public points, the nearest few stand in for it.
        place = max(0, len(points) - _NEAREST)
        nearest = np.partition(similarities, place, axis=1)[:, place]
        reached = np.minimum(thresholds[rows], nearest)
        who, neighbours = np.nonzero(similarities >= reached[:, None])
        gaps.append(scores[rows].max(axis=1)[who] - scores[rows[who], homes[neighbours]])
        start += len(similarities)
    return float(np.quantile(np.concatenate(gaps), recall, method="higher"))


class PublicCentroids(Index):
    """Records by cell, cells around centroids learnt from public data; rows come cell by cell.

    Record i is a candidate of query q if q looks at the cell that i falls into. Both are functions
    of the record, the query and public numbers (see
    :class:`CentroidCells`). With centroids learnt from the private
    records themselves this would be false.

    - `kernel`, `n_features`, `engine`: see :class:`Index`.
    - `cells`: what was learnt, see :func:`learn_cells`.
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
        return self._size

    @property
    def stride(self) -> int:
        return self.stores[0].stride

    def keys(self, integers: IntegerMatrix) -> Ints32:
        return self.cells.of(integers)

    def add(self, integers: IntegerMatrix, keys: AnyArray | None = None) -> None:
        self._check_integers("integers", integers)
        size = self._size + len(integers)
        if size > len(self._cells):  # with some room to spare
            more = np.zeros(max(size, len(self._cells) * 5 // 4) - len(self._cells), dtype=np.int32)
            self._cells = np.concatenate([self._cells, more])
            self._slots = np.concatenate([self._slots, more])
        for start in range(0, len(integers), _CHUNK):
            part = slice(start, start + _CHUNK)
            homes = self.keys(integers[part]) if keys is None else keys[part]
            self._add(integers[part], homes)

    def remove(self, rows: Ints, movers: Ints) -> None:
        for cell, members in _groups(self._cells[rows]):
            self._remove(cell, np.sort(self._slots[rows[members]].astype(np.int64)))
        new_size = self._size - len(rows)
        holes = rows[rows < new_size]
        for cell, members in _groups(self._cells[movers]):
            slots = self._slots[movers[members]].astype(np.int64)
            self.stores[cell].rename(slots, holes[members].astype(np.int32))
        for column in (self._cells, self._slots):
            column[holes] = column[movers]
            column[new_size : self._size] = 0
        self._size = new_size

    def _add(self, integers: IntegerMatrix, homes: Ints32) -> None:
        names = np.arange(self._size, self._size + len(integers), dtype=np.int32)
        for cell, members in _groups(homes):
            store = self.stores[cell]
            self._slots[names[members]] = np.arange(len(store), len(store) + len(members))
            store.add(integers[members], names[members])
        self._cells[names] = homes
        self._size += len(integers)

    def _remove(self, cell: int, slots: Ints) -> None:
        """Erase the records at sorted `slots` of a cell."""
        store = self.stores[cell]
        new_size = len(store) - len(slots)
        holes, movers = slots[slots < new_size], fill_holes(slots, len(store))
        self._slots[store.name(movers)] = holes
        store.remove(holes, movers, new_size, names=True)

    def _scan(
        self, queries: IntegerMatrix, block: QueryBlock, allowed: HitBudget
    ) -> list[Hits] | None:
        probed = self.cells.probed(queries)
        looked = [
            cell for cell in np.flatnonzero(probed.any(axis=0)).tolist() if len(self.stores[cell])
        ]

        def scan(cells: list[int]) -> list[list[Hits] | None]:
            return [self._scan_cell(cell, block, probed[:, cell], allowed) for cell in cells]

        together = max(_TOGETHER, -(-len(looked) // (_scan.THREADS * _TASKS)))
        tasks = [looked[at : at + together] for at in range(0, len(looked), together)]
        parts_of = [parts for some in _scan.map_in_threads(scan, tasks) for parts in some]
        return None if None in parts_of else [hits for parts in parts_of if parts for hits in parts]

    def _scan_cell(
        self, cell: int, block: QueryBlock, asking: Bools, allowed: HitBudget
    ) -> list[Hits] | None:
        """Return the hits of the queries `asking`, bool (q,), in one cell, or None."""
        chosen = np.flatnonzero(asking)
        some = block if len(chosen) == len(block) else self.engine.pick(block, chosen)
        parts: list[Hits] = []
        for records in self.stores[cell].parts(_BLOCK):
            hits = self.engine.scan(some, records, allowed)
            if hits is None:
                return None
            counts = np.zeros(len(block), dtype=np.int64)
            counts[chosen] = hits[0]
            parts.append((counts, hits[1], hits[2]))
        return parts


def _groups(keys: Ints32) -> list[tuple[int, Ints]]:
    """Return every key with the positions that have it, ascending."""
    order = np.argsort(keys, kind="stable")
    present, starts = np.unique(keys[order], return_index=True)
    stops = np.append(starts[1:], len(keys))
    spans = zip(starts.tolist(), stops.tolist(), strict=False)
    return [(int(key), order[a:b]) for key, (a, b) in zip(present, spans, strict=False)]
