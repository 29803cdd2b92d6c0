"""What few records, erasure, small and foreign public sets do to accuracy.

All of these may cost accuracy; none may break anything, and the guarantee holds in all of them:
how good the public set is decides radius and noise, and never what anybody is charged for.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from experiments.accuracy.methods import CONTENDERS
from experiments.accuracy.result_cache import Cells, Place, Score
from experiments.accuracy.table import Entry, cell, pipes
from vicinal._progress import Step
from vicinal.errors import InvalidInput
from vicinal.features import PublicMap
from vicinal.reports._text import percent
from vicinal.reports._trials import Benchmark, Setting, Trial, fitted, split

N_REFERENCE = 5000
SIZES = (200, 1000)
SHARES = (0.1, 0.01)
ERASED = 0.05
SETTINGS = (Setting(0.5, 1000), Setting(1.0, 1000))

WAYS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "default": {},
        "labels-gate": {"release": "label", "reuse_predictions": "gate"},
    }
)


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One thing that goes wrong.

    Attributes
    ----------
    words : str
        What it is.
    trial : Trial
        The data as it is then.
    erased : float
        Share of the records that are erased after half of the queries.
    """

    words: str
    trial: Trial
    erased: float = 0.0


def _cases(
    benchmark: Benchmark, foreign: Benchmark | None, n_queries: int, run: int
) -> Iterator[Case]:
    """Yield every case of a run; all have the same queries."""
    parts = split(len(benchmark.test), N_REFERENCE, n_queries, seed=run)
    base = benchmark.trial(PublicMap(), parts)
    yield Case("all as planned", base)
    for share in SHARES:
        yield Case(
            f"{percent(share, 0)} of the records",
            smaller(base, round(share * len(base.records)), run),
        )
    yield Case(f"{percent(ERASED, 0)} erased after half of the queries", base, ERASED)
    if foreign is not None:
        own_map = PublicMap().fit(benchmark.test[parts.reference])
        yield Case(
            "public rows of another data set",
            replace(base, reference=own_map.transform(_foreign_rows(benchmark, foreign, run))),
        )
        del base
        yield Case("the same, map included", _strangers(benchmark, foreign, parts.queries, run))
    for size in SIZES:
        fewer = replace(parts, reference=parts.reference[:size])
        yield Case(f"{size:,} public rows", benchmark.trial(PublicMap(), fewer))


def smaller(trial: Trial, size: int, seed: int) -> Trial:
    """Return the same trial with so many of the private records, at random."""
    kept = _some(len(trial.records), size, seed)
    return replace(trial, records=trial.records[kept], labels=trial.labels[kept])


def _foreign_rows(benchmark: Benchmark, foreign: Benchmark, seed: int) -> Any:
    if foreign.test.shape[1] != benchmark.test.shape[1]:
        raise InvalidInput("The foreign data must have as many features as the data itself.")
    return foreign.test[_some(len(foreign.test), min(N_REFERENCE, len(foreign.test)), seed)]


def _strangers(benchmark: Benchmark, foreign: Benchmark, queries: Any, seed: int) -> Trial:
    """Return a trial whose public map, too, is learnt from foreign rows."""
    rows = _foreign_rows(benchmark, foreign, seed)
    fitted = PublicMap().fit(rows)
    return Trial(
        benchmark.classes,
        fitted.transform(benchmark.records),
        benchmark.labels,
        fitted.transform(rows),
        fitted.transform(benchmark.test[queries]),
        benchmark.test_labels[queries],
    )


def _some(of: int, size: int, seed: int) -> Any:
    generator = np.random.default_rng(seed)  # noqa: TID251 (public data; no privacy hangs on it)
    return np.sort(generator.permutation(of)[:size])


def work(runs: int, *, foreign: bool) -> int:
    """Return how many queries :func:`measure` answers, for a progress bar."""
    n_cases = 2 + len(SHARES) + len(SIZES) + 2 * foreign
    return runs * n_cases * len(WAYS) * sum(setting.n_queries for setting in SETTINGS)


def measure(
    name: str, benchmark: Benchmark, foreign: Benchmark | None, runs: int, cells: Cells, step: Step
) -> None:
    """Fill in all cells that are not there yet.

    Parameters
    ----------
    name : str
        Of the data set.
    foreign : Benchmark, optional
        Another data set with as many features, whose test rows serve as a foreign public set.
    step : callable
        Told of queries answered.

    Raises
    ------
    InvalidInput
        If there are too few test rows, or the foreign data has other features.
    """
    for run in range(runs):
        most = max(setting.n_queries for setting in SETTINGS)
        for case in _cases(benchmark, foreign, most, run):
            for setting in SETTINGS:
                for way in WAYS:
                    place = _place(name, case, setting, way, run)
                    if place not in cells:
                        cells.put(place, scored(case, setting, way, run))
                    step(setting.n_queries)


def _place(name: str, case: Case, setting: Setting, way: str, run: int) -> Place:
    sizes = len(case.trial.records), len(case.trial.reference)
    data = f"{name}, {case.words}"
    return Place(data, *sizes, way, setting.epsilon, setting.n_queries, run)


def scored(case: Case, setting: Setting, way: str, seed: int) -> Score:
    """Return what came of one way of answering in one case."""
    trial = case.trial.first(setting.n_queries)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The public reference is too small", UserWarning)
        classifier = fitted(trial, setting, seed, **WAYS[way])
    half = len(trial.queries) // 2
    parts = [classifier.query(trial.queries[:half])]
    if case.erased:
        leaving = _some(len(trial.records), round(case.erased * len(trial.records)), seed)
        classifier.erase(leaving)
    parts.append(classifier.query(trial.queries[half:]))
    labels = classifier.classes_[np.concatenate([part.labels for part in parts])]
    asked = np.concatenate([part.asked for part in parts])
    return Score(
        accuracy=float((labels == trial.truth).mean()),
        answered=1.0,
        asked=float(asked.mean()),
        seconds=round(time.perf_counter() - start, 3),
    )


def text_table(found: Sequence[Entry]) -> str:
    """Return one line for each case, a column for each way and epsilon; Markdown reads it, too."""
    columns = sorted({(e.place.method, e.place.epsilon) for e in found})
    heading = [f"{CONTENDERS[way].words}, epsilon {epsilon:g}" for way, epsilon in columns]
    rows: dict[str, dict[tuple[str, float | None], Entry]] = {}
    for entry in found:
        rows.setdefault(entry.place.data, {})[entry.place.method, entry.place.epsilon] = entry
    lines = [[case, *(cell(row.get(column)) for column in columns)] for case, row in rows.items()]
    return pipes([["case", *heading], *lines])
