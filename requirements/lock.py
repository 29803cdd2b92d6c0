"""Pin all that `make` installs, and the SHA-256 of its wheels: `make lock`, ARGS=--upgrade.

pip, the newest, resolves what `pyproject.toml` names: it reads what packages say of themselves and
downloads no wheels. The index says which wheels each version has, with their digests; where an
interpreter or platform has none, this says so. Nothing is installed. Pins stay as they are unless
--upgrade is given.

core.txt    what vicinal needs, and what builds it
dev.txt     what its extras and its tests need besides
docs.txt    what the site and a release need besides
torch.txt   torch, by its version alone: its CPU and CUDA builds have one version, and which of
            them an index serves, with which packages beside it, differs from machine to machine
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from pip._internal.models.index import PyPI  # no command prints the default index

HERE = Path(__file__).parent
PROJECT = tomllib.loads((HERE.parent / "pyproject.toml").read_text())
EXTRAS = {
    "core": (),
    "dev": ("dev", "encoders", "text", "postgres"),
    "docs": ("docs",),
}
"""What each file adds to those before."""

ALONE = ("timm",)
"""Installed without what it needs: its torchvision would have to be the same build as torch."""

HELD = ("typer<0.29",)
"""Not the newest: from 0.29 on typer loads pydantic for every command, a quarter of a second."""

HEAD = "# Written by `make lock`: exact versions, and the SHA-256 of their wheels.\n"

VERSION_ALONE = "# Written by `make lock`: the version alone, see requirements/lock.py.\n"

Pins = dict[str, str]
"""Version of each package, by normalised name."""

SIMPLE = "application/vnd.pypi.simple.v1+json"
"""What an index says of a package's files (PEP 691)."""

PYTHONS = ("3.11", "3.12", "3.13")
PLATFORMS = {
    "Linux x86_64": re.compile(r"any|manylinux\w*_x86_64"),
    "Linux aarch64": re.compile(r"any|manylinux\w*_aarch64"),
    "macOS arm64": re.compile(r"any|macosx_\w*_(arm64|universal2)"),
}


class Wheel(NamedTuple):
    """A wheel of one version: its file's name, and the digest that the index gives."""

    name: str
    sha256: str

    def runs_on(self, python: str, platform: re.Pattern[str]) -> bool:
        """Return whether its tags name an interpreter ("3.11") and a platform."""
        interpreter, abi, places = self.name.removesuffix(".whl").split("-")[-3:]
        return any(map(platform.fullmatch, places.split("."))) and any(
            fits(one, abi, int(python.split(".")[1])) for one in interpreter.split(".")
        )


def fits(tag: str, abi: str, minor: int) -> bool:
    """Return whether CPython 3.minor loads wheels of this interpreter's tag and ABI."""
    if "abi3" in abi.split("."):
        return bool(found := re.fullmatch(r"cp3(\d+)", tag)) and int(found[1]) <= minor
    return tag in {"py3", f"py3{minor}"} or (tag == f"cp3{minor}" and abi in {tag, "none"})


def resolve(
    pip: Path, requirements: Iterable[str], *options: str, constraints: Iterable[str]
) -> Pins:
    """Return the versions that pip would install; `constraints` are of what is not asked for."""
    with tempfile.TemporaryDirectory() as name:
        wanted, bounds, report = (Path(name) / one for one in ("wanted", "bounds", "report"))
        wanted.write_text("\n".join(requirements))
        bounds.write_text("\n".join(constraints))
        command = [
            sys.executable, pip, "install", "--quiet", "--dry-run", "--ignore-installed",
            "--disable-pip-version-check", "--only-binary=:all:", "--target", f"{name}/target",
            "--report", report, "--requirement", wanted, "--constraint", bounds, *options,
        ]  # fmt: skip
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        found = (one["metadata"] for one in json.loads(report.read_text())["install"])
        # CPU and CUDA builds have one version.
        return {normalised(one["name"]): one["version"].split("+")[0] for one in found}


def newest_pip(folder: str) -> Path:
    """Return a pip of its own: an older one downloads every wheel to see what it needs."""
    asked = [sys.executable, "-m", "pip", "install", "--quiet", "--target", folder, "pip"]
    subprocess.run(asked, check=True)
    return Path(folder) / "pip"


def normalised(name: str) -> str:
    """Return the one spelling of a package's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_pins() -> Pins:
    """Return the pins that there are."""
    lines = (line for path in HERE.glob("*.txt") for line in path.read_text().splitlines())
    pairs = (line.split(" ")[0].split("==") for line in lines if "==" in line)
    return dict(pairs)


def resolved(pip: Path, upgrade: bool) -> tuple[dict[str, Pins], str]:
    """Return what each file holds, what it needs and no earlier one has; and torch's version."""
    project, found, files = PROJECT["project"], {}, {}
    wanted = [*project["dependencies"], *PROJECT["build-system"]["requires"], "editables"]
    pins = [] if upgrade else lines(read_pins())
    for name, extras in EXTRAS.items():
        wanted += [one for extra in extras for one in project["optional-dependencies"][extra]]
        needed = resolve(pip, wanted, constraints=[*pins, *HELD, *lines(found)])
        if name == "dev":
            needed |= resolve(pip, ALONE, "--no-deps", constraints=pins)
        files[name] = {one: needed[one] for one in needed.keys() - found.keys() - {"torch"}}
        found |= needed
        print(f"{name}.txt: {len(files[name])} packages", flush=True)
    return files, found["torch"]


def lines(pins: Pins) -> list[str]:
    """Return pins as pip reads them."""
    return [f"{name}=={version}" for name, version in sorted(pins.items())]


def index() -> str:
    """Return the address of the index that pip is set up for, or of pip's own."""
    asked = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    done = subprocess.run(asked, check=False, capture_output=True, text=True)
    found = os.environ.get("PIP_INDEX_URL") or done.stdout.strip() or PyPI.simple_url
    return found.rstrip("/")


def listed(address: str, package: str, version: str) -> list[Wheel]:
    """Return the wheels of a version that the index has, and has not taken back."""
    asked = urllib.request.Request(f"{address}/{package}/", headers={"Accept": SIMPLE})  # noqa: S310
    with urllib.request.urlopen(asked, timeout=60) as answer:  # noqa: S310
        if answer.headers.get_content_type() != SIMPLE:
            sys.exit(f"{address} does not list files as JSON (PEP 691): set PIP_INDEX_URL")
        files = json.load(answer)["files"]
    wheels = [one for one in files if one["filename"].endswith(".whl") and not one.get("yanked")]
    return [
        Wheel(one["filename"], one["hashes"]["sha256"])
        for one in wheels
        if one["filename"].split("-")[1].split("+")[0] == version
    ]


def targets() -> Iterator[tuple[str, str, re.Pattern[str]]]:
    """Yield title, interpreter and platform of all that is locked."""
    for (platform, tags), python in itertools.product(PLATFORMS.items(), PYTHONS):
        yield f"Python {python}, {platform}", python, tags


def digests_of(package: str, wheels: list[Wheel]) -> set[str]:
    """Return the digests of the wheels that some target takes; print where there is none."""
    found: set[str] = set()
    for title, python, platform in targets():
        taken = {one.sha256 for one in wheels if one.runs_on(python, platform)}
        if not taken:
            print(f"{title}: no wheel of {package}", flush=True)
        found |= taken
    return found


def write(name: str, pins: dict[str, tuple[str, set[str]]]) -> None:
    """Write a lock file."""
    entries = [
        " \\\n".join(
            [f"{package}=={version}", *(f"    --hash=sha256:{d}" for d in sorted(digests))]
        )
        for package, (version, digests) in sorted(pins.items())
    ]
    (HERE / name).write_text(HEAD + "\n".join([*entries, ""]))


def main() -> None:
    """Write the lock files."""
    parser = argparse.ArgumentParser(prog="make lock", description=__doc__)
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions")
    with tempfile.TemporaryDirectory() as name:
        files, torch = resolved(newest_pip(name), parser.parse_args().upgrade)
    pins = {one: version for file in files.values() for one, version in file.items()}
    with ThreadPoolExecutor(8) as pool:
        wheels = pool.map(listed, itertools.repeat(index()), pins, pins.values())
    digests = {one: digests_of(one, found) for one, found in zip(pins, wheels, strict=True)}
    for file, packages in files.items():
        write(f"{file}.txt", {one: (packages[one], digests[one]) for one in packages})
    (HERE / "torch.txt").write_text(f"{VERSION_ALONE}torch=={torch}\n")


if __name__ == "__main__":
    main()
