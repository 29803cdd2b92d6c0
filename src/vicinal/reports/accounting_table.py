"""The papers' printed epsilons against ours, from the parameters that they state."""

from __future__ import annotations

import dataclasses
from typing import Any

from vicinal.accounting.plan import account

Release = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Printed:
    """A figure that a paper prints, and the plan that its parameters describe."""

    where: str
    printed: float
    releases: tuple[Release, ...]
    says: str
    delta: float = 1e-5


def _screening(gamma: float) -> Release:
    return {
        "kind": "screening", "k": 300, "threshold": 210, "sigma": 85, "gamma": gamma, "count": 8192
    }  # fmt: skip


def _gaussian(gamma: float) -> Release:
    return {"kind": "gaussian", "sigma": 85, "gamma": gamma, "count": 8192}


_MNIST = (
    {"kind": "screening", "k": 300, "threshold": 180, "sigma": 75, "gamma": 0.15, "count": 1000},
    {"kind": "noisy_max", "sigma": 25, "gamma": 0.15, "count": 735},
)
_MNIST_LABEL = (_MNIST[0], {**_MNIST[1], "release": "label"})

PRINTED = (
    Printed("Figure 5, Gaussian", 5.67, (_gaussian(1),), "follows"),
    Printed("Figure 5, subsampled Gaussian", 1.313, (_gaussian(0.25),), "follows"),
    Printed("Figure 5, screening", 4.43, (_screening(1),), "follows"),
    Printed("Figure 5, subsampled screening", 1.04, (_screening(0.25),), "follows"),
    Printed("Table 1, MNIST", 0.47, _MNIST, "does not follow"),
    Printed("Table 1, MNIST, labels only", 0.47, _MNIST_LABEL, "does not follow"),
)


def table() -> list[dict[str, Any]]:
    """Return a row for every printed figure: the figure, every method of ours, the lower bound."""
    rows = []
    for entry in PRINTED:
        price = account({"delta": entry.delta, "releases": list(entry.releases)})
        row = {"where": entry.where, "printed": entry.printed, "says": entry.says}
        methods = {name: price["by_method"].get(name) for name in ("rdp_mironov", "rdp", "pld")}
        gaussian = price["by_method"].get("gdp")
        rows.append({**row, **methods, "gdp": gaussian, "lower": price["lower"]})
    return rows


def as_text(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a Markdown table."""
    names = ("rdp_mironov", "rdp", "pld", "gdp", "lower")
    lines = [
        "| ZYCW20 | printed | Mironov | Balle et al. | PLD | GDP | at least | printed figure |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = ["" if row[name] is None else f"{row[name]:.3f}" for name in names]
        lines.append(f"| {row['where']} | {row['printed']} | {' | '.join(cells)} | {row['says']} |")
    return "\n".join(lines)
