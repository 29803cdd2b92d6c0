r"""Expected delta over databases of two types whose records come from known distributions.

How many of many different coins come up is needed down to log probabilities of 1e-300. A plain
Fourier transform is good to 1e-16 of the largest probability only. Tilting every coin, its odds
times e^s, multiplies the probability of k by e^{s k} / M(s), which is known; with s chosen so that
k is the tilted mean, k sits where the transform is most precise. One transform of a few thousand
points serves all k within a few tilted standard deviations of its centre.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import fft
from scipy.optimize import brentq
from scipy.special import expit, logit

from vicinal.arrays import Counts, Floats
from vicinal.smoothed import intervals as _saddle
from vicinal.smoothed._edges import compute_profile
from vicinal.smoothed.databases import compute_log_delta
from vicinal.smoothed.intervals import MACHINE_EPSILON, LogInterval, largest, log_sum, stack_ends
from vicinal.smoothed.mechanism import FixedSize, Histogram, Mechanism, exp_epsilon
from vicinal.smoothed.populations import Heterogeneous, Population, compute_exponents

LogDeltas = Callable[[int, int], Floats]
"""From low, high to lower and upper log deltas (2, high - low + 1) of databases low .. high."""

_PROBES = 48
_ROUNDS = 3
_UNLIKELY = -800.0
LEFT_OUT = 60 * math.log(2)
CHUNK = 1 << 18


@dataclass(frozen=True)
class TwoTypeWorld:
    """Independent records: `counts` of them are of the first type with each of `chances`."""

    counts: tuple[int, ...]
    chances: tuple[float, ...]

    @property
    def n(self) -> int:
        """Number of records."""
        return sum(self.counts)

    def log_pmf(self, low: int, high: int) -> tuple[Floats, Floats]:
        """Return log Pr[k of the first type] for low <= k <= high, and its errors."""
        if len(self.counts) == 1:
            logs = _saddle.log_binomial_pmf(self.n, self.chances[0], low, high + 1)
            return logs, _saddle.LOG_ABSOLUTE_ERROR + _saddle.LOG_RELATIVE_ERROR * np.where(np.isfinite(logs), -logs, 0.0)
        counts, chances = np.array(self.counts), np.array(self.chances)
        return compute_sum_log_pmf(counts, chances, low, high + 1)

    def log_tail(self, k: int) -> float:
        """Return a bound of log Pr[sum on the far side of k, k included], seen from the mean.

        Chernoff's bound for the binomial of the mean chance, which is never below that of
        different chances (Hoeffding 1956).
        """
        n = self.n
        p = sum(c * q for c, q in zip(self.counts, self.chances, strict=True)) / n
        if p <= 0 or p >= 1:
            return 0.0 if k == round(n * p) else -math.inf
        return -n * p * _phi((k / n - p) / p) - n * (1 - p) * _phi((p - k / n) / (1 - p))


def list_unmixed_worlds(population: Population, n: int, kind: int) -> list[TwoTypeWorld]:
    """Return the unmixed worlds of a population as one type, `kind`, against the rest."""
    chances = population.vertices[:, kind].tolist()
    if isinstance(population, Heterogeneous):
        return [TwoTypeWorld(tuple(population.counts.tolist()), tuple(chances))]
    return [TwoTypeWorld((n,), (chance,)) for chance in set(chances)]


def cache_log_deltas(delta: Callable[[int], LogInterval]) -> LogDeltas:
    """Return a column of single deltas, each computed once."""
    known = cache(delta)
    return lambda low, high: stack_ends(known(k) for k in range(low, high + 1))


def compute_mean_delta(column: LogDeltas, world: TwoTypeWorld) -> LogInterval:
    """Return E delta(k) over k of the world, summing only where it can matter.

    Databases whose probability together is below 2^-60 of the result are left out and added to
    the upper end, as no delta is above 1.
    """
    rough = find_largest_term(column, world)
    low, high = window(world, rough - LEFT_OUT)
    ends: list[tuple[float, float]] = []
    for start in range(low, high + 1, CHUNK):
        stop = min(start + CHUNK, high + 1) - 1
        logs, errors = world.log_pmf(start, stop)
        deltas = column(start, stop)
        ends.append(weigh(logs, errors, deltas))
    left_out = rough - LEFT_OUT + math.log(2) if (low, high) != (0, world.n) else -math.inf
    slack = MACHINE_EPSILON * (high - low + 32)
    bottom = log_sum(np.array([end[0] for end in ends])) - slack
    top = log_sum(np.array([*(end[1] for end in ends), left_out])) + slack
    return LogInterval(bottom, top).cap_log()


def weigh(logs: Floats, errors: Floats, deltas: Floats) -> tuple[float, float]:
    """Return lower and upper logs of the sum of probabilities times deltas."""
    # A probability of which only a bound is known has an infinite error: 0 below, 1 above.
    known = np.isfinite(errors)
    low = np.where(known, logs - np.where(known, errors, 0.0), -np.inf)
    high = np.where(known, logs + np.where(known, errors, 0.0), 0.0)
    return log_sum(low + deltas[0]), log_sum(high + deltas[1])


def window(world: TwoTypeWorld, log_mass: float) -> tuple[int, int]:
    """Return low, high such that less than exp(`log_mass`) is below low, and above high."""
    n = world.n
    mean = sum(c * q for c, q in zip(world.counts, world.chances, strict=True))
    return (
        _reach(world, math.floor(mean), 0, log_mass),
        _reach(world, math.ceil(mean), n, log_mass),
    )


def _reach(world: TwoTypeWorld, start: int, end: int, log_mass: float) -> int:
    """Return the place nearest to `start`, towards `end`, whose tail is light enough."""
    if world.log_tail(end) > log_mass:
        return end
    near, far = min(max(start, 0), world.n), end
    while abs(far - near) > 1:
        middle = (near + far) // 2
        near, far = (middle, far) if world.log_tail(middle) > log_mass else (near, middle)
    return far


def find_largest_term(column: LogDeltas, world: TwoTypeWorld) -> float:
    """Return the largest probability times delta that a few rounds of probing find.

    First among likely databases, as deltas of large counts take longer; if the best is at an end
    of these, among all.
    """
    low, high = window(world, _UNLIKELY)
    best, place = _probed(column, world, low, high)
    if (place == low and low > 0) or (place == high and high < world.n):
        best = max(best, _probed(column, world, 0, world.n)[0])
    return best


def _probed(column: LogDeltas, world: TwoTypeWorld, low: int, high: int) -> tuple[float, int]:
    """Return the largest term found between low and high, and where."""
    best, argmax = -math.inf, low
    for _ in range(_ROUNDS):
        places = np.unique(np.linspace(low, high, _PROBES).astype(np.int64)).tolist()
        terms = [_term(column, world, k) for k in places]
        top = int(np.argmax(terms))
        best, argmax = max((best, argmax), (terms[top], places[top]))
        low, high = places[max(top - 1, 0)], places[min(top + 1, len(places) - 1)]
    return best, argmax


def _term(column: LogDeltas, world: TwoTypeWorld, k: int) -> float:
    logs, errors = world.log_pmf(k, k)
    low = float(logs[0] - errors[0] + column(k, k)[0, 0])
    return low if math.isfinite(low) else -math.inf


def _phi(v: float) -> float:
    return float(_saddle.phi(v))


_REACH = 2.5
_WIDTH = 40.0
_LEAST_POINTS = 64
_STEEPEST = 700.0


def compute_sum_log_pmf(counts: Counts, chances: Floats, low: int, high: int) -> tuple[Floats, Floats]:
    """Return log Pr[sum = k] for low <= k < high, and the largest error of each.

    Group g has counts[g] coins of probability chances[g]; 0 <= low, high <= coins + 1.
    """
    sure = int(counts[chances == 1].sum())
    open_ = (chances > 0) & (chances < 1) & (counts > 0)
    logs, errors = np.full(high - low, -np.inf), np.zeros(high - low)
    n, place = int(counts[open_].sum()), max(low - sure, 0)
    stop = min(high - sure, n + 1)
    if n == 0:
        logs[sure - low if low <= sure < high else slice(0)] = 0.0
        return logs, errors
    while place < stop:
        values, slack, reached = _block(counts[open_], chances[open_], place, stop)
        into = slice(place + sure - low, reached + sure - low)
        logs[into], errors[into] = values, slack
        place = reached
    return logs, errors


def _block(counts: Counts, chances: Floats, first: int, stop: int) -> tuple[Floats, Floats, int]:
    """Return log probabilities from `first` on, as far as one tilt reaches."""
    n = int(counts.sum())
    if first in (0, n):
        logs = np.log1p(-chances) if first == 0 else np.log(chances)
        return np.array([float((counts * logs).sum())]), np.array([2.0**-44 * n]), first + 1
    tilt = _tilt(counts, chances, first)
    tilted = expit(logit(chances) + tilt)
    deviation = math.sqrt(float((counts * tilted * (1 - tilted)).sum()))
    reached = min(stop, n, first + max(1, int(_REACH * deviation)))
    points = max(_LEAST_POINTS, 1 << math.ceil(math.log2(_WIDTH * deviation + 16)))
    law, noise = _transform(counts, tilted, first, points)
    part = law[: reached - first]
    # log M(s) = sum of counts log(1 - p + p e^s), stable for either sign of s.
    moment = float((counts * np.logaddexp(np.log1p(-chances), np.log(chances) + tilt)).sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.log(np.maximum(part, 0)) + moment - tilt * np.arange(first, reached)
        error = noise / part + 2.0**-45 * (abs(moment) + abs(tilt) * reached + 16)
    return values, np.where(part > noise, error, np.inf), reached


def _tilt(counts: Counts, chances: Floats, mean: int) -> float:
    odds = logit(chances)

    def off(tilt: float) -> float:
        return float((counts * expit(odds + tilt)).sum()) - mean

    return float(brentq(off, -_STEEPEST - odds.max(), _STEEPEST - odds.min(), xtol=1e-10))


def _transform(counts: Counts, tilted: Floats, first: int, points: int) -> tuple[Floats, float]:
    """Return probabilities of first, first + 1, ... and their absolute error.

    What is farther than points / 2 from the mean wraps round: less than 2 exp(-points^2 / (8 v +
    4 points / 3)), Bernstein's inequality; with 40 standard deviations below 1e-40.
    """
    angles = 2 * math.pi * np.arange(points // 2 + 1) / points
    turned = np.exp(1j * angles) - 1
    log_law = np.zeros(len(angles), dtype=np.complex128)
    for count, p in zip(counts.tolist(), tilted.tolist(), strict=True):
        log_law += count * np.log1p(p * turned)
    # Centre on `first`, so that the angle of every term stays small: less rounding.
    law = fft.irfft(np.conj(np.exp(log_law - 1j * first * angles)), points)
    size = float(np.abs(log_law).max()) + math.pi * first
    weight = np.exp(log_law.real)
    noise = 2.0**-51 * float(((np.abs(log_law) + angles * first + 8) * weight).sum()) / points
    return law, 8 * noise + 2.0**-52 * size * 2.0**-52


# -------------------------- the maximum over worlds for two types: two evaluations instead of n + 1

_RATES = 24
_NEGLIGIBLE = 20 * math.log(2)
_FARTHEST = 1 << 22


def make_log_deltas(mechanism: Mechanism, n: int, epsilon: float) -> LogDeltas:
    """Return what gives log delta of the databases (k, n - k), for low <= k <= high."""
    if isinstance(mechanism, Histogram) and isinstance(mechanism.sampler, FixedSize):
        size, e = mechanism.sampler.size, exp_epsilon(epsilon)
        return lambda low, high: np.minimum(compute_profile(n, size, e, low, high), 0.0)
    return cache_log_deltas(lambda k: compute_log_delta(mechanism, np.array([k, n - k]), epsilon))


def bound_smoothed_delta(mechanism: Mechanism, n: int, epsilon: float, p: float, q: float) -> LogInterval:
    """Return the sandwich of the smoothed delta when every record has a chance in [p, q]."""
    column = make_log_deltas(mechanism, n, epsilon)
    ends = [TwoTypeWorld((n,), (chance,)) for chance in (p, q)]
    lower = largest(compute_mean_delta(column, world) for world in ends)
    tail = make_rest_bound(mechanism, n, epsilon)
    upper = max(bound_majorant_mean(column, world, tail) for world in ends)
    return LogInterval(lower.low, max(upper, lower.high))


def make_rest_bound(mechanism: Mechanism, n: int, epsilon: float) -> Callable[[int], float]:
    """Return what bounds log delta of all databases with at least k records of either type."""
    if not (isinstance(mechanism, Histogram) and isinstance(mechanism.sampler, FixedSize)):
        return lambda _: 0.0
    unsampled = 1 - mechanism.sampler.size / n
    if not 0 < unsampled < 1 or epsilon == 0:
        return lambda _: 0.0
    highest = min(epsilon, -math.log(unsampled))
    rates = [compute_exponents(unsampled, epsilon, highest * (i + 1) / _RATES) for i in range(_RATES)]

    def bound(k: int) -> float:
        pairs = [(-k * k1, a - (k - 1) * k2 if k2 < math.inf else -k2) for k1, k2, a in rates]
        return min(0.0, *(float(np.logaddexp(*pair)) + 1e-9 for pair in pairs))

    return bound


def bound_majorant_mean(
    column: LogDeltas, world: TwoTypeWorld, bound_of_rest: Callable[[int], float]
) -> float:
    """Return an upper bound of log F_g for the quasi-convex majorant g with its valley at n // 2.

    g(k) is the largest delta between k and the valley. Databases are taken from the valley
    outwards with a running maximum; beyond where `bound_of_rest` is negligible it stands for them.
    """
    n, rough = world.n, find_largest_term(column, world)
    low, high = window(world, rough - LEFT_OUT)
    valley, enough = n // 2, rough - _NEGLIGIBLE
    sums = [rough - LEFT_OUT + math.log(2)]
    if low <= valley:
        top = _towards(valley, min(high, valley), lambda k: bound_of_rest(k) <= enough)
        sums += _outwards(
            column, world, (top, low), bound_of_rest(top) if top < valley else -math.inf
        )
    if high > valley:
        half = n - valley - 1
        bottom = n - _towards(half, min(n - low, half), lambda k: bound_of_rest(k) <= enough)
        start = bound_of_rest(n - bottom) if bottom > valley + 1 else -math.inf
        sums += _outwards(column, world, (bottom, high), start)
    return min(log_sum(np.array(sums)) + MACHINE_EPSILON * (len(sums) + high - low + 32), 0.0)


def _towards(valley: int, start: int, light: Callable[[int], bool]) -> int:
    """Return the first k from `start` to `valley` at which the rest is light; else the valley."""
    if light(start) or start >= valley:
        return min(start, valley)
    # Farther out the bound of the rest stays too large: a wider sandwich, sooner.
    near, far = start, min(valley, start + _FARTHEST)
    while far - near > 1:
        middle = (near + far) // 2
        near, far = (near, middle) if light(middle) else (middle, far)
    return far


def _outwards(
    column: LogDeltas, world: TwoTypeWorld, span: tuple[int, int], start: float
) -> list[float]:
    """Return logs of the sums of probability times running maximum, from span[0] to span[1]."""
    inner, outer = span
    sign, running, sums = (1 if outer >= inner else -1), start, []
    for near in range(inner, outer + sign, sign * CHUNK):
        far = near + sign * (min(CHUNK, abs(outer - near) + 1) - 1)
        low, high = min(near, far), max(near, far)
        logs, errors = world.log_pmf(low, high)
        deltas = column(low, high)[1][::sign]
        raised = np.maximum(np.maximum.accumulate(deltas), running)
        running = float(raised[-1])
        sums.append(weigh(logs, errors, np.stack([raised, raised])[:, ::sign])[1])
    return sums


def bound_from_below(mechanism: Histogram, population: Population, n: int, epsilon: float) -> LogInterval:
    """Return the largest expected delta of one type against the rest, over unmixed worlds."""
    column, types = make_log_deltas(mechanism, n, epsilon), range(population.types)
    worlds = {world for kind in types for world in list_unmixed_worlds(population, n, kind)}
    return largest(compute_mean_delta(column, world) for world in worlds)
