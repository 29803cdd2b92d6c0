"""Pages name options that there are."""

import re
from pathlib import Path

import click
import pytest
from typer.main import get_command

from experiments.__main__ import app as experiments
from vicinal.cli import app

ROOT = Path(__file__).parents[2]
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")
OTHERS = {
    *("--address", "--data-binary", "--generate", "--now", "--resources", "--system", "--upgrade"),
    "--no-deps",
    *(
        "--install-completion", "--show-completion", "--extra-index-url", "--soak",
        "--require-hashes",
    ),
}  # fmt: skip
"""Of curl, Ray, systemctl, pip, typer and pytest."""

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if "generated" not in path.parts),
]

WITH_FLAGS = ("benchmarks", "docs", "tests")
"""Folders with commands whose options are read from their sources."""


def flags(group):
    """Yield all options of all commands below a group."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if hasattr(command, "list_commands"):
            yield from flags(command)
        else:
            for each in command.params:
                yield from (*each.opts, *each.secondary_opts)


@pytest.fixture(scope="module")
def known():
    sources = [path for name in WITH_FLAGS for path in (ROOT / name).rglob("*.py")]
    written = {flag for path in sources for flag in FLAG.findall(path.read_text("utf-8"))}
    apps = (get_command(app), get_command(experiments))
    return (
        OTHERS | written | {"--help", "--version"} | {flag for each in apps for flag in flags(each)}
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_options_on_a_page_exist(page, known):
    assert set(FLAG.findall(page.read_text("utf-8"))) - known == set()
