"""The demonstration's page: one HTML file that needs nothing else, for phone, dark mode and print.

The page is also well-formed XML, so that tests can read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vicinal._arrays import AnyArray, Indices
from vicinal.reports import _plots
from vicinal.reports import _text as words
from vicinal.reports._demo import DEFAULT, NOT_PRIVATE, DemoAnswers, Sweep
from vicinal.reports._html import Markup, document, image, plot, table, tag
from vicinal.reports._outcomes import Outcome, outcome_by_class, outcome_of_surest, rightness
from vicinal.reports._plots import Curve, Style

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
    classes: Sequence[Any]
    sweep: Sweep | None
    command: str
    version: str
    seconds: float
    memory: int | None = None


def html_page(page: Page) -> str:
    """Return the page as HTML."""
    main = tag(
        "main",
        _guarantee(page.answers),
        _meaning(page.answers),
        *([] if page.sweep is None else [_comparison(page.sweep)]),
        _confidence(page.answers),
        _classes(page),
        _gallery(page),
        _plan(page),
    )
    return document(f"Private predictions on {page.data}", _headline(page), main, _footer(page))


def _headline(page: Page) -> Markup:
    answers, plan = page.answers, page.answers.plan
    return tag(
        "header",
        tag("h1", f"{plan.n_queries:,} private predictions on {page.data}"),
        tag(
            "p",
            f"Every query was answered by a noisy vote of its nearest neighbours among about "
            f"{plan.n_records:,} labelled private records. The answers may be published: what they "
            "tell about any one person is bounded, whatever else is known.",
            class_="lead",
        ),
        tag(
            "p",
            tag("strong", words.percent(answers.outcome.accuracy)),
            tag("span", f"right, {words.interval(answers.outcome.interval)}"),
            class_="headline",
        ),
        _facts(answers),
    )


def _facts(answers: DemoAnswers) -> Markup:
    facts = {
        "right answers": f"{answers.outcome.correct:,} of {answers.outcome.total:,}",
        "epsilon": f"{answers.guarantee.epsilon:g}",
        "delta": f"{answers.guarantee.delta:g}",
        "protected": "each person",
    }
    pairs = [tag("div", tag("dt", name), tag("dd", value)) for name, value in facts.items()]
    return tag("dl", *pairs, class_="facts")


def _section(title: str, *children: Markup) -> Markup:
    return tag("section", tag("h2", title), *children)


def _guarantee(answers: DemoAnswers) -> Markup:
    return _section("What is guaranteed", tag("blockquote", tag("p", str(answers.guarantee))))


def _meaning(answers: DemoAnswers) -> Markup:
    statements = words.meaning(answers.guarantee, answers.plan.budget, answers.plan.n_queries)
    items = [tag("li", tag("b", f"{lead} "), text) for lead, text in statements.items()]
    return _section("What this means", tag("ul", *items, class_="plain"))


def _comparison(sweep: Sweep) -> Markup:
    curves = [Curve(DEFAULT, sweep.epsilons, sweep.default)]

    def draw(style: Style) -> bytes:
        return _plots.accuracy_by_epsilon(curves, (NOT_PRIVATE, sweep.yardstick), style)

    return _section(
        "Accuracy against epsilon",
        tag("figure", plot(draw, "Accuracy against epsilon; the numbers are in the table below.")),
        tag(
            "p",
            "The same queries at other epsilons, simulated with seeded noise and with nothing "
            "tuned. The dashed line is a majority vote without noise, which protects nobody. "
            "Bars are 95 % intervals. No private model was trained, as the default would; it is "
            "more accurate. The documentation compares it, and other methods.",
        ),
        tag(
            "div",
            tag(
                "p",
                tag("b", "Do not do this with real data. "),
                "Every point of this plot is another release about the same records, with a fresh "
                "budget each, and the dashed line has no protection at all. That is harmless "
                "here because the data is public. With real data, choose one epsilon and run "
                "once.",
            ),
            class_="note",
            role="note",
        ),
        tag("details", tag("summary", "The numbers"), _sweep_table(sweep)),
    )


def _sweep_table(sweep: Sweep) -> Markup:
    def cell(outcome: Outcome) -> str:
        low, high = outcome.interval
        return f"{words.percent(outcome.accuracy)} ({100 * low:.1f} to {100 * high:.1f})"

    rows = [
        (f"{epsilon:g}", cell(default))
        for epsilon, default in zip(sweep.epsilons, sweep.default, strict=True)
    ]
    rows.append(("no privacy", cell(sweep.yardstick)))
    return table(("epsilon", DEFAULT), rows)


def _confidence(answers: DemoAnswers) -> Markup:
    right = rightness(answers.labels, answers.truth)
    outcomes = [outcome_of_surest(right, answers.confidence, share) for share in SHARES]
    half = outcome_of_surest(right, answers.confidence, 0.5)

    def draw(style: Style) -> bytes:
        return _plots.accuracy_by_share(SHARES, outcomes, style)

    alt = f"All answers: {words.percent(answers.outcome.accuracy)} right; surest half: "
    return _section(
        "Answer only when sure",
        tag(
            "p",
            "Each answer has a confidence, its lead: how far its class is before the next, in "
            "standard deviations of the noise on that. It is computed from the noisy votes that "
            "were released anyway, so it costs nothing, and neither does keeping silent where it "
            f"is small. Among the surest half of these answers, {words.percent(half.accuracy)} are "
            f"right ({words.interval(half.interval)}).",
        ),
        tag("figure", plot(draw, alt + words.percent(half.accuracy) + ".")),
    )


def _classes(page: Page) -> Markup:
    outcomes = outcome_by_class(page.answers.labels, page.answers.truth, page.classes)

    def draw(style: Style) -> bytes:
        return _plots.accuracy_by_class(outcomes, style)

    shares = [f"{name}: {words.percent(o.accuracy)}" for name, o in outcomes.items() if o.total]
    return _section(
        "Which classes are hard",
        tag("figure", plot(draw, "Right answers by true class. " + ", ".join(shares) + ".")),
    )


def _gallery(page: Page) -> Markup:
    answers = page.answers
    right = rightness(answers.labels, answers.truth)
    tiles = [_tile(page, place, right=bool(right[place])) for place in _chosen(page.answers)]
    shown = sum(not right[place] for place in _chosen(page.answers))
    return _section(
        "Some of the questions",
        tag(
            "p",
            f"{len(tiles)} of {len(right):,} queries, from the surest answer to the least sure. "
            f"Outlined answers are wrong, and say what would have been right: {shown} here, more "
            f"than their share, for of all answers {int((~right).sum()):,} were wrong.",
        ),
        tag("ul", *tiles, class_="gallery"),
    )


def _chosen(answers: DemoAnswers) -> list[int]:
    """Return which queries are shown: some wrong, some right, over the range of confidence."""
    right = rightness(answers.labels, answers.truth)
    order = np.argsort(-answers.confidence, kind="stable")
    wrong = _evenly(order[~right[order]], WRONG_TILES)
    chosen = {*wrong, *_evenly(order[right[order]], TILES - len(wrong))}
    return [int(place) for place in order if int(place) in chosen]


def _evenly(places: Indices, most: int) -> list[int]:
    steps = np.linspace(0, len(places) - 1, min(most, len(places)))
    return [int(places[round(float(step))]) for step in steps]


def _tile(page: Page, place: int, *, right: bool) -> Markup:
    answers = page.answers
    answer, truth = str(answers.labels[place]), str(answers.truth[place])
    picture = image(_plots.picture(page.images[place]), "png", f"query {place + 1}")
    caption = tag(
        "figcaption",
        tag("span", answer if right else f"{answer}, not {truth}", class_="answer"),
        tag("span", f"lead {answers.confidence[place]:.1f}", class_="lead-of"),
    )
    return tag("li", tag("figure", picture, caption, class_="right" if right else "wrong"))


def _plan(page: Page) -> Markup:
    plan, guarantee = page.answers.plan, page.answers.guarantee
    rows = [
        ("n", f"{plan.n_records:,}", "private records, as estimated once with noise"),
        ("R", f"{plan.n_reference:,}", "public, unlabelled reference points"),
        ("T", f"{plan.n_queries:,}", "answers planned for"),
        ("k", f"{plan.n_neighbors:,}", "records expected to take part in an answer"),
        ("sigma2", f"{plan.noise_multiplier:.4g}", "votes get noise of deviation sigma2 sqrt(k)"),
        ("B", f"{plan.budget:.4g}", "budget of every person (zCDP), made from epsilon and delta"),
        ("epsilon", f"{guarantee.epsilon:g}", "as chosen"),
        ("delta", f"{guarantee.delta:g}", "as chosen"),
    ]
    return _section(
        "The public plan, and how to repeat it",
        tag(
            "p",
            "All of this was fixed from public facts before the first answer; nothing was tuned "
            "on private records or on the truth behind the queries.",
        ),
        table(("", "value", "meaning"), rows),
        tag("p", f"Features: {plan.features}. Computed record by record."),
        tag("pre", tag("code", page.command)),
        tag(
            "p",
            "The noise came from the operating system's entropy, not from a seed. Another run "
            "has other noise and about the same accuracy; it is a second release, whose loss "
            "would add to this one.",
        ),
    )


def _footer(page: Page) -> Markup:
    took = f"Made by vicinal {page.version} in {words.duration(page.seconds)}"
    if page.memory is not None:
        took += f", with at most {words.gibibytes(page.memory)} of memory in the main process"
    return tag(
        "footer",
        tag(
            "p",
            f"{took}. Time and memory are told because this data is public; the guarantee assumes "
            "that nobody observes them.",
        ),
    )
