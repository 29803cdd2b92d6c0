"""Pictures of `vicinal account`, `plan` and `smoothed`: costs, choices, and powers of ten."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from vicinal.accounting import Plan
from vicinal.errors import InvalidInput
from vicinal.reports._outcomes import wilson_interval
from vicinal.reports._plan_report import Option
from vicinal.reports._plots import LIGHT, figure_bytes

_POINTS = 13
_NAMES = {
    "rdp_mironov": "RDP, Mironov 2017",
    "rdp": "RDP, Balle et al. 2020",
    "gdp": "Gaussian DP",
    "pld": "privacy loss distribution",
    "lower": "lower bound",
}
_COLOURS = {
    "rdp_mironov": "#aa4499",
    "rdp": "#0072b2",
    "gdp": "#d55e00",
    "pld": "#009e73",
    "lower": "#59636e",
}


def draw_costs(plan: Plan, kind: str = "png") -> bytes:
    """Return a picture of epsilon against the share of all counts, and against gamma.

    The second panel is drawn if a release of the plan is sampled; there every such release has the
    gamma on the axis.
    """
    sampled = [step for step in plan.steps if step.release.values.get("gamma", 1) < 1]
    figure = Figure(figsize=(10 if sampled else 5.4, 4), layout="constrained")
    axes = figure.subplots(1, 2 if sampled else 1, squeeze=False)[0]
    shares = np.unique(np.geomspace(1e-3, 1, _POINTS))
    _curves(axes[0], [(share, _with_share(plan, share)) for share in shares])
    axes[0].set_xlabel(f"share of the plan ({sum(s.count for s in plan.steps):,} releases)")
    if sampled:
        rates = np.geomspace(0.01, 1, _POINTS)
        _curves(axes[1], [(rate, _with_rate(plan, float(rate))) for rate in rates])
        axes[1].set_xlabel("gamma of the sampled releases")
        axes[1].set_xscale("log")
    return figure_bytes(figure, kind)


def _curves(axes: Axes, plans: list[tuple[float, Plan]]) -> None:
    prices = [(float(place), plan.price()) for place, plan in plans]
    for name, label in _NAMES.items():
        points = [(place, _value(price, name)) for place, price in prices]
        finite = [(place, value) for place, value in points if math.isfinite(value)]
        if finite:
            style = "--" if name == "lower" else "-"
            axes.plot(*zip(*finite, strict=True), style, color=_COLOURS[name], label=label)
    axes.set_ylabel(f"epsilon at delta {plans[0][1].delta:g}")
    axes.set_ylim(bottom=0)
    axes.grid(color="#e4e7eb")
    axes.legend(frameon=False)


def _value(price: dict[str, Any], name: str) -> float:
    value = price["lower"] if name == "lower" else price["by_method"].get(name)
    return math.nan if value is None else float(value)


def _with_share(plan: Plan, share: float) -> Plan:
    def scaled(release: dict[str, Any]) -> dict[str, Any]:
        counts = {key: release[key] for key in ("count", "answered") if key in release}
        return {**release, **{key: max(1, round(share * n)) for key, n in counts.items()}}

    return _changed(plan, scaled)


def _with_rate(plan: Plan, rate: float) -> Plan:
    def resampled(release: dict[str, Any]) -> dict[str, Any]:
        return {**release, "gamma": rate} if release.get("gamma", 1) < 1 else release

    return _changed(plan, resampled)


def _changed(plan: Plan, change: Any) -> Plan:
    fields = plan.to_dict()
    return Plan.from_dict({**fields, "releases": [change(step) for step in fields["releases"]]})


def draw_options(options: Sequence[Option], kind: str = "png") -> bytes:
    """Draw which share of answers noise and wear leave unchanged, with 95 % intervals."""
    played = [(option.name, option.outlook) for option in options if option.outlook is not None]
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
