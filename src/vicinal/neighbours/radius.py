"""Public radii: similarity thresholds of neighbours that depend on public values only.

Everywhere in this module, `queries`, (q, d), are integer features.
"""

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
from vicinal.neighbours.index import NO_THRESHOLD, ExactIndex
from vicinal.neighbours.kernels import IntegerMatrix, Kernel
from vicinal.neighbours.scan import NeighbourLists

MIN_COUNT = 30.0
"""Smallest number of neighbours: smaller ones are raised to it to bound noise (ZZGW23, Alg. 3)."""

_CHUNK_QUERIES = 256  # queries compared with the reference at a time
_MAX_PAIRS = 1 << 22  # similarities to all points that are held at a time
_SAMPLE_STRIDE = 16  # one of this many points is in the sample
_MAX_SORTED_RANK = 64  # up to this rank the largest values are kept sorted during one pass

_MIN_POINTS_TO_GUESS = 1000  # smaller references are compared completely
_INT32_MIN = -(1 << 31)  # similarities are int32
_MIN_PAIRS_TO_GUESS = 1 << 13  # with fewer pairs one complete search is faster than two

_N_PROBES = 1000  # reference points whose own thresholds are computed
_UNUSUAL_QUANTILE = 0.05  # share of these points that may lie farther off than the median query
_MIN_QUERIES_TO_COMPARE = 20  # with fewer queries no median is estimated
_MIN_POINTS_TO_COMPARE = 100  # with fewer points no quantile is estimated


class Reference:
    """A public, unlabelled set of points from which radii are computed.

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
    >>> Reference(Cosine(), public).find_similarity_at_rank(
    ...     public, rank=1
    ... )  # the similarity to itself
    array([16760836, 16760836, 16760836])
    """

    def __init__(self, kernel: Kernel, points: IntegerMatrix) -> None:
        self.kernel = kernel
        self.points = points

    def __len__(self) -> int:
        """Return the number of points."""
        return len(self.points)

    @cached_property
    def _index(self) -> ExactIndex:
        """An index of all points, built on first use."""
        index = ExactIndex(self.kernel, self.points.shape[1])
        index.add(self.points)
        return index

    @cached_property
    def _sample(self) -> Reference:
        """Every 16th point as a reference of its own, for guesses of thresholds."""
        return Reference(self.kernel, self.points[::_SAMPLE_STRIDE])

    def find_similarity_at_rank(self, queries: IntegerMatrix, rank: int) -> Ints:
        """Return the `rank`-th largest similarity of each query to the points, int64 (q,).

        For a large reference, thresholds guessed from a sample restrict the search to a few points.
        The result is exact for any guess.
        """
        at_rank = [np.zeros(0, dtype=np.int64)]
        for start in range(0, len(queries), _CHUNK_QUERIES):
            chunk = queries[start : start + _CHUNK_QUERIES]
            thresholds = self._guess_thresholds(chunk, rank)
            if thresholds is None:
                at_rank.append(self.scan_similarity_at_rank(chunk, rank))
                continue
            lists = self._index.search(chunk, thresholds)
            similarities = select_rank(lists.starts, lists.similarities, rank)
            # Queries with fewer than `rank` points above the guess are compared with all points.
            is_short = np.diff(lists.starts) < rank
            if is_short.any():
                similarities[is_short] = self.scan_similarity_at_rank(chunk[is_short], rank)
            at_rank.append(similarities)
        return np.concatenate(at_rank)

    def _guess_thresholds(self, queries: IntegerMatrix, rank: int) -> Ints | None:
        """Return thresholds, int64 (q,), that probably slightly more than `rank` points reach.

        None if the reference or the number of queries is too small for a guess to save time.
        """
        sample_rank = math.ceil(1.5 * rank / _SAMPLE_STRIDE) + 4
        has_few_pairs = len(queries) * len(self) < _MIN_PAIRS_TO_GUESS
        has_few_points = len(self) < _MIN_POINTS_TO_GUESS
        if has_few_pairs or has_few_points or sample_rank > len(self) // _SAMPLE_STRIDE:
            return None
        return self._sample.scan_similarity_at_rank(queries, sample_rank)

    def scan_similarity_at_rank(self, queries: IntegerMatrix, rank: int) -> Ints:
        """Return the result of :meth:`find_similarity_at_rank`, found in all similarities."""
        at_rank = [
            select_rank(lists.starts, lists.similarities, rank)
            for lists in self._iterate_lists(queries)
        ]
        return np.concatenate([np.zeros(0, dtype=np.int64), *at_rank])

    def iterate_similarities(self, queries: IntegerMatrix) -> Iterator[Ints]:
        """Yield the similarities to all points, int64 (chunk, m), for chunks of the queries."""
        for lists in self._iterate_lists(queries):
            yield lists.similarities.astype(np.int64).reshape(len(lists), len(self))

    def _iterate_lists(self, queries: IntegerMatrix) -> Iterator[NeighbourLists]:
        """Yield lists of all points, in their order, for consecutive chunks of the queries."""
        chunk_size = max(1, min(_CHUNK_QUERIES, _MAX_PAIRS // max(1, len(self))))
        for start in range(0, len(queries), chunk_size):
            chunk = queries[start : start + chunk_size]
            # Hits are in the order of the points.
            yield self._index.search(chunk, np.full(len(chunk), NO_THRESHOLD))


class Radius(ABC):
    """A function from queries to similarity thresholds that uses no private record.

    Examples
    --------
    >>> from vicinal.neighbours import Cosine, Radius
    >>> from vicinal.neighbours.radius import FixedRadius
    >>> isinstance(FixedRadius(Cosine(), 0.5, n_features=3), Radius)
    True
    """

    @abstractmethod
    def thresholds(self, queries: IntegerMatrix) -> Ints:
        """Return the smallest similarity of a neighbour of each query, int64 (q,)."""

    @abstractmethod
    def estimate_counts(self, queries: IntegerMatrix) -> Floats:
        """Return a public estimate of each query's number of neighbours, float64 (q,)."""

    def covers(self, queries: IntegerMatrix) -> bool:  # noqa: ARG002
        """Return whether the queries are about as close to the public set as its own points.

        True if the radius does not depend on a public set.
        """
        return True


class FixedRadius(Radius):
    """The same kernel value tau for all queries (ZZGW23, Algorithm 3).

    `tau`: the smallest value of the `kernel`, on vectors of `n_features`, of a neighbour.
    `reference`, `n_records`: public points and record count, for :meth:`estimate_counts` only.
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
        """Return the similarity whose kernel value is tau, for each query, int64 (q,)."""
        return np.full(len(queries), self._similarity, dtype=np.int64)

    def estimate_counts(self, queries: IntegerMatrix) -> Floats:
        """Return the share of public points inside the radius, times `n_records`, float64 (q,).

        Counts below :data:`MIN_COUNT` are raised to it. Raises InvalidInput without a reference.
        """
        if self._reference is None:
            raise InvalidInput(
                "A public count with a fixed radius needs a public reference set. Pass 'public' "
                "to fit, or use neighbor_count='private'."
            )
        shares = [
            (similarities >= self._similarity).mean(axis=1)
            for similarities in self._reference.iterate_similarities(queries)
        ]
        counts = np.concatenate([np.zeros(0), *shares]) * self._n_records
        return np.asarray(np.maximum(counts, MIN_COUNT))


class AdaptiveRadius(Radius):
    """The radius inside which a public reference has its share of `n_neighbors`.

    tau(q) is the m-th largest similarity between q and the reference R, with m = max(1,
    round(k |R| / n)): then about k of n private records are neighbours of each query, and no
    private value is used.

    - `reference`: the public set R.
    - `n_neighbors`: k, the expected number of private neighbours.
    - `n_records`: n, the public estimate of the number of private records.
    """

    def __init__(self, reference: Reference, n_neighbors: int, n_records: int) -> None:
        self._n_neighbors = checks.check_integer("n_neighbors", n_neighbors, minimum=1)
        checks.check_integer("n_records", n_records, minimum=1)
        n_reference_neighbours = round(n_neighbors * len(reference) / n_records)
        self.rank = min(len(reference), max(1, n_reference_neighbours))
        self._reference = reference

    def thresholds(self, queries: IntegerMatrix) -> Ints:
        """Return the similarity of each query to its m-th nearest point, int64 (q,)."""
        return self._reference.find_similarity_at_rank(queries, self.rank)

    def covers(self, queries: IntegerMatrix) -> bool:
        """Return whether the queries are about as close to the reference as its own points are.

        The median threshold of the queries must reach the 5 % quantile of the thresholds of
        reference points. Otherwise more records than planned can vote and spend their budgets.
        """
        if len(queries) < _MIN_QUERIES_TO_COMPARE or len(self._reference) < _MIN_POINTS_TO_COMPARE:
            return True
        usual_threshold = np.quantile(self._own_thresholds, _UNUSUAL_QUANTILE)
        return bool(np.median(self.thresholds(queries)) >= usual_threshold)

    @cached_property
    def _own_thresholds(self) -> Ints:
        """Thresholds of some reference points, int64, each computed without the point itself."""
        rank = min(self.rank + 1, len(self._reference))
        return self._reference.find_similarity_at_rank(self._reference.points[:_N_PROBES], rank)

    def estimate_counts(self, queries: IntegerMatrix) -> Floats:
        """Return the planned number of neighbours, `n_neighbors`, for each query, (q,)."""
        return np.full(len(queries), float(self._n_neighbors))


@compiled
def select_rank(starts, values, rank):  # type: ignore[no-untyped-def]
    """Return the `rank`-th largest of each query's values, int64 (q,); 0 if there are fewer.

    The values of query j, int32 similarities, are ``values[starts[j]:starts[j + 1]]``.
    """
    largest = np.zeros(len(starts) - 1, dtype=np.int64)
    top_values = np.empty(rank, dtype=values.dtype)
    for j in range(len(largest)):
        query_values = values[starts[j] : starts[j + 1]]
        if len(query_values) < rank:
            continue
        if rank > _MAX_SORTED_RANK:
            query_values = query_values.copy()
            select_largest(query_values, rank)
            largest[j] = query_values[len(query_values) - rank]
            continue
        top_values[:] = _INT32_MIN  # any value replaces it or equals it
        for value in query_values:
            if value > top_values[0]:
                _replace_smallest(top_values, value)
        largest[j] = top_values[0]
    return largest


@compiled
def _replace_smallest(ascending, value):  # type: ignore[no-untyped-def]
    """Replace the smallest entry of an ascending array (k,) by a larger `value`; sort it again."""
    index = 0
    while index + 1 < len(ascending) and ascending[index + 1] < value:
        ascending[index] = ascending[index + 1]
        index += 1
    ascending[index] = value


@compiled
def select_largest(values, count):  # type: ignore[no-untyped-def]
    """Move the `count` largest of the integers `values`, (n,), to the end, in place.

    The smallest of them comes first there; 1 <= count <= n. Hoare's selection, median of three.
    """
    target = len(values) - count
    low, high = 0, len(values) - 1
    while low < high:
        pivot = _compute_median(values[low], values[(low + high) // 2], values[high])
        first, last = low, high
        while first <= last:
            while values[first] < pivot:
                first += 1
            while values[last] > pivot:
                last -= 1
            if first <= last:
                values[first], values[last] = values[last], values[first]
                first, last = first + 1, last - 1
        if target <= last:
            high = last
        elif target >= first:
            low = first
        else:
            return


@compiled
def _compute_median(first, second, third):  # type: ignore[no-untyped-def]
    """Return the median of three numbers."""
    return max(min(first, second), min(max(first, second), third))
