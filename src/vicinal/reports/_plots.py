"""Plots as bytes: PNG or SVG, for light and dark pages, for wide screens and phones.

Drawn on Figure objects of their own, never through pyplot, so that nothing is shared between
callers. Colours are those of Okabe and Ito, which colour-blind readers can tell apart; methods
also differ by marker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter, NullLocator

from vicinal import _checks
from vicinal._arrays import AnyArray, Floats
from vicinal.errors import InvalidInput
from vicinal.reports._outcomes import Outcome

FORMATS = ("png", "svg")

_DODGE = 0.02
"""How far apart methods stand at one epsilon, so that their intervals do not hide each other."""


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours of a plot; the background stays transparent."""

    ink: str
    muted: str
    grid: str
    series: tuple[str, ...]


LIGHT = Theme("#1f2328", "#59636e", "#e4e7eb", ("#0072b2", "#d55e00", "#009e73", "#aa4499"))
DARK = Theme("#e6edf3", "#9da7b3", "#2d333b", ("#56b4e9", "#f0a04b", "#3fc79a", "#d692c8"))

_MARKERS = ("o", "s", "^", "D")


@dataclass(frozen=True, slots=True)
class Style:
    """How a plot is drawn; on a phone letters must be larger relative to the picture."""

    theme: Theme = LIGHT
    narrow: bool = False
    format: str = "png"


_DEFAULT_STYLE = Style()


@dataclass(frozen=True, slots=True)
class Curve:
    """A named method with one outcome for every epsilon."""

    name: str
    epsilons: Sequence[float]
    outcomes: Sequence[Outcome]


def accuracy_by_epsilon(
    curves: Sequence[Curve],
    baseline: tuple[str, Outcome] | None = None,
    style: Style = _DEFAULT_STYLE,
) -> bytes:
    """Draw accuracy against epsilon, with 95 % intervals, for one to four methods.

    The baseline, a method without privacy, is a dashed line.
    """
    if not 0 < len(curves) <= len(_MARKERS):
        raise InvalidInput(f"The curves must be one to {len(_MARKERS)}. Got {len(curves)}.")
    figure, axes = _canvas(style)
    for place, curve in enumerate(curves):
        _draw_curve(axes, curve, place, len(curves), style)
    if baseline is not None:
        name, outcome = baseline
        axes.axhline(outcome.accuracy, color=style.theme.muted, ls=(0, (5, 3)), lw=1.4, label=name)
    _epsilon_axis(axes, sorted({epsilon for curve in curves for epsilon in curve.epsilons}))
    axes.set_xlabel("epsilon (smaller protects more)")
    axes.set_title("right answers", loc="left", size=10.5, color=style.theme.ink)
    axes.yaxis.set_major_formatter(_percent)
    _legend(figure, axes, style)
    return _finished(figure, style)


def accuracy_by_share(
    shares: Sequence[float], outcomes: Sequence[Outcome], style: Style = _DEFAULT_STYLE
) -> bytes:
    """Draw accuracy among the answers with most confidence, against their share of all."""
    figure, axes = _canvas(style)
    colour = style.theme.series[0]
    lows, highs = np.transpose([outcome.interval for outcome in outcomes])
    axes.fill_between(shares, lows, highs, color=colour, alpha=0.18, lw=0)
    axes.plot(shares, [outcome.accuracy for outcome in outcomes], color=colour, lw=2)
    axes.set_xlim(max(shares), min(shares))
    axes.set_xlabel("share of queries answered, surest first")
    axes.set_title("right among those answered", loc="left", size=10.5, color=style.theme.ink)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(_percent)
    return _finished(figure, style)


def accuracy_by_class(outcomes: Mapping[str, Outcome], style: Style = _DEFAULT_STYLE) -> bytes:
    """Draw the accuracy of each class that has queries, with its 95 % interval."""
    shown = {name: outcome for name, outcome in outcomes.items() if outcome.total}
    figure, axes = _canvas(style, rows=len(shown))
    places = np.arange(len(shown))
    centres = np.array([outcome.accuracy for outcome in shown.values()])
    colour = style.theme.series[0]
    axes.errorbar(
        centres, places, xerr=_reaches(list(shown.values())), fmt="o", color=colour, ms=5.5,
        elinewidth=1.6,
    )  # fmt: skip
    axes.set_yticks(places, list(shown))
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x", color=style.theme.grid, lw=0.8)
    axes.xaxis.set_major_locator(MaxNLocator(4 if style.narrow else 7))
    axes.xaxis.set_major_formatter(_percent)
    axes.set_xlabel("right answers")
    axes.set_title("true class", loc="left", size=10.5, color=style.theme.ink)
    return _finished(figure, style)


def picture(pixels: AnyArray) -> bytes:
    """Return one image (h, w) or (h, w, 3) as PNG; grey ones from their darkest to brightest."""
    from matplotlib.image import imsave

    file = BytesIO()
    values = np.asarray(pixels, dtype=np.float64)
    low, high = float(values.min()), float(values.max())
    scaled = (values - low) / (high - low or 1.0)
    imsave(file, scaled, cmap="gray", vmin=0.0, vmax=1.0, format="png")
    return file.getvalue()


def figure_bytes(figure: Figure, kind: str = "png", dpi: int = 150) -> bytes:
    """Return a figure as a file; the same figure as SVG is the same bytes, as it has no date."""
    file = BytesIO()
    figure.savefig(file, format=kind, dpi=dpi, metadata={"Date": None} if kind == "svg" else None)
    return file.getvalue()


def _canvas(style: Style, rows: int | None = None) -> tuple[Figure, Axes]:
    width, height = (3.9, 3.5) if style.narrow else (7.0, 3.9)
    if rows is not None:
        height = 0.9 + 0.29 * max(rows, 2)
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.patch.set_alpha(0.0)
    axes = figure.add_subplot()
    axes.patch.set_alpha(0.0)
    axes.set_axisbelow(True)
    axes.grid(visible=True, axis="y", color=style.theme.grid, lw=0.8)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(style.theme.muted)
    _quiet_letters(axes, style)
    return figure, axes


def _quiet_letters(axes: Axes, style: Style) -> None:
    axes.tick_params(colors=style.theme.muted, labelsize=10, length=0, pad=6)
    axes.tick_params(axis="x", length=3)
    axes.xaxis.label.set(color=style.theme.ink, size=10.5)


def _draw_curve(axes: Axes, curve: Curve, place: int, of: int, style: Style) -> None:
    nudge = np.exp(2 * _DODGE * (place - (of - 1) / 2))
    axes.errorbar(
        np.asarray(curve.epsilons) * nudge,
        [outcome.accuracy for outcome in curve.outcomes],
        yerr=_reaches(curve.outcomes),
        color=style.theme.series[place],
        fmt=f"-{_MARKERS[place]}",
        lw=2, ms=6, elinewidth=1.4, label=curve.name,
    )  # fmt: skip


def _reaches(outcomes: Sequence[Outcome]) -> Floats:
    """Return how far intervals reach below and above accuracies, float64 (2, n)."""
    pairs = [
        (outcome.accuracy - outcome.interval[0], outcome.interval[1] - outcome.accuracy)
        for outcome in outcomes
    ]
    return np.asarray(np.maximum(np.transpose(pairs), 0.0))


def _epsilon_axis(axes: Axes, epsilons: Sequence[float]) -> None:
    axes.set_xscale("log")
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())


def _legend(figure: Figure, axes: Axes, style: Style) -> None:
    """Name the curves above the axes, where no curve can run into the names."""
    handles, names = axes.get_legend_handles_labels()
    if len(axes.containers) < len(handles):  # the baseline comes first; it is named last
        handles, names = [*handles[1:], handles[0]], [*names[1:], names[0]]
    figure.legend(
        handles, names, loc="outside upper left", ncols=1 if style.narrow else len(names),
        frameon=False, labelcolor=style.theme.ink, fontsize=10, handlelength=2.4,
    )  # fmt: skip


def _percent(share: float, _place: float = 0.0) -> str:
    return f"{100 * share:.4g} %"


def _finished(figure: Figure, style: Style) -> bytes:
    _checks.choice("format", style.format, FORMATS)
    return figure_bytes(figure, style.format, dpi=200)
