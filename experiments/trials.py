"""Neighbours alone, and no privacy at all, on trials of public benchmark data.

Trials run in simulation mode: the noise comes from seeds, so that tables can be repeated, and the
results carry no guarantee. That is right for measuring accuracy on data that is public anyway, and
for nothing else: every run would spend a fresh budget.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.neighbors import KNeighborsClassifier

from vicinal import IndKNNClassifier
from vicinal.reports import Outcome, Trial

YARDSTICK_NEIGHBORS = 200
DEFAULT = "vicinal, neighbours alone"
NOT_PRIVATE = f"{YARDSTICK_NEIGHBORS}-NN, not private"


@dataclass(frozen=True, slots=True)
class Setting:
    """A guarantee, and how many queries it has to last for."""

    epsilon: float
    n_queries: int
    delta: float = 1e-5


def fitted(trial: Trial, setting: Setting, seed: int, **options: Any) -> IndKNNClassifier:
    """Return the classifier over the records of a trial, simulated, without a private model.

    The tables that are printed from it are about neighbours alone; `options` are the classifier's.
    """
    return IndKNNClassifier(
        trial.classes, setting.epsilon, setting.delta, setting.n_queries,
        simulation_seed=seed, **{"model_share": 0, **options},
    ).fit(trial.records, trial.labels, public=trial.reference)  # fmt: skip


def default_outcome(trial: Trial, setting: Setting, seed: int, release: str = "votes") -> Outcome:
    """Simulate the default, which has nothing to tune; `release` tells what leaves."""
    classifier = fitted(trial, setting, seed, release=release)
    return Outcome.of(classifier.predict(trial.queries), trial.truth)


def yardstick_outcome(trial: Trial) -> Outcome:
    """Return what a plain majority of the nearest neighbours reaches, without any privacy."""
    return Outcome.of(plain_neighbors(trial), trial.truth)


def plain_neighbors(trial: Trial) -> Any:
    """Return the majority label of each query's nearest neighbours, (q,), without any privacy."""
    # On rows of length one, the nearest are those with the largest cosine.
    neighbors = min(YARDSTICK_NEIGHBORS, len(trial.records))
    plain = KNeighborsClassifier(neighbors, algorithm="brute").fit(trial.records, trial.labels)
    return np.asarray(plain.predict(trial.queries))
