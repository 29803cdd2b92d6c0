"""The locked packages: all that is needed, in versions that are allowed, each with its hashes."""

import ast
import importlib.util
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
ENTRY = re.compile(r"^([^\s;]+==.+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.M)
APART = {"bench", "demo", "docs"}
"""Extras that the tests do without: a rival, digits that a checkout has, what builds the site."""

CORE = [*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"]]
ALL = [one for name in EXTRAS.keys() - APART for one in EXTRAS[name] if "vicinal[" not in one]
TORCH = (ROOT / "requirements" / "torch.txt").read_text().splitlines()[-1]
FILES = {"core": CORE, "dev": [*CORE, *ALL], "docs": [*CORE, *EXTRAS["docs"]]}


def locked(name):
    """Return the version of every package for this interpreter; torch comes with dev.txt."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    entries = ENTRY.findall(text)
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) == sum(1 + hashes.count("\n") for _, hashes in entries), "a line without hash"
    pins = [one for pin, _ in entries if here(one := Requirement(pin))]
    found = {canonicalize_name(one.name): str(one.specifier).removeprefix("==") for one in pins}
    assert len(found) == len(pins), "pinned twice"
    return found | dict([TORCH.split("==")] if name == "dev" else [])


def here(requirement, extra=""):
    """Tell whether a requirement is one for this interpreter."""
    return not requirement.marker or requirement.marker.evaluate({"extra": extra})


def unmet(requirements, pins):
    """Return those requirements for this interpreter that no pin meets."""
    wanted = [one for one in map(Requirement, requirements) if here(one)]
    return [
        str(one)
        for one in wanted
        if pins.get(canonicalize_name(one.name)) is None
        or not one.specifier.contains(pins[canonicalize_name(one.name)], prereleases=True)
    ]


@pytest.mark.parametrize("files", FILES)
def test_whatever_pyproject_names_is_locked_in_an_allowed_version(files):
    """Fails if `pyproject.toml` was changed without `make lock`."""
    pins = locked(files)
    assert unmet(FILES[files], pins) == []
    assert unmet(["numpy<2", "unheard-of"], pins) == ["numpy<2", "unheard-of"]


@pytest.mark.parametrize("files", FILES)
def test_whatever_a_locked_package_needs_is_locked(files):
    """Fails if a package is left out: they are installed without what they ask for."""
    pins = locked(files)
    needs = {name: requires(name) for name in pins if name != "torch"}
    assert {name: found for name in needs if (found := unmet(needs[name], pins))} == {}


def requires(name):
    """Return what a package needs here; nothing if it is not installed."""
    try:
        found = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return []
    return [one for one in found if here(Requirement(one))]


def test_what_is_installed_is_compared_with_its_hash():
    """Fails if the Makefile installs anything without a hash but vicinal, torch and uv."""
    makefile = (ROOT / "Makefile").read_text()
    assert re.findall(r"pip install.*", makefile) == [
        "pip install -qq --disable-pip-version-check --no-compile --no-deps",
        "pip install -qq --disable-pip-version-check --no-compile \\",
        "pip install -qq uv",  # makes these files; nothing else runs it
    ]
    assert makefile.count("--requirement requirements/torch.txt") == 1
    assert makefile.count("$(PIP)") == 2
    assert "HASHED := $(PIP) --require-hashes" in makefile
    assert "ITSELF := $(PIP) --no-build-isolation --editable .\n" in makefile


def test_torch_is_pinned_to_one_version():
    """Fails if the one package without a hash could be of any version, or brought others."""
    lines = (ROOT / "requirements" / "torch.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == [TORCH]
    assert re.fullmatch(r"torch==\d+\.\d+\.\d+", TORCH)


@pytest.mark.parametrize("name", ["core", "docs", "postgres"])
def test_the_files_pin_one_version_of_a_package(name):
    """Fails if `make docs` would replace what the tests ran with."""
    dev = locked("dev")
    assert {one: it for one, it in locked(name).items() if dev.get(one, it) != it} == {}


def test_no_file_names_where_packages_come_from():
    """Fails if a lock file holds only for the machine that wrote it."""
    for path in (ROOT / "requirements").iterdir():
        assert "://" not in path.read_text(), path


LOCAL = {"benchmarks", "docs", "examples", "experiments", "tests", "vicinal"} | {
    path.stem for path in (ROOT / "tests").iterdir() if path.suffix in ("", ".py")
}
"""Modules of the project that its own files import."""


def imported_modules(text):
    """Return the top-level modules of others that a file imports, at any depth of its code."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return {name.split(".")[0] for name in found} - LOCAL - set(sys.stdlib_module_names)


@pytest.mark.parametrize("folder", ["src", "tests", "experiments", "benchmarks"])
def test_all_that_is_imported_is_declared(folder):
    """Fails if the next lock would drop a package that came only with another one."""
    # faiss, a rival of `vicinal bench`, is not installed with the tests.
    distributions = {"faiss": ["faiss-cpu"], **metadata.packages_distributions()}
    extras = [one for name in EXTRAS for one in EXTRAS[name]]
    declared = {
        canonicalize_name(Requirement(one).name)
        for one in (*PROJECT["project"]["dependencies"], *extras)
    }
    undeclared = {
        module
        for path in (ROOT / folder).rglob("*.py")
        for module in imported_modules(path.read_text(encoding="utf-8"))
        if not set(map(canonicalize_name, distributions.get(module, [module]))) & declared
    }
    assert undeclared == set()
    assert imported_modules("import os, unheard.of\nfrom vicinal import x") == {"unheard"}


def load_platform_check():
    """Import `.ci/check_platform.py`, which runs before anything is installed."""
    spec = importlib.util.spec_from_file_location("platforms", ROOT / ".ci" / "check_platform.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_unsupported_platform_is_refused_before_the_installation():
    """Each refusal names the supported versions and systems, and a remedy for an old Python."""
    find_fault = load_platform_check().find_fault
    assert find_fault((3, 11), "Linux", "x86_64") is None
    assert find_fault((3, 14), "Linux", "aarch64") is None
    assert find_fault((3, 14), "Darwin", "arm64") is None
    assert "make PYTHON=" in find_fault((3, 10), "Linux", "x86_64")
    assert "This is Python 3.15" in find_fault((3, 15), "Linux", "x86_64")
    assert "This is Darwin on x86_64" in find_fault((3, 12), "Darwin", "x86_64")
    assert "WSL" in find_fault((3, 12), "Windows", "AMD64")


def test_supported_versions_are_those_of_the_package():
    """The platform check, the classifiers and the locks of the core describe one set."""
    classifiers = [c.rpartition(" ")[2] for c in PROJECT["project"]["classifiers"]]
    versions = [f"{major}.{minor}" for major, minor in load_platform_check().PYTHONS]
    assert [c for c in classifiers if re.fullmatch(r"3\.\d+", c)] == versions


def test_the_developers_lock_contains_that_of_the_core():
    """`.ci/check_locks.py` checks `dev.txt` alone."""
    core, dev = (
        dict(ENTRY.findall((ROOT / "requirements" / f"{name}.txt").read_text()))
        for name in ("core", "dev")
    )
    assert core
    assert {pin: dev.get(pin) for pin in core} == core
