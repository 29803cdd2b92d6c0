"""Expected delta over databases of two types whose records come from known distributions.

The Poisson-binomial probability of k successes is needed down to log probabilities of -700. A plain
Fourier transform is only accurate to 1e-16 of the largest probability. Exponential tilting
(multiplying the odds of every trial by e^s) multiplies the probability of k by e^{s k} / M(s), a
known factor; with s chosen so that k is the tilted mean, k lies where the transform is most
accurate. One transform of a few thousand points serves all k within a few tilted standard
deviations of its center.

A database of n records of two types is identified with k, its number of records of the first type.
The records are independent; a world assigns a distribution to each of them. In a pure world all
records have the same distribution: one of the population's vertices, its extreme distributions.
Sums of probabilities times deltas are computed as logarithms, enclosed between bounds.

Arguments of the functions: `mechanism`, `n` and `epsilon` define delta(k), that of a mechanism on
`n` records at `epsilon`. `get_log_deltas(low, high)` returns lower (row 0) and upper (row 1) bounds
of log delta(k) for low <= k <= high, float64 (2, high - low + 1). `world` gives the distribution of
k.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import fft
from scipy.optimize import brentq
from scipy.special import expit, logit, rel_entr

from vicinal.arrays import Counts, Floats
from vicinal.smoothed import intervals
from vicinal.smoothed._pairs import compute_profile
from vicinal.smoothed.databases import compute_log_delta
from vicinal.smoothed.intervals import MACHINE_EPSILON, LogInterval, log_sum, max_interval
from vicinal.smoothed.mechanism import (
    Histogram,
    Mechanism,
    compute_bounded_exp,
    get_published_sample_size,
)
from vicinal.smoothed.populations import Heterogeneous, Population, compute_exponents
from vicinal.smoothed.rules import Decision

LogDeltaGetter = Callable[[int, int], Floats]
"""The type of the argument `get_log_deltas`."""

_N_SEARCHED_DATABASES = 48
"""Databases k evaluated in each round of the search for the largest probability times delta."""
_N_SEARCH_ROUNDS = 3  # rounds, each within the best interval of the round before it
_UNLIKELY_LOG_PROBABILITY = -800.0
"""Databases with smaller tail probabilities (natural logarithm) are not searched at first."""
LEFT_OUT_LOG_RATIO = 60 * math.log(2)
"""Tails with a probability below 2^-60 of the largest term are left out of a sum."""
CHUNK_SIZE = 1 << 18
"""Number of databases with deltas in memory at a time."""


@dataclass(frozen=True)
class TwoTypeWorld:
    """A world of two types, as groups of records with the same probability of the first type.

    `counts[g]` records are of the first type with probability `probabilities[g]`.
    """

    counts: tuple[int, ...]
    probabilities: tuple[float, ...]

    @property
    def n(self) -> int:
        """Number of records."""
        return sum(self.counts)

    @property
    def mean(self) -> float:
        """Expected number of records of the first type."""
        return sum(c * q for c, q in zip(self.counts, self.probabilities, strict=True))

    def log_pmf(self, low: int, high: int) -> tuple[Floats, Floats]:
        """Return log Pr[k records are of the first type], and bounds of its absolute errors.

        Both are for `low` <= k <= `high`, float64 (high - low + 1,).
        """
        if len(self.counts) == 1:
            logs = intervals.log_binomial_pmf(self.n, self.probabilities[0], low, high + 1)
            return logs, intervals.LOG_ABSOLUTE_ERROR + intervals.LOG_RELATIVE_ERROR * np.where(
                np.isfinite(logs), -logs, 0.0
            )
        counts, probabilities = np.array(self.counts), np.array(self.probabilities)
        return compute_poisson_binomial_log_pmf(counts, probabilities, low, high + 1)

    def bound_log_tail(self, k: int) -> float:
        """Return an upper bound of log Pr[`k` or a number farther from the mean on the same side].

        It is Chernoff's bound for n records with the mean probability, which is never below that
        for different probabilities (Hoeffding 1956).
        """
        n = self.n
        p = self.mean / n
        if p <= 0 or p >= 1:
            return 0.0 if k == round(n * p) else -math.inf
        first_type = -n * p * float(intervals.compute_phi((k / n - p) / p))
        return first_type - n * (1 - p) * float(intervals.compute_phi((p - k / n) / (1 - p)))


@dataclass(frozen=True)
class StoredLogDeltas:
    """The function `get_log_deltas` with stored values.

    `profile` (2, n + 1): lower and upper bounds of log delta(k) of the databases k = 0 .. n.
    """

    profile: Floats

    def __call__(self, low: int, high: int) -> Floats:
        """Return bounds of log delta(k) for `low` <= k <= `high`: a view of `profile`."""
        return self.profile[:, low : high + 1]

    def find_likely_maximum(self, world: TwoTypeWorld) -> int:
        """Return the database k whose log(Pr[k] delta(k)) in `world` is probably the largest.

        Pr[k] is replaced by its Chernoff bound, which is fast to compute.
        """
        n, mean = world.n, world.mean

        def compute_log_terms(low: int, high: int) -> Floats:
            """Return log(bound of Pr[k] times lower bound of delta(k)) for `low` <= k <= `high`."""
            k = np.arange(low, high + 1)
            deviance = rel_entr(k, mean) + rel_entr(n - k, n - mean)
            return np.asarray(self.profile[0, low : high + 1] - deviance)

        # No delta is above 1, and by Pinsker's inequality the deviance is at least
        # 2 (k - mean)^2 / n: farther from the mean than this no term exceeds that at the mean.
        center = round(mean)
        max_deviance = max(0.0, -float(compute_log_terms(center, center)[0]))
        reach = math.sqrt(n * max_deviance / 2)
        low = math.floor(max(mean - reach - 1, 0))
        high = math.ceil(min(mean + reach + 1, n))
        return low + int(np.argmax(compute_log_terms(low, high)))


def list_pure_worlds(population: Population, n: int, type_index: int) -> list[TwoTypeWorld]:
    """Return the pure worlds of `n` records of `population`, reduced to two types.

    `type_index`: the type that becomes the first; the remaining types become the second. A
    heterogeneous population is a single world, which is returned.
    """
    probabilities = population.vertices[:, type_index].tolist()
    if isinstance(population, Heterogeneous):
        return [TwoTypeWorld(tuple(population.counts.tolist()), tuple(probabilities))]
    return [TwoTypeWorld((n,), (probability,)) for probability in set(probabilities)]


def cache_log_deltas(compute_log_delta: Callable[[int], LogInterval]) -> LogDeltaGetter:
    """Return the function `get_log_deltas` that computes each delta(k) once.

    `compute_log_delta`: maps k to the interval of log delta(k).
    """
    cached = cache(compute_log_delta)

    def get_log_deltas(low: int, high: int) -> Floats:
        numbers = [cached(k) for k in range(low, high + 1)]
        return np.array([[number.low for number in numbers], [number.high for number in numbers]])

    return get_log_deltas


def compute_mean_delta(get_log_deltas: LogDeltaGetter, world: TwoTypeWorld) -> LogInterval:
    """Return the expected delta(k) of a random database k from `world`.

    Only a window of k is summed. Databases outside have probabilities that together are below 2^-60
    of the result; they are added to the upper end, as no delta is above 1.
    """
    max_log_term = bound_largest_log_term(get_log_deltas, world)
    low, high = find_window(world, max_log_term - LEFT_OUT_LOG_RATIO)
    chunk_sums: list[tuple[float, float]] = []
    for start in range(low, high + 1, CHUNK_SIZE):
        last = min(start + CHUNK_SIZE, high + 1) - 1
        logs, errors = world.log_pmf(start, last)
        chunk_sums.append(sum_weighted_deltas(logs, errors, get_log_deltas(start, last)))
    is_complete = (low, high) == (0, world.n)
    left_out = -math.inf if is_complete else max_log_term - LEFT_OUT_LOG_RATIO + math.log(2)
    slack = MACHINE_EPSILON * (high - low + 32)
    lower = log_sum(np.array([chunk_sum[0] for chunk_sum in chunk_sums])) - slack
    upper = log_sum(np.array([*(chunk_sum[1] for chunk_sum in chunk_sums), left_out])) + slack
    return LogInterval(lower, upper).cap_at_one()


def sum_weighted_deltas(log_p: Floats, errors: Floats, log_deltas: Floats) -> tuple[float, float]:
    """Return lower and upper bounds of the log of a sum over databases of probability times delta.

    `log_p` and `errors` (databases,) are log probabilities and their error bounds; an infinite
    error stands for an unknown probability. `log_deltas` (2, databases) are lower and upper bounds.
    """
    is_enclosed = np.isfinite(errors)
    low = np.where(is_enclosed, log_p - np.where(is_enclosed, errors, 0.0), -np.inf)
    high = np.where(is_enclosed, log_p + np.where(is_enclosed, errors, 0.0), 0.0)
    return log_sum(low + log_deltas[0]), log_sum(high + log_deltas[1])


def find_window(world: TwoTypeWorld, max_log_tail: float) -> tuple[int, int]:
    """Return low, high: the range outside of which a database k from `world` is improbable.

    Pr[k < low] and Pr[k > high] are below exp(`max_log_tail`) each.
    """
    return (
        _find_tail_start(world, math.floor(world.mean), 0, max_log_tail),
        _find_tail_start(world, math.ceil(world.mean), world.n, max_log_tail),
    )


def _find_tail_start(world: TwoTypeWorld, mean: int, end: int, max_log_tail: float) -> int:
    """Return, by bisection, the k nearest to `mean` with Pr[k or farther] <= exp(`max_log_tail`).

    `mean`: the expected k, rounded. The tail is on the side of `end`, which is 0 or n; the result
    is `end` if there is no such k.
    """
    if world.bound_log_tail(end) > max_log_tail:
        return end
    heavy, light = min(max(mean, 0), world.n), end
    while abs(light - heavy) > 1:
        middle = (heavy + light) // 2
        if world.bound_log_tail(middle) > max_log_tail:
            heavy = middle
        else:
            light = middle
    return light


def bound_largest_log_term(get_log_deltas: LogDeltaGetter, world: TwoTypeWorld) -> float:
    """Return a lower bound, usually sharp, of the largest log(Pr[k] delta(k)) of any database k.

    Likely databases are searched first, because deltas of large counts take longer to compute. If
    the best one is at an end of their range, all databases are searched.
    """
    if isinstance(get_log_deltas, StoredLogDeltas):
        return _compute_log_term(get_log_deltas, world, get_log_deltas.find_likely_maximum(world))
    low, high = find_window(world, _UNLIKELY_LOG_PROBABILITY)
    max_log_term, argmax = _search_largest_log_term(get_log_deltas, world, low, high)
    if (argmax == low and low > 0) or (argmax == high and high < world.n):
        max_log_term = max(
            max_log_term, _search_largest_log_term(get_log_deltas, world, 0, world.n)[0]
        )
    return max_log_term


def _search_largest_log_term(
    get_log_deltas: LogDeltaGetter, world: TwoTypeWorld, low: int, high: int
) -> tuple[float, int]:
    """Return the largest log(Pr[k] delta(k)) found for `low` <= k <= `high`, and its k.

    It is a lower bound, because a grid of k is searched that narrows around the largest value.
    """
    # Each round evaluates equidistant k and narrows the range to the neighbours of the best one.
    max_log_term, argmax = -math.inf, low
    for _ in range(_N_SEARCH_ROUNDS):
        grid = np.unique(np.linspace(low, high, _N_SEARCHED_DATABASES).astype(np.int64)).tolist()
        terms = [_compute_log_term(get_log_deltas, world, k) for k in grid]
        best_index = int(np.argmax(terms))
        max_log_term, argmax = max((max_log_term, argmax), (terms[best_index], grid[best_index]))
        low, high = grid[max(best_index - 1, 0)], grid[min(best_index + 1, len(grid) - 1)]
    return max_log_term, argmax


def _compute_log_term(get_log_deltas: LogDeltaGetter, world: TwoTypeWorld, k: int) -> float:
    """Return a lower bound of log(Pr[k] delta(k)) for the database `k`."""
    logs, errors = world.log_pmf(k, k)
    low = float(logs[0] - errors[0] + get_log_deltas(k, k)[0, 0])
    return low if math.isfinite(low) else -math.inf


_BLOCK_STANDARD_DEVIATIONS = 2.5
"""Tilted standard deviations that one transform serves beyond its center."""
_WINDOW_STANDARD_DEVIATIONS = 40.0
"""Length of a transform in tilted standard deviations: aliased mass is below 1e-40."""
_MIN_POINTS = 64  # minimal number of points of a transform
_MAX_TILT = 700.0  # maximal log odds of a tilted trial: exp(710) would overflow


def compute_poisson_binomial_log_pmf(
    counts: Counts, probabilities: Floats, low: int, high: int
) -> tuple[Floats, Floats]:
    """Return Poisson-binomial log Pr[k successes] for low <= k < high, and error bounds.

    Group g has `counts[g]` independent trials with success probability `probabilities[g]`, 0 to 1;
    0 <= low, high <= number of trials + 1. Both results are float64 (high - low,). The error bound
    of a probability that cannot be resolved is infinite.
    """
    n_certain = int(counts[probabilities == 1].sum())
    is_random = (probabilities > 0) & (probabilities < 1) & (counts > 0)
    logs, errors = np.full(high - low, -np.inf), np.zeros(high - low)
    n, k = int(counts[is_random].sum()), max(low - n_certain, 0)
    stop = min(high - n_certain, n + 1)
    if n == 0:
        logs[n_certain - low if low <= n_certain < high else slice(0)] = 0.0
        return logs, errors
    while k < stop:
        block_logs, block_errors, next_k = _compute_log_pmf_block(
            counts[is_random], probabilities[is_random], k, stop
        )
        block = slice(k + n_certain - low, next_k + n_certain - low)
        logs[block], errors[block] = block_logs, block_errors
        k = next_k
    return logs, errors


def _compute_log_pmf_block(
    counts: Counts, probabilities: Floats, first: int, stop: int
) -> tuple[Floats, Floats, int]:
    """Return log Pr[k successes] for k = `first` .. next_k - 1, error bounds, and next_k.

    Group g has `counts[g]` independent trials with success probability `probabilities[g]`, above 0
    and below 1. next_k is where the tilt loses precision, `stop` at most. Probabilities that cannot
    be resolved have infinite error bounds.
    """
    n = int(counts.sum())
    if first in (0, n):
        logs = np.log1p(-probabilities) if first == 0 else np.log(probabilities)
        return np.array([float((counts * logs).sum())]), np.array([2.0**-44 * n]), first + 1
    tilt = _find_tilt(counts, probabilities, first)
    tilted = expit(logit(probabilities) + tilt)
    deviation = math.sqrt(float((counts * tilted * (1 - tilted)).sum()))
    next_k = min(stop, n, first + max(1, int(_BLOCK_STANDARD_DEVIATIONS * deviation)))
    n_points = max(
        _MIN_POINTS, 1 << math.ceil(math.log2(_WINDOW_STANDARD_DEVIATIONS * deviation + 16))
    )
    tilted_pmf, noise = _compute_tilted_pmf(counts, tilted, first, n_points)
    block_pmf = tilted_pmf[: next_k - first]
    # log M(s) = sum over trials of log(1 - p + p e^s), stable for either sign of s.
    log_moment = float(
        (counts * np.logaddexp(np.log1p(-probabilities), np.log(probabilities) + tilt)).sum()
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.log(np.maximum(block_pmf, 0)) + log_moment - tilt * np.arange(first, next_k)
        errors = noise / block_pmf + 2.0**-45 * (abs(log_moment) + abs(tilt) * next_k + 16)
    return values, np.where(block_pmf > noise, errors, np.inf), next_k


def _find_tilt(counts: Counts, probabilities: Floats, mean: int) -> float:
    """Return the tilt s: with odds multiplied by e^s, the mean number of successes is `mean`.

    Group g has `counts[g]` independent trials with success probability `probabilities[g]`, above 0
    and below 1. `mean` is above 0 and below the number of trials.
    """
    log_odds = logit(probabilities)

    def compute_mean_excess(tilt: float) -> float:
        """Return the mean number of successes with odds multiplied by e^tilt, minus `mean`."""
        return float((counts * expit(log_odds + tilt)).sum()) - mean

    return float(
        brentq(
            compute_mean_excess, -_MAX_TILT - log_odds.max(), _MAX_TILT - log_odds.min(), xtol=1e-10
        )
    )


def _compute_tilted_pmf(
    counts: Counts, tilted: Floats, first: int, n_points: int
) -> tuple[Floats, float]:
    """Return Pr[`first` + i successes] for i = 0 .. n_points - 1, and a bound of the errors.

    `counts` and `tilted` (groups,) are the numbers of trials and their tilted success
    probabilities, with `first` expected successes.
    """
    # A Fourier transform with n_points aliases mass farther than n_points / 2 from the mean: by
    # Bernstein's inequality less than 2 exp(-n_points^2 / (8 v + 4 n_points / 3)) for variance v,
    # which is below 1e-40 with 40 standard deviations.
    angles = 2 * math.pi * np.arange(n_points // 2 + 1) / n_points
    rotations = np.exp(1j * angles) - 1
    log_transform = np.zeros(len(angles), dtype=np.complex128)
    for count, probability in zip(counts.tolist(), tilted.tolist(), strict=True):
        log_transform += count * np.log1p(probability * rotations)
    # Center on `first`, so that the angle of every term stays small: less rounding.
    pmf = fft.irfft(np.conj(np.exp(log_transform - 1j * first * angles)), n_points)
    max_exponent = float(np.abs(log_transform).max()) + math.pi * first
    magnitudes = np.exp(log_transform.real)
    errors = (np.abs(log_transform) + angles * first + 8) * magnitudes
    noise = 2.0**-51 * float(errors.sum()) / n_points
    return pmf, 8 * noise + 2.0**-52 * max_exponent * 2.0**-52


# ------------------- the maximum over the worlds of two types: two evaluations instead of n + 1

_N_BOUNDS = 24  # number of values of c' over which the bound of theory.md, section 8b, is minimised
_NEGLIGIBLE_LOG_RATIO = 20 * math.log(2)
"""Deltas below 2^-20 of the largest term are replaced by their bound: 1e-6 of the result."""
_MAX_SEARCH_RANGE = 1 << 22
"""Number of databases searched for a negligible bound before the sum starts."""


def create_log_delta_getter(mechanism: Mechanism, n: int, epsilon: float) -> LogDeltaGetter:
    """Return the function `get_log_deltas` of databases of two types, by the fastest method."""
    size = get_published_sample_size(mechanism)
    if size is not None:
        exp_eps = compute_bounded_exp(epsilon)
        return lambda low, high: np.minimum(compute_profile(n, size, exp_eps, low, high), 0.0)
    if isinstance(mechanism, Decision) and mechanism.can_tabulate(n, 2):
        return StoredLogDeltas(mechanism.compute_profile(n, epsilon))
    return cache_log_deltas(lambda k: compute_log_delta(mechanism, np.array([k, n - k]), epsilon))


def list_extreme_worlds(population: Population, n: int) -> list[TwoTypeWorld]:
    """Return the pure worlds of two types with the smallest and largest probability of the first.

    They are one if both are equal. A heterogeneous population is a single world.
    """
    worlds = list_pure_worlds(population, n, 0)
    ordered = sorted(worlds, key=lambda world: world.probabilities)
    return worlds if len(worlds) == 1 else [ordered[0], ordered[-1]]


def bound_mixed_worlds(
    get_log_deltas: LogDeltaGetter,
    pure_worlds: Sequence[TwoTypeWorld],
    bound_log_delta: Callable[[int], float],
) -> LogInterval:
    """Return an interval of the largest mean delta in any mixture of two pure worlds.

    The lower end is the larger mean delta of the `pure_worlds`; the upper end is the larger mean of
    a quasi-convex majorant of delta (theory.md, section 8c). `bound_log_delta(k)`: an upper bound
    of log delta of databases k to n - k.
    """
    lower = max_interval(compute_mean_delta(get_log_deltas, world) for world in pure_worlds)
    upper = max(
        bound_majorant_mean(get_log_deltas, world, bound_log_delta) for world in pure_worlds
    )
    return LogInterval(lower.low, max(upper, lower.high))


def make_log_delta_bound(mechanism: Mechanism, n: int, epsilon: float) -> Callable[[int], float]:
    """Return a function of k: an upper bound of log delta of databases k to `n` - k.

    The function is the two-sided bound of theory.md, section 8b, minimised over 24 values of its
    free parameter c'; 0 where it does not apply.
    """
    size = get_published_sample_size(mechanism)
    if size is None or size in (0, n) or epsilon == 0:
        return lambda _: 0.0
    unsampled = 1 - size / n
    max_log_c = min(epsilon, -math.log(unsampled))
    exponents = [
        compute_exponents(unsampled, epsilon, max_log_c * (i + 1) / _N_BOUNDS)
        for i in range(_N_BOUNDS)
    ]

    def bound_log_delta(k: int) -> float:
        """Return an upper bound of log delta of databases k to n - k."""
        log_terms = [
            (-k * k1, a - (k - 1) * k2 if k2 < math.inf else -k2) for k1, k2, a in exponents
        ]
        return min(0.0, *(float(np.logaddexp(*terms)) + 1e-9 for terms in log_terms))

    return bound_log_delta


def bound_majorant_mean(
    get_log_deltas: LogDeltaGetter, world: TwoTypeWorld, bound_log_delta: Callable[[int], float]
) -> float:
    """Return an upper bound of log E[g(k)] for a database k from `world`.

    g(k), the largest delta of a database between k and n // 2, is a quasi-convex upper bound of
    delta. `bound_log_delta(k)` is an upper bound of log delta of databases k to n - k. It replaces
    the deltas near n // 2, where it is negligible.
    """
    # Databases are visited from n // 2 outwards with a running maximum.
    n, max_log_term = world.n, bound_largest_log_term(get_log_deltas, world)
    low, high = find_window(world, max_log_term - LEFT_OUT_LOG_RATIO)
    minimizer, negligible_log = n // 2, max_log_term - _NEGLIGIBLE_LOG_RATIO
    sums = [max_log_term - LEFT_OUT_LOG_RATIO + math.log(2)]

    def is_negligible(k: int) -> bool:
        """Return whether the deltas of databases k to n - k are negligible in the mean."""
        return bound_log_delta(k) <= negligible_log

    if low <= minimizer:
        inner = _find_negligible_start(min(high, minimizer), minimizer, is_negligible)
        running_max = bound_log_delta(inner) if inner < minimizer else -math.inf
        sums += _sum_outwards(get_log_deltas, world, inner, low, running_max)
    if high > minimizer:
        half = n - minimizer - 1
        inner = n - _find_negligible_start(min(n - low, half), half, is_negligible)
        running_max = bound_log_delta(n - inner) if inner > minimizer + 1 else -math.inf
        sums += _sum_outwards(get_log_deltas, world, inner, high, running_max)
    return min(log_sum(np.array(sums)) + MACHINE_EPSILON * (len(sums) + high - low + 32), 0.0)


def _find_negligible_start(start: int, last: int, is_negligible: Callable[[int], bool]) -> int:
    """Return the smallest k >= `start` with `is_negligible(k)`, by bisection in a limited range.

    If there is none below both `last` and `start` + `_MAX_SEARCH_RANGE`, the smaller of these is
    returned, where the bound need not be negligible: the interval gets wider then.
    `is_negligible` is monotone: it stays true for larger k.
    """
    if is_negligible(start) or start >= last:
        return min(start, last)
    heavy, light = start, min(last, start + _MAX_SEARCH_RANGE)
    while light - heavy > 1:
        middle = (heavy + light) // 2
        heavy, light = (heavy, middle) if is_negligible(middle) else (middle, light)
    return light


def _sum_outwards(
    get_log_deltas: LogDeltaGetter, world: TwoTypeWorld, inner: int, outer: int, initial_max: float
) -> list[float]:
    """Return upper bounds of the logs of sums of probability times running maximum of delta.

    There is one sum for each chunk of the databases from k = `inner` to k = `outer`, in this order,
    up or down; `initial_max` is the running maximum of log delta before `inner`.
    """
    sign, running_max, sums = (1 if outer >= inner else -1), initial_max, []
    for first in range(inner, outer + sign, sign * CHUNK_SIZE):
        last = first + sign * (min(CHUNK_SIZE, abs(outer - first) + 1) - 1)
        low, high = min(first, last), max(first, last)
        logs, errors = world.log_pmf(low, high)
        deltas = get_log_deltas(low, high)[1][::sign]
        majorant = np.maximum(np.maximum.accumulate(deltas), running_max)
        running_max = float(majorant[-1])
        sums.append(sum_weighted_deltas(logs, errors, np.stack([majorant, majorant])[:, ::sign])[1])
    return sums


_N_GAP_MEANS = 9
"""Means over mixtures that are computed where rounding hides which one is the largest."""


def bound_decision_delta(
    mechanism: Decision, n: int, epsilon: float, p: float, q: float
) -> LogInterval:
    """Return an interval of the smoothed delta of a decision on two types.

    Each of `n` records is of the first type with any probability in [p, q], p < q. The upper end is
    the largest mean of a unimodal majorant of delta, or the sum of those of two parts of delta,
    split where delta is deepest below the majorant.
    """
    # The deltas of a decision are large only where a record can be decisive: they have a peak or,
    # at larger epsilon, one on either side of the middle.
    stored = StoredLogDeltas(mechanism.compute_profile(n, epsilon))
    upper_deltas = stored.profile[1]
    majorant = _make_unimodal_majorant(upper_deltas)
    best_world, upper = _maximize_unimodal_mean(majorant, n, p, q)
    best_worlds = {best_world}
    is_positive = majorant > -math.inf
    depths = np.subtract(majorant, upper_deltas, out=np.zeros(n + 1), where=is_positive)
    split = int(np.argmax(depths))
    if depths[split] > 0:
        side_uppers = []
        for is_on_side in (np.arange(n + 1) < split, np.arange(n + 1) >= split):
            side = _make_unimodal_majorant(np.where(is_on_side, upper_deltas, -np.inf))
            side_world, side_upper = _maximize_unimodal_mean(side, n, p, q)
            best_worlds.add(side_world)
            side_uppers.append(side_upper)
        upper = min(upper, log_sum(np.array(side_uppers)) + 16 * MACHINE_EPSILON)
    lower = max_interval(compute_mean_delta(stored, world) for world in best_worlds)
    return LogInterval(lower.low, min(max(upper, lower.high), 0.0))


def _make_unimodal_majorant(upper_deltas: Floats) -> Floats:
    """Return the smallest unimodal function of k that is nowhere below log delta(k), (n + 1,).

    `upper_deltas` (n + 1,): upper bounds of log delta(k).
    """
    peak = int(np.argmax(upper_deltas))
    rising = np.maximum.accumulate(upper_deltas[:peak])
    falling = np.maximum.accumulate(upper_deltas[peak:][::-1])[::-1]
    return np.concatenate([rising, falling])


def _maximize_unimodal_mean(
    majorant: Floats, n: int, p: float, q: float
) -> tuple[TwoTypeWorld, float]:
    """Return the likely worst world, and an upper bound of log E[g(k)] in any world.

    `majorant` (n + 1,) is log g(k), unimodal in k. In each world, every record is of the first type
    with probability p or q > p.
    """
    # The mean G(j) with j records at q is unimodal in j (theory.md, section 8c), so its maximum is
    # found by bisection.
    stored = StoredLogDeltas(np.stack([majorant, majorant]))

    def make_world(n_second: int) -> TwoTypeWorld:
        """Return the world of `n_second` records with probability q, and the rest with p."""
        if n_second in (0, n):
            return TwoTypeWorld((n,), (q if n_second else p,))
        return TwoTypeWorld((n - n_second, n_second), (p, q))

    @cache
    def compute_mean(n_second: int) -> LogInterval:
        """Return the interval of G(`n_second`), the mean of g(k) in that world."""
        return compute_mean_delta(stored, make_world(n_second))

    def may_decrease_after(j: int) -> bool:
        """Return whether G(j) >= G(j + 1) is possible by their intervals."""
        return compute_mean(j).high >= compute_mean(j + 1).low

    def decreases_after(j: int) -> bool:
        """Return whether G(j) > G(j + 1) is certain by their intervals."""
        return compute_mean(j).low > compute_mean(j + 1).high

    # The maximum is in [first, last]: G certainly increases before and decreases after it.
    first = bisect_left(range(n), True, key=may_decrease_after)
    last = first + bisect_left(range(first, n), True, key=decreases_after)
    candidates = np.unique(np.linspace(first, last, _N_GAP_MEANS).astype(np.int64)).tolist()
    best = max(candidates, key=lambda j: compute_mean(j).low)
    upper = max(compute_mean(j).high for j in candidates)
    max_distance = int(max(np.diff(candidates), default=0)) // 2
    if max_distance:
        # A step of G is q - p times E[g(H + 1) - g(H)], where H counts the other n - 1 records.
        # As g is nonnegative and Pr[H = h] is unimodal, this is at most the largest g times the
        # largest Pr[H = h]. By Fourier inversion that is at most the mean over angles t of
        # exp(-2 v sin(t / 2)^2), v = Var H, and sin(t / 2)^2 >= (t / pi)^2 gives sqrt(pi / (8 v)).
        min_variance = (n - 1) * min(p * (1 - p), q * (1 - q))
        max_log_probability = 0.0
        if min_variance > 0:
            max_log_probability = min(0.5 * math.log(math.pi / (8 * min_variance)), 0.0)
        log_step = float(majorant.max()) + math.log(q - p) + max_log_probability
        upper = float(np.logaddexp(upper, log_step + math.log(max_distance))) + 1e-12
    return make_world(best), min(upper, float(majorant.max()))


def bound_single_type_mean(
    mechanism: Histogram, population: Population, n: int, epsilon: float
) -> LogInterval:
    """Return the largest expected delta over pure worlds if a single type's count is published.

    Publishing the count of one type instead of all only lowers delta, so the lower end bounds the
    smoothed delta from below. `population`: the plausible distributions of the records.
    """
    get_log_deltas = create_log_delta_getter(mechanism, n, epsilon)
    worlds = {
        world
        for type_index in range(population.types)
        for world in list_pure_worlds(population, n, type_index)
    }
    return max_interval(compute_mean_delta(get_log_deltas, world) for world in worlds)
