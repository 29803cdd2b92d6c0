"""What commands share: files they read and write, what they say and ask, and progress.

What cannot be undone is confirmed: at the terminal, or with --yes. Progress bars are for people at
a terminal; everybody else sees none.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from vicinal.errors import InvalidInput
from vicinal.progress import Begin, Step, show_progress

SOON, OFTEN = 2.0, 5.0
"""Seconds of compiling after which a command says so, and between two lines on it."""


def output_folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"The folder {path} cannot be made: {error.strerror}.") from None
    return path


def write_file(path: Path, content: str | bytes) -> None:
    try:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror}.") from None


def check_writable(path: Path) -> None:
    """Refuse a file that cannot be written, before the work that it is for; leave it as it is."""
    there = path.exists()
    try:
        path.open("ab").close()
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror}.") from None
    if not there:
        path.unlink()


def check_outputs(
    outputs: Mapping[str, Path | None], inputs: Mapping[str, Path | None] | None = None
) -> None:
    """Refuse files that cannot be written, or as :func:`refuse_overlap`, before the work for them.

    The files stay as they are.
    """
    refuse_overlap(outputs, inputs)
    for path in outputs.values():
        if path is not None:
            check_writable(path)


def refuse_overlap(
    outputs: Mapping[str, Path | None], inputs: Mapping[str, Path | None] | None = None
) -> None:
    """Raise InvalidInput if an output is, or lies in, an input or another output.

    `outputs`: paths by the names of options. `inputs`: paths by the names of options, in small
    letters, or of arguments, in capitals. None: not given.
    """
    taken = {name: path for name, path in (inputs or {}).items() if path is not None}
    for name, path in outputs.items():
        if path is None:
            continue
        for other, other_path in taken.items():
            if _is_same_or_within(path, other_path):
                other_words = other if other.isupper() else f"the {other!r} option"
                raise InvalidInput(
                    f"The {name!r} option must not name {path}, because {other_words} names it "
                    "too, or the folder around it. Choose another file."
                )
        taken[name] = path


def _is_same_or_within(path: Path, other: Path) -> bool:
    """Return whether two paths are one file, or the first lies in the folder that the second is."""
    if path.exists() and other.exists() and path.samefile(other):
        return True
    resolved, other_resolved = path.resolve(), other.resolve()
    return resolved == other_resolved or other_resolved in resolved.parents


_PARAGRAPH = re.compile(
    " (?=(?:Neighbouring data sets|This holds for all periods together|Protected|"
    "Public, and not protected|Accounting|Assumed):)"
)


def in_paragraphs(guarantee: object) -> str:
    """Return a guarantee with a paragraph for each of its parts, in lines of a terminal's width."""
    return "\n".join(textwrap.fill(part, 100) for part in _PARAGRAPH.split(str(guarantee)))


def as_json(result: dict[str, Any]) -> str:
    """Return one JSON object; NaN and infinities are refused, as JSON has none."""
    return json.dumps(result, indent=2, allow_nan=False)


@contextmanager
def warnings_said() -> Iterator[None]:
    """Say warnings of the package in a line each on stderr, without the code that gave them."""

    def say(message: Warning | str, *_: object, **__: object) -> None:
        typer.echo(f"vicinal: note: {' '.join(str(message).split())}", err=True)

    with warnings.catch_warnings():
        warnings.filterwarnings("always", category=UserWarning, module=r"vicinal\b|sklearn\b")
        warnings.showwarning = say
        yield


def confirm(consequence: str, *, yes: bool) -> None:
    """Return if somebody agrees to a consequence, which is a sentence; end the program if not.

    Without a terminal to ask at, it is refused.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidInput(f"{consequence} Without a terminal, confirm it with --yes.")
    if not typer.confirm(f"{consequence} Continue?", err=True):
        typer.echo("vicinal: nothing was changed.", err=True)
        raise typer.Exit(1)


@contextmanager
def show_progress_bars(*, silent: bool = False) -> Iterator[Begin]:
    """Show bars on stderr if both stdout and stderr are terminals.

    `silent`: show none in any case, as with ``--json``.
    """
    if silent or not (sys.stdout.isatty() and sys.stderr.isatty()):
        yield lambda _name, _size: lambda _done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        *(TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f} %")),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:

        def begin(name: str, size: int) -> Step:
            task = bars.add_task(name, total=size)
            return lambda done: bars.advance(task, done)

        yield begin


@contextmanager
def progress_shown(*, silent: bool = False) -> Iterator[None]:
    """Show bars of whatever work announces its steps by :func:`vicinal.progress.step`."""
    with show_progress_bars(silent=silent) as begin, show_progress(begin):
        yield


def compiling_said() -> Callable[[int, int], None]:
    """Return what says now and then on stderr how many functions were compiled.

    It is said anywhere, not at terminals alone: only a first use on a machine compiles.
    """
    start: float | None = None
    then = 0.0

    def watch(done: int, most: int) -> None:
        nonlocal start, then
        now = time.monotonic()
        if start is None:
            start, then = now, now + SOON
        if now >= then:
            then = now + OFTEN
            typer.echo(
                f"vicinal: compiling, which happens once on a machine: {done} of at most {most} "
                f"functions in {now - start:.0f} s.",
                err=True,
            )

    return watch
