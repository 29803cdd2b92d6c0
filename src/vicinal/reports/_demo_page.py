"""The demonstration's page, for phone, dark mode and print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vicinal._arrays import AnyArray
from vicinal.reports import _plots
from vicinal.reports import _text as words
from vicinal.reports._demo import DEFAULT, NOT_PRIVATE, DemoAnswers, Sweep
from vicinal.reports._outcomes import Outcome, outcome_by_class, outcome_of_surest, rightness
from vicinal.reports._pages import Plot, Tile, evenly, rendered, surest_first
from vicinal.reports._plots import Curve

SHARES = tuple(share / 50 for share in range(50, 9, -1))
"""Shares of queries answered for which the page draws the accuracy."""

TILES = 24
WRONG_TILES = 8
"""Queries shown, and how many of them were answered wrongly, if there are as many."""


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """What the page shows; none of it depends on what is left of anybody's budget.

    `seconds` is wall time until the page was written; `memory` the peak of the process in bytes.
    """

    data: str
    answers: DemoAnswers
    images: AnyArray
    classes: Sequence[object]
    sweep: Sweep | None
    command: str
    version: str
    seconds: float
    memory: int | None = None


def html_page(page: Page) -> str:
    """Return the page as HTML."""
    answers, sweep = page.answers, page.sweep
    right = rightness(answers.labels, answers.truth)
    by_class = outcome_by_class(answers.labels, answers.truth, page.classes)
    surest = [outcome_of_surest(right, answers.confidence, share) for share in SHARES]
    compared = {}
    if sweep is not None:
        curves = [Curve(DEFAULT, sweep.epsilons, sweep.default)]
        baseline = NOT_PRIVATE, sweep.yardstick
        compared = {
            "by_epsilon": Plot.drawn(lambda s: _plots.accuracy_by_epsilon(curves, baseline, s)),
            "numbers": _numbers(sweep),
            "default": DEFAULT,
        }
    return rendered(
        "demo.html",
        title=f"Private predictions on {page.data}",
        page=page,
        answers=answers,
        meaning=words.meaning(answers.guarantee, answers.plan.budget, answers.plan.n_queries),
        by_share=Plot.drawn(lambda style: _plots.accuracy_by_share(SHARES, surest, style)),
        surest_half=outcome_of_surest(right, answers.confidence, 0.5),
        by_class=Plot.drawn(lambda style: _plots.accuracy_by_class(by_class, style)),
        class_shares=", ".join(
            f"{name}: {words.percent(one.accuracy)}" for name, one in by_class.items() if one.total
        ),
        tiles=_tiles(page),
        **compared,
    )


def _numbers(sweep: Sweep) -> list[tuple[str, str]]:
    def cell(outcome: Outcome) -> str:
        low, high = outcome.interval
        return f"{words.percent(outcome.accuracy)} ({100 * low:.1f} to {100 * high:.1f})"

    rows = zip(sweep.epsilons, sweep.default, strict=True)
    cells = [(f"{epsilon:g}", cell(default)) for epsilon, default in rows]
    return [*cells, ("no privacy", cell(sweep.yardstick))]


def _tiles(page: Page) -> list[Tile]:
    """Return tiles of some queries, some answered wrongly, over the range of confidence."""
    answers = page.answers
    right = rightness(answers.labels, answers.truth)
    order = surest_first(answers.confidence)
    wrong = evenly(order[~right[order]], WRONG_TILES)
    shown = {*wrong, *evenly(order[right[order]], TILES - len(wrong))}
    tiles = []
    for place in (int(place) for place in order if int(place) in shown):
        answer, truth = str(answers.labels[place]), str(answers.truth[place])
        words_of = answer if right[place] else f"{answer}, not {truth}"
        lead = f"lead {answers.confidence[place]:.1f}"
        tiles.append(
            Tile.of(
                page.images[place], f"query {place + 1}", words_of, lead, right=bool(right[place])
            )
        )
    return tiles
