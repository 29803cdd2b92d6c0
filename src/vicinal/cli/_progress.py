"""Progress bars for people at a terminal; for logs, one line of a command that takes long."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from vicinal.reports._progress import Begin, Step

PATIENCE = 20.0
"""Seconds after which a command says that it goes on."""

_ENDLESS = frozenset({"serve"})
_parts: dict[str, tuple[int, int]] = {}
"""Pieces of work under way: how much is done, of how much."""


@contextmanager
def progress(*, silent: bool = False) -> Iterator[Begin]:
    """Show bars on stderr if both stdout and stderr are terminals; else note the shares done.

    Parameters
    ----------
    silent
        Show no bars in any case, as with ``--json``.
    """
    if silent or not _terminal():
        yield _noted
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:

        def begin(name: str, size: int) -> Step:
            task = bars.add_task(name, total=size)
            return lambda done: bars.advance(task, done)

        yield begin


@contextmanager
def sign_of_life(command: str | None) -> Iterator[None]:
    """Off a terminal, say once on stderr that `command` goes on, if it takes long.

    The line holds the command, the seconds, and the share done of the work that counts it.
    """
    if command in _ENDLESS or _terminal():
        yield
        return
    timer = threading.Timer(PATIENCE, _say, (command,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _terminal() -> bool:
    return sys.stdout.isatty() and sys.stderr.isatty()


def _say(command: str | None) -> None:
    shares = [f"{name} {100 * done // size} %" for name, (done, size) in _parts.items() if size]
    sys.stderr.write(
        f"vicinal: {command} goes on after {PATIENCE:g} s{': ' if shares else ''}"
        f"{', '.join(shares)}.\n"
    )
    sys.stderr.flush()


def _noted(name: str, size: int) -> Step:
    _parts[name] = 0, size

    def step(done: int) -> None:
        before, _ = _parts[name]
        _parts[name] = before + done, size

    return step
