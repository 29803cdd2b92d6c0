"""Pictures of many methods at once: accuracy against epsilon, queries or private records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator

from experiments.accuracy.methods import CONTENDERS
from experiments.accuracy.table import Entry
from experiments.spread import mean_and_spread
from vicinal.errors import InvalidInput
from vicinal.reports import figure_bytes

_INK, _GRID = "#1f2328", "#e4e7eb"

# Okabe and Ito's colours, which colour-blind readers can tell apart; markers tell the rest.
_LOOKS: Mapping[str, tuple[str, str]] = {
    "zhu2023": ("#d55e00", "s"),
    "default": ("#0072b2", "o"),
    "labels": ("#0072b2", "v"),
    "hashing": ("#0072b2", "+"),
    "private-knn": ("#009e73", "^"),
    "private-knn-screened": ("#009e73", "<"),
    "pate": ("#e69f00", "p"),
    "pate-screened": ("#e69f00", ">"),
    "noisy-sgd": ("#aa4499", "*"),
    "not-private": ("#59636e", ""),
}

AXES = {
    "epsilon": "epsilon (smaller protects more)",
    "n_queries": "queries planned and answered",
    "n_records": "private records",
}
"""What accuracy can be drawn against, with the words for it."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One set of axes.

    Attributes
    ----------
    title : str
        Above it.
    entries : sequence of Entry
        What is drawn, a curve for each method.
    against : {"epsilon", "n_queries", "n_records"}
        What is on the horizontal axis.
    """

    title: str
    entries: Sequence[Entry]
    against: str


def draw_methods(panels: Sequence[Panel]) -> bytes:
    """Return a PNG of panels side by side, with the spread of a run as bars.

    Raises
    ------
    InvalidInput
        If there is no panel, or one without entries.
    """
    if not panels or not all(panel.entries for panel in panels):
        raise InvalidInput("There must be results to draw, in every panel.")
    figure = Figure(figsize=(4.6 * len(panels), 4.4), layout="constrained")
    named: dict[str, Artist] = {}
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _draw(axes, panel)
        handles, names = axes.get_legend_handles_labels()
        named |= dict(zip(names, handles, strict=True))
    figure.legend(
        list(named.values()), list(named), loc="outside upper left", ncols=2 + len(panels),
        frameon=False, fontsize=8, labelcolor=_INK,
    )  # fmt: skip
    return figure_bytes(figure, dpi=110)


def _draw(axes: Axes, panel: Panel) -> None:
    ticks: set[float] = set()
    for method in CONTENDERS:
        points = sorted(_points(panel, method))
        if points:
            ticks |= {place for place, _, _ in points}
            _curve(axes, method, points)
    for entry in panel.entries:
        if panel.against == "epsilon" and entry.place.epsilon is None:
            _level(axes, entry)
    axes.set_xscale("log")
    axes.set_xticks(sorted(ticks), [f"{tick:,g}" for tick in sorted(ticks)], fontsize=8)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(AXES[panel.against], color=_INK, size=9)
    axes.set_title(panel.title, loc="left", size=9.5, color=_INK)
    axes.grid(color=_GRID, lw=0.8)
    axes.tick_params(labelsize=8)


def _points(panel: Panel, method: str) -> list[tuple[float, float, float]]:
    found = []
    for entry in panel.entries:
        place: float | None = getattr(entry.place, panel.against)
        if entry.place.method == method and place is not None:
            found.append((float(place), *entry.accuracy))
    return found


def _curve(axes: Axes, method: str, points: list[tuple[float, float, float]]) -> None:
    places, means, spreads = zip(*points, strict=True)
    colour, marker = _LOOKS[method]
    axes.errorbar(
        places, means, yerr=spreads, color=colour, marker=marker or None, ms=5, lw=1.4,
        elinewidth=1, ls="-" if CONTENDERS[method].private else (0, (5, 3)),
        label=CONTENDERS[method].words,
    )  # fmt: skip


def _level(axes: Axes, entry: Entry) -> None:
    mean, _ = mean_and_spread([score.accuracy for score in entry.scores])
    words = CONTENDERS[entry.place.method].words
    axes.axhline(mean, color=_LOOKS[entry.place.method][0], ls=(0, (5, 3)), lw=1.2, label=words)
