"""One decorator for compiled functions, whose cache cannot go stale.

numba keys its on-disk cache by the file of the compiled function alone. A compiled function that
calls one in another file would keep an old copy of it after an edit or an update, which is not
acceptable for code that charges budgets. Here the cache lives in a folder named after a digest of
all sources of the rooms that hold compiled code: a change to any of them starts a new folder.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

_ROOMS = ("accounting", "noise", "neighbours", "mechanisms", "smoothed")


def compiled(function: Callable[..., Any]) -> Any:
    """Compile `function` on first use, without the GIL, and keep the result on disk."""
    folder = _cache_folder()
    before = numba.config.CACHE_DIR
    try:
        # Read once, when the function's cache is set up; the user's own functions never see it.
        numba.config.CACHE_DIR = folder or before
        return numba.njit(nogil=True, cache=bool(folder))(function)
    finally:
        numba.config.CACHE_DIR = before


def _source_digest() -> str:
    """Return a digest of everything that compiled code can be made of."""
    here = Path(__file__).parent
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for room in _ROOMS:
        for path in sorted((here / room).rglob("*.py")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _cache_folder() -> str:
    """Return a writable folder for this version's compiled code, or "" for no caching."""
    base = numba.config.CACHE_DIR or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = Path(base).expanduser() / "vicinal" / f"kernels-{_DIGEST}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError:
        return ""
    # Cached code is run as it is found: take it from nobody else's folder.
    foreign = hasattr(os, "getuid") and status.st_uid != os.getuid()
    shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return "" if foreign or shared or not os.access(folder, os.W_OK) else str(folder)


_DIGEST = _source_digest()
