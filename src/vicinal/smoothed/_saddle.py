r"""Log probabilities of sampling, to nearly full precision however small they are.

A hypergeometric probability is a two by two table. With cells x and expected cells e of the same
margins, Stirling's series gives

    log P = sum over margins of s - sum over cells of s - sum over cells of x log(x / e),

s(x) = log(x!) - x log x + x, where the last sum holds all that is large. As both sums of cells
agree, each of its terms may be written as the deviance e phi((x - e) / e) >= 0,
phi(v) = (1 + v) log(1 + v) - v: nothing cancels (Loader 2000). x - e is the same whole number over
n in every cell, so it is taken exactly. The binomial is the same table with fixed e.

The error of a log probability is at most `SLOPE` times its size plus `FLOOR` (each deviance is
good to 40 units in the last place, each s to 8e-16); tests hold it against 50 digits.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np

from vicinal._arrays import Floats
from vicinal._compiled import compiled

SLOPE = 2.0**-46
"""Relative error of a log probability, rounded up."""
FLOOR = 2.0**-45
"""Absolute error of a log probability near 0, rounded up."""

_TABLE = 16
_SMALL = 0.1
_SPLIT = 134217729.0


def _stirling_table() -> Floats:
    """Return s(x) for x < 16, from 40 digits; s(0) = 0 makes an empty cell vanish."""
    with localcontext() as context:
        context.prec = 40
        values = [
            Decimal(math.factorial(x)).ln() - x * Decimal(x).ln() + x for x in range(1, _TABLE)
        ]
    return np.array([0.0, *map(float, values)])


_STIRLING = _stirling_table()
_HALF_LOG_2_PI = 0.9189385332046727


@compiled
def stirling(x: float) -> float:
    """Return s(x) = log(x!) - x log x + x for a whole number x >= 0."""
    if x < _TABLE:
        return _STIRLING[int(x)]  # type: ignore[no-any-return]
    y = 1.0 / (x * x)
    series = 1 / 12 - y * (1 / 360 - y * (1 / 1260 - y * (1 / 1680 - y * (1 / 1188))))
    return _HALF_LOG_2_PI + 0.5 * math.log(x) + series / x


@compiled
def phi(v: float) -> float:
    """Return (1 + v) log(1 + v) - v for v >= -1."""
    if v <= -1.0:
        return 1.0
    if abs(v) >= _SMALL:
        return (1 + v) * math.log1p(v) - v
    total = 0.0
    for j in range(17, -1, -1):
        total = 1.0 / ((j + 1) * (j + 2)) - v * total
    return v * v * total


@compiled
def _deviance(shift: float, expected: float) -> float:
    """Return x log(x/e) - x + e for x = e + shift."""
    return expected * phi(shift / expected) if expected > 0 else 0.0


@compiled
def log_hypergeometric(o: int, kind: int, others: int, size: int) -> float:
    """Return log Pr[`o` of `kind` equal records are among `size` drawn from kind + others]."""
    total = kind + others
    if o < 0 or o > kind or size - o < 0 or size - o > others:
        return -np.inf
    if size == 0 or size == total:
        return 0.0
    shift = float(o * total - kind * size) / total
    undrawn = total - size
    bulk = _deviance(shift, kind * (size / total)) + _deviance(-shift, kind * (undrawn / total))
    bulk += _deviance(-shift, others * (size / total)) + _deviance(
        shift, others * (undrawn / total)
    )
    margins = (
        stirling(kind) + stirling(others) + stirling(size) + stirling(undrawn) - stirling(total)
    )
    cells = stirling(o) + stirling(kind - o) + stirling(size - o) + stirling(others - size + o)
    return min(margins - cells - bulk, 0.0)  # type: ignore[no-any-return]


@compiled
def margin(big: int, factor: float, small: int) -> float:
    """Return big - factor small with an error of about one rounding, by Dekker's product."""
    y = float(small)
    product = factor * y
    head = _SPLIT * factor
    f_high = head - (head - factor)
    head = _SPLIT * y
    y_high = head - (head - y)
    f_low, y_low = factor - f_high, y - y_high
    error = ((f_high * y_high - product) + f_high * y_low + f_low * y_high) + f_low * y_low
    x = float(big)
    return (x - product) + ((float(big - int(x)) - error) - factor * float(small - int(y)))


@compiled
def log_binomial(x: int, n: int, p: float, q: float) -> float:
    """Return log Pr[Bin(n, p) = x]; q = 1 - p."""
    if x < 0 or x > n or (p == 0 and x > 0) or (q == 0 and x < n):
        return -np.inf
    shift = margin(x, p, n)
    bulk = _deviance(shift, n * p) + _deviance(-shift, n * q)
    return min(stirling(n) - stirling(x) - stirling(n - x) - bulk, 0.0)  # type: ignore[no-any-return]


@compiled
def _log_binomials(low: int, high: int, n: int, p: float, q: float) -> Floats:
    values = np.empty(high - low)
    for x in range(low, high):
        values[x - low] = log_binomial(x, n, p, q)
    return values


@compiled
def _log_hypergeometrics(low: int, high: int, kind: int, others: int, size: int) -> Floats:
    values = np.empty(high - low)
    for x in range(low, high):
        values[x - low] = log_hypergeometric(x, kind, others, size)
    return values


def binomial(n: int, p: float, low: int = 0, high: int | None = None) -> Floats:
    """Return log Pr[Bin(n, p) = x] for low <= x < high (n + 1 if None), float64."""
    stop = n + 1 if high is None else high
    return np.asarray(_log_binomials(low, stop, n, p, 1 - p))


def hypergeometric(kind: int, others: int, size: int, low: int, high: int) -> Floats:
    """Return log Pr[x of `kind` records among `size` drawn] for low <= x < high, float64."""
    return np.asarray(_log_hypergeometrics(low, high, kind, others, size))
