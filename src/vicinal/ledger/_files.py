"""Files that survive a crash: written, flushed to the disk, and their names too."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vicinal.errors import StorageFailed

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700


@contextmanager
def guarded(path: Path) -> Iterator[None]:
    """Turn the system's errors into StorageFailed, which names the file and no more."""
    try:
        yield
    except OSError as error:
        if isinstance(error, StorageFailed):
            raise
        raise StorageFailed(
            f"{path} cannot be read or written ({error.strerror}). Nothing was answered. See to "
            "the disk, then open it again."
        ) from None


def sync_folder(folder: Path) -> None:
    """Make the names of new and removed files in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: bytes) -> None:
    """Write a small file so that after a crash it is the old one or the new one, whole."""
    fresh = path.with_name(path.name + ".new")
    with guarded(path):
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        sync_folder(path.parent)
