"""What labels alone, and a gate, buy: accuracy of the same plan with what leaves as the difference.

Simulated on public data, like all comparisons; features half-whitened, nothing tuned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from experiments.spread import mean_and_spread
from experiments.trials import Benchmark, Setting, fitted, split
from vicinal.features import PublicMap
from vicinal.reports import Step, Trial

N_REFERENCE = 5000

SETTINGS = tuple(Setting(epsilon, n) for n in (1000, 4000) for epsilon in (0.25, 0.5, 1.0))

WAYS: dict[str, dict[str, Any]] = {
    "votes": {},
    "labels alone": {"release": "label"},
    "labels alone, behind a gate": {"release": "label", "reuse_predictions": "gate"},
}


@dataclass(frozen=True, slots=True)
class ReleaseRow:
    """One way in one setting: accuracies and shares of queries asked, one for every run."""

    way: str
    epsilon: float
    n_queries: int
    accuracies: tuple[float, ...]
    asked: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values with mean and spread."""
        mean, spread = mean_and_spread(self.accuracies)
        return {**asdict(self), "accuracy_mean": mean, "accuracy_spread": spread}


def work(runs: int) -> int:
    """Return how many queries :func:`measure` answers, for a progress bar."""
    return runs * len(WAYS) * sum(setting.n_queries for setting in SETTINGS)


def measure(benchmark: Benchmark, runs: int, step: Step) -> list[ReleaseRow]:
    """Run every way in every setting on `runs` public splits."""
    found: dict[tuple[str, Setting], list[tuple[float, float]]] = {}
    for run in range(runs):
        parts = split(len(benchmark.test), N_REFERENCE, max(s.n_queries for s in SETTINGS), run)
        trial = benchmark.trial(PublicMap(), parts)
        for setting in SETTINGS:
            for way in WAYS:
                line = _answered(trial.first(setting.n_queries), setting, way, run)
                found.setdefault((way, setting), []).append(line)
                step(setting.n_queries)
    return [
        ReleaseRow(way, setting.epsilon, setting.n_queries, *map(tuple, zip(*lines, strict=True)))
        for (way, setting), lines in found.items()
    ]


def _answered(trial: Trial, setting: Setting, way: str, seed: int) -> tuple[float, float]:
    """Return accuracy and the share of queries that were asked."""
    classifier = fitted(trial, setting, seed, **WAYS[way])
    answers = classifier.query(trial.queries)
    right = classifier.classes_[answers.labels] == trial.truth
    return float(right.mean()), float(answers.asked.mean())


def text_table(rows: Sequence[ReleaseRow]) -> str:
    """Return rows as plain text, a line for each setting."""
    lines = [f"{'queries':>7} {'epsilon':>7}" + "".join(f"{way:>30}" for way in WAYS)]
    for setting in SETTINGS:
        cells = [
            f"{setting.n_queries:7,} {setting.epsilon:7g}",
            *(_cell(row) for row in rows if _setting(row) == (setting.epsilon, setting.n_queries)),
        ]
        lines.append("".join(cells))
    return "\n".join(lines)


def _setting(row: ReleaseRow) -> tuple[float, int]:
    return row.epsilon, row.n_queries


def _cell(row: ReleaseRow) -> str:
    mean, spread = mean_and_spread(row.accuracies)
    share = sum(row.asked) / len(row.asked)
    return f"{mean:.4f} ± {spread:.4f} ({share:4.0%} asked)".rjust(30)
