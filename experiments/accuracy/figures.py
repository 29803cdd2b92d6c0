"""The figures of ZZGW23, on our features: accuracy against epsilon, queries and private records.

The paper's own points are in no text that we have, so only ours are drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from experiments.accuracy import grid
from experiments.accuracy.grid import Spot, Table, fill, trial_of
from experiments.accuracy.method_plots import Panel
from experiments.accuracy.result_cache import Cells
from experiments.accuracy.table import Entry
from experiments.trials import Benchmark
from vicinal.reports import Step, Trial

SIZES = (5000, 10000, 20000, 40000, 60000)
"""Private records of the third figure, as far as a data set has them."""

_METHODS = ("zhu2023", "default", "labels", "private-knn", "noisy-sgd", "not-private")


def tables(runs: int) -> Mapping[str, Table]:
    """Return what is measured, by what accuracy is drawn against."""
    by_epsilon = ("zhu2023", "default", "hashing", *_METHODS[2:])
    return {
        "epsilon": Table(by_epsilon, (0.25, 0.5, 1.0, 2.0, 4.0), (1000,), runs),
        "n_queries": Table(_METHODS, (1.0,), (500, 1000, 2000, 4000, 8000), runs),
        "n_records": Table(_METHODS, (1.0,), (1000,), runs),
    }


def work(runs: int) -> int:
    """Return the size of :func:`measure` for a progress bar, an upper bound."""
    parts = tables(runs)
    once = grid.work(parts["epsilon"]) + grid.work(parts["n_queries"])
    return once + len(SIZES) * grid.work(parts["n_records"])


def measure(name: str, benchmark: Benchmark, runs: int, cells: Cells, step: Step) -> None:
    """Fill in the cells of all three figures for a data set.

    Raises
    ------
    InvalidInput
        If the test part has too few rows.
    """
    parts = tables(runs)
    grid.measure(name, benchmark, parts["epsilon"], cells, step)
    grid.measure(name, benchmark, parts["n_queries"], cells, step)
    _measure_sizes(name, benchmark, parts["n_records"], cells, step)


def _measure_sizes(name: str, benchmark: Benchmark, table: Table, cells: Cells, step: Step) -> None:
    table = table.within(len(benchmark.test))
    n_reference = table.n_reference(len(benchmark.test))
    sizes = [size for size in SIZES if size <= len(benchmark.records)]
    for run in range(table.runs):
        whole = _Once(partial(trial_of, benchmark, table, run))
        for size in sizes:
            spot = Spot(name, size, n_reference, run)
            fill(spot, partial(whole.smaller, size, run), table.jobs(), cells, step)


class _Once:
    """A trial made when it is first wanted."""

    def __init__(self, make: partial[Trial]) -> None:
        self._make = make
        self._trial: Trial | None = None

    def smaller(self, size: int, seed: int) -> Trial:
        self._trial = self._trial or self._make()
        trial = self._trial
        # Which records a size keeps follows from the seed alone, for every method alike.
        drawn = np.random.default_rng(seed)  # noqa: TID251 (a public choice)
        kept = np.sort(drawn.permutation(len(trial.records))[:size])
        return replace(trial, records=trial.records[kept], labels=trial.labels[kept])


def panels(name: str, n_records: int, found: Sequence[Entry]) -> list[Panel]:
    """Return the three panels of a data set, those of them that have results.

    Parameters
    ----------
    name : str
        Of the data set.
    n_records : int
        All its private records.
    found : sequence of Entry
        All results.
    """
    titles = {
        "epsilon": f"{name}, T = 1,000",
        "n_queries": f"{name}, epsilon 1",
        "n_records": f"{name}, T = 1,000, epsilon 1",
    }
    parts = tables(1)
    made = []
    for against, title in titles.items():
        table = parts[against]
        drawn = [
            entry
            for entry in found
            if entry.place.data == name
            and entry.place.method in table.methods
            and entry.place.epsilon in (None, *table.epsilons)
            and entry.place.n_queries in table.counts
            and (against == "n_records" or entry.place.n_records == n_records)
        ]
        drawn = _one_reference(drawn, fewest=against == "n_queries")
        if drawn:
            made.append(Panel(title, drawn, against))
    return made


def _one_reference(found: Sequence[Entry], *, fewest: bool) -> list[Entry]:
    """Return entries with one size of the public set: more queries leave fewer public rows."""
    sizes = {entry.place.n_reference for entry in found}
    if not sizes:
        return []
    size = min(sizes) if fewest else max(sizes)
    return [entry for entry in found if entry.place.n_reference == size]
