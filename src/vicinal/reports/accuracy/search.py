"""Where the published algorithm does best: a grid of its two parameters, and the way uphill.

It goes by the very accuracy that is reported, as :mod:`vicinal.reports.accuracy.comparison` says.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product, starmap

from vicinal.reports.experiments import Point, Setting, Trial, published_outcome
from vicinal.reports.outcomes import Outcome
from vicinal.reports.steps import Step


@dataclass(frozen=True, slots=True)
class Grid:
    """The points that the published algorithm is tried at."""

    taus: tuple[float, ...]
    multipliers: tuple[float, ...]

    def __len__(self) -> int:
        """Return the number of points."""
        return len(self.taus) * len(self.multipliers)

    def coarse(self) -> list[Point]:
        """Return every other point in both directions."""
        return list(starmap(Point, product(self.taus[::2], self.multipliers[::2])))

    def around(self, point: Point) -> list[Point]:
        """Return the points next to `point`, at most eight."""
        nearby = product(
            _beside(self.taus, point.tau), _beside(self.multipliers, point.noise_multiplier)
        )
        return [other for other in starmap(Point, nearby) if other != point]

    def interior(self, point: Point) -> bool:
        """Tell whether a point has neighbours on all sides, so that the best is not cut off."""
        return len(self.around(point)) == _ALL_AROUND


_ALL_AROUND = 8


def _beside(values: tuple[float, ...], value: float) -> tuple[float, ...]:
    place = values.index(value)
    return values[max(0, place - 1) : place + 2]


def uphill(trial: Trial, setting: Setting, grid: Grid, step: Step) -> dict[Point, Outcome]:
    """Try the published algorithm on the way to the top of a grid; return every point tried.

    Every other point is tried, then all around the best so far until none of them is better.
    `step` is told of the work in queries, as if all points were tried.
    """
    found: dict[Point, Outcome] = {}

    def correct(point: Point) -> int:
        if point not in found:
            found[point] = published_outcome(trial, setting, point, seed=0)
            step(setting.n_queries)
        return found[point].correct

    best = max(grid.coarse(), key=correct)
    # Of equals max takes the first, so this ends.
    while (better := max([best, *grid.around(best)], key=correct)) != best:
        best = better
    step(setting.n_queries * (len(grid) - len(found)))
    return found


def best_first(found: dict[Point, Outcome]) -> list[Point]:
    """Return points in the order of their right answers."""
    return sorted(found, key=lambda point: -found[point].correct)
