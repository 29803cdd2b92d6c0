"""Neighbours alone at several epsilons, simulated on a trial, beside those without privacy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vicinal._progress import Step
from vicinal.reports._outcomes import Outcome
from vicinal.reports._trials import (
    YARDSTICK_NEIGHBORS,
    Setting,
    Trial,
    default_outcome,
    yardstick_outcome,
)

DEFAULT = "vicinal, neighbours alone"
NOT_PRIVATE = f"{YARDSTICK_NEIGHBORS}-NN, not private"


@dataclass(frozen=True, slots=True)
class Sweep:
    """Accuracy against epsilon on one trial; simulated, so it carries no guarantee.

    One outcome of neighbours alone, with nothing tuned, for every epsilon, and that of a majority
    vote without privacy.
    """

    epsilons: tuple[float, ...]
    default: tuple[Outcome, ...]
    yardstick: Outcome


def sweep(trial: Trial, epsilons: Sequence[float], delta: float, step: Step) -> Sweep:
    """Simulate neighbours alone at every epsilon; `step` is told of the queries answered."""
    n_queries = len(trial.truth)
    default = []
    for epsilon in epsilons:
        default.append(default_outcome(trial, Setting(epsilon, n_queries, delta), seed=0))
        step(n_queries)
    return Sweep(tuple(epsilons), tuple(default), yardstick_outcome(trial))
