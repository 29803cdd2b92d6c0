r"""The Gaussian mechanism under Poisson sampling.

One subject takes part with probability gamma and then moves the released vector by at most the
sensitivity; sigma is the *noise multiplier*, noise scale over sensitivity, and mu = 1/sigma. The
dominating pair is Q = N(0, 1) without the subject and P = (1 - gamma) N(0, 1) + gamma N(mu, 1)
with it (Mironov, Talwar & Zhang 2019; Zhu, Dong & Wang 2022, Theorem 11).

RDP. D_alpha(P|Q) >= D_alpha(Q|P) (Mironov et al., Theorem 5), and with w(z) the density ratio,
(alpha - 1) D_alpha = log(1 + E_Q[G_alpha(log w)]), G of :mod:`vicinal.accounting._divergence`. The
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

from vicinal import _checks
from vicinal.accounting import _kernels
from vicinal.accounting._divergence import Array, mixed_ratio
from vicinal.accounting._pairs import GaussianPair

_TAIL = 13.0
_REACH = 2000.0
# 2 MB of nodes: only noise far below the sensitivity asks for more.
_MOST_NODES = 1 << 17


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
        _checks.real("sigma", self.sigma, least=1e-3, most=1e9)
        _checks.real("gamma", self.gamma, above=0, most=1)

    def rdp(self, orders: Array) -> Array:
        """Return the RDP at `orders` (m,): exact, or at extreme orders the bound by convexity."""
        if self.gamma == 1:
            return orders / (2 * self.sigma**2)
        return np.minimum(self._convex_bound(orders), [self._rdp_at(float(o)) for o in orders])

    def _convex_bound(self, orders: Array) -> Array:
        """Return log(1 - gamma + gamma E[w^alpha]) / (alpha - 1): u -> u^alpha is convex."""
        whole = orders * (orders - 1) / (2 * self.sigma**2)
        return np.asarray(mixed_ratio(whole, self.gamma) / (orders - 1))

    def _rdp_at(self, order: float) -> float:
        """Return the RDP of one order; infinite where the rule would need too many nodes."""
        mu = 1 / self.sigma
        width = min(3.0, 0.95 * math.pi / mu)
        step = 2 * math.pi * width / (width**2 / 2 + 33)
        count = math.ceil(min((order * mu + 2 * _TAIL) / step, 2.0 * _MOST_NODES))
        if order > _REACH * self.sigma or count > _MOST_NODES:
            return math.inf
        log_mass, log_ratio = _nodes(mu, self.gamma, step, 1 << (count - 1).bit_length())
        log_excess = float(
            _kernels.log_expected_gap(order, log_mass[: count + 1], log_ratio[: count + 1])
        )
        if log_excess > -30:
            return float(np.logaddexp(0.0, log_excess)) / (order - 1)
        return math.exp(log_excess) / (order - 1)

    def pair(self) -> GaussianPair:
        """Return the dominating pair; exact."""
        return GaussianPair(1 / self.sigma, self.gamma)


@functools.lru_cache(maxsize=32)
def _nodes(mu: float, gamma: float, step: float, size: int) -> tuple[Array, Array]:
    """Return log(weight * density) and log ratio at the nodes of the trapezoidal rule."""
    z = np.asarray(-_TAIL + step * np.arange(size + 1), dtype=np.float64)
    log_density = math.log(step) - z**2 / 2 - math.log(2 * math.pi) / 2
    return log_density, mixed_ratio(mu * z - mu**2 / 2, gamma)
