r"""How far apart neighbouring databases of two types are when a sample of fixed size is seen.

X has a + 1 records of the one type and b of the other, X' has a and b + 1; T of the a + b + 1
records are drawn without replacement and o of the first type are among them. With u = a + 1 - o
and w = b + 1 - T + o, what was lost of the first type in X and of the second in X',

    P(o) / P'(o) = (a + 1) w / ((b + 1) u)          (theory.md, section 8b),

so P - E P' = P (A - B) / A with A = (a + 1) w and B = E (b + 1) u. A - B grows by the same step
with every o, so it is computed once, in doubled precision, and nothing cancels afterwards. The
terms are log-concave: what is left out after a term t, next to a term that is rho times as large,
is at most t rho / (1 - rho), and is added to the upper end.

Inside larger databases the law is a mixture over how many of the pair's records are drawn. Who
differs between two neighbours is of one of two types, so given how many records s of these two were
drawn everything else has the same law in both, and s is published with the counts. The divergence
is therefore the mean over s of the divergence of two types with sample size s: exactly, for drawing
without replacement, by coins, and with replacement (theory.md, section 8c).
"""

import math
from collections.abc import Callable

import numpy as np

from vicinal.arrays import Floats, Ints
from vicinal.compiled import compiled
from vicinal.smoothed.intervals import (
    FLOOR,
    SLOPE,
    UNIT,
    ZERO,
    LogInterval,
    binomial,
    log_hypergeometric,
    log_sum,
    margin,
    weighted_excess,
)

LOSS, TRUE_X, TRUE_OTHER = 0, 1, 2
"""What is summed: P - E P'; or the adversary's gain, when X or X' is true."""

_UNIT = 2.0**-52
_TAIL = 2.0**-54


@compiled
def _first(a: int, b: int, size: int, e: float) -> int:
    """Return a little before the first o with P > E P', inside the support of P."""
    step = (a + 1) + e * (b + 1)
    crossing = (a + 1) * (((e - 1) * (b + 1) + size) / step)
    return max(0, size - b, min(math.floor(crossing) - 1, min(a + 1, size) + 1))


@compiled
def _weight(own: float, other: float, measure: int) -> float:
    """Return 1 for losses, else P / (P + P') or P' / (P + P') from two numbers in that ratio."""
    if measure == LOSS:
        return 1.0
    return (own if measure == TRUE_X else other) / (own + other)


@compiled
def edge(a: int, b: int, size: int, e: float, measure: int) -> tuple[float, float]:
    """Return lower and upper log of the sum over o of (P - E P')+, weighted by `measure`.

    Between them: roundings of E, of the start value and of the sum, and what was left out.
    """
    kind, last = a + 1, min(a + 1, size)
    o = _first(a, b, size, e)
    while o <= last and margin(kind * (b + 1 - size + o), e, (b + 1) * (kind - o)) <= 0:
        o += 1
    if o > last:
        return -np.inf, -np.inf
    start = log_hypergeometric(o, kind, b, size)
    gap = margin(kind * (b + 1 - size + o), e, (b + 1) * (kind - o))
    step = kind + e * (b + 1)
    # Terms are P / w, so that each needs one division; the first is 1 / w.
    q = 1.0 / (b + 1 - size + o)
    value, mass, steps, tail = 0.0, 0.0, 0, 0.0
    while True:
        w = b + 1 - size + o
        term = q * gap
        weight = _weight(float(kind) * w, (b + 1.0) * (kind - o), measure)
        value += term * weight
        mass += q * w * weight
        steps += 1
        if o >= last:
            break
        ratio = (float(kind - o) * float(size - o)) / (float(o + 1) * float(w + 1))
        growth = ratio * (gap + step) / gap
        tail = term * growth / (1 - growth) if growth < 1 else np.inf
        if tail < _TAIL * value:
            break
        q *= ratio
        gap += step
        o += 1
        tail = 0.0
    # Terms are good to the roundings of their products; a gap that is next to 0 only to E's own.
    start -= math.log(float(kind))
    error = SLOPE * abs(start) + FLOOR + _UNIT * (8 * steps + 16)
    shift = 6 * _UNIT * kind * mass
    low = math.log(value - shift) if value > shift else -np.inf
    high = math.log(value + shift + tail) if value + shift + tail > 0 else -np.inf
    return start + low - error, start + high + error


@compiled
def _edges(first: int, stop: int, n: int, size: int, e: float) -> tuple[Floats, Floats]:
    """Return the larger of both directions for edges k = first .. stop - 1 (a = k)."""
    lows, highs = np.empty(stop - first), np.empty(stop - first)
    for k in range(first, stop):
        forward = edge(k, n - 1 - k, size, e, LOSS)
        backward = edge(n - 1 - k, k, size, e, LOSS)
        lows[k - first] = max(forward[0], backward[0])
        highs[k - first] = max(forward[1], backward[1])
    return lows, highs


def edge_loss(a: int, b: int, size: int, e: float, measure: int = LOSS) -> LogInterval:
    """Return the sum over outcomes of (P - E P')+, or a gain, for one ordered pair.

    Both databases have `a` records of the first type and `b` of the second; size <= a + b + 1. E is
    good to two units in the last place.
    """
    return LogInterval(*edge(a, b, size, e, measure))


def database_profile(n: int, size: int, e: float, low: int = 0, high: int | None = None) -> Floats:
    """Return lower and upper log delta(k) for low <= k <= high, float64 (2, high - low + 1).

    Definition 2 for a database with k records of the first type and n - k of the second: the
    largest of both directions over its neighbours with k - 1 and k + 1.
    """
    top = n if high is None else high
    inner = np.stack(_edges(max(low - 1, 0), min(top + 1, n), n, size, e))
    padded = np.pad(inner, ((0, 0), (int(low == 0), int(top == n))), constant_values=-np.inf)
    return np.asarray(np.maximum(padded[:, :-1], padded[:, 1:]))


_DROPPED = 2.0**-55
_PROBES = 64


@compiled
def _rough(log_p: Floats, low: int, a: int, b: int, e: float, measure: int) -> float:
    """Return a lower bound of the largest term, from some of them."""
    best, stride = -np.inf, max(1, len(log_p) // _PROBES)
    for place in range(len(log_p) - 1, -1, -stride):
        best = max(best, log_p[place] + edge(a, b, low + place, e, measure)[0])
    return best


@compiled
def _mixture(
    log_p: Floats, low: int, a: int, b: int, e: float, measure: int, least: float
) -> tuple[Floats, Floats]:
    """Return lower and upper terms of all sizes that are not below `least` for certain."""
    lows, highs = np.full(len(log_p), -np.inf), np.full(len(log_p), -np.inf)
    for place in range(len(log_p)):
        if log_p[place] > least:
            ends = edge(a, b, low + place, e, measure)
            error = SLOPE * abs(log_p[place]) + FLOOR
            lows[place] = log_p[place] + ends[0] - error
            highs[place] = log_p[place] + ends[1] + error
    return lows, highs


def mixed_edge(log_p: Floats, low: int, a: int, b: int, e: float, measure: int) -> LogInterval:
    """Return the mean of fixed-size edges over sizes low, low + 1, ... of the given logs.

    Sizes whose probability is below 2^-55 of the result together are left out, and added to the
    upper end: no divergence is above 1.
    """
    rough = _rough(log_p, low, a, b, e, measure)
    least = rough + math.log(_DROPPED / len(log_p)) if rough > -math.inf else -math.inf
    lows, highs = _mixture(log_p, low, a, b, e, measure, least)
    error = UNIT * (len(log_p) + 16)
    return LogInterval(log_sum(lows) - error, log_sum(highs) + error + 2 * _DROPPED)


def draws_loss(a: int, b: int, size: int, log_e: float, measure: int) -> LogInterval:
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
    return measured_excess(log_p, log_ratio, log_e, measure, far)


def measured_excess(
    log_p: Floats, log_ratio: Floats, epsilon: float, measure: int, extra: Floats | float = 0.0,
    terms: int = 1,
) -> LogInterval:  # fmt: skip
    """Return the sum over outcomes of (P - E P')+, or a gain, from log P and log P / P'.

    Both logs may be wrong by `terms` times what a rounded log probability is, and `extra`.
    """
    # An infinite ratio has no error.
    sizes = np.abs(log_p) + np.where(np.isfinite(log_ratio), np.abs(log_ratio), 0.0)
    slack = terms * (FLOOR + extra + SLOPE * sizes)
    return weighted_excess(log_p, log_ratio, epsilon, slack, _gain_weight(log_ratio, measure))


def _times(count: Ints, factor: float) -> Floats:
    return np.where(count > 0, np.maximum(count, 1) * factor, 0.0)


def _gain_weight(log_ratio: Floats, measure: int) -> Floats:
    """Return the log weight of an outcome with ratio P / P': 0 for losses, else who is true."""
    if measure == LOSS:
        return np.zeros_like(log_ratio)
    return -np.logaddexp(0.0, -log_ratio if measure == TRUE_X else log_ratio)


def mean_over(log_p: Floats, low: int, term: Callable[[int], LogInterval]) -> LogInterval:
    """Return the mean of `term(s)` <= 1 over s = low, low + 1, ... with the given log chances."""
    lows, highs, deepest = [], [], 0.0
    for place, weight in enumerate(log_p):
        if weight > -math.inf:
            value = term(low + place)
            lows.append(weight + value.low)
            highs.append(weight + value.high)
            deepest = max(deepest, -float(weight) if value.high > -math.inf else 0.0)
    slack = SLOPE * deepest + FLOOR + 2 * UNIT * (len(log_p) + 16)
    return LogInterval(log_sum(np.array(lows)) - slack, log_sum(np.array(highs)) + slack)
