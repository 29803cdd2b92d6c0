"""Wear as estimated against the truth, as a picture."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from experiments.planning.wear import WearRow
from vicinal.reports._plots import LIGHT, figure_bytes

_MARKERS = ("o", "s", "^", "D")


def draw_wear(rows: Sequence[WearRow], kind: str = "png") -> bytes:
    """Draw the share of budget used in every region, estimated against true, by stream.

    Parameters
    ----------
    rows : sequence of WearRow
        Rows of :func:`experiments.planning.wear.measure`.
    kind : {"png", "svg"}
        What the bytes are.
    """
    figure = Figure(figsize=(5.4, 5.0), layout="constrained")
    axes = figure.subplots()
    axes.axline((0, 0), slope=1, color=LIGHT.muted, lw=1)
    for place, stream in enumerate(dict.fromkeys(row.stream for row in rows)):
        pairs = np.array([pair for row in rows if row.stream == stream for pair in row.regions])
        colour, marker = LIGHT.series[place % 4], _MARKERS[place % 4]
        axes.scatter(pairs[:, 1], pairs[:, 0], s=14, color=colour, marker=marker, label=stream)
    axes.set_xlabel("true share of budget used in a region (private)")
    axes.set_ylabel("estimate of the proxy ledger (public)")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1.0))
    axes.set_axisbelow(True)
    axes.grid(color=LIGHT.grid)
    axes.legend(frameon=False)
    return figure_bytes(figure, kind)
