"""Poisson samples by gaps agree with a reference in exact integers."""

from itertools import accumulate
from operator import mul

import numpy as np
import pytest

from vicinal.noise import poisson_sample as module
from vicinal.noise._uniform_bits import BitBuffer
from vicinal.noise.poisson_sample import draw_poisson_sample

NUMERATORS = [int(p * 2**64) for p in (0.03, 0.2, 0.5, 0.9, 0.001, 2.0**-20)]
NUMERATORS += [(1 << 64) - 1, 1 << 63, 12345]


def sample_slowly(draws, numerator, size):
    """Return positions by the definition: 32 digits at a time, until they say how long a gap is."""
    draws, position, found = iter(draws), 0, []
    powers = list(accumulate([(1 << 64) - numerator] * module._MAX_GAP, mul))
    while True:
        digits, value, gap = 32, next(draws), 0
        while gap < module._MAX_GAP:
            power, whole = powers[gap], 1 << 64 * (gap + 1)
            if (value + 1) * whole <= power << digits:  # all of it below the power
                gap += 1
            elif value * whole >= power << digits:  # all of it at the power or above
                break
            else:
                value, digits = value << 32 | next(draws), digits + 32
        position += gap
        if position >= size:
            return found
        if gap < module._MAX_GAP:
            found.append(position)
            position += 1


def sample_from_draws(draws, numerator, size, block=1 << 16):
    """Return sampled indices for 32-bit random values, provided in blocks of `block` bytes."""
    stream = np.asarray(draws, dtype="<u4").tobytes() + bytes(8 * block)
    at = [0]

    def entropy(count):
        at[0] += count
        return stream[at[0] - count : at[0]]

    out = np.full(size + 1, size, dtype=np.int64)
    state = np.array([0, size], dtype=np.int64)
    parameter = (*module._compute_powers(numerator), state, np.uint64(numerator))
    BitBuffer(entropy, block).fill(
        module._fill_indices, out, parameter, run_exact_round=module._sample_gap_exactly
    )
    return out[: np.searchsorted(out, size)].tolist()


def make_draws(numerator, rng, count):
    """Return draws of which many agree with the digits of a power, some for 32 digits more."""
    powers = module._compute_powers(numerator)[0]
    draws = rng.integers(0, 1 << 32, count)
    draws[::3] = powers[rng.integers(0, 8, len(draws[::3]))]
    longer = ((1 << 64) - numerator) ** 2 >> 64  # 64 digits of the second power
    draws[3:-1:9], draws[4::9] = longer >> 32, longer & 0xFFFF_FFFF
    return draws


@pytest.mark.parametrize("numerator", NUMERATORS)
def test_gaps_are_those_of_the_definition(numerator):
    """Fails if a draw is compared wrongly, above all where its digits are those of a power."""
    rng = np.random.default_rng(7)
    for count in (40, 400):
        draws = make_draws(numerator, rng, count)
        size = 40 if numerator > 1 << 60 else 3 * module._MAX_GAP
        expected = sample_slowly([*draws.tolist(), *[0] * 10_000], numerator, size)
        assert sample_from_draws(draws, numerator, size) == expected


def test_where_blocks_end_changes_nobody():
    """Fails if a draw is dropped or made twice where the stream runs out, in its middle as well."""
    draws = make_draws(NUMERATORS[1], np.random.default_rng(2), 300)
    found = [sample_from_draws(draws, NUMERATORS[1], 200, block) for block in (8, 24, 1 << 12)]
    assert found[0] == found[1] == found[2]
    assert len(found[0]) > 20


@pytest.mark.parametrize("probability", [0.0, 1e-5, 0.03, 0.5, 0.999, 1.0])
@pytest.mark.parametrize("size", [0, 1, 1000, 30_000])
def test_positions_are_some_of_all(probability, size):
    """Fails if an index is repeated, out of order or out of range; by chance below 1e-9."""
    found = draw_poisson_sample(probability, size)
    assert found.dtype == np.int64
    assert (np.diff(found) > 0).all()
    assert ((found >= 0) & (found < size)).all()
    spread = np.sqrt(size * probability * (1 - probability))
    assert abs(len(found) - size * probability) <= 7 * spread + 20 * (0 < probability < 1)


def test_room_that_is_too_small_loses_nobody(monkeypatch):
    monkeypatch.setattr(module.math, "sqrt", lambda _: -100.0)
    found = draw_poisson_sample(0.5, 4000)
    assert abs(len(found) - 2000) < 7 * 32
    assert found[-1] > 3900
