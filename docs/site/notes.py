"""Proof notes and top-level files as pages: their text, with links that lead to pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from docs.site.links import as_pages

FILES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")


def pages(root: Path) -> Iterator[tuple[str, str]]:
    """Yield a page for each proof note beside the code, and for the files at the top."""
    for note in sorted((root / "src").rglob("*.md")):
        if "datasets" not in note.parts:
            yield f"proofs/{note.name}", as_pages(note.read_text(encoding="utf-8"), note, root)
    for name in FILES:
        path = root / name
        if path.exists():
            yield f"{path.stem.lower()}.md", as_pages(path.read_text(encoding="utf-8"), path, root)
