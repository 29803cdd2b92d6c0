"""Independent Bernoulli samples for Poisson sampling, from a secure random stream.

A sample compares the binary digits of a uniform real with those of its probability p, numerator /
2^64, until they differ; it is true if the real is smaller. `words` (random bits) and `cursor` (the
position in them) are those of :mod:`vicinal.noise._uniform_bits`; the cursor is advanced.
"""

import hashlib
import os

import numpy as np

from vicinal import checks
from vicinal.arrays import Bools
from vicinal.compiled import compiled
from vicinal.noise._uniform_bits import MARK, NEXT, BitBuffer, read_bit, read_bits

# Bytes of system entropy that key a stream.
_SEED_BYTES = 64

# Bytes of a stream from one key. A longer one continues with a new key.
_MAX_STREAM_BYTES = 1 << 16

# Number of binary digits that are compared for 64 samples at once. On average two of the 64 samples
# are undecided then.
_N_FIRST_DIGITS = 5


def compute_bernoulli_probability(probability: float) -> float:
    """Return the exact probability of :func:`sample_bernoulli`'s samples: floor(p 2^64) / 2^64.

    It equals `probability` p from 2^-12 upwards, and is less than 2^-64 below it for smaller p. It
    is a double, so that the accounting can use the exact value.
    """
    probability = checks.check_real("probability", probability, minimum=0, maximum=1)
    return float(int(probability * 2.0**64)) / 2.0**64


def sample_bernoulli(probability: float, size: int) -> Bools:
    """Return `size` independent Bernoulli samples, bool (size,), each true with `probability`.

    The exact probability is ``compute_bernoulli_probability(probability)``, which is never above
    `probability`: amplification by sampling is claimed for `probability`, and a smaller one costs
    less. The bits come from SHAKE-256, keyed by 512 bits of system entropy, with a new key for
    every call and at the latest every 64 KiB of the stream.
    """
    numerator = int(checks.check_real("probability", probability, minimum=0, maximum=1) * 2.0**64)
    size = checks.check_integer("size", size, minimum=0)
    if numerator == 1 << 64:
        return np.ones(size, dtype=np.bool_)
    samples = np.empty((-(-size // 64), 8), dtype=np.uint64)
    # Slightly more than the average number of bytes. If it is not enough, the buffer requests more.
    stream_bytes = 8 * (_N_FIRST_DIGITS * len(samples) + len(samples) // 8 + 8)
    buffer = BitBuffer(generate_secure_bytes, min(stream_bytes, _MAX_STREAM_BYTES))
    buffer.fill(_fill_bernoulli, samples, np.uint64(numerator))
    return samples.reshape(-1).view(np.bool_)[:size]


def generate_secure_bytes(size: int) -> bytes:
    """Return `size` bytes of a SHAKE-256 stream, keyed by new system entropy."""
    return hashlib.shake_256(os.urandom(_SEED_BYTES)).digest(size)


@compiled
def _fill_bernoulli(words, cursor, samples, n_done, numerator):  # type: ignore[no-untyped-def]
    """Fill rows of 64 samples, one byte each, from row ``n_done[0]`` on.

    - `samples` (uint64 (rows, 8)): the result; each byte is 0 or 1.
    - `n_done` (int64 (1,)): number of finished rows; it is advanced.
    - `numerator` (uint64): a sample is true with probability numerator / 2^64.
    """
    while n_done[0] < len(samples):
        outcomes = _sample_64(words, cursor, numerator)
        for i in range(8):
            samples[n_done[0], i] = _spread_bits((outcomes >> np.uint64(8 * i)) & np.uint64(255))
        n_done[0] += 1
        cursor[MARK] = cursor[NEXT]


@compiled
def _spread_bits(bits):  # type: ignore[no-untyped-def]
    """Return a uint64 whose byte i, 0 or 1, is bit i of `bits`, a uint64 below 256."""
    lowest_bits = np.uint64(0x0101_0101_0101_0101)  # of all bytes
    # Byte i is set to bit i alone. Adding 127 carries this bit into the highest bit of its byte.
    separated = (bits * lowest_bits) & np.uint64(0x8040_2010_0804_0201)
    return ((separated + np.uint64(0x7F7F_7F7F_7F7F_7F7F)) >> np.uint64(7)) & lowest_bits


@compiled
def _sample_64(words, cursor, numerator):  # type: ignore[no-untyped-def]
    """Return 64 samples as the bits of a uint64, each 1 with probability numerator / 2^64."""
    outcomes = np.uint64(0)
    undecided = ~np.uint64(0)
    for digit in range(63, 63 - _N_FIRST_DIGITS, -1):
        bits = read_bits(words, cursor, 64)
        if _get_digit(numerator, digit):
            outcomes |= undecided & ~bits
            undecided &= bits
        else:
            undecided &= ~bits
    while undecided != np.uint64(0):
        lowest = undecided & (~undecided + np.uint64(1))
        if _compare_later_digits(words, cursor, numerator):
            outcomes |= lowest
        undecided ^= lowest
    return outcomes


@compiled
def _compare_later_digits(words, cursor, numerator):  # type: ignore[no-untyped-def]
    """Return whether a uniform real is below p = `numerator` / 2^64, if their first digits agree.

    These are the first `_N_FIRST_DIGITS` digits. Further random digits are read from `words` at
    `cursor`; the first one that differs from the digit of p decides.
    """
    for digit in range(63 - _N_FIRST_DIGITS, -1, -1):
        probability_digit = _get_digit(numerator, digit)
        if read_bit(words, cursor) != probability_digit:
            return probability_digit
    return False


@compiled
def _get_digit(numerator, digit):  # type: ignore[no-untyped-def]
    """Return the binary digit of weight 2^digit of `numerator` (uint64), as a bool."""
    return (numerator >> np.uint64(digit)) & np.uint64(1) != np.uint64(0)
