"""Seeded entropy: what a test draws in this process follows from its name, not from luck.

The product reads the system's entropy in `vicinal.noise` alone, and there every test gets a stream
of its own, seeded by its node id; so does every fixture of a wider scope. The samplers are the real
ones: only their bits can be had again. Forked children, other processes and tests marked `entropy`
draw from the operating system; a test that judges the answers of another process starts it by
`seeded.py`. ``pytest --entropy 7`` is another seed, ``--entropy system`` none. What modules of
tests draw while they are imported is seeded by their names.

A process that a test has started, or a fork of it, notes that it draws (children/sitecustomize.py).
The test fails if its file does not stand in CHILDREN_DRAW, with the reason why it cannot fail by
chance all the same.

What this cannot order is which of several threads of a test draws first: no outcome of such a test
may depend on what is drawn.
"""

from __future__ import annotations

import importlib
import os
import tempfile
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest

from children import sitecustomize

SYSTEM = "system"
DOORS = ("_bernoulli", "_source")
"""The modules of vicinal.noise that read entropy."""


CHILDREN = Path(__file__).parent / "children"
CHARGES = "charges, counts and what is refused are compared: no noise is in them"
BITS = "answers are compared with the ones that left before, and noise is part of both"
CHILDREN_DRAW = {
    "tests/api/test_cli.py": "the answers are counted, and how many are right is not asked",
    "tests/api/test_shards_cli.py": CHARGES,
    "tests/congruence/test_shards.py": "what is compared has simulated noise; keys are true",
    "tests/crash/test_cluster_kill.py": CHARGES,
    "tests/crash/test_copies_kill.py": CHARGES,
    "tests/crash/test_staged_kill.py": CHARGES,
    "tests/crash/test_takeover_kill.py": CHARGES,
    "tests/crash/test_service_kill.py": BITS,
    "tests/crash/test_store_kill.py": BITS,
    "tests/crash/test_transfer_kill.py": BITS,
    "tests/docs/test_readme.py": "the guarantee is read, not the answers",
    "tests/docs/test_tables_page.py": "of the service that is started one label of two is read",
    "tests/serving/test_docs.py": "what is read has the right form, whatever the noise is",
    "tests/statistical/test_copies.py": "a fork is refused before it draws for an answer",
    "tests/unit/test_compiled.py": "no answer is read, only whether one was refused",
    "tests/unit/noise/test_system.py": "draws of 64 bytes or more are unequal: probability 2^-512",
    "tests/unit/test_distributed_actors.py": CHARGES,
    "tests/unit/test_distributed_changes.py": CHARGES,
    "tests/unit/test_distributed_extraction.py": CHARGES,
    "tests/unit/test_distributed_namespaces.py": "machines begin and end, and answer nothing",
    "tests/unit/test_serving_load.py": BITS,
    "tests/unit/test_start_up.py": "what a store loads is asked, and no answer",
    "tests/unit/test_store_failures.py": BITS,
}
"""Files of tests whose other processes draw true noise, and why no outcome hangs on it."""


class SeededEntropy:
    """Stands in for the module `os` in vicinal.noise: its `urandom` can be seeded."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._process = os.getpid()
        self._lock = threading.Lock()
        self.stream = None

    def __getattr__(self, name):
        return getattr(os, name)

    @property
    def seeds(self) -> bool:
        """Whether tests are seeded at all."""
        return self._seed != SYSTEM

    def start(self, name: str | None) -> None:
        """Start the stream of `name`, or the system's if that is None."""
        self.stream = None if name is None else self._stream_of(name)

    def urandom(self, size: int) -> bytes:
        """Return bytes of the stream; of the operating system in a forked child."""
        with self._lock:
            if os.getpid() != self._process:
                sitecustomize.note()
            if self.stream is None or os.getpid() != self._process:
                return os.urandom(size)
            return self.stream.bytes(size)

    def _stream_of(self, name):
        if self._seed == SYSTEM:
            return None
        return np.random.default_rng(zlib.crc32(f"{self._seed} {name}".encode()))


def pytest_addoption(parser):
    parser.addoption("--entropy", default="0", metavar="SEED", help=f"seed of noise, or {SYSTEM!r}")


def pytest_configure(config):
    """Let every process that is started from now on note what it draws."""
    notes = tempfile.TemporaryDirectory(prefix="draws-")
    os.environ["NOTED_DRAWS"] = notes.name
    others = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    absolute = map(os.path.abspath, others)  # a process may start in another folder
    kept = [path for path in absolute if path != str(CHILDREN)]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(CHILDREN), *kept])
    config.add_cleanup(notes.cleanup)


def undeclared() -> set[str]:
    """Return the files of tests that must stand in CHILDREN_DRAW, and do not."""
    found = Path(os.environ["NOTED_DRAWS"]).iterdir()
    return {path.name.replace("+", "/") for path in found} - CHILDREN_DRAW.keys()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    """Fail a test after which a draw has been noted that nobody has declared."""
    yield
    if entropy_of(item.config).seeds and (found := undeclared()):
        pytest.fail(f"processes of {sorted(found)} draw true noise; see entropy.CHILDREN_DRAW")


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


def entropy_of(config) -> SeededEntropy:
    """Return what stands in for the system's entropy, put in its place on first use."""
    if _ENTROPY not in config.stash:
        config.stash[_ENTROPY] = installed(config.getoption("--entropy"))
    return config.stash[_ENTROPY]


def installed(seed: str) -> SeededEntropy:
    """Put what stands in for the system's entropy in its place, in this process, and return it."""
    from vicinal.mechanisms._sampling import SystemBernoulli

    found = SeededEntropy(seed)
    for name in DOORS:
        importlib.import_module(f"vicinal.noise.{name}").os = found
    # Which thread draws first is luck, too: where coins are seeded, they are tossed in turn.
    SystemBernoulli.ordered = property(lambda _: found.stream is not None)
    return found


_ENTROPY = pytest.StashKey[SeededEntropy]()
