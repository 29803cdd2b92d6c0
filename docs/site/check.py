"""Checks every link inside the built site: `python -m docs.site.check out/docs`.

Sphinx checks what pages refer to; this checks what browsers follow: files, and places in them. A
page that fetches anything from elsewhere is a fault, too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_FETCHED = {"script": "src", "img": "src", "link": "href", "iframe": "src"}


class Page(HTMLParser):
    """The links, the names and what is fetched of one page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.names: set[str] = set()
        self.fetched: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag refers to."""
        given = {key: value for key, value in attrs if value is not None}
        self.names |= {given[key] for key in ("id", "name") if key in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in _FETCHED and _FETCHED[tag] in given and given.get("rel") != "canonical":
            self.fetched.append(given[_FETCHED[tag]])


@cache
def page(path: Path) -> Page:
    """Return a page, read once."""
    return Page(path)


def faults(folder: Path) -> Iterator[str]:
    """Yield what is wrong with the links of a site, a line each."""
    for path in sorted(folder.rglob("*.html")):
        if "_static" in path.parts:
            continue
        found = page(path)
        shown = path.relative_to(folder)
        yield from (f"{shown} fetches {url}" for url in found.fetched if urlsplit(url).netloc)
        for link in sorted({*found.links, *found.fetched}):
            if fault := _fault(path, link):
                yield f"{shown}: {link} {fault}"


@cache
def _exists(path: Path) -> bool:
    return path.exists()


def _fault(path: Path, link: str) -> str | None:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    joined = os.path.join(path.parent, unquote(parts.path)) if parts.path else path  # noqa: PTH118
    target = Path(os.path.normpath(joined))
    if not _exists(target):
        return "is not there"
    name = unquote(parts.fragment)
    if name and target.suffix == ".html" and name not in page(target).names:
        return "has no such place"
    return None


def main() -> None:
    """Print every fault; exit with 1 if there is one."""
    found = list(faults(Path(sys.argv[1])))
    print("\n".join(found) or "every link leads somewhere, and nothing is fetched from elsewhere")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
