"""Pictures of the figures of LWX23: deltas as powers of ten, against years or sizes."""

import math
from collections.abc import Sequence

from experiments.smoothed.figures import Figure, Row
from vicinal.reports.plots import COLOURS, create_figure, encode_figure

LEAST_LOG10 = -400.0
"""What is drawn for a delta of 0."""


def draw_lines(
    lines: Sequence[tuple[str, Sequence[float], Sequence[float]]], label: str, kind: str = "png"
) -> bytes:
    """Return a picture of named lines of log10 values against something called `label`."""
    figure, axes = create_figure(label, "power of ten")
    for place, (name, xs, ys) in enumerate(lines):
        colour = COLOURS[place % len(COLOURS)]
        axes.plot(xs, ys, "-o", ms=3.5, lw=1.4, color=colour, label=name)
    if len(lines) < 9:
        axes.legend(frameon=False, fontsize=8)
    return encode_figure(figure, kind)


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
        drawn = row[value] if value.startswith("log10") else _log10(row[value])
        ys.append(LEAST_LOG10 if drawn is None else max(drawn, LEAST_LOG10))
    return [(name, xs, ys) for name, (xs, ys) in groups.items()]


def _log10(value: float) -> float:
    return math.log10(value) if value > 0 else LEAST_LOG10
