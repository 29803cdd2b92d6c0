"""Reports of the progress of long work, independent of how they are displayed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Step = Callable[[int], None]
"""Function that reports progress, called with the number of steps finished since the last call."""

Begin = Callable[[str, int], Step]
"""Function that starts a display of work with a name and a total number of steps."""

_begin: ContextVar[Begin | None] = ContextVar("begin", default=None)


@contextmanager
def show_progress(begin: Begin) -> Iterator[None]:
    """Display the progress of work that calls :func:`begin_progress` in this context and thread."""
    token = _begin.set(begin)
    try:
        yield
    finally:
        _begin.reset(token)


def begin_progress(name: str, size: int) -> Step | None:
    """Begin a progress display; return its update function, or None if none is displayed.

    `name`: shown at the display. `size`: total number of steps.
    """
    begin = _begin.get()
    return None if begin is None else begin(name, size)


compile_watchers: list[Callable[[int, int], None]] = []
"""Functions called whenever numba has compiled a function, with the numbers of compiled functions
and of all functions. Compilation takes most of a minute at the first use on a machine."""
