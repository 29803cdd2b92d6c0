"""Folders of tests lie in memory where there is room for them.

A disk takes milliseconds for every flush, and stores flush at every commit. What a flush is for, a
loss of power, no test can cause: a process that is killed loses nothing it has written, on any
file system. ``PYTEST_DEBUG_TEMPROOT=/tmp`` puts the folders on a disk.
"""

import os
import shutil
from pathlib import Path

MEMORY = Path("/dev/shm")  # noqa: S108 (pytest makes folders of its own there, for this user alone)
ROOM = 4 << 30
"""Bytes that must be free; a run of the suite takes less than a tenth of them."""


def pytest_configure():
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
