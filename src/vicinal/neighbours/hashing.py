"""Locality-sensitive hashing with random hyperplanes, as in ZZGW23 (section 3.2, Table 3).

Each of L tables divides space by b hyperplanes through the origin, whose Gaussian normals come from
a public seed; the b signs give the bucket of a record, one of 2^b. The candidates of a query are
the union of its L buckets.
"""

import numpy as np
import numpy.typing as npt

from vicinal import checks
from vicinal.arrays import Floats, Ints
from vicinal.compiled import compiled
from vicinal.neighbours.index import GrowableArray, Index
from vicinal.neighbours.kernels import IntegerMatrix, Kernel
from vicinal.neighbours.scan import HitBudget, Hits, MinScores, join_single_queries, map_in_threads

_NORMAL_SCALE = 1 << 16
"""Integer steps per standard deviation of normals: float64 products stay exact, below 2^53."""

_TABLE_GROUP = 32
"""The number of stored tables is a multiple of this, so that comparisons fill a vector."""

_CHUNK_SIZE = 1 << 14  # records hashed at a time


class HyperplaneLSH(Index):
    """L hash tables of b random hyperplanes; rows of a query are ascending.

    Record i is a candidate of query q if they share the bucket of any table: a function of the two
    and the public seed. Buckets are computed in integers, so that no sign depends on the other
    records that are hashed at the same time.

    Parameters
    ----------
    kernel : Kernel
        The kernel whose similarities are compared, with its precision.
    n_features : int
        Number of integer features d of a record, the kernel's ``width``.
    engine : str, optional
        Name of the engine that computes products; all engines return the same hits.
    tables : int
        Number of tables L; more tables find more neighbours. ZZGW23 use 10, 20 and 30.
    bits : int
        Hyperplanes b per table, at most 16; more give smaller buckets. ZZGW23 use 8.
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
        self.tables = checks.check_integer("tables", tables, minimum=1)
        self.bits = checks.check_integer("bits", bits, minimum=1, maximum=16)
        checks.check_integer("seed", seed, minimum=0)
        # Public hyperplanes: no guarantee depends on this draw.
        generator = np.random.default_rng(seed)  # noqa: TID251
        normals = generator.normal(size=(n_features, tables * bits))
        self._normals: Floats = np.rint(normals * _NORMAL_SCALE)  # (d, tables * bits)
        self._n_stored_tables = -(-tables // _TABLE_GROUP) * _TABLE_GROUP
        self._dtype = np.uint8 if bits <= 8 else np.uint16
        self._buckets = GrowableArray(
            self._n_stored_tables, self._dtype, self.feature_rows.block_rows
        )

    def add(self, integers: IntegerMatrix) -> None:
        """Append records, given as integer features (m, d), and store their buckets."""
        self._check_integers("integers", integers)
        for start in range(0, len(integers), _CHUNK_SIZE):
            self._buckets.write(
                len(self.feature_rows) + start,
                self.hash_rows(integers[start : start + _CHUNK_SIZE]),
            )
        super().add(integers)

    def remove(self, rows: Ints, movers: Ints) -> None:
        """Erase the records in `rows` and their buckets as :meth:`Index.remove` does."""
        new_size = len(self.feature_rows) - len(rows)
        holes = rows[rows < new_size]
        super().remove(rows, movers)
        self._buckets.put(holes, self._buckets.take(movers))
        self._buckets.truncate(new_size, new_size + len(rows))

    def hash_rows(self, integers: IntegerMatrix) -> npt.NDArray[np.unsignedinteger]:
        """Return the bucket number of each row of integer features (m, d) in each table.

        The result is uint8 or uint16, (m, number of tables rounded up to a multiple of 32).
        """
        bits = (integers.astype(np.float64) @ self._normals) > 0
        numbers = bits.reshape(len(integers), self.tables, self.bits) @ (1 << np.arange(self.bits))
        buckets = np.zeros((len(integers), self._n_stored_tables), dtype=self._dtype)
        buckets[:, : self.tables] = numbers
        return buckets

    def _scan(
        self, queries: IntegerMatrix, min_scores: MinScores, hit_budget: HitBudget
    ) -> list[Hits]:
        """Return the hits of each of the `queries` (q, d) among records in one of its buckets."""
        buckets = self.hash_rows(queries)
        # The padding is 0 for records and 1 for queries, so that it never matches.
        buckets[:, self.tables :] = 1
        stored_blocks = self.feature_rows.iterate_records(self.feature_rows.block_rows)
        records = list(zip(stored_blocks, self._buckets.blocks, strict=True))

        def scan_query(query: int) -> list[Hits]:
            """Return the hits of the query of this index in each block of records."""
            single = slice(query, query + 1)
            block = self._prepare(queries[single], min_scores[single])
            hits = []
            for block_records, block_buckets in records:
                matches = _find_matches(block_buckets, buckets[query], len(block_records))
                hits.append(self.engine.scan(block, block_records, hit_budget, matches))
            return hits

        return [join_single_queries(map_in_threads(scan_query, range(len(queries))))]


@compiled
def _find_matches(record_buckets, query_buckets, size):  # type: ignore[no-untyped-def]
    """Return the indices of the records that share a bucket with a query in any table, ascending.

    `record_buckets` (rows, tables), `query_buckets` (tables,): bucket in each table; only the first
    `size` rows hold records.
    """
    matches = np.empty(size + 1, dtype=np.int32)
    n_matches = 0
    for i in range(size):
        is_match = 0
        for table in range(len(query_buckets)):
            is_match |= record_buckets[i, table] == query_buckets[table]
        matches[n_matches] = i
        n_matches += is_match
    return matches[:n_matches]
