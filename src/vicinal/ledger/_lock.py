"""One process at a time: a lock that the system takes back when its holder dies."""

from __future__ import annotations

import os
from pathlib import Path

from vicinal.errors import MissingExtra, StoreInUse
from vicinal.ledger._files import PRIVATE_FILE, guarded


class Lock:
    """Holds a file locked until :meth:`release`, or until the process ends however it ends.

    `path`: the file; it may stay, it is the lock on it that counts.

    Raises StoreInUse if another process has the lock: both could spend the same budgets. Raises
    MissingExtra if the system has no such locks.
    """

    def __init__(self, path: Path) -> None:
        with guarded(path):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
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
    with guarded(path):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreInUse(refusal) from None
