"""Pictures of `vicinal smoothed`: deltas as powers of ten."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vicinal.reports._plots import figure_bytes

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#aa4499", "#59636e", "#e69f00")
LEAST_LOG10 = -400.0
"""What is drawn for a delta of 0."""


def draw_audit(report: dict[str, Any], kind: str = "png") -> bytes:
    """Return a picture of an audit: the smoothed interval and the worst case against epsilon."""
    rows = report["rows"]
    figure, axes = power_axes("epsilon", "delta, as a power of ten")
    places = [row["epsilon"] for row in rows]
    low, high, worst = (
        [drawn_log10(row[part][end]) for row in rows]
        for part, end in (
            ("smoothed", "log10_lower"), ("smoothed", "log10_upper"), ("worst_case", "log10_upper")
        )
    )  # fmt: skip
    axes.fill_between(places, low, high, color=COLOURS[0], alpha=0.25, lw=0)
    axes.plot(places, high, "-o", ms=4, color=COLOURS[0], label="smoothed delta")
    axes.plot(places, worst, "--", color=COLOURS[4], label="worst case")
    axes.legend(frameon=False)
    return figure_bytes(figure, kind)


def power_axes(x: str, y: str) -> tuple[Figure, Axes]:
    """Return an empty figure with named axes."""
    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(color="#e4e7eb")
    return figure, axes


def drawn_log10(value: float | None) -> float:
    """Return where a power of ten is drawn; None stands for the logarithm of 0."""
    return LEAST_LOG10 if value is None else max(value, LEAST_LOG10)
