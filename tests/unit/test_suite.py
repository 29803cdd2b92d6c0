"""The suite itself: no test is lost, and what is drawn follows from a test's name."""

from __future__ import annotations

import ast
import os
import re
import tomllib
from pathlib import Path

import pytest

from entropy import SYSTEM, SeededEntropy, entropy_of
from vicinal.noise import SystemNoise, bernoulli, fresh_key

LEAST = {
    "api": 260,
    "congruence": 280,
    "crash": 12,
    "docs": 60,
    "serving": 22,
    "statistical": 220,
    "unit": 3500,
}
"""Tests of each folder, at least: fewer are a folder, a file or a list of cases that was lost."""


def test_no_folder_has_lost_tests(collected):
    """Runs with the whole suite only; whoever deletes tests on purpose lowers LEAST."""
    assert {name: collected[name] for name in LEAST if collected[name] < LEAST[name]} == {}


TESTS = Path(__file__).parents[1]


def skipped_without(module: ast.Module) -> set[str]:
    """Return the names of modules without which tests are skipped."""
    calls = (node for node in ast.walk(module) if isinstance(node, ast.Call))
    return {
        call.args[0].value
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr == "importorskip"
    }


def declared() -> set[str]:
    """Return what our extras install."""
    project = tomllib.loads((TESTS.parent / "pyproject.toml").read_text())["project"]
    wanted = [project["dependencies"], *project["optional-dependencies"].values()]
    names = (re.match(r"[\w.-]+", line) for part in wanted for line in part)
    return {name[0].lower().replace("-", "_") for name in names if name}


def test_a_test_is_skipped_only_for_want_of_what_an_extra_brings():
    """Fails if a test waits for a module of ours that was renamed, or that nothing installs."""
    found = {n for p in TESTS.rglob("*.py") for n in skipped_without(ast.parse(p.read_text()))}
    assert {name.split(".")[0] for name in found} - declared() == set()


def drawn() -> bytes:
    """Draw by every door of vicinal.noise."""
    noise = SystemNoise().discrete_gaussian(1 << 30, 50)
    return noise.tobytes() + bernoulli(0.5, 500).tobytes() + fresh_key()


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
