"""Where a query lies among the public points: which of them are the nearest.

Two queries that have the same public points around them are alike, however far apart their
features put them: what many public points say about the shape of the data is worth more than a
distance where answers are few (shared nearest neighbours, Jarvis & Patrick 1973). Counting shared
points is an inner product, hence a kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.sparse import csr_array, vstack

from vicinal._arrays import FloatMatrix, Floats

SHARE = 64
"""One in so many public points is near a query."""

LEAST = 5
"""At least so many are, if there are as many."""


@dataclass(frozen=True, slots=True, eq=False)
class LocatedQueries:
    """Queries, and where they lie.

    `rows`, float64 (q, d): features. `near`, csr_array (q, m): the public points near each, as rows
    of length one; m = 0 without a public reference.
    """

    rows: Floats
    near: csr_array

    def __len__(self) -> int:
        """Return the number of queries."""
        return len(self.rows)

    @classmethod
    def joined(cls, parts: Sequence[LocatedQueries]) -> Self:
        """Return consecutive queries as one."""
        near = csr_array(vstack([part.near for part in parts]))
        return cls(np.concatenate([part.rows for part in parts]), near)

    def newest(self, most: int) -> LocatedQueries:
        """Return the last queries, `most` of them at most."""
        return LocatedQueries(self.rows[-most:], self.near[max(0, len(self) - most) :])

    def shared(self, other: LocatedQueries) -> Floats | None:
        """Return the share of near points that are near to both, (q, r); None without any."""
        if not self.near.shape[1]:
            return None
        return np.asarray((self.near @ other.near.T).toarray())


class ReferenceNeighborhoods:
    """The public points among which queries are located.

    `reference`, float array (m, d): public points in the features of the queries; none at all is
    allowed.
    """

    def __init__(self, reference: FloatMatrix) -> None:
        self._points = reference.astype(np.float32)
        self._halves = np.square(self._points).sum(axis=1) / 2
        self._near = min(len(reference), max(LEAST, len(reference) // SHARE))

    def locate(self, rows: Floats) -> LocatedQueries:
        """Return queries (q, d) with the public points nearest to them."""
        width = len(self._points)
        if not width:
            return LocatedQueries(rows, csr_array((len(rows), 0)))
        # The nearest have the largest <x, r> - |r|^2 / 2.
        closeness = rows.astype(np.float32) @ self._points.T - self._halves
        chosen = np.argpartition(-closeness, self._near - 1, axis=1)[:, : self._near]
        starts = np.arange(0, chosen.size + 1, self._near)
        values = np.full(chosen.size, self._near**-0.5)
        return LocatedQueries(rows, csr_array((values, chosen.ravel(), starts), (len(rows), width)))
