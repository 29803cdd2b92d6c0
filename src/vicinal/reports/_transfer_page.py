"""The page of a knowledge transfer: its guarantee, its rounds, and some of the questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vicinal._arrays import AnyArray
from vicinal.labelling import ABSTAINED, AskedRound, LabellingPlan, TransferResult
from vicinal.reports import _text as words
from vicinal.reports._html import Markup, document, image, table, tag
from vicinal.reports._outcomes import ClassFigures, FigureInterval
from vicinal.reports._plots import picture

_TITLE = "From private records to a student"

_SHOWN = 16
"""Questions shown of each round."""


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
    sections = [_guarantee(outcome), _rounds(outcome, plan)]
    sections += [_figures(figures)] if figures else []
    if pool.ndim > 2:
        sections += [
            _questions(number, outcome, pool, classes) for number in range(len(outcome.rounds))
        ]
    return document(_TITLE, _headline(outcome), tag("main", *sections))


def _headline(outcome: TransferResult) -> Markup:
    total = sum(len(asked_round.labels) for asked_round in outcome.rounds)
    lead = (
        f"{total:,} questions about public examples were answered by noisy votes of private "
        "records. A student learnt from the answers, and nothing else; it may be published."
    )
    return tag("header", tag("h1", _TITLE), tag("p", lead, class_="lead"))


def _guarantee(outcome: TransferResult) -> Markup:
    text = tag("blockquote", tag("p", str(outcome.guarantee)))
    return tag("section", tag("h2", "What is guaranteed"), text)


def _rounds(outcome: TransferResult, plan: LabellingPlan) -> Markup:
    rows = []
    for number, part in enumerate(plan.rounds):
        asked_round, selected = outcome.rounds[number], outcome.selected[number]
        rows.append(
            (
                str(number + 1),
                f"{len(asked_round.labels):,}",
                words.percent(part.share, 0),
                f"{len(selected):,}",
            )
        )
    header = ("round", "questions", "share of every budget", "kept")
    note = (
        "All of it was planned before the first question. Answers are kept by their noisy margin, "
        "which costs nothing; where the last student is least sure, questions are hardest."
    )
    return tag("section", tag("h2", "Rounds"), table(header, rows), tag("p", note))


def _figures(figures: Sequence[tuple[str, ClassFigures]]) -> Markup:
    header = ("", "accuracy", "balanced accuracy", "AUC", "least accurate class")
    rows = [(name, *_cells(one)) for name, one in figures]
    note = "By the public examples' own labels, with 95 % intervals for the choice of examples."
    return tag("section", tag("h2", "How good they are"), table(header, rows), tag("p", note))


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


def _questions(
    number: int, outcome: TransferResult, pool: AnyArray, classes: Sequence[Any]
) -> Markup:
    asked_round, selected = outcome.rounds[number], outcome.selected[number]
    places = _evenly(asked_round)
    chosen = set(selected.tolist())
    tiles = [_tile(asked_round, place, place in chosen, pool, classes) for place in places]
    return tag(
        "section",
        tag("h2", f"Some questions of round {number + 1}"),
        tag("p", "From the surest answer to the least sure; outlined ones were not learnt from."),
        tag("ul", *tiles, class_="gallery"),
    )


def _evenly(asked_round: AskedRound) -> list[int]:
    margins = (
        asked_round.margins
        if asked_round.margins is not None
        else np.zeros(len(asked_round.labels))
    )
    order = np.argsort(-margins, kind="stable")
    steps = np.linspace(0, len(order) - 1, min(_SHOWN, len(order)))
    return [int(order[round(float(step))]) for step in steps]


def _tile(
    asked_round: AskedRound, place: int, selected: bool, pool: AnyArray, classes: Sequence[Any]
) -> Markup:
    row, label = int(asked_round.questions[place]), int(asked_round.labels[place])
    answered = label != ABSTAINED
    margin = (
        ""
        if asked_round.margins is None or not answered
        else f"lead {asked_round.margins[place]:.1f}"
    )
    caption = tag(
        "figcaption",
        tag("span", str(classes[label]) if answered else "not answered", class_="answer"),
        tag("span", margin, class_="lead-of"),
    )
    shown = image(picture(pool[row]), "png", f"public example {row}")
    return tag("li", tag("figure", shown, caption, class_="right" if selected else "wrong"))
