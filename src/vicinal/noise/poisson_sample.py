"""Poisson samples by exact geometric gaps, without a Bernoulli sample for every item.

Each of n items (subjects, or pairs of a query and a record) is in the sample independently with
probability p. The number of items that are skipped before the next one in the sample is geometric:
at least m with probability (1 - p)^m.
It is the number of m >= 1 for which a uniform real U is below (1 - p)^m. The first 32 binary digits
of U are compared with those of the powers, computed in exact integers; where they are equal, more
digits are read. The table of powers ends at a longest gap. Since a geometric distribution has no
memory, a longer gap is continued by a new one.

Arguments of the two samplers, which :meth:`BitBuffer.fill` calls: `words` (random bits) and
`cursor` (the position in them), see :mod:`vicinal.noise._uniform_bits`; `indices` (int64 array),
filled with sampled items from index ``n_done[0]`` on; `n_done` (int64 (1,)), the number of
filled entries; `parameter`, a tuple (powers, guide, state, numerator) of the two tables of
:func:`_compute_powers`, the state (int64 (2,)): next item and number of items, and the
sampling probability times 2^64. The cursor, `n_done` and the next item are advanced.
"""

import math
from functools import lru_cache

import numpy as np

from vicinal import checks
from vicinal.arrays import Indices, Ints, UInts64
from vicinal.compiled import compiled
from vicinal.noise._uniform_bits import END, MARK, NEXT, BitBuffer, Undecided, read_bits
from vicinal.noise.bernoulli import generate_secure_bytes

# Number of binary digits of a uniform real that are read at a time; half a word of the stream.
N_DIGITS = 32

_DIGITS_MASK = np.uint64((1 << N_DIGITS) - 1)

# Number of powers in the table, and so the longest gap that one uniform real determines.
_MAX_GAP = 1024

# Number of leading digits of a uniform real that select the start of the search among the powers.
_N_GUIDE_DIGITS = 10

# Maximal number of bytes of a stream from one key, as in bernoulli.py.
_MAX_STREAM_BYTES = 1 << 16


def draw_poisson_sample(probability: float, size: int) -> Indices:
    """Return the indices of a Poisson sample from `size` items, int64, ascending.

    The distribution is that of :func:`vicinal.noise.bernoulli.sample_bernoulli`: each item is in
    the sample with probability exactly ``compute_bernoulli_probability(probability)``. The cost is
    proportional to the size of the sample.
    """
    numerator = int(checks.check_real("probability", probability, minimum=0, maximum=1) * 2.0**64)
    size = checks.check_integer("size", size, minimum=0)
    if numerator in {0, 1 << 64}:
        return np.arange(size if numerator else 0)
    expected = size * probability
    capacity = int(expected + 4 * math.sqrt(expected)) + 16
    buffer = BitBuffer(
        generate_secure_bytes,
        min(N_DIGITS // 8 * (capacity + size // _MAX_GAP) // 8 * 8 + 8, _MAX_STREAM_BYTES),
    )
    state = np.array([0, size], dtype=np.int64)
    parameter = (*_compute_powers(numerator), state, np.uint64(numerator))
    blocks = []
    while state[0] < size:
        indices = np.full(capacity, size, dtype=np.int64)
        buffer.fill(_fill_indices, indices, parameter, run_exact_round=_sample_gap_exactly)
        blocks.append(indices[: np.searchsorted(indices, size)])
    return blocks[0] if len(blocks) == 1 else np.concatenate([np.zeros(0, dtype=np.int64), *blocks])


@lru_cache(maxsize=16)
def _compute_powers(numerator: int) -> tuple[UInts64, Ints]:
    """Return the table of powers of 1 - p and a guide for its search, for p = numerator / 2^64.

    Returns
    -------
    powers : uint64 (_MAX_GAP,)
        floor((1 - p)^m 2^32) for m = 1, 2, ...; descending.
    guide : int64 (2^_N_GUIDE_DIGITS,)
        Entry g is the number of powers above every 32-digit binary value with leading digits g.
    """
    skip_numerator = (1 << 64) - numerator  # 2^64 times the probability 1 - p of a skip
    power = 1
    powers = []
    for m in range(1, _MAX_GAP + 1):
        power *= skip_numerator
        powers.append(power >> (64 * m - N_DIGITS))
    table = np.array(powers, dtype=np.uint64)
    next_groups = np.arange(1 << _N_GUIDE_DIGITS, dtype=np.uint64) + np.uint64(1)
    largest_values = next_groups << np.uint64(N_DIGITS - _N_GUIDE_DIGITS)
    largest_values -= np.uint64(1)  # the largest value of each group
    n_above = _MAX_GAP - np.searchsorted(table[::-1], largest_values, side="right")
    return table, n_above.astype(np.int64)


@compiled
def _fill_indices(words, cursor, indices, n_done, parameter):  # type: ignore[no-untyped-def]
    """Fill `indices` with sampled items, until it is full or the last item is reached.

    Raises Undecided, before the next gap, if its first digits do not decide, and OutOfBits if the
    bits do not suffice.
    """
    powers, guide, state, _ = parameter
    i = n_done[0]
    bit = cursor[NEXT]
    end = cursor[END]
    item = state[0]
    size = state[1]
    while i < len(indices) and item < size:
        if bit + N_DIGITS > end:
            break
        value = (words[bit >> 6] >> np.uint64(bit & 32)) & _DIGITS_MASK
        gap = guide[value >> np.uint64(N_DIGITS - _N_GUIDE_DIGITS)]
        while gap < _MAX_GAP and value < powers[gap]:
            gap += 1
        if gap < _MAX_GAP and value == powers[gap]:
            break
        bit += N_DIGITS
        item += gap
        if gap < _MAX_GAP:
            if item < size:
                indices[i] = item
                i += 1
            item += 1
    n_done[0] = i
    state[0] = item
    cursor[NEXT] = bit
    cursor[MARK] = bit
    if i < len(indices) and item < size:
        read_bits(words, cursor, N_DIGITS)  # raises OutOfBits if that is the reason
        raise Undecided


def _sample_gap_exactly(words, cursor, indices, n_done, parameter):  # type: ignore[no-untyped-def]
    """Sample one gap and the item after it in exact integers, with as many digits as needed.

    No item follows a longest gap; the next gap continues it.
    """
    *_, state, numerator = parameter
    skip_numerator = (1 << 64) - int(numerator)  # 2^64 times the probability 1 - p of a skip
    digits = N_DIGITS
    gap = 0
    value = int(read_bits(words, cursor, N_DIGITS))
    while gap < _MAX_GAP:
        # The first `digits` binary digits of (1 - p)^(gap + 1).
        scaled = skip_numerator ** (gap + 1) << digits
        n_dropped = 64 * (gap + 1)
        power = scaled >> n_dropped
        if value < power:
            gap += 1
        elif value > power or power << n_dropped == scaled:
            break
        else:
            value = value << N_DIGITS | int(read_bits(words, cursor, N_DIGITS))
            digits += N_DIGITS
    state[0] += gap
    if gap < _MAX_GAP:
        if state[0] < state[1]:
            indices[n_done[0]] = state[0]
            n_done[0] += 1
        state[0] += 1
    cursor[MARK] = cursor[NEXT]
