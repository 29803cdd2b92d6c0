"""The sampler on all bit strings up to a length: exact probabilities, not samples.

A depth-first walk feeds every bit string to a function, and no longer ones where it decides. The
outcomes of strings that decide within `depth` bits bound each probability from below; the strings
that do not decide are all that is missing. The true law must lie between, and the gap be small.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from vicinal.noise import _cks20
from vicinal.noise._cks20 import MAX_SCALE, MOST_SCALES
from vicinal.noise._uniform_bits import NEXT, OutOfBits, next_bit, next_bits


def outcomes(function, *arguments, depth):
    """Return ({outcome: exact probability so far}, probability of not being decided yet).

    A string of zeros to the end says after how many bits it is decided, and so which of its bits to
    turn; that these bits alone decide is then seen by feeding no others.
    """
    found, missing = defaultdict(int), 0
    stack = [(0, 0)]
    while stack:
        bits, length = stack.pop()
        words = np.array([bits, 0], dtype=np.uint64)
        used, outcome = decided(function, words, depth, *arguments)
        assert used >= length, "decided earlier, so this string is not visited"
        stack += [(bits | 1 << turned, turned + 1) for turned in range(length, used)]
        if outcome is None:
            missing += 1
        else:
            assert decided(function, words, used, *arguments) == (used, outcome)
            found[outcome] += 1 << depth - used
    return {x: Fraction(n, 1 << depth) for x, n in found.items()}, Fraction(missing, 1 << depth)


def decided(function, words, length, *arguments):
    """Return (bits used, outcome) of the first `length` bits; None if they do not decide."""
    place = np.array([0, length, 0])
    try:
        outcome = function(words, place, *arguments)
    except OutOfBits:
        return length, None
    return int(place[NEXT]), outcome


def brackets(function, *arguments, law, depth, gap=0.02):
    """Return whether `law` (outcome to probability) fits what all strings of `depth` say."""
    found, missing = outcomes(function, *arguments, depth=depth)
    assert sum(found.values()) + missing == 1
    assert missing < gap, "too many strings are open for the check to say much"
    with mpmath.workdps(40):
        return all(
            mpmath.mpf(found[x].numerator) / found[x].denominator
            <= law(x)
            <= mpmath.mpf((found[x] + missing).numerator) / (found[x] + missing).denominator
            for x in found
        )


def truth(probability):
    """Return the law of a coin."""
    return lambda outcome: probability if outcome else 1 - probability


def trial_law(scale, keep=lambda y, scale: 1):  # noqa: ARG005 (everything is kept)
    """Return the law of one round: a sign, a magnitude, and who counts."""
    rest = mpmath.fsum(mpmath.exp(-mpmath.mpf(u) / scale) for u in range(scale))
    peak = (1 - mpmath.exp(-1)) / rest / 2

    def law(outcome):
        counts, y = outcome
        if counts:
            return peak * mpmath.exp(-mpmath.mpf(abs(y)) / scale) * keep(y, scale)
        return 1 - mpmath.fsum(law((True, x)) for x in range(-99 * scale, 99 * scale + 1))

    return law


def merged(trial):
    """Let all rounds that do not count be one outcome."""

    def outcome(*arguments):
        counts, value = trial(*arguments)
        return (True, int(value)) if counts else (False, 0)

    return outcome


@pytest.mark.parametrize(("n", "d"), [(n, d) for d in range(1, 9) for n in range(d + 2)])
def test_coin(n, d):
    """Fails if a coin's probability is not n/d to 2^-14."""
    true = min(mpmath.mpf(1), mpmath.mpf(n) / d)
    assert brackets(_cks20.bernoulli_ratio, n, d, law=truth(true), depth=14, gap=1e-4)


def coin_from_string(function, n, d, string):
    bits = sum(bit << i for i, bit in enumerate(string))
    words = [bits >> shift & (1 << 64) - 1 for shift in range(0, len(string) + 64, 64)]
    place = np.array([0, len(string), 0])
    result = function(np.array(words, dtype=np.uint64), place, n, d)
    return bool(result), int(place[NEXT])


def digits_agree(function, n, d, most=200):
    """Return whether the coin follows the binary digits of n/d down to digit `most`."""
    digits = [(n << i + 1) // d & 1 for i in range(most)]
    return all(
        coin_from_string(function, n, d, [*digits[:i], 1 - digits[i]]) == (digits[i] == 1, i + 1)
        for i in range(most)
    )


def float_coin(words, place, n, d):
    """Compare 53 random bits with a double: wrong from the 54th digit on."""
    uniform = sum(int(next_bit(words, place)) << (52 - i) for i in range(53))
    return uniform / 2**53 < n / d


@pytest.mark.parametrize(
    ("n", "d"), [(1, 3), (12345, MAX_SCALE - 1), (MAX_SCALE - 2, MAX_SCALE - 1), (1, MAX_SCALE - 1)]
)
def test_coin_compares_to_the_last_digit(n, d):
    """Fails if a coin stops comparing at some precision, or an intermediate value overflows."""
    assert digits_agree(_cks20.bernoulli_ratio, n, d)


def test_a_float_coin_is_caught():
    """Fails if acceptance in floating point would pass."""
    with pytest.raises(OutOfBits):
        digits_agree(float_coin, 1, 3)
    # 1/3 = .0101...; this string first differs from it at digit 57, where it is larger.
    larger = [0, 1] * 28 + [1] * 8
    assert coin_from_string(_cks20.bernoulli_ratio, 1, 3, larger) == (False, 57)
    assert coin_from_string(float_coin, 1, 3, larger) == (True, 53)


@pytest.mark.parametrize("bound", range(1, 10))
def test_below(bound):
    """Fails if integers below a bound are not equally likely."""
    law = mpmath.mpf(1) / bound
    assert brackets(_cks20.uniform_below, bound, law=lambda _: law, depth=24, gap=1e-2)


def with_modulo_bias(words, place, bound):
    return int(next_bits(words, place, 4)) % bound


def test_modulo_bias_is_caught():
    """Fails if the enumeration is too weak to see a remainder."""
    assert not brackets(with_modulo_bias, 5, law=lambda _: mpmath.mpf(1) / 5, depth=8)


@pytest.mark.parametrize(("n", "d"), [(0, 1), (1, 1), (1, 2), (1, 3), (2, 3), (5, 7)])
def test_exponential_coins(n, d):
    """Fails if exp(-x) is not what the coin is tossed with."""
    x = mpmath.mpf(n) / d
    assert brackets(_cks20.bernoulli_exp, n, d, law=truth(mpmath.exp(-x)), depth=14)


def test_parts_of_the_laplace_law():
    """Fails if whole scales or the rest of a scale have another law."""
    fading = 1 - mpmath.exp(-1)
    assert brackets(_cks20.whole_scales, law=lambda v: fading * mpmath.exp(-v), depth=16, gap=0.05)
    for scale in (1, 2, 3):
        total = mpmath.fsum(mpmath.exp(-mpmath.mpf(u) / scale) for u in range(scale))

        def law(u, scale=scale, total=total):
            return mpmath.exp(-mpmath.mpf(u) / scale) / total

        assert brackets(_cks20.rest_of_scale, scale, law=law, depth=16, gap=0.1)


@pytest.mark.parametrize(("scale", "depth", "gap"), [(1, 21, 0.02), (2, 21, 0.05), (3, 21, 0.15)])
def test_rounds(scale, depth, gap):
    """Fails if a round of Laplace gives any integer another probability."""
    laplace = merged(_cks20.laplace_trial)
    assert brackets(laplace, scale, law=trial_law(scale), depth=depth, gap=gap)


def too_steep(y, scale):
    return mpmath.exp(-mpmath.mpf(abs(y)) / scale / 9)


@pytest.mark.parametrize("scale", [1, 2])
def test_a_wrong_law_is_caught(scale):
    """Fails if the brackets are so wide that another law fits, too."""
    laplace = merged(_cks20.laplace_trial)
    assert not brackets(laplace, scale, law=trial_law(scale, too_steep), depth=20, gap=0.05)


def test_zero_is_not_counted_twice():
    """Fails if both signs of 0 count: 0 would be twice as likely."""

    def twice(*arguments):
        return True, int(_cks20.laplace_trial(*arguments)[1])

    assert not brackets(twice, 1, law=trial_law(1), depth=20)


def longest(word, words):
    return np.full(words, word, dtype=np.uint64), np.array([0, 64 * words, 0])


def test_nothing_overflows_at_the_largest_scale():
    """Fails if the largest magnitude that bits can ask for leaves int64 or loses a digit."""
    # "01" makes exp_coin(1, 1) true: k = 2 passes, k = 3 stops.
    words, place = longest(0xAAAA_AAAA_AAAA_AAAA, 1 << 15)
    assert _cks20.whole_scales(words, place) == MOST_SCALES
    assert place[NEXT] == 2 * MOST_SCALES
    largest = MAX_SCALE * MOST_SCALES + MAX_SCALE - 1
    assert largest < 2**61
    # The sign, all whole scales, u = 2^40 - 1, and ones throughout.
    bits = [1, *itertools.chain.from_iterable([(0, 1)] * MOST_SCALES), *[1] * 40, *[1] * 400]
    packed = np.packbits(bits, bitorder="little")
    padded = np.pad(packed, (0, -len(packed) % 8 + 8)).view(np.uint64)
    counts, value = _cks20.laplace_trial(padded, np.array([0, len(bits), 0]), MAX_SCALE)
    assert (counts, value) == (True, -largest)


def test_the_largest_rest_of_a_scale():
    """Fails if a uniform integer below 2^40 cannot be 2^40 - 1, or below 2^40 - 1 can."""
    ones = longest((1 << 64) - 1, 2)
    assert _cks20.uniform_below(*ones, MAX_SCALE) == MAX_SCALE - 1
    with pytest.raises(OutOfBits):
        _cks20.uniform_below(*longest((1 << 64) - 1, 2), MAX_SCALE - 1)
