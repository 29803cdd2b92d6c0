"""Pairs of types inside larger databases: mixtures over how many of the pair's records are drawn.

Who differs between two neighbours is of one of two types, so given how many records s of these two
were drawn everything else has the same law in both, and s is published with the counts. The
divergence is therefore the mean over s of the divergence of two types with sample size s: exactly,
for drawing without replacement, by coins, and with replacement (docs/theory.md, section 8c).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from vicinal._compiled import compiled
from vicinal.smoothed._edges import LOSS, TRUE_X, edge
from vicinal.smoothed._intervals import UNIT, ZERO, Array, Log, log_sum, weighted_excess
from vicinal.smoothed._saddle import FLOOR, SLOPE, binomial

_DROPPED = 2.0**-55
_PROBES = 64


@compiled
def _rough(log_p: Array, low: int, a: int, b: int, e: float, what: int) -> float:
    """Return a lower bound of the largest term, from some of them."""
    best, stride = -np.inf, max(1, len(log_p) // _PROBES)
    for place in range(len(log_p) - 1, -1, -stride):
        best = max(best, log_p[place] + edge(a, b, low + place, e, what)[0])
    return best


@compiled
def _mixture(
    log_p: Array, low: int, a: int, b: int, e: float, what: int, least: float
) -> tuple[Array, Array]:
    """Return lower and upper terms of all sizes that are not below `least` for certain."""
    lows, highs = np.full(len(log_p), -np.inf), np.full(len(log_p), -np.inf)
    for place in range(len(log_p)):
        if log_p[place] > least:
            ends = edge(a, b, low + place, e, what)
            error = SLOPE * abs(log_p[place]) + FLOOR
            lows[place] = log_p[place] + ends[0] - error
            highs[place] = log_p[place] + ends[1] + error
    return lows, highs


def mixed_edge(log_p: Array, low: int, a: int, b: int, e: float, what: int) -> Log:
    """Return the mean of fixed-size edges over sizes low, low + 1, ... of the given logs.

    Sizes whose probability is below 2^-55 of the result together are left out, and added to the
    upper end: no divergence is above 1.
    """
    rough = _rough(log_p, low, a, b, e, what)
    least = rough + math.log(_DROPPED / len(log_p)) if rough > -math.inf else -math.inf
    lows, highs = _mixture(log_p, low, a, b, e, what, least)
    error = UNIT * (len(log_p) + 16)
    return Log(log_sum(lows) - error, log_sum(highs) + error + 2 * _DROPPED)


def draws_loss(a: int, b: int, size: int, log_e: float, what: int) -> Log:
    """Return the divergence of two types when `size` records are drawn with replacement.

    With a + 1 and b records against a and b + 1, each draw is a coin: P / P' =
    ((a + 1) / a)^o (b / (b + 1))^(size - o).
    """
    if size == 0:
        return ZERO
    log_p, drawn = binomial(size, (a + 1) / (a + b + 1)), np.arange(size + 1, dtype=np.int64)
    likely = log_p > -math.inf
    log_p, drawn = log_p[likely], drawn[likely]
    gain = math.inf if a == 0 else math.log1p(1 / a)
    loss = math.inf if b == 0 else math.log1p(1 / b)
    log_ratio = _times(drawn, gain) - _times(size - drawn, loss)
    # The chance of a coin is rounded once, which a count far from its mean feels most.
    far = UNIT * np.abs(drawn - size * ((a + 1) / (a + b + 1)))
    slack = FLOOR + far + SLOPE * (np.abs(log_p) + finite_size(log_ratio))
    return weighted_excess(log_p, log_ratio, log_e, slack, gain_weight(log_ratio, what))


def finite_size(values: Array) -> Array:
    """Return absolute values, 0 for infinite ones: an infinite ratio has no error."""
    return np.where(np.isfinite(values), np.abs(values), 0.0)


def _times(count: npt.NDArray[np.int64], factor: float) -> Array:
    return np.where(count > 0, np.maximum(count, 1) * factor, 0.0)


def gain_weight(log_ratio: Array, what: int) -> Array:
    """Return the log weight of an outcome with ratio P / P': 0 for losses, else who is true."""
    if what == LOSS:
        return np.zeros_like(log_ratio)
    return -np.logaddexp(0.0, -log_ratio if what == TRUE_X else log_ratio)


def mean_over(log_p: Array, low: int, term: Callable[[int], Log]) -> Log:
    """Return the mean of `term(s)` <= 1 over s = low, low + 1, ... with the given log chances."""
    lows, highs, deepest = [], [], 0.0
    for place, weight in enumerate(log_p):
        if weight > -math.inf:
            value = term(low + place)
            lows.append(weight + value.low)
            highs.append(weight + value.high)
            deepest = max(deepest, -float(weight) if value.high > -math.inf else 0.0)
    slack = SLOPE * deepest + FLOOR + 2 * UNIT * (len(log_p) + 16)
    return Log(log_sum(np.array(lows)) - slack, log_sum(np.array(highs)) + slack)
