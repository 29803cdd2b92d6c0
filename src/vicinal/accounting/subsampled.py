r"""The Gaussian mechanism under Poisson sampling.

One subject takes part with probability gamma and then moves the released vector by at most the
sensitivity; sigma is the *noise multiplier*, noise scale over sensitivity, and mu = 1/sigma. The
dominating pair is Q = N(0, 1) without the subject and P = (1 - gamma) N(0, 1) + gamma N(mu, 1)
with it (Mironov, Talwar & Zhang 2019; Zhu, Dong & Wang 2022, Theorem 11).

RDP. D_alpha(P|Q) >= D_alpha(Q|P) (Mironov et al., Theorem 5), and with w(z) the density ratio,
(alpha - 1) D_alpha = log(1 + E_Q[G_alpha(log w)]), G of :mod:`vicinal.accounting.divergence`. The
integrand is analytic in the strip |Im z| < pi/mu, where |w| is at most its value on the real line,
so the trapezoidal rule of step h errs by less than 2 exp(d^2/2 - 2 pi d/h) relative for any
d < pi/mu (Trefethen & Weideman 2014, Theorem 5.1); h is chosen to make this less than 1e-13. It
serves integer and fractional orders alike, without the alternating series of the latter.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np

from vicinal import checks
from vicinal.accounting.divergence import Array, log_gap, mixed_ratio
from vicinal.accounting.pairs import GaussianPair

_TAIL = 13.0
_REACH = 2000.0


@dataclasses.dataclass(frozen=True)
class SubsampledGaussian:
    """A Gaussian release of noise multiplier `sigma` on a Poisson sample at rate `gamma`.

    Parameters
    ----------
    sigma : float
        Noise scale over L2 sensitivity, 1e-3 <= sigma <= 1e9.
    gamma : float
        The probability with which each subject takes part, 0 < gamma <= 1; 1 is no sampling.
    """

    sigma: float
    gamma: float = 1.0

    def __post_init__(self) -> None:
        checks.real("sigma", self.sigma, least=1e-3, most=1e9)
        checks.real("gamma", self.gamma, above=0, most=1)

    def rdp(self, orders: Array) -> Array:
        """Return the RDP at `orders` (m,): exact, or alpha/(2 sigma^2) where alpha > 2000 sigma."""
        whole = orders / (2 * self.sigma**2)
        if self.gamma == 1:
            return whole
        values = [
            min(bound, self._rdp_at(float(order))) if order <= _REACH * self.sigma else bound
            for order, bound in zip(orders, whole, strict=True)
        ]
        return np.array(values)

    def _rdp_at(self, order: float) -> float:
        log_density, log_ratio = _quadrature(self.sigma, self.gamma, order)
        terms = log_density + log_gap(np.array(order), log_ratio)
        top = float(terms.max())
        log_excess = top + math.log(math.fsum(np.exp(terms - top)))
        return (
            float(np.logaddexp(0.0, log_excess)) / (order - 1)
            if log_excess > -30
            else (math.exp(log_excess) / (order - 1))
        )

    def pair(self) -> GaussianPair:
        """Return the dominating pair; exact."""
        return GaussianPair(1 / self.sigma, self.gamma)


def _quadrature(sigma: float, gamma: float, order: float) -> tuple[Array, Array]:
    """Return log(weight * density) and log ratio at the nodes of the trapezoidal rule."""
    mu = 1 / sigma
    width = min(3.0, 0.95 * math.pi / mu)
    step = 2 * math.pi * width / (width**2 / 2 + 33)
    count = math.ceil((order * mu + 2 * _TAIL) / step)
    return _nodes(mu, gamma, step, 1 << (count - 1).bit_length(), count)


def _nodes(mu: float, gamma: float, step: float, size: int, count: int) -> tuple[Array, Array]:
    log_density, log_ratio = _cached_nodes(mu, gamma, step, size)
    return log_density[: count + 1], log_ratio[: count + 1]


@functools.lru_cache(maxsize=64)
def _cached_nodes(mu: float, gamma: float, step: float, size: int) -> tuple[Array, Array]:
    z = np.asarray(-_TAIL + step * np.arange(size + 1), dtype=np.float64)
    log_density = math.log(step) - z**2 / 2 - math.log(2 * math.pi) / 2
    return log_density, mixed_ratio(mu * z - mu**2 / 2, gamma)
