"""Tables of the default against the published algorithm.

`search.py` says how the comparison is kept fair, and where it is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from experiments.accuracy.search import ParameterGrid, Point, best_first, published_outcome, uphill
from experiments.accuracy.table import pipes
from experiments.spread import mean_and_spread
from experiments.trials import (
    DEFAULT,
    NOT_PRIVATE,
    Benchmark,
    Setting,
    default_outcome,
    limit_queries,
    split,
    yardstick_outcome,
)
from vicinal.features import PublicMap
from vicinal.progress import Step
from vicinal.reports.demo import Trial
from vicinal.reports.outcomes import AnswerCounts

LABELS = "vicinal, labels only"
PUBLISHED = "Zhu et al. 2023, best of grid"

FINALISTS = 5
"""Points of a grid that are tried in all runs, when run 0 has shown which are good."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a table: one method in one setting, over several splits and seeds.

    - `features`, `method`: feature map and method, in words.
    - `n_queries`: queries of each run.
    - `setting`: what was simulated; None without privacy.
    - `accuracies`: one for every run.
    - `point`, `interior`: where the published algorithm was best, and whether the grid has points
      all around it.
    """

    features: str
    method: str
    n_queries: int
    setting: Setting | None
    accuracies: tuple[float, ...]
    point: Point | None = None
    interior: bool | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values with mean and spread, for JSON."""
        mean, spread = mean_and_spread(self.accuracies)
        return {
            "features": self.features,
            "method": self.method,
            "n_queries": self.n_queries,
            "epsilon": self.setting and self.setting.epsilon,
            "delta": self.setting and self.setting.delta,
            "accuracy_mean": mean,
            "accuracy_spread": spread,
            "accuracies": list(self.accuracies),
            "tau": self.point and self.point.tau,
            "noise_multiplier": self.point and self.point.noise_multiplier,
            "best_point_interior": self.interior,
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """One feature map in several settings.

    Run r takes public split r and noise seed r. The published algorithm's best points are looked
    for in run 0; of the first few of them, the one with the best mean over all runs is reported.

    - `features`: the feature map in words.
    - `public_map`: the map, fitted anew on the reference of every split.
    - `settings`: what is simulated.
    - `grid`: where the published algorithm's best point is looked for.
    - `n_reference`, `runs`: public reference points of every split, and the number of splits.
    """

    features: str
    public_map: PublicMap
    settings: tuple[Setting, ...]
    grid: ParameterGrid
    n_reference: int
    runs: int

    @property
    def work(self) -> int:
        """How many private answers :meth:`rows` simulates, for a progress bar."""
        queries = sum(setting.n_queries for setting in self.settings)
        return queries * (len(self.grid) + (2 + self._finalists) * self.runs)

    def rows(self, benchmark: Benchmark, step: Step) -> list[Row]:
        """Run everything; return three rows a setting, and a yardstick for each number of queries.

        Raises InvalidInput if the test part has too few rows for reference and queries.
        """
        points: dict[Setting, list[Point]] = {}
        found: dict[_Line, list[float]] = {}
        for run in range(self.runs):
            trial = self._trial(benchmark, run)
            if run == 0:
                points = self._best_points(trial, step)
            for line, outcome in self._outcomes(trial, points, run):
                found.setdefault(line, []).append(outcome.accuracy)
                step(0 if line.setting is None else line.n_queries)
            del trial  # the next one needs its room
        return [self._row(line, tuple(found[line])) for line in _best_lines(found)]

    @property
    def _finalists(self) -> int:
        return min(FINALISTS, len(self.grid.coarse()))

    def _trial(self, benchmark: Benchmark, run: int) -> Trial:
        most = max(setting.n_queries for setting in self.settings)
        parts = split(len(benchmark.test), self.n_reference, most, seed=run)
        return benchmark.trial(self.public_map, parts)

    def _best_points(self, trial: Trial, step: Step) -> dict[Setting, list[Point]]:
        found = {
            setting: uphill(limit_queries(trial, setting.n_queries), setting, self.grid, step)
            for setting in self.settings
        }
        return {setting: best_first(tried)[: self._finalists] for setting, tried in found.items()}

    def _outcomes(
        self, trial: Trial, points: dict[Setting, list[Point]], run: int
    ) -> Iterator[tuple[_Line, AnswerCounts]]:
        for setting in self.settings:
            n = setting.n_queries
            asked = limit_queries(trial, n)
            yield _Line(DEFAULT, n, setting), default_outcome(asked, setting, run)
            yield _Line(LABELS, n, setting), default_outcome(asked, setting, run, "label")
            for point in points[setting]:
                published = published_outcome(asked, setting, point, run)
                yield _Line(PUBLISHED, n, setting, point), published
        for n in dict.fromkeys(setting.n_queries for setting in self.settings):
            yield _Line(NOT_PRIVATE, n), yardstick_outcome(limit_queries(trial, n))

    def _row(self, line: _Line, accuracies: tuple[float, ...]) -> Row:
        around = None if line.point is None else self.grid.around(line.point)
        # At the grid's edge fewer than eight points lie around one: the best may be cut off.
        interior = None if around is None else len(around) == 8
        return Row(self.features, *line[:3], accuracies, line.point, interior)


class _Line(NamedTuple):
    """What was run: all that tells one accuracy from the others of a run."""

    method: str
    n_queries: int
    setting: Setting | None = None
    point: Point | None = None


def _best_lines(found: dict[_Line, list[float]]) -> list[_Line]:
    """Return for each method and setting the line with the best mean."""
    best: dict[_Line, _Line] = {}
    for line, accuracies in found.items():
        place = line._replace(point=None)
        if place not in best or sum(accuracies) > sum(found[best[place]]):
            best[place] = line
    return list(best.values())


def text_table(rows: Sequence[Row]) -> str:
    """Return rows as a table of plain text, accuracies with the spread of a single run."""
    header = ("features", "method", "queries", "epsilon", "accuracy", "spread", "best point")
    return pipes([header, *map(_cells, rows)])


def _cells(row: Row) -> tuple[str, ...]:
    mean, spread = mean_and_spread(row.accuracies)
    point = "" if row.point is None else f"tau {row.point.tau:g}, "
    if row.point is not None:
        point += f"sigma2 {row.point.noise_multiplier:g}"
        point += "" if row.interior else " (at the grid's edge)"
    epsilon = "-" if row.setting is None else f"{row.setting.epsilon:g}"
    numbers = f"{row.n_queries:,}", epsilon, f"{mean:.4f}", f"{spread:.4f}"
    return row.features, row.method, *numbers, point
