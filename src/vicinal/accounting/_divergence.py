r"""Rényi sums without cancellation, and ratios of normal tails: what the exact bounds are made of.

Two laws P and Q with log ratio L = log(P/Q) have E_Q[e^{b L}] = 1 + E_Q[G_b(L)] where
G_b(L) = e^{b L} - 1 - b (e^L - 1), because E_Q[e^L - 1] = 0. For b > 1 (D_b(P|Q), b = alpha) and
for b < 0 (D_alpha(Q|P), b = 1 - alpha) every G_b(L) is >= 0 by convexity of u -> u^b, so the sum of
positive terms keeps its relative precision however close P and Q are.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.special import erfcx, log_ndtr

from vicinal.accounting import _kernels

Array = npt.NDArray[np.float64]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_ROOT_HALF = math.sqrt(0.5)
_ROOT_2_OVER_PI = math.sqrt(2 / math.pi)


def log_gap(power: Array, log_ratio: Array) -> Array:
    """Return log G_b(L) elementwise, b = `power` (> 1 or < 0), L = `log_ratio`; broadcasts.

    G_b grows with the size of L on either side of 0.
    """
    power, log_ratio = np.broadcast_arrays(power, log_ratio)
    flat = _kernels.log_gaps(np.ravel(power), np.ravel(log_ratio))
    return np.asarray(flat.reshape(power.shape), dtype=np.float64)


def tail_ratios(start: Array, shift: float) -> tuple[Array, Array]:
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
            up = np.where(near, np.log1p(step * _hazard(start)), up)
            down = np.where(near, np.log1p(-step * _hazard(-start)), down)
    return np.asarray(up), np.asarray(down)


def _log_tail_ratio(x: Array, y: Array) -> Array:
    """Return log Phi(y) - log Phi(x); through erfcx where both are in the left tail."""
    left = np.log(erfcx(-y * _ROOT_HALF) / erfcx(-x * _ROOT_HALF)) - (y - x) * (y + x) / 2
    return np.asarray(np.where((x < 0) & (y < 0), left, log_ndtr(y) - log_ndtr(x)))


def _hazard(a: Array) -> Array:
    """Return phi(a)/Phi(a)."""
    return np.asarray(_ROOT_2_OVER_PI / erfcx(-a * _ROOT_HALF))


def _area(a: Array, shift: float) -> Array:
    """Return the integral of exp(-a x - x^2/2) over 0 <= x <= shift, for (|a|+shift) shift < 1."""
    x = (_NODES + 1) * (shift / 2)
    values = np.exp(-a[..., None] * x - x**2 / 2)
    return np.asarray(values @ (_WEIGHTS * (shift / 2)))


def mixed_ratio(log_ratio: Array, gamma: float) -> Array:
    """Return log(1 - gamma + gamma e^L): what Poisson sampling leaves of the log ratio L."""
    if gamma == 1:
        return log_ratio
    with np.errstate(over="ignore"):
        near = np.log1p(gamma * np.expm1(log_ratio))
        far = np.logaddexp(math.log1p(-gamma), math.log(gamma) + log_ratio)
    return np.where(log_ratio > 1, far, near)
