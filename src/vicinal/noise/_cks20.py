"""Exact discrete Laplace noise in 64-bit integers, compiled.

Proof note: cks20.md. Source: Canonne, Kamath & Steinke 2020, Algorithms 1 and 2.

Every function reads its bits through `words` and `place`, see :mod:`vicinal.noise._uniform_bits`,
and may raise `OutOfBits`. Arguments n, d and `scale` are integers, 0 <= n and
1 <= d, scale <= 2^40.
"""

from __future__ import annotations

import numpy as np

from vicinal._compiled import compiled
from vicinal.noise._uniform_bits import MARK, NEXT, next_bit, next_bits

MAX_SCALE = 1 << 40
"""Largest noise scale in grid steps; a million scales stay inside int64."""

MOST_SCALES = 1 << 20
"""A magnitude ends here, in scales: probability exp(-2^20), and no product can overflow."""


@compiled
def bernoulli_ratio(words, place, n, d):  # type: ignore[no-untyped-def]
    """Return True with probability min(1, n/d): compare bits with the binary digits of n/d."""
    while 0 < n < d:
        n *= 2
        digit = n >= d
        if digit:
            n -= d
        if next_bit(words, place) != digit:
            return digit
    return n >= d


@compiled
def bernoulli_exp(words, place, n, d):  # type: ignore[no-untyped-def]
    """Return True with probability exp(-n/d), for n <= d (Algorithm 1)."""
    k = 1
    while bernoulli_ratio(words, place, 1, k) and bernoulli_ratio(words, place, n, d):
        k += 1
    return k & 1 == 1


@compiled
def uniform_below(words, place, bound):  # type: ignore[no-untyped-def]
    """Return a uniform integer, 0 <= u < bound, by rejection: no remainder is ever taken."""
    count = 0
    while (bound - 1) >> count > 0:
        count += 1
    while True:
        drawn = np.int64(next_bits(words, place, count))
        if drawn < bound:
            return drawn


@compiled
def whole_scales(words, place):  # type: ignore[no-untyped-def]
    """Return v with probability proportional to exp(-v), v = 0, 1, ... (Algorithm 2)."""
    v = 0
    while v < MOST_SCALES and bernoulli_exp(words, place, 1, 1):
        v += 1
    return v


@compiled
def rest_of_scale(words, place, scale):  # type: ignore[no-untyped-def]
    """Return u < scale with probability proportional to exp(-u/scale) (Algorithm 2)."""
    while True:
        u = uniform_below(words, place, scale)
        if bernoulli_exp(words, place, u, scale):
            return u


@compiled
def laplace_trial(words, place, scale):  # type: ignore[no-untyped-def]
    """Return (whether it counts, value): one round of Algorithm 2."""
    negative = next_bit(words, place)
    v = whole_scales(words, place)
    u = rest_of_scale(words, place, scale)
    magnitude = u + scale * v
    if negative:
        return magnitude > 0, -magnitude
    return True, magnitude


@compiled
def fill_laplace(words, place, out, done, scale):  # type: ignore[no-untyped-def]
    """Fill int64 `out` from entry `done[0]` on with discrete Laplace draws."""
    while done[0] < len(out):
        counts, value = laplace_trial(words, place, scale)
        if counts:
            out[done[0]] = value
            done[0] += 1
        place[MARK] = place[NEXT]
