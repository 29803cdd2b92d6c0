"""What the README shows is run: its Python, its commands, its links."""

import re
import subprocess
import sys
import tomllib

import pytest

from page_tools import PAGES, ROOT, blocks

README = ROOT / "README.md"


@pytest.mark.slow
def test_the_python_example_runs_and_states_its_guarantee(tmp_path):
    (example,) = blocks(README, "python")
    assert len(example.strip().splitlines()) <= 14
    tables = [sys.executable, ROOT / "examples" / "patients.py", tmp_path / "tables"]
    subprocess.run(tables, check=True)
    done = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "(1, 1e-05)-differential privacy" in done.stdout


@pytest.mark.parametrize(
    "target", sorted(set(re.findall(r"`make ([a-z-]+)`", README.read_text("utf-8"))))
)
def test_make_commands_are_targets_of_the_makefile(target):
    done = subprocess.run(
        ["make", target, "--dry-run"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if "generated/" not in target and not target.startswith(("http://", "https://", "mailto:")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
