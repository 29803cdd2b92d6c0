"""The text and the plot of what tau does, with what ZYCW20 prints beside it."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from experiments.students.attributes import PRINTED, Attributes, Clipped, Point, Rows
from vicinal.reports import figure_bytes

MADE = "made features"
_COLOURS = ("#0072b2", "#d55e00")


def clipping_text(clipped: Sequence[Clipped]) -> str:
    """Return what every tau clips, a line each; exact, from the true labels."""
    lines = ["  tau  people clipped  of     votes lost"]
    lines += [f"{c.tau:5g}  {c.people:14,}  {c.of:5,}  {c.lost:10.4f}" for c in clipped]
    return "\n".join(lines)


def epsilon_text(points: Sequence[Point]) -> str:
    """Return what the paper's setting costs, by every method, and what the paper prints."""
    lines = ["gamma  tau  sigma  Mironov  Balle et al.  PLD    best   printed"]
    for at in points:
        e = at.epsilon
        lines.append(
            f"{at.gamma:5g}  {at.tau:3g}  {at.sigma:5g}  {e['rdp_mironov']:7.3f}  {e['rdp']:12.3f}"
            f"  {e['pld']:.3f}  {e['best']:.3f}  {PRINTED[at.gamma]:7.2f}"
        )
    return "\n".join(lines)


def accuracy_text(points: Sequence[Point], plain: Rows, blind: Rows) -> str:
    """Return mean accuracies over all attributes, on made features."""
    lines = [f"mean accuracy, {MADE}", "  tau  gamma  sigma   right"]
    lines += [f"{p.tau:5g}  {p.gamma:5g}  {p.sigma:5.1f}  {p.right.mean():.4f}" for p in points]
    lines.append(f"  no privacy, the k nearest of all  {plain.mean():.4f}")
    lines.append(f"  the commonest value, always       {blind.mean():.4f}")
    return "\n".join(lines)


def individual_text(points: Sequence[Point], right: Sequence[float]) -> str:
    """Return mean accuracies of Ind-KNN for several labels, at the epsilons of Private-kNN."""
    lines = [f"at equal epsilon, {MADE}", "epsilon  Private-kNN  IndKNNMultiLabelClassifier"]
    lines += [
        f"{p.epsilon['best']:7.3f}  {p.right.mean():11.4f}  {r:26.4f}"
        for p, r in zip(points, right, strict=True)
    ]
    return "\n".join(lines)


def attribute_text(
    attributes: Attributes, points: Sequence[Point], plain: Rows, blind: Rows
) -> str:
    """Return accuracies attribute by attribute, on made features."""
    heads = "".join(f"  gamma {p.gamma:<4g}" for p in points)
    lines = [f"{MADE:12}  commonest  no privacy{heads}"]
    for place, name in enumerate(attributes.names):
        cells = "".join(f"  {p.right[place]:10.3f}" for p in points)
        lines.append(f"{name:12}  {blind[place]:9.3f}  {plain[place]:10.3f}{cells}")
    return "\n".join(lines)


def tau_picture(points: Sequence[Point], plain: float, blind: float) -> bytes:
    """Draw mean accuracy against tau as PNG, a curve for each gamma."""
    figure = Figure(figsize=(7.0, 4.3), layout="constrained")
    axes = figure.add_subplot()
    for gamma, colour in zip(sorted({p.gamma for p in points}), _COLOURS, strict=True):
        curve = sorted((p.tau, float(p.right.mean())) for p in points if p.gamma == gamma)
        epsilon = max(p.epsilon["best"] for p in points if p.gamma == gamma)
        label = f"gamma {gamma:g}, epsilon {epsilon:.2f}"
        axes.plot(*zip(*curve, strict=True), "o-", color=colour, label=label)
    axes.axhline(plain, color="#59636e", ls="--", lw=1.2, label="no privacy")
    axes.axhline(blind, color="#59636e", ls=":", lw=1.2, label="the commonest value")
    axes.set_xlabel("tau (noise in proportion to its square root)")
    axes.set_title(f"right answers over all attributes; {MADE}", loc="left", size=10.5)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return figure_bytes(figure, dpi=200)
