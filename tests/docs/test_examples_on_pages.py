"""Examples on pages of the site: commands of how-to pages are run, Python is read and imported.

The README, the page on tables and the service's quickstart have tests of their own; tutorials run
while the site builds.
"""

import ast
import importlib.util

import numpy as np
import pytest

import store_tools
from command_line import run_python
from page_tools import ROOT, blocks, run

PAGES = [
    path for path in sorted((ROOT / "docs").rglob("*.md"))
    if not {"generated", "decisions"} & set(path.parts)
]  # fmt: skip


def test_python_on_pages_is_python_and_imports_what_there_is():
    for page in PAGES:
        for example in blocks(page, "python"):
            for node in ast.walk(ast.parse(example)):
                if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] == "vicinal":
                    module = importlib.import_module(node.module)
                    for alias in node.names:
                        name = f"{node.module}.{alias.name}"
                        exists = hasattr(module, alias.name) or importlib.util.find_spec(name)
                        assert exists, f"{name} in {page.name}"


@pytest.mark.parametrize("number", range(3), ids=["column kind", "command option", "kernel"])
def test_a_recipe_for_contributors_runs(number):
    """In a process of its own, because a recipe registers its class in the package."""
    recipes = blocks(ROOT / "docs" / "how-to" / "recipes.md", "python")
    assert len(recipes) == 3
    assert "assert " in recipes[number]
    finished = run_python("-c", recipes[number])
    assert finished.returncode == 0, finished.stderr


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Work in a folder with a store and a table of public rows."""
    monkeypatch.chdir(tmp_path)
    store_tools.make(tmp_path / "STORE").close()
    return tmp_path


def test_a_store_is_backed_up_and_moved(folder):
    (script,) = blocks(ROOT / "docs" / "how-to" / "backup.md", "sh")
    run(script)
    assert (folder / "STORE" / "store.json").exists()


def test_somebody_is_erased_and_it_is_proved(folder):
    pytest.importorskip("cryptography")
    (script,) = blocks(ROOT / "docs" / "how-to" / "erasure.md", "sh")
    run(script)
    assert "person-3" not in (folder / "receipt.json").read_text()


def test_epsilon_is_planned_without_a_record(tmp_path, monkeypatch):
    pandas = pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(9)
    rows = pandas.DataFrame(rng.normal(size=(400, 3)), columns=["a", "b", "c"])
    rows["diagnosis"] = np.where(rows["a"] > 0, "ill", "healthy")
    rows.to_parquet("public.parquet")
    (script,) = blocks(ROOT / "docs" / "how-to" / "pick-epsilon.md", "sh")
    assert "twice the epsilon" in run(script)
