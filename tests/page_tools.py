"""Runs what a page shows, in this process: one of its own for each command would mostly import.

What only a process of its own shows (a service, a module that a command forgets to import) is for
the README's tests and for the tutorials, which run while the site builds.
"""

import csv
import io
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import warnings
from contextlib import redirect_stdout
from itertools import takewhile
from pathlib import Path

import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from vicinal.cli.main import app

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if "generated" not in path.parts),
]
"""Written by hand; those that are made while the site builds are checked by Sphinx."""

CODES = (0,)


def blocks(path, language):
    """Return the blocks of a page that are in a language."""
    text = path.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def run(script):
    """Run the lines of a page and return what they print; a test that runs `cd` restores its own.

    Known are commands of vicinal, Python from a file of this repository or from the lines that
    follow, `cd`, `mv` and `head`.
    """
    lines = iter(re.sub(r"\\\n\s*", " ", script).splitlines())
    return "".join(_printed(shlex.split(line, comments=True), lines) for line in lines)


def run_python(code):
    """Run Python as a script of its own and return what it prints."""
    return _captured(exec, compile(code, "<page>", "exec"), {"__name__": "__main__"})


def shell(folder, script, **env):
    """Run commands of a page with this interpreter, and return what they print.

    Their noise is seeded: answers are judged, which true noise could turn.
    """
    here = f'vicinal() {{ "{sys.executable}" "{ROOT}/tests/seeded.py" -m vicinal "$@"; }}\n'
    done = subprocess.run(
        ["bash", "-euc", here + script], cwd=folder, capture_output=True, text=True,
        env={**os.environ, **env}, timeout=1800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def answers(folder):
    """Return the share of visitors of a made-up clinic whose answer is right."""
    rows = list(csv.DictReader((folder / "answers.csv").read_text().splitlines()))
    truth = parquet.read_table(folder / "truth.parquet").to_pylist()
    assert list(rows[0]) == ["visit", "label", "confidence", "p_healthy", "p_ill"]
    assert [row["visit"] for row in rows] == [row["visit"] for row in truth]
    right = [a["label"] == b["diagnosis"] for a, b in zip(rows, truth, strict=True)]
    return sum(right) / len(right)


def _printed(words, following):
    match words:
        case []:
            return ""
        case ["vicinal", *arguments]:
            return _vicinal(arguments)
        case ["python", "-", end]:
            ended = end.removeprefix("<<")
            return run_python("\n".join(takewhile(lambda line: line != ended, following)))
        case ["python", script, *arguments]:
            return _script(script, arguments)
        case ["cd", folder]:
            os.chdir(folder)
        case ["head", size, path]:
            return "".join(Path(path).read_text("utf-8").splitlines(keepends=True)[: -int(size)])
        case ["mv", *paths]:
            shutil.move(*paths)
        case _:
            raise AssertionError(f"a page runs {words}")
    return ""


def _vicinal(arguments):
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code in CODES, (arguments, done.output, done.exception)
    return done.output


def _script(name, arguments):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [name, *arguments])
        return _captured(runpy.run_path, str(ROOT / name), run_name="__main__")


def _captured(function, *args, **kwargs):
    """Call a function and return what it prints; a warning is none of ours, as at a terminal."""
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()) as printed:
        warnings.simplefilter("default")
        function(*args, **kwargs)
    return printed.getvalue()
