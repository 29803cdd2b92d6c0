"""Directories that no other account can write to, for files that are executed as they are found."""

import os
import stat
from pathlib import Path

PRIVATE_MODE = 0o700
"""Read, write and search for the owner alone."""

_ROOT_USER = 0
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def make_private_folder(folder: Path) -> Path:
    """Create a directory and its missing ancestors, each for this account alone; return it.

    `Path.mkdir(parents=True)` applies the mode to the last directory only; its ancestors follow the
    umask, and an account that can write to an ancestor can replace the directory. A directory that
    exists keeps its mode, because another account that could write to it may have left files there.
    Raises OSError if a directory cannot be created.
    """
    missing = []
    ancestor = folder
    while not ancestor.exists():
        missing.append(ancestor)
        ancestor = ancestor.parent
    for directory in reversed(missing):
        directory.mkdir(mode=PRIVATE_MODE, exist_ok=True)
    return folder


def find_foreign_file(folder: Path) -> Path | None:
    """Return a file whose owner is neither this account nor root, directly in a directory.

    None if there is none, and on systems without owners. Raises OSError if a file cannot be
    examined.
    """
    if not hasattr(os, "getuid"):
        return None
    owners = {os.getuid(), _ROOT_USER}
    return next((path for path in folder.iterdir() if path.lstat().st_uid not in owners), None)


def find_exposed_folder(folder: Path) -> Path | None:
    """Return the first of a directory and its ancestors that lets another account replace it.

    A directory is safe if it belongs to this account or to root, and neither group nor others may
    write to it. An ancestor may be writable if it has the sticky bit, as /tmp: there only the owner
    of an entry can rename or remove it. Returns None if all are safe, and on systems without such
    permissions. Raises OSError if a directory cannot be examined.
    """
    if not hasattr(os, "getuid"):
        return None
    owners = {os.getuid(), _ROOT_USER}
    for directory in (folder, *folder.parents):
        status = directory.stat()
        sticky = directory != folder and status.st_mode & stat.S_ISVTX
        if status.st_uid not in owners or (status.st_mode & _WRITABLE_BY_OTHERS and not sticky):
            return directory
    return None
