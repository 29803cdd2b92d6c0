"""One process at a time: a lock that the system takes back when its holder dies."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from vicinal.errors import MissingExtra, PrivacyRefused
from vicinal.ledger.files import PRIVATE_FILE, guarded


class Lock:
    """Holds a file locked until :meth:`release`, or until the process ends however it ends.

    Parameters
    ----------
    path : Path
        The file; it may stay, it is the lock on it that counts.

    Raises
    ------
    PrivacyRefused
        If another process has the lock: both could spend the same budgets.
    MissingExtra
        If the system has no such locks.
    """

    def __init__(self, path: Path) -> None:
        try:
            import fcntl
        except ImportError:
            raise MissingExtra("Budgets on disk need POSIX file locks: Linux or macOS.") from None
        self._path = path
        with guarded(path):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
        try:
            with guarded(path):
                self._lock(fcntl)
        except BaseException:
            os.close(self._descriptor)
            raise

    def _lock(self, fcntl: Any) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PrivacyRefused(
                f"Another process has {self._path.parent} open; two could spend the same budgets. "
                "Close that one first."
            ) from None

    def release(self) -> None:
        """Give the lock back."""
        os.close(self._descriptor)
