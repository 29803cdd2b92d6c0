"""Pages name options that there are."""

import re

import pytest

from command_line import commands
from experiments.__main__ import app as experiments
from page_tools import PAGES, ROOT
from vicinal.cli import app

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

WITH_FLAGS = ("benchmarks", "docs", "tests")
"""Folders with commands whose options are read from their sources."""


@pytest.fixture(scope="module")
def known():
    sources = [path for name in WITH_FLAGS for path in (ROOT / name).rglob("*.py")]
    written = {flag for path in sources for flag in FLAG.findall(path.read_text("utf-8"))}
    options = (each for one in (app, experiments) for _, c in commands(one) for each in c.params)
    flags = {flag for each in options for flag in (*each.opts, *each.secondary_opts)}
    return OTHERS | written | {"--help", "--version"} | flags


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_options_on_a_page_exist(page, known):
    assert set(FLAG.findall(page.read_text("utf-8"))) - known == set()
