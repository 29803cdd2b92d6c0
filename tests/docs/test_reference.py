"""The reference of the site: every export has a page, and every page is of one kind."""

import ast
import re
from pathlib import Path

import pytest

from docs.site import api, commands, errors, links, plans
from vicinal.accounting.kinds import KINDS
from vicinal.cli.main import Commands

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
KINDS_OF_PAGES = ("tutorials", "how-to", "reference", "explanation")


@pytest.fixture(scope="module")
def reference():
    return dict(api.pages(ROOT))


def test_every_export_is_in_the_reference(reference):
    for path in api.public_packages():
        names = [name for name in api.exports(path) if not name.startswith("__")]
        page = reference.get(f"api/p-{api._module(path)}.rst", "")
        missing = [name for name in names if not re.search(rf"\b{name}\b", page)]
        assert not missing, (path, missing)


def test_a_class_or_function_has_one_page(reference):
    entries = [
        f"{name.removeprefix('api/p-').removesuffix('.rst')}.{entry}"
        for name, page in reference.items()
        for entry in re.findall(r"^   (\w+)$", page, flags=re.MULTILINE)
    ]
    assert "vicinal.IndKNNClassifier" in entries
    assert "vicinal.predictors.IndKNNClassifier" not in entries
    assert len(entries) == len(set(entries)) > 100


def test_every_export_is_documented():
    for path in api.public_packages():
        for name in api.exports(path):
            assert name.startswith("__") or len(api.summary(path, name)) > len("(a constant)"), name


def test_an_export_that_is_not_there_is_noticed(tmp_path):
    broken = tmp_path / "__init__.py"
    broken.write_text("__all__ = ['Ghost']")
    with pytest.raises(LookupError, match="Ghost"):
        api.summary(broken, "Ghost")


def test_commands_errors_and_plans_are_whole():
    ((_, shown),) = commands.pages(ROOT)
    for name in Commands.import_paths:
        assert f"\n## vicinal {name}" in shown
    assert "`--epsilon`" in shown
    ((_, tree),) = errors.pages(ROOT)
    assert "| `ShardMissing` | `StorageFailed` |" in tree
    ((_, kinds),) = plans.pages(ROOT)
    assert re.findall(r"^## (\w+)$", kinds, flags=re.MULTILINE) == list(KINDS)


def test_links_lead_to_pages_of_the_site():
    page = DOCS / "explanation" / "x.md"
    for target, mended in {
        "../../src/vicinal/mechanisms/votes.md#cost": "/generated/proofs/votes.md#cost",
        "../how-to/choosing.md": "/how-to/choosing.md",
        "../../README.md": "/index.md",
        "../../CHANGELOG.md": "/generated/changelog.md",
        "https://a.b/c": "https://a.b/c",
        "#here": "#here",
    }.items():
        assert links.as_pages(f"[x]({target})", page, ROOT) == f"[x]({mended})"
    assert links.as_pages("[`x`](../../examples/plans)", page, ROOT) == "`x`"


def test_bars_of_docstrings_are_absolute_values():
    lines = ["the norm |x - q|, as `|x|` and ``a | b``", ">>> 1 | 2"]
    links.plain_bars(lines)
    assert lines == ["the norm \\|x - q\\|, as `|x|` and ``a | b``", ">>> 1 | 2"]


def listed(kind):
    """Return the pages that the index of a kind lists."""
    text = (DOCS / kind / "index.md").read_text(encoding="utf-8")
    trees = re.findall(r"```\{toctree\}\n(.*?)```", text, flags=re.DOTALL)
    return [line for tree in trees for line in tree.splitlines() if line and line[0] != ":"]


@pytest.mark.parametrize("kind", KINDS_OF_PAGES)
def test_every_page_is_listed_once(kind):
    own = [name for name in listed(kind) if "/" not in name]
    assert sorted(own) == sorted(p.stem for p in (DOCS / kind).glob("*.md") if p.stem != "index")


def test_no_page_is_of_no_kind():
    assert [path.name for path in DOCS.glob("*.md")] == ["index.md"]


TUTORIALS = sorted((ROOT / "examples" / "scripts").glob("plot_*.py"))


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_script_tells_what_it_is_and_links_to_pages(path):
    text = path.read_text(encoding="utf-8")
    title, line = ast.get_docstring(ast.parse(text)).splitlines()[:2]
    assert len(line) == len(title)
    for target in re.findall(r":doc:`/([\w/-]+)`", text):
        assert (DOCS / f"{target}.md").exists(), target
    assert len(TUTORIALS) == 4
