r"""The Gaussian mechanism, continuous and on a grid, with and without Poisson sampling.

Proof note: grid_noise.md. The *noise multiplier* sigma is noise scale over sensitivity, and
mu = 1/sigma; gamma is the probability of Poisson sampling. The dominating pair is Q = N(0, 1)
without the subject and P = (1 - gamma) N(0, 1) + gamma N(mu, 1) with it (Zhu, Dong & Wang 2022,
Theorem 11).
"""

import dataclasses
import math
from functools import lru_cache
from typing import ClassVar

import numpy as np

from vicinal import checks
from vicinal.accounting._divergence import (
    GaussianPair,
    compute_log_tangent_gap,
    subsample_log_ratio,
)
from vicinal.arrays import Floats


def compute_grid_excess(scale: float, shift: float) -> float:
    """Return an upper bound on the delta that discrete noise adds to that of continuous noise.

    It is tau of grid_noise.md, rounded up, a bound for every epsilon on the absolute difference of
    the hockey-stick divergences of Gaussian noise from the same noise moved by `shift`. `scale` s
    >= 1, the standard deviation, and 0 <= `shift` <= s are in grid steps.
    """
    scale = checks.check_real("scale", scale, minimum=1)
    ratio = checks.check_real("shift", shift, minimum=0, maximum=scale) / scale
    normalization_error = 8 * math.exp(-2 * math.pi**2 * scale**2)
    return math.nextafter((1.77 + 0.8 * ratio) / (12 * scale**2) + normalization_error, 1.0)


@lru_cache(maxsize=4096)
def compute_grid_slack(scale: float) -> float:
    """Return eta, the delta that discrete noise adds for one coordinate of one release under GDP.

    The noise `scale` is in grid steps. The bound is valid for every shift up to `scale` steps; the
    mechanisms allow no larger ones.
    """
    return 2 * compute_grid_excess(scale, scale)


# Standard deviations of N(0, 1) that the trapezoidal rule covers beyond the moved centres.
_TAIL = 13.0
# Orders above this many times sigma are not integrated; the bound by convexity is used.
_MAX_ORDER_PER_SIGMA = 2000.0
# Nodes of the trapezoidal rule, 2 MB: more are needed for noise far below the sensitivity only.
_MAX_NODES = 1 << 17


@dataclasses.dataclass(frozen=True)
class SubsampledGaussian:
    """A Gaussian release on a Poisson sample.

    `sigma`: the noise multiplier, noise scale over L2 sensitivity, from 1e-3 to 1e9. `gamma`: the
    sampling probability, > 0; 1 is no sampling.
    """

    sort_name: ClassVar[str] = "subsampled_gaussian"

    sigma: float
    gamma: float = 1.0

    def __post_init__(self) -> None:
        """Raise InvalidInput if a field is out of bounds."""
        checks.check_real("sigma", self.sigma, minimum=1e-3, maximum=1e9)
        checks.check_real("gamma", self.gamma, above=0, maximum=1)

    def rdp(self, orders: Floats) -> Floats:
        """Return the RDP at `orders` (m,), as (m,): exact, or a bound at extreme orders."""
        if self.gamma == 1:
            return orders / (2 * self.sigma**2)
        exact = [self._integrate_rdp(float(order)) for order in orders]
        # For the unsampled likelihood ratio u, u^alpha is convex, so the sampled moment is at most
        # 1 - gamma + gamma E[u^alpha].
        log_moments = orders * (orders - 1) / (2 * self.sigma**2)
        bound_by_convexity = subsample_log_ratio(log_moments, self.gamma) / (orders - 1)
        return np.minimum(bound_by_convexity, exact)

    def _integrate_rdp(self, order: float) -> float:
        """Return the RDP at `order` > 1 by the trapezoidal rule; infinite with too many nodes."""
        mu = 1 / self.sigma
        width = min(3.0, 0.95 * math.pi / mu)
        step = 2 * math.pi * width / (width**2 / 2 + 33)
        n_nodes = math.ceil(min((order * mu + 2 * _TAIL) / step, 2.0 * _MAX_NODES))
        if order > _MAX_ORDER_PER_SIGMA * self.sigma or n_nodes > _MAX_NODES:
            return math.inf
        log_mass, log_ratio = _compute_nodes(mu, self.gamma, step, 1 << (n_nodes - 1).bit_length())
        log_gap = _compute_log_expected_gap(
            order, log_mass[: n_nodes + 1], log_ratio[: n_nodes + 1]
        )
        if log_gap > -30:
            return float(np.logaddexp(0.0, log_gap)) / (order - 1)
        # log(1 + x) is x to double precision.
        return math.exp(log_gap) / (order - 1)

    def build_dominating_pair(self) -> GaussianPair:
        """Return the dominating pair; exact."""
        return GaussianPair(1 / self.sigma, self.gamma)


def _compute_log_expected_gap(power: float, log_mass: Floats, log_ratio: Floats) -> float:
    """Return the log of E_Q[G_b(L)], a sum over nodes of quadrature.

    G_b(L) = e^{b L} - 1 - b (e^L - 1), b = `power`. `log_mass` (m,): log masses under Q.
    `log_ratio` (m,): the log likelihood ratios L = log(P/Q) at the nodes.
    """
    terms = log_mass + compute_log_tangent_gap(np.full_like(log_ratio, power), log_ratio)
    largest = float(terms.max())
    if not np.isfinite(largest):
        return largest
    return largest + float(np.log(np.exp(terms - largest).sum()))


@lru_cache(maxsize=32)
def _compute_nodes(mu: float, gamma: float, step: float, size: int) -> tuple[Floats, Floats]:
    """Return log masses and log ratios of the nodes of the trapezoidal rule, both (`size` + 1,).

    They are log(step * density of N(0, 1)) and the log likelihood ratio log(P/Q) of the dominating
    pair, at the nodes -13 + i `step`. `gamma`: the sampling probability.
    """
    z = np.asarray(-_TAIL + step * np.arange(size + 1), dtype=np.float64)
    log_density = math.log(step) - z**2 / 2 - math.log(2 * math.pi) / 2
    return log_density, subsample_log_ratio(mu * z - mu**2 / 2, gamma)
