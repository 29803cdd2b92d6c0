"""Draws made ahead: what an answer is noised with was drawn before the answer was asked for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Draws = npt.NDArray[np.int64]

BATCH = 64
"""Draws are made in multiples of this."""

RESERVE = 1024
"""What is made ahead grows with what was asked for so far, up to this."""

MOST_AHEAD = 1 << 16
"""A call for more than this draws for itself, and nothing is kept ready for another like it."""


class PresampledNoise:
    """Independent draws of one law, each handed out once; used by one thread at a time.

    What time reveals: a call is served from draws of earlier calls, then makes up for them in
    whole batches whose sizes follow from public call sizes alone. So its duration tells nothing
    about its own noise, and about noise of later calls no more than the total work of a batch.
    The first call of a law, and one larger than what is ready, waits for its own batch.

    Parameters
    ----------
    draw : Callable[[int], int64 (size,)]
        Returns that many independent draws.
    """

    def __init__(self, draw: Callable[[int], Draws]) -> None:
        self._draw = draw
        self._ready = np.zeros(0, dtype=np.int64)
        self._asked = 0

    def take(self, size: int) -> Draws:
        """Return `size` draws, int64 (size,), and zero them here."""
        if size > len(self._ready):
            self._add(size - len(self._ready))
        used = self._ready[:size]
        taken, self._ready = used.copy(), self._ready[size:]
        used.fill(0)
        # A scale that never comes back, as with private counts, should not cost a reserve.
        if self._asked and len(self._ready) < size <= MOST_AHEAD:
            self._add(max(size, min(self._asked, RESERVE)))
        self._asked += size
        return taken

    def _add(self, size: int) -> None:
        made, left = self._draw(-(-size // BATCH) * BATCH), self._ready
        self._ready = np.concatenate([left, made])
        left.fill(0)
        made.fill(0)
