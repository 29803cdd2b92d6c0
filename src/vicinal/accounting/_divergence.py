r"""Rényi divergences without cancellation, ratios of normal tails, and dominating pairs.

*Rényi divergences.* Two distributions P and Q with log likelihood ratio L = log(P/Q) have
E_Q[e^{b L}] = 1 + E_Q[G_b(L)] with the tangent gap G_b(L) = e^{b L} - 1 - b (e^L - 1), because
E_Q[e^L - 1] = 0. G_b is the gap between u^b and its tangent at u = e^L = 1. For b > 1
(D_b(P|Q), b = alpha) and for b < 0 (D_alpha(Q|P), b = 1 - alpha) u^b is convex, so every G_b(L) is
>= 0, and a sum of these terms keeps its relative precision however close P and Q are.

*Dominating pairs.* A dominating pair (P with the subject, Q without) of a release has at least the
hockey-stick divergence H_eps of the release on any two neighbouring data sets, at every eps (Zhu,
Dong & Wang 2022). It is represented by its *excess divergence* at every real eps,
C(eps) = H_eps(P|Q) - max(0, 1 - e^eps), the part above the trivial lower bound. The other direction
is H_eps(Q|P) = e^eps C(-eps) at eps >= 0, so one function describes both directions. Where H is
close to 1 - e^eps, C keeps its relative precision.

`gamma`, everywhere in this module: the probability of Poisson sampling; 1 is no sampling.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Protocol

import numpy as np
from scipy.special import erfcx, log_ndtr

from vicinal.arrays import Floats

MAX_ORDER = 1e12  # The largest Rényi order alpha that is accepted

# Gauss-Legendre nodes and weights on [-1, 1], by the number of nodes.
_RULES = {count: np.polynomial.legendre.leggauss(count) for count in (4, 12)}

# |b L| and |L| below which the tangent gap is summed by its power series: it would cancel.
_SERIES_BELOW = 0.05
# Size relative to the first term at which the power series stops: below double precision.
_NEGLIGIBLE_TERM = 1e-18
# max(b L, L) above which the tangent gap is divided by its largest term before its logarithm.
_SCALED_ABOVE = 30.0

_SQRT_HALF = math.sqrt(0.5)
_SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


def compute_log_tangent_gap(power: Floats, log_ratio: Floats) -> Floats:
    """Return log G_b(L) elementwise, G_b(L) = e^{b L} - 1 - b (e^L - 1); minus infinity at L = 0.

    `power` is b, > 1 or < 0; `log_ratio` is L, a log likelihood ratio. The two broadcast.
    """
    power, log_ratio = np.broadcast_arrays(power, log_ratio)
    scaled = power * log_ratio
    largest_exponent = np.maximum(scaled, log_ratio)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        # Two forms of the gap: one is precise near b = 1, the other near b = 0.
        power_less_1 = power - 1
        near_one = np.exp(log_ratio) * np.expm1(power_less_1 * log_ratio) - power_less_1 * np.expm1(
            log_ratio
        )
        near_zero = np.expm1(power * log_ratio) - power * np.expm1(log_ratio)
        gap = np.where(power > 1, near_one, near_zero)
        result = np.where(gap > 0, np.log(gap), -np.inf)
    is_small = np.maximum(np.abs(scaled), np.abs(log_ratio)) < _SERIES_BELOW
    result[is_small] = _sum_log_gap_series(power[is_small], log_ratio[is_small])
    is_large = (largest_exponent > _SCALED_ABOVE) & (largest_exponent < np.inf)
    with np.errstate(over="ignore", invalid="ignore"):
        result[is_large] = largest_exponent[is_large] + np.log(
            _compute_scaled_gap(power[is_large], log_ratio[is_large], largest_exponent[is_large])
        )
    result[largest_exponent == np.inf] = np.inf
    return np.asarray(result)


def _compute_scaled_gap(power: Floats, log_ratio: Floats, largest_exponent: Floats) -> Floats:
    """Return G_b(L) e^{-x}, where e^x may overflow; b = `power`, L = `log_ratio`.

    x = `largest_exponent` = max(b L, L) > 30. All three have the same shape.
    """
    power_less_1 = power - 1
    near_one = -np.expm1(-power_less_1 * log_ratio) - power_less_1 * np.exp(
        -power_less_1 * log_ratio
    )
    near_zero = np.exp(power * log_ratio - largest_exponent) - power * np.exp(
        log_ratio - largest_exponent
    )
    return np.where(power > 1, near_one, near_zero) + power_less_1 * np.exp(-largest_exponent)


def _sum_log_gap_series(power: Floats, log_ratio: Floats) -> Floats:
    """Return log G_b(L) (m,) by the power series of (1 + u)^b - 1 - b u in u = e^L - 1.

    b = `power` (m,), L = `log_ratio` (m,); |L| and |b L| are below `_SERIES_BELOW`.
    """
    u = np.expm1(log_ratio)
    term, total = np.ones_like(u), np.ones_like(u)
    j = 2
    while (np.abs(term) > _NEGLIGIBLE_TERM).any():
        term *= u * (power - j) / (j + 1)
        total += term
        j += 1
    with np.errstate(divide="ignore"):  # At L = 0 the gap is 0 and its logarithm minus infinity.
        return np.asarray(np.log(power * (power - 1) / 2) + 2 * np.log(np.abs(u)) + np.log(total))


def compute_log_tail_ratios(margin: Floats, shift: float) -> tuple[Floats, Floats]:
    """Return the log likelihood ratios of passing and of failing a threshold test at each margin.

    They are log(Phi(a + m) / Phi(a)) > 0 and log(Phi(-a - m) / Phi(-a)) < 0, in the shape of the
    `margin` a without the subject; with it, the margin is larger by `shift` m > 0.
    """
    with np.errstate(over="ignore", divide="ignore", invalid="ignore", under="ignore"):
        pass_ratio = _compute_log_cdf_ratio(margin, margin + shift)
        fail_ratio = _compute_log_cdf_ratio(-margin, -margin - shift)
        # For small shifts the difference of logarithms cancels: an integral is used instead.
        is_narrow = (np.abs(margin) + 1 + shift) * shift < 1
        if is_narrow.any():
            # (Phi(a + m) - Phi(a)) / phi(a) is the integral of exp(-a x - x^2/2) from 0 to m.
            nodes, weights = _RULES[12]
            x = (nodes + 1) * (shift / 2)
            values = np.exp(-margin[..., None] * x - x**2 / 2)
            area = np.asarray(values @ (weights * (shift / 2)))
            pass_ratio = np.where(is_narrow, np.log1p(area * compute_hazard(margin)), pass_ratio)
            fail_ratio = np.where(is_narrow, np.log1p(-area * compute_hazard(-margin)), fail_ratio)
    return np.asarray(pass_ratio), np.asarray(fail_ratio)


def _compute_log_cdf_ratio(x: Floats, y: Floats) -> Floats:
    """Return log Phi(y) - log Phi(x) elementwise, by erfcx where both x and y are negative."""
    both_negative = np.log(erfcx(-y * _SQRT_HALF) / erfcx(-x * _SQRT_HALF)) - (y - x) * (y + x) / 2
    return np.asarray(np.where((x < 0) & (y < 0), both_negative, log_ndtr(y) - log_ndtr(x)))


def compute_hazard(a: Floats) -> Floats:
    """Return R(a) = phi(a) / Phi(a) elementwise: the normal distribution's reversed hazard rate.

    It is positive, decreasing and convex (Sampford 1953). `a`: real numbers, any shape.
    """
    return np.asarray(_SQRT_2_OVER_PI / erfcx(-a * _SQRT_HALF))


def subsample_log_ratio(log_ratio: Floats, gamma: float) -> Floats:
    """Return log(1 - gamma + gamma e^L), for an unsampled log likelihood ratio L = `log_ratio`."""
    if gamma == 1:
        return log_ratio
    with np.errstate(over="ignore"):
        for_small = np.log1p(gamma * np.expm1(log_ratio))
        for_large = np.logaddexp(math.log1p(-gamma), math.log(gamma) + log_ratio)
    return np.where(log_ratio > 1, for_large, for_small)


class DominatingPair(Protocol):
    """Two distributions that dominate a release: P with the subject, Q without.

    `infinite_masses`: the probabilities of infinite loss, of P where Q is 0, of Q where P is 0.
    """

    infinite_masses: tuple[float, float] = (0.0, 0.0)

    @property
    def is_symmetric(self) -> bool:
        """Whether (Q, P) has the same divergences as (P, Q)."""

    def compute_excess(self, epsilons: Floats) -> Floats:
        """Return H_eps(P|Q) - max(0, 1 - e^eps) >= 0 at `epsilons` (m,) of either sign, as (m,)."""

    def get_gaussian_mu(self) -> float | None:
        """Return mu if the pair is N(mu, 1) against N(0, 1), else None."""
        return None


@dataclasses.dataclass(frozen=True)
class GaussianPair(DominatingPair):
    """The dominating pair of a Gaussian release on a Poisson sample.

    P = (1 - gamma) N(0, 1) + gamma N(mu, 1) against Q = N(0, 1), `mu` = sensitivity / noise scale.
    """

    mu: float
    gamma: float = 1.0

    @property
    def is_symmetric(self) -> bool:
        """Whether (Q, P) has the same divergences as (P, Q): without sampling."""
        return self.gamma == 1

    def get_gaussian_mu(self) -> float | None:
        """Return mu if the pair is N(mu, 1) against N(0, 1), without sampling; else None."""
        return self.mu if self.gamma == 1 else None

    def compute_excess(self, epsilons: Floats) -> Floats:
        """Return the hockey-stick divergence less max(0, 1 - e^eps) at `epsilons` (m,), as (m,)."""
        return subsample_excess(
            lambda inner: compute_gaussian_excess(self.mu, inner), self.gamma, epsilons
        )


def subsample_excess(
    compute_base_excess: Callable[[Floats], Floats], gamma: float, epsilons: Floats
) -> Floats:
    """Return the excess divergence of a pair under Poisson sampling, at `epsilons` (m,), as (m,).

    `compute_base_excess` maps epsilons to the excess divergence of the pair without sampling. With
    x = e^eps, H_x((1-g) Q + g P | Q) = g H_{x'}(P|Q) for x' = (x - 1 + g)/g > 0, and
    1 - x = g (1 - x'), so the excess scales likewise; below x = 1 - g it is zero.
    Source: Balle, Barthe & Gaboardi 2018, Theorem 2.
    """
    if gamma == 1:
        return np.asarray(compute_base_excess(epsilons))
    inner_epsilons = invert_sampling(epsilons, gamma)
    is_positive = inner_epsilons > -np.inf
    result = np.zeros_like(epsilons)
    result[is_positive] = gamma * compute_base_excess(inner_epsilons[is_positive])
    return result


def invert_sampling(epsilons: Floats, gamma: float) -> Floats:
    """Return log x', x' = (e^eps - 1 + gamma) / gamma, at `epsilons` (m,); -infinity for x' <= 0.

    A hockey-stick divergence at eps under sampling is gamma times that at log x' without sampling,
    see :func:`subsample_excess`.
    """
    with np.errstate(divide="ignore", over="ignore"):
        for_small = np.log1p(np.maximum(np.expm1(epsilons) / gamma, -1.0))
    return np.where(epsilons > 30, epsilons - math.log(gamma), for_small)


def compute_gaussian_excess(mu: float, epsilons: Floats) -> Floats:
    """Return the excess divergence of N(mu, 1) from N(0, 1) at `epsilons` (m,), as (m,).

    `mu` > 0: the distance of the means. At eps >= 0 the excess is the hockey-stick divergence:
    phi(x) times the integral of 1 - y R(y) from x to x + mu, where x = eps/mu - mu/2 and R is
    Mills' ratio (d/dy R = y R - 1). For small mu this has no difference of close numbers. At
    eps < 0, H_eps(P|Q) = 1 - e^eps + e^eps H_{-eps}(Q|P), and the pair is symmetric.
    """
    magnitude = np.abs(epsilons)
    x = magnitude / mu - mu / 2
    if mu < 0.5:
        # Four nodes err by about 1e-12 mu^8 relative.
        rule, weights = _RULES[4 if mu < 0.1 else 12]
        nodes = x[:, None] + (rule + 1) * (mu / 2)
        mills: Floats = math.sqrt(math.pi / 2) * erfcx(nodes * math.sqrt(0.5))
        slopes = 1 - nodes * mills
        log_density = -(x**2) / 2 - math.log(2 * math.pi) / 2
        divergence = np.exp(log_density) * (slopes @ (weights * (mu / 2)))
    else:
        log_first, log_second = log_ndtr(-x), magnitude + log_ndtr(-x - mu)
        divergence = np.exp(log_first) * -np.expm1(np.minimum(log_second - log_first, 0.0))
    return np.where(epsilons < 0, np.exp(np.minimum(epsilons, 0.0)) * divergence, divergence)
