"""Public radii: how near a record must be to take part, decided by public things only."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property

import numpy as np

from vicinal import checks
from vicinal.arrays import Floats, Ints
from vicinal.compiled import compiled
from vicinal.errors import InvalidInput
from vicinal.neighbours.index import ExactIndex
from vicinal.neighbours.kernels import IntegerMatrix, Kernel
from vicinal.neighbours.scan import NeighbourLists

LEAST_COUNT = 30.0
"""A count below this is taken as this, so that noise scales stay bounded (ZZGW23, Alg. 3)."""

_CHUNK = 256
_MOST_PAIRS = 1 << 22
_SAMPLED = 16
# Up to so many largest values are kept in order while others pass; more are selected of all.
_FEW = 64

_LARGE = 1000
_LEAST = -(1 << 31)  # of int32, which similarities are
_FEW_PAIRS = 1 << 13  # up to so many similarities are looked at sooner than a second search is made

_PROBES = 1000
_UNUSUAL = 0.05
_LEAST_QUERIES = 20
_LEAST_POINTS = 100


class Reference:
    """A public, unlabelled set of points against which radii are measured.

    Parameters
    ----------
    kernel : Kernel
        The kernel whose integer similarities are compared.
    points : int8 or float32 (m, d)
        Integer features of the public points, in the kernel's precision.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.neighbours import Cosine, Reference
    >>> public = Cosine().encode(np.eye(3))
    >>> Reference(Cosine(), public).largest(public, rank=1)  # the similarity to itself
    array([16760836, 16760836, 16760836])
    """

    def __init__(self, kernel: Kernel, points: IntegerMatrix) -> None:
        self.kernel = kernel
        self.points = points

    def __len__(self) -> int:
        return len(self.points)

    @cached_property
    def _index(self) -> ExactIndex:
        index = ExactIndex(self.kernel, self.points.shape[1])
        index.add(self.points)
        return index

    @cached_property
    def _sample(self) -> Reference:
        return Reference(self.kernel, self.points[::_SAMPLED])

    def largest(self, queries: IntegerMatrix, rank: int) -> Ints:
        """Return the `rank`-th largest similarity of each query to all points, int64 (q,).

        Where the reference is large, a guess from a sample keeps the search to a few points; the
        result is exact whatever the guess.
        """
        similarities = [np.zeros(0, dtype=np.int64)]
        for start in range(0, len(queries), _CHUNK):
            chunk = queries[start : start + _CHUNK]
            lower = self._guess(chunk, rank)
            similarities.append(
                self.ranked(chunk, rank) if lower is None else self._near(chunk, rank, lower)
            )
        return np.concatenate(similarities)

    def _guess(self, queries: IntegerMatrix, rank: int) -> Ints | None:
        """Return thresholds that most likely let `rank` points in, and few more; None for none."""
        deeper = math.ceil(1.5 * rank / _SAMPLED) + 4
        few = len(queries) * len(self) < _FEW_PAIRS
        if few or len(self) < _LARGE or deeper > len(self) // _SAMPLED:
            return None
        return self._sample.ranked(queries, deeper)

    def ranked(self, queries: IntegerMatrix, rank: int) -> Ints:
        """Return the `rank`-th largest similarity by looking at all of them."""
        at_rank = [
            _rank_th_largest(near.starts, near.similarities, rank) for near in self._all(queries)
        ]
        return np.concatenate([np.zeros(0, dtype=np.int64), *at_rank])

    def _near(self, queries: IntegerMatrix, rank: int, lower: Ints) -> Ints:
        """Return the same by looking at what reaches `lower`; all are looked at where it fails."""
        near = self._index.search(queries, lower)
        similarities = _rank_th_largest(near.starts, near.similarities, rank)
        short = np.diff(near.starts) < rank
        if short.any():
            similarities[short] = self.ranked(queries[short], rank)
        return np.asarray(similarities)

    def similarities(self, queries: IntegerMatrix) -> Iterator[Ints]:
        """Yield exact similarities, int64 (chunk, m), for consecutive chunks of queries."""
        for near in self._all(queries):
            yield near.similarities.astype(np.int64).reshape(len(near), len(self))

    def _all(self, queries: IntegerMatrix) -> Iterator[NeighbourLists]:
        """Yield lists of all points, in their order, for consecutive chunks of queries."""
        step = max(1, min(_CHUNK, _MOST_PAIRS // max(1, len(self))))
        for start in range(0, len(queries), step):
            chunk = queries[start : start + step]
            # Every point reaches this threshold, in the order of the points.
            yield self._index.search(chunk, np.full(len(chunk), -(1 << 40)))


class Radius(ABC):
    """Turns queries into similarity thresholds, without looking at any private record.

    Examples
    --------
    >>> from vicinal.neighbours import Cosine, Radius
    >>> from vicinal.neighbours.radius import FixedRadius
    >>> isinstance(FixedRadius(Cosine(), 0.5, n_features=3), Radius)
    True
    """

    @abstractmethod
    def thresholds(self, queries: IntegerMatrix) -> Ints:
        """Return the smallest similarity that takes part in each query, int64 (q,)."""

    @abstractmethod
    def expected(self, queries: IntegerMatrix) -> Floats:
        """Return the public estimate of each query's number of neighbours, float64 (q,)."""

    def covers(self, queries: IntegerMatrix) -> bool:  # noqa: ARG002
        """Tell whether the public set lies where the queries do, as far as can be seen."""
        return True


class FixedRadius(Radius):
    """One kernel value tau for all queries (ZZGW23, Algorithm 3).

    - `kernel`: the kernel that `tau` is a value of.
    - `tau`: records whose kernel value is at least this take part.
    - `n_features`: number of features.
    - `reference`, `n_records`: A public reference and the public size; needed for :meth:`expected`
      only.
    """

    def __init__(
        self,
        kernel: Kernel,
        tau: float,
        n_features: int,
        reference: Reference | None = None,
        n_records: int = 1,
    ) -> None:
        self._similarity = kernel.similarity_at(tau, n_features)
        self._reference = reference
        self._n_records = n_records

    def thresholds(self, queries: IntegerMatrix) -> Ints:
        return np.full(len(queries), self._similarity, dtype=np.int64)

    def expected(self, queries: IntegerMatrix) -> Floats:
        if self._reference is None:
            raise InvalidInput(
                "A public count with a fixed radius needs a public reference set. Pass 'public' "
                "to fit, or use neighbor_count='private'."
            )
        shares = [
            (similarities >= self._similarity).mean(axis=1)
            for similarities in self._reference.similarities(queries)
        ]
        counts = np.concatenate([np.zeros(0), *shares]) * self._n_records
        return np.asarray(np.maximum(counts, LEAST_COUNT))


class AdaptiveRadius(Radius):
    """The radius at which a public reference set holds its share of `n_neighbors`.

    tau(q) is the m-th largest similarity between q and the reference R, m = max(1, round(k |R| /
    n)): about k of n private records then take part in every query, and nothing private decides
    it.

    - `reference`: the public set R.
    - `n_neighbors`: k, the number of private neighbours to expect.
    - `n_records`: n, the public estimate of the number of private records.
    """

    def __init__(self, reference: Reference, n_neighbors: int, n_records: int) -> None:
        self._count = checks.check_integer("n_neighbors", n_neighbors, least=1)
        checks.check_integer("n_records", n_records, least=1)
        share = round(n_neighbors * len(reference) / n_records)
        self.rank = min(len(reference), max(1, share))
        self._reference = reference

    def thresholds(self, queries: IntegerMatrix) -> Ints:
        return self._reference.largest(queries, self.rank)

    def covers(self, queries: IntegerMatrix) -> bool:
        """Tell whether queries have the reference as near as its own points have each other.

        Half of them must be nearer than all but a twentieth of those points. Where they are not,
        far more records than planned can lie inside the radius, and budgets are gone early.
        """
        if len(queries) < _LEAST_QUERIES or len(self._reference) < _LEAST_POINTS:
            return True
        usual = np.quantile(self._own_thresholds, _UNUSUAL)
        return bool(np.median(self.thresholds(queries)) >= usual)

    @cached_property
    def _own_thresholds(self) -> Ints:
        """Thresholds of points of the reference, each without itself."""
        rank = min(self.rank + 1, len(self._reference))
        return self._reference.largest(self._reference.points[:_PROBES], rank)

    def expected(self, queries: IntegerMatrix) -> Floats:
        return np.full(len(queries), float(self._count))


@compiled
def _rank_th_largest(starts, values, rank):  # type: ignore[no-untyped-def]
    """Return the `rank`-th largest of each query's values, int64 (q,); 0 where there are fewer."""
    largest = np.zeros(len(starts) - 1, dtype=np.int64)
    best = np.empty(rank, dtype=values.dtype)
    for j in range(len(largest)):
        own = values[starts[j] : starts[j + 1]]
        if len(own) < rank:
            continue
        if rank > _FEW:
            own = own.copy()
            select_largest(own, rank)
            largest[j] = own[len(own) - rank]
            continue
        best[:] = _LEAST  # any value replaces it, or is as small itself
        for value in own:
            if value > best[0]:
                _replace_least(best, value)
        largest[j] = best[0]
    return largest


@compiled
def _replace_least(ascending, value):  # type: ignore[no-untyped-def]
    """Put a value that is larger than the least in its place among ascending ones."""
    at = 0
    while at + 1 < len(ascending) and ascending[at + 1] < value:
        ascending[at] = ascending[at + 1]
        at += 1
    ascending[at] = value


@compiled
def select_largest(values, count):  # type: ignore[no-untyped-def]
    """Move the `count` largest of some integers to their end, in place; 1 <= count <= their number.

    The least of them stands first there. Hoare's selection about the median of three.
    """
    place = len(values) - count
    low, high = 0, len(values) - 1
    while low < high:
        pivot = _median(values[low], values[(low + high) // 2], values[high])
        first, last = low, high
        while first <= last:
            while values[first] < pivot:
                first += 1
            while values[last] > pivot:
                last -= 1
            if first <= last:
                values[first], values[last] = values[last], values[first]
                first, last = first + 1, last - 1
        if place <= last:
            high = last
        elif place >= first:
            low = first
        else:
            return


@compiled
def _median(one, two, three):  # type: ignore[no-untyped-def]
    return max(min(one, two), min(max(one, two), three))
