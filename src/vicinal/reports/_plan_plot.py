"""The choices of a plan side by side, as a picture."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from vicinal.errors import InvalidInput
from vicinal.reports._outcomes import wilson_interval
from vicinal.reports._plan_report import Option
from vicinal.reports._plots import LIGHT, figure_bytes


def draw_options(found: Sequence[Option], kind: str = "png") -> bytes:
    """Draw which share of answers noise and wear leave unchanged, with 95 % intervals."""
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
    return figure_bytes(figure, kind)
