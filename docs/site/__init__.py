"""Pages that are made from the sources while the site builds: nothing in them is typed twice.

Everything goes to `docs/generated`, which git ignores. A file is written only if it changes, so
that a second build is short.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from docs.site import api, commands, errors, http, notes, plans

_PARTS = (api, commands, errors, http, notes, plans)


def write_pages(root: Path) -> None:
    """Write all pages to `docs/generated`, and delete what no longer belongs there."""
    folder = root / "docs" / "generated"
    written = {folder / name: text for name, text in _pages(root)}
    for path, text in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for old in {*folder.glob("*.*"), *folder.glob("*/index.*"), *folder.glob("api/p-*")}:
        if old not in written:
            old.unlink()


def _pages(root: Path) -> Iterator[tuple[str, str]]:
    for part in _PARTS:
        yield from part.pages(root)
