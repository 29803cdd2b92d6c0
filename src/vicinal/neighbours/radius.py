"""Public radii: how near a record must be to take part, decided by public things only."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from vicinal import checks
from vicinal.errors import InvalidInput
from vicinal.neighbours.integers import FloatMatrix
from vicinal.neighbours.kernels import Kernel

LEAST_COUNT = 30.0
"""A count below this is taken as this, so that noise scales stay bounded (ZZGW23, Alg. 3)."""

_CHUNK = 256


class Reference:
    """A public, unlabelled set of points against which radii are measured.

    Parameters
    ----------
    kernel : Kernel
        The kernel whose integer similarities are compared.
    points : float32 (m, d)
        Integer features of the public points.
    """

    def __init__(self, kernel: Kernel, points: FloatMatrix) -> None:
        self.kernel = kernel
        self.points = points
        self._offsets = kernel.offsets(points).astype(np.int64)

    def __len__(self) -> int:
        """Return the number of points."""
        return len(self.points)

    def similarities(self, queries: FloatMatrix) -> Iterator[npt.NDArray[np.int64]]:
        """Yield exact similarities, int64 (chunk, m), for consecutive chunks of queries."""
        for start in range(0, len(queries), _CHUNK):
            chunk = queries[start : start + _CHUNK]
            products = (chunk @ self.points.T).astype(np.int64)
            own = self.kernel.offsets(chunk).astype(np.int64)
            yield products * self.kernel.product_factor - self._offsets - own[:, None]


class Radius(ABC):
    """Turns queries into similarity thresholds, without looking at any private record."""

    @abstractmethod
    def thresholds(self, queries: FloatMatrix) -> npt.NDArray[np.int64]:
        """Return the smallest similarity that takes part in each query, int64 (q,)."""

    @abstractmethod
    def expected(self, queries: FloatMatrix) -> npt.NDArray[np.float64]:
        """Return the public estimate of each query's number of neighbours, float64 (q,)."""


class FixedRadius(Radius):
    """One kernel value tau for all queries (ZZGW23, Algorithm 3).

    Parameters
    ----------
    kernel : Kernel
        The kernel that `tau` is a value of.
    tau : float
        Records whose kernel value is at least this take part.
    n_features : int
        Number of features.
    reference, n_records
        A public reference and the public size; needed for :meth:`expected` only.
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

    def thresholds(self, queries: FloatMatrix) -> npt.NDArray[np.int64]:
        """Return the same similarity for every query."""
        return np.full(len(queries), self._similarity, dtype=np.int64)

    def expected(self, queries: FloatMatrix) -> npt.NDArray[np.float64]:
        """Return the reference's share inside the radius, scaled to the number of records."""
        if self._reference is None:
            raise InvalidInput(
                "A public count with a fixed radius needs a public reference set. Pass 'public' "
                "to fit, or use count='private'."
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

    Parameters
    ----------
    reference : Reference
        The public set R.
    n_neighbors : int
        k, the number of private neighbours to expect.
    n_records : int
        n, the public estimate of the number of private records.
    """

    def __init__(self, reference: Reference, n_neighbors: int, n_records: int) -> None:
        self._count = checks.integer("n_neighbors", n_neighbors, least=1)
        checks.integer("n_records", n_records, least=1)
        share = round(n_neighbors * len(reference) / n_records)
        self.rank = min(len(reference), max(1, share))
        self._reference = reference

    def thresholds(self, queries: FloatMatrix) -> npt.NDArray[np.int64]:
        """Return the rank-th largest similarity of each query to the reference."""
        place = len(self._reference) - self.rank
        found = [
            np.partition(similarities, place, axis=1)[:, place]
            for similarities in self._reference.similarities(queries)
        ]
        return np.concatenate([np.zeros(0, dtype=np.int64), *found])

    def expected(self, queries: FloatMatrix) -> npt.NDArray[np.float64]:
        """Return `n_neighbors` for every query."""
        return np.full(len(queries), float(self._count))
