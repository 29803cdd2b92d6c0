"""Compiled sampler of the exact discrete Gaussian, in doubles where they are precise enough.

Proof note: gaussian.md. The magnitude is u + scale * v. The offset u is uniform on 0..scale - 1,
the strip v has the probability of the density at its near end, and a coin accepts the pair with the
ratio of the density at the magnitude to that at the near end. Strip and coin compare random binary
digits with those of real numbers. Where the digits are equal, or doubles are not precise enough to
decide, `Undecided` is raised, and :mod:`vicinal.noise._gaussian_exact` computes the same function
of the same bits in exact integers.
"""

import math

import numpy as np

from vicinal.compiled import compiled
from vicinal.noise._gaussian_exact import DIGITS, compute_strip_ends
from vicinal.noise._uniform_bits import END, MARK, NEXT, OutOfBits, Undecided

# Bound on the error of the coin's probability in doubles. It is 2^-46 at most, see gaussian.md.
MARGIN = 2.0**-40

# Result of a comparison that doubles, or the first digits, do not decide.
UNDECIDED = -1

# First DIGITS binary digits of the cumulative probabilities of the strips.
_STRIP_ENDS = np.array(compute_strip_ends(DIGITS), dtype=np.int64)

# Mask of DIGITS bits.
_DIGITS_MASK = (1 << DIGITS) - 1

# Bits that are read at a time. With fewer than twice as many left, the buffer is refilled.
_WINDOW_BITS = 64


@compiled
def fill_gaussian(words, cursor, samples, n_done, scale):  # type: ignore[no-untyped-def]
    """Fill `samples`, int64, with discrete Gaussian samples from index ``n_done[0]`` on.

    - `words`, uint64: random bits; `cursor`: position in them, see
      :mod:`vicinal.noise._uniform_bits`. Both `n_done` and the cursor are advanced.
    - `scale`: scale of the discrete Gaussian, 1 to 2^40.

    Raises OutOfBits or Undecided with the mark at the first bit of the unfinished round.
    """
    width = _count_bits(scale - 1)
    bit = cursor[MARK]
    last_start = cursor[END] - 2 * _WINDOW_BITS
    i = n_done[0]
    undecided = False
    while i < len(samples) and bit <= last_start and not undecided:
        k = bit >> 6
        start = bit
        u = np.int64(
            _read_window(words[k], words[k + 1], bit) & ((np.uint64(1) << width) - np.uint64(1))
        )
        bit += np.int64(width)
        if u >= scale:
            continue
        k = bit >> 6
        digits = np.int64(
            _read_window(words[k], words[k + 1], bit) & np.uint64(2 * (_DIGITS_MASK + 1) ** 2 - 1)
        )
        v = find_strip(digits & _DIGITS_MASK)
        accepted = (
            UNDECIDED
            if v == UNDECIDED
            else toss_coin((digits >> DIGITS) & _DIGITS_MASK, u / scale, v, MARGIN)
        )
        if accepted == UNDECIDED:
            undecided = True
            bit = start
            continue
        bit += 2 * DIGITS + 1
        magnitude = u + scale * v
        negative = digits >> (2 * DIGITS)
        if accepted == 1 and (magnitude > 0 or negative == 0):
            samples[i] = -magnitude if negative else magnitude
            i += 1
    # The bits of a rejected round are not read again, so the cursor is behind them, too.
    n_done[0] = i
    cursor[MARK] = bit
    cursor[NEXT] = bit
    if undecided:
        raise Undecided
    if i < len(samples):
        raise OutOfBits


@compiled
def find_strip(digits):  # type: ignore[no-untyped-def]
    """Return the index of the strip of a uniform real with these first digits, or `UNDECIDED`."""
    v = 0
    while digits > _STRIP_ENDS[v]:
        v += 1
    return UNDECIDED if digits == _STRIP_ENDS[v] else v


@compiled
def toss_coin(digits, x, v, margin):  # type: ignore[no-untyped-def]
    """Return 1 if a uniform real is below exp(-x (v + x / 2)), 0 if above, or `UNDECIDED`.

    - `digits`: the first DIGITS binary digits of the uniform real.
    - `x`: offset in the strip as a fraction of the scale, 0 <= x < 1.
    - `v`: index of the strip.
    - `margin`: bound on the error of the exponential in doubles.
    """
    probability = math.exp(-x * (v + x / 2))
    if digits < math.floor((probability - margin) * (_DIGITS_MASK + 1)):
        return 1
    return 0 if digits > math.floor((probability + margin) * (_DIGITS_MASK + 1)) else UNDECIDED


@compiled
def _read_window(low, high, bit):  # type: ignore[no-untyped-def]
    """Return the 64 bits that start at index `bit` modulo 64 of the word `low`, as uint64.

    `high` is the word behind `low`. The first bit becomes the lowest.
    """
    offset = np.uint64(bit & 63)
    upper = (high << np.uint64(1)) << (np.uint64(63) - offset)
    return (low >> offset) | upper


@compiled
def _count_bits(value):  # type: ignore[no-untyped-def]
    """Return the number of binary digits of a nonnegative integer, as uint64."""
    width = np.uint64(0)
    while value >> np.int64(width) > 0:
        width += np.uint64(1)
    return width
