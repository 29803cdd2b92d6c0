r"""Largest Renyi divergence of a threshold test on a shifted Gaussian, as a rigorous bound.

A test says *win* with probability q = Phi(a) without the shift and p = Phi(a + mu) with it. Write
psi(L) = L^alpha - 1 - alpha (L - 1) >= 0. For a base law b and likelihood ratios L,

    exp((alpha - 1) D_alpha) - 1 = G = sum over outcomes of b psi(L),

a sum of terms that do not cancel, each a product of functions monotone in the margin a. So an
interval of margins has an upper bound from its two ends, with a relative error of the order of its
length however small mu is, and branch and bound gives the supremum over all margins. Proofs:
label_only.md, sections 2 and 3.

Largest Renyi divergence of a three-way comparison, two of whose values move apart.

The gaining class has noisy votes x ~ N(u, 1), the losing class y ~ N(v, 1), and the best of all
others stands at 0 (condition on it). Outcomes: x wins, y wins, another wins. With the subject the
centre (u, v) becomes (u + mu, v - mu). For a base law b and likelihood ratios L,

    exp((alpha - 1) D_alpha) - 1 = G = sum over outcomes of b psi(L),

and each log L falls in u and rises in v (label_only.md, section 4), so the corners of a rectangle
of centres bound G over it. A second bound, from the corners and the second derivatives, closes
rectangles around the maximum; a third one covers centres where both classes lead by far.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from vicinal.accounting._divergence import hazard, mixed_ratio
from vicinal.arrays import Floats, Indices

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


_THREE_WAY_TOLERANCE = 1e-3  # a supremum is overestimated by at most this share

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(48)
_TAIL = 45.0
_THREE_WAY_LEVELS = 40
_STRIPS = 0.05
_COARSE = 4.0

_SECOND = 0.484  # twice phi(1): most that a second derivative of a Gaussian probability can be
_THIRD = 1.15  # more than the same for the second derivative of the derivative along (1, -1)

# More than a third cumulant of a Gaussian in a convex set, along u or v twice and (1, -1).
_CUMULANT = 5.7


def log_win(u: Floats, v: Floats) -> Floats:
    """Return log P[x > 0 and x > y] for x ~ N(u, 1), y ~ N(v, 1), by Gauss-Legendre.

    The integrand is log-concave with curvature between 1 and 2, so an interval around its mode
    that leaves out less than exp(-45) of its height suffices.
    """
    mode = _mode(u, v)
    slope = np.maximum(mode - u - hazard(mode - v), 0.0)
    above = 2 * _TAIL / (slope + np.sqrt(slope**2 + 2 * _TAIL))
    below = np.minimum(mode, np.sqrt(2 * _TAIL))
    half = (above + below) / 2
    x = (mode + (above - below) / 2)[..., None] + half[..., None] * _NODES
    exponent = log_ndtr(x - v[..., None]) - (x - u[..., None]) ** 2 / 2
    top = exponent.max(axis=-1)
    total = np.exp(exponent - top[..., None]) @ _WEIGHTS
    return np.asarray(top + np.log(total * half / np.sqrt(2 * np.pi)))


def _mode(u: Floats, v: Floats) -> Floats:
    """Return where the integrand of :func:`log_win` is largest on x >= 0."""
    x = np.maximum(u, (u + v) / 2)
    for _ in range(6):
        rate = hazard(x - v)
        x = x - (x - u - rate) / (1 + rate * (rate + x - v))
    return np.maximum(x, 0.0)


def _log_probabilities(u: Floats, v: Floats) -> Floats:
    """Return the logs of the three probabilities (gain, loss, other), stacked in front."""
    return np.stack([log_win(u, v), log_win(v, u), log_ndtr(-u) + log_ndtr(-v)])


@dataclass(frozen=True, slots=True)
class OutcomePoint:
    """Base weights and log ratios of the three outcomes at some centres, (3, ...)."""

    weight: Floats
    ratio: Floats


class ThreeWayComparison(SampledTests):
    """Three-way comparisons."""

    __slots__ = ()

    def log_supremum(self, tolerance: float = _THREE_WAY_TOLERANCE) -> Floats:
        """Return log G of the worst centre for every order, from above."""
        low, high = self._square()
        log_lead = Thresholds(np.sqrt(2) * self.mu, self.gamma, self.orders, self.reverse)
        lead = log_lead.log_supremum(tolerance / 10)
        inside = self._search(low, high, lead, tolerance)
        beyond = self._leading(np.asarray(high + low), lead)
        return np.asarray(np.maximum.reduce([inside, beyond, self._edges(low, high)]))

    def _square(self) -> tuple[float, float]:
        shift = np.sqrt(2) * self.mu * float(self.orders.max())
        depth = 2 * shift + 7 + np.sqrt(4 * np.log1p(1 / (self.gamma * self.mu)))
        return -(depth + self.mu), (1 + np.sqrt(2)) * depth + self.mu

    def point(self, u: Floats, v: Floats) -> OutcomePoint:
        """Return weights and log ratios at the centres (u, v)."""
        without, included = _log_probabilities(u, v), _log_probabilities(u + self.mu, v - self.mu)
        mu = np.asarray(self.mu)
        other = log_gain(-v, mu) - log_gain(-u - mu, mu)
        gain = np.stack([included[0] - without[0], included[1] - without[1], other])
        if self.reverse:
            without = mixed(without, included, self.gamma)
        return OutcomePoint(without, self.turned(gain))

    def _search(self, low: float, high: float, lead: Floats, tolerance: float) -> Floats:
        """Branch and bound over the centres in [low, high]^2, for all orders at once."""
        count = int(np.ceil((high - low) / _COARSE))
        edges = np.linspace(low, high, count + 1)
        u, v = (grid.ravel() for grid in np.meshgrid(edges[:-1], edges[:-1], indexing="ij"))
        size = (high - low) / count
        best, bound = lead.copy(), np.full(len(self.orders), -np.inf)
        for level in range(_THREE_WAY_LEVELS):
            upper, value = self._rectangles(u, v, size, lead)
            best = np.maximum(best, value.max(axis=0))
            settled = np.logaddexp(0, upper) <= np.logaddexp(0, best) * (1 + tolerance)
            open_ = ~(settled | (upper <= best)).all(axis=1)
            if level == _THREE_WAY_LEVELS - 1:
                open_[:] = False
            closed = upper[~open_]
            bound = np.maximum(bound, closed.max(axis=0, initial=-np.inf))
            u, v = u[open_], v[open_]
            if not len(u):
                break
            size /= 2
            u, v = np.r_[u, u + size, u, u + size], np.r_[v, v, v + size, v + size]
        return np.asarray(np.maximum(bound, best))

    def _rectangles(self, u: Floats, v: Floats, size: float, lead: Floats) -> tuple[Floats, Floats]:
        """Return upper bounds and attained values of log G on squares, (n, orders)."""
        point, corners = self._corners(u, v, size)
        near, high_ratio, low_ratio, _ = corners
        psi, plain = log_psi(point.ratio[..., None], self.orders), self._log_plain_bend(point.ratio)
        largest, plain, ratio = (
            np.maximum(each[:, high_ratio], each[:, low_ratio])
            for each in (psi, plain, point.ratio)
        )
        weight = point.weight
        most = np.stack([weight[0, low_ratio], weight[1, high_ratio], weight[2, near]])
        first = _log_sum(most[..., None] + largest)
        attained = _log_sum(weight[..., None] + psi)
        value = np.maximum.reduce([attained[corner] for corner in corners])
        second = np.logaddexp(value, self._log_bend(most, ratio, plain) + 2 * np.log(size / 2))
        rare = most[2][:, None] + largest[2]
        third = np.minimum(self._leading(u + v, lead), self._ahead(rare, u, v, size, lead))
        return np.minimum(np.minimum(first, second), third), value

    def _corners(self, u: Floats, v: Floats, size: float) -> tuple[OutcomePoint, list[Indices]]:
        """Return all corners of squares of one grid, each once, and where those of a square are."""
        offsets = [(i * size, j * size) for i in (0, 1) for j in (0, 1)]
        all_u = np.concatenate([u + i for i, _ in offsets])
        all_v = np.concatenate([v + j for _, j in offsets])
        keys = np.rint(np.stack([all_u - u.min(), all_v - v.min()]) / size).astype(np.int64)
        _, first, where = np.unique(
            keys[0] * (keys[1].max() + 1) + keys[1], return_index=True, return_inverse=True
        )
        return self.point(all_u[first], all_v[first]), np.split(where, 4)

    def _log_g(self, point: OutcomePoint) -> Floats:
        return _log_sum(point.weight[..., None] + log_psi(point.ratio[..., None], self.orders))

    def _log_bend(self, most: Floats, ratio: Floats, plain: Floats) -> Floats:
        """Bound the log of minus the second derivatives of G along u and v (section 4).

        `most` and `ratio` (3, n) are the largest weights and ratios of squares, and `plain`
        (3, n, orders) the larger plain bend of their two corners of extreme ratios.
        """
        lift = _THIRD * self.gamma * self.mu
        steep = 1 + self.orders * (min(1.0, _CUMULANT * self.mu) + self.mu**2 / 2)
        power = most[..., None] + self.orders * ratio[..., None] + np.log(steep)
        return _log_sum(
            np.minimum(plain, np.logaddexp(power, np.log(_SECOND + self.orders * lift)))
        )

    def _log_plain_bend(self, ratio: Floats) -> Floats:
        """Bound the same for each outcome by its ratio alone, whatever its weight."""
        ratio, excess = ratio[..., None], self.orders - 1
        slope = np.log(self.orders * _THIRD * self.gamma * self.mu)
        slope = slope + _log_abs_expm1(excess * ratio)
        bow = np.log(self.orders * excess * _SECOND / 2) + 2 * _log_abs_expm1(ratio)
        return np.asarray(np.logaddexp(slope, bow + np.maximum((self.orders - 2) * ratio, 0)))

    def _leading(self, total: Floats, lead: Floats) -> Floats:
        """Bound log G where u + v >= total: another class wins rarely (section 4)."""
        square = self.orders * (self.orders - 1) * self.mu**2
        return np.asarray(np.logaddexp(lead, log_ndtr(-total[..., None] / np.sqrt(2)) + square))

    def _ahead(self, rare: Floats, u: Floats, v: Floats, size: float, lead: Floats) -> Floats:
        """Bound log G on squares where another class wins so rarely that a duel is left.

        `rare` bounds what another class's win adds to log G.
        """
        root = np.sqrt(2)
        most, least = (u + size - v) / root, (u - v - size) / root
        gain = log_gain(most, root * np.asarray(self.mu))
        loss = log_gain(-least - root * self.mu, root * np.asarray(self.mu))
        other = np.maximum(log_ndtr(-u) + log_ndtr(-v), log_ndtr(-u) + log_ndtr(self.mu - v))
        rarest = np.minimum(log_ndtr(least), log_ndtr(-most - root * self.mu))
        slip = -np.log1p(-np.exp(np.minimum(other - rarest, -1e-9)))[..., None]
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            share = slip * (1 + 1 / np.minimum(gain, loss))[..., None]
        share = np.where(share < 1, share, np.inf)
        duel = lead + 2 * np.log1p(share) + self.orders * slip
        return np.asarray(np.logaddexp(duel, rare))

    def _edges(self, low: float, high: float) -> Floats:
        """Bound log G outside of [low, high]^2 where the two do not lead together (section 4)."""
        edges = np.linspace(low, high, int(np.ceil((high - low) / _STRIPS)) + 1)
        end, far = np.array([low]), np.array([high])
        first, last, ends = edges[:-1], edges[1:], np.full(len(edges) - 1, low)
        mu = np.asarray(self.mu)
        shrunk, grown = self.turned(-log_gain(-last - mu, mu)), self.turned(log_gain(-last, mu))
        fallen, risen = self.turned(-log_gain(-end - mu, mu)), self.turned(log_gain(-end, mu))
        losing, gaining = self.point(first, ends).ratio, self.point(ends, first).ratio
        parts = [
            # v <= low: the loser is rare, and what is left is a threshold test.
            self._term(mixed(log_ndtr(last), log_ndtr(last + mu), self.gamma), losing[0]),
            self._term(log_ndtr(-first), losing[2], shrunk),
            # u <= low: the gainer is rare.
            self._term(log_ndtr(last), gaining[1]),
            self._term(mixed(log_ndtr(-first), log_ndtr(mu - first), self.gamma),
                       gaining[2], grown),
        ]  # fmt: skip
        sure = [
            self._term(np.zeros(1), fallen, risen),
            self._term(np.zeros(1), self.point(far, end).ratio[0]),
            self._term(np.zeros(1), self.point(end, far).ratio[1]),
        ]
        frequent = [np.logaddexp(parts[0], parts[1]), np.logaddexp(parts[2], parts[3]), *sure]
        rare = np.log(2) + log_rare(np.asarray(low + mu), np.sqrt(2) * mu, self.orders)
        return np.asarray(np.logaddexp(np.concatenate(frequent).max(axis=0), rare))

    def _term(self, weight: Floats, *ratios: Floats) -> Floats:
        """Return the log of weight times the largest psi between the ratios, (n, orders)."""
        psi = [log_psi(ratio[:, None], self.orders) for ratio in ratios]
        return np.asarray(weight[:, None] + np.maximum.reduce(psi))


def _log_sum(terms: Floats) -> Floats:
    return np.asarray(np.logaddexp.reduce(terms, axis=0))


def _log_abs_expm1(x: Floats) -> Floats:
    """Return log |exp(x) - 1|, minus infinity at zero."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.maximum(x, 0) + np.log(-np.expm1(-np.abs(x))))
