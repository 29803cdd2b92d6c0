"""A Poisson sample without a draw for every subject: exact gaps between those who are in it.

Each of n takes part with probability p, independently. How many are passed over before the next
one is geometric: at least m with probability (1 - p)^m. A uniform real below (1 - p)^m says so for
every m at once. Its first 32 digits are compared with those of the powers, worked out in whole
numbers; where they agree with one, more digits are read. No subject is remembered:
after the longest gap of the table the next one starts anew.
"""

import math
from functools import lru_cache

import numpy as np

from vicinal import checks
from vicinal.arrays import Ints, Places, UInts64
from vicinal.compiled import compiled
from vicinal.noise._uniform_bits import END, MARK, NEXT, BitBuffer, Undecided, next_bits
from vicinal.noise.bernoulli import secure_stream

DIGITS = 32  # binary digits of a draw; half a word of the stream

_MASK = np.uint64((1 << DIGITS) - 1)

_LONGEST = 1024  # the longest gap that one draw tells
_GUIDE = 10  # binary digits of a draw that the search among powers starts from

_MOST_STREAM = 1 << 16


def poisson_sample(probability: float, size: int) -> Places:
    """Return who of `size` takes part, each independently: positions, int64, ascending.

    The law is that of :func:`vicinal.noise.bernoulli`: each with probability exactly
    ``bernoulli_probability(probability)``. It costs a draw for every subject that takes part.
    """
    numerator = int(checks.check_real("probability", probability, least=0, most=1) * 2.0**64)
    size = checks.check_integer("size", size, least=0)
    if numerator in {0, 1 << 64}:
        return np.arange(size if numerator else 0)
    expected = size * probability
    capacity = int(expected + 4 * math.sqrt(expected)) + 16
    source = BitBuffer(
        secure_stream, min(DIGITS // 8 * (capacity + size // _LONGEST) // 8 * 8 + 8, _MOST_STREAM)
    )
    state = np.array([0, size], dtype=np.int64)
    parameter = (*_powers(numerator), state, np.uint64(numerator))
    parts = []
    while state[0] < size:
        out = np.full(capacity, size, dtype=np.int64)
        source.fill(_fill, out, parameter, exactly=_exactly)
        parts.append(out[: np.searchsorted(out, size)])
    return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, dtype=np.int64), *parts])


@lru_cache(maxsize=16)
def _powers(numerator: int) -> tuple[UInts64, Ints]:
    """Return floor((1 - p)^m 2^32) for m = 1 to the longest, and where to start to look.

    Entry g of the second: how many of the powers are above every draw whose first digits are g.
    """
    tails, power, powers = (1 << 64) - numerator, 1, []
    for m in range(1, _LONGEST + 1):
        power *= tails
        powers.append(power >> (64 * m - DIGITS))
    table = np.array(powers, dtype=np.uint64)
    last = (np.arange(1 << _GUIDE, dtype=np.uint64) + np.uint64(1)) << np.uint64(DIGITS - _GUIDE)
    last -= np.uint64(1)  # the largest draw of each group
    above = _LONGEST - np.searchsorted(table[::-1], last, side="right")
    return table, above.astype(np.int64)


@compiled
def _fill(words, place, out, done, parameter):  # type: ignore[no-untyped-def]
    """Fill `out` with positions from `done[0]` on, until it is full or none is left.

    `parameter`: the two tables of :func:`_powers`; the next position and the number of all, int64
    (2,); and the probability's numerator.
    """
    powers, guide, state, _ = parameter
    at, bit, end = done[0], place[NEXT], place[END]
    position, size = state[0], state[1]
    while at < len(out) and position < size:
        if bit + DIGITS > end:
            break
        draw = (words[bit >> 6] >> np.uint64(bit & 32)) & _MASK
        gap = guide[draw >> np.uint64(DIGITS - _GUIDE)]
        while gap < _LONGEST and draw < powers[gap]:
            gap += 1
        if gap < _LONGEST and draw == powers[gap]:
            break
        bit += DIGITS
        position += gap
        if gap < _LONGEST:
            if position < size:
                out[at] = position
                at += 1
            position += 1
    done[0], state[0] = at, position
    place[NEXT], place[MARK] = bit, bit
    if at < len(out) and position < size:
        next_bits(words, place, DIGITS)  # says so if there are none
        raise Undecided


def _exactly(words, place, out, done, parameter):  # type: ignore[no-untyped-def]
    """Do one round as :func:`_fill` does, with as many digits as it takes."""
    *_, state, numerator = parameter
    tails, digits, gap = (1 << 64) - int(numerator), DIGITS, 0
    draw = int(next_bits(words, place, DIGITS))
    while gap < _LONGEST:
        scaled, below = tails ** (gap + 1) << digits, 64 * (gap + 1)
        power = scaled >> below
        if draw < power:
            gap += 1
        elif draw > power or power << below == scaled:
            break
        else:
            draw = draw << DIGITS | int(next_bits(words, place, DIGITS))
            digits += DIGITS
    state[0] += gap
    if gap < _LONGEST:
        if state[0] < state[1]:
            out[done[0]] = state[0]
            done[0] += 1
        state[0] += 1
    place[MARK] = place[NEXT]
