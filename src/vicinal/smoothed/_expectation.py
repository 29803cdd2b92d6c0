"""Expected delta over databases of two types whose records come from known distributions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vicinal.smoothed import _poisson_binomial, _saddle
from vicinal.smoothed._intervals import UNIT, Array, Log, log_sum

Column = Callable[[int, int], Array]
"""From low, high to lower and upper log deltas (2, high - low + 1) of databases low .. high."""

_PROBES = 48
_ROUNDS = 3
_UNLIKELY = -800.0
LEFT_OUT = 60 * math.log(2)
CHUNK = 1 << 18


@dataclass(frozen=True)
class World:
    """Independent records: `counts` of them are of the first type with each of `chances`."""

    counts: tuple[int, ...]
    chances: tuple[float, ...]

    @property
    def n(self) -> int:
        """Number of records."""
        return sum(self.counts)

    def log_pmf(self, low: int, high: int) -> tuple[Array, Array]:
        """Return log Pr[k of the first type] for low <= k <= high, and its errors."""
        if len(self.counts) == 1:
            logs = _saddle.binomial(self.n, self.chances[0], low, high + 1)
            return logs, _saddle.FLOOR + _saddle.SLOPE * np.where(np.isfinite(logs), -logs, 0.0)
        counts, chances = np.array(self.counts), np.array(self.chances)
        return _poisson_binomial.log_pmf(counts, chances, low, high + 1)

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


def mean_delta(column: Column, world: World) -> Log:
    """Return E delta(k) over k of the world, summing only where it can matter.

    Databases whose probability together is below 2^-60 of the result are left out and added to
    the upper end, as no delta is above 1.
    """
    rough = largest_term(column, world)
    low, high = window(world, rough - LEFT_OUT)
    ends: list[tuple[float, float]] = []
    for start in range(low, high + 1, CHUNK):
        stop = min(start + CHUNK, high + 1) - 1
        logs, errors = world.log_pmf(start, stop)
        deltas = column(start, stop)
        ends.append(weigh(logs, errors, deltas))
    left_out = rough - LEFT_OUT + math.log(2) if (low, high) != (0, world.n) else -math.inf
    slack = UNIT * (high - low + 32)
    bottom = log_sum(np.array([end[0] for end in ends])) - slack
    top = log_sum(np.array([*(end[1] for end in ends), left_out])) + slack
    return Log(bottom, top).capped()


def weigh(logs: Array, errors: Array, deltas: Array) -> tuple[float, float]:
    """Return lower and upper logs of the sum of probabilities times deltas."""
    # A probability of which only a bound is known has an infinite error: 0 below, 1 above.
    known = np.isfinite(errors)
    low = np.where(known, logs - np.where(known, errors, 0.0), -np.inf)
    high = np.where(known, logs + np.where(known, errors, 0.0), 0.0)
    return log_sum(low + deltas[0]), log_sum(high + deltas[1])


def window(world: World, log_mass: float) -> tuple[int, int]:
    """Return low, high such that less than exp(`log_mass`) is below low, and above high."""
    n = world.n
    mean = sum(c * q for c, q in zip(world.counts, world.chances, strict=True))
    return (
        _reach(world, math.floor(mean), 0, log_mass),
        _reach(world, math.ceil(mean), n, log_mass),
    )


def _reach(world: World, start: int, end: int, log_mass: float) -> int:
    """Return the place nearest to `start`, towards `end`, whose tail is light enough."""
    if world.log_tail(end) > log_mass:
        return end
    near, far = min(max(start, 0), world.n), end
    while abs(far - near) > 1:
        middle = (near + far) // 2
        near, far = (middle, far) if world.log_tail(middle) > log_mass else (near, middle)
    return far


def largest_term(column: Column, world: World) -> float:
    """Return the largest probability times delta that a few rounds of probing find.

    First among likely databases, as deltas of large counts take longer; if the best is at an end
    of these, among all.
    """
    low, high = window(world, _UNLIKELY)
    best, place = _probed(column, world, low, high)
    if (place == low and low > 0) or (place == high and high < world.n):
        best = max(best, _probed(column, world, 0, world.n)[0])
    return best


def _probed(column: Column, world: World, low: int, high: int) -> tuple[float, int]:
    """Return the largest term found between low and high, and where."""
    best, found = -math.inf, low
    for _ in range(_ROUNDS):
        places = np.unique(np.linspace(low, high, _PROBES).astype(np.int64)).tolist()
        terms = [_term(column, world, k) for k in places]
        top = int(np.argmax(terms))
        best, found = max((best, found), (terms[top], places[top]))
        low, high = places[max(top - 1, 0)], places[min(top + 1, len(places) - 1)]
    return best, found


def _term(column: Column, world: World, k: int) -> float:
    logs, errors = world.log_pmf(k, k)
    low = float(logs[0] - errors[0] + column(k, k)[0, 0])
    return low if math.isfinite(low) else -math.inf


def _phi(v: float) -> float:
    return float(_saddle.phi(v))
