"""Pin all that `make` installs, and the SHA-256 of its wheels: `make lock`, ARGS=--upgrade.

pip resolves what `pyproject.toml` names. Then it is asked which wheels it would take, here and on
other interpreters and platforms; where one has no wheel, this says so. Nothing is installed. Pins
stay as they are unless --upgrade is given.

core.txt    what vicinal needs, and what builds it
dev.txt     what its extras and its tests need besides
docs.txt    what the site and a release need besides
torch.txt   torch, by its version alone: its CPU and CUDA builds have one version, and which of
            them an index serves, with which packages beside it, differs from machine to machine
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

HERE = Path(__file__).parent
PROJECT = tomllib.loads((HERE.parent / "pyproject.toml").read_text())
EXTRAS = {
    "core": (),
    "dev": ("dev", "encoders", "langchain", "llama-index", "text", "postgres"),
    "docs": ("docs",),
}
"""What each file adds to those before."""

ALONE = ("timm",)
"""Installed without what it needs: its torchvision would have to be the same build as torch."""

HEAD = "# Written by `make lock`: exact versions, and the SHA-256 of their wheels.\n"

VERSION_ALONE = "# Written by `make lock`: the version alone, see requirements/lock.py.\n"

Pins = dict[str, str]
"""Version of each package, by normalised name."""

MANYLINUX = [f"manylinux_2_{minor}" for minor in range(5, 36)]
MANYLINUX += ["manylinux1", "manylinux2010", "manylinux2014"]
PLATFORMS = {
    "Linux x86_64": [f"{name}_x86_64" for name in MANYLINUX],
    "Linux aarch64": [f"{name}_aarch64" for name in MANYLINUX],
    "macOS arm64": [f"macosx_{major}_0_arm64" for major in range(11, 16)],
}
PYTHONS = ("3.11", "3.12", "3.13")

MISSING = re.compile(r"No matching distribution found for ([\w.-]+)")


class NoWheel(Exception):
    """pip knows no wheel of a package, which is the argument."""


def wheels(
    requirements: Iterable[str],
    *options: str,
    constraints: Iterable[str] = (),
    index_only: bool = False,
) -> list[dict]:
    """Return what pip would install, as its report says.

    Parameters
    ----------
    constraints
        Versions of what is not asked for by name.
    index_only
        Leave out what this machine's pip is set up for besides the public index.
    """
    env = dict(os.environ)
    if index_only:
        env = {k: v for k, v in env.items() if k not in {"PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"}}
        env["PIP_CONFIG_FILE"] = os.devnull
    with tempfile.TemporaryDirectory() as name:
        wanted, bounds, report = (Path(name) / one for one in ("wanted", "bounds", "report"))
        wanted.write_text("\n".join(requirements))
        bounds.write_text("\n".join(constraints))
        command = [
            sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed",
            "--disable-pip-version-check", "--only-binary=:all:", "--target", f"{name}/target",
            "--report", report, "--requirement", wanted, "--constraint", bounds, *options,
        ]  # fmt: skip
        done = subprocess.run(command, env=env, check=False, capture_output=True, text=True)
        if done.returncode == 0:
            return list(json.loads(report.read_text())["install"])
    if found := MISSING.search(done.stderr):
        raise NoWheel(normalised(found[1]))
    sys.exit(done.stderr)


def normalised(name: str) -> str:
    """Return the one spelling of a package's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins_of(found: Iterable[dict]) -> Pins:
    """Return the versions in a report; CPU and CUDA builds have one."""
    metadata = (one["metadata"] for one in found)
    return {normalised(one["name"]): one["version"].split("+")[0] for one in metadata}


def read_pins() -> Pins:
    """Return the pins that there are."""
    lines = (line for path in HERE.glob("*.txt") for line in path.read_text().splitlines())
    pairs = (line.split(" ")[0].split("==") for line in lines if "==" in line)
    return dict(pairs)


def resolved(upgrade: bool) -> tuple[dict[str, Pins], str]:
    """Return what each file holds, what it needs and no earlier one has; and torch's version."""
    project, found, files = PROJECT["project"], {}, {}
    wanted = [*project["dependencies"], *PROJECT["build-system"]["requires"], "editables"]
    pins = [] if upgrade else lines(read_pins())
    for name, extras in EXTRAS.items():
        wanted += [one for extra in extras for one in project["optional-dependencies"][extra]]
        needed = pins_of(wheels(wanted, constraints=[*pins, *lines(found)]))
        if name == "dev":
            needed |= pins_of(wheels(ALONE, "--no-deps", constraints=pins))
        files[name] = {one: needed[one] for one in needed.keys() - found.keys() - {"torch"}}
        found |= needed
    return files, found["torch"]


def lines(pins: Pins) -> list[str]:
    """Return pins as pip reads them."""
    return [f"{name}=={version}" for name, version in sorted(pins.items())]


def targets() -> Iterator[tuple[str, list[str]]]:
    """Yield name and options of every interpreter and platform."""
    for platform, tags in PLATFORMS.items():
        for python in PYTHONS:
            options = [option for tag in tags for option in ("--platform", tag)]
            yield f"Python {python}, {platform}", ["--python-version", python, *options]


def hashes_of(pins: Pins) -> dict[str, set[str]]:
    """Return the digests of the wheels that pip takes, here and on every target."""
    found: dict[str, set[str]] = defaultdict(set)
    everywhere = {note(found, one) for one in wheels(lines(pins), "--no-deps")}
    for title, options in targets():
        wanted = {name: version for name, version in pins.items() if name not in everywhere}
        while wanted:
            try:
                for one in wheels(lines(wanted), "--no-deps", *options, index_only=True):
                    note(found, one)
                break
            except NoWheel as error:
                print(f"{title}: no wheel of {error}", flush=True)
                del wanted[str(error)]
    return found


def note(found: dict[str, set[str]], one: dict) -> str | None:
    """Take note of the digest of one wheel of a report; return its name if it runs everywhere."""
    name, wheel = normalised(one["metadata"]["name"]), one["download_info"]
    found[name].add(wheel["archive_info"]["hashes"]["sha256"])
    return name if wheel["url"].endswith("-none-any.whl") else None


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
    files, torch = resolved(parser.parse_args().upgrade)
    everything = {name: version for pins in files.values() for name, version in pins.items()}
    digests = hashes_of(everything)
    for file, pins in files.items():
        write(f"{file}.txt", {name: (pins[name], digests[name]) for name in pins})
    (HERE / "torch.txt").write_text(f"{VERSION_ALONE}torch=={torch}\n")


if __name__ == "__main__":
    main()
