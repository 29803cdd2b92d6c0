r"""The maximum over worlds for two types: two evaluations instead of n + 1.

Let k of n records have chance q of the first type and the others p < q, and F(k) the expected
delta. F(k+1) - F(k) = (q - p) E[delta(H + 1) - delta(H)], where H is increasing in k in likelihood
ratio; so if delta(h) falls and then rises (is quasi-convex), F does too, and its maximum is at an
end. delta(h) is not always so, because thresholds are whole numbers. Its smallest quasi-convex
majorant g with a given valley is, hence

    max(F(0), F(n)) <= smoothed delta <= max(F_g(0), F_g(n))        (docs/theory.md, section 8c).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from vicinal.smoothed._edges import database_profile
from vicinal.smoothed._expectation import (
    CHUNK,
    LEFT_OUT,
    Column,
    World,
    largest_term,
    mean_delta,
    weigh,
    window,
)  # fmt: skip
from vicinal.smoothed._histogram import Histogram
from vicinal.smoothed._intervals import UNIT, Array, Log, largest, log_sum
from vicinal.smoothed._mechanism import Mechanism
from vicinal.smoothed._samplers import FixedSize, boundary
from vicinal.smoothed._theorems import exponents

_RATES = 24
_NEGLIGIBLE = 20 * math.log(2)
_FARTHEST = 1 << 22


def column_of(mechanism: Mechanism, n: int, epsilon: float) -> Column:
    """Return what gives log delta of the databases (k, n - k), for low <= k <= high."""
    if isinstance(mechanism, Histogram) and isinstance(mechanism.sampler, FixedSize):
        size, e = mechanism.sampler.size, boundary(epsilon)
        return lambda low, high: np.minimum(database_profile(n, size, e, low, high), 0.0)
    known: dict[int, Log] = {}

    def column(low: int, high: int) -> Array:
        for k in range(low, high + 1):
            if k not in known:
                losses = mechanism.losses(np.array([k, n - k]), epsilon)
                known[k] = largest(end for loss in losses for end in (loss.forward, loss.backward))
        found = [known[k] for k in range(low, high + 1)]
        return np.array([[value.low for value in found], [value.high for value in found]])

    return column


def largest_mean(mechanism: Mechanism, n: int, epsilon: float, p: float, q: float) -> Log:
    """Return the sandwich of the smoothed delta when every record has a chance in [p, q]."""
    column = column_of(mechanism, n, epsilon)
    ends = [World((n,), (chance,)) for chance in (p, q)]
    lower = largest(mean_delta(column, world) for world in ends)
    tail = rest_bound(mechanism, n, epsilon)
    upper = max(majorant_mean(column, world, tail) for world in ends)
    return Log(lower.low, max(upper, lower.high))


def rest_bound(mechanism: Mechanism, n: int, epsilon: float) -> Callable[[int], float]:
    """Return what bounds log delta of all databases with at least k records of either type."""
    if not (isinstance(mechanism, Histogram) and isinstance(mechanism.sampler, FixedSize)):
        return lambda _: 0.0
    left = 1 - mechanism.sampler.size / n
    if not 0 < left < 1 or epsilon == 0:
        return lambda _: 0.0
    highest = min(epsilon, -math.log(left))
    rates = [exponents(left, epsilon, highest * (i + 1) / _RATES) for i in range(_RATES)]

    def bound(k: int) -> float:
        pairs = [(-k * k1, a - (k - 1) * k2 if k2 < math.inf else -k2) for k1, k2, a in rates]
        return min(0.0, *(float(np.logaddexp(*pair)) + 1e-9 for pair in pairs))

    return bound


def majorant_mean(column: Column, world: World, rest: Callable[[int], float]) -> float:
    """Return an upper bound of log F_g for the quasi-convex majorant g with its valley at n // 2.

    g(k) is the largest delta between k and the valley. Databases are taken from the valley
    outwards with a running maximum; beyond where `rest` is negligible it stands for them.
    """
    n, rough = world.n, largest_term(column, world)
    low, high = window(world, rough - LEFT_OUT)
    valley, enough = n // 2, rough - _NEGLIGIBLE
    sums = [rough - LEFT_OUT + math.log(2)]
    if low <= valley:
        top = _towards(valley, min(high, valley), lambda k: rest(k) <= enough)
        sums += _outwards(column, world, (top, low), rest(top) if top < valley else -math.inf)
    if high > valley:
        half = n - valley - 1
        bottom = n - _towards(half, min(n - low, half), lambda k: rest(k) <= enough)
        start = rest(n - bottom) if bottom > valley + 1 else -math.inf
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
