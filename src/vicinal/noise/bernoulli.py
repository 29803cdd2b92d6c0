"""Independent coins for Poisson sampling, from a cryptographically secure stream."""

import hashlib
import os

import numpy as np

from vicinal import checks
from vicinal.arrays import Bools
from vicinal.compiled import compiled
from vicinal.noise._uniform_bits import MARK, NEXT, BitBuffer, next_bit, next_bits

_SEED_BYTES = 64
_MOST_STREAM = 1 << 16

# Binary digits compared for 64 coins at once; two of the 64 are then still open on average.
_HEAD = 5

_LOWEST_OF_BYTES = np.uint64(0x0101_0101_0101_0101)


def bernoulli_probability(probability: float) -> float:
    """Return the probability that :func:`sample_bernoulli` uses: floor(p 2^64) / 2^64.

    It equals `probability` from 2^-12 upwards and is below it by less than 2^-64 elsewhere. It is
    a double, so that the accounting can be told exactly what is tossed.
    """
    probability = checks.check_real("probability", probability, least=0, most=1)
    return float(int(probability * 2.0**64)) / 2.0**64


def sample_bernoulli(probability: float, size: int) -> Bools:
    """Return `size` independent coins, bool (size,), each true with at most `probability`.

    A coin is true with probability exactly ``bernoulli_probability(probability)``, never above
    what was asked for: amplification by sampling is claimed for `probability`, and a smaller one
    costs less. A coin compares the digits of a uniform real with those of its probability until
    they differ. Bits come from SHAKE-256, keyed afresh by 512 bits of system entropy for every
    call and every 64 KiB of stream.
    """
    numerator = int(checks.check_real("probability", probability, least=0, most=1) * 2.0**64)
    size = checks.check_integer("size", size, least=0)
    if numerator == 1 << 64:
        return np.ones(size, dtype=np.bool_)
    out = np.empty((-(-size // 64), 8), dtype=np.uint64)
    # What all rows need on average, and a little more; what is missing is asked for again.
    stream = 8 * (_HEAD * len(out) + len(out) // 8 + 8)
    BitBuffer(secure_stream, min(stream, _MOST_STREAM)).fill(_toss, out, np.uint64(numerator))
    return out.reshape(-1).view(np.bool_)[:size]


def secure_stream(size: int) -> bytes:
    """Return SHAKE-256 keyed by fresh entropy of the system, `size` bytes."""
    return hashlib.shake_256(os.urandom(_SEED_BYTES)).digest(size)


@compiled
def _toss(words, place, out, done, numerator):  # type: ignore[no-untyped-def]
    """Fill rows of 64 coins, a byte each, from row `done[0]` on; probability numerator / 2^64."""
    while done[0] < len(out):
        true = _sixty_four(words, place, numerator)
        for i in range(8):
            out[done[0], i] = _eight_bytes((true >> np.uint64(8 * i)) & np.uint64(255))
        done[0] += 1
        place[MARK] = place[NEXT]


@compiled
def _eight_bytes(bits):  # type: ignore[no-untyped-def]
    """Return 8 bits as the values 0 or 1 of the bytes of a uint64."""
    # Byte i keeps bit i alone; adding 127 carries any such bit into the highest of its byte.
    apart = (bits * np.uint64(0x0101_0101_0101_0101)) & np.uint64(0x8040_2010_0804_0201)
    return ((apart + np.uint64(0x7F7F_7F7F_7F7F_7F7F)) >> np.uint64(7)) & _LOWEST_OF_BYTES


@compiled
def _sixty_four(words, place, numerator):  # type: ignore[no-untyped-def]
    """Return 64 coins as the bits of a uint64."""
    true, still = np.uint64(0), ~np.uint64(0)
    for digit in range(63, 63 - _HEAD, -1):
        bits = next_bits(words, place, 64)
        if _digit(numerator, digit):
            true |= still & ~bits
            still &= bits
        else:
            still &= ~bits
    while still != np.uint64(0):
        lowest = still & (~still + np.uint64(1))
        if _later_digits(words, place, numerator):
            true |= lowest
        still ^= lowest
    return true


@compiled
def _later_digits(words, place, numerator):  # type: ignore[no-untyped-def]
    """Return whether a coin that agrees in its first digits is true: the first difference says."""
    for digit in range(63 - _HEAD, -1, -1):
        digit_of = _digit(numerator, digit)
        if next_bit(words, place) != digit_of:
            return digit_of
    return False


@compiled
def _digit(numerator, digit):  # type: ignore[no-untyped-def]
    return (numerator >> np.uint64(digit)) & np.uint64(1) != np.uint64(0)
