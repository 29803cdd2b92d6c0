"""Stop before an installation starts if this Python or this system is not supported."""

import platform
import sys

PYTHONS = [(3, minor) for minor in range(11, 15)]
SYSTEMS = {"Linux": ("x86_64", "aarch64"), "Darwin": ("arm64",)}
"""Operating systems and processors whose wheels `requirements/*.txt` contain."""
SUPPORTED = (
    "vicinal supports Python 3.11 to 3.14 on Linux (x86-64, ARM64) and macOS (Apple silicon)."
)


def find_fault(version: tuple[int, int], system: str, machine: str) -> str | None:
    """Return why vicinal cannot be installed, with a remedy; None on a supported platform."""
    if version not in PYTHONS:
        found = ".".join(map(str, version))
        return f"{SUPPORTED} This is Python {found}; select another one: make PYTHON=python3.12 ..."
    if machine not in SYSTEMS.get(system, ()):
        remedy = "Use the Linux subsystem (WSL) or a container. " if system == "Windows" else ""
        return f"{SUPPORTED} This is {system} on {machine}. {remedy}".rstrip()
    return None


if __name__ == "__main__":
    sys.exit(find_fault(sys.version_info[:2], platform.system(), platform.machine()))
