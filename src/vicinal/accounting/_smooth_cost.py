r"""How the data-dependent cost of GNMax can be published: smooth sensitivity.

The cost at one Renyi order, chosen beforehand, is a function of the votes. Normal noise of sigma
times its beta-smooth sensitivity S makes it public, at a data-independent cost of its own
(:func:`smooth_release_rdp`). Source: P18 Papernot et al. 2018, section B.3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, logsumexp, ndtri_exp

from vicinal import _checks
from vicinal._arrays import Floats, Ints
from vicinal.accounting._divergence import checked_orders
from vicinal.accounting._pate import gaps_behind, private_gnmax_rdp
from vicinal.errors import InvalidInput

_SAFETY = 1e-9
_STEPS = 16
_DEEPEST = 40.0


def smooth_release_rdp(beta: float, sigma: float, orders: npt.ArrayLike) -> Floats:
    r"""Return D_alpha of publishing a value with noise N(0, (sigma S)^2), S beta-smooth.

    With t = S(D')^2 / S(D)^2 in [exp(-2 beta), exp(2 beta)] and values at most min(S(D), S(D'))
    apart, the divergence of the two normal laws is at most

        alpha min(1, t) / (2 sigma^2 v) + (alpha log t - log v) / (2 (alpha - 1)),
        v = 1 + alpha (t - 1),

    and either part is largest at an end of the range of t (of P18's Theorem 23, without its
    factor of 2). Infinite where v <= 0 at the lower end.
    """
    beta = _checks.real("beta", beta, above=0)
    sigma = _checks.real("sigma", sigma, least=1e-6, most=1e9)
    alphas = checked_orders(orders)
    worst = np.zeros_like(alphas)
    for log_t in (-2 * beta, 2 * beta):
        spread = 1 + alphas * math.expm1(log_t)
        inside = np.where(spread > 0, spread, 1.0)
        shift = alphas * math.exp(min(log_t, 0)) / inside if log_t < 0 else alphas
        scale = (alphas * log_t - np.log(inside)) / (2 * (alphas - 1))
        cost = shift / (2 * sigma**2) + np.maximum(scale, 0)
        worst = np.maximum(worst, np.where(spread > 0, cost, np.inf))
    return np.asarray(worst * (1 + _SAFETY))


@dataclass(frozen=True)
class SmoothRelease:
    """One publication of a data-dependent cost, as a term of a composition; beta is at most 4."""

    beta: float
    sigma: float

    def __post_init__(self) -> None:
        _checks.real("beta", self.beta, above=0, most=4)
        _checks.real("sigma", self.sigma, least=1e-6, most=1e9)

    def rdp(self, orders: Floats) -> Floats:
        """Return the RDP at `orders` (m,); infinite at high orders."""
        return smooth_release_rdp(self.beta, self.sigma, np.maximum(orders, 1 + 1e-6))

    def pair(self) -> None:
        """Return None: only the RDP curve is known."""


@dataclass(frozen=True, slots=True)
class SmoothCost:
    """The data-dependent cost of GNMax at one order, as a step function that can be published.

    Votes enter through z = -Phi^-1(q / (c - 1)) >= 0, with q of :func:`private_gnmax_log_error`
    before its cap. One teacher's vote moves every gap by at most 2, hence z by at most
    h = sqrt(2)/sigma: x -> Phi(Phi^-1(x) + h) is concave and with - h convex, so the sum of the
    classes' terms moves at most as if all were equal. The cost is read off a table that does not
    increase in z, with cells of width h/16.

    `table` (m,) holds the cost of every cell of z, rounded up, not increasing.
    """

    sigma: float
    order: float
    classes: int
    table: Floats

    @classmethod
    def at(cls, sigma: float, order: float, classes: int) -> SmoothCost:
        """Return the cost function for noise `sigma`, Renyi order `order`, `classes` classes."""
        sigma = _checks.real("sigma", sigma, least=1e-6, most=1e9)
        order = float(checked_orders([order])[0])
        classes = _checks.integer("classes", classes, least=2)
        step = math.sqrt(2) / sigma / _STEPS
        z = np.arange(math.ceil(_DEEPEST / step) + 2) * step
        log_q = np.minimum(log_ndtr(-z) + math.log(classes - 1), math.log1p(-1 / classes))
        costs = private_gnmax_rdp(log_q, sigma, [order])[:, 0]
        return cls(sigma, order, classes, np.maximum.accumulate(costs[::-1])[::-1])

    def private_costs(self, votes: npt.ArrayLike) -> Floats:
        """Return the cost of every query, float64 (q,). PRIVATE: depends on the votes (q, c)."""
        return np.asarray(self.table[self._cells(votes)])

    def private_sensitivity(self, votes: npt.ArrayLike, beta: float) -> float:
        """Return the beta-smooth sensitivity of the sum of :meth:`private_costs`. PRIVATE.

        The largest over distances d of exp(-beta d) times the sum over queries of the largest
        change that one more teacher can make at distance d.
        """
        beta = _checks.real("beta", beta, above=0)
        cells = self._cells(votes)
        change = self._changes()
        ceiling = len(cells) * float(change.max(initial=0.0))
        worst, distance = 0.0, 0
        low = high = before = cells
        reach = np.zeros(len(cells))
        # Beyond this distance no term can be larger than what was found.
        while ceiling * math.exp(-beta * distance) > worst:
            below = np.maximum(low - _STEPS - 1, 0)
            reach = np.maximum(reach, _most(change, below, low))
            reach = np.maximum(reach, _most(change, before, high))
            worst = max(worst, float(reach.sum()) * math.exp(-beta * distance))
            if not below.any() and (high == len(change) - 1).all():
                break
            low, before, distance = below, high, distance + 1
            high = np.minimum(high + _STEPS + 1, len(change) - 1)
        return worst * (1 + _SAFETY)

    def _cells(self, votes: npt.ArrayLike) -> Ints:
        gaps = gaps_behind(votes)
        if gaps.shape[1] != self.classes - 1:
            raise InvalidInput(f"The 'votes' parameter must have {self.classes} columns.")
        terms = log_ndtr(-gaps / (math.sqrt(2) * self.sigma))
        z = -ndtri_exp(logsumexp(terms, axis=1) - math.log(self.classes - 1))
        step = math.sqrt(2) / self.sigma / _STEPS
        return np.asarray(np.clip(np.floor(z / step), 0, len(self.table) - 1), dtype=np.int64)

    def _changes(self) -> Floats:
        """Bound the fall of the cost from every cell over one teacher, to zero past the end."""
        ahead = np.append(self.table[_STEPS + 1 :], np.zeros(_STEPS + 1))
        return self.table - ahead


def _most(values: Floats, first: Ints, last: Ints) -> Floats:
    """Return the largest of values[first..last] for windows of some _STEPS entries."""
    offsets = np.arange(_STEPS + 2)
    return np.asarray(values[np.minimum(first[:, None] + offsets, last[:, None])].max(axis=1))
