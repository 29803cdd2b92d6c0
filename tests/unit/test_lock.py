"""The locked packages: all that is needed, in versions that are allowed, each with its hashes."""

import re
import runpy
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCK = runpy.run_path(str(ROOT / "requirements" / "lock.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
ENTRY = re.compile(
    r"^([a-z0-9-]+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.M
)
APART = {"bench", "demo", "docs"}
"""Extras that the tests do without: a rival, digits that a checkout has, what builds the site."""

CORE = [*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"]]
DEV = [
    *CORE,
    *(one for name in EXTRAS.keys() - APART for one in EXTRAS[name] if "vicinal[" not in one),
]
DOCS = [*DEV, *EXTRAS["docs"]]
TORCH = (ROOT / "requirements" / "torch.txt").read_text().splitlines()[-1]
FILES = {"core": CORE, "core dev": DEV, "core dev docs": DOCS}


def locked(*names):
    """Return the version of every package in these files; torch comes with dev.txt."""
    found = dict([TORCH.split("==")] if "dev" in names else [])
    for name in names:
        text = (ROOT / "requirements" / f"{name}.txt").read_text()
        entries = ENTRY.findall(text)
        assert "".join(text.splitlines(keepends=True)[1:]) == "".join(
            f"{package}=={version} \\\n{hashes}" for package, version, hashes in entries
        ), "a line that is no entry: its package would come without a hash"
        assert not {package for package, *_ in entries} & found.keys(), "pinned twice"
        found |= {package: version for package, version, _ in entries}
    return found


def unmet(requirements, pins):
    """Return those requirements for this interpreter that no pin meets."""
    wanted = [
        one for one in map(Requirement, requirements) if not one.marker or one.marker.evaluate()
    ]
    return [
        str(one)
        for one in wanted
        if pins.get(canonicalize_name(one.name)) is None
        or not one.specifier.contains(pins[canonicalize_name(one.name)], prereleases=True)
    ]


@pytest.mark.parametrize("files", FILES)
def test_whatever_pyproject_names_is_locked_in_an_allowed_version(files):
    """Fails if `pyproject.toml` was changed without `make lock`."""
    pins = locked(*files.split())
    assert unmet(FILES[files], pins) == []
    assert unmet(["numpy<2", "unheard-of"], pins) == ["numpy<2", "unheard-of"]


@pytest.mark.parametrize("files", FILES)
def test_whatever_a_locked_package_needs_is_locked(files):
    """Fails if a package is left out: they are installed without what they ask for."""
    pins = locked(*files.split())
    needs = {name: requires(name) for name in pins if name not in {"timm", "torch"}}
    assert {name: found for name in needs if (found := unmet(needs[name], pins))} == {}


def requires(name):
    """Return what a package needs here; nothing if it is not installed."""
    try:
        found = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return []
    plain = (Requirement(one) for one in found)
    return [str(one) for one in plain if not one.marker or one.marker.evaluate({"extra": ""})]


def test_what_is_installed_is_compared_with_its_hash():
    """Fails if the Makefile installs anything without a hash but vicinal itself and torch."""
    makefile = (ROOT / "Makefile").read_text()
    assert re.findall(r"pip install.*", makefile) == [
        "pip install -qq --disable-pip-version-check --no-compile --no-deps",
        "pip install -qq --disable-pip-version-check --no-compile --no-warn-conflicts \\",
    ]
    assert makefile.count("--requirement requirements/torch.txt") == 1
    assert makefile.count("$(PIP)") == 2
    assert "HASHED := $(PIP) --require-hashes" in makefile
    assert "ITSELF := $(PIP) --no-build-isolation --editable .\n" in makefile


def test_torch_is_pinned_to_one_version():
    """Fails if the one package without a hash could be of any version, or brought company."""
    lines = (ROOT / "requirements" / "torch.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == [TORCH]
    assert re.fullmatch(r"torch==\d+\.\d+\.\d+", TORCH)


@pytest.mark.parametrize(
    ("wheel", "taken_by"),
    [
        ("a-1-py3-none-any.whl", 9),
        ("a-1-py2.py3-none-any.whl", 9),
        ("a-1-cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", 1),
        ("a-1-cp38-abi3-manylinux_2_28_aarch64.whl", 3),
        ("a-1-cp313-abi3-macosx_11_0_arm64.whl", 1),
        ("a-1-1-py3-none-macosx_10_9_universal2.whl", 3),
        ("a-1-cp313-cp313t-manylinux_2_28_x86_64.whl", 0),
        ("a-1-cp310-cp310-manylinux_2_28_x86_64.whl", 0),
        ("a-1-py3-none-win_amd64.whl", 0),
        ("a-1-cp312-cp312-musllinux_1_2_x86_64.whl", 0),
    ],
)
def test_a_wheel_is_locked_for_those_that_load_it(wheel, taken_by):
    """Of three interpreters on three platforms; free-threaded ones are none of them."""
    found = [LOCK["Wheel"](wheel, "").runs_on(*target) for _, *target in LOCK["targets"]()]
    assert (len(found), sum(found)) == (9, taken_by)
