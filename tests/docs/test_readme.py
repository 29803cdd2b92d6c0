"""What the README shows is run: its Python, its commands, its links."""

import re
import tomllib

import pytest

from command_line import run_python
from page_tools import PAGES, ROOT, blocks

README = ROOT / "README.md"


@pytest.mark.slow
def test_the_python_example_runs_and_states_its_guarantee(tmp_path):
    (example,) = blocks(README, "python")
    assert len(example.strip().splitlines()) <= 14
    tables = run_python(ROOT / "examples" / "patients.py", tmp_path / "tables")
    assert tables.returncode == 0, tables.stderr
    done = run_python("-c", example, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "(1, 1e-05)-differential privacy" in done.stdout


def test_make_commands_are_targets_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"`make ([a-z-]+)`", README.read_text("utf-8")))
    assert targets <= set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))


def test_extras_that_are_named_exist():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for page in PAGES:
        for names in re.findall(r"vicinal\[([a-z,]+)\]", page.read_text(encoding="utf-8")):
            assert set(names.split(",")) <= set(project["optional-dependencies"]), names


def test_the_digits_are_installed_from_where_they_lie():
    """Their wheel is on no index yet."""
    for page in PAGES:
        for command in re.findall(r"pip install [^`\n]*\bdemo\]", page.read_text("utf-8")):
            assert "./demo-data " in command, f"{page.name}: {command}"


def test_links_lead_somewhere():
    elsewhere = ("http://", "https://", "mailto:")
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
            if "generated/" not in target and not target.startswith(elsewhere):
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
