"""Discrete noise on the integers: what a source must deliver, and one for simulations.

Only exact noise from the operating system's entropy carries a guarantee. Its draws are made ahead:
what an answer is noised with was drawn before the answer was asked for. Secret keys come from the
same entropy.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from functools import partial

import numpy as np

from vicinal import checks
from vicinal.arrays import Ints
from vicinal.noise._gaussian import fill_gaussian
from vicinal.noise._gaussian_exact import gaussian_round
from vicinal.noise._uniform_bits import BitBuffer

__all__ = ["MAX_SCALE", "NoiseSource", "SimulatedNoise", "checked"]

MAX_SCALE = 1 << 40  # largest noise scale in grid steps; a million scales stay inside int64


class NoiseSource(ABC):
    """Draws integers from discrete Gaussian laws.

    A source whose `exact` is True draws from exactly the stated law, independently of everything
    else and of all other draws, with randomness that nobody can predict. Only such a source
    carries a guarantee.

    Examples
    --------
    >>> from vicinal.mechanisms import create_noise_source
    >>> create_noise_source().exact, create_noise_source(simulation_seed=0).exact
    (True, False)
    """

    exact: bool

    @abstractmethod
    def discrete_gaussian(self, scale: int, size: int) -> Ints:
        """Return `size` draws, int64 (size,), P(x) proportional to exp(-x^2 / (2 scale^2)).

        `scale` is in grid steps, a whole number from 1 to 2^40; anything else raises InvalidInput.
        """

    def add_to(self, sums: Ints, scale: int) -> Ints:
        """Return private whole numbers of any shape, each with a draw of its own: they may leave.

        Every release of the individual filter goes this one way, so that an audit can see all.
        """
        return sums + self.discrete_gaussian(scale, sums.size).reshape(sums.shape)


def checked(scale: object, size: object) -> tuple[int, int]:
    """Return a noise scale in grid steps and a number of draws, or raise InvalidInput."""
    return (
        checks.check_integer("scale", scale, least=1, most=MAX_SCALE),
        checks.check_integer("size", size, least=0),
    )


class SimulatedNoise(NoiseSource):
    """Repeatable noise for experiments: rounded reals from a seed, carrying no guarantee."""

    exact = False

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(checks.check_integer("seed", seed, least=0))

    def discrete_gaussian(self, scale: int, size: int) -> Ints:
        scale, size = checked(scale, size)
        return np.rint(self._generator.standard_normal(size) * scale).astype(np.int64)


ENTROPY_BLOCK = 1 << 15  # bytes asked of the operating system at a time: some two thousand draws
SCALES_READY = 256  # scales for which draws are kept ready; the one unused for longest goes


class SystemNoise(NoiseSource):
    """Exact sampling (proof note gaussian.md).

    Bits come from the operating system, in blocks, each bit used for one draw and then zeroed.
    Draws are made ahead; see :class:`~vicinal.noise.source.PresampledNoise` for what time
    reveals.

    Threads may share a source: one lock guards bits and draws. Another process has neither: a
    forked child, however it was forked, starts with fresh ones, and so does a copy or an unpickled
    source. No two of them ever hand out the same draw. What copies a whole running machine (a
    snapshot that is resumed twice) copies the draws, too.
    """

    exact = True

    def __init__(self) -> None:
        self._state = _ProcessState()

    def discrete_gaussian(self, scale: int, size: int) -> Ints:
        scale, size = checked(scale, size)
        # Read once: a thread that finds the parent's state goes on with the one it has created.
        state = self._state
        if state.process != os.getpid():
            state = self._state = _ProcessState()
        return state.draw(scale, size)

    def __reduce__(self) -> tuple[type[SystemNoise], tuple[()]]:
        return type(self), ()


class _ProcessState:
    """Random bits, and draws made ahead of them, of one source in one process.

    `process`: the identifier of the process that created it. It is compared at every draw, because
    a fork that does not go through Python (`fork` of the C library) calls no hook of Python.
    """

    def __init__(self) -> None:
        self.process = os.getpid()
        self._lock = threading.Lock()
        self._bits = BitBuffer(os.urandom, ENTROPY_BLOCK)
        self.pools: OrderedDict[int, PresampledNoise] = OrderedDict()

    def draw(self, scale: int, size: int) -> Ints:
        """Return `size` draws at a checked `scale`, int64 (size,)."""
        with self._lock:
            pool = self.pools.pop(scale, None) or PresampledNoise(partial(self._sample, scale))
            self.pools[scale] = pool
            if len(self.pools) > SCALES_READY:
                self.pools.popitem(last=False)
            return pool.take(size)

    def _sample(self, scale: int, size: int) -> Ints:
        out = np.zeros(size, dtype=np.int64)
        self._bits.fill(fill_gaussian, out, scale, gaussian_round)
        return out


BATCH = 64  # draws are made in multiples of this
RESERVE = 1024  # what is made ahead grows with what was asked for so far, up to this

# A call for more than this draws for itself, and nothing is kept ready for another like it.
MOST_AHEAD = 1 << 16


class PresampledNoise:
    """Independent draws of one law, each handed out once; used by one thread at a time.

    What time reveals: a call is served from draws of earlier calls, then makes up for them in
    whole batches whose sizes follow from public call sizes alone. So its duration tells nothing
    about its own noise, and about noise of later calls no more than the total work of a batch.
    The first call of a law, and one larger than what is ready, waits for its own batch.
    """

    def __init__(self, draw: Callable[[int], Ints]) -> None:
        self._draw = draw
        self._ready = np.zeros(0, dtype=np.int64)
        self._n_taken = 0

    def take(self, size: int) -> Ints:
        """Return `size` draws, int64 (size,), and zero them here."""
        if size > len(self._ready):
            self._add(size - len(self._ready))
        used = self._ready[:size]
        draws, self._ready = used.copy(), self._ready[size:]
        used.fill(0)
        # A scale that never comes back, as with private counts, should not cost a reserve.
        if self._n_taken and len(self._ready) < size <= MOST_AHEAD:
            self._add(max(size, min(self._n_taken, RESERVE)))
        self._n_taken += size
        return draws

    def _add(self, size: int) -> None:
        drawn, ready = self._draw(-(-size // BATCH) * BATCH), self._ready
        self._ready = np.concatenate([ready, drawn])
        ready.fill(0)
        drawn.fill(0)


def fresh_key(size: int = 32) -> bytes:
    """Return `size` unpredictable bytes."""
    return os.urandom(size)
