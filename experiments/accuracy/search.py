"""The published algorithm at the best point of a grid, searched uphill.

It needs a radius and a noise multiplier. It is given the best point found *by the very accuracy
that is reported*, which nobody could do in practice: that advantage is the published algorithm's.
All methods get the same public feature map, private records and queries; the default gets nothing
tuned.
"""

from dataclasses import dataclass
from itertools import product, starmap

from experiments.trials import Setting
from vicinal.predictors import IndKNNClassifier
from vicinal.progress import Step
from vicinal.reports.demo import Trial
from vicinal.reports.outcomes import AnswerCounts


@dataclass(frozen=True, slots=True)
class Point:
    """What the published algorithm leaves to its user: radius tau and noise multiplier."""

    tau: float
    noise_multiplier: float


def published_outcome(trial: Trial, setting: Setting, point: Point, seed: int) -> AnswerCounts:
    """Simulate the published algorithm at a point of its grid."""
    classifier = IndKNNClassifier.zhu2023(
        trial.classes,
        setting.epsilon,
        setting.delta,
        setting.n_queries,
        tau=point.tau,
        noise_multiplier=point.noise_multiplier,
        simulation_seed=seed,
    ).fit(trial.records, trial.labels)
    return AnswerCounts.from_answers(classifier.predict(trial.queries), trial.truth)


@dataclass(frozen=True, slots=True)
class ParameterGrid:
    """The points that the published algorithm is tried at."""

    taus: tuple[float, ...]
    multipliers: tuple[float, ...]

    def __len__(self) -> int:
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
    trial: Trial, setting: Setting, grid: ParameterGrid, step: Step
) -> dict[Point, AnswerCounts]:
    """Try the published algorithm on the way to the top of a grid; return every point tried.

    Every other point is tried, then all around the best so far until none of them is better.
    `step` is told of the work in queries, as if all points were tried.
    """
    outcomes: dict[Point, AnswerCounts] = {}

    def correct(point: Point) -> int:
        if point not in outcomes:
            outcomes[point] = published_outcome(trial, setting, point, seed=0)
            step(setting.n_queries)
        return outcomes[point].correct

    best = max(grid.coarse(), key=correct)
    # Of equals max takes the first, so this ends.
    while (better := max([best, *grid.around(best)], key=correct)) != best:
        best = better
    step(setting.n_queries * (len(grid) - len(outcomes)))
    return outcomes


def best_first(outcomes: dict[Point, AnswerCounts]) -> list[Point]:
    """Return points in the order of their right answers."""
    return sorted(outcomes, key=lambda point: -outcomes[point].correct)
