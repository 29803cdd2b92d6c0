"""What tuning on test labels would gain over the plan that "auto" makes, and what was foretold.

An oracle tries several k and noise multipliers around the default and keeps those with the best
mean accuracy over all runs, on the very queries that are reported. Nobody could do that: it is an
upper end for what a better plan could reach. Beside it stands what the simulation on public points
foretold, with the points' labels and with clusters in their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np

from vicinal._progress import Step
from vicinal.features import PublicMap
from vicinal.neighbours import Cosine, int8_precision
from vicinal.predictors import IndKNNClassifier
from vicinal.predictors.ind_knn._plan_choice import PlanChoice, PlanRequest
from vicinal.predictors.ind_knn._plan_simulation import (
    LEAST_POINTS,
    SimulationResult,
    SimulationSetup,
    simulate,
)
from vicinal.reports._trials import Benchmark, Setting, Trial, fitted, split

N_REFERENCE = 5000

SETTINGS = tuple(Setting(epsilon, n) for n in (1000, 4000) for epsilon in (0.25, 0.5, 1.0, 2.0))

NEIGHBORS = (0.5, 1.0, 2.0)
"""What the oracle multiplies the planned k by."""

NOISES = (0.6, 0.8, 1.0, 1.25)
"""What it multiplies the planned noise by."""

Point = tuple[float, float]

PLAN: Point = (1.0, 1.0)


@dataclass(frozen=True, slots=True)
class TuningRow:
    """One setting: means over all runs.

    Attributes
    ----------
    epsilon, n_queries : float, int
        The setting.
    default, oracle : float
        Accuracy as planned, and at the best point of the grid.
    point : tuple of float
        Where that was: k and noise over those of the plan.
    foretold : float
        Accuracy that the simulation foretold with the labels of the public points.
    agreement, clusters : float
        Share of answers that it found unchanged by noise and wear: with labels, and with clusters.
    """

    epsilon: float
    n_queries: int
    default: float
    oracle: float
    point: Point
    foretold: float
    agreement: float
    clusters: float

    @property
    def difference(self) -> float:
        """What the oracle gains."""
        return self.oracle - self.default

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {**asdict(self), "difference": self.difference}


def work(runs: int) -> int:
    """Return how many queries :func:`measure` answers, for a progress bar."""
    points = len(NEIGHBORS) * len(NOISES)
    return runs * points * sum(setting.n_queries for setting in SETTINGS)


def measure(benchmark: Benchmark, runs: int, step: Step) -> list[TuningRow]:
    """Try all points in every setting on `runs` public splits, features half-whitened."""
    found: dict[tuple[Setting, Point], list[float]] = {}
    told: dict[Setting, list[tuple[SimulationResult, SimulationResult]]] = {}
    for run in range(runs):
        most = max(setting.n_queries for setting in SETTINGS)
        n_reference = min(N_REFERENCE, max(LEAST_POINTS, len(benchmark.test) - most))
        parts = split(len(benchmark.test), n_reference, most, run)
        trial = benchmark.trial(PublicMap(), parts)
        stages = _stages(trial, benchmark.test_labels[parts.reference])
        for setting in SETTINGS:
            told.setdefault(setting, []).append(_foretold(stages, setting, trial, run))
            for point, accuracy in _tried(trial.first(setting.n_queries), setting, run, step):
                found.setdefault((setting, point), []).append(accuracy)
    return [_row(setting, found, told[setting]) for setting in SETTINGS]


def _stages(trial: Trial, labels: Any) -> tuple[SimulationSetup, SimulationSetup]:
    """Return the public points with their labels, and with clusters."""
    kernel = Cosine(int8_precision(trial.reference))
    points = kernel.encode(trial.reference)
    order = {name: place for place, name in enumerate(trial.classes)}
    places = np.array([order[name] for name in labels.tolist()], dtype=np.int64)
    c = len(trial.classes)
    return SimulationSetup.of(kernel, points, c, places), SimulationSetup.of(kernel, points, c)


def _foretold(
    stages: tuple[SimulationSetup, SimulationSetup], setting: Setting, trial: Trial, seed: int
) -> tuple[SimulationResult, SimulationResult]:
    wish = PlanRequest(
        len(trial.labels), setting.n_queries, setting.epsilon, setting.delta, len(trial.classes)
    )
    choice = PlanChoice.of(wish, stages[0].reference)
    return simulate(stages[0], choice, seed), simulate(stages[1], choice, seed)


def _tried(trial: Trial, setting: Setting, seed: int, step: Step) -> list[tuple[Point, float]]:
    """Return the accuracy of every point, the plan's first."""
    n_records = len(trial.labels)
    plan = fitted(trial, setting, seed, n_records=n_records)
    assert plan.n_neighbors_ is not None  # noqa: S101 (narrows the type: the radius is adaptive)
    lines = [(PLAN, _accuracy(plan, trial))]
    step(setting.n_queries)
    for point in product(NEIGHBORS, NOISES):
        if point == PLAN:
            continue
        other = fitted(
            trial,
            setting,
            seed,
            n_records=n_records,
            n_neighbors=max(round(point[0] * plan.n_neighbors_), 1),
            noise_multiplier=point[1] * plan.noise_multiplier_,
        )
        lines.append((point, _accuracy(other, trial)))
        step(setting.n_queries)
    return lines


def _accuracy(classifier: IndKNNClassifier, trial: Trial) -> float:
    return float((classifier.predict(trial.queries) == trial.truth).mean())


def _row(
    setting: Setting,
    found: dict[tuple[Setting, Point], list[float]],
    told: Sequence[tuple[SimulationResult, SimulationResult]],
) -> TuningRow:
    means = {point: float(np.mean(a)) for (of, point), a in found.items() if of == setting}
    # Of equals max takes the first, which is the plan.
    best = max(means, key=lambda point: means[point])
    return TuningRow(
        setting.epsilon,
        setting.n_queries,
        means[PLAN],
        means[best],
        best,
        foretold=float(np.mean([real.accuracy for real, _ in told if real.accuracy is not None])),
        agreement=float(np.mean([real.agreement for real, _ in told])),
        clusters=float(np.mean([clusters.agreement for _, clusters in told])),
    )


def text_table(rows: Sequence[TuningRow]) -> str:
    """Return rows as plain text."""
    header = (
        f"{'queries':>7} {'eps':>5} {'default':>8} {'oracle':>7} {'gain':>6}  {'at k, noise':>12}  "
        f" {'foretold':>8} {'unchanged':>9} {'by clusters':>11}"
    )
    return "\n".join([header, *map(_text_row, rows)])


def _text_row(row: TuningRow) -> str:
    point = f"x{row.point[0]:g}, x{row.point[1]:g}"
    return (
        f"{row.n_queries:7,} {row.epsilon:5g} {row.default:8.4f} {row.oracle:7.4f} "
        f"{row.difference:6.4f}  {point:>12}   {row.foretold:8.3f} {row.agreement:9.3f} "
        f"{row.clusters:11.3f}"
    )
