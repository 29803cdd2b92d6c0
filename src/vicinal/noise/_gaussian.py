"""Compiled sampler of the exact discrete Gaussian, in doubles where they are precise enough.

Proof note: gaussian.md. It is a rejection sampler. A round proposes the magnitude u + scale * v:
the offset u is uniform on 0..scale - 1, and the strip index v has a probability proportional to
exp(-v^2 / 2). The proposal is accepted with probability exp(-x (v + x / 2)), x = u / scale. Both v
and acceptance follow from comparisons of the first binary digits of a uniform real with those of a
probability. Where the digits are equal, or doubles are not precise enough to decide, `Undecided` is
raised, and :mod:`vicinal.noise._gaussian_exact` computes the same function of the same bits in
exact integers.
"""

import math

import numpy as np

from vicinal.compiled import compiled
from vicinal.noise._gaussian_exact import N_DIGITS, compute_cdf_digits
from vicinal.noise._uniform_bits import END, MARK, NEXT, OutOfBits, Undecided

# Bound on the error of the acceptance probability in doubles. It is 2^-46 at most, see gaussian.md.
MAX_PROBABILITY_ERROR = 2.0**-40

# Result of a comparison that neither doubles nor the first digits decide.
UNDECIDED = -1

# First N_DIGITS binary digits of the probability of the strips 0 to v, by v.
_CUMULATIVE = np.array(compute_cdf_digits(N_DIGITS), dtype=np.int64)

# Mask of the lowest N_DIGITS bits.
_DIGITS_MASK = (1 << N_DIGITS) - 1

# Bits that are read at a time. With fewer than twice as many left, the buffer is refilled.
_WINDOW_BITS = 64


@compiled
def fill_gaussian(words, cursor, samples, n_done, scale):  # type: ignore[no-untyped-def]
    """Fill `samples`, int64, with discrete Gaussian samples from index ``n_done[0]`` on.

    - `words` (uint64 array): random bits, 64 in each word.
    - `cursor` (int64 (3,)): bit indices [NEXT: next unread bit, END: end of the bits, MARK: first
      bit of the unfinished round].
    - `n_done` (int64 (1,)): number of finished samples. It and the cursor are advanced.
    - `scale` (int): scale of the discrete Gaussian, 1 to 2^40.

    Raises OutOfBits if the bits do not suffice, and Undecided if a round needs exact arithmetic;
    MARK is then the first bit of that round.
    """
    width = np.uint64(0)  # number of binary digits of the largest offset, scale - 1
    while (scale - 1) >> np.int64(width) > 0:
        width += np.uint64(1)
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
            else compare_with_exponential(
                (digits >> N_DIGITS) & _DIGITS_MASK, u / scale, v, MAX_PROBABILITY_ERROR
            )
        )
        if accepted == UNDECIDED:
            undecided = True
            bit = start
            continue
        bit += 2 * N_DIGITS + 1
        magnitude = u + scale * v
        negative = digits >> (2 * N_DIGITS)
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
    """Return the strip index at which the cumulative distribution exceeds a uniform real.

    Returns UNDECIDED if more digits are needed. `digits` (int): its first N_DIGITS binary digits.
    """
    v = 0
    while digits > _CUMULATIVE[v]:
        v += 1
    return UNDECIDED if digits == _CUMULATIVE[v] else v


@compiled
def compare_with_exponential(digits, x, v, max_error):  # type: ignore[no-untyped-def]
    """Return 1 if a uniform real is below exp(-x (v + x / 2)), 0 if above, or UNDECIDED.

    - `digits` (int): first N_DIGITS binary digits of the real.
    - `x` (float): offset in the strip as a fraction of the scale, 0 <= x < 1.
    - `v` (int): index of the strip.
    - `max_error` (float): bound on the absolute error of the exponential in doubles.
    """
    probability = math.exp(-x * (v + x / 2))
    if digits < math.floor((probability - max_error) * (_DIGITS_MASK + 1)):
        return 1
    return 0 if digits > math.floor((probability + max_error) * (_DIGITS_MASK + 1)) else UNDECIDED


@compiled
def _read_window(low, high, bit):  # type: ignore[no-untyped-def]
    """Return 64 consecutive random bits as uint64; the first bit is the least significant.

    `low`, `high` (uint64): two consecutive words; the bits start at index `bit` modulo 64 of `low`.
    """
    offset = np.uint64(bit & 63)
    upper = (high << np.uint64(1)) << (np.uint64(63) - offset)
    return (low >> offset) | upper
