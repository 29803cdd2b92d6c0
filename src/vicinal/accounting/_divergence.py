r"""Rényi sums without cancellation, and ratios of normal tails: what the exact bounds are made of.

Two laws P and Q with log ratio L = log(P/Q) have E_Q[e^{b L}] = 1 + E_Q[G_b(L)] where
G_b(L) = e^{b L} - 1 - b (e^L - 1), because E_Q[e^L - 1] = 0. For b > 1 (D_b(P|Q), b = alpha) and
for b < 0 (D_alpha(Q|P), b = 1 - alpha) every G_b(L) is >= 0 by convexity of u -> u^b, so the sum of
positive terms keeps its relative precision however close P and Q are.

A dominating pair (P with the subject, Q without) holds the two output laws that a release can at
worst be told apart by. It is given by its *excess* at every real eps, C(eps) = H_eps(P|Q) - max(0,
1 - e^eps), where H is the hockey-stick divergence. The other direction is H_eps(Q|P) = e^eps
C(-eps) at eps >= 0, so one function describes both; and where H is close to its trivial value 1 -
e^eps, C keeps its relative precision.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import erfcx, log_ndtr

from vicinal import checks
from vicinal.arrays import Floats
from vicinal.errors import InvalidInput

LARGEST_ORDER = 1e12  # largest Rényi order that is accepted

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_SERIES_BELOW = 0.05
_NEGLIGIBLE = 1e-18
_FAR = 30.0
_ROOT_HALF = math.sqrt(0.5)
_ROOT_2_OVER_PI = math.sqrt(2 / math.pi)


def checked_orders(orders: npt.ArrayLike) -> Floats:
    """Return Rényi orders (n,) as float64, 1 + 1e-6 <= alpha <= 1e12."""
    values = np.atleast_1d(np.asarray(orders))
    if values.dtype.kind not in "iuf" or values.ndim != 1 or not len(values):
        raise InvalidInput("The 'orders' parameter must be a flat list of numbers.")
    return np.array(
        [checks.check_real("orders", float(v), least=1 + 1e-6, most=LARGEST_ORDER) for v in values]
    )


def log_gap(power: Floats, log_ratio: Floats) -> Floats:
    """Return log G_b(L) elementwise, b = `power` (> 1 or < 0), L = `log_ratio`; broadcasts.

    G_b grows with the size of L on either side of 0.
    """
    power, log_ratio = np.broadcast_arrays(power, log_ratio)
    scaled = power * log_ratio
    top = np.maximum(scaled, log_ratio)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        gap = _gap(power, log_ratio)
        result = np.where(gap > 0, np.log(gap), -np.inf)
    near = np.maximum(np.abs(scaled), np.abs(log_ratio)) < _SERIES_BELOW
    result[near] = _log_gap_series(power[near], log_ratio[near])
    far = (top > _FAR) & (top < np.inf)
    with np.errstate(over="ignore", invalid="ignore"):
        result[far] = top[far] + np.log(_divided_gap(power[far], log_ratio[far], top[far]))
    result[top == np.inf] = np.inf
    return np.asarray(result)


def _gap(power: Floats, log_ratio: Floats) -> Floats:
    """Return e^bL - 1 - b (e^L - 1), written so that no b near 1 or 0 costs precision."""
    less = power - 1
    from_one = np.exp(log_ratio) * np.expm1(less * log_ratio) - less * np.expm1(log_ratio)
    from_zero = np.expm1(power * log_ratio) - power * np.expm1(log_ratio)
    return np.where(power > 1, from_one, from_zero)


def _divided_gap(power: Floats, log_ratio: Floats, top: Floats) -> Floats:
    """Return the same divided by e^top, top = max(bL, L), before it can overflow."""
    less = power - 1
    from_one = -np.expm1(-less * log_ratio) - less * np.exp(-less * log_ratio)
    from_zero = np.exp(power * log_ratio - top) - power * np.exp(log_ratio - top)
    return np.where(power > 1, from_one, from_zero) + less * np.exp(-top)


def _log_gap_series(power: Floats, log_ratio: Floats) -> Floats:
    """Return log of (1+u)^b - 1 - b u by its power series in u = e^L - 1, for small b u (m,)."""
    u = np.expm1(log_ratio)
    term, total, j = np.ones_like(u), np.ones_like(u), 2
    while (np.abs(term) > _NEGLIGIBLE).any():
        term *= u * (power - j) / (j + 1)
        total += term
        j += 1
    with np.errstate(divide="ignore"):  # no ratio, no gap
        return np.asarray(np.log(power * (power - 1) / 2) + 2 * np.log(np.abs(u)) + np.log(total))


def tail_ratios(start: Floats, shift: float) -> tuple[Floats, Floats]:
    """Return log Phi(a+m)/Phi(a) and log Phi(-a-m)/Phi(-a) for a = `start`, m = `shift` > 0.

    The first is positive and falls with a; the second is negative and falls with a.
    """
    start = np.asarray(start, dtype=np.float64)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore", under="ignore"):
        up = _log_tail_ratio(start, start + shift)
        down = _log_tail_ratio(-start, -start - shift)
        near = (np.abs(start) + 1 + shift) * shift < 1
        if near.any():
            step = _area(start, shift)
            up = np.where(near, np.log1p(step * hazard(start)), up)
            down = np.where(near, np.log1p(-step * hazard(-start)), down)
    return np.asarray(up), np.asarray(down)


def _log_tail_ratio(x: Floats, y: Floats) -> Floats:
    """Return log Phi(y) - log Phi(x); through erfcx where both are in the left tail."""
    both_negative = np.log(erfcx(-y * _ROOT_HALF) / erfcx(-x * _ROOT_HALF)) - (y - x) * (y + x) / 2
    return np.asarray(np.where((x < 0) & (y < 0), both_negative, log_ndtr(y) - log_ndtr(x)))


def hazard(a: Floats) -> Floats:
    """Return phi(a) / Phi(a): positive, decreasing, convex (Sampford 1953)."""
    return np.asarray(_ROOT_2_OVER_PI / erfcx(-a * _ROOT_HALF))


def _area(a: Floats, shift: float) -> Floats:
    """Return the integral of exp(-a x - x^2/2) over 0 <= x <= shift, for (|a|+shift) shift < 1."""
    x = (_NODES + 1) * (shift / 2)
    values = np.exp(-a[..., None] * x - x**2 / 2)
    return np.asarray(values @ (_WEIGHTS * (shift / 2)))


def mixed_ratio(log_ratio: Floats, gamma: float) -> Floats:
    """Return log(1 - gamma + gamma e^L): what Poisson sampling leaves of the log ratio L."""
    if gamma == 1:
        return log_ratio
    with np.errstate(over="ignore"):
        near = np.log1p(gamma * np.expm1(log_ratio))
        far = np.logaddexp(math.log1p(-gamma), math.log(gamma) + log_ratio)
    return np.where(log_ratio > 1, far, near)


_RULES = {count: np.polynomial.legendre.leggauss(count) for count in (4, 12)}


class Pair(Protocol):
    """Two laws that dominate a release: P with the subject, Q without.

    `missing`: masses of infinite loss, of P where Q has none and of Q where P has none.
    """

    missing: tuple[float, float] = (0.0, 0.0)

    @property
    def symmetric(self) -> bool:
        """Whether (Q, P) has the same divergences as (P, Q)."""

    def excess(self, losses: Floats) -> Floats:
        """Return H_eps(P|Q) - max(0, 1 - e^eps) at real `losses` eps (m,), as (m,) >= 0."""

    def gaussian(self) -> float | None:
        """Return mu if the pair is N(mu, 1) against N(0, 1), else None."""
        return None


@dataclasses.dataclass(frozen=True)
class GaussianPair(Pair):
    """N(mu, 1), taken with probability gamma and else N(0, 1), against N(0, 1)."""

    mu: float
    gamma: float = 1.0

    @property
    def symmetric(self) -> bool:
        return self.gamma == 1

    def gaussian(self) -> float | None:
        return self.mu if self.gamma == 1 else None

    def excess(self, losses: Floats) -> Floats:
        return sampled_excess(lambda inner: gaussian_excess(self.mu, inner), self.gamma, losses)


def sampled_excess(base: Callable[[Floats], Floats], gamma: float, losses: Floats) -> Floats:
    """Return the excess under Poisson sampling of a pair whose own excess is `base`.

    With x = e^eps, H_x((1-g) Q + g P | Q) = g H_{x'}(P|Q) for x' = (x - 1 + g)/g > 0, and
    1 - x = g (1 - x'), so the excess scales likewise; below x = 1 - g it is zero.
    Source: Balle, Barthe & Gaboardi 2018, Theorem 2.
    """
    if gamma == 1:
        return np.asarray(base(losses))
    with np.errstate(divide="ignore", over="ignore"):
        ratio = np.expm1(losses) / gamma
        inner = np.where(losses > 30, losses - math.log(gamma), np.log1p(np.maximum(ratio, -1.0)))
    reached = inner > -np.inf
    result = np.zeros_like(losses)
    result[reached] = gamma * base(inner[reached])
    return result


def gaussian_excess(mu: float, losses: Floats) -> Floats:
    """Return the excess of N(mu, 1) against N(0, 1) at `losses` (m,).

    At eps >= 0 it is the hockey-stick divergence, phi(x) times the integral of 1 - y R(y) from x to
    x + mu, where x = eps/mu - mu/2 and R is Mills' ratio (d/dy R = y R - 1); no difference of close
    numbers for small mu. At eps < 0, H_eps(P|Q) = 1 - e^eps + e^eps H_{-eps}(Q|P), and the pair is
    symmetric.
    """
    size = np.abs(losses)
    x = size / mu - mu / 2
    if mu < 0.5:
        # Four nodes err by about 1e-12 mu^8 relative.
        rule, weights = _RULES[4 if mu < 0.1 else 12]
        nodes = x[:, None] + (rule + 1) * (mu / 2)
        mills: Floats = math.sqrt(math.pi / 2) * erfcx(nodes * math.sqrt(0.5))
        slopes = 1 - nodes * mills
        log_density = -(x**2) / 2 - math.log(2 * math.pi) / 2
        value = np.exp(log_density) * (slopes @ (weights * (mu / 2)))
    else:
        first, second = log_ndtr(-x), size + log_ndtr(-x - mu)
        value = np.exp(first) * -np.expm1(np.minimum(second - first, 0.0))
    return np.where(losses < 0, np.exp(np.minimum(losses, 0.0)) * value, value)
