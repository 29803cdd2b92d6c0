"""Buffer of random bits for compiled samplers; every bit is used once and then zeroed.

A compiled sampler works in rounds, each of which reads bits one after the other and yields at most
one entry of the result. If the bits run out in the middle of a round, the sampler raises
`OutOfBits`; the buffer appends new bits, and the round starts again *from its own first bit*. Every
sample is therefore the same function of an infinite string of fair bits, wherever the blocks of
entropy end. Discarding the unfinished round instead would favor samples that need few bits.

Two arrays recur. `words`, uint64, holds the bits, 64 in each word, the first bit as the least
significant. `cursor`, int64 (3,), is the position in them: the index of the next bit (NEXT), the
end of the readable bits (END), and the mark (MARK), which is the first bit of the current round.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from vicinal.arrays import AnyArray
from vicinal.compiled import compiled

NEXT, END, MARK = 0, 1, 2  # indices in `cursor`

_ALL_BITS = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_ONE = np.uint64(1)


class OutOfBits(Exception):
    """The sampler needs more bits than the buffer holds; never raised outside this package."""


class Undecided(Exception):
    """The sampler needs more precision than doubles have; never raised outside this package."""


@compiled
def read_bit(words, cursor):  # type: ignore[no-untyped-def]
    """Return the next bit as a bool and advance the cursor; raise OutOfBits at the end."""
    bit = cursor[NEXT]
    if bit >= cursor[END]:
        raise OutOfBits
    cursor[NEXT] = bit + 1
    return (words[bit >> 6] >> np.uint64(bit & 63)) & _ONE == _ONE


@compiled
def read_bits(words, cursor, count):  # type: ignore[no-untyped-def]
    """Return the next `count` bits (int, 0 to 64) as uint64; the first is the least significant.

    Advances the cursor; raises OutOfBits, without advancing it, if there are fewer.
    """
    bit = cursor[NEXT]
    if bit + count > cursor[END]:
        raise OutOfBits
    cursor[NEXT] = bit + count
    if count == 0:
        return np.uint64(0)
    offset = bit & 63
    bits = words[bit >> 6] >> np.uint64(offset)
    if offset + count > 64:
        bits |= words[(bit >> 6) + 1] << np.uint64(64 - offset)
    return bits & (_ALL_BITS >> np.uint64(64 - count))


class BitBuffer:
    """Buffer of random bits, read by compiled samplers; for one thread at a time.

    - `get_entropy`: function that returns a given number of independent, uniform bytes.
    - `n_block_bytes`: number of bytes requested from it at a time, a multiple of 8.
    """

    def __init__(self, get_entropy: Callable[[int], bytes], n_block_bytes: int) -> None:
        self._get_entropy = get_entropy
        self._n_bytes = n_block_bytes
        self.words = np.zeros(0, dtype=np.uint64)
        self.cursor = np.zeros(3, dtype=np.int64)

    def fill(
        self,
        sampler: Callable[..., Any],
        samples: AnyArray,
        parameter: object,
        run_exact_round: Callable[..., Any] | None = None,
    ) -> None:
        """Fill `samples` with the output of a sampler and zero the words whose bits are all used.

        - `sampler`: called as ``sampler(words, cursor, samples, n_done, parameter)``. `n_done`,
          int64 (1,), is the number of finished entries; the sampler advances it and the mark.
        - `parameter`: passed on to the sampler: the parameter of its distribution, in its own form.
        - `run_exact_round`: called with the same arguments when the sampler raises `Undecided`; it
          decides the one round that starts at the mark, as the same function of the bits.
        """
        n_done = np.zeros(1, dtype=np.int64)
        # An interrupted call may have left an unfinished round. Its sample was never returned, so
        # the round starts again.
        self.cursor[NEXT] = self.cursor[MARK]
        if self.cursor[NEXT] == self.cursor[END]:
            self._refill_words()
        step = sampler
        while True:
            try:
                step(self.words, self.cursor, samples, n_done, parameter)
                if step is sampler:
                    break
                step = sampler
            except Undecided:
                assert run_exact_round is not None  # noqa: S101 (samplers that raise it have one)
                self.cursor[NEXT] = self.cursor[MARK]
                step = run_exact_round
            except OutOfBits:
                self._refill_words()
        self.words[: self.cursor[MARK] >> 6] = 0

    def _refill_words(self) -> None:
        """Drop the bits before the mark, append a block of new bits and go back to the mark.

        An interruption between any two statements leaves a buffer without bits, or one with unread
        bits only, never one with used or zeroed bits.
        """
        fresh_words = np.frombuffer(self._get_entropy(self._n_bytes), dtype="<u8").astype(np.uint64)
        mark, end = int(self.cursor[MARK]), int(self.cursor[END])
        joined_words = np.concatenate([self.words[mark >> 6 : end >> 6], fresh_words])
        self.cursor[:] = 0
        self.words.fill(0)
        fresh_words.fill(0)
        self.words = joined_words
        self.cursor[:] = (mark & 63, 64 * len(joined_words), mark & 63)
