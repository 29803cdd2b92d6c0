"""What commands share when they write: folders, JSON, and what a run took."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from vicinal.errors import InvalidInput


def output_folder(path: Path) -> Path:
    """Make a folder for results, before any work is done for them."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"The folder {path} cannot be made: {error.strerror}.") from None
    return path


def write_file(path: Path, content: str | bytes) -> None:
    """Write bytes, or text in UTF-8."""
    try:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror}.") from None


@contextmanager
def warnings_said() -> Iterator[None]:
    """Say warnings of the package in a line each on stderr, without the code that gave them."""

    def say(message: Warning | str, *_: object, **__: object) -> None:
        typer.echo(f"vicinal: note: {' '.join(str(message).split())}", err=True)

    with warnings.catch_warnings():
        warnings.filterwarnings("always", category=UserWarning, module=r"vicinal\b|sklearn\b")
        warnings.showwarning = say
        yield


def as_json(result: dict[str, Any]) -> str:
    """Return one JSON object; NaN and infinities are refused, as JSON has none."""
    return json.dumps(result, indent=2, allow_nan=False)


def peak_memory() -> int | None:
    """Return the most memory that this process had at any time, in bytes; None if unknown."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
