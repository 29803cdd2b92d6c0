"""The suite itself: no test is lost, what is drawn follows from a test's name, no clock decides."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

import processor_time
from distribution import LONGEST, ON_RAY, file_of
from entropy import CHILDREN_DRAW, SYSTEM, SeededEntropy, entropy_of, undeclared
from vicinal.noise import SystemNoise, bernoulli, fresh_key

LEAST = {
    "api": 410,
    "congruence": 405,
    "crash": 23,
    "docs": 2200,
    "serving": 28,
    "statistical": 280,
    "unit": 5100,
}
"""Tests of each folder, at least: fewer are a folder, a file or a list of cases that was lost."""


def test_no_folder_has_lost_tests(collected):
    """Runs with the whole suite only; whoever deletes tests on purpose lowers LEAST."""
    assert {name: collected[name] for name in LEAST if collected[name] < LEAST[name]} == {}


TESTS = Path(__file__).parents[1]
SOURCES = {path: path.read_text(encoding="utf-8") for path in sorted(TESTS.rglob("*.py"))}


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
    known = declared()
    ours = {name for name in found if not {name.split(".")[0], name.replace(".", "_")} & known}
    assert ours == set()


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


@pytest.fixture
def notes(tmp_path, monkeypatch):
    """Let draws be noted apart, as this file has not declared any."""
    monkeypatch.setenv("NOTED_DRAWS", str(tmp_path))


@pytest.mark.usefixtures("notes")
@pytest.mark.parametrize(
    ("starts", "noted"), [((), {"tests/unit/test_suite.py"}), ((TESTS / "seeded.py",), set())]
)
def test_a_process_that_draws_true_noise_is_noted(starts, noted):
    """Fails if a test could start a process that draws without declaring it."""
    code = "from vicinal.noise import fresh_key; fresh_key()"
    subprocess.run([sys.executable, *starts, "-"], input=code, text=True, check=True)
    assert undeclared() == noted


STARTS = re.compile(r"subprocess|fork|ray_engine|spawner")


def test_whoever_declares_draws_of_other_processes_starts_some():
    texts = {path.relative_to(TESTS.parent).as_posix(): text for path, text in SOURCES.items()}
    assert [name for name in CHILDREN_DRAW if not STARTS.search(texts.get(name, ""))] == []


@pytest.mark.usefixtures("notes")
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
    assert undeclared() == {"tests/unit/test_suite.py"}


def report(name, spent):
    return SimpleNamespace(nodeid=name, user_properties=[(processor_time.PROPERTY, spent)])


def test_processor_seconds_are_those_of_all_phases_of_a_test():
    """Fails if a fixture's seconds could hide: set-up, call and what follows are reports each."""
    first, second = "tests/unit/test_a.py::test_b", "tests/unit/test_a.py::test_c[1]"
    stats = {"": [report(first, 2.0), report(second, 1.0)], "passed": [report(first, 3.0)]}
    tests = processor_time.seconds(stats)
    assert tests == {first: 5.0, second: 1.0}
    assert processor_time.summed(tests, file_of) == {"tests/unit/test_a.py": 6.0}


# ---------------------------------------------------------------- what luck could decide

WATCHED = """
import os, signal, socket, subprocess, threading, time
from steady import Watch

def forked():
    if os.fork() == 0:
        os._exit(0)
    os.wait()

def lucky(act):
    watch.begin()
    act()
    return watch.luck()

watch, draw = Watch(), "from vicinal.noise import fresh_key; fresh_key()"
python = lambda code: subprocess.run([sys.executable, "-c", code], check=True)
assert not lucky(lambda: python("1 + 1"))
assert lucky(lambda: python(draw))
assert lucky(forked)
assert lucky(threading.Thread(target=int).start)
assert lucky(lambda: os.kill(os.getpid(), signal.SIGCONT))
assert lucky(lambda: socket.socket().close())
assert lucky(lambda: time.sleep(0))
"""


@pytest.mark.usefixtures("notes")
def test_what_luck_could_decide_is_noticed():
    """Fails if `make steady` would run once what it must run twenty times."""
    code = f"import sys; sys.path.insert(0, {str(TESTS)!r})\n{WATCHED}"
    subprocess.run([sys.executable, "-c", code], check=True)


REPEATED = """
import threading
import pytest

made = []

@pytest.fixture(scope="module")
def shared():
    made.append(None)

def test_lucky(shared):
    threading.Thread(target=int).start()
    print("lucky", len(made))

def test_sure():
    print("sure")
"""


def test_what_has_luck_is_repeated_with_all_that_tests_share_made_anew(tmp_path):
    """Fails if a test that changes what its file shares could not be run twice in a row."""
    (tmp_path / "test_it.py").write_text(REPEATED)
    options = ("-p", "steady", "--steady=3", "-qs", "-p", "no:cacheprovider", "-c", os.devnull)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "test_it.py"],
        cwd=tmp_path, check=True, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    assert re.findall(r"lucky \d|sure", done.stdout) == ["lucky 1", "lucky 2", "lucky 3", "sure"]


@cache
def nodes():
    """Return all nodes of all files; not while tests are collected, which every worker does."""
    return [(path, node) for path, text in SOURCES.items() for node in ast.walk(ast.parse(text))]


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


def test_true_entropy_is_declared_with_its_odds():
    """A test marked `entropy` says why it cannot fail by chance, or with which probability."""
    marked = [
        (path, node)
        for path, node in nodes()
        if isinstance(node, ast.FunctionDef)
        and "pytest.mark.entropy" in map(ast.unparse, node.decorator_list)
    ]
    assert marked
    for path, test in marked:
        said = ast.get_docstring(test) or ""
        assert "probability" in said or "Whatever is drawn" in said, place(path, test)


HURRY = re.compile(r"(monotonic|perf_counter|process_time|time\.time)\(\)[^<>]*<(?! end\b)")
"""A time from above, which a busy machine exceeds. `end` is minutes away: it ends what hangs."""


def test_no_assertion_bounds_a_time_from_above():
    asserts = [(path, node) for path, node in nodes() if isinstance(node, ast.Assert)]
    assert [place(path, one) for path, one in asserts if HURRY.search(ast.unparse(one.test))] == []
    hurried = HURRY.search("time.monotonic() - start < 5")
    assert hurried


FOREIGN = {"benchmark", "cov", "event_loop", "mocker", "snapshot", "testdir", "worker_id"}
"""Fixtures of plugins that a user may have: a plugin may end the run if its fixture is another."""


def test_no_fixture_has_the_name_of_a_plugins():
    made = {
        node.name for _, node in nodes() if isinstance(node, ast.FunctionDef) and is_fixture(node)
    }
    assert "benchmark_data" in made
    assert made & FOREIGN == set()


def is_fixture(node):
    return any("pytest.fixture" in ast.unparse(one) for one in node.decorator_list)


# ---------------------------------------------------------------- several workers


def test_files_are_where_the_distribution_names_them():
    assert [name for name in LONGEST if not (TESTS.parent / name).is_file()] == []


def test_all_files_on_ray_share_a_worker():
    """Fails if a second worker would start an engine of its own, on the same two cores."""
    users = {
        path.relative_to(TESTS.parent).as_posix()
        for path, node in nodes()
        if isinstance(node, ast.arg) and node.arg == "ray_engine"
    }
    users |= {
        path.relative_to(TESTS.parent).as_posix()
        for path, text in SOURCES.items()
        if 'getfixturevalue("ray_engine")' in text and path != Path(__file__)
    }
    assert users == set(ON_RAY)
