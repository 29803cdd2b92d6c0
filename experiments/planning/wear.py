"""How well a proxy ledger tells the wear of private budgets, and what following it is worth.

Streams of queries that fall as planned, that keep to one class or one region, or that go through
the classes in turn. The truth is looked up in the private ledger, which only a simulation on public
data may do.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal._progress import Step
from vicinal.accounting._budget import UNITS
from vicinal.errors import PrivacyWarning
from vicinal.features import PublicMap
from vicinal.predictors import IndKNNClassifier
from vicinal.predictors.ind_knn._budget_usage import REGIONS, BudgetUsage
from vicinal.predictors.ind_knn._noise_schedule import ProxyNoiseSchedule
from vicinal.reports._trials import Benchmark, Setting, Trial, fitted, split

N_REFERENCE = 5000
N_POOL = 5000
"""Test rows that queries are drawn from."""

SETTINGS = (Setting(0.5, 1000), Setting(1.0, 4000), Setting(1.0, 8000))
PACES = ("planned", "usage")

STRAY = 0.1
"""Share of a skewed stream that keeps to nothing."""

REGION = 0.05
"""Share of the queries that make up a region."""

Places = npt.NDArray[np.int64]
Stream = Callable[[Trial, int, np.random.Generator], Places]  # noqa: TID251 (a type)


def _any(trial: Trial, size: int, generator: np.random.Generator) -> Places:  # noqa: TID251
    return generator.permutation(np.resize(generator.permutation(len(trial.truth)), size))


def _mostly(
    trial: Trial,
    some: Places,
    size: int,
    generator: np.random.Generator,  # noqa: TID251
) -> Places:
    """Return a stream that asks about `some`, again and again, and about a few others."""
    stray = round(STRAY * size)
    chosen = np.resize(generator.permutation(some), size - stray)
    return generator.permutation(np.concatenate([chosen, _any(trial, stray, generator)]))


def _one_class(trial: Trial, size: int, generator: np.random.Generator) -> Places:  # noqa: TID251
    name = generator.choice(np.asarray(trial.classes))
    return _mostly(trial, np.flatnonzero(trial.truth == name), size, generator)


def _one_region(trial: Trial, size: int, generator: np.random.Generator) -> Places:  # noqa: TID251
    centre = trial.queries[generator.integers(len(trial.queries))]
    nearest = np.argsort(-(trial.queries @ centre))
    return _mostly(trial, nearest[: max(1, round(REGION * len(nearest)))], size, generator)


def _drifting(trial: Trial, size: int, generator: np.random.Generator) -> Places:  # noqa: TID251
    names = list(generator.permutation(np.asarray(trial.classes)))
    sizes = np.diff(np.linspace(0, size, len(names) + 1).astype(np.int64))
    parts = [
        _mostly(trial, np.flatnonzero(trial.truth == name), int(part), generator)
        for name, part in zip(names, sizes, strict=True)
    ]
    return np.concatenate(parts)


STREAMS: dict[str, Stream] = {
    "as planned": _any,
    "one class": _one_class,
    "one region": _one_region,
    "class after class": _drifting,
}


@dataclass(frozen=True, slots=True)
class WearRow:
    """One stream at one pace in one setting: means over all runs.

    Attributes
    ----------
    stream, pace : str
        What was asked, and what the noise went by.
    epsilon, n_queries : float, int
        The setting.
    accuracies, at_end : tuple of float
        Of all answers, and of the last quarter, one for every run.
    used, used_true : float
        Mean share of budgets used: the public estimate and the truth.
    retired, retired_true : float
        Share of subjects whose budget is spent: the same.
    region_error : float
        Mean absolute error of the share used, over regions, weighted by their records.
    region_spread : float
        Mean absolute deviation of the true share used from its mean: the error of not knowing
        regions.
    regions : tuple of (float, float)
        Share used in each region in the last run: the estimate and the truth.
    """

    stream: str
    pace: str
    epsilon: float
    n_queries: int
    accuracies: tuple[float, ...]
    at_end: tuple[float, ...]
    used: float
    used_true: float
    retired: float
    retired_true: float
    region_error: float
    region_spread: float
    regions: tuple[tuple[float, float], ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {**asdict(self), "accuracy_mean": float(np.mean(self.accuracies))}


def work(runs: int) -> int:
    """Return how many queries :func:`measure` answers, for a progress bar."""
    return runs * len(STREAMS) * len(PACES) * sum(setting.n_queries for setting in SETTINGS)


def measure(benchmark: Benchmark, runs: int, step: Step) -> list[WearRow]:
    """Run every stream at both paces in every setting on `runs` public splits."""
    found: dict[tuple[str, str, Setting], list[_Line]] = {}
    for run in range(runs):
        parts = split(len(benchmark.test), N_REFERENCE, N_POOL, run)
        trial = benchmark.trial(PublicMap(), parts)
        for setting in SETTINGS:
            for name, stream in STREAMS.items():
                generator = np.random.default_rng(run)  # noqa: TID251 (order of public queries)
                asked = stream(trial, setting.n_queries, generator)
                for pace in PACES:
                    line = _line(trial, asked, setting, pace, run)
                    found.setdefault((name, pace, setting), []).append(line)
                    step(setting.n_queries)
    return [_row(*key, lines) for key, lines in found.items()]


@dataclass(frozen=True, slots=True)
class _Line:
    accuracy: float
    at_end: float
    estimate: BudgetUsage
    truth: BudgetUsage


def _line(trial: Trial, asked: Places, setting: Setting, pace: str, seed: int) -> _Line:
    classifier = fitted(trial, setting, seed, noise_schedule=pace, n_records=len(trial.labels))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        right = classifier.predict(trial.queries[asked]) == trial.truth[asked]
    end = right[-max(1, len(right) // 4) :]
    return _Line(
        float(right.mean()),
        float(end.mean()),
        classifier.budget_usage(),
        true_wear(classifier, trial),
    )


def true_wear(classifier: IndKNNClassifier, trial: Trial, regions: int = REGIONS) -> BudgetUsage:
    """Return the wear of the private budgets themselves, by the regions of the estimate. Private.

    For simulations on public data, one record a person.
    """
    engine = classifier._engine
    assert isinstance(engine.schedule, ProxyNoiseSchedule)  # noqa: S101 (narrows the type: a reference is there)
    cells = engine.schedule.proxies.cells(regions)
    used = np.asarray(1 - classifier._shard.ledger.remaining / UNITS, dtype=np.float64)
    homes = cells.of(engine.votes.kernel.encode(trial.records))
    return BudgetUsage.of(used, homes, len(cells))


def _row(stream: str, pace: str, setting: Setting, lines: Sequence[_Line]) -> WearRow:
    errors, spreads = zip(*(_by_region(line) for line in lines), strict=True)
    return WearRow(
        stream,
        pace,
        setting.epsilon,
        setting.n_queries,
        tuple(line.accuracy for line in lines),
        tuple(line.at_end for line in lines),
        used=float(np.mean([line.estimate.used for line in lines])),
        used_true=float(np.mean([line.truth.used for line in lines])),
        retired=float(np.mean([line.estimate.retired for line in lines])),
        retired_true=float(np.mean([line.truth.retired for line in lines])),
        region_error=float(np.mean(errors)),
        region_spread=float(np.mean(spreads)),
        regions=tuple(zip(lines[-1].estimate.regions, lines[-1].truth.regions, strict=True)),
    )


def _by_region(line: _Line) -> tuple[float, float]:
    """Return how far off the estimate is, and how far off the true mean of all would be."""
    told, true = np.array(line.estimate.regions), np.array(line.truth.regions)
    weights = np.array(line.truth.points) / sum(line.truth.points)
    return float(weights @ np.abs(told - true)), float(weights @ np.abs(line.truth.used - true))


def text_table(rows: Sequence[WearRow]) -> str:
    """Return rows as plain text."""
    header = (
        f"{'stream':18} {'queries':>7} {'eps':>4} {'pace':>6} {'accuracy':>8} {'at end':>6}   "
        f"{'used':>5} {'true':>5}   {'spent':>5} {'true':>5}   {'by region':>9} {'blind':>5}"
    )
    return "\n".join([header, *map(_text_row, rows)])


def _text_row(row: WearRow) -> str:
    return (
        f"{row.stream:18} {row.n_queries:7,} {row.epsilon:4g} {row.pace:>6} "
        f"{np.mean(row.accuracies):8.3f} {np.mean(row.at_end):6.3f}   "
        f"{row.used:5.3f} {row.used_true:5.3f}   {row.retired:5.3f} {row.retired_true:5.3f}   "
        f"{row.region_error:9.3f} {row.region_spread:5.3f}"
    )
