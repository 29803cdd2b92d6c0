r"""How far apart neighbouring databases of two types are when a sample of fixed size is seen.

X has a + 1 records of the one type and b of the other, X' has a and b + 1; T of the a + b + 1
records are drawn without replacement and o of the first type are among them. With u = a + 1 - o
and w = b + 1 - T + o, what was lost of the first type in X and of the second in X',

    P(o) / P'(o) = (a + 1) w / ((b + 1) u)          (docs/theory.md, section 8b),

so P - E P' = P (A - B) / A with A = (a + 1) w and B = E (b + 1) u. A - B grows by the same step
with every o, so it is computed once, in doubled precision, and nothing cancels afterwards. The
terms are log-concave: what is left out after a term t, next to a term that is rho times as large,
is at most t rho / (1 - rho), and is added to the upper end.
"""

from __future__ import annotations

import math

import numpy as np

from vicinal._compiled import compiled
from vicinal.smoothed._intervals import Array, Log
from vicinal.smoothed._saddle import FLOOR, SLOPE, log_hypergeometric, margin

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
def _weight(own: float, other: float, what: int) -> float:
    """Return 1 for losses, else P / (P + P') or P' / (P + P') from two numbers in that ratio."""
    if what == LOSS:
        return 1.0
    return (own if what == TRUE_X else other) / (own + other)


@compiled
def edge(a: int, b: int, size: int, e: float, what: int) -> tuple[float, float]:
    """Return lower and upper log of the sum over o of (P - E P')+, weighted by `what`.

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
    value, mass, steps, left = 0.0, 0.0, 0, 0.0
    while True:
        w = b + 1 - size + o
        term = q * gap
        weight = _weight(float(kind) * w, (b + 1.0) * (kind - o), what)
        value += term * weight
        mass += q * w * weight
        steps += 1
        if o >= last:
            break
        ratio = (float(kind - o) * float(size - o)) / (float(o + 1) * float(w + 1))
        growth = ratio * (gap + step) / gap
        left = term * growth / (1 - growth) if growth < 1 else np.inf
        if left < _TAIL * value:
            break
        q *= ratio
        gap += step
        o += 1
        left = 0.0
    # Terms are good to the roundings of their products; a gap that is next to 0 only to E's own.
    start -= math.log(float(kind))
    error = SLOPE * abs(start) + FLOOR + _UNIT * (8 * steps + 16)
    shift = 6 * _UNIT * kind * mass
    low = math.log(value - shift) if value > shift else -np.inf
    high = math.log(value + shift + left) if value + shift + left > 0 else -np.inf
    return start + low - error, start + high + error


@compiled
def _edges(first: int, stop: int, n: int, size: int, e: float) -> tuple[Array, Array]:
    """Return the larger of both directions for edges k = first .. stop - 1 (a = k)."""
    lows, highs = np.empty(stop - first), np.empty(stop - first)
    for k in range(first, stop):
        forward = edge(k, n - 1 - k, size, e, LOSS)
        backward = edge(n - 1 - k, k, size, e, LOSS)
        lows[k - first] = max(forward[0], backward[0])
        highs[k - first] = max(forward[1], backward[1])
    return lows, highs


@compiled
def _one_way(stop: int, n: int, size: int, e: float) -> tuple[Array, Array]:
    """Return the direction from a + 1 to a for all edges."""
    lows, highs = np.empty(stop), np.empty(stop)
    for k in range(stop):
        lows[k], highs[k] = edge(k, n - 1 - k, size, e, LOSS)
    return lows, highs


def edge_loss(a: int, b: int, size: int, e: float, what: int = LOSS) -> Log:
    """Return the sum over outcomes of (P - E P')+ for one ordered pair, as an interval.

    Parameters
    ----------
    a, b : int
        Records that both databases have of the first and of the second type.
    size : int
        T, at most a + b + 1.
    e : float
        E = exp(epsilon), good to two units in the last place.
    what : int
        ``LOSS``; ``TRUE_X`` or ``TRUE_OTHER`` for the gains of Lemma 10.
    """
    return Log(*edge(a, b, size, e, what))


def edge_profile(n: int, size: int, e: float, first: int = 0, stop: int | None = None) -> Array:
    """Return lower and upper log deltas of the edges (k, k + 1), float64 (2, stop - first).

    Edge k joins the database with k records of the first type to the one with k + 1; all n edges
    are returned if `stop` is None.
    """
    if stop is None and first == 0:
        # The other direction of edge (a, b) is this direction of edge (b, a).
        one_way = np.stack(_one_way(n, n, size, e))
        return np.asarray(np.maximum(one_way, one_way[:, ::-1]))
    return np.stack(_edges(first, n if stop is None else stop, n, size, e))


def database_profile(n: int, size: int, e: float, low: int = 0, high: int | None = None) -> Array:
    """Return lower and upper log delta(k) for low <= k <= high, float64 (2, high - low + 1).

    Definition 2 for a database with k records of the first type and n - k of the second: the
    largest of both directions over its neighbours with k - 1 and k + 1.
    """
    top = n if high is None else high
    inner = edge_profile(n, size, e, *(() if (low, top) == (0, n) else _span(low, top, n)))
    padded = np.pad(inner, ((0, 0), (int(low == 0), int(top == n))), constant_values=-np.inf)
    return np.maximum(padded[:, :-1], padded[:, 1:])


def _span(low: int, high: int, n: int) -> tuple[int, int]:
    return max(low - 1, 0), min(high + 1, n)
