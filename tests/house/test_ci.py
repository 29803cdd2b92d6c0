"""`.ci/run`: each log is printed whole; a step that fails fails the run, which names it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import programs

ROOT = Path(__file__).parents[2]
PROGRAM = """#!/bin/sh
case "$*" in {fails}) echo "$* is broken" >&2; exit 3;; esac
cat >/dev/null; echo "first of $*"; echo "{{}}"; echo "required: $VICINAL_REQUIRE"
"""
PRESENT = "import sys; print('chromium nginx' if '--missing' in sys.argv else 'curl')"
STEPS = re.findall(
    r"\w+", "programs install demo locks tools lint docs links rendered dist test bench"
)


def ran(folder, fails):
    """Run the script where every program is replaced by one that fails for some arguments."""
    for name in ("bin/make", "bin/apt-get", "bin/sudo", ".venv/bin/python"):
        program = folder / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(PROGRAM.format(fails=fails))
        program.chmod(0o755)
    shutil.copytree(ROOT / ".ci", folder / ".ci")
    (folder / "tests").mkdir()
    (folder / "tests" / "programs.py").write_text(PRESENT)
    return subprocess.run(
        [folder / ".ci" / "run"], capture_output=True, text=True, check=False, timeout=240,
        env={"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "PYTHON": sys.executable},
    )  # fmt: skip


def steps(done):
    """Return the titles of steps in the order of their logs, and of those in the table of times."""
    logs, _, times = done.stdout.partition("=== timings\n")
    return re.findall(r"^=== (\w+): ", logs, re.MULTILINE), re.findall(r" s  (\w+)", times)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Return a run in which no step fails."""
    return ran(tmp_path_factory.mktemp("ci"), "none")


def test_every_step_runs_and_prints_its_log_whole(done):
    assert (done.returncode, done.stderr) == (0, "")
    for found in steps(done):
        assert sorted(set(found) - {"in"}) == sorted(STEPS)
    assert "first of --no-print-directory lint\n{}\n" in done.stdout


def test_programs_that_are_missing_are_installed_and_no_test_is_skipped_for_those_there(done):
    for package in ("chromium", "nginx"):
        assert re.search(f"first of .*install -y --no-install-recommends {package}\n", done.stdout)
    assert "Tests are skipped without: chromium nginx\n" in done.stdout
    assert "first of --no-print-directory test\n{}\nrequired: curl\n" in done.stdout


def test_a_test_without_its_program_is_skipped_or_fails_where_it_may_not(monkeypatch):
    monkeypatch.setitem(programs.PROGRAMS, "nginx", ("no-such-program",))
    outcomes = {"curl": pytest.skip.Exception, "curl,nginx": pytest.fail.Exception}
    for required, outcome in outcomes.items():
        monkeypatch.setenv("VICINAL_REQUIRE", required)
        with pytest.raises(outcome, match="no nginx"):
            programs.needed("nginx")


@pytest.mark.parametrize(
    ("fails", "named", "left_out"),
    [
        ("*test", "test", set()),
        ("*lint", "lint", set()),
        ("*docs", "docs", {"links", "rendered"}),
        ("*tools", "tools", {"lint", "docs", "links", "rendered", "dist", "test", "bench"}),
        ("*install", "install", set(STEPS) - {"install", "programs"}),
    ],
)
def test_a_step_that_fails_fails_the_run_and_is_named(tmp_path, fails, named, left_out):
    done = ran(tmp_path, fails)
    assert (done.returncode, done.stderr) == (1, f"failed: {named}\n")
    assert f"{named} is broken" in done.stdout
    assert set(STEPS) - set(steps(done)[0]) == left_out
