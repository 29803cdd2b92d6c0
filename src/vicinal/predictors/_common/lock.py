"""A lock that a forked process cannot take."""

from __future__ import annotations

import os
import threading

from vicinal.errors import PrivacyRefused


class ForkSafeLock:
    """One thread of one process at a time: ``with turn: ...``.

    A forked process has a copy of all budgets, which it could spend once more; it gets no turn.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._process = os.getpid()

    def __enter__(self) -> None:
        """Wait for the turn, or refuse it to a fork."""
        if os.getpid() != self._process:
            raise PrivacyRefused(
                "A forked process holds a copy of the budgets and could spend them again. Use the "
                "classifier in the process that fitted it, or fit it in this one."
            )
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        """Pass the turn on."""
        self._lock.release()
