"""Plots of pages and commands as bytes: PNG or SVG, and PDF where a command offers it.

Drawn on Figure objects of their own, never through pyplot, so that nothing is shared between
callers. Colours are those of Okabe and Ito, which colour-blind readers can tell apart; methods
also differ by marker. Pages invert plots where screens are dark.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, PercentFormatter

from vicinal.accounting import Plan
from vicinal.errors import InvalidInput
from vicinal.reports._outcomes import Outcome, wilson_interval
from vicinal.reports._plan_report import Option

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#aa4499", "#59636e", "#e69f00")
LEAST_LOG10 = -400.0
"""What is drawn for a delta of 0."""

_DODGE = 0.02
"""How far apart methods stand at one epsilon, so that their intervals do not hide each other."""

_METHODS = {
    "rdp_mironov": "RDP, Mironov 2017",
    "rdp": "RDP, Balle et al. 2020",
    "gdp": "Gaussian DP",
    "pld": "privacy loss distribution",
    "lower": "lower bound",
}
_POINTS = 13


def figure_bytes(figure: Figure, kind: str = "png", dpi: int = 150) -> bytes:
    """Return a figure as a file; the same figure as SVG is the same bytes, as it has no date."""
    file = BytesIO()
    figure.savefig(file, format=kind, dpi=dpi, metadata={"Date": None} if kind == "svg" else None)
    return file.getvalue()


def canvas(x: str, y: str = "", height: float = 4.0, grid: str = "both") -> tuple[Figure, Axes]:
    """Return an empty figure whose axes are named; `grid`: of which axes lines are drawn."""
    figure = Figure(figsize=(6.4, height), layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlabel=x, ylabel=y, axisbelow=True)
    axes.grid(visible=True, axis=grid, color="#e4e7eb")  # type: ignore[arg-type]
    return figure, axes


# ---------------------------------------------------------------- pages


@dataclass(frozen=True, slots=True)
class Curve:
    """A named method with one outcome for every epsilon."""

    name: str
    epsilons: Sequence[float]
    outcomes: Sequence[Outcome]


def accuracy_by_epsilon(
    curves: Sequence[Curve], baseline: tuple[str, Outcome], kind: str = "svg"
) -> bytes:
    """Draw accuracy against epsilon, with 95 % intervals, for one to four methods.

    The baseline, a method without privacy, is a dashed line.
    """
    figure, axes = canvas("epsilon (smaller protects more)", "right answers", grid="y")
    for place, (curve, marker) in enumerate(zip(curves, "os^D", strict=False)):
        nudge = np.exp(2 * _DODGE * (place - (len(curves) - 1) / 2))
        axes.errorbar(
            np.asarray(curve.epsilons) * nudge,
            [outcome.accuracy for outcome in curve.outcomes],
            yerr=_reaches([(one.accuracy, *one.interval) for one in curve.outcomes]),
            color=COLOURS[place],
            fmt=f"-{marker}",
            label=curve.name,
        )
    name, outcome = baseline
    axes.axhline(outcome.accuracy, color=COLOURS[4], ls="--", label=name)
    epsilons = sorted({epsilon for curve in curves for epsilon in curve.epsilons})
    axes.set_xscale("log")
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    # Above the axes no curve can run into the names.
    figure.legend(loc="outside upper left", ncols=len(curves) + 1, frameon=False)
    return figure_bytes(figure, kind, dpi=200)


def accuracy_by_share(shares: Sequence[float], outcomes: Sequence[Outcome]) -> bytes:
    """Draw accuracy among the answers with most confidence, against their share of all."""
    figure, axes = canvas("share of queries answered, surest first", "right among those answered")
    lows, highs = np.transpose([outcome.interval for outcome in outcomes])
    axes.fill_between(shares, lows, highs, color=COLOURS[0], alpha=0.18, lw=0)
    axes.plot(shares, [outcome.accuracy for outcome in outcomes], color=COLOURS[0])
    axes.set_xlim(max(shares), min(shares))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1.0))
    return figure_bytes(figure, "svg")


def accuracy_by_class(outcomes: Mapping[str, Outcome]) -> bytes:
    """Draw the accuracy of each class that has queries, with its 95 % interval."""
    shares = [(name, one.accuracy, *one.interval) for name, one in outcomes.items() if one.total]
    return _shares_by_name(shares, "right answers", "svg")


def picture(pixels: Any) -> bytes:
    """Return one image (h, w) or (h, w, 3) as PNG; grey ones from their darkest to brightest."""
    from matplotlib.image import imsave

    file = BytesIO()
    values = np.asarray(pixels, dtype=np.float64)
    low, high = float(values.min()), float(values.max())
    scaled = (values - low) / (high - low or 1.0)
    imsave(file, scaled, cmap="gray", vmin=0.0, vmax=1.0, format="png")
    return file.getvalue()


def _shares_by_name(
    shares: Sequence[tuple[str, float, float, float]], label: str, kind: str
) -> bytes:
    """Draw named shares below each other: (name, share, lower end, upper end)."""
    figure, axes = canvas(label, height=0.9 + 0.3 * max(len(shares), 2), grid="x")
    places = np.arange(len(shares))
    reaches = _reaches([ends for _, *ends in shares])
    axes.errorbar([s[1] for s in shares], places, xerr=reaches, fmt="o", color=COLOURS[0])
    axes.set_yticks(places, [s[0] for s in shares])
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    return figure_bytes(figure, kind)


def _reaches(shares: Sequence[Sequence[float]]) -> Any:
    """Return how far intervals (share, low, high) reach below and above, float64 (2, n)."""
    share, low, high = np.transpose(shares)
    return np.maximum([share - low, high - share], 0.0)


# ---------------------------------------------------------------- commands


def draw_costs(plan: Plan, kind: str = "png") -> bytes:
    """Return a picture of epsilon against the share of all counts, and against gamma.

    The second panel is drawn if a release of the plan is sampled; there every such release has the
    gamma on the axis.
    """
    sampled = [step for step in plan.steps if step.release.values.get("gamma", 1) < 1]
    figure = Figure(figsize=(10 if sampled else 5.4, 4), layout="constrained")
    axes = figure.subplots(1, 2 if sampled else 1, squeeze=False)[0]
    shares = np.unique(np.geomspace(1e-3, 1, _POINTS))
    _price_curves(axes[0], shares, lambda share: _with_share(plan, share))
    axes[0].set_xlabel(f"share of the plan ({sum(s.count for s in plan.steps):,} releases)")
    if sampled:
        rates = np.geomspace(0.01, 1, _POINTS)
        _price_curves(axes[1], rates, lambda rate: _with_rate(plan, float(rate)))
        axes[1].set(xlabel="gamma of the sampled releases", xscale="log")
    return figure_bytes(figure, kind)


def _price_curves(axes: Axes, places: Any, plan_at: Callable[[float], Plan]) -> None:
    plans = [plan_at(place) for place in places]
    prices = [plan.price() for plan in plans]
    for (name, label), colour in zip(_METHODS.items(), COLOURS, strict=False):
        values = np.array([
            price["lower"] if name == "lower" else price["by_method"].get(name) for price in prices
        ], dtype=float)  # fmt: skip
        if np.isfinite(values).any():
            finite = np.where(np.isfinite(values), values, math.nan)
            axes.plot(places, finite, "--" if name == "lower" else "-", color=colour, label=label)
    axes.set_ylabel(f"epsilon at delta {plans[0].delta:g}")
    axes.set_ylim(bottom=0)
    axes.grid(color="#e4e7eb")
    axes.legend(frameon=False)


def _with_share(plan: Plan, share: float) -> Plan:
    def scaled(release: dict[str, Any]) -> dict[str, Any]:
        counts = {key: release[key] for key in ("count", "answered") if key in release}
        return {**release, **{key: max(1, round(share * n)) for key, n in counts.items()}}

    return _changed(plan, scaled)


def _with_rate(plan: Plan, rate: float) -> Plan:
    def resampled(release: dict[str, Any]) -> dict[str, Any]:
        return {**release, "gamma": rate} if release.get("gamma", 1) < 1 else release

    return _changed(plan, resampled)


def _changed(plan: Plan, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Plan:
    fields = plan.to_dict()
    return Plan.from_dict({**fields, "releases": [change(step) for step in fields["releases"]]})


def draw_options(options: Sequence[Option], kind: str = "png") -> bytes:
    """Draw which share of answers noise and wear leave unchanged, with 95 % intervals."""
    played = [(option.name, option.outlook) for option in options if option.outlook is not None]
    if not played:
        raise InvalidInput("A picture of a plan needs public points that it is played through on.")
    shares = [
        (name, o.agreement, *wilson_interval(round(o.agreement * o.answers), o.answers))
        for name, o in played
    ]
    label = "answers that come out as without noise and wear (simulated)"
    return _shares_by_name(shares, label, kind)


def draw_audit(report: dict[str, Any], kind: str = "png") -> bytes:
    """Return a picture of an audit: the smoothed interval and the worst case against epsilon."""
    rows = report["rows"]
    figure, axes = canvas("epsilon", "delta, as a power of ten")
    places = [row["epsilon"] for row in rows]
    low, high = (
        [drawn_log10(row["smoothed"][end]) for row in rows]
        for end in ("log10_lower", "log10_upper")
    )
    worst = [drawn_log10(row["worst_case"]["log10_upper"]) for row in rows]
    axes.fill_between(places, low, high, color=COLOURS[0], alpha=0.25, lw=0)
    axes.plot(places, high, "-o", ms=4, color=COLOURS[0], label="smoothed delta")
    axes.plot(places, worst, "--", color=COLOURS[4], label="worst case")
    axes.legend(frameon=False)
    return figure_bytes(figure, kind)


def drawn_log10(value: float | None) -> float:
    """Return where a power of ten is drawn; None stands for the logarithm of 0."""
    return LEAST_LOG10 if value is None else max(value, LEAST_LOG10)
