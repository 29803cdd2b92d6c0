"""Pages of HTML that need nothing else: templates that escape all text, plots inside them.

Pages are well-formed XML too, so that tests can read them.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jinja2
import numpy as np

from vicinal._arrays import AnyArray, Floats
from vicinal.reports import _text as words
from vicinal.reports._plots import DARK, LIGHT, Style, picture


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("vicinal.reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for each in (words.percent, words.interval, words.duration, words.gibibytes):
        environment.filters[each.__name__] = each
    return environment


def rendered(name: str, **values: Any) -> str:
    """Return the page of a template; every value is escaped on its way into it."""
    return _environment().get_template(name).render(**values)


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot that suits light and dark, wide and narrow screens, as addresses that hold it."""

    address: str
    by_media: tuple[tuple[str, str], ...]

    @classmethod
    def drawn(cls, draw: Callable[[Style], bytes]) -> Plot:
        """Return the plot that `draw` returns as SVG, in all four styles."""
        narrow, dark = "(max-width: 34rem)", "(prefers-color-scheme: dark)"
        styles = {
            f"{narrow} and {dark}": Style(DARK, True, "svg"),
            narrow: Style(LIGHT, True, "svg"),
            dark: Style(DARK, False, "svg"),
        }
        by_media = ((media, _address(draw(style), "svg+xml")) for media, style in styles.items())
        return cls(_address(draw(Style(LIGHT, False, "svg")), "svg+xml"), tuple(by_media))


@dataclass(frozen=True, slots=True)
class Tile:
    """An image of a gallery with its answer; `kind` is "right", or "wrong" for an outline."""

    address: str
    alt: str
    kind: str
    answer: str
    lead: str

    @classmethod
    def of(cls, pixels: AnyArray, alt: str, answer: str, lead: str, *, right: bool) -> Tile:
        """Return the tile of an image (h, w) or (h, w, 3)."""
        kind = "right" if right else "wrong"
        return cls(_address(picture(pixels), "png"), alt, kind, answer, lead)


def surest_first(confidence: Floats) -> AnyArray:
    """Return the places of answers (q,), from the surest to the least sure."""
    return np.argsort(-confidence, kind="stable")


def evenly(places: Sequence[int] | AnyArray, most: int) -> list[int]:
    """Return at most so many of the places, evenly spread."""
    steps = np.linspace(0, len(places) - 1, min(most, len(places)))
    return [int(places[round(float(step))]) for step in steps]


def _address(data: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"
