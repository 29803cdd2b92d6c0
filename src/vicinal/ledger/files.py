"""Files that survive a crash, and a lock that the system takes back when its holder dies."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vicinal.errors import MissingExtra, StorageFailed, StoreInUse

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700
_AT_ONCE = 1 << 24


@contextmanager
def translate_os_errors(path: Path) -> Iterator[None]:
    """Turn the system's errors into StorageFailed, which names the file and no more."""
    try:
        yield
    except OSError as error:
        if isinstance(error, StorageFailed):
            raise
        raise StorageFailed(
            f"{path} cannot be read or written ({error.strerror}). Nothing was answered. Check "
            "the disk, then open it again."
        ) from None


def sync_folder(folder: Path) -> None:
    """Make the names of new and removed files in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(descriptor: int, content: bytes | memoryview, offset: int = 0) -> None:
    """Write all of `content`: a disk that is nearly full takes a part, and says nothing of it."""
    rest = memoryview(content)
    while rest:
        written = os.pwrite(descriptor, rest[:_AT_ONCE], offset)
        rest, offset = rest[written:], offset + written


def replace_file(path: Path, content: bytes) -> None:
    """Write a small file so that after a crash it is the old one or the new one, whole."""
    fresh = path.with_name(path.name + ".new")
    with translate_os_errors(path):
        descriptor = os.open(
            fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, PRIVATE_FILE
        )
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        sync_folder(path.parent)


class Lock:
    """Holds a file locked until :meth:`release`, or until the process ends however it ends.

    `path`: the file; it may stay, it is the lock on it that counts.

    Raises StoreInUse if another process has the lock: both could spend the same budgets. Raises
    MissingExtra if the system has no such locks.
    """

    def __init__(self, path: Path) -> None:
        with translate_os_errors(path):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, PRIVATE_FILE)
        try:
            locked(
                self._descriptor,
                path,
                f"Another process has {path.parent} open; two could spend the same budgets. "
                "Close that one first.",
            )
        except BaseException:
            os.close(self._descriptor)
            raise

    def release(self) -> None:
        """Give the lock back."""
        os.close(self._descriptor)


def locked(descriptor: int, path: Path, refusal: str) -> None:
    """Lock an open file for as long as it is open.

    Raises StoreInUse with the sentence `refusal`, if another process has the lock. Raises
    MissingExtra if the system has no such locks.
    """
    try:
        import fcntl
    except ImportError:
        raise MissingExtra("Budgets on disk need POSIX file locks: Linux or macOS.") from None
    with translate_os_errors(path):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreInUse(refusal) from None
