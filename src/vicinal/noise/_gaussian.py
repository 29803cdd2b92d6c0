"""Exact discrete Gaussian noise, fast: compiled, by doubles only where these are sure.

Proof note: gaussian.md. A magnitude lies in a strip, a whole number of scales from 0. The place in
the strip is drawn uniformly, the strip by its height at its near end, and what the density falls by
on the way to the place is asked of a coin. Random binary digits are compared with those of the
strips' ends and of the coin's probability. Where these are equal, or doubles cannot tell them,
`Undecided` is raised, and :mod:`vicinal.noise._gaussian_exact` computes the same function of the
same bits.
"""

import math

import numpy as np

from vicinal.compiled import compiled
from vicinal.noise._gaussian_exact import DIGITS, strip_ends
from vicinal.noise._uniform_bits import END, MARK, NEXT, OutOfBits, Undecided

MARGIN = 2.0**-40  # doubles tell a coin's probability to 2^-46, see gaussian.md

UNDECIDED = -1

_ENDS = np.array(strip_ends(DIGITS), dtype=np.int64)
_ALL = (1 << DIGITS) - 1
_LONGEST = 64  # bits that are looked at together; fewer left, and the buffer is asked for more


@compiled
def fill_gaussian(words, place, out, done, scale):  # type: ignore[no-untyped-def]
    """Fill int64 `out` from entry `done[0]` on with discrete Gaussian draws."""
    width = _width(scale - 1)
    at, last, i = place[MARK], place[END] - 2 * _LONGEST, done[0]
    undecided = False
    while i < len(out) and at <= last and not undecided:
        k, start = at >> 6, at
        u = np.int64(_window(words[k], words[k + 1], at) & ((np.uint64(1) << width) - np.uint64(1)))
        at += np.int64(width)
        if u >= scale:
            continue
        k = at >> 6
        digits = np.int64(_window(words[k], words[k + 1], at) & np.uint64(2 * (_ALL + 1) ** 2 - 1))
        v = strip(digits & _ALL)
        accepted = (
            UNDECIDED if v == UNDECIDED else coin((digits >> DIGITS) & _ALL, u / scale, v, MARGIN)
        )
        if accepted == UNDECIDED:
            undecided, at = True, start
            continue
        at += 2 * DIGITS + 1
        magnitude = u + scale * v
        negative = digits >> (2 * DIGITS)
        if accepted == 1 and (magnitude > 0 or negative == 0):
            out[i] = -magnitude if negative else magnitude
            i += 1
    # A round that does not count is over, too: the next one needs none of its bits.
    done[0], place[MARK], place[NEXT] = i, at, at
    if undecided:
        raise Undecided
    if i < len(out):
        raise OutOfBits


@compiled
def strip(digits):  # type: ignore[no-untyped-def]
    """Return the strip that a real with these first digits falls into, or `UNDECIDED`."""
    v = 0
    while digits > _ENDS[v]:
        v += 1
    return UNDECIDED if digits == _ENDS[v] else v


@compiled
def coin(digits, x, v, margin):  # type: ignore[no-untyped-def]
    """Return 1 where a real with these digits is below exp(-x (v + x / 2)), 0, or `UNDECIDED`."""
    probability = math.exp(-x * (v + x / 2))
    if digits < math.floor((probability - margin) * (_ALL + 1)):
        return 1
    return 0 if digits > math.floor((probability + margin) * (_ALL + 1)) else UNDECIDED


@compiled
def _window(low, high, at):  # type: ignore[no-untyped-def]
    """Return the 64 bits from `at` on, the first of them the lowest, of two words."""
    offset = np.uint64(at & 63)
    upper = (high << np.uint64(1)) << (np.uint64(63) - offset)
    return (low >> offset) | upper


@compiled
def _width(most):  # type: ignore[no-untyped-def]
    """Return the number of bits that hold `most`."""
    width = np.uint64(0)
    while most >> np.int64(width) > 0:
        width += np.uint64(1)
    return width
