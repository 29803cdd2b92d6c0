r"""The Gaussian mechanism, continuous and on a grid.

Slack of the grid, with proof
-----------------------------
A release adds a discrete Gaussian of scale s (grid steps) to an integer that one subject moves by
at most D <= s steps. Its Rényi divergences are at most those of the continuous Gaussian (Canonne,
Kamath & Steinke 2020, Prop. 5). Its hockey-stick divergences may be slightly larger.

*Claim.* At every real epsilon the discrete divergence exceeds the continuous one by at most
tau = (1.77 + 0.8 d) / (12 s^2) + 8 exp(-2 pi^2 s^2), with d = D/s.

*Proof.* Take D > 0 (D < 0 is the mirror image) and epsilon >= 0. In units of s the integrand is
g(u) = [phi(u - d) - e^eps phi(u)]_+, zero below t and smooth above it, where e^eps phi(t) =
phi(t - d), so t = eps/d + d/2 > 0. By Euler-Maclaurin the sum over a grid of step h differs from
the integral by (h^2/2) times the integral of the periodic Bernoulli polynomial B2 against dg', so
by at most V h^2/12, where V is the total variation of g' (its jump at t included) and
|B2| <= 1/6. Here h = 1/s. V is at most the sum of: the jump of g' at t, d phi(t - d) <= .399 d;
the variation of phi', at most 4 phi(1) = .968; and that of e^eps phi' on (t, inf). The last is,
for t >= 1, e^eps t phi(t) = (t - d) phi(t - d) + d phi(t - d) <= .242 + .399 d; for t < 1 at most
2 e^eps phi(1) = 2 phi(1) phi(t - d)/phi(t) <= 2 (.399) = .798. Together V <= 1.77 + .8 d. The sum
uses the normaliser of the discrete distribution, within a factor 1 +- 2.1 exp(-2 pi^2 s^2) of
s sqrt(2 pi) (Poisson summation), which moves either term by less than 4 exp(-2 pi^2 s^2). For
epsilon < 0 use
H_eps(P|Q) = 1 - e^eps + e^eps H_{-eps}(Q|P): the excess shrinks by e^eps.  QED

*Consequence.* The pair is dominated by Gaussian(mu = d) composed with a (0, eta) mechanism that
fails openly with probability eta = 2 tau: that mechanism has (1 - eta) H + eta, so eta (1 - H) >=
tau is needed. For epsilon >= 0, 1 - H_eps >= 1 - H_0 = 2 Phi(-d/2) >= .617 at d <= 1; for
epsilon < 0 both 1 - H_eps = e^eps (1 - H_{-eps}) and the excess carry the factor e^eps.  QED
For a subject that moves several coordinates the pairs are independent: mu adds in squares and eta
adds up.

Under Poisson sampling one subject takes part with probability gamma and then moves the released
vector by at most the sensitivity; sigma is the *noise multiplier*, noise scale over sensitivity,
and mu = 1/sigma. The dominating pair is Q = N(0, 1) without the subject and P = (1 - gamma) N(0, 1)
+ gamma N(mu, 1) with it (Mironov, Talwar & Zhang 2019; Zhu, Dong & Wang 2022, Theorem 11).

RDP. D_alpha(P|Q) >= D_alpha(Q|P) (Mironov et al., Theorem 5), and with w(z) the density ratio,
(alpha - 1) D_alpha = log(1 + E_Q[G_alpha(log w)]), G_alpha the tangent gap of
:mod:`vicinal.accounting._divergence`. The integrand is analytic in the strip |Im z| < pi/mu, where
|w| is at most its value on the real line, so the trapezoidal rule of step h errs by less than
2 exp(d^2/2 - 2 pi d/h) relative for any d < pi/mu (Trefethen & Weideman 2014, Theorem 5.1); h is
chosen to make this less than 1e-13. It serves integer and fractional orders, without the
alternating series of the latter.
"""

import dataclasses
import math
from functools import lru_cache

import numpy as np

from vicinal import checks
from vicinal.accounting._divergence import (
    GaussianPair,
    compute_log_tangent_gap,
    subsample_log_ratio,
)
from vicinal.arrays import Floats


def compute_grid_excess(scale: float, shift: float) -> float:
    """Return tau of the module's claim, rounded up.

    tau bounds the excess of the hockey-stick divergence of discrete Gaussian noise over that of
    continuous noise. The noise `scale` s >= 1 and the `shift` 0 <= D <= s are in grid steps.
    """
    scale = checks.check_real("scale", scale, least=1)
    ratio = checks.check_real("shift", shift, least=0, most=scale) / scale
    normaliser = 8 * math.exp(-2 * math.pi**2 * scale**2)
    return math.nextafter((1.77 + 0.8 * ratio) / (12 * scale**2) + normaliser, 1.0)


@lru_cache(maxsize=4096)
def grid_slack(scale: float) -> float:
    """Return eta, the addition to delta of a GDP guarantee by one coordinate of one release.

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
    """A Gaussian release with noise multiplier `sigma` on a Poisson sample.

    1e-3 <= sigma <= 1e9 is noise scale over L2 sensitivity; 0 < gamma <= 1 is the probability of
    Poisson sampling, and 1 is no sampling.
    """

    sigma: float
    gamma: float = 1.0

    def __post_init__(self) -> None:
        checks.check_real("sigma", self.sigma, least=1e-3, most=1e9)
        checks.check_real("gamma", self.gamma, above=0, most=1)

    def rdp(self, orders: Floats) -> Floats:
        """Return the RDP at `orders` (m,), as (m,): exact, or a bound at extreme orders."""
        if self.gamma == 1:
            return orders / (2 * self.sigma**2)
        exact = [self._integrate_rdp(float(order)) for order in orders]
        return np.minimum(self._bound_by_convexity(orders), exact)

    def _bound_by_convexity(self, orders: Floats) -> Floats:
        """Return the bound log(1 - gamma + gamma E[u^alpha]) / (alpha - 1) at `orders` (m,).

        u is the likelihood ratio without sampling; the bound holds because u^alpha is convex.
        """
        log_moments = orders * (orders - 1) / (2 * self.sigma**2)
        return np.asarray(subsample_log_ratio(log_moments, self.gamma) / (orders - 1))

    def _integrate_rdp(self, order: float) -> float:
        """Return the RDP at one `order`, by the trapezoidal rule of the module's text.

        Infinite if the rule would need too many nodes.
        """
        mu = 1 / self.sigma
        width = min(3.0, 0.95 * math.pi / mu)
        step = 2 * math.pi * width / (width**2 / 2 + 33)
        count = math.ceil(min((order * mu + 2 * _TAIL) / step, 2.0 * _MAX_NODES))
        if order > _MAX_ORDER_PER_SIGMA * self.sigma or count > _MAX_NODES:
            return math.inf
        log_mass, log_ratio = _compute_nodes(mu, self.gamma, step, 1 << (count - 1).bit_length())
        log_gap = float(
            _compute_log_expected_gap(order, log_mass[: count + 1], log_ratio[: count + 1])
        )
        if log_gap > -30:
            return float(np.logaddexp(0.0, log_gap)) / (order - 1)
        # log(1 + x) is x to double precision.
        return math.exp(log_gap) / (order - 1)

    def build_dominating_pair(self) -> GaussianPair:
        """Return the dominating pair; exact."""
        return GaussianPair(1 / self.sigma, self.gamma)


def _compute_log_expected_gap(power: float, log_mass: Floats, log_ratio: Floats) -> float:
    """Return log of the sum of e^`log_mass` G_b(`log_ratio`) over nodes (m,), b = `power`."""
    terms = log_mass + compute_log_tangent_gap(np.full_like(log_ratio, power), log_ratio)
    largest = float(terms.max())
    if not np.isfinite(largest):
        return largest
    return largest + float(np.log(np.exp(terms - largest).sum()))


@lru_cache(maxsize=32)
def _compute_nodes(mu: float, gamma: float, step: float, size: int) -> tuple[Floats, Floats]:
    """Return log(weight * density) and log likelihood ratio at the nodes -13 + i step.

    Both are (size + 1,). The density is that of N(0, 1); `mu` and `gamma` are those of
    :class:`~vicinal.accounting._divergence.GaussianPair`.
    """
    z = np.asarray(-_TAIL + step * np.arange(size + 1), dtype=np.float64)
    log_density = math.log(step) - z**2 / 2 - math.log(2 * math.pi) / 2
    return log_density, subsample_log_ratio(mu * z - mu**2 / 2, gamma)
