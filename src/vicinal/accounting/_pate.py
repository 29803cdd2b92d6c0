r"""What private aggregation of teachers costs (PATE).

Source: P18 Papernot et al. 2018, *Scalable private learning with PATE* (GNMax, Confident-GNMax,
data-dependent costs).

Teachers are trained on disjoint parts by subject. Adding or removing one subject changes one
teacher, so in every query at most one vote moves from one class to another: squared L2 sensitivity
2, and the largest count moves by at most 1.

*Data-dependent* costs (functions named ``private_...``) depend on the votes. They are as private as
the votes. They bound D_alpha(M(D) | M(D')) for the data set D at hand and every neighbour D', and
must never be amplified by sampling.
:class:`PrivateMaxima` is such a cost as a term of a composition.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, logsumexp

from vicinal import _checks
from vicinal._arrays import Bools, Floats
from vicinal.accounting._divergence import checked_orders
from vicinal.errors import InvalidInput

_UPWARD = 1 + 1e-9
_SMALLEST = -1e300


def gnmax_rdp(sigma: float, orders: npt.ArrayLike) -> Floats:
    """Return D_alpha = alpha / sigma^2 of GNMax (P18, Prop. 8), float64 (n,).

    Also covers the release of all noisy counts. When only the label leaves,
    ``two_coordinate_rdp(sigma, 1.0, orders)`` is smaller.
    """
    return np.asarray(checked_orders(orders) / _sigma("sigma", sigma) ** 2 * _UPWARD)


def private_gnmax_log_error(votes: npt.ArrayLike, sigma: float) -> Floats:
    """Return the log of a bound on P[GNMax does not return the top class] (P18, Prop. 7).

    PRIVATE: depends on the votes, array_like (q, c). Returns float64 (q,).
    """
    gaps = gaps_behind(votes) / (math.sqrt(2) * _sigma("sigma", sigma))
    # The top class is the likeliest one, so it wins at least once in c times.
    most = math.log1p(-1 / (gaps.shape[1] + 1))
    return np.asarray(np.minimum(logsumexp(log_ndtr(-gaps), axis=1), most))


def private_gnmax_rdp(log_error: npt.ArrayLike, sigma: float, orders: npt.ArrayLike) -> Floats:
    """Return the data-dependent D_alpha (q, n) of GNMax queries, never above :func:`gnmax_rdp`.

    PRIVATE. P18, Theorem 6 at the orders mu_2 = sigma sqrt(-log q), mu_1 = mu_2 + 1 of its Prop.
    10; where a condition of the theorem does not hold, the data-independent cost is returned.
    """
    general, alphas = gnmax_rdp(sigma, orders), checked_orders(orders)
    log_q, excess = _log_errors(log_error), alphas - 1
    valid = _conditions(np.maximum(log_q, _SMALLEST), sigma) & (log_q > -np.inf)
    # An error for which all of this is defined; its result is not used.
    safe = np.where(valid, log_q, -((2 + 2 / sigma) ** 2))[:, None]
    second = sigma * np.sqrt(-safe)
    first = second + 1
    shifted = (safe + second / sigma**2) * (1 - 1 / second)
    likely = _log1mexp(safe) + excess * (_log1mexp(safe) - _log1mexp(shifted))
    unlikely = safe + excess * (first / sigma**2 - safe / (first - 1))
    bound = np.logaddexp(likely, unlikely) / excess
    bound = np.maximum(bound, 0) * _UPWARD + 1e-15 / excess
    usable = np.where(alphas <= first, np.minimum(general, bound), general)
    return _data_dependent(log_error, valid, usable, general)


def _data_dependent(
    log_error: npt.ArrayLike, valid: Bools, bound: Floats, general: Floats
) -> Floats:
    """Return `bound` (q, n) where `valid` (q,), nothing for an error of 0, else `general` (n,)."""
    free = _log_errors(log_error) == -np.inf
    rows = np.where(valid[:, None], bound, np.where(free[:, None], 0.0, general))
    return np.asarray(rows if np.ndim(log_error) else rows[0])


def _conditions(log_q: Floats, sigma: float) -> Bools:
    """Return where P18's Theorem 6 holds and increases in q at the orders of its Prop. 10."""
    second = sigma * np.sqrt(-log_q)
    safe = np.where(second > 1, second, 2.0)
    epsilon = safe / sigma**2
    spare = np.log1p(1 / safe) + np.log1p(1 / (safe - 1))
    holds = (log_q <= (safe - 1) * epsilon - safe * spare) & (log_q + epsilon < 0)
    return np.asarray(holds & (second > 1))


def gaps_behind(votes: npt.ArrayLike) -> Floats:
    """Return how far all other classes lie behind the top one, (q, c - 1). PRIVATE.

    `votes` is array_like (q, c) of finite counts >= 0, refused without being quoted.
    """
    counts = np.asarray(votes)
    usable = counts.ndim == 2 and counts.shape[1] >= 2 and counts.dtype.kind in "iuf"
    if not usable or not np.isfinite(counts).all() or (counts < 0).any():
        raise InvalidInput(
            "The 'votes' parameter must be a table (queries, classes) of finite counts >= 0 with "
            "at least two classes."
        )
    ordered = np.sort(counts.astype(np.float64), axis=1)
    return np.asarray(ordered[:, -1:] - ordered[:, :-1])


def _log_errors(value: npt.ArrayLike) -> Floats:
    """Return log errors as (q,), each below 0; minus infinity is an error of 0."""
    errors = np.atleast_1d(np.asarray(value))
    if errors.dtype.kind not in "iuf" or errors.ndim != 1 or not (errors < 0).all():
        raise InvalidInput(
            "The 'log_error' parameter must be a number < 0, or a flat list of such."
        )
    return np.asarray(errors, dtype=np.float64)


def _log1mexp(x: Floats) -> Floats:
    """Return log(1 - exp(x)) for x < 0."""
    with np.errstate(divide="ignore"):
        return np.where(x > -0.7, np.log(-np.expm1(x)), np.log1p(-np.exp(x)))


def _sigma(name: str, value: float) -> float:
    return _checks.real(name, value, least=1e-6, most=1e9)


# The functions above stop here; RDP does not fall with the order.
_LEAST_ORDER = 1 + 1e-6


@dataclasses.dataclass(frozen=True)
class PrivateMaxima:
    """The labels of several queries, each the class with the most noisy votes.

    Bounds D_alpha(M(D) | M(D')) for the data set D that has these votes and every neighbour D'
    (P18, Theorem 6). Only the labels leave. The votes (queries, classes) are PRIVATE, and not shown
    by repr.
    """

    sigma: float
    votes: tuple[tuple[float, ...], ...] = dataclasses.field(repr=False)

    def __post_init__(self) -> None:
        if not self.votes:
            raise InvalidInput("The 'votes' parameter must hold at least one query.")
        self._errors()

    def rdp(self, orders: Floats) -> Floats:
        """Return the sum over all queries at `orders` (m,). PRIVATE."""
        errors, counts = np.unique(self._errors(), return_counts=True)
        costs = private_gnmax_rdp(errors, self.sigma, np.maximum(orders, _LEAST_ORDER))
        return np.asarray(counts @ costs)

    def pair(self) -> None:
        """Return None: the cost of one data set's votes is no dominating pair of a mechanism."""

    def _errors(self) -> Floats:
        return private_gnmax_log_error(np.array(self.votes), self.sigma)
