"""The suite itself: what is drawn follows from a test's name, no clock decides."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from entropy import SYSTEM, SeededEntropy, entropy_of
from vicinal.noise.bernoulli import sample_bernoulli
from vicinal.noise.source import SystemNoise, fresh_key

TESTS = Path(__file__).parents[1]
SOURCES = {path: path.read_text(encoding="utf-8") for path in sorted(TESTS.rglob("*.py"))}


@cache
def nodes():
    """Return all nodes of all files; not while tests are collected, which every worker does."""
    return [(path, node) for path, text in SOURCES.items() for node in ast.walk(ast.parse(text))]


def declared():
    """Return what our extras install."""
    project = tomllib.loads((TESTS.parent / "pyproject.toml").read_text())["project"]
    wanted = [project["dependencies"], *project["optional-dependencies"].values()]
    names = (re.match(r"[\w.-]+", line) for part in wanted for line in part)
    return {name[0].lower().replace("-", "_") for name in names if name}


def test_a_test_is_skipped_only_for_want_of_what_an_extra_brings():
    """Fails if a test waits for a module of ours that was renamed, or that nothing installs."""
    calls = [node for _, node in nodes() if isinstance(node, ast.Call)]
    skips = [call for call in calls if getattr(call.func, "attr", "") == "importorskip"]
    found = {call.args[0].value for call in skips}
    assert found
    known = declared()
    ours = {name for name in found if not {name.split(".")[0], name.replace(".", "_")} & known}
    assert ours == set()


def test_collection_imports_no_slow_library(modules_of_collection):
    """Fails if a module of tests imports a library for which each process waits half a second."""
    assert {"matplotlib", "ray", "sentence_transformers", "torch"} & modules_of_collection == set()


def drawn():
    """Draw by every door of vicinal.noise."""
    noise = SystemNoise().discrete_gaussian(1 << 30, 50)
    return noise.tobytes() + sample_bernoulli(0.5, 500).tobytes() + fresh_key()


def test_all_that_is_drawn_follows_from_the_name_of_the_test(request):
    entropy = entropy_of(request.config)
    if request.config.getoption("--entropy") == SYSTEM:
        pytest.skip("this run draws from the operating system")
    found = []
    for name in ("a test", "a test", "another"):
        entropy.start(name)
        found.append(drawn())
    assert found[0] == found[1] != found[2]


def test_a_name_gives_the_same_stream_again_and_another_seed_another():
    def bytes_of(seed, name):
        entropy = SeededEntropy(seed)
        entropy.start(name)
        return entropy.urandom(64)

    assert bytes_of("0", "a test") == bytes_of("0", "a test")
    assert bytes_of("0", "a test") != bytes_of("0", "another")
    assert bytes_of("0", "a test") != bytes_of("1", "a test")
    assert bytes_of(SYSTEM, "a test") != bytes_of(SYSTEM, "a test")
    assert bytes_of("0", None) != bytes_of("0", None), "a test marked `entropy`"


def test_a_process_started_as_seeded_draws_the_same_in_every_run():
    """Fails if a test that judges the answers of a process of its own could fail by chance."""
    command = [sys.executable, TESTS / "seeded.py", "-"]
    code = "from vicinal.noise.source import fresh_key; print(fresh_key())"
    runs = [subprocess.check_output(command, input=code, text=True) for _ in range(2)]
    assert runs[0] == runs[1] != ""


def test_a_forked_child_draws_for_itself():
    """Fails if parent and child could share a stream, which would hide a fault of the product."""
    entropy = SeededEntropy("0")
    entropy.start("a test")
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writer, entropy.urandom(64))
        os._exit(0)
    os.waitpid(child, 0)
    with os.fdopen(reader, "rb") as pipe:
        os.close(writer)
        assert pipe.read() != entropy.urandom(64)


LEGACY = {"Generator", "PCG64", "SeedSequence", "default_rng", "get_state"}
"""Names of numpy.random that are not its global generator, or only read it."""


def place(path, node):
    return f"{path.relative_to(TESTS)}:{node.lineno}"


def unseeded(call):
    """Tell whether a call makes a generator from the system's entropy, or uses a global one."""
    name = ast.unparse(call.func)
    if name.split(".")[-1] in ("default_rng", "RandomState", "Random", "SeedSequence"):
        return not call.args and not call.keywords
    where, _, what = name.rpartition(".")
    return where in ("np.random", "random") and what not in LEGACY


def test_every_generator_of_a_test_has_a_seed():
    calls = [(path, node) for path, node in nodes() if isinstance(node, ast.Call)]
    assert [place(path, call) for path, call in calls if unseeded(call)] == []
    for wrong in ("np.random.default_rng()", "np.random.rand(3)", "random.choice([1, 2])"):
        assert unseeded(ast.parse(wrong, mode="eval").body)
    assert not unseeded(ast.parse("np.random.default_rng(0)", mode="eval").body)


HURRY = re.compile(r"(monotonic|perf_counter|process_time|time\.time)\(\)[^<>]*<(?! end\b)")
"""A time from above, which a busy machine exceeds. `end` is minutes away: it ends what hangs."""


def test_no_assertion_bounds_a_time_from_above():
    asserts = [(path, node) for path, node in nodes() if isinstance(node, ast.Assert)]
    assert [place(path, one) for path, one in asserts if HURRY.search(ast.unparse(one.test))] == []
    hurried = HURRY.search("time.monotonic() - start < 5")
    assert hurried
