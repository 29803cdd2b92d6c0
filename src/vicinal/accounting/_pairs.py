r"""Dominating pairs: the two output laws that a release can at worst be told apart by.

A pair (P with the subject, Q without) is given by its *excess* at every real eps,
C(eps) = H_eps(P|Q) - max(0, 1 - e^eps), where H is the hockey-stick divergence. The other direction
is H_eps(Q|P) = e^eps C(-eps) at eps >= 0, so one function describes both; and where H is close to
its trivial value 1 - e^eps, C keeps its relative precision.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Protocol

import numpy as np
from scipy.special import erfcx, log_ndtr

from vicinal.accounting._divergence import Array

_RULES = {count: np.polynomial.legendre.leggauss(count) for count in (4, 12)}


class Pair(Protocol):
    """Two laws that dominate a release: P with the subject, Q without."""

    @property
    def symmetric(self) -> bool:
        """Whether (Q, P) has the same divergences as (P, Q)."""

    def excess(self, losses: Array) -> Array:
        """Return H_eps(P|Q) - max(0, 1 - e^eps) at real `losses` eps (m,), as (m,) >= 0."""

    def gaussian(self) -> float | None:
        """Return mu if the pair is N(mu, 1) against N(0, 1), else None."""


@dataclasses.dataclass(frozen=True)
class GaussianPair:
    """N(mu, 1), taken with probability gamma and else N(0, 1), against N(0, 1)."""

    mu: float
    gamma: float = 1.0

    @property
    def symmetric(self) -> bool:
        """Whether there is no sampling."""
        return self.gamma == 1

    def gaussian(self) -> float | None:
        """Return mu if this is a plain Gaussian pair, else None."""
        return self.mu if self.gamma == 1 else None

    def excess(self, losses: Array) -> Array:
        """Return H_eps(P|Q) - max(0, 1 - e^eps) at real `losses` eps (m,), as (m,) >= 0."""
        return sampled_excess(lambda inner: gaussian_excess(self.mu, inner), self.gamma, losses)


def sampled_excess(base: Callable[[Array], Array], gamma: float, losses: Array) -> Array:
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


def gaussian_excess(mu: float, losses: Array) -> Array:
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
        slopes = 1 - nodes * _mills(nodes)
        log_density = -(x**2) / 2 - math.log(2 * math.pi) / 2
        value = np.exp(log_density) * (slopes @ (weights * (mu / 2)))
    else:
        first, second = log_ndtr(-x), size + log_ndtr(-x - mu)
        value = np.exp(first) * -np.expm1(np.minimum(second - first, 0.0))
    return np.where(losses < 0, np.exp(np.minimum(losses, 0.0)) * value, value)


def _mills(y: Array) -> Array:
    return np.asarray(math.sqrt(math.pi / 2) * erfcx(y * math.sqrt(0.5)))
