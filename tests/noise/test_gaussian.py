"""The Gaussian sampler is exact on all bit strings; the compiled one equals it bit for bit.

A depth-first search passes every bit string to a function and stops where the outcome is decided.
The outcomes of strings decided within `depth` bits bound each probability from below; the undecided
strings bound the remainder. The true distribution must lie between, with a small gap.
"""

from collections import defaultdict
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from vicinal.noise import _gaussian as fast
from vicinal.noise import _gaussian_exact as exact
from vicinal.noise._gaussian_exact import N_DIGITS, compute_gaussian_round, run_gaussian_round
from vicinal.noise._uniform_bits import NEXT, BitBuffer, OutOfBits, Undecided

pytestmark = pytest.mark.quick

SCALES = (1, 2, 3, 1000, 3_000_017, 1 << 22, (1 << 40) - 1, 1 << 40)
HEIGHTS = mpmath.nsum(lambda v: mpmath.exp(-(v**2) / 2), [0, mpmath.inf])


def enumerate_outcomes(function, *arguments, depth):
    """Return ({outcome: exact probability so far}, probability of not being decided yet).

    A string of zeros to the end says after how many bits it is decided, and so which of its bits to
    turn; that these bits alone decide is then seen by feeding no others.
    """
    found, missing = defaultdict(int), 0
    stack = [(0, 0)]
    while stack:
        bits, length = stack.pop()
        words = np.array([bits, 0], dtype=np.uint64)
        used, outcome = run_on_bits(function, words, depth, *arguments)
        assert used >= length, "decided earlier, so this string is not visited"
        stack += [(bits | 1 << turned, turned + 1) for turned in range(length, used)]
        if outcome is None:
            missing += 1
        else:
            assert run_on_bits(function, words, used, *arguments) == (used, outcome)
            found[outcome] += 1 << depth - used
    return {x: Fraction(n, 1 << depth) for x, n in found.items()}, Fraction(missing, 1 << depth)


def run_on_bits(function, words, length, *arguments):
    """Return (bits used, outcome) of the first `length` bits; None if they do not decide."""
    cursor = np.array([0, length, 0])
    try:
        outcome = function(words, cursor, *arguments)
    except OutOfBits:
        return length, None
    return int(cursor[NEXT]), outcome


def is_bracketed(function, *arguments, law, depth, gap=0.02):
    """Return whether `law` (outcome to probability) fits what all strings of `depth` say."""
    found, missing = enumerate_outcomes(function, *arguments, depth=depth)
    assert sum(found.values()) + missing == 1
    assert missing < gap, "too many strings are open for the check to say much"
    with mpmath.workdps(40):
        return all(
            mpmath.mpf(found[x].numerator) / found[x].denominator
            <= law(x)
            <= mpmath.mpf((found[x] + missing).numerator) / (found[x] + missing).denominator
            for x in found
        )


def merge_rejections(trial):
    """Return a function for which all rejected rounds are one outcome."""

    def outcome(*arguments):
        counts, value = trial(*arguments)
        return (True, int(value)) if counts else (False, 0)

    return outcome


def law(scale, power=2.0, shift=0.0):
    """Return the distribution of one round, as a function of its outcome."""
    bits = (scale - 1).bit_length()
    peak = 1 / (2 * HEIGHTS * 2**bits)

    def of(outcome):
        counts, y = outcome
        if not counts:
            return 1 - mpmath.fsum(of((True, x)) for x in range(-20 * scale, 20 * scale + 1))
        return peak * mpmath.exp(-((mpmath.mpf(abs(y)) / scale + shift) ** power) / 2)

    return of


def make_round(digits, step):
    return merge_rejections(
        lambda words, cursor, scale: compute_gaussian_round(words, cursor, scale, digits, step)
    )


@pytest.mark.parametrize(("scale", "depth"), [(1, 15), (2, 16), (3, 17), (4, 17)])
def test_a_round_has_the_exact_law(scale, depth):
    assert is_bracketed(make_round(3, 1), scale, law=law(scale), depth=depth, gap=0.01)


@pytest.mark.parametrize("wrong", [{"power": 1.9}, {"shift": 0.1}])
def test_another_law_is_caught(wrong):
    """Fails if the bounds are too wide to exclude another density."""
    assert not is_bracketed(make_round(3, 1), 2, law=law(2, **wrong), depth=16)


def test_the_digits_are_those_of_the_numbers():
    """Fails if bounds of exp(-x) or of the strips miss it, or digits are not rounded down."""
    with mpmath.workdps(80):
        for n, d in [(0, 1), (1, 3), (1, (1 << 81) - 1), (95, 10), (700, 1)]:
            low, high = exact.bound_exponential(n, d, 150)
            true = mpmath.exp(-mpmath.mpf(n) / d) * 2**150
            assert low <= true <= high <= low + 4
            if n:
                assert exact.compute_exponential_digits(n, d, 150) == int(mpmath.floor(true))
        ends = exact.compute_cdf_digits(60)
        heights = [mpmath.exp(-mpmath.mpf(v * v) / 2) for v in range(40)]
        shares = [sum(heights[: v + 1]) / sum(heights) for v in range(len(ends))]
        assert ends == tuple(int(share * 2**60) for share in shares)
        assert ends[-1] == 2**60 - 1 > ends[-2]


def draw_exactly(buffer, scale, size):
    """Return draws of the exact rounds alone."""
    out, n_done = np.zeros(size, dtype=np.int64), np.zeros(1, dtype=np.int64)
    while n_done[0] < size:
        run_gaussian_round(buffer.words, buffer.cursor, out, n_done, scale)
    return out


def make_filled_buffer(seed, size):
    buffer = BitBuffer(np.random.default_rng(seed).bytes, size)
    buffer._refill_words()
    return buffer


@pytest.mark.parametrize("scale", SCALES)
def test_compiled_draws_are_the_exact_ones(scale):
    slow = draw_exactly(make_filled_buffer(3, 1 << 14), scale, 400)
    out = np.zeros(400, dtype=np.int64)
    make_filled_buffer(3, 64).fill(fast.fill_gaussian, out, scale, run_gaussian_round)
    np.testing.assert_array_equal(out, slow)


def pack_bits(bits):
    padded = np.packbits(bits + [0] * (-len(bits) % 64), bitorder="little")
    return padded.tobytes()


def digits_of(number, count):
    return [number >> i & 1 for i in range(count)]


def test_what_is_undecided_is_decided_exactly():
    """Fails if equal first digits count as smaller or larger, or further digits are not asked."""
    scale, (end, *_) = 1 << 22, exact.compute_cdf_digits(N_DIGITS)
    more = exact.compute_cdf_digits(N_DIGITS + 32)[0] - (end << 32)
    start = digits_of(5, 22) + digits_of(end, N_DIGITS) + digits_of(0, N_DIGITS) + [1]
    for further, strip in ((more - 1, 0), (more + 1, 1)):
        stream = pack_bits(start + digits_of(further, 32)) + np.random.default_rng(1).bytes(512)
        parts = iter([stream[:64], stream[64:]])
        out, buffer = np.zeros(1, dtype=np.int64), BitBuffer(lambda _, p=parts: next(p), 64)
        buffer.fill(fast.fill_gaussian, out, scale, run_gaussian_round)
        assert out[0] == -(5 + strip * scale)
        assert buffer.cursor[NEXT] == len(start) + 32
    words = np.frombuffer(stream, dtype=np.uint64)
    n_done = np.zeros(1, dtype=np.int64)
    with pytest.raises(Undecided):
        fast.fill_gaussian(words, np.array([0, 64 * len(words), 0]), out, n_done, scale)


@pytest.mark.parametrize("margin", [fast.MAX_PROBABILITY_ERROR, 0.01])
def test_doubles_decide_only_what_is_sure(margin):
    """Fails if a coin or a strip is decided in doubles otherwise than in exact arithmetic."""
    rng = np.random.default_rng(9)
    for scale in SCALES[3:]:
        for u, v in zip(rng.integers(0, scale, 40).tolist(), rng.integers(0, 6, 40), strict=True):
            n, d = 2 * scale * u * int(v) + u * u, 2 * scale**2
            wanted = exact.compute_exponential_digits(n, d, N_DIGITS) if u else 1 << N_DIGITS
            near = [wanted + step for step in (-1, 0, 1) if 0 <= wanted + step < 1 << N_DIGITS]
            for digits in [*near, *rng.integers(0, 1 << N_DIGITS, 3).tolist()]:
                found = fast.compare_with_exponential(digits, u / scale, v, margin)
                assert found in (fast.UNDECIDED, int(digits < wanted))
                assert found == fast.UNDECIDED or digits != wanted
    ends = exact.compute_cdf_digits(N_DIGITS)
    for digits in {end + step for end in ends for step in (-1, 0, 1)} - {1 << N_DIGITS}:
        true = sum(digits > end for end in ends)
        assert fast.find_strip(digits) == (fast.UNDECIDED if digits in ends else true)


def test_doubles_are_as_near_as_the_margin_says():
    """Fails if exp() or the quotient is further off than a sixteenth of the margin."""
    rng = np.random.default_rng(4)
    for scale in SCALES[3:]:
        for u, v in zip(rng.integers(1, scale, 200).tolist(), rng.integers(0, 9, 200), strict=True):
            x = u / scale
            low, _ = exact.bound_exponential(2 * scale * u * int(v) + u * u, 2 * scale**2, 80)
            assert abs(np.exp(-x * (v + x / 2)) - low / 2**80) < fast.MAX_PROBABILITY_ERROR / 64
