"""What a plan costs, as curves: against the number of queries and against the sampling rate."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vicinal.accounting._plan import Plan
from vicinal.reports._plots import figure_bytes

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
        found = [(place, value) for place, value in points if math.isfinite(value)]
        if found:
            style = "--" if name == "lower" else "-"
            axes.plot(*zip(*found, strict=True), style, color=_COLOURS[name], label=label)
    axes.set_ylabel(f"epsilon at delta {plans[0][1].delta:g}")
    axes.set_ylim(bottom=0)
    axes.grid(color="#e4e7eb")
    axes.legend(frameon=False)


def _value(price: dict[str, Any], name: str) -> float:
    value = price["lower"] if name == "lower" else price["by_method"].get(name)
    return math.nan if value is None else float(value)


def _with_share(plan: Plan, share: float) -> Plan:
    def scaled(release: dict[str, Any]) -> dict[str, Any]:
        whole = {key: release[key] for key in ("count", "answered") if key in release}
        return {**release, **{key: max(1, round(share * n)) for key, n in whole.items()}}

    return _changed(plan, scaled)


def _with_rate(plan: Plan, rate: float) -> Plan:
    def resampled(release: dict[str, Any]) -> dict[str, Any]:
        return {**release, "gamma": rate} if release.get("gamma", 1) < 1 else release

    return _changed(plan, resampled)


def _changed(plan: Plan, change: Any) -> Plan:
    given = plan.to_dict()
    return Plan.from_dict({**given, "releases": [change(step) for step in given["releases"]]})
