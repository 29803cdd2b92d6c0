"""Whatever the documentation names exists: files, dotted names, commands with their options."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
import typer

from command_line import commands
from experiments.__main__ import app as experiments
from page_tools import PAGES, ROOT
from vicinal.cli.main import app as vicinal

SOURCES = ROOT / "src"
NOTES = sorted(SOURCES.rglob("*.md"))
MODULES = sorted((SOURCES / "vicinal").rglob("*.py"))
PROGRAMS = {"vicinal": vicinal, "python -m experiments": experiments}


def shown(path):
    """Name a file in the title of a test."""
    return str(path.relative_to(ROOT))


def text_of(path):
    return path.read_text(encoding="utf-8")


@cache
def names_in(path):
    """Return what a module defines or imports at its top level; of a package, what it exports."""
    stub = path.with_suffix(".pyi")
    texts = [text_of(place) for place in (path, stub) if place.exists()]
    nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    names = {getattr(node, "name", None) for node in nodes}
    names |= {node.id for node in nodes if isinstance(node, ast.Name)}
    names |= {alias.asname or alias.name for node in nodes for alias in getattr(node, "names", ())
              if isinstance(alias, ast.alias)}  # fmt: skip
    return frozenset(name for name in names if name)


def is_there(dotted):
    """Whether `vicinal.a.b.C` is a module or package, or stands in one."""
    place = SOURCES
    parts = dotted.split(".")
    while parts and (place / parts[0]).is_dir():
        place = place / parts.pop(0)
    if parts and (place / f"{parts[0]}.py").exists():
        place = place / f"{parts.pop(0)}.py"
    module = place / "__init__.py" if place.is_dir() else place
    return not parts or parts[0] in names_in(module)


def code(text):
    """Yield what stands in code blocks and between backticks, one command a line."""
    for block in re.findall(r"```\w*\n(.*?)```", text, flags=re.DOTALL):
        yield from re.sub(r"\\\n\s*", " ", block).splitlines()
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    yield from (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose))
    yield from re.findall(r"^    (\S.*)$", re.sub(r"\\\n\s*", " ", prose), flags=re.MULTILINE)


def options_of(app, words):
    """Return the options of the command that `words` begin with; None if there is none."""
    command = typer.main.get_command(app)
    known: set[str] = {"--help"}
    for word in words:
        known |= {option for parameter in command.params for option in parameter.opts}
        if not hasattr(command, "get_command"):
            break
        found = command.get_command(None, word)
        if found is None:
            return None if word == words[0] else known
        command = found
    return known | {option for parameter in command.params for option in parameter.opts}


@pytest.mark.parametrize("page", [*PAGES, *NOTES], ids=shown)
def test_files_that_are_named_exist(page):
    for name in re.findall(r"`(?!fastapi/|\S*NAME)([\w/]+\.(?:py|md))`", text_of(page)):
        places = (ROOT, SOURCES, SOURCES / "vicinal", page.parent)
        inside = any((place / name).exists() for place in places)
        assert inside or any(SOURCES.rglob(name)) or any((ROOT / "tests").rglob(name)), name


def anchors_of(page):
    """Return the anchors of a page: its labels, and its headings in lower case, `-` for spaces."""
    prose = re.sub(r"^```.*?^```", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#{1,6} (.*)$", prose, flags=re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.strip().lower()) for heading in headings]
    labels = re.findall(r"^\(([\w-]+)\)=", prose, flags=re.MULTILINE)
    return {heading.replace(" ", "-") for heading in plain} | set(labels)


@pytest.mark.parametrize("page", [*PAGES, *NOTES], ids=shown)
def test_links_lead_to_a_heading(page):
    for target, anchor in re.findall(r"\]\(([\w./-]*)#([\w-]+)\)", text_of(page)):
        linked = page.parent / target if target else page
        if linked.suffix == ".md":
            assert anchor in anchors_of(linked), f"{target}#{anchor}"


@pytest.mark.parametrize("page", [*PAGES, *NOTES, *MODULES], ids=shown)
def test_dotted_names_exist(page):
    for name in re.findall(r"(?<![\w./-])vicinal(?:\.[A-Za-z_]\w*)+(?!\w*[/@-])", text_of(page)):
        assert is_there(name), name


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_commands_exist_with_their_options(page):
    for line in code(text_of(page)):
        for program, app in PROGRAMS.items():
            found = re.search(rf"(?:^|[\s(/]){re.escape(program)} ([a-z][\w-]*.*)", line)
            if not found or " import " in line:
                continue
            words = found[1].split("#")[0].split("|")[0].split("$(")[0].rstrip(")").split()
            known = options_of(app, words)
            assert known is not None, line
            for word in words if known else ():
                option = re.match(r"\[?(--[a-z][\w-]*)", word)
                assert not option or option[1] in known, f"{option[1]} in {line}"


FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")
OTHERS = {
    "--address", "--data-binary", "--extra-index-url", "--generate", "--help",
    "--install-completion", "--no-deps", "--now", "--require-hashes", "--resources", "--retry",
    "--retry-connrefused",
    "--show-completion", "--soak", "--system", "--upgrade", "--version",
}  # fmt: skip
"""Of curl, Ray, systemctl, pip, typer and pytest."""


@pytest.fixture(scope="module")
def flags():
    """Return all options: of our programs, and those in the sources of other commands."""
    sources = [
        path for name in ("benchmarks", "docs", "tests") for path in (ROOT / name).rglob("*.py")
    ]
    options = (each for app in PROGRAMS.values() for _, c in commands(app) for each in c.params)
    known = {flag for each in options for flag in (*each.opts, *each.secondary_opts)}
    return known.union(OTHERS, *(FLAG.findall(text_of(path)) for path in sources))


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_options_on_a_page_exist(page, flags):
    assert set(FLAG.findall(text_of(page))) - flags == set()


@pytest.mark.parametrize("page", [*PAGES, *MODULES], ids=shown)
def test_programs_started_as_modules_exist(page):
    for name in re.findall(
        r"python -m ((?:benchmarks|experiments|tests|docs)[\w.]*)", text_of(page)
    ):
        place = ROOT / Path(*name.rstrip(".").split("."))
        assert place.with_suffix(".py").exists() or (place / "__main__.py").exists(), name


def test_a_name_and_a_command_that_do_not_exist_are_noticed():
    for dotted in ("vicinal.checks.check_number", "vicinal.store.Book", "vicinal.nothing"):
        assert not is_there(dotted)
    assert options_of(vicinal, ["forget", "STORE"]) is None
    assert "--subject" in options_of(vicinal, ["erase", "STORE"])
    assert "--subjects-of" not in options_of(vicinal, ["erase", "STORE"])


def test_tests_that_are_named_exist():
    """Every invariant names its guards."""
    tests = "\n".join(text_of(path) for path in (ROOT / "tests").rglob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", text_of(ROOT / "docs" / "explanation" / "architecture.md"))
    assert named
    for name in named:
        assert f"def {name}(" in tests, name


@pytest.mark.parametrize("module", MODULES, ids=shown)
def test_theory_that_code_refers_to_is_in_the_repository(module):
    text = text_of(module)
    assert not re.search(r"\b(?:THEORY|SMOOTHED|DESIGN)\b", text)
    theory = text_of(ROOT / "docs" / "explanation" / "theory.md")
    for section in re.findall(r"theory\.md,\s+section (\w+)", text):
        assert re.search(rf"^#+ {section}\. ", theory, flags=re.MULTILINE), section
    for number in re.findall(r"architecture\.md,\s+invariant (\d)", text):
        assert f"\n| {number} |" in text_of(ROOT / "docs" / "explanation" / "architecture.md")
