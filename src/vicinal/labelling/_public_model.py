"""A classifier of public answers: kernel ridge regression on the features of public examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.lapack import dpotri
from scipy.sparse import csr_array
from scipy.special import log_softmax, softmax

from vicinal._arrays import FloatMatrix, Floats, Places

# ----------------------------------------------------------------
# Where a query lies among the public points: which of them are the nearest.
#
# Two queries that have the same public points around them are alike, however far apart their
# features put them: what many public points say about the shape of the data is worth more than a
# distance where answers are few (shared nearest neighbours, Jarvis & Patrick 1973). Counting shared
# points is an inner product, hence a kernel.


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


# ----------------------------------------------------------------
# A classifier of public answers: kernel ridge regression that knows how sure it may be.
#
# Released answers are few and noisy; a smooth function on the features fits them better than a
# linear one, and takes a tenth of a second. What is smooth is told by the features and by the
# public points that queries have around them. How sure it may be is calibrated by its own
# leave-one-out predictions, which ridge regression has in closed form (Rasmussen & Williams 2006,
# 5.4.2).


RIDGE = 0.3
"""Added to the diagonal of the kernel matrix: answers are noisy."""

MOST = 4000
"""The newest answers that are used: the time of a fit grows with the cube of their number."""

_SPREAD_OF = 300  # rows whose median distance sets the kernel
_TEMPERATURES = np.geomspace(0.5, 30.0, 40)


class PublicModel:
    """Kernel ridge regression on one-hot answers, with the kernel exp(-2 |x - q|^2 / m).

    Where there are public points, the kernel is the mean of that and of the share of near public
    points that two queries have in common. m is the median squared distance of the first rows: 2
    for rows of length one without a common direction.

    `n_classes`: number of classes; answers are their positions.
    """

    def __init__(self, n_classes: int) -> None:
        self._n_classes = n_classes
        self._located: LocatedQueries | None = None
        self._steepness = 1.0
        self._weights: Floats = np.zeros((0, n_classes))
        self._sharpness = 1.0

    def fit(self, queries: LocatedQueries, answers: Places) -> Self:
        """Fit to the newest answers: n queries, and positions (n,)."""
        self._located, answers = queries.newest(MOST), answers[-MOST:]
        targets = np.eye(self._n_classes)[answers] - 1 / self._n_classes
        some = queries.rows[:_SPREAD_OF]
        self._steepness = 2 / max(float(np.median(_squared_distances(some, some))), 1e-12)
        ridged = self._kernel(self._located, self._located)
        ridged[np.diag_indices_from(ridged)] += RIDGE
        factor = cho_factor(ridged)
        self._weights = cho_solve(factor, targets)
        # Solving for the identity would take three times as long.
        inverse = dpotri(*factor)[0].diagonal()
        left_out = targets - self._weights / inverse[:, None]
        likelihoods = [
            log_softmax(sharpness * left_out, axis=1)[np.arange(len(answers)), answers].mean()
            for sharpness in _TEMPERATURES
        ]
        self._sharpness = float(_TEMPERATURES[int(np.argmax(likelihoods))])
        return self

    def chances(self, queries: LocatedQueries) -> Floats:
        """Return how likely each class is the answer, (q, c), after :meth:`fit`."""
        assert self._located is not None  # noqa: S101 (narrows the type: fitted first)
        scores = self._kernel(queries, self._located) @ self._weights
        return np.asarray(softmax(self._sharpness * scores, axis=1))

    def _kernel(self, left: LocatedQueries, right: LocatedQueries) -> Floats:
        smooth = np.exp(-self._steepness * _squared_distances(left.rows, right.rows))
        shared = left.shared(right)
        return np.asarray(smooth if shared is None else (smooth + shared) / 2)


def _squared_distances(left: Floats, right: Floats) -> Floats:
    lengths = np.square(left).sum(axis=1)[:, None] + np.square(right).sum(axis=1)
    return np.asarray(np.maximum(lengths - 2 * left @ right.T, 0.0))
