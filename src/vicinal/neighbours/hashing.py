"""Hashing with random hyperplanes, as ZZGW23 (section 3.2, Table 3) use it for efficiency.

Each of L tables cuts space with b hyperplanes through the origin, whose normals are Gaussian and
drawn from a public seed; a record falls into one of 2^b buckets by the signs. The candidates of a
query are the union of its L buckets.
"""

import numpy as np
import numpy.typing as npt

from vicinal import checks
from vicinal.arrays import Floats, Ints
from vicinal.compiled import compiled
from vicinal.neighbours import scan as _scan
from vicinal.neighbours.engines import HitBudget, QueryBlock
from vicinal.neighbours.index import GrowableArray, Index
from vicinal.neighbours.kernels import IntegerMatrix, Kernel
from vicinal.neighbours.scan import Hits

# Steps of a standard deviation that normals are rounded to; their products stay below 2^53.
_STEPS = 1 << 16

_LANES = 32  # tables are stored in multiples of this, so that comparisons fill a vector

_HASHED = 1 << 14


class HyperplaneLSH(Index):
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
    >>> from vicinal.neighbours import Cosine, HyperplaneLSH
    >>> from vicinal.neighbours.radius import FixedRadius
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
        self.tables = checks.check_integer("tables", tables, least=1)
        self.bits = checks.check_integer("bits", bits, least=1, most=16)
        self._normals = _normals(
            n_features, tables * bits, checks.check_integer("seed", seed, least=0)
        )
        width = -(-tables // _LANES) * _LANES
        self._dtype = np.uint8 if bits <= 8 else np.uint16
        self._codes = GrowableArray(width, self._dtype, self.store.block)

    def add(self, integers: IntegerMatrix) -> None:
        self._check_integers("integers", integers)
        for at in range(0, len(integers), _HASHED):
            self._codes.write(len(self.store) + at, self.codes(integers[at : at + _HASHED]))
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
