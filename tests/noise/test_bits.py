"""The bit buffer returns every bit once, in order, independently of the ends of blocks."""

import numpy as np
import pytest

from vicinal.noise._gaussian import fill_gaussian
from vicinal.noise._gaussian_exact import run_gaussian_round
from vicinal.noise._uniform_bits import END, MARK, NEXT, BitBuffer, OutOfBits, read_bit, read_bits

SCALES = (1, 3, 1 << 22, 1 << 40)


class Stream:
    """Repeatable bytes, with a count of requests."""

    def __init__(self, seed=5):
        self._generator = np.random.default_rng(seed)
        self.calls = 0

    def __call__(self, size):
        self.calls += 1
        return self._generator.bytes(size)


def make_bits(number, bits):
    """Return (words, cursor) that hold the lowest `bits` of `number`, lowest first."""
    words = [number >> shift & (1 << 64) - 1 for shift in range(0, bits + 64, 64)]
    return np.array(words, dtype=np.uint64), np.array([0, bits, 0])


def draw_samples(buffer, sampler, scale, size):
    out = np.zeros(size, dtype=np.int64)
    buffer.fill(sampler, out, scale, run_gaussian_round)
    return out


def test_bits_of_every_offset_and_count_are_read_once_in_order():
    number = int.from_bytes(Stream()(16), "little") | 1 << 64
    words, cursor = make_bits(number, 128)
    for offset in range(64):
        for count in range(65):
            cursor[NEXT] = offset
            assert int(read_bits(words, cursor, count)) == number >> offset & (1 << count) - 1
            assert cursor[NEXT] == offset + count
        cursor[NEXT] = offset
        assert read_bit(words, cursor) == bool(number >> offset & 1)
        assert cursor[NEXT] == offset + 1


@pytest.mark.parametrize("read", [lambda *p: read_bits(*p, 5), read_bit])
def test_the_end_is_never_passed(read):
    words, cursor = make_bits((1 << 64) - 1, 4)
    cursor[NEXT] = 4
    with pytest.raises(OutOfBits):
        read(words, cursor)
    assert cursor[NEXT] == 4


@pytest.mark.parametrize("scale", SCALES)
def test_where_blocks_end_changes_no_draw(scale):
    """Fails if a sample that runs out of bits is replaced by one with other bits: a bias."""
    small_blocks, large_blocks = Stream(), Stream()
    small = draw_samples(BitBuffer(small_blocks, 8), fill_gaussian, scale, 300)
    large = draw_samples(BitBuffer(large_blocks, 1 << 20), fill_gaussian, scale, 300)
    np.testing.assert_array_equal(small, large)
    assert small_blocks.calls > 20
    assert large_blocks.calls == 1


class GivesUp(BitBuffer):
    """Deliberate fault: a sample that runs out of bits is restarted with new ones."""

    def _refill_words(self):
        self.cursor[:] = 0
        super()._refill_words()


def fill_lengths(words, cursor, out, n_done, _):
    """Sample the number of bytes until one is below 64; larger samples need more bits."""
    while n_done[0] < len(out):
        out[n_done[0]] = 1
        while read_bits(words, cursor, 8) >= 64:
            out[n_done[0]] += 1
        n_done[0] += 1
        cursor[MARK] = cursor[NEXT]


def test_giving_up_is_caught():
    """Fails if the test above would accept a buffer that drops bits; shows the bias."""
    ours = draw_samples(BitBuffer(Stream(), 8), fill_lengths, 1, 20_000)
    biased = draw_samples(GivesUp(Stream(), 8), fill_lengths, 1, 20_000)
    assert not np.array_equal(ours[:300], biased[:300])
    assert np.abs(biased).mean() < 0.95 * np.abs(ours).mean()


def test_used_bits_are_zeroed():
    buffer = BitBuffer(Stream(), 4096)
    draw_samples(buffer, fill_gaussian, 1 << 22, 20)
    used, end = int(buffer.cursor[MARK]) >> 6, int(buffer.cursor[END]) >> 6
    assert 0 < used < end == 512
    assert not buffer.words[:used].any()
    assert buffer.words[used + 1 :].all()
    earlier = buffer.words
    draw_samples(buffer, fill_gaussian, 1 << 22, 1000)
    assert buffer.words is not earlier
    assert not earlier.any()


def test_an_interruption_reuses_and_zeroes_nothing_unread():
    """Fails if an interrupted call leaves used or zeroed bits for the next call."""
    source = Stream()

    def interrupted(size):
        if source.calls == 3:
            source.calls += 1
            raise KeyboardInterrupt
        return source(size)

    buffer = BitBuffer(interrupted, 64)
    with pytest.raises(KeyboardInterrupt):
        draw_samples(buffer, fill_gaussian, 1 << 22, 100)
    samples_after = draw_samples(buffer, fill_gaussian, 1 << 22, 20)
    undisturbed = draw_samples(BitBuffer(Stream(), 64), fill_gaussian, 1 << 22, 100)
    start = int(np.flatnonzero(undisturbed == samples_after[0])[0])
    assert start > 0
    np.testing.assert_array_equal(samples_after, undisturbed[start : start + 20])
