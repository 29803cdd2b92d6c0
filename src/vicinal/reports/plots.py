"""Plots for pages, as bytes of PNG, SVG or PDF files.

Each plot has its own Figure object, because the state of pyplot is shared between callers.
Colours are based on the palette of Okabe and Ito for colour-blind readers. Pages invert plots in
dark mode.
"""

from collections.abc import Mapping
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from vicinal.reports.outcomes import AnswerCounts

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#aa4499", "#59636e", "#e69f00")


def encode_figure(figure: Figure, file_format: str = "png", dpi: int = 150) -> bytes:
    """Return `figure` as the bytes of a "png", "svg" or "pdf" file; `dpi`: dots per inch of PNG."""
    file = BytesIO()
    # A date in an SVG file would make it different in each run.
    metadata = {"Date": None} if file_format == "svg" else None
    figure.savefig(file, format=file_format, dpi=dpi, metadata=metadata)
    return file.getvalue()


def create_figure(
    x_label: str, y_label: str = "", height: float = 4.0, grid: str = "both"
) -> tuple[Figure, Axes]:
    """Return an empty figure of a `height` in inches, and its axes; `grid`: "x", "y" or "both"."""
    figure = Figure(figsize=(6.4, height), layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlabel=x_label, ylabel=y_label, axisbelow=True)
    axes.grid(visible=True, axis=grid, color="#e4e7eb")  # type: ignore[arg-type]
    return figure, axes


def plot_accuracy_by_class(counts_by_class: Mapping[str, AnswerCounts]) -> bytes:
    """Return an SVG plot of the accuracy by true class, with 95 % intervals.

    `counts_by_class`: numbers of correct and of all answers, by name of the true class. Classes
    without answers are left out.
    """
    nonempty = {name: counts for name, counts in counts_by_class.items() if counts.total}
    height = 0.9 + 0.3 * max(len(nonempty), 2)
    figure, axes = create_figure("right answers", height=height, grid="x")
    accuracies, lows, highs = np.transpose(
        [(counts.accuracy, *counts.interval) for counts in nonempty.values()]
    )
    positions = np.arange(len(nonempty))
    error_lengths = np.maximum([accuracies - lows, highs - accuracies], 0.0)
    axes.errorbar(accuracies, positions, xerr=error_lengths, fmt="o", color=COLOURS[0])
    axes.set_yticks(positions, list(nonempty))
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    return encode_figure(figure, "svg")


def encode_png(pixels: Any) -> bytes:
    """Return grey or RGB `pixels`, (h, w) or (h, w, 3), as PNG; values are scaled to [0, 1]."""
    from matplotlib.image import imsave

    file = BytesIO()
    values = np.asarray(pixels, dtype=np.float64)
    low, high = float(values.min()), float(values.max())
    scaled = (values - low) / (high - low or 1.0)
    imsave(file, scaled, cmap="gray", vmin=0.0, vmax=1.0, format="png")
    return file.getvalue()
