"""The tree of errors, from `vicinal.errors`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

_HEAD = """# Errors

All errors that vicinal raises on purpose descend from `vicinal.errors.VicinalError`. A message says
what is wrong, which bound was broken and what to do. It never holds features, labels, ids, budgets,
charges or numbers of records. On the command line `PrivacyRefused` and what descends from it ends
with exit code 3, all others with 2.

| error | descends from | meaning |
|---|---|---|
"""


def pages(root: Path) -> Iterator[tuple[str, str]]:  # noqa: ARG001
    """Yield the page of errors."""
    from vicinal import errors

    classes = [c for c in vars(errors).values() if inspect.isclass(c)]
    yield "errors.md", _HEAD + "".join(map(_row, classes))


def _row(error: type) -> str:
    bases = ", ".join(f"`{base.__name__}`" for base in error.__bases__)
    meaning = " ".join((inspect.getdoc(error) or "").replace(":class:", "").split())
    return f"| `{error.__name__}` | {bases} | {meaning} |\n"
