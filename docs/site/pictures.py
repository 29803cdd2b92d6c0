"""Draws the pictures of the explanations: `python -m docs.site.pictures`."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from scipy.optimize import brentq
from scipy.stats import norm

FOLDER = Path(__file__).parents[1] / "img"
WITH, WITHOUT, GREY = "#0b6fb8", "#d9731a", "#8a8f98"
DELTA, ALARMS = 1e-5, 0.05


def main() -> None:
    """Write every picture as SVG, the same bytes each time."""
    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "vicinal", "svg.fonttype": "path", "font.size": 11})
    for draw in (two_worlds, neighbors, budgets):
        fig = draw()
        fig.tight_layout()
        fig.savefig(FOLDER / f"{draw.__name__}.svg", metadata={"Date": None}, facecolor="white")
        plt.close(fig)
    for epsilon in (0.5, 1, 2, 4):
        print(epsilon, f"{norm.cdf(norm.ppf(ALARMS) + shift(epsilon)):.1%}")


def shift(epsilon: float) -> float:
    """Return how far apart Gaussian noise leaves two worlds at `epsilon`, in deviations."""

    def excess(mu: float) -> float:
        far, near = norm.cdf(-epsilon / mu + mu / 2), norm.cdf(-epsilon / mu - mu / 2)
        return float(far - np.exp(epsilon) * near - DELTA)

    return float(brentq(excess, 1e-3, 9))


def two_worlds() -> plt.Figure:
    """Draw what an observer sees with and without one subject."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), width_ratios=(3, 2))
    x = np.linspace(-4, 4, 400)
    left.fill_between(x, norm.pdf(x), color=WITHOUT, alpha=0.35, label="without the subject")
    left.fill_between(
        x, norm.pdf(x, shift(1)), color=WITH, alpha=0.35, label="with all of its records"
    )
    left.set(xlabel="all answers, seen as evidence", yticks=[], title="What an observer may see")
    left.legend(loc="upper left", fontsize=9)
    alarms = np.linspace(0, 1, 200)
    right.plot(alarms, norm.cdf(norm.ppf(alarms) + shift(1)), color=WITH, label="the best observer")
    right.plot([0, 1], [0, 1], color=GREY, ls=":", label="guessing")
    right.set(xlabel="false alarms", ylabel="found out", title="How well anybody can tell")
    right.legend(loc="lower right", fontsize=9)
    return fig


def neighbors() -> plt.Figure:
    """Draw the way of one query: radius, votes, noise, label."""
    rng = np.random.default_rng(7)
    points = rng.uniform(-1, 1, (70, 2)) * (1.6, 1)
    ill = points[:, 0] + 0.4 * points[:, 1] + rng.normal(0, 0.4, 70) > 0
    near = np.hypot(*points.T) < 0.6
    fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), width_ratios=(3, 2))
    for marker, color, group in (("o", WITHOUT, ~ill), ("s", WITH, ill)):
        left.scatter(*points[group & ~near].T, marker=marker, facecolor="none", edgecolor=GREY)
        left.scatter(*points[group & near].T, marker=marker, color=color)
    left.add_patch(plt.Circle((0, 0), 0.6, fill=False, color="black"))
    left.plot(0, 0, "k*", markersize=14)
    left.set(aspect="equal", xticks=[], yticks=[], title="Records within a public radius vote")
    left.set_xlabel("each voter is charged to its own budget")
    _votes(right, [int((~ill & near).sum()), int((ill & near).sum())])
    return fig


def _votes(axes: Axes, counts: list[int]) -> None:
    axes.bar(["healthy", "ill"], counts, yerr=2.5, capsize=8, color=[WITHOUT, WITH], alpha=0.8)
    axes.set(ylabel="votes", title="Noise is added, then the label")


def budgets() -> plt.Figure:
    """Draw budgets over queries: each subject pays for what it contributed and retires."""
    rng = np.random.default_rng(3)
    fig, axes = plt.subplots(figsize=(9, 2.8))
    charges = (
        (0.09, WITH, "near many queries"),
        (0.035, WITHOUT, "near some"),
        (0.006, GREY, "far"),
    )
    for rate, color, name in charges:
        left = np.maximum(1 - np.cumsum(rng.random(200) * rate * (rng.random(200) < 0.25)), 0)
        axes.step(range(200), left, color=color, label=name)
    axes.axhline(0, color="black", lw=0.8)
    axes.set(xlabel="queries answered", ylabel="budget left", ylim=(-0.05, 1.05))
    axes.set_title(
        "Each subject pays for what its records contributed, and retires when nothing is left"
    )
    axes.legend()
    return fig


if __name__ == "__main__":
    main()
