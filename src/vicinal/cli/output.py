"""Files that commands write, messages, confirmations and progress.

Irreversible actions are confirmed at the terminal or with --yes. Progress bars are shown only at a
terminal.
"""

from __future__ import annotations

import errno
import io
import json
import os
import re
import stat
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import typer

from vicinal.errors import InvalidInput, OutputFailed, redirect_warnings
from vicinal.ledger.output_files import check_free_space, check_output, write_output
from vicinal.progress import Begin, Step, show_progress

FIRST_COMPILE_NOTE_S = 2.0
"""Seconds from the start of the first compilation to the first note on it."""
_COMPILE_NOTE_INTERVAL_S = 5.0  # seconds between notes on compilation


def check_standard_output() -> None:
    """Raise OSError if standard output cannot be written; nothing is written to it.

    It can be on a full disk or device, a pipe without a reader, or open for reading alone.
    """
    try:
        descriptor = sys.stdout.fileno()
    except io.UnsupportedOperation:  # a program or test has replaced standard output
        return
    if os.name == "nt":
        return
    import fcntl
    import select

    if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    check_free_space(descriptor)
    if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        pipe = select.poll()
        pipe.register(descriptor, 0)
        if pipe.poll(0):  # without requested events, only errors are reported
            raise OSError(errno.EPIPE, os.strerror(errno.EPIPE))


def create_output_folder(path: Path) -> Path:
    """Return the folder `path`, created if it does not exist. Raises InvalidInput on failure."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"The folder {path} cannot be made: {error.strerror}.") from None
    return path


def write_file(path: Path, content: str | bytes) -> None:
    """Write `content`, text as UTF-8, to the file `path`. Raises OutputFailed on failure."""
    write_output(path, content.encode() if isinstance(content, str) else content)


def echo_or_write(text: str, path: Path | None) -> None:
    """Write `text` with a final line break to the file `path`, or to stdout if it is None."""
    if path is None:
        echo(text)
    else:
        write_file(path, text + "\n")


def check_outputs(
    outputs: Mapping[str, Path | None], inputs: Mapping[str, Path | None] | None = None
) -> None:
    """Raise InvalidInput if an output cannot be written, or for :func:`refuse_overlap`."""
    from vicinal.ledger.rollback_guard import is_witness

    refuse_overlap(outputs, inputs)
    for path in outputs.values():
        if path is not None and is_witness(path):
            raise InvalidInput(f"{path} is the witness of a store or a run. Choose another output.")
        if path is not None:
            check_output(path)


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
        resolved = _resolve_path(path)
        folders = (resolved, *resolved.parents)
        for used_name, used_path in used_paths.items():
            is_below = _resolve_path(used_path) in folders
            if is_below or (path.exists() and used_path.exists() and path.samefile(used_path)):
                description = used_name if used_name.isupper() else f"the {used_name!r} option"
                raise InvalidInput(
                    f"The {name!r} option must not name {path}, because {description} names it "
                    "too, or the folder around it. Choose another file."
                )
        used_paths[name] = path


def _resolve_path(path: Path) -> Path:
    """Return the absolute path without links of a file, which need not exist.

    Raises InvalidInput for a loop of links, a name that is too long or an unreadable folder.
    """
    try:
        with suppress(FileNotFoundError):
            path.stat()
        return path.resolve()
    except OSError as error:
        raise InvalidInput(f"{path} cannot be used: {error.strerror}.") from None


_PARAGRAPH = re.compile(
    " (?=(?:Neighbouring data sets|This holds for all periods together|Protected|"
    "Public, and not protected|Accounting|Assumed):)"
)


def format_guarantee(guarantee: object) -> str:
    """Return a guarantee, or its text, in paragraphs of lines of at most 100 characters."""
    paragraphs = _PARAGRAPH.split(str(guarantee))
    return "\n".join(textwrap.fill(paragraph, 100) for paragraph in paragraphs)


def as_json(result: dict[str, Any]) -> str:
    """Return `result` as the text of a JSON object. Raises ValueError for NaN and infinities."""
    return json.dumps(result, indent=2, allow_nan=False)


_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters other than tab and line break, and those that change the writing direction.

In ids, names and files of others they could change the display of a terminal, or run its commands.
"""


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    r"""Print text with its control characters escaped, ESC as the four characters ``\x1b``.

    `err`: on stderr instead of stdout. `nl`: end with a line break. Raises OutputFailed if stdout
    cannot be written.
    """
    escaped = _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
    _print(escaped, err=err, nl=nl)


def echo_data(text: str) -> None:
    """Print `text`, data for a program, unchanged; at a terminal like :func:`echo`."""
    if sys.stdout.isatty():
        echo(text, nl=False)
    else:
        # By default, click removes escape sequences from what a program reads.
        _print(text, nl=False, color=True)


def _print(text: str, *, err: bool = False, nl: bool, color: bool | None = None) -> None:
    """Print text on stdout, or on stderr if `err`, with a line break at the end if `nl`.

    `color`: whether to keep terminal codes; None: if the output is a terminal. A message that
    stderr does not accept is lost, because the work must not fail for it. Raises OutputFailed if
    stdout cannot be written, and BrokenPipeError if its reader has gone.
    """
    try:
        typer.echo(text, err=err, nl=nl, color=color)
    except OSError as error:
        if error.errno == errno.EPIPE and not err:
            raise
        redirect_to_null(2 if err else 1)
        if not err:
            raise OutputFailed(f"the output cannot be written: {error.strerror}.") from None


def redirect_to_null(descriptor: int) -> None:
    """Redirect stdout (`descriptor` 1) or stderr (2) to the null device."""
    # Otherwise, Python would try again to write at its exit, and fail.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)


def print_note(text: str) -> None:
    """Print `text`, one line, on stderr after "vicinal: "."""
    echo(f"vicinal: {text}", err=True)


def print_warnings() -> AbstractContextManager[None]:
    """Print warnings on stderr, one line each, without the source code that raised them."""
    return redirect_warnings(lambda text: print_note(f"note: {text}"))


def confirm(consequence: str, *, yes: bool) -> None:
    """Ask for consent to `consequence` (a sentence), unless `yes`; end the program if it is denied.

    Raises InvalidInput without a terminal.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidInput(f"{consequence} Without a terminal, confirm it with --yes.")
    if not typer.confirm(f"{consequence} Continue?", err=True):
        print_note("nothing was changed.")
        raise typer.Exit(1)


@contextmanager
def show_progress_bars(*, silent: bool = False) -> Iterator[Begin]:
    """Yield a function that starts a progress bar on stderr, given its name and number of steps.

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
            """Start the bar `name` of `size` steps; return the function that advances it."""
            task = bars.add_task(name, total=size)
            return lambda n_steps: bars.advance(task, n_steps)

        yield begin


@contextmanager
def show_announced_progress(*, silent: bool = False) -> Iterator[None]:
    """Show the bars of :func:`show_progress_bars` for all work that calls ``begin_progress``."""
    with show_progress_bars(silent=silent) as begin, show_progress(begin):
        yield


def make_compile_reporter() -> Callable[[int, int], None]:
    """Return a function that prints the progress of compilation on stderr from time to time.

    Its arguments are the number of compiled functions and the largest possible number.
    """
    start: float | None = None
    next_note = 0.0

    def report_progress(n_compiled: int, max_functions: int) -> None:
        """Print both numbers if enough time has passed since the first compilation or last note."""
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
