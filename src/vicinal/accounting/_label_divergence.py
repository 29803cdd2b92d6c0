r"""Largest Rényi divergences of a released label, as rigorous upper bounds.

Both parts maximise over the unknown vote counts by branch and bound. Write
psi(L) = L^alpha - 1 - alpha (L - 1) >= 0. For likelihood ratios L of the first distribution to the
second, and *base* probabilities b, those of the second,

    exp((alpha - 1) D_alpha) - 1 = G = sum over outcomes of b psi(L),

a sum of terms that do not cancel. Proofs: label_only.md.

*Threshold tests* (sections 2 and 3). The test is won with probability q = Phi(a) without the shift
and p = Phi(a + mu) with it; a is its *margin*. Each term of G is a product of functions monotone in
a. So G on an interval of margins is bounded from the two ends, with a relative error of the order
of the interval's length however small mu is, and branch and bound gives the supremum over all
margins.

*Three-way comparisons* (section 4). The gaining class has noisy votes x ~ N(u, 1), the losing class
y ~ N(v, 1), and the best of all other classes stands at 0 (condition on it). Outcomes: x wins, y
wins, another class wins. With the subject the *centre* (u, v) becomes (u + mu, v - mu). On a square
of centres the smallest of four bounds holds, numbered as in the proof note:

1. Each log L decreases in u and increases in v, so its values at two corners bound G.
2. G exceeds its largest corner by at most its *concavity*, a bound on minus its second derivatives
   along u and v, times side^2 / 4. This bound closes squares around the maximum.
3. Where both classes lead by far, only x - y matters: a threshold test, called the *duel*.
4. Where another class wins rarely, the other terms of G are nearly the duel's.

Everywhere in this module: `log_ratio` is log L; `order` and `orders` (n,) are Rényi orders alpha;
`tolerance` is the accepted excess of a bound over the supremum, relative.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from vicinal.accounting._divergence import compute_hazard, subsample_log_ratio
from vicinal.arrays import Floats, Indices

IntervalBounds = Callable[[Floats, Floats, Indices], tuple[Floats, Floats]]
"""Maps the low ends, high ends and problem indices of m intervals, (m,) each, to upper bounds on
log G on each interval, and the limits of these bounds as intervals shrink to their low ends."""

TOLERANCE = 1e-5  # Relative excess over the supremum at which the search over margins stops
# |alpha log L| below which psi is summed by its power series: the formula would cancel.
_SERIES_BELOW = 0.5
_SERIES_END = 14  # Index at which that series stops: the next term is below 1e-14 of the first
# Shifts (in noise scales) below which log ratios of normal tails are integrated.
_NARROW_SHIFT = 1e-3
# Rounds of the branch and bound over margins, at most; each divides intervals by four.
_MAX_DEPTH = 60


def compute_log_curvature(log_ratio: Floats, order: Floats) -> Floats:
    """Return log(psi(L) / (log L)^2), which increases in log L; both arguments broadcast."""
    scaled = np.asarray(order * log_ratio)
    is_small = np.abs(scaled) < _SERIES_BELOW
    if is_small.all():
        return _sum_log_curvature_series(scaled, order)
    with np.errstate(all="ignore"):
        # For L > 1, L^alpha is factored out, so that it cannot overflow.
        remainder = np.exp(-scaled) + order * (np.exp(log_ratio - scaled) - np.exp(-scaled))
        log_psi_above = scaled + np.log1p(-remainder)
        log_psi_below = np.log(np.expm1(scaled) - order * np.expm1(log_ratio))
        log_psi = np.where(log_ratio > 0, log_psi_above, log_psi_below)
        direct = np.asarray(log_psi - 2 * np.log(np.abs(log_ratio)))
    if not is_small.any():
        return direct
    if np.ndim(order):
        series = _sum_log_curvature_series(np.where(is_small, scaled, 0.0), order)
        return np.where(is_small, series, direct)
    direct[is_small] = _sum_log_curvature_series(scaled[is_small], order)
    return direct


def compute_log_psi(log_ratio: Floats, order: Floats) -> Floats:
    """Return log psi(L), -infinity at L = 1; both arguments broadcast."""
    with np.errstate(divide="ignore"):
        return 2 * np.log(np.abs(log_ratio)) + compute_log_curvature(log_ratio, order)


def _sum_log_curvature_series(scaled: Floats, order: Floats) -> Floats:
    """Return :func:`compute_log_curvature` where alpha log L is small, by its power series.

    It is the log of the sum of alpha^2 (1 - alpha^(1-k)) x^(k-2) / k! over k >= 2. `scaled`, any
    shape: x = alpha log L, at most 1/2 in magnitude. `order`: a shape that broadcasts with it.
    """
    log_order = np.log(order)
    total = np.zeros_like(scaled)
    power = np.full_like(scaled, 0.5)
    for k in range(2, _SERIES_END):
        total = total - np.expm1(-(k - 1) * log_order) * power
        power = power * scaled / (k + 1)
    return np.asarray(2 * log_order + np.log(total))


def bound_log_gain(margin: Floats, mu: Floats) -> Floats:
    """Return an upper bound on log Phi(margin + mu) - log Phi(margin) > 0, elementwise.

    `margin`: margins of threshold tests; `mu` > 0: shifts; both in noise scales. They broadcast.
    """
    # The difference is the integral of the hazard, which is convex. For a narrow shift the
    # trapezium lies above it, and is far more exact than a difference of logarithms.
    with np.errstate(invalid="ignore"):
        gain = np.asarray(log_ndtr(margin + mu) - log_ndtr(margin))
    is_narrow = np.broadcast_to(mu < _NARROW_SHIFT, gain.shape)
    if is_narrow.any():
        start = np.broadcast_to(margin, gain.shape)[is_narrow]
        shift = np.broadcast_to(mu, gain.shape)[is_narrow]
        mean_hazard = (compute_hazard(start) + compute_hazard(start + shift)) / 2
        gain[is_narrow] = shift * mean_hazard
    return gain


def mix_log_probabilities(log_without: Floats, log_with: Floats, gamma: float) -> Floats:
    """Return the log probability of an outcome under Poisson sampling with probability `gamma`.

    `log_without`, `log_with`: its log probabilities without and with the subject in the sample.
    """
    if gamma == 1:
        return log_with
    return np.asarray(np.logaddexp(np.log1p(-gamma) + log_without, np.log(gamma) + log_with))


def bound_rare_log_term(margin: Floats, shift: Floats, order: Floats) -> Floats:
    """Return an upper bound on log(b psi(L)) of an outcome with a probability <= Phi(margin).

    The probability has this bound under both distributions, of the noise and of the noise moved by
    `shift` noise scales; the arguments broadcast. By Neyman and Pearson the probability of no event
    increases more than that of a half-line. Valid for margin <= -order * shift (label_only.md,
    section 2).
    """
    return np.asarray(np.log(order) + log_ndtr(margin) + order * bound_log_gain(margin, shift))


@dataclass(frozen=True, slots=True)
class SampledTests:
    """Comparisons of one shift under Poisson sampling, at several Rényi orders.

    `mu` is the shift in noise scales, `gamma` the sampling probability. The divergence is that of
    the distribution with the subject from the one without it, or the other way round with
    `reverse`.
    """

    mu: float
    gamma: float
    orders: Floats
    reverse: bool

    def convert_log_ratio(self, log_ratio: Floats) -> Floats:
        """Return log L under sampling, in the direction of the divergence.

        `log_ratio`: log of the outcome's probability with the subject in the sample over without.
        """
        sampled_ratio = subsample_log_ratio(log_ratio, self.gamma)
        return -sampled_ratio if self.reverse else sampled_ratio


class ThresholdTests(SampledTests):
    """Threshold tests: one problem for each order, maximised over the margin a."""

    __slots__ = ()

    def bound_log_g(self, tolerance: float = TOLERANCE) -> Floats:
        """Return an upper bound (n,) on log G of the worst margin, for every order."""
        reach = self.mu * self.orders
        reach = 2 * reach + 8 + np.sqrt(4 * np.log1p(1 / (self.gamma * self.mu)))
        low, high = -reach - self.mu, reach
        inside = branch_and_bound(self._bound_on_intervals, low, high, tolerance)
        # Beyond either end one outcome is rare and the term of the other is monotone.
        shift = np.asarray(self.mu)
        loss_log_psi = compute_log_psi(self._compute_log_ratio(low, is_loss=True), self.orders)
        win_log_psi = compute_log_psi(self._compute_log_ratio(high, is_loss=False), self.orders)
        below = np.logaddexp(bound_rare_log_term(low + self.mu, shift, self.orders), loss_log_psi)
        above = np.logaddexp(bound_rare_log_term(-high, shift, self.orders), win_log_psi)
        return np.asarray(np.maximum(inside, np.maximum(below, above)))

    def _compute_log_ratio(self, margin: Floats, *, is_loss: bool) -> Floats:
        """Return log L of winning, or with `is_loss` of losing, the test at each `margin` a."""
        mu = np.asarray(self.mu)
        gain = -bound_log_gain(-margin - mu, mu) if is_loss else bound_log_gain(margin, mu)
        return self.convert_log_ratio(gain)

    def _compute_log_weight(self, margin: Floats, *, is_loss: bool) -> Floats:
        """Return log b, the base log probability of winning or losing, at each `margin` a."""
        sign = -1 if is_loss else 1
        log_without: Floats = log_ndtr(sign * margin)
        log_with: Floats = log_ndtr(sign * (margin + self.mu))
        if self.reverse:
            return mix_log_probabilities(log_without, log_with, self.gamma)
        return log_without

    def _bound_on_intervals(
        self, low: Floats, high: Floats, problems: Indices
    ) -> tuple[Floats, Floats]:
        """Return upper bounds (m,) on log G on intervals of margins, and log G at their low ends.

        The intervals are [low, high], (m,) each; `problems` (m,) are the indices of their orders.
        """
        order = self.orders[problems]
        log_psi_win = compute_log_psi(self._compute_log_ratio(low, is_loss=False), order)
        log_weight_loss = self._compute_log_weight(low, is_loss=True)
        upper = np.logaddexp(
            self._compute_log_weight(high, is_loss=False) + log_psi_win,
            log_weight_loss + compute_log_psi(self._compute_log_ratio(high, is_loss=True), order),
        )
        value = np.logaddexp(
            self._compute_log_weight(low, is_loss=False) + log_psi_win,
            log_weight_loss + compute_log_psi(self._compute_log_ratio(low, is_loss=True), order),
        )
        return upper, value


def branch_and_bound(
    bound_on_intervals: IntervalBounds, low: Floats, high: Floats, tolerance: float
) -> Floats:
    """Return an upper bound on log G over [low, high] for every problem, (n,).

    A problem is one Rényi order; `low` and `high` are (n,), the interval of margins of each.
    `bound_on_intervals`, see :data:`IntervalBounds`, bounds log G on m parts of them. A part is
    closed once its bound on log(1 + G), the divergence times alpha - 1, is within a relative
    `tolerance` of the largest value found.
    """
    edges = np.linspace(low, high, 65)
    low_ends, high_ends = edges[:-1].ravel(), edges[1:].ravel()
    problems = np.tile(np.arange(len(low)), 64)
    best_value = np.full(len(low), -np.inf)
    bound = np.full(len(low), -np.inf)
    for _ in range(_MAX_DEPTH):
        upper, value = bound_on_intervals(low_ends, high_ends, problems)
        np.maximum.at(best_value, problems, value)
        is_closed = np.logaddexp(0, upper) <= np.logaddexp(0, best_value[problems]) * (
            1 + tolerance
        )
        is_closed |= upper <= best_value[problems]
        np.maximum.at(bound, problems[is_closed], upper[is_closed])
        is_open = ~is_closed
        low_ends, high_ends = low_ends[is_open], high_ends[is_open]
        problems = problems[is_open]
        if not len(low_ends):
            return np.asarray(np.maximum(bound, best_value))
        # Every interval is split into quarters.
        edges = low_ends + (high_ends - low_ends) * np.linspace(0, 1, 5)[:, None]
        edges[-1] = high_ends
        low_ends, high_ends = edges[:-1].ravel(), edges[1:].ravel()
        problems = np.tile(problems, 4)
    np.maximum.at(bound, problems, bound_on_intervals(low_ends, high_ends, problems)[0])
    return np.asarray(np.maximum(bound, best_value))


# Relative excess over the supremum at which the search over centres stops.
_THREE_WAY_TOLERANCE = 1e-3

# Gauss-Legendre nodes and weights on [-1, 1], for `compute_log_win_probability`.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(48)

_TAIL_EXPONENT = 45.0  # The integrand is cut where it is below e^-45 of its height, 3e-20
# Rounds of the branch and bound over centres, at most; each halves the sides of squares.
_THREE_WAY_MAX_DEPTH = 40
# Width (in noise scales) of the strips on which centres outside the square are bounded.
_STRIP_WIDTH = 0.05
_FIRST_SIDE = 4.0  # Side of the first squares of centres, in noise scales, at most
# Twice phi(1): the largest second derivative of a Gaussian probability along a coordinate.
_MAX_SECOND_DERIVATIVE = 0.484
# Upper bound on the second derivative of the derivative along (1, -1) (section 4).
_MAX_THIRD_DERIVATIVE = 1.15
# Upper bound on a third cumulant of a Gaussian in a convex set, along u or v twice and once along
# (1, -1) (section 4).
_MAX_CUMULANT = 5.7


def compute_log_win_probability(u: Floats, v: Floats) -> Floats:
    """Return log P[x > 0 and x > y] for x ~ N(`u`, 1), y ~ N(`v`, 1), elementwise."""
    # Gauss-Legendre quadrature. The integrand is log-concave with curvature between 1 and 2, so an
    # interval around its mode that omits less than exp(-45) of its height suffices.
    mode = np.maximum(u, (u + v) / 2)
    # Newton's method; six steps from this start are enough for a quadrature.
    for _ in range(6):
        hazard = compute_hazard(mode - v)
        mode = mode - (mode - u - hazard) / (1 + hazard * (hazard + mode - v))
    mode = np.maximum(mode, 0.0)
    slope = np.maximum(mode - u - compute_hazard(mode - v), 0.0)
    above = 2 * _TAIL_EXPONENT / (slope + np.sqrt(slope**2 + 2 * _TAIL_EXPONENT))
    below = np.minimum(mode, np.sqrt(2 * _TAIL_EXPONENT))
    half_width = (above + below) / 2
    x = (mode + (above - below) / 2)[..., None] + half_width[..., None] * _NODES
    exponent = log_ndtr(x - v[..., None]) - (x - u[..., None]) ** 2 / 2
    largest = exponent.max(axis=-1)
    total = np.exp(exponent - largest[..., None]) @ _WEIGHTS
    return np.asarray(largest + np.log(total * half_width / np.sqrt(2 * np.pi)))


def _compute_log_probabilities(u: Floats, v: Floats) -> Floats:
    """Return the log probabilities that x, y or another class wins, at centres (u, v).

    `u`, `v`: in noise scales, of one shape (...); the result is (3, ...).
    """
    return np.stack(
        [
            compute_log_win_probability(u, v),
            compute_log_win_probability(v, u),
            log_ndtr(-u) + log_ndtr(-v),
        ]
    )


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The three outcomes of comparisons at several centres.

    `log_weight` (3, ...): their base log probabilities log b. `log_ratio` (3, ...): their log
    likelihood ratios log L. The trailing axes are those of the centres.
    """

    log_weight: Floats
    log_ratio: Floats


class ThreeWayComparisons(SampledTests):
    """Three-way comparisons: one problem for each order, maximised over the centre (u, v).

    Arguments of the methods: `u` and `v`, centres in noise scales; squares are [u, u + side] x
    [v, v + side], with `u` and `v` (m,); `duel_log_g` (n,), an upper bound on log G of the duel for
    every order.
    """

    __slots__ = ()

    def bound_log_g(self, tolerance: float = _THREE_WAY_TOLERANCE) -> Floats:
        """Return an upper bound (n,) on log G of the worst centre, for every order."""
        # The maximum over centres is searched on the square [low, high]^2.
        duel_shift = np.sqrt(2) * self.mu * float(self.orders.max())
        depth = 2 * duel_shift + 7 + np.sqrt(4 * np.log1p(1 / (self.gamma * self.mu)))
        low, high = -(depth + self.mu), (1 + np.sqrt(2)) * depth + self.mu
        duel = ThresholdTests(np.sqrt(2) * self.mu, self.gamma, self.orders, self.reverse)
        duel_log_g = duel.bound_log_g(tolerance / 10)
        inside = self._search_square(low, high, duel_log_g, tolerance)
        beyond = self._bound_if_both_lead(np.asarray(high + low), duel_log_g)
        return np.asarray(
            np.maximum.reduce([inside, beyond, self._bound_outside_square(low, high)])
        )

    def compute_outcomes(self, u: Floats, v: Floats) -> Outcomes:
        """Return the outcomes' base log probabilities and log likelihood ratios at (u, v)."""
        log_without = _compute_log_probabilities(u, v)
        log_with = _compute_log_probabilities(u + self.mu, v - self.mu)
        mu = np.asarray(self.mu)
        other_gain = bound_log_gain(-v, mu) - bound_log_gain(-u - mu, mu)
        gain = np.stack([log_with[0] - log_without[0], log_with[1] - log_without[1], other_gain])
        log_weight = log_without
        if self.reverse:
            log_weight = mix_log_probabilities(log_without, log_with, self.gamma)
        return Outcomes(log_weight, self.convert_log_ratio(gain))

    def _search_square(
        self, low: float, high: float, duel_log_g: Floats, tolerance: float
    ) -> Floats:
        """Return an upper bound (n,) on log G over centres in [low, high]^2, for every order."""
        # Branch and bound for all orders at once: a square is split until all orders are closed.
        n_squares = int(np.ceil((high - low) / _FIRST_SIDE))
        edges = np.linspace(low, high, n_squares + 1)
        u, v = (grid.ravel() for grid in np.meshgrid(edges[:-1], edges[:-1], indexing="ij"))
        side = (high - low) / n_squares
        best_value = duel_log_g.copy()
        bound = np.full(len(self.orders), -np.inf)
        for depth in range(_THREE_WAY_MAX_DEPTH):
            upper, value = self._bound_on_squares(u, v, side, duel_log_g)
            best_value = np.maximum(best_value, value.max(axis=0))
            is_within_tolerance = np.logaddexp(0, upper) <= np.logaddexp(0, best_value) * (
                1 + tolerance
            )
            is_open = ~(is_within_tolerance | (upper <= best_value)).all(axis=1)
            if depth == _THREE_WAY_MAX_DEPTH - 1:
                is_open[:] = False
            closed_upper = upper[~is_open]
            bound = np.maximum(bound, closed_upper.max(axis=0, initial=-np.inf))
            u, v = u[is_open], v[is_open]
            if not len(u):
                break
            side /= 2
            u, v = np.r_[u, u + side, u, u + side], np.r_[v, v, v + side, v + side]
        return np.asarray(np.maximum(bound, best_value))

    def _bound_on_squares(
        self, u: Floats, v: Floats, side: float, duel_log_g: Floats
    ) -> tuple[Floats, Floats]:
        """Return upper bounds on log G on squares, and values attained on them, both (m, n)."""
        outcomes, corners = self._compute_corners(u, v, side)
        # All log ratios are largest at (u, v + side) and smallest at (u + side, v).
        low_corner, high_ratio_corner, low_ratio_corner, _ = corners
        corner_log_psi = compute_log_psi(outcomes.log_ratio[..., None], self.orders)
        corner_concavity = self._bound_log_term_concavity(outcomes.log_ratio)
        log_psi, term_concavity, log_ratio = (
            np.maximum(array[:, high_ratio_corner], array[:, low_ratio_corner])
            for array in (corner_log_psi, corner_concavity, outcomes.log_ratio)
        )
        log_weight = outcomes.log_weight
        max_log_weight = np.stack(
            [
                log_weight[0, low_ratio_corner],
                log_weight[1, high_ratio_corner],
                log_weight[2, low_corner],
            ]
        )
        corner_bound = np.logaddexp.reduce(max_log_weight[..., None] + log_psi, axis=0)
        corner_values = np.logaddexp.reduce(log_weight[..., None] + corner_log_psi, axis=0)
        value = np.maximum.reduce([corner_values[corner] for corner in corners])
        log_concavity = self._bound_log_concavity(max_log_weight, log_ratio, term_concavity)
        concavity_bound = np.logaddexp(value, log_concavity + 2 * np.log(side / 2))
        other_log_term = max_log_weight[2][:, None] + log_psi[2]
        duel_bound = np.minimum(
            self._bound_if_both_lead(u + v, duel_log_g),
            self._bound_by_duel(other_log_term, u, v, side, duel_log_g),
        )
        return np.minimum(np.minimum(corner_bound, concavity_bound), duel_bound), value

    def _compute_corners(self, u: Floats, v: Floats, side: float) -> tuple[Outcomes, list[Indices]]:
        """Return the outcomes at all corners of squares, and the indices of each square's corners.

        A corner of several squares is computed once. The second value holds the indices (m,) of
        the corners (u, v), (u, v + side), (u + side, v) and (u + side, v + side).
        """
        offsets = [(i * side, j * side) for i in (0, 1) for j in (0, 1)]
        all_u = np.concatenate([u + i for i, _ in offsets])
        all_v = np.concatenate([v + j for _, j in offsets])
        keys = np.rint(np.stack([all_u - u.min(), all_v - v.min()]) / side).astype(np.int64)
        _, first_index, corner_index = np.unique(
            keys[0] * (keys[1].max() + 1) + keys[1], return_index=True, return_inverse=True
        )
        outcomes = self.compute_outcomes(all_u[first_index], all_v[first_index])
        return outcomes, np.split(corner_index, 4)

    def _bound_log_concavity(
        self, max_log_weight: Floats, max_log_ratio: Floats, term_concavity: Floats
    ) -> Floats:
        """Return the log (m, n) of the concavity of G on squares of centres.

        `max_log_weight` and `max_log_ratio` (3, m) are the largest log b and log L of the outcomes
        on squares, and `term_concavity` (3, m, n) the larger `_bound_log_term_concavity` at the
        squares' two corners of extreme ratios. Section 4 of the proof note, second bound.
        """
        # |d''| of the note, where d is the change of an outcome's probability.
        change_curvature = _MAX_THIRD_DERIVATIVE * self.gamma * self.mu
        factor = 1 + self.orders * (min(1.0, _MAX_CUMULANT * self.mu) + self.mu**2 / 2)
        log_power = max_log_weight[..., None] + self.orders * max_log_ratio[..., None]
        log_power = log_power + np.log(factor)
        log_rest = np.log(_MAX_SECOND_DERIVATIVE + self.orders * change_curvature)
        concavities = np.minimum(term_concavity, np.logaddexp(log_power, log_rest))
        return np.asarray(np.logaddexp.reduce(concavities, axis=0))

    def _bound_log_term_concavity(self, log_ratio: Floats) -> Floats:
        """Return the log of the concavity of one outcome's term of G.

        It depends on the outcome's `log_ratio` log L (...) alone; the result is (..., n).
        """
        log_ratio = log_ratio[..., None]
        order_less_1 = self.orders - 1
        # The parts from the second derivatives of d, the change of the probability, and of b.
        log_change_part = np.log(self.orders * _MAX_THIRD_DERIVATIVE * self.gamma * self.mu)
        log_change_part = log_change_part + _compute_log_abs_expm1(order_less_1 * log_ratio)
        log_base_part = np.log(self.orders * order_less_1 * _MAX_SECOND_DERIVATIVE / 2)
        log_base_part = log_base_part + 2 * _compute_log_abs_expm1(log_ratio)
        return np.asarray(
            np.logaddexp(
                log_change_part, log_base_part + np.maximum((self.orders - 2) * log_ratio, 0)
            )
        )

    def _bound_if_both_lead(self, total: Floats, duel_log_g: Floats) -> Floats:
        """Return the third bound (m, n) on log G, where u + v >= `total` (m,)."""
        log_moment = self.orders * (self.orders - 1) * self.mu**2
        log_other = log_ndtr(-total[..., None] / np.sqrt(2))
        return np.asarray(np.logaddexp(duel_log_g, log_other + log_moment))

    def _bound_by_duel(
        self, other_log_term: Floats, u: Floats, v: Floats, side: float, duel_log_g: Floats
    ) -> Floats:
        """Return the fourth bound (m, n) on log G on squares, where another class wins rarely.

        `other_log_term` (m, n) bounds the log of the term of G that another class wins. Infinite
        where the bound does not apply (section 4).
        """
        root_2 = np.sqrt(2)
        max_margin, min_margin = (u + side - v) / root_2, (u - v - side) / root_2
        gain = bound_log_gain(max_margin, root_2 * np.asarray(self.mu))
        loss = bound_log_gain(-min_margin - root_2 * self.mu, root_2 * np.asarray(self.mu))
        log_other = np.maximum(log_ndtr(-u) + log_ndtr(-v), log_ndtr(-u) + log_ndtr(self.mu - v))
        min_log_win = np.minimum(log_ndtr(min_margin), log_ndtr(-max_margin - root_2 * self.mu))
        # The largest difference of a log ratio from the duel's, e of the proof note.
        log_ratio_error = -np.log1p(-np.exp(np.minimum(log_other - min_log_win, -1e-9)))[..., None]
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            relative_error = log_ratio_error * (1 + 1 / np.minimum(gain, loss))[..., None]
        relative_error = np.where(relative_error < 1, relative_error, np.inf)
        log_duel_terms = duel_log_g + 2 * np.log1p(relative_error) + self.orders * log_ratio_error
        return np.asarray(np.logaddexp(log_duel_terms, other_log_term))

    def _bound_outside_square(self, low: float, high: float) -> Floats:
        """Return an upper bound (n,) on log G outside of [low, high]^2, for every order.

        Centres where both classes lead are left to `_bound_if_both_lead`. The others are divided
        into *strips*: one coordinate is beyond the square, the other in an interval. Section 4.
        """
        edges = np.linspace(low, high, int(np.ceil((high - low) / _STRIP_WIDTH)) + 1)
        low_end, high_end = np.array([low]), np.array([high])
        first, last = edges[:-1], edges[1:]
        low_ends = np.full(len(edges) - 1, low)
        mu = np.asarray(self.mu)
        # Log ratios that another class wins, if only u or only v moves: at strips and at `low`.
        strip_shrunk = self.convert_log_ratio(-bound_log_gain(-last - mu, mu))
        strip_grown = self.convert_log_ratio(bound_log_gain(-last, mu))
        low_shrunk = self.convert_log_ratio(-bound_log_gain(-low_end - mu, mu))
        low_grown = self.convert_log_ratio(bound_log_gain(-low_end, mu))
        loser_is_low = self.compute_outcomes(first, low_ends).log_ratio
        gainer_is_low = self.compute_outcomes(low_ends, first).log_ratio
        # v <= low: the loser is rare, and the other two outcomes are a threshold test.
        gainer_wins = self._bound_log_term(
            mix_log_probabilities(log_ndtr(last), log_ndtr(last + mu), self.gamma), loser_is_low[0]
        )
        other_wins_not_gainer = self._bound_log_term(
            log_ndtr(-first), loser_is_low[2], strip_shrunk
        )
        # u <= low: the gainer is rare.
        loser_wins = self._bound_log_term(log_ndtr(last), gainer_is_low[1])
        other_wins_not_loser = self._bound_log_term(
            mix_log_probabilities(log_ndtr(-first), log_ndtr(mu - first), self.gamma),
            gainer_is_low[2],
            strip_grown,
        )
        # Beyond the strips one outcome is nearly certain: its weight is bounded by 1.
        nearly_certain = [
            self._bound_log_term(np.zeros(1), low_shrunk, low_grown),
            self._bound_log_term(
                np.zeros(1), self.compute_outcomes(high_end, low_end).log_ratio[0]
            ),
            self._bound_log_term(
                np.zeros(1), self.compute_outcomes(low_end, high_end).log_ratio[1]
            ),
        ]
        frequent = [
            np.logaddexp(gainer_wins, other_wins_not_gainer),
            np.logaddexp(loser_wins, other_wins_not_loser),
            *nearly_certain,
        ]
        rare = np.log(2) + bound_rare_log_term(np.asarray(low + mu), np.sqrt(2) * mu, self.orders)
        return np.asarray(np.logaddexp(np.concatenate(frequent).max(axis=0), rare))

    def _bound_log_term(self, max_log_weight: Floats, *extreme_log_ratios: Floats) -> Floats:
        """Return an upper bound (m, n) on the log of one outcome's term of G on m sets of centres.

        `max_log_weight` (m,): upper bound on log b in each set. `extreme_log_ratios`, (m,) each:
        log L at the ends of its range in each set; one array if psi is largest at that end.
        """
        log_psi = [compute_log_psi(ratio[:, None], self.orders) for ratio in extreme_log_ratios]
        return np.asarray(max_log_weight[:, None] + np.maximum.reduce(log_psi))


def _compute_log_abs_expm1(x: Floats) -> Floats:
    """Return log |exp(x) - 1| elementwise, minus infinity at x = 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.maximum(x, 0) + np.log(-np.expm1(-np.abs(x))))
