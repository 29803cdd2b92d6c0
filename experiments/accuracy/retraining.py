"""What keeping up with erasure costs: a model trained anew, against records that are taken out.

A NoisySGD model has to be trained anew to forget anybody. Whoever stays is in every training, so
all of them share one budget: the more often, the noisier. Ind-KNN takes the records out; nobody
else's budget, radius or noise changes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from experiments.accuracy.table import pipes
from experiments.spread import mean_and_spread
from vicinal._progress import Step
from vicinal.accounting._calibrate import calibrate
from vicinal.accounting._plan import account
from vicinal.predictors import NoisySGDClassifier
from vicinal.reports._outcomes import Outcome
from vicinal.reports._trials import Setting, Trial, fitted

TRAININGS = (1, 4, 12, 52)
"""Once; every quarter, month and week of a year."""

LEAVING = 0.05
"""Share of the people that leave over the whole time."""


@dataclass(frozen=True, slots=True)
class RetrainingRow:
    """One way to keep up, over all runs.

    Attributes
    ----------
    way : str
        What is done.
    accuracies : tuple of float
        After the last change, one for every run.
    epsilon_each : float
        What one training may cost so that all keep the guarantee together.
    seconds_each : float
        Median wall clock of keeping up once.
    """

    way: str
    accuracies: tuple[float, ...]
    epsilon_each: float
    seconds_each: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain values with mean and spread."""
        mean, spread = mean_and_spread(self.accuracies)
        return {**asdict(self), "accuracy_mean": mean, "accuracy_spread": spread}


@lru_cache(maxsize=32)
def share_of_each(epsilon: float, delta: float, trainings: int) -> float:
    """Return the epsilon of one NoisySGD training of which so many keep (epsilon, delta) together.

    The noise is calibrated for the steps of all trainings; what one of them costs at this noise
    is its share.

    Raises
    ------
    PrivacyRefused
        If no noise keeps the target.
    """
    (steps,) = NoisySGDClassifier(range(2), epsilon, delta=delta, n_records=1).plan()["releases"]
    together = {"delta": delta, "releases": [{**steps, "count": steps["count"] * trainings}]}
    sigma = calibrate(together, epsilon, "sigma").value
    one = {"delta": delta, "releases": [{**steps, "sigma": sigma}]}
    return float(account(one)["epsilon"])


def work(runs: int) -> int:
    """Return how many fits :func:`measure` makes, for a progress bar."""
    return runs * (len(TRAININGS) + 1)


def measure(trials: Sequence[Trial], setting: Setting, step: Step) -> list[RetrainingRow]:
    """Compare on one trial for every run; run r has noise seed r.

    The model is trained for the last time on those who stayed; Ind-KNN answers the first half of
    the queries before they leave.
    """
    rows = [_trained(trials, setting, times, step) for times in TRAININGS]
    return [*rows, _erased(trials, setting, step)]


def _trained(
    trials: Sequence[Trial], setting: Setting, trainings: int, step: Step
) -> RetrainingRow:
    each = share_of_each(setting.epsilon, setting.delta, trainings)
    accuracies, seconds = [], []
    for seed, trial in enumerate(trials):
        stay = ~_leaving(trial, seed)
        start = time.perf_counter()
        model = NoisySGDClassifier(
            trial.classes,
            each,
            delta=setting.delta,
            n_records=int(stay.sum()),
            simulation_seed=seed,
        ).fit(trial.records[stay], trial.labels[stay])
        seconds.append(time.perf_counter() - start)
        accuracies.append(Outcome.of(model.predict(trial.queries), trial.truth).accuracy)
        step(1)
    times = "once" if trainings == 1 else f"{trainings} times"
    return RetrainingRow(
        f"NoisySGD, trained {times}", tuple(accuracies), each, float(np.median(seconds))
    )


def _erased(trials: Sequence[Trial], setting: Setting, step: Step) -> RetrainingRow:
    accuracies, seconds = [], []
    for seed, trial in enumerate(trials):
        classifier = fitted(trial, setting, seed, release="label", reuse_predictions="gate")
        half = len(trial.truth) // 2
        first = classifier.predict(trial.queries[:half])
        start = time.perf_counter()
        classifier.erase(np.flatnonzero(_leaving(trial, seed)))
        seconds.append(time.perf_counter() - start)
        answers = np.concatenate([first, classifier.predict(trial.queries[half:])])
        accuracies.append(Outcome.of(answers, trial.truth).accuracy)
        step(1)
    return RetrainingRow(
        "Ind-KNN, labels and gate, all erased at once",
        tuple(accuracies),
        setting.epsilon,
        float(np.median(seconds)),
    )


def _leaving(trial: Trial, seed: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    generator = np.random.default_rng(seed)  # noqa: TID251 (public data; no privacy hangs on it)
    return np.asarray(generator.random(len(trial.records)) < LEAVING)


def text_table(rows: Sequence[RetrainingRow]) -> str:
    """Return rows as plain text that Markdown reads, too."""
    lines = [["way", "accuracy", "epsilon of each", "seconds of each"]]
    for row in rows:
        mean, spread = mean_and_spread(row.accuracies)
        lines.append(
            [row.way, f"{mean:.3f} ± {spread:.3f}", f"{row.epsilon_each:.3f}",
             f"{row.seconds_each:.2f}"]
        )  # fmt: skip
    return pipes(lines)
