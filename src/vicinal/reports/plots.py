"""Plots of pages as bytes, PNG, SVG or PDF.

Drawn on Figure objects of their own, never through pyplot, so that nothing is shared between
callers. Colours are those of Okabe and Ito, which colour-blind readers can tell apart; methods
also differ by marker. Pages invert plots where screens are dark.
"""

from collections.abc import Mapping
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from vicinal.reports.outcomes import Outcome

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#aa4499", "#59636e", "#e69f00")


def figure_bytes(figure: Figure, kind: str = "png", dpi: int = 150) -> bytes:
    """Return a figure as a file; the same figure as SVG is the same bytes, as it has no date."""
    file = BytesIO()
    figure.savefig(file, format=kind, dpi=dpi, metadata={"Date": None} if kind == "svg" else None)
    return file.getvalue()


def create_figure(
    x: str, y: str = "", height: float = 4.0, grid: str = "both"
) -> tuple[Figure, Axes]:
    """Return an empty figure whose axes are named; `grid`: of which axes lines are drawn."""
    figure = Figure(figsize=(6.4, height), layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlabel=x, ylabel=y, axisbelow=True)
    axes.grid(visible=True, axis=grid, color="#e4e7eb")  # type: ignore[arg-type]
    return figure, axes


def accuracy_by_class(outcomes: Mapping[str, Outcome]) -> bytes:
    shown = {name: one for name, one in outcomes.items() if one.total}
    figure, axes = create_figure("right answers", height=0.9 + 0.3 * max(len(shown), 2), grid="x")
    shares, lows, highs = np.transpose([(one.accuracy, *one.interval) for one in shown.values()])
    places, reaches = np.arange(len(shown)), np.maximum([shares - lows, highs - shares], 0.0)
    axes.errorbar(shares, places, xerr=reaches, fmt="o", color=COLOURS[0])
    axes.set_yticks(places, list(shown))
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    return figure_bytes(figure, "svg")


def picture(pixels: Any) -> bytes:
    """Return one image (h, w) or (h, w, 3) as PNG; grey ones from their darkest to brightest."""
    from matplotlib.image import imsave

    file = BytesIO()
    values = np.asarray(pixels, dtype=np.float64)
    low, high = float(values.min()), float(values.max())
    scaled = (values - low) / (high - low or 1.0)
    imsave(file, scaled, cmap="gray", vmin=0.0, vmax=1.0, format="png")
    return file.getvalue()
