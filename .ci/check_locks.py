"""Check that every supported Python and system finds a wheel with a pinned hash for each package.

`pip install --dry-run` resolves for platforms other than this one, so no other machine is needed.
`requirements/dev.txt` contains `core.txt` (`tests/house/test_lock.py`), and torch is unpinned.
"""

import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from check_platform import PYTHONS

ROOT = Path(__file__).parents[1]
MANYLINUX = ("2014", "_2_17", "_2_26", "_2_27", "_2_28")
TAGS = {
    "Linux x86-64": [f"manylinux{version}_x86_64" for version in MANYLINUX],
    "Linux ARM64": [f"manylinux{version}_aarch64" for version in MANYLINUX],
    "macOS ARM64": [f"macosx_{major}_0_arm64" for major in (11, 12, 13, 14)],
}
"""Tags of the wheels for each system: up to glibc 2.28 (Debian 10, RHEL 8) and macOS 14 (2023)."""


def find_wheels(platform: tuple[tuple[int, int], str]) -> str | None:
    """Return the error of pip for (Python version, system), or None if all wheels are found."""
    version, system = platform
    name = ".".join(map(str, version))
    with tempfile.TemporaryDirectory() as target:
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"]
        command += ["--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
        command += ["--only-binary", ":all:", "--python-version", name, "--target", target]
        for tag in TAGS[system]:
            command += ["--platform", tag]
        command += ["--requirement", str(ROOT / "requirements" / "dev.txt")]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode == 0:
        return None
    errors = [line for line in result.stderr.splitlines() if not line.startswith("WARNING")]
    return "\n".join([f"Python {name} on {system}:", *errors])


def main() -> None:
    """Check all combinations, two at a time; exit with the errors of pip."""
    platforms = [(version, system) for version in PYTHONS for system in TAGS]
    with ThreadPoolExecutor(2) as pool:
        errors = [error for error in pool.map(find_wheels, platforms) if error]
    sys.exit("\n".join(errors) or None)


if __name__ == "__main__":
    main()
