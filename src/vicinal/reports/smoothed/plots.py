"""Plots of the smoothed wing: deltas as powers of ten, against epsilon, years or sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from io import BytesIO
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from vicinal.reports.smoothed.figures import Figure, Row

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#aa4499", "#59636e", "#e69f00")
_LEAST = -400.0


def draw_audit(report: dict[str, Any], kind: str = "png") -> bytes:
    """Return a picture of an audit: the smoothed interval and the worst case against epsilon.

    Parameters
    ----------
    report : dict
        As :func:`vicinal.reports.smoothed.audit.audit` returns it.
    kind : {"png", "svg", "pdf"}
        What the bytes are.
    """
    rows = report["rows"]
    figure, axes = _axes("epsilon", "delta, as a power of ten")
    places = [row["epsilon"] for row in rows]
    low, high, worst = (
        [_log(row[part][end]) for row in rows]
        for part, end in (
            ("smoothed", "log10_lower"), ("smoothed", "log10_upper"), ("worst_case", "log10_upper")
        )
    )  # fmt: skip
    axes.fill_between(places, low, high, color=_COLOURS[0], alpha=0.25, lw=0)
    axes.plot(places, high, "-o", ms=4, color=_COLOURS[0], label="smoothed delta")
    axes.plot(places, worst, "--", color=_COLOURS[4], label="worst case")
    axes.legend(frameon=False)
    return _bytes(figure, kind)


def draw_lines(
    lines: Sequence[tuple[str, Sequence[float], Sequence[float]]], label: str, kind: str = "png"
) -> bytes:
    """Return a picture of named lines of log10 values against something called `label`."""
    figure, axes = _axes(label, "power of ten")
    for place, (name, xs, ys) in enumerate(lines):
        colour = _COLOURS[place % len(_COLOURS)]
        axes.plot(xs, ys, "-o", ms=3.5, lw=1.4, color=colour, label=name)
    if len(lines) < 9:
        axes.legend(frameon=False, fontsize=8)
    return _bytes(figure, kind)


def draw_figure(figure: Figure, kind: str = "png") -> bytes:
    """Return the picture of one of the paper's figures from its table."""
    return draw_lines(*_lines(figure.rows), kind=kind)


def _lines(rows: list[Row]) -> tuple[list[tuple[str, list[float], list[float]]], str]:
    """Return the lines of a table and the name of the axis."""
    if "election" in rows[0]:
        return _by_year(rows), "year"
    if "epsilon" in rows[0]:
        return _grouped(rows, "n", ("worlds", "epsilon"), "log10_upper"), "records"
    return _grouped(rows, "N", ("laws", "share of the second"), "mean_delta"), "records"


def _by_year(rows: list[Row]) -> list[tuple[str, list[float], list[float]]]:
    years = [row for row in rows if row["election"].isdigit()]
    years = [{**row, "year": int(row["election"])} for row in years]
    lines = _grouped(years, "year", ("lost", "accuracy"), "log10_delta")
    if len(lines) == 1:
        lines += _grouped(years, "year", ("lost",), "log10_utility")
        lines = [
            (name, xs, ys) for name, (_, xs, ys) in zip(("delta", "utility"), lines, strict=True)
        ]
    return lines


def _grouped(
    rows: list[Row], along: str, by: tuple[str, ...], value: str
) -> list[tuple[str, list[float], list[float]]]:
    groups: dict[str, tuple[list[float], list[float]]] = {}
    for row in rows:
        name = ", ".join(f"{key} {row[key]}" for key in by if key in row)
        xs, ys = groups.setdefault(name, ([], []))
        xs.append(float(row[along]))
        ys.append(_log(row[value]) if value.startswith("log10") else _log10(row[value]))
    return [(name, xs, ys) for name, (xs, ys) in groups.items()]


def _axes(x: str, y: str) -> tuple[Canvas, Axes]:
    figure = Canvas(figsize=(6.4, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(color="#e4e7eb")
    return figure, axes


def _log(value: float | None) -> float:
    return _LEAST if value is None else max(value, _LEAST)


def _log10(value: float) -> float:
    return math.log10(value) if value > 0 else _LEAST


def _bytes(figure: Canvas, kind: str) -> bytes:
    buffer = BytesIO()
    figure.savefig(buffer, format=kind, dpi=150)
    return buffer.getvalue()
