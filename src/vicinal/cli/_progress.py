"""Progress bars for people at a terminal; silence for everybody else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from vicinal.reports._progress import Begin, Step


@contextmanager
def progress(*, silent: bool = False) -> Iterator[Begin]:
    """Show bars on stderr if stdout and stderr are terminals; else, or if `silent`, nothing."""
    if silent or not (sys.stdout.isatty() and sys.stderr.isatty()):
        yield _nobody_watches
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


def _nobody_watches(name: str, size: int) -> Step:  # noqa: ARG001 (Begin's signature)
    return lambda done: None  # noqa: ARG005
