"""Pages of HTML that need nothing else: templates that escape all text, pictures inside them.

Pages are well-formed XML too, so that tests can read them.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vicinal._arrays import AnyArray, Floats
from vicinal.labelling import ABSTAINED, AskedRound, LabellingPlan, TransferResult
from vicinal.reports import _text as words
from vicinal.reports._outcomes import ClassFigures, FigureInterval
from vicinal.reports._plots import picture
from vicinal.reports._text import rendered

_SHOWN = 16
"""Questions shown of each round of a transfer."""


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
        return cls(
            address(picture(pixels), "png"), alt, "right" if right else "wrong", answer, lead
        )


def surest_first(confidence: Floats) -> AnyArray:
    """Return the places of answers (q,), from the surest to the least sure."""
    return np.argsort(-confidence, kind="stable")


def evenly(places: Sequence[int] | AnyArray, most: int) -> list[int]:
    """Return at most so many of the places, evenly spread."""
    steps = np.linspace(0, len(places) - 1, min(most, len(places)))
    return [int(places[round(float(step))]) for step in steps]


def address(data: bytes, kind: str = "svg+xml") -> str:
    """Return the address of a picture that holds the picture."""
    return f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"


def transfer_page(
    outcome: TransferResult,
    plan: LabellingPlan,
    pool: AnyArray,
    classes: Sequence[Any],
    figures: Sequence[tuple[str, ClassFigures]] = (),
) -> str:
    """Return a page of HTML that needs nothing else; everything on it is released.

    Examples of the `pool` (m, ...) that are images are shown, and what answers and student are
    right in, if public labels tell it.
    """
    rounds = list(zip(plan.rounds, outcome.rounds, outcome.selected, strict=True))
    shown = rounds if pool.ndim > 2 else []
    return rendered(
        "transfer.html",
        title="From private records to a student",
        total=sum(len(asked.labels) for asked in outcome.rounds),
        guarantee=outcome.guarantee,
        rounds=[
            (
                str(number + 1),
                f"{len(asked.labels):,}",
                words.percent(part.share, 0),
                f"{len(selected):,}",
            )
            for number, (part, asked, selected) in enumerate(rounds)
        ],
        figures=[(name, *_cells(one)) for name, one in figures],
        galleries=[_tiles(asked, selected, pool, classes) for _, asked, selected in shown],
    )


def _cells(one: ClassFigures) -> tuple[str, str, str, str]:
    known = {name: each for name, each in one.by_class.items() if each.total}
    if not known:
        return "-", "-", "-", "-"
    worst = min(known, key=lambda name: known[name].accuracy)
    return (
        str(FigureInterval(one.overall.accuracy, *one.overall.interval)),
        str(one.balanced),
        "-" if one.auc is None else str(one.auc),
        f"{worst}: {words.percent(known[worst].accuracy)} of {known[worst].total:,}",
    )


def _tiles(
    asked: AskedRound, selected: AnyArray, pool: AnyArray, classes: Sequence[Any]
) -> list[Tile]:
    margins = np.zeros(len(asked.labels)) if asked.margins is None else asked.margins
    chosen = set(selected.tolist())
    tiles = []
    for place in evenly(surest_first(margins), _SHOWN):
        row, label = int(asked.questions[place]), int(asked.labels[place])
        known = label != ABSTAINED
        answer = str(classes[label]) if known else "not answered"
        lead = f"lead {margins[place]:.1f}" if known and asked.margins is not None else ""
        tiles.append(
            Tile.of(pool[row], f"public example {row}", answer, lead, right=place in chosen)
        )
    return tiles
