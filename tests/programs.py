"""Programs that some tests drive: `python tests/programs.py` prints which of them are here.

With ``--missing`` it prints the packages, as Debian names them, of those that are not. A test whose
program is missing is skipped; it fails where VICINAL_REQUIRE names the program, as `.ci/run` does.
"""

import os
import shutil
import sys
from pathlib import Path

PROGRAMS = {
    "browser": ("chromium", "google-chrome", "chrome", "chromium-browser"),
    "curl": ("curl",),
    "nginx": ("nginx",),
    "postgresql": ("initdb",),
}
"""What each is called where it is installed."""

PACKAGES = {"browser": "chromium"}
"""Where a package has another name."""

PLACES = ("/usr/sbin", *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"))))
"""Where systems put programs that not everybody has on the path."""


def found(name):
    """Return the path of a program, or None."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *PLACES])
    return next((it for one in PROGRAMS[name] if (it := shutil.which(one, path=path))), None)


def needed(name):
    """Return the path of a program; without it the running test is skipped, or fails."""
    return found(name) or missing(name)


def missing(name):
    """Skip the running test, or fail it where it may not be skipped."""
    import pytest

    required = os.environ.get("VICINAL_REQUIRE", "").split(",")
    (pytest.fail if name in required else pytest.skip)(f"There is no {name} here.")


if __name__ == "__main__":
    absent = [name for name in PROGRAMS if found(name) is None]
    if "--missing" in sys.argv:
        print(*(PACKAGES.get(name, name) for name in absent))
    else:
        print(",".join(name for name in PROGRAMS if name not in absent))
