"""The figures of LWX23 as tables: elections with lost ballots, and quantised gradients.

Where the published setting is not stated, the row of a figure says so under "guessed".
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.smoothed.tables import ELECTORAL_UNITS, POPULAR_VOTE, election_table
from vicinal.smoothed import (
    Average,
    FixedSize,
    Heterogeneous,
    Histogram,
    Hull,
    adjusted_utility,
    compute_level_probabilities,
    database_delta,
    smoothed_delta,
)
from vicinal.smoothed.average import LEVELS
from vicinal.smoothed.smooth import estimate_mean_delta  # fmt: skip

Row = dict[str, Any]

LATER_TOTALS = (81_283_501, 74_223_975)
EPSILONS = (0.5, 1.0, 2.0, 7.0)
GRADIENT_EPSILON = 2.0
HISTORY_SHARES = (0.5, 0.652)


@dataclass(frozen=True)
class Figure:
    """A figure as a table.

    - `name`, `title`: which figure, and what it shows.
    - `guessed`: which part of the setting the paper does not state; "" if all of it is known.
    - `rows`: plain values; deltas as powers of ten.
    """

    name: str
    title: str
    guessed: str
    rows: list[Row]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return dict(vars(self))


def all_figures(databases: int, begin: Callable[[str], None]) -> list[Figure]:
    """Return every figure; `begin` is told which one is worked on.

    - `databases`: databases drawn for every point of the figures on gradients.
    - `begin`: takes the name of a figure.
    """
    figures = []
    for name, draw in _DRAWN.items():
        begin(name)
        figures.append(draw(databases))
    return figures


def elections(lost: float, accuracy: float) -> list[Row]:
    """Return delta and adversary's utility of every election since 1920, some ballots lost.

    - `lost`: share of ballots that are not counted.
    - `accuracy`: of a guess, from which on it counts as a gain: t = 2 accuracy - 1, epsilon = log
      of accuracy / (1 - accuracy).
    """
    votes = [
        (row["year"], (int(row["first_votes"]), int(row["second_votes"])))
        for row in election_table(POPULAR_VOTE)
    ]
    return [election_row(name, counts, lost, accuracy) for name, counts in votes]


def election_row(name: str, counts: Sequence[int], lost: float, accuracy: float) -> Row:
    """Return delta and utility of one election: `counts` votes, a share of them lost."""
    n = sum(counts)
    mechanism = Histogram(FixedSize(round((1 - lost) * n)))
    delta = database_delta(mechanism, counts, math.log(accuracy / (1 - accuracy)))
    gain = adjusted_utility(mechanism, counts, 2 * accuracy - 1)
    return {
        "election": name,
        "votes": n,
        "log10_delta": _finite(delta.log10_upper),
        "log10_utility": _finite(gain.log10_upper),
        "below_1_over_n": delta.upper < 1 / n,
    }


def all_dc(sizes: Sequence[int], lost: float, epsilons: Sequence[float]) -> list[Row]:
    """Return smoothed deltas of elections whose voters are like those of some 2020 unit."""
    shares = [
        _folded(int(row["dem_votes"]), int(row["rep_votes"]))
        for row in election_table(ELECTORAL_UNITS)
    ]
    return _smoothed(Hull([[p, 1 - p] for p in shares]), sizes, lost, epsilons)


def history(sizes: Sequence[int], lost: float, epsilons: Sequence[float]) -> list[Row]:
    """Return the same for voters between an even split and the most uneven year, 1924."""
    return _smoothed(Hull([[1 - p, p] for p in HISTORY_SHARES]), sizes, lost, epsilons)


def gradients(
    sizes: Sequence[int], worlds: Sequence[tuple[str, Any]], shares: Sequence[float], databases: int
) -> list[Row]:
    """Return mean deltas of the rounded mean of sqrt(N) of N gradients, at epsilon 2.

    - `sizes`: N.
    - `worlds` (sequence of (str, array (2, levels))): names and pairs of gradient laws.
    - `shares`: of records from the second law.
    - `databases`: drawn for each point; each delta is exact, over all 256 replacements of every
      record.
    """
    return [
        _gradient_row(n, name, rows, share, databases)
        for name, rows in worlds
        for n in sizes
        for share in shares
    ]


def as_text(figures: Sequence[Figure]) -> str:
    """Return all figures as text tables."""
    return "\n\n".join(_table(figure) for figure in figures)


def _gradient_row(n: int, name: str, rows: Any, share: float, databases: int) -> Row:
    size = round(math.sqrt(n))
    counts = (n - round(share * n), round(share * n))
    world = Heterogeneous(list(zip(counts, rows, strict=True)))
    found = estimate_mean_delta(Average(LEVELS, size), world, n, GRADIENT_EPSILON, databases, n)
    return {
        "laws": name,
        "N": n,
        "T": size,
        "share of the second": share,
        "mean_delta": found.mean,
        "standard_error": found.error,
        "certified_upper": found.upper,
        "worst_case": size / n,
    }


def _smoothed(
    population: Hull, sizes: Sequence[int], lost: float, epsilons: Sequence[float]
) -> list[Row]:
    rows = []
    for n in sizes:
        for epsilon in epsilons:
            size = round((1 - lost) * n)
            found = smoothed_delta(Histogram(FixedSize(size)), population, n, epsilon)
            rows.append({
                "n": n,
                "epsilon": epsilon,
                "log10_lower": _finite(found.log10_lower),
                "log10_upper": _finite(found.log10_upper),
                "worst_case": size / n,
            })  # fmt: skip
    return rows


def _figure1(_: int) -> Figure:
    rows = elections(0.002, 0.51)
    rows.append(election_row("2020 (later totals)", LATER_TOTALS, 0.002, 0.51))
    return Figure("1", "Two-party votes, 0.2 % lost, guesses above 51 % count", "", rows)


def _figure2_left(_: int) -> Figure:
    rows = all_dc([100_000 * i for i in range(1, 6)], 0.002, EPSILONS)
    guessed = "57 districts there, 56 units here; the worst world, all like DC, is the same"
    return Figure("2 left", "Voters like those of some 2020 unit, 0.2 % lost", guessed, rows)


def _pair(first: str, second: str, shift: float) -> tuple[str, Any]:
    laws = ((first, 0.0), (second, shift))
    rows = np.array([compute_level_probabilities(kind, mean) for kind, mean in laws])
    return f"{first} 0 / {second} {shift:g}", rows


def _figure2_right(databases: int) -> Figure:
    rows = gradients((100, 150, 200, 250), [_pair("gaussian", "gaussian", 0.1)], (0, 1), databases)
    guessed = "which pair of means is which setting; 200 databases there"
    return Figure("2 right", "8-bit gradients, Gaussian, epsilon 2", guessed, rows)


def _figure3(_: int) -> Figure:
    panels = [(lost, accuracy) for lost in (0.002, 0.0001) for accuracy in (0.5, 0.51, 0.6)]
    rows = [
        {"lost": lost, "accuracy": accuracy, **row}
        for lost, accuracy in panels
        for row in elections(lost, accuracy)
    ]
    guessed = "which panel has which threshold and loss rate"
    return Figure("3", "As Figure 1, other thresholds and losses", guessed, rows)


def _figure4(_: int) -> Figure:
    fewer = [{"worlds": "2020 units, 1 % lost", **row} for row in _one_percent(all_dc)]
    past = [{"worlds": "history, 1 % lost", **row} for row in _one_percent(history)]
    guessed = "the whole setting: 1 % lost and the history of shares are taken from the scripts"
    return Figure("4", "Smaller elections, more lost", guessed, fewer + past)


def _one_percent(rows: Callable[[Sequence[int], float, Sequence[float]], list[Row]]) -> list[Row]:
    return rows([10_000 * i for i in range(1, 6)], 0.01, EPSILONS)


def _figure5(databases: int) -> Figure:
    worlds = [
        _pair("gaussian", "gaussian", 0.2),
        _pair("laplace", "laplace", 0.1),
        _pair("laplace", "gaussian", 0.0),
    ]
    rows = gradients((100, 250), worlds, (0, 0.5, 1), databases)
    guessed = "which pair of laws and means is which panel; 200 databases there"
    return Figure("5", "8-bit gradients, mixtures of laws, epsilon 2", guessed, rows)


_DRAWN: dict[str, Callable[[int], Figure]] = {
    "1": _figure1,
    "2 left": _figure2_left,
    "2 right": _figure2_right,
    "3": _figure3,
    "4": _figure4,
    "5": _figure5,
}


def _folded(first: int, second: int) -> float:
    return min(first, second) / (first + second)


def _finite(log10: float) -> float | None:
    return log10 if math.isfinite(log10) else None


def _table(figure: Figure) -> str:
    names = list(figure.rows[0])
    cells = [[_cell(row[name]) for name in names] for row in figure.rows]
    widths = [max(len(name), *(len(row[i]) for row in cells)) for i, name in enumerate(names)]
    lines = [f"Figure {figure.name}. {figure.title}."]
    if figure.guessed:
        lines.append(f"Not stated in the paper: {figure.guessed}.")
    lines += [
        "  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True))
        for row in [names, *cells]
    ]
    return "\n".join(lines)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
