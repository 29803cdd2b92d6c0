"""Every method in every setting on every data set: the great table of accuracy.

All methods see the same features (a public map fitted on the split's reference), the same records
and the same queries. Run r takes public split r and noise seed r.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, NamedTuple, Self

import numpy.typing as npt

from experiments.accuracy.methods import Reply, answered, contender_of
from experiments.accuracy.result_cache import Cells, Place, Score
from experiments.trials import Benchmark, Setting, limit_queries, split
from vicinal.errors import InvalidInput
from vicinal.features import PublicMap
from vicinal.progress import Step
from vicinal.reports.demo import Trial
from vicinal.reports.outcomes import mark_correct_answers

MOST_REFERENCE = 5000
LEAST_REFERENCE = 500

NO_EPSILON = 1.0
"""Stands in a setting whose method has no use for it."""


@dataclass(frozen=True, slots=True)
class Job:
    """One fit: its answers count for one or more numbers of queries.

    - `method`: name of the contender.
    - `epsilon`: the guarantee; None without privacy.
    - `counts`: numbers of queries: one if the method plans for it, else all, the first so many each
      time.
    """

    method: str
    epsilon: float | None
    counts: tuple[int, ...]

    @property
    def setting(self) -> Setting:
        """What is planned for: the largest number of queries."""
        return Setting(NO_EPSILON if self.epsilon is None else self.epsilon, max(self.counts))

    @property
    def seconds(self) -> float:
        """Processor time to expect on 60,000 records."""
        fit, thousand = contender_of(self.method).seconds
        return fit + thousand * max(self.counts) / 1000


@dataclass(frozen=True, slots=True)
class Table:
    """What is to be measured on each data set.

    - `methods`: names of contenders.
    - `epsilons`: guarantees, at delta 1e-5.
    - `counts`: numbers of queries planned for.
    - `runs`: splits and seeds.
    - `first_run`: number of the first of them.
    - `most_reference`: public rows, at most.
    - `most_records`: private records, at most: others in each run.
    """

    methods: tuple[str, ...]
    epsilons: tuple[float, ...]
    counts: tuple[int, ...]
    runs: int
    first_run: int = 0
    most_reference: int = MOST_REFERENCE
    most_records: int | None = None

    def jobs(self) -> list[Job]:
        """Return all fits of a run."""
        found = []
        for method in self.methods:
            contender = contender_of(method)
            epsilons = self.epsilons if contender.by_epsilon else (None,)
            counts = [(n,) for n in self.counts] if contender.by_queries else [self.counts]
            found += [Job(method, *how) for how in product(epsilons, counts)]
        return found

    def within(self, n_test: int) -> Self:
        """Return the same table without numbers of queries that a test part cannot give.

        Raises InvalidInput if none is left.
        """
        possible = tuple(n for n in self.counts if n + LEAST_REFERENCE <= n_test)
        if not possible:
            raise InvalidInput(
                f"The test part must have at least {min(self.counts)} + {LEAST_REFERENCE} rows, "
                f"for queries and reference. Got {n_test}; ask fewer queries."
            )
        return replace(self, counts=possible)

    def n_reference(self, n_test: int) -> int:
        """Return how many test rows are the public reference, of what is left."""
        return min(n_test - max(self.counts), self.most_reference)

    def n_records(self, benchmark: Benchmark) -> int:
        """Return how many private records there are."""
        return min(len(benchmark.records), self.most_records or len(benchmark.records))


def trial_of(benchmark: Benchmark, table: Table, run: int) -> Trial:
    """Return the trial of a run, features mapped by its own reference."""
    n_reference = table.n_reference(len(benchmark.test))
    parts = split(len(benchmark.test), n_reference, max(table.counts), seed=run)
    if table.most_records is not None:
        some = split(len(benchmark.records), table.n_records(benchmark), 0, seed=run).reference
        benchmark = replace(
            benchmark, records=benchmark.records[some], labels=benchmark.labels[some]
        )
    return benchmark.trial(PublicMap(**benchmark.learnt), parts)


def work(table: Table) -> int:
    """Return the size of :func:`measure` for a progress bar, in milliseconds of one data set."""
    return table.runs * sum(round(1000 * job.seconds) for job in table.jobs())


def measure(name: str, benchmark: Benchmark, table: Table, cells: Cells, step: Step) -> None:
    """Fill in all cells of a data set that are not there yet.

    - `name`: of the data set.
    - `step`: told of work done, in the units of :func:`work`.

    Raises InvalidInput if the test part has too few rows for reference and queries.
    """
    table = table.within(len(benchmark.test))
    sizes = table.n_records(benchmark), table.n_reference(len(benchmark.test))
    for run in range(table.first_run, table.first_run + table.runs):
        make = partial(trial_of, benchmark, table, run)
        fill(Spot(name, *sizes, run), make, table.jobs(), cells, step)


class Spot(NamedTuple):
    """Which trial: the fields of a place that all jobs on it share."""

    data: str
    n_records: int
    n_reference: int
    run: int

    def place(self, job: Job, count: int) -> Place:
        """Return the place of a job's answers to its first `count` queries."""
        sizes = self.n_records, self.n_reference
        return Place(self.data, *sizes, job.method, job.epsilon, count, self.run)


def fill(
    spot: Spot, make: Callable[[], Trial], jobs: Sequence[Job], cells: Cells, step: Step
) -> None:
    """Fill in the cells of one trial, which is made only if one of them is missing."""
    trial: Trial | None = None
    for job in jobs:
        places = [spot.place(job, count) for count in job.counts]
        if not all(place in cells for place in places):
            trial = trial or make()
            for place, score in zip(places, scored(trial, job, spot.run), strict=True):
                if place not in cells:
                    cells.put(place, score)
        step(round(1000 * job.seconds))


def scored(trial: Trial, job: Job, seed: int) -> Iterator[Score]:
    """Yield one score for each number of queries of a job."""
    start = time.perf_counter()
    asked = limit_queries(trial, max(job.counts))
    reply = answered(job.method, asked, job.setting, seed)
    seconds = time.perf_counter() - start
    for count in job.counts:
        yield score_of(reply, asked, count, seconds)


def score_of(reply: Reply, trial: Trial, count: int, seconds: float) -> Score:
    """Return what came of the first `count` queries."""
    labels, truth = reply.labels[:count], trial.truth[:count]
    return Score(
        accuracy=float(mark_correct_answers(labels, truth).mean()),
        answered=_share_known(labels, trial.classes),
        asked=float(reply.asked[:count].mean()),
        seconds=round(seconds, 3),
        detail=dict(reply.detail),
    )


def _share_known(labels: npt.NDArray[Any], classes: Sequence[Any]) -> float:
    """Return the share of labels that are classes, and no abstentions."""
    known = set(classes)
    return sum(label in known for label in labels.tolist()) / len(labels)
