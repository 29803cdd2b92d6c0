r"""The maximum over worlds for two types: two evaluations instead of n + 1.

Let k of n records have chance q of the first type and the others p < q, and F(k) the expected
delta. F(k+1) - F(k) = (q - p) E[delta(H + 1) - delta(H)], where H is increasing in k in likelihood
ratio; so if delta(h) falls and then rises (is quasi-convex), F does too, and its maximum is at an
end. delta(h) is not always so, because thresholds are whole numbers. Its smallest quasi-convex
majorant g with a given valley is, hence

    max(F(0), F(n)) <= smoothed delta <= max(F_g(0), F_g(n))        (theory.md, section 8c).

With more types, two sums bound the smoothed delta of published counts.

Below: to count all types but one as one is post-processing, so the delta of two types, i against
the rest, bounds the smoothed delta from below (Proposition 4).

Above: the largest of several losses is at most their sum. The loss of a swap i -> j depends on
a = h_i - 1 and b = h_j alone, and falls with either while the rest pays for it (relabel a random
record of the rest). In every world h_i and h_j are at least as large, jointly, as when a record is
i with chance f_i = min pi(i), j with f_j = min pi(j), and of the rest otherwise; so the mean of the
loss is largest there:

    smoothed delta <= sum over ordered pairs of E[e(max(H_i - 1, 0), H_j)], H trinomial.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from vicinal._arrays import Floats
from vicinal._compiled import compiled
from vicinal.smoothed._databases import log_delta
from vicinal.smoothed._edges import LOSS, database_profile, edge
from vicinal.smoothed._expectation import (
    CHUNK,
    LEFT_OUT,
    Column,
    World,
    largest_term,
    listed_column,
    mean_delta,
    weigh,
    window,
)  # fmt: skip
from vicinal.smoothed._intervals import UNIT, LogInterval, largest, log_sum
from vicinal.smoothed._mechanism import Histogram, Mechanism
from vicinal.smoothed._populations import Heterogeneous, Population
from vicinal.smoothed._saddle import FLOOR, SLOPE, binomial, log_binomial, log_hypergeometric
from vicinal.smoothed._samplers import FixedSize, Poisson, Sampler, boundary
from vicinal.smoothed._theorems import exponents

_RATES = 24
_NEGLIGIBLE = 20 * math.log(2)
_FARTHEST = 1 << 22


def column_of(mechanism: Mechanism, n: int, epsilon: float) -> Column:
    """Return what gives log delta of the databases (k, n - k), for low <= k <= high."""
    if isinstance(mechanism, Histogram) and isinstance(mechanism.sampler, FixedSize):
        size, e = mechanism.sampler.size, boundary(epsilon)
        return lambda low, high: np.minimum(database_profile(n, size, e, low, high), 0.0)
    return listed_column(lambda k: log_delta(mechanism, np.array([k, n - k]), epsilon))


def largest_mean(mechanism: Mechanism, n: int, epsilon: float, p: float, q: float) -> LogInterval:
    """Return the sandwich of the smoothed delta when every record has a chance in [p, q]."""
    column = column_of(mechanism, n, epsilon)
    ends = [World((n,), (chance,)) for chance in (p, q)]
    lower = largest(mean_delta(column, world) for world in ends)
    tail = rest_bound(mechanism, n, epsilon)
    upper = max(majorant_mean(column, world, tail) for world in ends)
    return LogInterval(lower.low, max(upper, lower.high))


def rest_bound(mechanism: Mechanism, n: int, epsilon: float) -> Callable[[int], float]:
    """Return what bounds log delta of all databases with at least k records of either type."""
    if not (isinstance(mechanism, Histogram) and isinstance(mechanism.sampler, FixedSize)):
        return lambda _: 0.0
    unsampled = 1 - mechanism.sampler.size / n
    if not 0 < unsampled < 1 or epsilon == 0:
        return lambda _: 0.0
    highest = min(epsilon, -math.log(unsampled))
    rates = [exponents(unsampled, epsilon, highest * (i + 1) / _RATES) for i in range(_RATES)]

    def bound(k: int) -> float:
        pairs = [(-k * k1, a - (k - 1) * k2 if k2 < math.inf else -k2) for k1, k2, a in rates]
        return min(0.0, *(float(np.logaddexp(*pair)) + 1e-9 for pair in pairs))

    return bound


def majorant_mean(column: Column, world: World, bound_of_rest: Callable[[int], float]) -> float:
    """Return an upper bound of log F_g for the quasi-convex majorant g with its valley at n // 2.

    g(k) is the largest delta between k and the valley. Databases are taken from the valley
    outwards with a running maximum; beyond where `bound_of_rest` is negligible it stands for them.
    """
    n, rough = world.n, largest_term(column, world)
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
    return min(log_sum(np.array(sums)) + UNIT * (len(sums) + high - low + 32), 0.0)


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


def _outwards(column: Column, world: World, span: tuple[int, int], start: float) -> list[float]:
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


MOST_WORK = 15 * 10**7
_SPAN = 2 * LEFT_OUT
_TAIL = math.exp(-119.0)


def lower_mean(mechanism: Histogram, population: Population, n: int, epsilon: float) -> LogInterval:
    """Return the largest expected delta of one type against the rest, over unmixed worlds."""
    column = column_of(mechanism, n, epsilon)
    if isinstance(population, Heterogeneous):
        counts = tuple(population.counts.tolist())
        shares = population.vertices.T.tolist()
        worlds = [World(counts, tuple(chances)) for chances in shares]
    else:
        worlds = [World((n,), (float(f),)) for f in np.unique(population.vertices)]
    return largest(mean_delta(column, world) for world in worlds)


def pair_work(sampler: Sampler, least: Floats, n: int) -> float:
    """Return roughly how many terms :func:`pair_sum` sums; infinite where it does not apply."""
    if not isinstance(sampler, FixedSize | Poisson):
        return math.inf
    spread = np.minimum(26 * np.sqrt(n * least * (1 - least)) + 20, n)
    rate = sampler.touched(n)
    draws = np.minimum(16 * np.sqrt(2 * spread * rate * (1 - rate)) + 80, n)
    pairs = (spread.sum() ** 2 - (spread**2).sum()) / 2
    return float(pairs * draws.max() * 10)


def pair_sum(sampler: Sampler, least: Floats, n: int, epsilon: float) -> float:
    """Return the logarithm of the mean losses of all ordered pairs of types, rounded up.

    least[i] is f_i, the smallest probability of type i in any world.
    """
    e = boundary(epsilon)
    size = sampler.size if isinstance(sampler, FixedSize) else 0
    gamma = sampler.gamma if isinstance(sampler, Poisson) else -1.0
    pairs = [(i, j) for i in range(len(least)) for j in range(i + 1, len(least))]
    sums = [_pair_mean(n, (size, gamma, e), float(least[i]), float(least[j])) for i, j in pairs]
    return min(log_sum(np.array(sums)), 0.0)


def _pair_mean(n: int, how: tuple[int, float, float], f: float, g: float) -> float:
    """Return the log of the mean losses of both swaps of one pair of types, rounded up."""
    if f == 0 or g == 0:
        return 0.0
    low, high = window(World((n,), (f,)), -_SPAN)
    sums = [2 * math.exp(-_SPAN)]
    for place, log_p in enumerate(binomial(n, f, low, high + 1).tolist()):
        a = low + place
        others = World((n - a,), (min(g / (1 - f), 1.0),)) if a < n else None
        first, last = window(others, -_SPAN) if others else (0, 0)
        other = binomial(n - a, others.chances[0], first, last + 1) if others else np.zeros(1)
        mean = _mean_losses(n, *how, a, first, other)
        sums.append(math.exp(log_p) * (mean + 2 * math.exp(-_SPAN)))
    error = FLOOR + SLOPE * 2 * _SPAN + 2.0**-40
    return math.log(math.fsum(sums)) + 2 * error


@compiled
def _mean_losses(
    n: int, size: int, gamma: float, e: float, a: int, first: int, logs: Floats
) -> float:
    """Return the mean over h_j of the larger losses of i -> j and j -> i, h_i = a."""
    total = 0.0
    for place in range(len(logs)):
        b = first + place
        chance = math.exp(logs[place])
        if chance > 0:
            losses = _swap(n, size, gamma, e, a, b) + _swap(n, size, gamma, e, b, a)
            total += chance * losses
    return total


@compiled
def _swap(n: int, size: int, gamma: float, e: float, own: int, other: int) -> float:
    """Return the larger loss of a swap with h_i = own, h_j = other, rounded up.

    Sizes farther than 16 standard deviations + 80 from their mean are left out: by Bernstein's
    inequality (for drawing without replacement too, Hoeffding 1963) less than e^-119 each side.
    """
    a, b = max(own - 1, 0), other
    both = a + b + 1
    if both > n:
        return 0.0
    rate = gamma if gamma >= 0 else size / n
    reach = 16 * math.sqrt(both * rate * (1 - rate)) + 80
    low, high = int(max(0, both * rate - reach)), int(min(both, both * rate + reach))
    if gamma < 0:
        low, high = max(low, size - (n - both)), min(high, size)
    total = 2 * _TAIL
    for s in range(low, high + 1):
        if gamma >= 0:
            log_p = log_binomial(s, both, gamma, 1 - gamma)
        else:
            log_p = log_hypergeometric(s, both, n - both, size)
        if log_p > -700:
            loss = max(edge(a, b, s, e, LOSS)[1], edge(b, a, s, e, LOSS)[1])
            if loss + log_p > -700:
                total += math.exp(log_p + loss)
    return total + 1e-300
