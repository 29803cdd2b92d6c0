"""What the README shows is run: its Python, its commands, its links."""

from __future__ import annotations

import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def commands():
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    return [line.split("#")[0].strip() for line in lines if line.strip()]


FEWER = """
import dataclasses
from vicinal import datasets
mnist = datasets.load_mnist()
few = dataclasses.replace(mnist, features=mnist.features[:{0}], labels=mnist.labels[:{0}])
datasets.load_mnist = lambda: few
"""


@pytest.mark.slow
@pytest.mark.parametrize("records", [3_000, pytest.param(60_000, marks=pytest.mark.soak)])
def test_the_python_example_runs_and_states_its_guarantee(records):
    """Every line is run; the short form has fewer records, so that HOG takes seconds."""
    (example,) = blocks("python")
    assert len(example.strip().splitlines()) <= 14
    done = subprocess.run(
        [sys.executable, "-c", FEWER.format(records) + example],
        capture_output=True, text=True, check=False, timeout=1800,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "(1, 1e-05)-differential privacy" in done.stdout


@pytest.mark.parametrize("command", [c for c in commands() if c.startswith("make ")])
def test_make_commands_are_targets_of_the_makefile(command):
    done = subprocess.run(
        [*shlex.split(command), "--dry-run"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


PROGRAMS = {
    ".venv/bin/vicinal ": "vicinal.cli._main",
    ".venv/bin/python -m experiments ": "experiments.__main__",
}
SHOWN = [
    (module, command.removeprefix(program))
    for program, module in PROGRAMS.items()
    for command in commands()
    if command.startswith(program)
]


def test_commands_of_both_programs_are_shown():
    assert {module for module, _ in SHOWN} == set(PROGRAMS.values())


@pytest.mark.parametrize(("module", "command"), SHOWN)
def test_commands_exist_with_their_options(module, command):
    """Every command shown is known, with every option shown."""
    rest = shlex.split(command)
    verbs = [word for word in rest if re.fullmatch(r"[a-z][a-z0-9-]*", word)][:2]
    app = importlib.import_module(module).app
    shown = [CliRunner().invoke(app, [*verbs[:depth], "--help"]) for depth in (len(verbs), 1)]
    done = next((one for one in shown if one.exit_code == 0), shown[0])
    assert done.exit_code == 0, done.output
    for option in (word for word in rest if word.startswith("--")):
        assert option in done.output, f"{option} is not an option of {command!r}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
