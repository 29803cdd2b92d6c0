"""Reading files that may be pipes so that Ctrl-C is heard.

Python looks for signals when one of its reads is interrupted. A signal that comes between two reads
of one call is heard only once more content comes: from a pipe, that may be never.
"""

from __future__ import annotations

import os
import select

_PATIENCE_S = 0.1
_CHUNK = 1 << 16


def read_whole(descriptor: int) -> bytes:
    """Return everything up to the end of a file or pipe, given its descriptor."""
    return b"".join(iter(lambda: _next_chunk(descriptor), b""))


def _next_chunk(descriptor: int) -> bytes:
    """Return what there is, b"" at the end; look for signals while there is nothing."""
    while not select.select([descriptor], [], [], _PATIENCE_S)[0]:
        pass
    return os.read(descriptor, _CHUNK)
