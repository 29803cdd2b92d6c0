r"""Releases besides votes: noisy counts, and mechanisms of others by their curve or their losses.

A number that one subject moves by at most its sensitivity, with noise of its own, is dominated by
the pair of its noise and the same noise moved by the whole sensitivity. A histogram of which a
subject moves at most m cells is m such numbers: their noises are independent, so the pair is their
product.

*Laplace*, scale b, sensitivity D, e = D/b. H_eps = 1 - exp((eps - e)/2) for 0 <= eps <= e, and 0
beyond. RDP (Mironov 2017, Prop. 6), with g(x) = e^x - 1 - x, as the linear terms cancel:
(alpha - 1) D_alpha = log(1 + (alpha g((alpha - 1) e) + (alpha - 1) g(-alpha e)) / (2 alpha - 1)).

*Discrete Laplace*, P(z) ~ exp(-|z|/b) on whole numbers, moved by a whole k: log ratios
(|z| - |z - k|)/b, of which there are k + 1.

*Discrete Gaussian*, P(z) ~ exp(-z^2 / (2 sigma^2)), moved by a whole k: k^2 / (2 sigma^2)-zCDP
(Canonne, Kamath & Steinke 2020, Theorem 4), and the pair itself, cut where a mass of 1e-40 is left,
which counts as infinite loss.

*A finite pair* has atoms of loss L_i and mass p_i with the subject, q_i = p_i e^-L_i without; what
is missing to 1 is infinite loss in either direction. Its profile H is linear in x = e^eps between
losses, with slope minus the mass q above: summed up from the top, of positive terms only.

*A curve* known at some orders: (alpha - 1) D_alpha is convex in alpha and 0 at 1, so the straight
lines between known orders lie above it; beyond the largest nothing is known.
"""

from __future__ import annotations

import dataclasses
import math
from functools import lru_cache

import numpy as np

from vicinal.accounting._certificate import WorstCasePair
from vicinal.accounting._divergence import Pair, log_gap
from vicinal.arrays import Floats
from vicinal.errors import InvalidInput

_SERIES_BELOW = 0.05
_FAR = 30.0
_CELLS = 4000  # of a continuous law, for a lower bound
_REACH = 13.6  # standard deviations beyond which less than 1e-40 of a Gaussian lies
_CUT = 1e-40
_LARGEST = 600.0
_ROUNDED, _RESIDUE = 1e-9, 1e-12
_DOWN = 1 - 1e-12

LARGEST_PAIR = 1e4
"""The largest sigma of a discrete Gaussian whose losses are written out."""


@dataclasses.dataclass(frozen=True)
class LaplacePair(Pair):
    """Laplace noise against the same, moved; `size` is the largest loss."""

    size: float

    @property
    def symmetric(self) -> bool:
        return True

    def excess(self, losses: Floats) -> Floats:
        value = -np.expm1(np.minimum(np.abs(losses) - self.size, 0.0) / 2)
        return np.asarray(np.exp(np.minimum(losses, 0.0)) * value)

    def worst_case(self, count: int) -> WorstCasePair:
        """Return the pair in cells, rounded down: between the centres, and one on either side."""
        edges = self.size * np.linspace(0, 1, _CELLS + 1)
        without = np.exp(-edges[:-1]) * -np.expm1(-np.diff(edges)) / 2
        masses = np.concatenate([[np.exp(-self.size) / 2], without[::-1], [0.5]])
        losses = np.concatenate([[-self.size], np.log(without[::-1] / without), [self.size]])
        return WorstCasePair(masses * _DOWN, losses, count)


@dataclasses.dataclass(frozen=True)
class LaplaceNumber:
    """A number with Laplace noise; `size` > 0 is sensitivity over scale."""

    size: float

    def rdp(self, orders: Floats) -> Floats:
        """Return the RDP, exact."""
        less, size = orders - 1, self.size
        with np.errstate(over="ignore", invalid="ignore"):
            gap = orders * _gap(less * size) + less * _gap(-orders * size)
            near = np.log1p(gap / (2 * orders - 1))
        far = np.logaddexp(np.log(orders) + less * size, np.log(less) - orders * size)
        return np.where(less * size > _FAR, far - np.log(2 * orders - 1), near) / less

    def pair(self) -> LaplacePair:
        """Return the dominating pair; exact."""
        return LaplacePair(self.size)


def _gap(values: Floats) -> Floats:
    """Return e^x - 1 - x >= 0, by its series where that would cancel."""
    series, term = np.zeros_like(values), np.ones_like(values)
    small = np.where(np.abs(values) < _SERIES_BELOW, values, 0.0)
    for power in range(1, 12):
        term = term * small / power
        series += term if power > 1 else 0.0
    return np.where(small == 0.0, np.expm1(values) - values, series)


@dataclasses.dataclass(frozen=True, eq=False)
class FinitePair(Pair):
    """Laws of finitely many losses.

    `losses`, (m,), grow; `masses` are those with the subject, `without` those without. `missing`:
    the mass of infinite loss with the subject, and without.
    """

    losses: Floats
    masses: Floats
    without: Floats
    missing: tuple[float, float] = (0.0, 0.0)
    symmetric: bool = False

    def excess(self, losses: Floats) -> Floats:
        size, shrunk = np.abs(losses), np.exp(np.minimum(losses, 0.0))
        above = _profile(self.losses, self.without, self.missing[0], size)
        if self.symmetric:
            return np.asarray(shrunk * above)
        below = _profile(-self.losses[::-1], self.masses[::-1], self.missing[1], size)
        return np.where(losses >= 0, above, shrunk * below)

    def reachable(self) -> FinitePair:
        """Return the pair with losses beyond what is looked for made infinite."""
        high, low = self.losses > _LARGEST, self.losses < -_LARGEST
        kept = ~(high | low)
        first = self.missing[0] + float(self.masses[high].sum())
        second = self.missing[1] + float(self.without[low].sum())
        laws = self.losses[kept], self.masses[kept], self.without[kept]
        return FinitePair(*laws, (first, second), self.symmetric)

    def worst_case(self, count: int) -> WorstCasePair:
        """Return the pair itself, rounded down."""
        return WorstCasePair(self.masses * _DOWN, self.losses, count)


def _profile(atoms: Floats, without: Floats, infinite: float, losses: Floats) -> Floats:
    """Return H at `losses` of a pair with these masses of Q at growing `atoms`."""
    if not len(atoms):
        return np.full_like(losses, infinite)
    above = np.append(np.cumsum(without[::-1])[::-1], 0.0)  # of Q at this atom and beyond
    rises = above[1:-1] * np.exp(atoms[:-1]) * np.expm1(np.diff(atoms))
    heights = np.append(np.cumsum(rises[::-1])[::-1], 0.0)
    next_atom = np.searchsorted(atoms, losses, side="right")
    inside = np.minimum(next_atom, len(atoms) - 1)
    linear = above[next_atom] * np.exp(losses) * np.expm1(np.maximum(atoms[inside] - losses, 0.0))
    return np.where(next_atom < len(atoms), heights[inside] + linear, 0.0) + infinite


@dataclasses.dataclass(frozen=True)
class FiniteLosses:
    """A release by its `losses`, growing, and its `masses` with the subject.

    `infinite`: mass of infinite loss. What the masses, or those without the subject, miss of 1 by
    less than 1e-12 is rounding.
    """

    losses: tuple[float, ...]
    masses: tuple[float, ...]
    infinite: float = 0.0

    def rdp(self, orders: Floats) -> Floats:
        return _finite_rdp(self.pair(), orders)

    def pair(self) -> FinitePair:
        """Return the pair itself."""
        return _finite(self)


@dataclasses.dataclass(frozen=True)
class OpenFailure:
    """A mechanism that reveals everything with a `probability`, and nothing otherwise.

    Beside releases that satisfy D_E at every E = e^epsilon it gives at most D_E + `probability`.
    So a composition subtracts it from delta, and reads the other releases at the rest.
    """

    probability: float

    def rdp(self, orders: Floats) -> Floats:
        """Return infinity at every order: the loss is infinite with positive probability."""
        return np.full_like(orders, np.inf)

    def pair(self) -> FinitePair:
        return _finite(FiniteLosses((0.0,), (1 - self.probability,), self.probability))


@lru_cache(maxsize=64)
def _finite(release: FiniteLosses) -> FinitePair:
    losses, masses = np.array(release.losses), np.array(release.masses)
    total = math.fsum(release.masses)
    masses = masses * ((1 - release.infinite) / total)
    without = masses * np.exp(-losses)
    others = math.fsum(without)
    if abs(total + release.infinite - 1) > _ROUNDED or others > 1 + _ROUNDED:
        raise InvalidInput(
            "The 'probabilities' parameter must add up to 1 with 'infinite', and times "
            "e^-loss to at most 1: losses are of a law against the one without the subject."
        )
    if others > 1 - _RESIDUE:
        without, others = without / others, 1.0
    return FinitePair(losses, masses, without, (release.infinite, 1 - others)).reachable()


def _finite_rdp(pair: FinitePair, orders: Floats) -> Floats:
    """Return the larger RDP of both directions; infinite where a loss can be."""
    if max(pair.missing) > 0:
        return np.full_like(orders, np.inf)
    powers = np.stack([orders, orders if pair.symmetric else 1 - orders])
    with np.errstate(divide="ignore"):
        terms = log_gap(powers[..., None], pair.losses) + np.log(pair.without)
    tops = terms.max(axis=2, keepdims=True)
    if not np.isfinite(tops).all():  # all losses are 0
        return np.where(np.isneginf(tops[..., 0]).all(axis=0), 0.0, np.inf)
    excess = tops[..., 0] + np.log(np.exp(terms - tops).sum(axis=2))
    return np.asarray(np.logaddexp(0.0, excess.max(axis=0)) / (orders - 1))


@dataclasses.dataclass(frozen=True)
class DiscreteLaplace:
    """A whole number with discrete Laplace noise of this `scale`, moved by `shift`."""

    scale: float
    shift: int

    def rdp(self, orders: Floats) -> Floats:
        return _finite_rdp(_discrete_laplace(self.scale, self.shift), orders)

    def pair(self) -> FinitePair:
        """Return the pair itself."""
        return _discrete_laplace(self.scale, self.shift).reachable()


@lru_cache(maxsize=256)
def _discrete_laplace(scale: float, shift: int) -> FinitePair:
    inner = np.arange(1, shift)
    middle = -math.expm1(-1 / scale) * np.exp(-(shift - inner) / scale)
    masses = np.concatenate([[math.exp(-shift / scale)], middle, [1.0]])
    masses /= 1 + math.exp(-1 / scale)
    losses = (2 * np.arange(shift + 1) - shift) / scale
    return FinitePair(losses, masses, masses[::-1], symmetric=True)


@dataclasses.dataclass(frozen=True)
class DiscreteGaussian:
    """A whole number with discrete Gaussian noise of scale `sigma`, moved by `shift`."""

    sigma: float
    shift: int

    def rdp(self, orders: Floats) -> Floats:
        """Return that of zCDP."""
        return orders * (self.shift / self.sigma) ** 2 / 2

    def pair(self) -> FinitePair | None:
        """Return the pair, cut; None where it would have too many atoms."""
        return _discrete_gaussian(self.sigma, self.shift) if self.sigma <= LARGEST_PAIR else None


@lru_cache(maxsize=64)
def _discrete_gaussian(sigma: float, shift: int) -> FinitePair:
    reach = math.ceil(_REACH * sigma) + 1
    places = np.arange(-reach, reach + 1, dtype=np.float64)
    weights = np.exp(-((places / sigma) ** 2) / 2)
    masses = weights / weights.sum()
    # The law without the subject lies `shift` below.
    losses = shift * (2 * places + shift) / (2 * sigma**2)
    with np.errstate(over="ignore"):
        without = masses * np.exp(-losses)
    return FinitePair(losses, masses, without, (_CUT, _CUT), symmetric=True).reachable()


@dataclasses.dataclass(frozen=True)
class RenyiCurve:
    """A release by its RDP `values` at growing `orders` > 1."""

    orders: tuple[float, ...]
    values: tuple[float, ...]

    def rdp(self, orders: Floats) -> Floats:
        """Return the bound by convexity; infinite beyond the largest order."""
        known = np.array(self.orders) - 1
        scaled = np.append(0.0, known * np.array(self.values))
        # A line between two orders is rounded up by more than its arithmetic errs.
        lines = np.interp(orders - 1, np.append(0.0, known), scaled, right=np.inf)
        return np.asarray(lines / (orders - 1) * (1 + 1e-12))

    def pair(self) -> None:
        """Return None: a curve does not fix a dominating pair."""
