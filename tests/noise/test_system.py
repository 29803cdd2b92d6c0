"""Presampled noise: no sample is returned twice, also by copies of a source, and none is late."""

import copy
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import numpy as np
import pytest

from vicinal.errors import InvalidInput
from vicinal.noise.source import (
    BATCH_SIZE,
    MAX_POOLS,
    MAX_PREDRAWN_CALL_SIZE,
    MAX_RESERVE_SIZE,
    PresampledNoise,
    SimulatedNoise,
    SystemNoise,
)

LARGE = 1 << 40


class Numbered:
    """Returns 1, 2, 3, ... and records the sizes of requests."""

    def __init__(self):
        self._next = count(1)
        self.sizes = []

    def __call__(self, size):
        self.sizes.append(size)
        return np.array([next(self._next) for _ in range(size)], dtype=np.int64)

    @property
    def made(self):
        return sum(self.sizes)


@pytest.mark.parametrize("sizes", [[10] * 400, [2560] * 5, [1, 0, 700, 3, 64, 5000, 2], [7] * 99])
def test_every_draw_is_handed_out_once_and_in_order(sizes):
    pool = PresampledNoise(Numbered())
    taken = np.concatenate([pool.take_samples(size) for size in sizes])
    np.testing.assert_array_equal(taken, np.arange(1, sum(sizes) + 1))


@pytest.mark.parametrize("size", [1, 10, 64, 2560])
def test_noise_is_drawn_before_it_is_asked_for(size):
    """Fails if, after the second call of a law, a call waits for the draws of its own noise."""
    source = Numbered()
    pool = PresampledNoise(source)
    pool.take_samples(size), pool.take_samples(size)
    for _ in range(300):
        made = source.made
        assert pool.take_samples(size).max() <= made


def test_batches_depend_on_public_sizes_alone():
    source, other = Numbered(), Numbered()
    pool, second = PresampledNoise(source), PresampledNoise(lambda size: -5 * other(size))
    for size in [10] * 300:
        pool.take_samples(size), second.take_samples(size)
    assert source.sizes == other.sizes
    assert source.sizes[0] == BATCH_SIZE
    assert source.sizes[-1] == MAX_RESERVE_SIZE
    assert source.sizes == sorted(source.sizes)
    assert source.made < 2 * 3000 + MAX_RESERVE_SIZE


def test_pools_hold_no_more_than_a_law_is_asked_for():
    """Fails if a scale that is used once, as with private counts, pays for more than a batch."""
    source = Numbered()
    PresampledNoise(source).take_samples(10)
    assert source.made == BATCH_SIZE
    source = Numbered()
    pool = PresampledNoise(source)
    pool.take_samples(10), pool.take_samples(MAX_PREDRAWN_CALL_SIZE + 1)
    assert source.made < MAX_PREDRAWN_CALL_SIZE + 2 * BATCH_SIZE


def test_draws_are_zeroed_once_they_are_handed_out():
    made = []

    def draw_and_keep(size):
        made.append(np.arange(1, size + 1))
        return made[-1]

    pool = PresampledNoise(draw_and_keep)
    assert pool.take_samples(10).all()
    base = pool._unused.base
    assert not base[:10].any()
    assert base[10:].all()
    assert pool.take_samples(100).all()
    assert not base.any()
    assert not any(draws.any() for draws in made)


def are_distinct(*draws):
    """Return whether no draw appears twice; at scale 2^40 chance alone never does it."""
    everything = np.concatenate(draws)
    return len(np.unique(everything)) == len(everything)


def test_copies_share_no_draws():
    source = SystemNoise()
    source.discrete_gaussian(LARGE, 10), source.discrete_gaussian(LARGE, 10)
    copies = copy.copy(source), copy.deepcopy(source), pickle.loads(pickle.dumps(source))
    assert are_distinct(*(each.discrete_gaussian(LARGE, 500) for each in (source, *copies)))


def test_threads_share_no_draws():
    source = SystemNoise()
    with ThreadPoolExecutor(8) as threads:
        draws = list(threads.map(lambda _: source.discrete_gaussian(LARGE, 25), range(400)))
    assert are_distinct(*draws)


FORKS = """
import ctypes
import os
import numpy as np
from vicinal.noise import source as source_module
from vicinal.noise.source import SystemNoise

def distinct_draws(mode):
    source = SystemNoise()
    source.discrete_gaussian(1 << 40, 10), source.discrete_gaussian(1 << 40, 10)
    state = source._state
    if mode == "broken":
        source_module.identify_process = lambda: state.process
    elif mode == "held":
        state._lock.acquire()
    if mode.startswith("one pid"):
        os.getpid = lambda: 1  # as in two namespaces, or after the numbers are used up
        source = SystemNoise()
        source.discrete_gaussian(1 << 40, 10), source.discrete_gaussian(1 << 40, 10)
    fork = ctypes.CDLL(None).fork if mode.endswith("outside Python") else os.fork
    reader, writer = os.pipe()
    for _ in range(3):
        if fork() == 0:
            os.write(writer, source.discrete_gaussian(1 << 40, 100).tobytes())
            os._exit(0)
        os.wait()
    if mode == "held":
        state._lock.release()
    draws = [np.frombuffer(os.read(reader, 800), dtype=np.int64) for _ in range(3)]
    draws.append(source.discrete_gaussian(1 << 40, 100))
    return len(np.unique(np.concatenate(draws)))

SystemNoise().discrete_gaussian(1 << 40, 1)  # loads the compiled code once for all modes
for mode in ("plain", "held", "outside Python", "one pid", "one pid outside Python", "broken"):
    if os.fork() == 0:
        print(mode, distinct_draws(mode), sep=":", flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def distinct_after_forks():
    """Return how many of 400 draws differ in each mode, all of them forks of a fresh process."""
    command = [sys.executable, "-W", "ignore", "-c", FORKS]
    report = subprocess.run(command, capture_output=True, text=True, check=True, timeout=480)
    return {
        mode: int(found) for mode, found in (line.split(":") for line in report.stdout.splitlines())
    }


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="needs fork")
@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        pytest.param("plain", True, id="parent and children differ"),
        pytest.param("held", True, id="while another thread draws"),
        pytest.param("outside Python", True, id="by the C library"),
        pytest.param("one pid", True, id="with the parent's identifier"),
        pytest.param("one pid outside Python", True, id="by the C library with that identifier"),
        pytest.param("broken", False, id="pools that survive a fork are caught"),
    ],
)
def test_forked_children_draw_their_own_noise(distinct_after_forks, mode, expected):
    """Fails if a child repeats draws of its parent or siblings, or waits for a lost lock."""
    assert (distinct_after_forks[mode] == 400) is expected


def test_only_so_many_scales_are_kept_ready():
    source = SystemNoise()
    for scale in range(1, 3 * MAX_POOLS):
        source.discrete_gaussian(scale, 1)
    assert len(source._state.pools) == MAX_POOLS
    assert next(reversed(source._state.pools)) == 3 * MAX_POOLS - 1


def test_scales_are_kept_apart():
    source = SystemNoise()
    for _ in range(3):
        small, large = (source.discrete_gaussian(scale, 200) for scale in (1, LARGE))
        assert np.abs(small).max() < 20
        assert np.abs(large).max() > LARGE


@pytest.mark.parametrize("source", [SystemNoise(), SimulatedNoise(1)], ids=["system", "simulated"])
class TestArguments:
    """The same for every source."""

    @pytest.mark.parametrize("scale", [0, -1, 0.5, 1e7, LARGE + 1, float("nan"), True, "3", None])
    def test_scale(self, source, scale):
        """Fails if a scale is silently rounded, or large enough to overflow."""
        with pytest.raises(InvalidInput, match="scale"):
            source.discrete_gaussian(scale, 1)

    @pytest.mark.parametrize("size", [-1, 2.5, float("inf"), True, "3", None])
    def test_size(self, source, size):
        with pytest.raises(InvalidInput, match="size"):
            source.discrete_gaussian(5, size)

    def test_nothing_is_a_size(self, source):
        draws = source.discrete_gaussian(5, 0)
        assert draws.shape == (0,)
        assert draws.dtype == np.int64
