"""Pictures of plans: the options side by side, and wear as estimated against the truth."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from vicinal.errors import InvalidInput
from vicinal.reports.outcomes import wilson_interval
from vicinal.reports.page.plots import LIGHT
from vicinal.reports.planning.outlook import Option
from vicinal.reports.planning.wear import WearRow

_MARKERS = ("o", "s", "^", "D")


def draw_options(found: Sequence[Option], kind: str = "png") -> bytes:
    """Draw which share of answers noise and wear leave unchanged, with 95 % intervals.

    Parameters
    ----------
    found : sequence of Option
        The options, as simulated.
    kind : {"png", "svg"}
        What the bytes are.

    Raises
    ------
    InvalidInput
        If nothing was simulated.
    """
    played = [(option.name, option.outlook) for option in found if option.outlook is not None]
    if not played:
        raise InvalidInput("A picture of a plan needs public points that it is played through on.")
    shares = np.array([outlook.agreement for _, outlook in played])
    ends = np.array([wilson_interval(round(o.agreement * o.answers), o.answers) for _, o in played])
    figure = Figure(figsize=(7.0, 0.9 + 0.32 * len(played)), layout="constrained")
    axes = figure.subplots()
    reach = np.maximum([shares - ends[:, 0], ends[:, 1] - shares], 0.0)
    places = np.arange(len(played))
    axes.errorbar(shares, places, xerr=reach, fmt="o", color=LIGHT.series[0])
    axes.set_yticks(places, [name for name, _ in played])
    axes.invert_yaxis()
    axes.set_axisbelow(True)
    axes.grid(axis="x", color=LIGHT.grid)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel("answers that come out as without noise and wear (simulated)")
    return _bytes(figure, kind)


def draw_wear(rows: Sequence[WearRow], kind: str = "png") -> bytes:
    """Draw the share of budget used in every region, estimated against true, by stream.

    Parameters
    ----------
    rows : sequence of WearRow
        Rows of :func:`vicinal.reports.planning.wear.measure`.
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
    axes.set_ylabel("estimate of the shadow ledger (public)")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1.0))
    axes.set_axisbelow(True)
    axes.grid(color=LIGHT.grid)
    axes.legend(frameon=False)
    return _bytes(figure, kind)


def _bytes(figure: Figure, kind: str) -> bytes:
    buffer = BytesIO()
    # Without a date the same plot is the same bytes.
    figure.savefig(buffer, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
    return buffer.getvalue()
