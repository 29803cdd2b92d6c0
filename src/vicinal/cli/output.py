"""Files that commands write, messages, confirmations and progress.

Irreversible actions are confirmed at the terminal or with --yes. Progress bars are shown only at a
terminal.
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

FIRST_COMPILE_NOTE_S = 2.0
_COMPILE_NOTE_INTERVAL_S = 5.0
"""Seconds from the first compilation to the first note on it, and between notes."""


def output_folder(path: Path) -> Path:
    """Return the folder `path`, created if it does not exist. Raises InvalidInput on failure."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"The folder {path} cannot be made: {error.strerror}.") from None
    return path


def write_file(path: Path, content: str | bytes) -> None:
    """Write `content`, text as UTF-8. Raises InvalidInput on failure."""
    with _refuse_unwritable(path):
        path.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def _refuse_unwritable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror}.") from None


def check_outputs(
    outputs: Mapping[str, Path | None], inputs: Mapping[str, Path | None] | None = None
) -> None:
    """Raise InvalidInput if :func:`refuse_overlap` does, or if an output cannot be written."""
    refuse_overlap(outputs, inputs)
    for path in outputs.values():
        if path is not None:
            exists = path.exists()
            with _refuse_unwritable(path):
                path.open("ab").close()
            if not exists:
                path.unlink()


def refuse_overlap(
    outputs: Mapping[str, Path | None], inputs: Mapping[str, Path | None] | None = None
) -> None:
    """Raise InvalidInput if an output is, or lies in, an input or another output.

    `outputs` and `inputs` map the name of an option (lower case) or argument (upper case) to its
    path; None if it was not given.
    """
    used_paths = {name: path for name, path in (inputs or {}).items() if path is not None}
    for name, path in outputs.items():
        if path is None:
            continue
        for used_name, used_path in used_paths.items():
            if _is_same_or_within(path, used_path):
                description = used_name if used_name.isupper() else f"the {used_name!r} option"
                raise InvalidInput(
                    f"The {name!r} option must not name {path}, because {description} names it "
                    "too, or the folder around it. Choose another file."
                )
        used_paths[name] = path


def _is_same_or_within(path: Path, other: Path) -> bool:
    """Return whether both paths are the same file, or the first lies in the folder `other`."""
    if path.exists() and other.exists() and path.samefile(other):
        return True
    resolved = path.resolve()
    resolved_other = other.resolve()
    return resolved == resolved_other or resolved_other in resolved.parents


_PARAGRAPH = re.compile(
    " (?=(?:Neighbouring data sets|This holds for all periods together|Protected|"
    "Public, and not protected|Accounting|Assumed):)"
)


def format_guarantee(guarantee: object) -> str:
    """Return the text of a guarantee, in paragraphs of lines of at most 100 characters."""
    paragraphs = _PARAGRAPH.split(str(guarantee))
    return "\n".join(textwrap.fill(paragraph, 100) for paragraph in paragraphs)


def as_json(result: dict[str, Any]) -> str:
    """Return one JSON object. Raises ValueError for NaN and infinities, which JSON lacks."""
    return json.dumps(result, indent=2, allow_nan=False)


_TERMINAL_CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)
"""Characters that command a terminal, or reorder its text: all control characters but tab and line
feed, which lay texts out, line separators, and Unicode's bidirectional controls."""


def escape_controls(text: str) -> str:
    r"""Return `text` with characters that a terminal obeys as escapes, such as ``\x1b``."""
    return _TERMINAL_CONTROLS.sub(lambda match: ascii(match[0])[1:-1], text)


def print_text(text: str, *, err: bool = False) -> None:
    """Print text for people and a line break; names in it cannot command a terminal.

    `err`: print to stderr instead of stdout.
    """
    typer.echo(escape_controls(text), err=err)


def print_data(text: str) -> None:
    """Print the content of a file: exactly for programs, with escapes at a terminal."""
    shown_text = escape_controls(text) if sys.stdout.isatty() else text
    # By default, click removes escape sequences from what a program reads.
    typer.echo(shown_text, nl=False, color=True)


def print_note(text: str) -> None:
    """Print one line on stderr."""
    print_text(f"vicinal: {text}", err=True)


@contextmanager
def print_warnings() -> Iterator[None]:
    """Print warnings on stderr, one line each, without the source code that raised them."""

    def print_warning(message: Warning | str, *_: object, **__: object) -> None:
        print_note(f"note: {' '.join(str(message).split())}")

    with warnings.catch_warnings():
        warnings.filterwarnings("always", category=UserWarning, module=r"vicinal\b|sklearn\b")
        warnings.showwarning = print_warning
        yield


def confirm(consequence: str, *, yes: bool) -> None:
    """Ask for consent to `consequence` (a sentence), unless `yes`; end the program if it is denied.

    Raises InvalidInput without a terminal.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidInput(f"{consequence} Without a terminal, confirm it with --yes.")
    if not typer.confirm(f"{escape_controls(consequence)} Continue?", err=True):
        print_note("nothing was changed.")
        raise typer.Exit(1)


@contextmanager
def show_progress_bars(*, silent: bool = False) -> Iterator[Begin]:
    """Yield a function that starts a progress bar on stderr.

    There are no bars if `silent` (as with ``--json``), or if stdout or stderr is no terminal.
    """
    if silent or not (sys.stdout.isatty() and sys.stderr.isatty()):
        yield lambda _name, _size: lambda _n_steps: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    name_column = TextColumn("{task.description}")
    share_column = TextColumn("{task.percentage:3.0f} %")
    columns = (name_column, BarColumn(), share_column, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:

        def begin(name: str, size: int) -> Step:
            task = bars.add_task(name, total=size)
            return lambda n_steps: bars.advance(task, n_steps)

        yield begin


@contextmanager
def show_announced_progress(*, silent: bool = False) -> Iterator[None]:
    """Show bars for all work that announces its steps by :func:`vicinal.progress.step`."""
    with show_progress_bars(silent=silent) as begin, show_progress(begin):
        yield


def make_compile_reporter() -> Callable[[int, int], None]:
    """Return a function that prints the progress of compilation on stderr from time to time.

    Its arguments are the number of compiled functions and the largest possible number.
    """
    start: float | None = None
    next_note = 0.0

    def report_progress(n_compiled: int, max_functions: int) -> None:
        nonlocal start, next_note
        now = time.monotonic()
        if start is None:
            start = now
            next_note = now + FIRST_COMPILE_NOTE_S
        if now >= next_note:
            next_note = now + _COMPILE_NOTE_INTERVAL_S
            print_note(
                f"compiling, which happens once on a machine: {n_compiled} of at most "
                f"{max_functions} functions in {now - start:.0f} s."
            )

    return report_progress
