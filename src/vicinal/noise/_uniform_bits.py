"""Random bits for compiled samplers: a buffer that is read once, zeroed, and never skips a bit.

A compiled sampler reads bits one after the other. When they run out in the middle of a draw it
raises `OutOfBits`; the buffer appends fresh bits and the draw starts again *from its own first
bit*. So every draw is the same function of an endless string of fair bits, wherever the blocks of
entropy end; to give such a draw up for a new one would favour draws that need few bits.

`place`, int64 (3,), says where reading stands: the next bit, the end of what may be read, and the
mark, which is the first bit of the draw in hand.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from vicinal.arrays import AnyArray
from vicinal.compiled import compiled

NEXT, END, MARK = 0, 1, 2

_ALL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_ONE = np.uint64(1)


class OutOfBits(Exception):
    """The sampler needs more bits than are left; never leaves this package."""


class Undecided(Exception):
    """The sampler needs more than doubles tell; never leaves this package."""


@compiled
def next_bit(words, place):  # type: ignore[no-untyped-def]
    """Return the next bit as a truth value."""
    at = place[NEXT]
    if at >= place[END]:
        raise OutOfBits
    place[NEXT] = at + 1
    return (words[at >> 6] >> np.uint64(at & 63)) & _ONE == _ONE


@compiled
def next_bits(words, place, count):  # type: ignore[no-untyped-def]
    """Return the next `count` bits, 0 to 64, as uint64: the first of them is the lowest."""
    at = place[NEXT]
    if at + count > place[END]:
        raise OutOfBits
    place[NEXT] = at + count
    if count == 0:
        return np.uint64(0)
    offset = at & 63
    bits = words[at >> 6] >> np.uint64(offset)
    if offset + count > 64:
        bits |= words[(at >> 6) + 1] << np.uint64(64 - offset)
    return bits & (_ALL >> np.uint64(64 - count))


class BitBuffer:
    """Bits from `entropy`, handed to compiled samplers; used by one thread at a time.

    `entropy` returns that many independent, uniform bytes; it is asked for `block` at a time, a
    multiple of 8.
    """

    def __init__(self, entropy: Callable[[int], bytes], block: int) -> None:
        self._entropy = entropy
        self._block = block
        self.words = np.zeros(0, dtype=np.uint64)
        self.place = np.zeros(3, dtype=np.int64)

    def fill(
        self,
        sampler: Callable[..., Any],
        out: AnyArray,
        parameter: object,
        exactly: Callable[..., Any] | None = None,
    ) -> None:
        """Fill `out` by `sampler(words, place, out, done, parameter)`, and zero the bits it used.

        `done`, int64 (1,), counts the finished entries; the sampler moves the mark with it. Where
        it is `Undecided`, `exactly` does one round from the mark on, the same function of the bits.
        """
        done = np.zeros(1, dtype=np.int64)
        # An interrupted call may have left a draw half-way: nobody saw it, it starts again.
        self.place[NEXT] = self.place[MARK]
        if self.place[NEXT] == self.place[END]:
            self._refill()
        step = sampler
        while True:
            try:
                step(self.words, self.place, out, done, parameter)
                if step is sampler:
                    break
                step = sampler
            except Undecided:
                assert exactly is not None  # noqa: S101 (samplers that raise it have one)
                self.place[NEXT] = self.place[MARK]
                step = exactly
            except OutOfBits:
                self._refill()
        self.words[: self.place[MARK] >> 6] = 0

    def _refill(self) -> None:
        """Go back to the mark, drop what lies before it and append a block.

        An interruption between any two lines leaves a buffer without bits or one with bits that
        nobody has read, never one with used or zeroed bits.
        """
        fresh = np.frombuffer(self._entropy(self._block), dtype="<u8").astype(np.uint64)
        mark, end = int(self.place[MARK]), int(self.place[END])
        joined = np.concatenate([self.words[mark >> 6 : end >> 6], fresh])
        self.place[:] = 0
        self.words.fill(0)
        fresh.fill(0)
        self.words = joined
        self.place[:] = (mark & 63, 64 * len(joined), mark & 63)
