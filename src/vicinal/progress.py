"""How long work tells of its progress, without knowing who watches."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Step = Callable[[int], None]
"""Called with the size of each part of the work just finished."""

Begin = Callable[[str, int], Step]
"""Announces a piece of work by name and size, and returns what to call as it proceeds."""

_begin: ContextVar[Begin | None] = ContextVar("begin", default=None)


@contextmanager
def show_progress(begin: Begin) -> Iterator[None]:
    """Show the steps of all work below that calls :func:`step`, in this thread."""
    token = _begin.set(begin)
    try:
        yield
    finally:
        _begin.reset(token)


def step(name: str, size: int) -> Step | None:
    """Announce a piece of work to whoever shows progress; None if nobody does."""
    begin = _begin.get()
    return None if begin is None else begin(name, size)


compile_watchers: list[Callable[[int, int], None]] = []
"""Called as functions are compiled, as a first use on a machine does for most of a minute: with how
many were compiled, and how many there are."""
