"""Coins agree with a reference that compares one binary digit after the other."""

from fractions import Fraction

import numpy as np
import pytest

from vicinal.errors import InvalidInput
from vicinal.noise._uniform_bits import BitBuffer
from vicinal.noise.bernoulli import (
    _N_FIRST_DIGITS,
    _fill_bernoulli,
    _sample_64,
    _spread_bits,
    compute_bernoulli_probability,
    sample_bernoulli,
)
from vicinal.noise.poisson_sample import draw_poisson_sample

pytestmark = pytest.mark.quick

NUMERATORS = [
    0, 1, (1 << 64) - 1, 1 << 63, (1 << 63) - 1, 0x5555_5555_5555_5555, int(0.03 * 2**64),
    (1 << 59) - 1, 1 << 58,
]  # fmt: skip


def toss_slowly(bits, numerator):
    """Return 64 coins: first differences of each coin's bits from the digits of `numerator`."""
    bits = iter(bits)
    heads = [[next(bits) for _ in range(64)] for _ in range(_N_FIRST_DIGITS)]

    def coin(i):
        for digit in range(64):
            mine = heads[digit][i] if digit < _N_FIRST_DIGITS else next(bits)
            wanted = numerator >> (63 - digit) & 1
            if mine != wanted:
                return wanted == 1
        return False

    return [coin(i) for i in range(64)]


def agreeing_strings(numerator, rng):
    """Yield bit strings: fair ones, and ones that keep agreeing with `numerator` for long."""
    digits = [numerator >> (63 - i) & 1 for i in range(64)]
    for share in (0.5, 0.9, 0.99):
        heads = np.repeat(digits[:_N_FIRST_DIGITS], 64)
        rest = np.tile(digits[_N_FIRST_DIGITS:], 200)
        wanted = np.concatenate([heads, rest])
        yield np.where(rng.random(len(wanted)) < share, wanted, 1 - wanted)


@pytest.mark.parametrize("numerator", NUMERATORS)
def test_every_coin_compares_its_own_bits_with_the_probability(numerator):
    """Fails if a digit is compared wrongly, or a coin reads bits of another."""
    rng = np.random.default_rng(3)
    for string in agreeing_strings(numerator, rng):
        words = np.packbits(string.astype(np.uint8), bitorder="little")
        words = np.pad(words, (0, -len(words) % 8)).view(np.uint64)
        found = int(_sample_64(words, np.array([0, len(string), 0]), np.uint64(numerator)))
        assert [bool(found >> i & 1) for i in range(64)] == toss_slowly(string, numerator)


def test_bits_become_bytes():
    for bits in range(256):
        row = np.array([_spread_bits(np.uint64(bits))], dtype="<u8").view(np.uint8)
        np.testing.assert_array_equal(row, np.unpackbits(np.uint8(bits), bitorder="little"))


def test_where_blocks_end_changes_no_coin():
    """Fails if coins are dropped or tossed again when the stream ends."""
    for n_rows in (0, 1, 16):
        tossed = []
        for block in (8, 1 << 16):
            out = np.empty((n_rows, 8), dtype=np.uint64)
            buffer = BitBuffer(np.random.default_rng(1).bytes, block)
            buffer.fill(_fill_bernoulli, out, np.uint64(NUMERATORS[6]))
            tossed.append(out)
        np.testing.assert_array_equal(*tossed)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 200_000])
def test_size_and_type_and_certain_coins(size):
    """Fails if probability 0 ever comes up or 1 ever does not; 2^-65 is below the resolution."""
    for probability, share in ((0.0, 0), (2.0**-65, 0), (0.3, None), (1.0, 1)):
        found = sample_bernoulli(probability, size)
        assert found.shape == (size,)
        assert found.dtype == np.bool_
        assert share is None or (found == share).all()


@pytest.mark.parametrize(
    "probability", [0.0, 1.0, 0.5, 0.03, 2.0**-12, 1 / 3, 1e-6, 1e-19, 2.0**-65, 5e-324]
)
def test_the_probability_tossed_with_is_never_above_what_was_asked(probability):
    """Fails if amplification is claimed for a smaller probability than is tossed."""
    used = compute_bernoulli_probability(probability)
    assert Fraction(used) == Fraction(int(Fraction(probability) * 2**64), 2**64)
    assert used <= probability
    assert probability - used < 2.0**-64
    assert used == probability or probability < 2.0**-12
    assert compute_bernoulli_probability(used) == used


samplers = pytest.mark.parametrize("sample", [sample_bernoulli, draw_poisson_sample])


@samplers
@pytest.mark.parametrize("size", [-1, 2.5, True, "3", None])
def test_sizes_that_are_none(sample, size):
    with pytest.raises(InvalidInput, match="size"):
        sample(0.5, size)


@samplers
@pytest.mark.parametrize("probability", [-0.1, 1.1, float("nan"), float("inf"), "0.5", True])
def test_probabilities_that_are_none(sample, probability):
    with pytest.raises(InvalidInput, match="probability"):
        sample(probability, 3)
    with pytest.raises(InvalidInput, match="probability"):
        compute_bernoulli_probability(probability)
