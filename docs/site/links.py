"""What Sphinx is told of our texts: links to files that are no pages, bars, and options in code.

On a repository's site links lead to files; here a proof note, the changelog and the like are pages
in `docs/generated`, and what has no page becomes its name in code.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)#\s]+)(#[^)\s]*)?\)")

_PAGES_AND_FILES = {".csv", ".md", ".png", ".rst", ".svg", ".txt"}

_CODE, _OPTION = re.compile(r"<pre>.*?</pre>", re.DOTALL), re.compile(r"(?<![\w-])--\w[\w-]*")

_CODE_OR_BAR = re.compile(r"(`+)(?:.*?)\1|\|")


def as_pages(text: str, page: Path, root: Path) -> str:
    """Return the text of `page` with links fit for the site, written from the site's root."""

    def mend(found: re.Match[str]) -> str:
        image, words, target, section = found[1], found[2], found[3], found[4] or ""
        if re.match(r"[a-z]+:", target):
            return found[0]
        place = Path(os.path.normpath(page.parent / target))
        new = _page(place, root)
        return f"{image}[{words}]({new}{section})" if new else words

    return _LINK.sub(mend, text)


def _page(place: Path, root: Path) -> str | None:
    docs = root / "docs"
    if place.is_relative_to(docs) and place.suffix in _PAGES_AND_FILES:
        return f"/{place.relative_to(docs)}"
    if place.is_relative_to(root / "src") and place.suffix == ".md":
        return f"/generated/proofs/{place.name}"
    if place == root / "README.md":
        return "/index.md"
    return f"/generated/{place.stem.lower()}.md" if place.parent == root else None


def plain_bars(lines: list[str]) -> None:
    """Escape bars, which are absolute values in our docstrings and substitutions in Sphinx."""
    for i, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...", "|")):
            lines[i] = _CODE_OR_BAR.sub(lambda found: found[0] if found[1] else r"\|", line)


def whole_options(body: str) -> str:
    """Return a page whose code keeps every `--option` whole: browsers break lines at hyphens."""
    return _CODE.sub(lambda code: _OPTION.sub(r'<span class="option">\g<0></span>', code[0]), body)


def setup(app: Any) -> dict[str, bool]:
    """Mend the links of every Markdown page that Sphinx reads."""

    def read(app: Any, name: str, source: list[str]) -> None:
        path = Path(app.env.doc2path(name))
        if path.suffix == ".md" and "generated" not in path.parts:
            source[0] = as_pages(source[0], path, Path(app.srcdir).parent)

    def write(app: Any, page: str, template: str, context: dict[str, Any], tree: Any) -> None:  # noqa: ARG001
        context["body"] = whole_options(context.get("body", ""))

    app.connect("source-read", read)
    app.connect("html-page-context", write)
    app.connect("autodoc-process-docstring", lambda *given: plain_bars(given[-1]), priority=900)
    return {"parallel_read_safe": True}
