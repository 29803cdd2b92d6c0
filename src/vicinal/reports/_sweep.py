"""The default and the published algorithm at several epsilons, simulated on one trial.

**How the comparison is kept fair, and where it is not.** All methods get the same public feature
map, private records and queries. The default gets nothing tuned. The published algorithm needs a
radius and a noise multiplier; it is given the best point found on a grid *by the very accuracy that
is reported*, which nobody could do in practice. That advantage is the published algorithm's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product, starmap

from vicinal._progress import Step
from vicinal.reports._outcomes import Outcome
from vicinal.reports._trials import (
    YARDSTICK_NEIGHBORS,
    Point,
    Setting,
    Trial,
    default_outcome,
    published_outcome,
    yardstick_outcome,
)

DEFAULT = "vicinal, default"
NOT_PRIVATE = f"{YARDSTICK_NEIGHBORS}-NN, not private"


@dataclass(frozen=True, slots=True)
class ParameterGrid:
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


def _beside(values: tuple[float, ...], value: float) -> tuple[float, ...]:
    place = values.index(value)
    return values[max(0, place - 1) : place + 2]


def uphill(
    trial: Trial, setting: Setting, grid: ParameterGrid, step: Step, start: Point | None = None
) -> dict[Point, Outcome]:
    """Try the published algorithm on the way to the top of a grid; return every point tried.

    Every other point is tried, or `start` alone if it is given, then all around the best so far
    until none of them is better. `step` is told of the work in queries, as if all points were
    tried.
    """
    outcomes: dict[Point, Outcome] = {}

    def correct(point: Point) -> int:
        if point not in outcomes:
            outcomes[point] = published_outcome(trial, setting, point, seed=0)
            step(setting.n_queries)
        return outcomes[point].correct

    best = max(grid.coarse() if start is None else [start], key=correct)
    # Of equals max takes the first, so this ends.
    while (better := max([best, *grid.around(best)], key=correct)) != best:
        best = better
    step(setting.n_queries * (len(grid) - len(outcomes)))
    return outcomes


def best_first(outcomes: dict[Point, Outcome]) -> list[Point]:
    """Return points in the order of their right answers."""
    return sorted(outcomes, key=lambda point: -outcomes[point].correct)


@dataclass(frozen=True, slots=True)
class Sweep:
    """Accuracy against epsilon on one trial; simulated, so it carries no guarantee.

    One outcome for every epsilon: of the default, of the published algorithm at its best of
    `grid_size` points, and of a majority vote without privacy (`yardstick`).
    """

    epsilons: tuple[float, ...]
    default: tuple[Outcome, ...]
    published: tuple[Outcome, ...]
    points: tuple[Point, ...]
    grid_size: int
    yardstick: Outcome


def sweep_work(n_queries: int, epsilons: Sequence[float], grid: ParameterGrid) -> int:
    """Return how many queries :func:`sweep` answers, for a progress bar."""
    return n_queries * len(epsilons) * (len(grid) + 1)


def sweep(
    trial: Trial, epsilons: Sequence[float], delta: float, grid: ParameterGrid, step: Step
) -> Sweep:
    """Simulate the default, and the published algorithm at its best, for every epsilon.

    The best point of one epsilon is where the search at the next one begins, which spares it the
    coarse grid.
    """
    n_queries = len(trial.truth)
    default, published = [], []
    points: list[Point] = []
    for epsilon in epsilons:
        setting = Setting(epsilon, n_queries, delta)
        default.append(default_outcome(trial, setting, seed=0))
        step(n_queries)
        outcomes = uphill(trial, setting, grid, step, points[-1] if points else None)
        points.append(best_first(outcomes)[0])
        published.append(outcomes[points[-1]])
    return Sweep(
        tuple(epsilons),
        tuple(default),
        tuple(published),
        tuple(points),
        len(grid),
        yardstick_outcome(trial),
    )
