"""Seeded entropy: what a test draws in this process follows from its name, not from luck.

The product reads the system's entropy in `vicinal.noise` alone, and there every test gets a stream
of its own, seeded by its node id; so does every fixture of a wider scope. The samplers are the real
ones: only their bits can be had again. Forked children, other processes and tests marked `entropy`
draw from the operating system; a test that judges the answers of another process starts it by
`seeded.py`. ``pytest --entropy 7`` is another seed, ``--entropy system`` none. What modules of
tests draw while they are imported is seeded by their names.

What this cannot order is which of several threads of a test draws first: no outcome of such a test
may depend on what is drawn.
"""

import importlib
import os
import threading
import zlib

import numpy as np
import pytest

SYSTEM = "system"
DOORS = ("bernoulli", "source")
"""The modules of vicinal.noise that read entropy."""


class SeededEntropy:
    """Stands in for the module `os` in vicinal.noise: its `urandom` can be seeded."""

    def __init__(self, seed):
        self._seed = seed
        self._process = os.getpid()
        self._lock = threading.Lock()
        self.stream = None

    def __getattr__(self, name):
        return getattr(os, name)

    @property
    def seeds(self):
        """Whether tests are seeded at all."""
        return self._seed != SYSTEM

    def start(self, name):
        """Start the stream of `name`, or the system's if that is None."""
        self.stream = None if name is None else self._stream_of(name)

    def urandom(self, size):
        """Return bytes of the stream; of the operating system in a forked child."""
        with self._lock:
            if self.stream is None or os.getpid() != self._process:
                return os.urandom(size)
            return self.stream.bytes(size)

    def _stream_of(self, name):
        if self._seed == SYSTEM:
            return None
        return np.random.default_rng(zlib.crc32(f"{self._seed} {name}".encode()))


def pytest_addoption(parser):
    parser.addoption("--entropy", default="0", metavar="SEED", help=f"seed of noise, or {SYSTEM!r}")


def pytest_collectstart(collector):
    entropy_of(collector.config).start(f"while collecting {collector.nodeid}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    marked = item.get_closest_marker("entropy")
    entropy_of(item.config).start(None if marked else item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    """Give a fixture that several tests share a stream of its own, whichever test comes first."""
    if fixturedef.scope == "function":
        return (yield)
    entropy = entropy_of(request.config)
    before = entropy.stream
    entropy.start(f"{fixturedef.baseid} {fixturedef.argname} {request.param_index}")
    try:
        return (yield)
    finally:
        entropy.stream = before


def entropy_of(config):
    """Return what stands in for the system's entropy, put in its place on first use."""
    if _ENTROPY not in config.stash:
        config.stash[_ENTROPY] = installed(config.getoption("--entropy"))
    return config.stash[_ENTROPY]


def installed(seed):
    """Put what stands in for the system's entropy in its place, in this process, and return it."""
    from vicinal.mechanisms.noise_sources import SystemBernoulli

    found = SeededEntropy(seed)
    for name in DOORS:
        importlib.import_module(f"vicinal.noise.{name}").os = found
    # Which thread draws first is luck, too: where coins are seeded, they are tossed in turn.
    SystemBernoulli.ordered = property(lambda _: found.stream is not None)
    return found


_ENTROPY = pytest.StashKey[SeededEntropy]()
