"""From the parameters of a NoisySGD classifier to its plan, and to trained weights."""

from __future__ import annotations

import json
from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal.accounting._calibrate import calibrate
from vicinal.mechanisms import randomness
from vicinal.mechanisms._gradients import NoisyGradient, NoisySize, SubjectRows, gradient_grid
from vicinal.mechanisms._release_counter import ReleaseCounter
from vicinal.mechanisms._sampling import bernoulli_source
from vicinal.predictors._common.fixed_plan import Plan, several, summed
from vicinal.predictors._common.parameters import (
    SEED,
    ClassNames,
    Integer,
    InteractionCount,
    Real,
    Settings,
    Unless,
    parameter,
)

SIZE_NOISE = 50.0
"""The noise on the number of subjects has scale 50 / epsilon: less than 1 % of the cost."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NoisySGDSettings(Settings):
    """Checked parameters of a NoisySGD classifier."""

    classes: npt.NDArray[Any] = parameter(ClassNames())
    epsilon: float = parameter(Real(above=0), 1.0)
    delta: float = parameter(Real(above=0, below=1), 1e-5)
    n_steps: int = parameter(Integer(least=1, most=10**6), 200)
    gamma: float = parameter(Real(above=0, most=1), 0.1)
    clip: float = parameter(Real(least=1e-6, most=1e6), 0.5)
    learning_rate: float = parameter(Real(above=0), 4.0)
    momentum: float = parameter(Real(least=0, below=1), 0.9)
    n_records: int | None = parameter(Unless(None, Integer(least=1)), None)
    interactions: int = parameter(InteractionCount(), 1)
    simulation_seed: int | None = parameter(SEED, None)

    @property
    def terms(self) -> Hashable:
        """What interactions that share the guarantee must have in common: all of the plan."""
        return (
            "NoisySGD",
            json.dumps(self.releases(self.noise_multiplier)),
            self.epsilon,
            self.delta,
        )

    @property
    def noise_multiplier(self) -> float:
        """The noise multiplier with which the plan just keeps (epsilon, delta)."""
        return _calibrated(
            self.epsilon, self.delta, self.gamma, self.n_steps,
            self.n_records is None, self.interactions,
        )  # fmt: skip

    def releases(self, multiplier: float) -> list[Plan]:
        """Return the releases as in the JSON of a plan."""
        return _releases(
            multiplier, self.epsilon, self.gamma, self.n_steps, sized=self.n_records is None
        )

    def draws(self, n_features: int) -> dict[int, float]:
        """Return how many draws of noise are planned at each scale in steps."""
        steps = (gradient_grid(self.noise_multiplier)[1], float(self.n_steps) * n_features)
        size = (gradient_grid(SIZE_NOISE / self.epsilon)[1], float(self.n_records is None))
        return summed([(steps[0], steps[1] * len(self.classes)), size])

    def train(self, records: SubjectRows, unit: float) -> tuple[float, Floats]:
        """Return the number that means are taken by, and the averaged weights, float64 (d, c)."""
        noise = randomness(self.simulation_seed)
        gradient = NoisyGradient(
            records, len(self.classes), unit, self.gamma, self.clip, self.noise_multiplier,
            ReleaseCounter(self.n_steps, "steps"), noise, bernoulli_source(self.simulation_seed),
        )  # fmt: skip
        size = float(self.n_records or 0)
        if self.n_records is None:
            size = max(1.0, NoisySize(SIZE_NOISE / self.epsilon, noise).publish(len(records)))
        rate = self.learning_rate / (self.gamma * size)
        weights = np.zeros((records.rows.shape[1], len(self.classes)))
        velocity, total = np.zeros_like(weights), np.zeros_like(weights)
        for step in range(self.n_steps):
            velocity = self.momentum * velocity + gradient.publish(weights)
            weights = weights - rate * velocity
            if step >= self.n_steps // 2:
                total += weights
        return size, total / (self.n_steps - self.n_steps // 2)


@lru_cache(maxsize=64)
def _calibrated(
    epsilon: float, delta: float, gamma: float, n_steps: int, sized: bool, interactions: int
) -> float:
    releases = _releases(1.0, epsilon, gamma, n_steps, sized=sized)
    plan = several({"delta": delta, "releases": releases}, interactions)
    found = calibrate(plan, epsilon, "sigma")
    return float(found.value)


def _releases(
    multiplier: float, epsilon: float, gamma: float, n_steps: int, *, sized: bool
) -> list[Plan]:
    steps = {"kind": "gaussian", "sigma": multiplier, "sensitivity": 1.0, "gamma": gamma}
    size: Plan = {"kind": "gaussian", "sigma": SIZE_NOISE / epsilon, "sensitivity": 1.0}
    return [{**steps, "count": n_steps}, *([{**size, "gamma": 1.0, "count": 1}] if sized else [])]
