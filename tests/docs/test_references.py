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


@cache
def paths_of_sources():
    """Return the paths of all files of the package and of the tests, from a slash on."""
    folders = (SOURCES, ROOT / "tests")
    return [f"/{path.as_posix()}" for folder in folders for path in folder.rglob("*.*")]


def missing_files(page):
    for name in re.findall(r"`(?!fastapi/|\S*NAME)([\w/]+\.(?:py|md))`", text_of(page)):
        is_near = (ROOT / name).exists() or (page.parent / name).exists()
        if not is_near and not any(path.endswith(f"/{name}") for path in paths_of_sources()):
            yield name


def anchors_of(page):
    """Return the anchors of a page: its labels, and its headings in lower case, `-` for spaces."""
    prose = re.sub(r"^```.*?^```", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#{1,6} (.*)$", prose, flags=re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.strip().lower()) for heading in headings]
    labels = re.findall(r"^\(([\w-]+)\)=", prose, flags=re.MULTILINE)
    return {heading.replace(" ", "-") for heading in plain} | set(labels)


def missing_headings(page):
    for target, anchor in re.findall(r"\]\(([\w./-]*)#([\w-]+)\)", text_of(page)):
        linked = page.parent / target if target else page
        if linked.suffix == ".md" and anchor not in anchors_of(linked):
            yield f"{target}#{anchor}"


def missing_dotted_names(page):
    dotted = re.compile(r"(?<![\w./-])vicinal(?:\.[A-Za-z_]\w*)+(?!\w*[/@-])")
    return [name for name in dotted.findall(text_of(page)) if not is_there(name)]


def missing_commands(page):
    """Yield lines whose command is unknown, and options that the command of a line lacks."""
    for line in code(text_of(page)):
        for program, app in PROGRAMS.items():
            found = re.search(rf"(?:^|[\s(/]){re.escape(program)} ([a-z][\w-]*.*)", line)
            if not found or " import " in line:
                continue
            words = found[1].split("#")[0].split("|")[0].split("$(")[0].rstrip(")").split()
            known = options_of(app, words)
            options = [re.match(r"\[?(--[a-z][\w-]*)", word) for word in words]
            if known is None:
                yield line
            else:
                yield from {option[1] for option in options if option} - known


FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")
OTHERS = {
    "--address", "--data-binary", "--extra-index-url", "--generate", "--help",
    "--install-completion", "--no-deps", "--now", "--require-hashes", "--resources", "--retry",
    "--retry-connrefused",
    "--show-completion", "--soak", "--system", "--upgrade", "--version",
}  # fmt: skip
"""Of curl, Ray, systemctl, pip, typer and pytest."""


@cache
def known_flags():
    """Return all options: of our programs, and those in the sources of other commands."""
    sources = [
        path for name in ("benchmarks", "docs", "tests") for path in (ROOT / name).rglob("*.py")
    ]
    options = (each for app in PROGRAMS.values() for _, c in commands(app) for each in c.params)
    known = {flag for each in options for flag in (*each.opts, *each.secondary_opts)}
    return known.union(OTHERS, *(FLAG.findall(text_of(path)) for path in sources))


def missing_flags(page):
    return set(FLAG.findall(text_of(page))) - known_flags()


def missing_programs(page):
    started = r"python -m ((?:benchmarks|experiments|tests|docs)[\w.]*)"
    for name in re.findall(started, text_of(page)):
        place = ROOT / Path(*name.rstrip(".").split("."))
        if not place.with_suffix(".py").exists() and not (place / "__main__.py").exists():
            yield name


def missing_theory(module):
    """Yield sections of the theory and invariants that do not exist, and pages outside."""
    theory = text_of(ROOT / "docs" / "explanation" / "theory.md")
    architecture = text_of(ROOT / "docs" / "explanation" / "architecture.md")
    text = text_of(module)
    yield from re.findall(r"\b(?:THEORY|SMOOTHED|DESIGN)\b", text)
    for section in re.findall(r"theory\.md,\s+section (\w+)", text):
        if not re.search(rf"^#+ {section}\. ", theory, flags=re.MULTILINE):
            yield section
    for number in re.findall(r"architecture\.md,\s+invariant (\d)", text):
        if f"\n| {number} |" not in architecture:
            yield number


@pytest.mark.parametrize(
    ("find_missing", "pages"),
    [
        (missing_files, [*PAGES, *NOTES]),
        (missing_headings, [*PAGES, *NOTES]),
        (missing_dotted_names, [*PAGES, *NOTES, *MODULES]),
        (missing_commands, PAGES),
        (missing_flags, PAGES),
        (missing_programs, [*PAGES, *MODULES]),
        (missing_theory, MODULES),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_named_exists(find_missing, pages):
    found = [(str(page.relative_to(ROOT)), name) for page in pages for name in find_missing(page)]
    assert found == []


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
