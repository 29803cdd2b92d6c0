"""Secret keys from the system's entropy."""

from __future__ import annotations

import os


def fresh_key(size: int = 32) -> bytes:
    """Return `size` unpredictable bytes."""
    return os.urandom(size)
