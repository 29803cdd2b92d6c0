r"""Noisy counts, and mechanisms known only by their RDP curve or their privacy losses.

A number that one subject moves by at most its sensitivity, with independent noise, is dominated by
the pair of its noise and the same noise moved by the whole sensitivity. A histogram of which a
subject moves at most m cells is m such numbers: their noises are independent, so the pair is their
product.

*Laplace*, scale b, sensitivity D, e = D/b. H_eps = 1 - exp((eps - e)/2) for 0 <= eps <= e, and 0
beyond. RDP (Mironov 2017, Prop. 6), with g(x) = e^x - 1 - x, as the linear terms cancel:
(alpha - 1) D_alpha = log(1 + (alpha g((alpha - 1) e) + (alpha - 1) g(-alpha e)) / (2 alpha - 1)).

*Discrete Laplace*, P(z) ~ exp(-|z|/b) on the integers, moved by an integer k: log likelihood ratios
(|z| - |z - k|)/b, which take k + 1 values.

*Discrete Gaussian*, P(z) ~ exp(-z^2 / (2 sigma^2)), moved by an integer k: k^2 / (2 sigma^2)-zCDP
(Canonne, Kamath & Steinke 2020, Theorem 4). The dominating pair is the pair of the two
distributions, cut where a mass of 1e-40 remains, which counts as infinite loss.

*A finite pair* has outcomes of loss L_i with probability p_i with the subject and q_i = p_i e^-L_i
without; the mass missing to 1 has infinite loss, in either direction. Its profile H is linear in
x = e^eps between losses, with slope minus the mass q above: summed from the largest loss down, of
positive terms only.

*An attained pair* has finitely many outcomes, those of a pair above or intervals of them, with
probabilities rounded down; lower bounds on epsilon are computed from it (`_certificate.py`).

*A curve* known at some orders: (alpha - 1) D_alpha is convex in alpha and 0 at 1, so straight lines
between known orders lie above it. Beyond the largest known order there is no bound.
"""

from __future__ import annotations

import dataclasses
import math
from functools import lru_cache
from typing import ClassVar

import numpy as np

from vicinal.accounting._certificate import AttainedPair
from vicinal.accounting._divergence import DominatingPair, compute_log_tangent_gap
from vicinal.arrays import Floats
from vicinal.errors import InvalidInput

# |x| below which e^x - 1 - x is summed by its power series: the difference would cancel.
_SERIES_BELOW = 0.05
# Exponent above which the 1 in log(1 + ...) is below double precision, and e^x may overflow.
_LARGE_EXPONENT = 30.0
# Intervals into which Laplace noise between the two centres is discretized for a lower bound.
_LAPLACE_CELLS = 4000
# Standard deviations of a discrete Gaussian that are kept; less than 1e-40 lies beyond.
_GAUSSIAN_REACH = 13.6
_CUT_MASS = 1e-40  # The mass beyond `_GAUSSIAN_REACH`, counted as infinite loss
# Larger losses count as infinite: the grid of `pld.py` ends here, before e^loss overflows.
_MAX_LOSS = 600.0
_TOLERANCE = 1e-9  # Error of a sum of stated probabilities up to which it is accepted as 1
_ROUNDING_MASS = 1e-12  # Mass that a distribution may miss of 1 by rounding alone
_ROUNDED_DOWN = 1 - 1e-12  # Factor on the masses of a lower bound: more than their rounding errors
# The largest sigma (steps) of a discrete Gaussian whose loss distribution is written out. At this
# scale it has about 272,000 outcomes.
MAX_PAIR_SIGMA = 1e4


@dataclasses.dataclass(frozen=True)
class LaplacePair(DominatingPair):
    """Laplace noise moved by the whole sensitivity, against the same noise.

    `max_loss`: sensitivity over noise scale, which is the largest privacy loss.
    """

    max_loss: float

    @property
    def is_symmetric(self) -> bool:
        """True: Laplace noise is symmetric."""
        return True

    def compute_excess(self, epsilons: Floats) -> Floats:
        """Return the hockey-stick divergence less max(0, 1 - e^eps) at `epsilons` (m,), as (m,)."""
        divergence = -np.expm1(np.minimum(np.abs(epsilons) - self.max_loss, 0.0) / 2)
        return np.asarray(np.exp(np.minimum(epsilons, 0.0)) * divergence)

    def discretize(self, count: int) -> AttainedPair:
        """Return the attained pair of `count` equal releases.

        The outcomes are the intervals between the two centres, and one half-line on either side.
        """
        edges = self.max_loss * np.linspace(0, 1, _LAPLACE_CELLS + 1)
        masses_without = np.exp(-edges[:-1]) * -np.expm1(-np.diff(edges)) / 2
        masses = np.concatenate([[np.exp(-self.max_loss) / 2], masses_without[::-1], [0.5]])
        interval_losses = np.log(masses_without[::-1] / masses_without)
        losses = np.concatenate([[-self.max_loss], interval_losses, [self.max_loss]])
        return AttainedPair(masses * _ROUNDED_DOWN, losses, count)


@dataclasses.dataclass(frozen=True)
class LaplaceNumber:
    """A number with Laplace noise; `max_loss` > 0 is sensitivity over noise scale."""

    sort_name: ClassVar[str] = "laplace"

    max_loss: float

    def rdp(self, orders: Floats) -> Floats:
        """Return the RDP at `orders` (m,) > 1, as (m,); exact, see the module's text."""
        orders_less_1 = orders - 1
        exponent = orders_less_1 * self.max_loss
        negative_exponent = -orders * self.max_loss
        with np.errstate(over="ignore", invalid="ignore"):
            gap = orders * _compute_expm1_minus_x(exponent)
            gap = gap + orders_less_1 * _compute_expm1_minus_x(negative_exponent)
            for_small = np.log1p(gap / (2 * orders - 1))
        log_terms = np.logaddexp(
            np.log(orders) + exponent, np.log(orders_less_1) + negative_exponent
        )
        for_large = log_terms - np.log(2 * orders - 1)
        is_large = exponent > _LARGE_EXPONENT
        return np.where(is_large, for_large, for_small) / orders_less_1

    def build_dominating_pair(self) -> LaplacePair:
        """Return the dominating pair; exact."""
        return LaplacePair(self.max_loss)


def _compute_expm1_minus_x(x: Floats) -> Floats:
    """Return g(x) = e^x - 1 - x >= 0 elementwise; by its power series for small |x|."""
    series, term = np.zeros_like(x), np.ones_like(x)
    small = np.where(np.abs(x) < _SERIES_BELOW, x, 0.0)
    for power in range(1, 12):
        term = term * small / power
        if power > 1:
            series += term
    return np.where(small == 0.0, np.expm1(x) - x, series)


@dataclasses.dataclass(frozen=True, eq=False)
class FinitePair(DominatingPair):
    """A dominating pair with finitely many privacy losses.

    `losses` (m,) increase; `masses` (m,) are their probabilities with the subject, `masses_without`
    (m,) those without. `infinite_masses`: the probability of infinite loss with the subject, and
    that without. `is_symmetric`: whether exchanging the two distributions changes no divergence.
    """

    losses: Floats
    masses: Floats
    masses_without: Floats
    infinite_masses: tuple[float, float] = (0.0, 0.0)
    is_symmetric: bool = False

    def compute_excess(self, epsilons: Floats) -> Floats:
        """Return the hockey-stick divergence less max(0, 1 - e^eps) at `epsilons` (m,), as (m,)."""
        magnitude = np.abs(epsilons)
        scale = np.exp(np.minimum(epsilons, 0.0))
        forward = _compute_profile(
            self.losses, self.masses_without, self.infinite_masses[0], magnitude
        )
        if self.is_symmetric:
            return np.asarray(scale * forward)
        backward = _compute_profile(
            -self.losses[::-1], self.masses[::-1], self.infinite_masses[1], magnitude
        )
        return np.where(epsilons >= 0, forward, scale * backward)

    def truncate_losses(self) -> FinitePair:
        """Return the pair with losses of magnitude above 600 made infinite."""
        is_high, is_low = self.losses > _MAX_LOSS, self.losses < -_MAX_LOSS
        is_kept = ~(is_high | is_low)
        infinite_with = self.infinite_masses[0] + float(self.masses[is_high].sum())
        infinite_without = self.infinite_masses[1] + float(self.masses_without[is_low].sum())
        return FinitePair(
            self.losses[is_kept],
            self.masses[is_kept],
            self.masses_without[is_kept],
            (infinite_with, infinite_without),
            self.is_symmetric,
        )

    def discretize(self, count: int) -> AttainedPair:
        """Return the attained pair of `count` equal releases, with the outcomes of this pair."""
        return AttainedPair(self.masses * _ROUNDED_DOWN, self.losses, count)


def _compute_profile(
    losses: Floats, masses_without: Floats, infinite_mass: float, epsilons: Floats
) -> Floats:
    """Return the hockey-stick divergence H_eps of a finite pair at `epsilons` (n,) >= 0, as (n,).

    `losses` (m,) increase; `masses_without` (m,) are their probabilities without the subject;
    `infinite_mass` is the probability of infinite loss with the subject.
    """
    if not len(losses):
        return np.full_like(epsilons, infinite_mass)
    # The mass without the subject at each loss and above, and 0 beyond the last.
    mass_above = np.append(np.cumsum(masses_without[::-1])[::-1], 0.0)
    rises = mass_above[1:-1] * np.exp(losses[:-1]) * np.expm1(np.diff(losses))
    divergence_at_losses = np.append(np.cumsum(rises[::-1])[::-1], 0.0)
    next_loss = np.searchsorted(losses, epsilons, side="right")
    index = np.minimum(next_loss, len(losses) - 1)
    linear = (
        mass_above[next_loss]
        * np.exp(epsilons)
        * np.expm1(np.maximum(losses[index] - epsilons, 0.0))
    )
    finite = np.where(next_loss < len(losses), divergence_at_losses[index] + linear, 0.0)
    return finite + infinite_mass


@dataclasses.dataclass(frozen=True)
class FiniteLosses:
    """A release stated by its privacy loss distribution.

    `losses` increase; `masses` are their probabilities with the subject; `infinite` is the
    probability of an infinite loss.
    """

    sort_name: ClassVar[str] = "finite_losses"

    losses: tuple[float, ...]
    masses: tuple[float, ...]
    infinite: float = 0.0

    def rdp(self, orders: Floats) -> Floats:
        """Return the RDP at `orders` (m,) > 1, as (m,); infinite if a loss can be infinite."""
        return _compute_finite_rdp(self.build_dominating_pair(), orders)

    def build_dominating_pair(self) -> FinitePair:
        """Return the pair, or raise InvalidInput if the masses are not a distribution."""
        return _build_finite_pair(self)


@dataclasses.dataclass(frozen=True)
class ProbabilisticDisclosure:
    """A mechanism that reveals all data with a `probability`, and nothing otherwise.

    It is (0, `probability`)-DP, so a composition subtracts the probability from delta.
    """

    sort_name: ClassVar[str] = "probabilistic_disclosure"

    probability: float

    def rdp(self, orders: Floats) -> Floats:
        """Return infinity at every order."""
        return np.full_like(orders, np.inf)

    def build_dominating_pair(self) -> FinitePair:
        """Return the pair of loss 0 or, with `probability`, infinite loss; symmetric."""
        remaining = np.array([1 - self.probability])
        infinite_masses = (self.probability, self.probability)
        # Built directly: a probability below the rounding of stated masses must not be dropped.
        return FinitePair(np.zeros(1), remaining, remaining, infinite_masses, is_symmetric=True)


@lru_cache(maxsize=64)
def _build_finite_pair(release: FiniteLosses) -> FinitePair:
    """Return the dominating pair of a stated loss distribution; losses above 600 become infinite.

    If its probabilities, or those without the subject, miss 1 by less than 1e-12, they are
    normalized. Raises InvalidInput if they are not a distribution.
    """
    losses, masses = np.array(release.losses), np.array(release.masses)
    total = math.fsum(release.masses)
    masses = masses * ((1 - release.infinite) / total)
    masses_without = masses * np.exp(-losses)
    total_without = math.fsum(masses_without)
    if abs(total + release.infinite - 1) > _TOLERANCE or total_without > 1 + _TOLERANCE:
        raise InvalidInput(
            "The 'probabilities' parameter must add up to 1 with 'infinite', and times "
            "e^-loss to at most 1: losses are log ratios of the distribution with the subject to "
            "that without."
        )
    if total_without > 1 - _ROUNDING_MASS:
        masses_without = masses_without / total_without
        total_without = 1.0
    infinite_masses = (release.infinite, 1 - total_without)
    return FinitePair(losses, masses, masses_without, infinite_masses).truncate_losses()


def _compute_finite_rdp(pair: FinitePair, orders: Floats) -> Floats:
    """Return the RDP of a finite pair at `orders` (m,), as (m,): the larger of both directions.

    It is infinite if a loss can be infinite.
    """
    if max(pair.infinite_masses) > 0:
        return np.full_like(orders, np.inf)
    powers = np.stack([orders, orders if pair.is_symmetric else 1 - orders])
    with np.errstate(divide="ignore"):
        log_terms = compute_log_tangent_gap(powers[..., None], pair.losses) + np.log(
            pair.masses_without
        )
    largest = log_terms.max(axis=2, keepdims=True)
    if not np.isfinite(largest).all():
        # Minus infinity: all losses are 0, and so is the divergence.
        return np.where(np.isneginf(largest[..., 0]).all(axis=0), 0.0, np.inf)
    log_gap = largest[..., 0] + np.log(np.exp(log_terms - largest).sum(axis=2))
    return np.asarray(np.logaddexp(0.0, log_gap.max(axis=0)) / (orders - 1))


@dataclasses.dataclass(frozen=True)
class DiscreteLaplace:
    """An integer with discrete Laplace noise of this `scale`, moved by at most `shift`."""

    sort_name: ClassVar[str] = "discrete_laplace"

    scale: float
    shift: int

    def rdp(self, orders: Floats) -> Floats:
        """Return the RDP at `orders` (m,) > 1, as (m,); exact."""
        return _compute_finite_rdp(_build_discrete_laplace_pair(self.scale, self.shift), orders)

    def build_dominating_pair(self) -> FinitePair:
        """Return the exact pair; losses of magnitude above 600 are made infinite."""
        return _build_discrete_laplace_pair(self.scale, self.shift).truncate_losses()


@lru_cache(maxsize=256)
def _build_discrete_laplace_pair(scale: float, shift: int) -> FinitePair:
    """Return the pair of discrete Laplace noise of `scale`, moved by the integer `shift` >= 1."""
    # Outcomes on either side of both centres share a loss, -shift/scale or shift/scale; each of the
    # shift - 1 integers between the centres has its own.
    inner = np.arange(1, shift)
    inner_masses = -math.expm1(-1 / scale) * np.exp(-(shift - inner) / scale)
    masses = np.concatenate([[math.exp(-shift / scale)], inner_masses, [1.0]])
    masses /= 1 + math.exp(-1 / scale)
    losses = (2 * np.arange(shift + 1) - shift) / scale
    return FinitePair(losses, masses, masses[::-1], is_symmetric=True)


@dataclasses.dataclass(frozen=True)
class DiscreteGaussian:
    """An integer with discrete Gaussian noise of scale `sigma`, moved by at most `shift`."""

    sort_name: ClassVar[str] = "discrete_gaussian"

    sigma: float
    shift: int

    def rdp(self, orders: Floats) -> Floats:
        """Return alpha (shift / sigma)^2 / 2 at `orders` (m,), as (m,): the RDP of its zCDP."""
        return orders * (self.shift / self.sigma) ** 2 / 2

    def build_dominating_pair(self) -> FinitePair | None:
        """Return the pair, its tails counted as infinite loss; None if sigma > `MAX_PAIR_SIGMA`."""
        if self.sigma > MAX_PAIR_SIGMA:
            return None
        return _build_discrete_gaussian_pair(self.sigma, self.shift)


@lru_cache(maxsize=64)
def _build_discrete_gaussian_pair(sigma: float, shift: int) -> FinitePair:
    """Return the pair of discrete Gaussian noise of scale `sigma`, moved by the integer `shift`."""
    reach = math.ceil(_GAUSSIAN_REACH * sigma) + 1
    noise = np.arange(-reach, reach + 1, dtype=np.float64)
    weights = np.exp(-((noise / sigma) ** 2) / 2)
    masses = weights / weights.sum()
    # The distribution without the subject is centred `shift` below.
    losses = shift * (2 * noise + shift) / (2 * sigma**2)
    with np.errstate(over="ignore"):
        masses_without = masses * np.exp(-losses)
    pair = FinitePair(losses, masses, masses_without, (_CUT_MASS, _CUT_MASS), is_symmetric=True)
    return pair.truncate_losses()


@dataclasses.dataclass(frozen=True)
class RenyiCurve:
    """A release stated by its RDP `values` at increasing `orders` > 1."""

    sort_name: ClassVar[str] = "renyi"

    orders: tuple[float, ...]
    values: tuple[float, ...]

    def rdp(self, orders: Floats) -> Floats:
        """Return the RDP at `orders` (m,), as (m,), interpolated; infinite beyond the largest."""
        known_less_1 = np.array(self.orders) - 1
        scaled = np.append(0.0, known_less_1 * np.array(self.values))
        # The factor rounds up by more than the interpolation errs.
        lines = np.interp(orders - 1, np.append(0.0, known_less_1), scaled, right=np.inf)
        return np.asarray(lines / (orders - 1) * (1 + 1e-12))

    def build_dominating_pair(self) -> None:
        """Return None: an RDP curve does not determine a dominating pair."""
