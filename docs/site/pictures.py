"""Draws the pictures of the explanations: `python -m docs.site.pictures`."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from scipy.optimize import brentq
from scipy.stats import beta, norm

FOLDER = Path(__file__).parents[1] / "img"
WITH, WITHOUT, GREY = "#2b83c6", "#d9731a", "#8a8f98"
INK = "#747c85"  # read on white as on a dark page: pictures have no ground of their own
REPORT_SET = Path(__file__).parents[1] / "reference" / "report-set.csv"
DELTA, ALARMS = 1e-5, 0.05


def main() -> None:
    """Write every picture as SVG, the same bytes each time."""
    mpl.use("svg")
    inks = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    ground = {"axes.facecolor": "none", "legend.framealpha": 0.0, "legend.edgecolor": "none"}
    plain = {"svg.hashsalt": "vicinal", "svg.fonttype": "path", "font.size": 11}
    mpl.rcParams.update({**dict.fromkeys(inks, INK), **ground, **plain})
    for draw in (two_worlds, neighbors, budgets, report_set, one_run, erasure):
        fig = draw()
        fig.tight_layout()
        fig.savefig(FOLDER / f"{draw.__name__}.svg", metadata={"Date": None}, facecolor="none")
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
    left.add_patch(plt.Circle((0, 0), 0.6, fill=False, color=INK))
    left.plot(0, 0, "*", color=INK, markersize=14)
    left.set(aspect="equal", xticks=[], yticks=[], title="Records within a public radius vote")
    left.set_xlabel("each voter is charged to its own budget")
    _votes(right, [int((~ill & near).sum()), int((ill & near).sum())])
    return fig


def _votes(axes: Axes, counts: list[int]) -> None:
    axes.bar(["healthy", "ill"], counts, yerr=2.5, capsize=8, ecolor=INK, color=[WITHOUT, WITH],
             alpha=0.8)  # fmt: skip
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
    axes.axhline(0, color=INK, lw=0.8)
    axes.set(xlabel="queries answered", ylabel="budget left", ylim=(-0.05, 1.05))
    axes.set_title(
        "Each subject pays for what its records contributed, and retires when nothing is left"
    )
    axes.legend()
    return fig


def report_set() -> plt.Figure:
    """Draw accuracy against epsilon on the tables that no constant was chosen on."""
    with REPORT_SET.open() as file:
        cells = [row for row in csv.DictReader(file) if row["queries"] == "2000"]
    asked = {row["table"] for row in cells if row["method"] == "Opacus, linear layer"}  # of classes
    cells = [row for row in cells if row["table"] in asked]
    # The site shows each picture at the width of its text: a smaller figure enlarges the words.
    fig, both = plt.subplots(1, 2, figsize=(6.4, 3.2), sharey=True)
    methods = (("vicinal", WITH, 2.5), ("NoisySGD", WITHOUT, 1.5), ("AdaSSP", GREY, 1.5))
    for axes, records in zip(both, ("500", "20000"), strict=True):
        some = [row for row in cells if row["records"] == records]
        for name, color, width in methods:
            scores: dict[float, list[float]] = defaultdict(list)
            for row in some:
                if row["method"] == name:
                    scores[float(row["epsilon"])].append(float(row["score"]))
            epsilons = sorted(scores)
            means = [np.mean(scores[epsilon]) for epsilon in epsilons]
            axes.plot(epsilons, means, "o-", color=color, lw=width, label=name)
        free = [float(row["score"]) for row in some if row["method"].startswith("linear")]
        axes.axhline(float(np.mean(free)), color=INK, ls=":", label="linear, not private")
        axes.set(xscale="log", xticks=[0.5, 1, 2, 4], xlabel="epsilon")
        axes.set_xticklabels([".5", "1", "2", "4"])
        axes.minorticks_off()
        axes.set_title(f"{int(records):,} records" + (" at most" if records == "20000" else ""))
    both[0].set_ylabel("mean AUC of 32 tables")
    both[1].legend(fontsize=11, loc="lower right")
    return fig


def one_run() -> plt.Figure:
    """Draw what one run proves of a Gaussian claim at epsilon 1, by its number of canaries."""
    counts = np.geomspace(300, 1e6, 60)
    mu, fig = shift(1), plt.figure(figsize=(9, 2.6))
    axes = fig.subplots()
    rights = np.floor(counts * norm.cdf(mu / 2))
    low = beta.ppf(1e-6, rights, counts - rights + 1)  # Clopper and Pearson
    axes.semilogx(counts, np.maximum(0, 2 * norm.ppf(low)) / mu, color=WITH)
    axes.axhline(1, color=INK, ls=":")
    axes.set(xlabel="canaries, each guessed by itself", ylabel="share of the claim", ylim=(0, 1.05))
    axes.set_title("Few canaries prove nothing; hundreds of thousands prove nearly all")
    return fig


ERASURE = (
    ("gone at once", WITH, ("features and labels", "the id", "free pages and logs")),
    ("stays, names nobody", GREY, ("keyed hash, budget left", "digests of queries")),
    ("released before", WITHOUT, ("answers given", "model weights, students")),
    ("yours to delete", WITHOUT, ("backups", "copies, snapshots, replicas")),
)
"""What an erasure reaches: docs/how-to/erasure.md says each in full."""


def erasure() -> plt.Figure:
    """Draw what an erasure reaches, and what it does not."""
    fig, axes = plt.subplots(figsize=(9, 1.9))
    for column, (title, color, things) in enumerate(ERASURE):
        axes.text(column, 3.1, title, ha="center", weight="bold")
        for row, thing in enumerate(things):
            box = {"boxstyle": "round,pad=.3", "facecolor": "none", "edgecolor": color, "lw": 1.5}
            axes.text(column, 2.2 - row, thing, ha="center", fontsize=10, bbox=box)
    axes.set(xlim=(-0.5, 3.5), ylim=(-0.3, 3.6))
    axes.axis("off")
    return fig


if __name__ == "__main__":
    main()
