"""Noisy maxima priced at their own votes, as terms of a composition.

Everything here is as private as the votes: a price that contains one must not be published or
decided by, and must not be amplified by sampling. How to publish a cost:
:mod:`vicinal.accounting._smooth_cost`.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from vicinal import _checks
from vicinal.accounting._divergence import Array
from vicinal.accounting._pate import (
    private_gnmax_log_error,
    private_gnmax_rdp,
    private_lnmax_log_error,
    private_lnmax_rdp,
)
from vicinal.errors import InvalidInput

_MECHANISMS = {
    "gnmax": (private_gnmax_log_error, private_gnmax_rdp),
    "lnmax": (private_lnmax_log_error, private_lnmax_rdp),
}
# The functions of pate.py stop here; RDP does not fall with the order.
_LEAST_ORDER = 1 + 1e-6


@dataclasses.dataclass(frozen=True)
class PrivateMaxima:
    """The labels of several queries, each the class with the most noisy votes.

    Bounds D_alpha(M(D) | M(D')) for the data set D that has these votes and every neighbour D'
    (P17, Theorem 3; P18, Theorem 6). Only the labels leave.

    Parameters
    ----------
    mechanism : {"gnmax", "lnmax"}
        Gaussian or Laplace noise.
    scale : float
        Its scale, in votes.
    votes : tuple of tuples of float, (queries, classes)
        PRIVATE: counts >= 0, not shown by repr.
    """

    mechanism: str
    scale: float
    votes: tuple[tuple[float, ...], ...] = dataclasses.field(repr=False)

    def __post_init__(self) -> None:
        _checks.choice("mechanism", self.mechanism, tuple(_MECHANISMS))
        if not self.votes:
            raise InvalidInput("The 'votes' parameter must hold at least one query.")
        self._errors()

    def rdp(self, orders: Array) -> Array:
        """Return the sum over all queries at `orders` (m,). PRIVATE."""
        _, cost = _MECHANISMS[self.mechanism]
        errors, counts = np.unique(self._errors(), return_counts=True)
        costs = cost(errors, self.scale, np.maximum(orders, _LEAST_ORDER))
        return np.asarray(counts @ costs)

    def pair(self) -> None:
        """Return None: the cost of one data set's votes is no dominating pair of a mechanism."""

    def _errors(self) -> npt.NDArray[np.float64]:
        log_error, _ = _MECHANISMS[self.mechanism]
        return log_error(np.array(self.votes), self.scale)
