r"""What private aggregation of teachers costs (PATE).

Sources: P17 Papernot et al. 2017 (LNMax); P18 Papernot et al. 2018, *Scalable private learning with
PATE* (GNMax, Confident-GNMax, data-dependent costs, smooth sensitivity).

Teachers are trained on disjoint parts by subject. Adding or removing one subject changes one
teacher, so in every query at most one vote moves from one class to another: squared L2 sensitivity
2, L1 sensitivity 2, and the largest count moves by at most 1.

*Data-dependent* costs (functions named ``private_...``) depend on the votes. They are as private as
the votes: only :class:`SmoothCost` says how to publish their sum. They bound D_alpha(M(D) | M(D'))
for the data set D at hand and every neighbour D', and must never be amplified by sampling.

The asymptotic Theorem 8 of Private-kNN is left out: its constants hide the range in which it holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, logsumexp, ndtri_exp

from vicinal import checks
from vicinal.errors import InvalidInput

Array = npt.NDArray[np.float64]

_SAFETY = 1e-9
_STEPS = 16
_DEEPEST = 40.0


def lnmax_rdp(scale: float, orders: npt.ArrayLike) -> Array:
    """Return D_alpha of LNMax, the class with the most votes after Laplace noise, rounded up.

    Two Laplace releases of sensitivity 1 (Mironov 2017, Table II). That is never above what pure
    epsilon = 2/scale alone gives, the cost of randomised response.

    Parameters
    ----------
    scale : float
        Scale b of the Laplace noise, in votes, .001 <= b <= 1e6.
    orders : array_like (n,)
        Renyi orders, alpha > 1.

    Returns
    -------
    float64 (n,)
    """
    rate = 1 / checks.real("scale", scale, least=1e-3, most=1e6)
    alphas = _orders(orders)
    twice = 2 * alphas - 1
    grow, shrink = (alphas - 1) * rate, -alphas * rate
    top = np.maximum(grow, 0)
    vector = np.log(
        alphas / twice * np.exp(grow - top) + (alphas - 1) / twice * np.exp(shrink - top)
    )
    small = (alphas * np.expm1(np.minimum(grow, 1)) + (alphas - 1) * np.expm1(shrink)) / twice
    vector = np.where(grow < 1, np.log1p(small), vector + top)
    return np.asarray(2 * vector / (alphas - 1) * _up())


def gnmax_rdp(sigma: float, orders: npt.ArrayLike) -> Array:
    """Return D_alpha = alpha / sigma^2 of GNMax (P18, Prop. 8), float64 (n,).

    Also covers the release of all noisy counts. When only the label leaves,
    ``label_only.two_coordinate_rdp(sigma, 1.0, orders)`` is smaller.
    """
    return np.asarray(_orders(orders) / _sigma("sigma", sigma) ** 2 * _up())


def confident_gnmax_rdp(
    screening: npt.ArrayLike, aggregation: npt.ArrayLike, asked: int, answered: int
) -> Array:
    """Return D_alpha of `asked` screened queries of which `answered` passed, float64 (n,).

    Parameters
    ----------
    screening : array_like (n,)
        D_alpha of one screening, over the same orders as `aggregation`: the exact bound of
        ``accounting.screening`` without sampling, or alpha / (2 sigma_screen^2).
    aggregation : array_like (n,)
        D_alpha of one answer, such as :func:`gnmax_rdp`.
    asked, answered : int
        Numbers of queries, answered <= asked. Which ones passed is public by then.
    """
    asked = checks.integer("asked", asked, least=0)
    answered = checks.integer("answered", answered, least=0, most=asked)
    first, second = _curve("screening", screening), _curve("aggregation", aggregation)
    if first.shape != second.shape:
        raise InvalidInput("The 'aggregation' parameter must have as many orders as 'screening'.")
    return np.asarray((asked * first + answered * second) * _up())


def private_lnmax_log_error(votes: npt.ArrayLike, scale: float) -> Array:
    """Return the log of a bound on P[LNMax does not return the top class] (P17, Lemma 4).

    PRIVATE: depends on the votes, array_like (q, c). Returns float64 (q,).
    """
    scale = checks.real("scale", scale, least=1e-3, most=1e6)
    gaps = _gaps(votes) / scale
    terms = np.log(2 + gaps) - math.log(4) - gaps
    return _capped(logsumexp(terms, axis=1), gaps.shape[1])


def private_gnmax_log_error(votes: npt.ArrayLike, sigma: float) -> Array:
    """Return the log of a bound on P[GNMax does not return the top class] (P18, Prop. 7).

    PRIVATE: depends on the votes, array_like (q, c). Returns float64 (q,).
    """
    gaps = _gaps(votes) / (math.sqrt(2) * _sigma("sigma", sigma))
    return _capped(logsumexp(log_ndtr(-gaps), axis=1), gaps.shape[1])


def private_lnmax_rdp(log_error: float, scale: float, orders: npt.ArrayLike) -> Array:
    """Return the data-dependent D_alpha of one LNMax query, never above :func:`lnmax_rdp`.

    PRIVATE. `log_error` comes from :func:`private_lnmax_log_error`. P17, Theorem 3.
    """
    general = lnmax_rdp(scale, orders)
    alphas, epsilon, log_q = _orders(orders), 2 / scale, _log_error(log_error)
    if log_q >= -float(np.logaddexp(0, epsilon)):
        return general
    if log_q == -math.inf:
        return np.zeros_like(alphas)
    excess = alphas - 1
    first = _log1mexp(log_q) + excess * (_log1mexp(log_q) - _log1mexp(log_q + epsilon))
    bound = np.logaddexp(first, log_q + excess * epsilon) / excess
    return np.minimum(general, np.maximum(bound, 0) * _up() + 1e-15 / excess)


def private_gnmax_rdp(log_error: float, sigma: float, orders: npt.ArrayLike) -> Array:
    """Return the data-dependent D_alpha of one GNMax query, never above :func:`gnmax_rdp`.

    PRIVATE. `log_error` comes from :func:`private_gnmax_log_error`. P18, Theorem 6 at the orders
    mu_2 = sigma sqrt(-log q), mu_1 = mu_2 + 1 of its Prop. 10; where a condition of the theorem
    does not hold, the data-independent cost is returned.
    """
    general, alphas = gnmax_rdp(sigma, orders), _orders(orders)
    log_q = _log_error(log_error)
    if log_q == -math.inf:
        return np.zeros_like(alphas)
    second = sigma * math.sqrt(-log_q)
    first = second + 1
    if second <= 1 or not _conditions(log_q, first, second, sigma):
        return general
    excess = alphas - 1
    shifted = (log_q + second / sigma**2) * (1 - 1 / second)
    likely = _log1mexp(log_q) + excess * (_log1mexp(log_q) - _log1mexp(shifted))
    unlikely = log_q + excess * (first / sigma**2 - log_q / (first - 1))
    bound = np.logaddexp(likely, unlikely) / excess
    bound = np.maximum(bound, 0) * _up() + 1e-15 / excess
    return np.where(alphas <= first, np.minimum(general, bound), general)


def smooth_release_rdp(beta: float, sigma: float, orders: npt.ArrayLike) -> Array:
    r"""Return D_alpha of publishing a value with noise N(0, (sigma S)^2), S beta-smooth.

    With t = S(D')^2 / S(D)^2 in [exp(-2 beta), exp(2 beta)] and values at most min(S(D), S(D'))
    apart, the divergence of the two normal laws is at most

        alpha min(1, t) / (2 sigma^2 v) + (alpha log t - log v) / (2 (alpha - 1)),
        v = 1 + alpha (t - 1),

    and either part is largest at an end of the range of t (of P18's Theorem 23, without its
    factor of 2). Infinite where v <= 0 at the lower end.

    Parameters
    ----------
    beta : float
        Smoothness of S, beta > 0.
    sigma : float
        Noise multiplier, sigma > 0.
    orders : array_like (n,)
    """
    beta, sigma = checks.real("beta", beta, above=0), _sigma("sigma", sigma)
    alphas = _orders(orders)
    worst = np.zeros_like(alphas)
    for log_t in (-2 * beta, 2 * beta):
        spread = 1 + alphas * math.expm1(log_t)
        inside = np.where(spread > 0, spread, 1.0)
        shift = alphas * math.exp(min(log_t, 0)) / inside if log_t < 0 else alphas
        scale = (alphas * log_t - np.log(inside)) / (2 * (alphas - 1))
        cost = shift / (2 * sigma**2) + np.maximum(scale, 0)
        worst = np.maximum(worst, np.where(spread > 0, cost, np.inf))
    return np.asarray(worst * _up())


@dataclass(frozen=True, slots=True)
class SmoothCost:
    """The data-dependent cost of GNMax at one order, as a step function that can be published.

    Votes enter through z = -Phi^-1(q / (c - 1)) >= 0, with q of :func:`private_gnmax_log_error`
    before its cap. One teacher's vote moves every gap by at most 2, hence z by at most
    h = sqrt(2)/sigma: x -> Phi(Phi^-1(x) + h) is concave and with - h convex, so the sum of the
    classes' terms moves at most as if all were equal. The cost is read off a table that does not
    increase in z, with cells of width h/16.

    Attributes
    ----------
    sigma, order : float
        Noise of GNMax in votes, and the Renyi order.
    classes : int
        Number of classes c.
    table : float64 (m,)
        Cost of every cell of z, rounded up, not increasing.
    """

    sigma: float
    order: float
    classes: int
    table: Array

    @classmethod
    def at(cls, sigma: float, order: float, classes: int) -> SmoothCost:
        """Return the cost function for noise `sigma`, Renyi order `order`, `classes` classes."""
        sigma = _sigma("sigma", sigma)
        order = float(_orders([order])[0])
        classes = checks.integer("classes", classes, least=2)
        step = math.sqrt(2) / sigma / _STEPS
        z = np.arange(math.ceil(_DEEPEST / step) + 2) * step
        log_q = np.minimum(log_ndtr(-z) + math.log(classes - 1), math.log1p(-1 / classes))
        costs = [float(private_gnmax_rdp(value, sigma, [order])[0]) for value in log_q]
        return cls(sigma, order, classes, np.maximum.accumulate(costs[::-1])[::-1])

    def private_costs(self, votes: npt.ArrayLike) -> Array:
        """Return the cost of every query, float64 (q,). PRIVATE: depends on the votes (q, c)."""
        return np.asarray(self.table[self._cells(votes)])

    def private_sensitivity(self, votes: npt.ArrayLike, beta: float) -> float:
        """Return the beta-smooth sensitivity of the sum of :meth:`private_costs`. PRIVATE.

        The largest over distances d of exp(-beta d) times the sum over queries of the largest
        change that one more teacher can make at distance d.
        """
        beta = checks.real("beta", beta, above=0)
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

    def _cells(self, votes: npt.ArrayLike) -> npt.NDArray[np.int64]:
        gaps = _gaps(votes)
        if gaps.shape[1] != self.classes - 1:
            raise InvalidInput(f"The 'votes' parameter must have {self.classes} columns.")
        terms = log_ndtr(-gaps / (math.sqrt(2) * self.sigma))
        z = -ndtri_exp(logsumexp(terms, axis=1) - math.log(self.classes - 1))
        step = math.sqrt(2) / self.sigma / _STEPS
        return np.asarray(np.clip(np.floor(z / step), 0, len(self.table) - 1), dtype=np.int64)

    def _changes(self) -> Array:
        """Bound the fall of the cost from every cell over one teacher, to zero past the end."""
        ahead = np.append(self.table[_STEPS + 1 :], np.zeros(_STEPS + 1))
        return self.table - ahead


def _most(values: Array, first: npt.NDArray[np.int64], last: npt.NDArray[np.int64]) -> Array:
    """Return the largest of values[first..last] for windows of some _STEPS entries."""
    offsets = np.arange(_STEPS + 2)
    return np.asarray(values[np.minimum(first[:, None] + offsets, last[:, None])].max(axis=1))


def _conditions(log_q: float, first: float, second: float, sigma: float) -> bool:
    """Return whether P18's Theorem 6 holds and increases in q at these orders."""
    epsilon = second / sigma**2
    spare = math.log1p(1 / (first - 1)) + math.log1p(1 / (second - 1))
    return log_q <= (second - 1) * epsilon - second * spare and log_q + epsilon < 0


def _gaps(votes: npt.ArrayLike) -> Array:
    """Return how far all other classes lie behind the top one, (q, c - 1)."""
    counts = np.asarray(votes)
    usable = counts.ndim == 2 and counts.shape[1] >= 2 and counts.dtype.kind in "iuf"
    if not usable or not np.isfinite(counts).all() or (counts < 0).any():
        raise InvalidInput(
            "The 'votes' parameter must be a table (queries, classes) of finite counts >= 0 with "
            "at least two classes."
        )
    ordered = np.sort(counts.astype(np.float64), axis=1)
    return np.asarray(ordered[:, -1:] - ordered[:, :-1])


def _capped(log_error: Array, others: int) -> Array:
    """Apply that the top class is the likeliest one, so it wins at least once in c times."""
    return np.minimum(log_error, math.log1p(-1 / (others + 1)))


def _log_error(value: float) -> float:
    return value if value == -math.inf else checks.real("log_error", value, below=0)


def _log1mexp(x: float) -> float:
    """Return log(1 - exp(x)) for x < 0."""
    return math.log(-math.expm1(x)) if x > -0.7 else math.log1p(-math.exp(x))


def _sigma(name: str, value: float) -> float:
    return checks.real(name, value, least=1e-6, most=1e9)


def _curve(name: str, values: npt.ArrayLike) -> Array:
    curve = np.atleast_1d(np.asarray(values, dtype=np.float64))
    if curve.ndim != 1 or np.isnan(curve).any() or (curve < 0).any():
        raise InvalidInput(f"The {name!r} parameter must be a flat list of costs >= 0.")
    return curve


def _orders(orders: npt.ArrayLike) -> Array:
    values = np.atleast_1d(np.asarray(orders))
    if values.dtype.kind not in "iuf" or values.ndim != 1 or not len(values):
        raise InvalidInput("The 'orders' parameter must be a flat list of numbers.")
    return np.array([checks.real("orders", float(v), least=1 + 1e-6, most=1e12) for v in values])


def _up() -> float:
    return 1 + _SAFETY
