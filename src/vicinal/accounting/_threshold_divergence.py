r"""Largest Renyi divergence of a threshold test on a shifted Gaussian, as a rigorous bound.

A test says *win* with probability q = Phi(a) without the shift and p = Phi(a + mu) with it. Write
psi(L) = L^alpha - 1 - alpha (L - 1) >= 0. For a base law b and likelihood ratios L,

    exp((alpha - 1) D_alpha) - 1 = G = sum over outcomes of b psi(L),

a sum of terms that do not cancel, each a product of functions monotone in the margin a. So an
interval of margins has an upper bound from its two ends, with a relative error of the order of its
length however small mu is, and branch and bound gives the supremum over all margins. Proofs:
label_only.md, sections 2 and 3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from vicinal._arrays import Floats, Indices
from vicinal.accounting._divergence import hazard, mixed_ratio

Bounds = Callable[[Floats, Floats, Indices], tuple[Floats, Floats]]

TOLERANCE = 1e-5  # a supremum is overestimated by at most this share

_SMALL = 0.5
_TERMS = 14
_NARROW = 1e-3
_LEVELS = 60


def log_curvature(ratio: Floats, order: Floats) -> Floats:
    """Return the logarithm of psi(exp(ratio)) / ratio^2, increasing in the log ratio."""
    scaled = np.asarray(order * ratio)
    small = np.abs(scaled) < _SMALL
    if small.all():
        return _series(scaled, order)
    with np.errstate(all="ignore"):
        large = np.where(ratio > 0, _log_psi_above(ratio, order), _log_psi_below(ratio, order))
        direct = np.asarray(large - 2 * np.log(np.abs(ratio)))
    if not small.any():
        return direct
    if np.ndim(order):
        return np.where(small, _series(np.where(small, scaled, 0.0), order), direct)
    direct[small] = _series(scaled[small], order)
    return direct


def log_psi(ratio: Floats, order: Floats) -> Floats:
    """Return log psi(exp(ratio)); minus infinity where the ratio is one."""
    with np.errstate(divide="ignore"):
        return 2 * np.log(np.abs(ratio)) + log_curvature(ratio, order)


def _series(scaled: Floats, order: Floats) -> Floats:
    """Sum alpha^2 (1 - alpha^(1-k)) x^(k-2) / k! over k >= 2, x = alpha times the log ratio."""
    log_order = np.log(order)
    total = np.zeros_like(scaled)
    power = np.full_like(scaled, 0.5)
    for k in range(2, _TERMS):
        total = total - np.expm1(-(k - 1) * log_order) * power
        power = power * scaled / (k + 1)
    return np.asarray(2 * log_order + np.log(total))


def _log_psi_above(ratio: Floats, order: Floats) -> Floats:
    scaled = order * ratio
    remainder = np.exp(-scaled) + order * (np.exp(ratio - scaled) - np.exp(-scaled))
    return np.asarray(scaled + np.log1p(-remainder))


def _log_psi_below(ratio: Floats, order: Floats) -> Floats:
    return np.asarray(np.log(np.expm1(order * ratio) - order * np.expm1(ratio)))


def log_gain(a: Floats, mu: Floats, *, least: bool = False) -> Floats:
    """Return log Phi(a + mu) - log Phi(a), from above, or from below with `least`.

    It is the integral of the hazard, so for a narrow shift the trapezium lies above it and the
    midpoint below it, both far more exact than a difference of logarithms.
    """
    with np.errstate(invalid="ignore"):
        gain = np.asarray(log_ndtr(a + mu) - log_ndtr(a))
    narrow = np.broadcast_to(mu < _NARROW, gain.shape)
    if narrow.any():
        start, step = (np.broadcast_to(each, gain.shape)[narrow] for each in (a, mu))
        rate = hazard(start + step / 2) if least else (hazard(start) + hazard(start + step)) / 2
        gain[narrow] = step * rate
    return gain


def mixed(without: Floats, included: Floats, gamma: float) -> Floats:
    """Return log((1 - gamma) exp(without) + gamma exp(included))."""
    if gamma == 1:
        return included
    return np.asarray(np.logaddexp(np.log1p(-gamma) + without, np.log(gamma) + included))


def log_rare(margin: Floats, shift: Floats, order: Floats) -> Floats:
    """Bound the log of b psi(L) for an outcome that has at most Phi(margin) under both laws.

    By Neyman and Pearson no event gains more than a half-line does; valid for
    margin <= -order * shift (label_only.md, section 2).
    """
    return np.asarray(np.log(order) + log_ndtr(margin) + order * log_gain(margin, shift))


@dataclass(frozen=True, slots=True)
class SampledTests:
    """Tests of one shift under Poisson sampling, one for every order.

    With `reverse` the divergence is that of the law without the subject from the law with it.
    """

    mu: float
    gamma: float
    orders: Floats
    reverse: bool

    def turned(self, gain: Floats) -> Floats:
        """Return the log ratio under sampling of an outcome whose log ratio is `gain`."""
        ratio = mixed_ratio(gain, self.gamma)
        return -ratio if self.reverse else ratio


class Thresholds(SampledTests):
    """Threshold tests."""

    __slots__ = ()

    def log_supremum(self, tolerance: float = TOLERANCE) -> Floats:
        """Return log G of the worst margin for every order, from above."""
        reach = self.mu * self.orders
        reach = 2 * reach + 8 + np.sqrt(4 * np.log1p(1 / (self.gamma * self.mu)))
        low, high = -reach - self.mu, reach
        inside = branch_and_bound(self._bounds, low, high, tolerance)
        left = np.logaddexp(self._rare(low + self.mu), self._side(low, lose=True))
        right = np.logaddexp(self._rare(-high), self._side(high, lose=False))
        return np.asarray(np.maximum(inside, np.maximum(left, right)))

    def _rare(self, margin: Floats) -> Floats:
        return log_rare(margin, np.asarray(self.mu), self.orders)

    def _side(self, a: Floats, *, lose: bool) -> Floats:
        return log_psi(self._ratio(a, lose=lose), self.orders)

    def _ratio(self, a: Floats, *, lose: bool) -> Floats:
        mu = np.asarray(self.mu)
        return self.turned(-log_gain(-a - mu, mu) if lose else log_gain(a, mu))

    def _weight(self, a: Floats, *, lose: bool) -> Floats:
        sign = -1 if lose else 1
        without, included = log_ndtr(sign * a), log_ndtr(sign * (a + self.mu))
        return mixed(without, included, self.gamma) if self.reverse else without

    def _bounds(self, low: Floats, high: Floats, which: Indices) -> tuple[Floats, Floats]:
        order = self.orders[which]
        won = log_psi(self._ratio(low, lose=False), order)
        lost = self._weight(low, lose=True)
        upper = np.logaddexp(
            self._weight(high, lose=False) + won,
            lost + log_psi(self._ratio(high, lose=True), order),
        )
        value = np.logaddexp(
            self._weight(low, lose=False) + won, lost + log_psi(self._ratio(low, lose=True), order)
        )
        return upper, value


@dataclass(frozen=True, slots=True)
class ShiftCells:
    """Threshold tests of all shifts in cells [low, high], unsampled, at one order.

    Bounds G / mu^2 over a whole cell, which may begin at zero.
    """

    low: Floats
    high: Floats
    order: float

    def log_supremum(self, tolerance: float) -> Floats:
        """Return the log of the supremum of G / mu^2 over each cell and all margins."""
        order = np.asarray(self.order)
        reach = 2 * self.order * self.high + 14
        left, right = -reach - self.high, reach
        inside = branch_and_bound(self._bounds, left, right, tolerance)
        flat = np.log(order * (order - 1) / 2)
        beyond_left = np.logaddexp(
            log_ndtr(left) + 2 * np.log(hazard(left)) + np.log(order**2 / 2)
            + order * log_gain(left, self.high),
            flat + 2 * np.log(hazard(-left - self.high)),
        )  # fmt: skip
        beyond_right = np.logaddexp(
            2 * np.log(hazard(right)) + log_curvature(self.high * hazard(right), order),
            log_ndtr(-right) + 2 * np.log(hazard(-right - self.high)) + flat,
        )
        return np.asarray(np.maximum(inside, np.maximum(beyond_left, beyond_right)))

    def _bounds(self, low: Floats, high: Floats, which: Indices) -> tuple[Floats, Floats]:
        """Bound log(G / mu^2) over rectangles of margins and shifts (section 3).

        Taken at a single margin it is what splitting a rectangle further can lead to.
        """
        least, most = self.low[which], self.high[which]
        order = np.asarray(self.order)
        win = 2 * _log_mean(low, least) + log_curvature(log_gain(low, most), order)
        lose = log_curvature(-log_gain(-low - least, least, least=True), order)
        lost = log_ndtr(-low)

        def upper(end: Floats) -> Floats:
            losing = lose + 2 * _log_mean(-end - most, most)
            return np.asarray(np.logaddexp(log_ndtr(end) + win, lost + losing))

        return upper(high), upper(low)


def _log_mean(a: Floats, mu: Floats) -> Floats:
    """Return the log of the mean hazard over [a, a + mu], the hazard itself for mu = 0."""
    narrow = mu < _NARROW
    wide = np.where(narrow, 1.0, mu)
    mean = np.asarray(log_gain(a, wide) / wide)
    if narrow.any():
        start, step = a[narrow], mu[narrow]
        mean[narrow] = (hazard(start) + hazard(start + step)) / 2
    return np.asarray(np.log(mean))


def branch_and_bound(bounds: Bounds, low: Floats, high: Floats, tolerance: float) -> Floats:
    """Return an upper bound on log G over [low, high] for every problem.

    `bounds(low, high, which)` gives, for intervals of the problems `which`, an upper bound on
    log G and its limit for an interval that shrinks to the lower end, usually the value there. An
    interval is closed once its bound on log(1 + G), the divergence times alpha - 1, is within
    `tolerance` of the largest such value.
    """
    edges = np.linspace(low, high, 65)
    left, right = edges[:-1].ravel(), edges[1:].ravel()
    which = np.tile(np.arange(len(low)), 64)
    best, bound = np.full(len(low), -np.inf), np.full(len(low), -np.inf)
    for _ in range(_LEVELS):
        upper, value = bounds(left, right, which)
        np.maximum.at(best, which, value)
        settled = np.logaddexp(0, upper) <= np.logaddexp(0, best[which]) * (1 + tolerance)
        settled |= upper <= best[which]
        np.maximum.at(bound, which[settled], upper[settled])
        left, right, which = left[~settled], right[~settled], which[~settled]
        if not len(left):
            return np.asarray(np.maximum(bound, best))
        left, right, which = _quarters(left, right, which)
    np.maximum.at(bound, which, bounds(left, right, which)[0])
    return np.asarray(np.maximum(bound, best))


def _quarters(left: Floats, right: Floats, which: Indices) -> tuple[Floats, Floats, Indices]:
    edges = left + (right - left) * np.linspace(0, 1, 5)[:, None]
    edges[-1] = right
    return edges[:-1].ravel(), edges[1:].ravel(), np.tile(which, 4)
