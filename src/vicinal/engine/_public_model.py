"""A classifier of public answers: kernel ridge regression that knows how sure it may be.

Released answers are few and noisy; a smooth function on the features fits them better than a linear
one, and takes a tenth of a second. What is smooth is told by the features and by the public points
that queries have around them. How sure it may be is calibrated
by its own leave-one-out predictions, which ridge regression has in closed form (Rasmussen &
Williams 2006, 5.4.2).
"""

from __future__ import annotations

from typing import Self

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.lapack import dpotri
from scipy.special import log_softmax, softmax

from vicinal._arrays import Floats, Places
from vicinal.engine._reference_neighborhoods import LocatedQueries

RIDGE = 0.3
"""Added to the diagonal of the kernel matrix: answers are noisy."""

MOST = 4000
"""The newest answers that are used: the time of a fit grows with the cube of their number."""

_PROBES = 300
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
        some = queries.rows[:_PROBES]
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
