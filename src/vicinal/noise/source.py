"""Sources of discrete Gaussian noise: exact noise from system entropy, and simulated noise.

Only exact noise from the operating system's entropy gives a guarantee. Its samples are drawn in
advance, except for the first answer at a noise scale and for calls that exceed the reserve. Secret
keys come from the same entropy.
"""

from __future__ import annotations

import mmap
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
from vicinal.noise._gaussian_exact import run_gaussian_round
from vicinal.noise._uniform_bits import BitBuffer

__all__ = ["MAX_SCALE", "NoiseSource", "SimulatedNoise", "check_sample_request"]

# Largest noise scale in grid steps. A value of a million scales still fits into int64.
MAX_SCALE = 1 << 40


class NoiseSource(ABC):
    """Source of discrete Gaussian noise.

    If `exact` is True, samples have exactly the stated distribution, are independent, and come from
    unpredictable randomness. Only such a source gives a privacy guarantee.

    Examples
    --------
    >>> from vicinal.mechanisms import create_noise_source
    >>> create_noise_source().exact, create_noise_source(simulation_seed=0).exact
    (True, False)
    """

    exact: bool

    @abstractmethod
    def discrete_gaussian(self, scale: int, size: int) -> Ints:
        """Return `size` samples, int64 (size,), with P(x) proportional to exp(-x^2 / (2 scale^2)).

        `scale`: integer from 1 to 2^40, in grid steps; other values raise InvalidInput.
        """

    def add_to(self, sums: Ints, scale: int) -> Ints:
        """Return private integer sums plus independent noise, int64, which may be released.

        `sums`: int64 of any shape, in grid steps; `scale`: noise scale in grid steps. All releases
        of the individual filter use this method, so that an audit can observe them.
        """
        return sums + self.discrete_gaussian(scale, sums.size).reshape(sums.shape)


def check_sample_request(scale: object, size: object) -> tuple[int, int]:
    """Return `scale` (in grid steps) and `size` (number of samples) as integers.

    Raises InvalidInput unless 1 <= scale <= 2^40 and size >= 0.
    """
    return (
        checks.check_integer("scale", scale, minimum=1, maximum=MAX_SCALE),
        checks.check_integer("size", size, minimum=0),
    )


class SimulatedNoise(NoiseSource):
    """Repeatable noise for experiments: rounded Gaussian reals from a seed, without guarantee."""

    exact = False

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(checks.check_integer("seed", seed, minimum=0))

    def discrete_gaussian(self, scale: int, size: int) -> Ints:
        """Return `size` repeatable rounded Gaussian samples, int64, at `scale` in grid steps."""
        scale, size = check_sample_request(scale, size)
        return np.rint(self._generator.standard_normal(size) * scale).astype(np.int64)


# Bytes requested from the operating system at a time, enough for about two thousand samples.
ENTROPY_BLOCK_BYTES = 1 << 15

# Maximal number of scales for which samples are kept. The least recently used is dropped.
MAX_POOLS = 256


class SystemNoise(NoiseSource):
    """Exact discrete Gaussian noise from the operating system (proof note gaussian.md).

    Random bits are requested in blocks; each bit is used for one sample and then zeroed. Samples
    are drawn in advance; :class:`PresampledNoise` describes the information in run times.

    Threads may share a source; a lock protects bits and samples. A forked process, a copy and an
    unpickled source start with new bits, so no two ever return the same sample. A snapshot of a
    whole running machine that is resumed twice does copy the samples.
    """

    exact = True

    def __init__(self) -> None:
        self._state = _ProcessState()

    def discrete_gaussian(self, scale: int, size: int) -> Ints:
        """Return `size` exact samples, int64, at `scale` in grid steps; each is returned once."""
        scale, size = check_sample_request(scale, size)
        # Read once: another thread may replace `_state` after a fork.
        state = self._state
        if state.process != identify_process():
            state = self._state = _ProcessState()
        return state.sample(scale, size)

    def __reduce__(self) -> tuple[type[SystemNoise], tuple[()]]:
        """Return the constructor, so that copies and unpickled sources start with new bits."""
        return type(self), ()


class _ForkCounter:
    """Number of forks between the first process that imported this module and this one.

    A process identifier alone does not distinguish a child from its parent: it is reused over time,
    and the first processes of two namespaces both have 1. Python's hook counts forks by Python. The
    kernel clears the memory page in a child of any fork, also by the C library, on Linux from 4.14;
    elsewhere such a fork is detected by the identifier.
    """

    _WIPE_ON_FORK = 18
    """MADV_WIPEONFORK of Linux, which Python does not name."""

    def __init__(self) -> None:
        self.count = 0
        self._page: mmap.mmap | None = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.count_fork)
        if hasattr(mmap, "MAP_ANONYMOUS"):
            page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            try:
                page.madvise(self._WIPE_ON_FORK)
            except (OSError, ValueError):
                return
            page[0] = 1
            self._page = page

    def count_fork(self) -> None:
        """Count a fork, in the child process."""
        self.count += 1

    def read_count(self) -> int:
        """Return the number of forks, after counting a fork that Python's hook did not notice."""
        if self._page is not None and self._page[0] == 0:
            # Counted before the page is marked, so that no concurrent thread returns the old count.
            self.count_fork()
            self._page[0] = 1
        return self.count


_forks = _ForkCounter()


def identify_process() -> tuple[int, int]:
    """Return the number of forks that led to this process, and its identifier (pid)."""
    return _forks.read_count(), os.getpid()


class _ProcessState:
    """Random bits and presampled noise of one source in one process.

    Attributes: `process`, the process that created it (:func:`identify_process`), compared at every
    call; `pools`, the presampled noise by scale, the most recently used scale last.
    """

    def __init__(self) -> None:
        self.process = identify_process()
        self._lock = threading.Lock()
        self._bits = BitBuffer(os.urandom, ENTROPY_BLOCK_BYTES)
        self.pools: OrderedDict[int, PresampledNoise] = OrderedDict()

    def sample(self, scale: int, size: int) -> Ints:
        """Return `size` noise samples, int64 (size,), at a valid `scale` in grid steps.

        They are taken from the pool of presampled noise of that scale.
        """
        with self._lock:
            pool = self.pools.pop(scale, None) or PresampledNoise(
                partial(self._draw_samples, scale)
            )
            self.pools[scale] = pool
            if len(self.pools) > MAX_POOLS:
                self.pools.popitem(last=False)
            return pool.take_samples(size)

    def _draw_samples(self, scale: int, size: int) -> Ints:
        """Return `size` new samples at `scale` in grid steps, int64 (size,), from random bits."""
        samples = np.zeros(size, dtype=np.int64)
        self._bits.fill(fill_gaussian, samples, scale, run_gaussian_round)
        return samples


# Samples are drawn in advance in multiples of this number.
BATCH_SIZE = 64

# Limit on the growth of the reserve of unused samples with the number already used.
MAX_RESERVE_SIZE = 1024

# A call for more samples than this draws them itself and adds no reserve for a similar call.
MAX_PREDRAWN_CALL_SIZE = 1 << 16


class PresampledNoise:
    """Buffer of independent samples, each returned once. For one thread at a time.

    Information in the run time: a call returns samples drawn in earlier calls, and then refills the
    buffer in whole batches whose sizes depend on public call sizes alone. Its run time therefore
    reveals nothing about its own noise, and about later noise only the total run time of its batch.
    The first call, and a call for more samples than are buffered, wait for their own batch.

    `draw`: function that returns a given number of new samples.
    """

    def __init__(self, draw: Callable[[int], Ints]) -> None:
        self._draw = draw
        self._unused = np.zeros(0, dtype=np.int64)
        self._n_taken = 0

    def take_samples(self, size: int) -> Ints:
        """Return `size` samples, int64 (size,), and zero them in the buffer.

        If fewer than `size` then remain, it is refilled, except by the first or a very large call.
        """
        if size > len(self._unused):
            self._draw_batches(size - len(self._unused))
        used = self._unused[:size]
        samples = used.copy()
        self._unused = self._unused[size:]
        used.fill(0)
        # The first call builds no reserve: many scales, such as those of noisy counts, occur once.
        if self._n_taken and len(self._unused) < size <= MAX_PREDRAWN_CALL_SIZE:
            self._draw_batches(max(size, min(self._n_taken, MAX_RESERVE_SIZE)))
        self._n_taken += size
        return samples

    def _draw_batches(self, size: int) -> None:
        """Draw at least `size` samples, in whole batches, and append them to the buffer."""
        new_samples = self._draw(-(-size // BATCH_SIZE) * BATCH_SIZE)
        old_samples = self._unused
        self._unused = np.concatenate([old_samples, new_samples])
        old_samples.fill(0)
        new_samples.fill(0)


def fresh_key(size: int = 32) -> bytes:
    """Return a new secret key: `size` unpredictable bytes of system entropy."""
    return os.urandom(size)
