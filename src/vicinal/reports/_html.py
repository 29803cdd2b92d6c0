"""HTML whose text is escaped by construction."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Sequence
from html import escape
from importlib.resources import files

from vicinal.reports._plots import DARK, LIGHT, Style


class Markup(str):
    """Text that is HTML already; every other string is escaped on its way into a page."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: str) -> Markup:
    """Return an element; a trailing underscore in an attribute's name is dropped (``class_``)."""
    written = "".join(f' {key.rstrip("_")}="{escape(value)}"' for key, value in attributes.items())
    if not children:
        return Markup(f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{together(children)}</{name}>")


def together(children: Iterable[str]) -> Markup:
    """Return children side by side, escaping those that are not markup."""
    return Markup(
        "".join(child if isinstance(child, Markup) else escape(child) for child in children)
    )


def document(title: str, *body: str) -> str:
    """Return a whole page of HTML that needs nothing else: its style sheet is inside it."""
    style = files("vicinal.reports").joinpath("page.css").read_text(encoding="utf-8")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Markup(style)),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, tag('body', *body), lang='en')}\n"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """Return a table whose first column names its rows; it scrolls where the screen is narrow."""
    head = tag("tr", *(tag("th", cell, scope="col") for cell in header))
    body = [
        tag("tr", tag("th", first, scope="row"), *(tag("td", cell) for cell in others))
        for first, *others in rows
    ]
    both = tag("table", tag("thead", head), tag("tbody", *body))
    return tag("div", both, class_="scroll")


def image(data: bytes, kind: str, alt: str) -> Markup:
    """Return an embedded image of type image/`kind`."""
    return tag("img", src=_data_url(data, kind), alt=alt)


def plot(draw: Callable[[Style], bytes], alt: str) -> Markup:
    """Return a plot that suits light and dark, wide and narrow screens; `draw` returns SVG."""

    def source(style: Style, media: str) -> Markup:
        return tag("source", media=media, srcset=_data_url(draw(style), "svg+xml"))

    narrow, dark = "(max-width: 34rem)", "(prefers-color-scheme: dark)"
    return tag(
        "picture",
        source(Style(DARK, True, "svg"), f"{narrow} and {dark}"),
        source(Style(LIGHT, True, "svg"), narrow),
        source(Style(DARK, False, "svg"), dark),
        image(draw(Style(LIGHT, False, "svg")), "svg+xml", alt),
    )


def _data_url(data: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"
