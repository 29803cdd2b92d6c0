"""What the efficiency techniques of ZZGW23 cost and keep: hashing, other indexes, reuse of answers.

The paper's Table 3 and Figure 4 (hashing with L = 10, 20, 30 tables of 8 bits) and its claim that
reuse answers 1,000 further queries without loss, on our features. Simulated, like all comparisons.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from experiments.spread import mean_and_spread
from vicinal._progress import Step
from vicinal.errors import PrivacyWarning
from vicinal.features import PublicMap
from vicinal.predictors import IndKNNClassifier
from vicinal.reports._trials import Benchmark, Setting, Trial, split

N_REFERENCE = 5000
N_QUERIES = 1000
EPSILON = 1.0

INDEXES: dict[str, str | Mapping[str, Any]] = {
    "exact": "exact",
    "hashing, L = 10": {"kind": "lsh", "tables": 10},
    "hashing, L = 20": {"kind": "lsh", "tables": 20},
    "hashing, L = 30": {"kind": "lsh", "tables": 30},
    "public centroids": "centroids",
}

REUSES = ("every query asked", "gate", "published, every query asked", "published, answers vote")


@dataclass(frozen=True, slots=True)
class IndexRow:
    """One index with one algorithm, over all runs.

    Attributes
    ----------
    algorithm, index : str
        "default" or "Zhu et al. 2023", and how neighbours were found.
    accuracies : tuple of float
        One for every run.
    recall : float
        Share of the neighbours inside the radius that the index finds.
    milliseconds : float
        Median over the runs of the time of a whole answer, noise included, in blocks.
    """

    algorithm: str
    index: str
    accuracies: tuple[float, ...]
    recall: float
    milliseconds: float


@dataclass(frozen=True, slots=True)
class ReuseRow:
    """One use of earlier answers: within a plan of 1,000 queries, and in 1,000 beyond it.

    Attributes
    ----------
    reuse : str
        What earlier answers did.
    planned, beyond : tuple of float
        Accuracies of the planned queries and of those after them, one for every run.
    asked : float
        Share of all queries that private records were asked.
    """

    reuse: str
    planned: tuple[float, ...]
    beyond: tuple[float, ...]
    asked: float


def work(runs: int) -> int:
    """Return how many queries :func:`measure` answers, for a progress bar."""
    return runs * N_QUERIES * (2 * len(INDEXES) + 2 * len(REUSES))


def measure(
    benchmark: Benchmark, runs: int, tau: float, multiplier: float, step: Step
) -> tuple[list[IndexRow], list[ReuseRow]]:
    """Run everything on `runs` public splits, features half-whitened.

    Parameters
    ----------
    tau, multiplier : float
        The point of the published algorithm, as found by the comparison of accuracies.
    step : callable
        Told of queries answered.
    """
    found: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    reused: dict[str, list[tuple[float, float, float]]] = {}
    for run in range(runs):
        parts = split(len(benchmark.test), N_REFERENCE, 2 * N_QUERIES, seed=run)
        trial = benchmark.trial(PublicMap(), parts)
        for algorithm, base in _algorithms(trial, tau, multiplier, run).items():
            for index, line in _by_index(trial.first(N_QUERIES), base, step).items():
                found.setdefault((algorithm, index), []).append(line)
        for reuse, classifier in _reusing(trial, tau, multiplier, run).items():
            reused.setdefault(reuse, []).append(_reused(trial, classifier))
            step(2 * N_QUERIES)
    rows = [_index_row(algorithm, index, lines) for (algorithm, index), lines in found.items()]
    return rows, [_reuse_row(reuse, lines) for reuse, lines in reused.items()]


def _algorithms(
    trial: Trial, tau: float, multiplier: float, seed: int
) -> dict[str, IndKNNClassifier]:
    setting = Setting(EPSILON, N_QUERIES)
    return {
        "default": IndKNNClassifier(
            trial.classes, EPSILON, setting.delta, N_QUERIES, model_share=0, simulation_seed=seed
        ),
        "Zhu et al. 2023": IndKNNClassifier.zhu2023(
            trial.classes, EPSILON, setting.delta, N_QUERIES,
            tau=tau, noise_multiplier=multiplier, simulation_seed=seed,
        ),
    }  # fmt: skip


def _reusing(trial: Trial, tau: float, multiplier: float, seed: int) -> dict[str, IndKNNClassifier]:
    default, published = _algorithms(trial, tau, multiplier, seed).values()
    gate = clone(default).set_params(reuse_predictions="gate")
    voting = clone(published).set_params(reuse_predictions="neighbors")
    return dict(zip(REUSES, (default, gate, published, voting), strict=True))


def _by_index(
    trial: Trial, base: IndKNNClassifier, step: Step
) -> dict[str, tuple[float, float, float]]:
    """Return accuracy, recall and milliseconds a query of every index."""
    lines, inside = {}, 0
    for name, index in INDEXES.items():
        classifier = clone(base).set_params(index=index)
        classifier.fit(trial.records, trial.labels, public=trial.reference)
        hits = _hits(classifier, trial)
        inside = inside or hits
        start = time.perf_counter()
        answers = classifier.predict(trial.queries)
        seconds = time.perf_counter() - start
        accuracy = float((answers == trial.truth).mean())
        lines[name] = accuracy, hits / inside, 1000 * seconds / len(trial.truth)
        step(len(trial.truth))
    return lines


def _hits(classifier: IndKNNClassifier, trial: Trial) -> int:
    """Return how many neighbours are found; also warms up compiled code."""
    engine = classifier._engine
    queries = engine.votes.kernel.encode(trial.queries[:256])
    return len(classifier._shard.search(queries, engine.radius.thresholds(queries)).rows)


def _reused(trial: Trial, classifier: IndKNNClassifier) -> tuple[float, float, float]:
    classifier.fit(trial.records, trial.labels, public=trial.reference)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)  # more than planned is the experiment
        answers = classifier.query(trial.queries)
    right = classifier.classes_[answers.labels] == trial.truth
    first, second = right[:N_QUERIES], right[N_QUERIES:]
    return float(first.mean()), float(second.mean()), float(answers.asked.mean())


def _index_row(algorithm: str, index: str, lines: list[tuple[float, float, float]]) -> IndexRow:
    accuracies, recalls, times = zip(*lines, strict=True)
    return IndexRow(
        algorithm, index, tuple(accuracies), float(np.mean(recalls)), float(np.median(times))
    )


def _reuse_row(reuse: str, lines: list[tuple[float, float, float]]) -> ReuseRow:
    planned, beyond, asked = zip(*lines, strict=True)
    return ReuseRow(reuse, tuple(planned), tuple(beyond), float(np.mean(asked)))


def text_tables(indexes: Sequence[IndexRow], reuses: Sequence[ReuseRow]) -> str:
    """Return both tables as plain text, accuracies with the spread of a single run."""
    lines = [
        f"{'algorithm':16} {'index':18} {'recall':>7} {'ms a query':>11} {'accuracy':>16}",
        *(
            f"{row.algorithm:16} {row.index:18} {row.recall:7.3f} {row.milliseconds:11.3f} "
            f"{_plus_minus(row.accuracies):>16}"
            for row in indexes
        ),
        "",
        f"{'reuse':30} {'1,000 planned':>16} {'1,000 beyond':>16} {'asked':>7}",
        *(
            f"{row.reuse:30} {_plus_minus(row.planned):>16} {_plus_minus(row.beyond):>16} "
            f"{row.asked:7.2f}"
            for row in reuses
        ),
    ]
    return "\n".join(lines)


def _plus_minus(accuracies: Sequence[float]) -> str:
    mean, spread = mean_and_spread(accuracies)
    return f"{mean:.4f} ± {spread:.4f}"
