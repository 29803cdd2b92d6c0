"""A classifier of public answers: kernel ridge regression that knows how sure it may be.

Released answers are few and noisy; a smooth function on the features fits them better than a linear
one, and takes a tenth of a second. How sure it may be is calibrated by its own leave-one-out
predictions, which ridge regression has in closed form (Rasmussen & Williams 2006, 5.4.2).
"""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve
from scipy.special import log_softmax, softmax

Matrix = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

RIDGE = 0.3
"""Added to the diagonal of the kernel matrix: answers are noisy."""

MOST = 4000
"""The newest answers that are used: the time of a fit grows with the cube of their number."""

_PROBES = 300
_TEMPERATURES = np.geomspace(0.5, 30.0, 40)


class PublicModel:
    """Kernel ridge regression on one-hot answers, with the kernel exp(-2 |x - q|^2 / m).

    m is the median squared distance of the first rows: 2 for rows of length one without a common
    direction.

    Parameters
    ----------
    n_classes : int
        Number of classes; answers are their positions.
    """

    def __init__(self, n_classes: int) -> None:
        self._n_classes = n_classes
        self._rows: Matrix = np.zeros((0, 0))
        self._steepness = 1.0
        self._weights: Matrix = np.zeros((0, n_classes))
        self._sharpness = 1.0

    def fit(self, rows: Matrix, answers: Places) -> Self:
        """Fit to the newest answers, (n, d) rows and (n,) positions."""
        self._rows, answers = rows[-MOST:], answers[-MOST:]
        targets = np.eye(self._n_classes)[answers] - 1 / self._n_classes
        some = _squared_distances(rows[:_PROBES], rows[:_PROBES])
        self._steepness = 2 / max(float(np.median(some)), 1e-12)
        ridged = self._kernel(self._rows)
        ridged[np.diag_indices_from(ridged)] += RIDGE
        factor = cho_factor(ridged)
        self._weights = cho_solve(factor, targets)
        inverse = cho_solve(factor, np.eye(len(targets))).diagonal()
        left_out = targets - self._weights / inverse[:, None]
        likelihoods = [
            log_softmax(sharpness * left_out, axis=1)[np.arange(len(answers)), answers].mean()
            for sharpness in _TEMPERATURES
        ]
        self._sharpness = float(_TEMPERATURES[int(np.argmax(likelihoods))])
        return self

    def chances(self, rows: Matrix) -> Matrix:
        """Return how likely each class is the answer, (q, c)."""
        scores = self._kernel(rows) @ self._weights
        return np.asarray(softmax(self._sharpness * scores, axis=1))

    def _kernel(self, rows: Matrix) -> Matrix:
        return np.asarray(np.exp(-self._steepness * _squared_distances(rows, self._rows)))


def _squared_distances(left: Matrix, right: Matrix) -> Matrix:
    lengths = np.square(left).sum(axis=1)[:, None] + np.square(right).sum(axis=1)
    return np.asarray(np.maximum(lengths - 2 * left @ right.T, 0.0))
