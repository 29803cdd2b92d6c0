"""Momentum descent on noisy mean gradients: from zero knowledge to a model's weights.

Gradients are released before they come here, so all of it is post-processing: where a model has
products of features, how long its later steps are is decided by what the first ones have found.
docs/decisions/0053-private-model.md has the reasons.
"""

import math
from dataclasses import dataclass

import numpy as np

from vicinal._arrays import Floats
from vicinal.linear._model_features import (
    BIAS,
    IntegerRows,
    ModelFeatures,
    WeightNoise,
    product_factor,
    scores_of,
    shrunk,
    softmax,
)
from vicinal.mechanisms import whole_weights


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """How many gradients are released, and how they are followed.

    `steps`: gradients. `clip`: largest norm of a subject's gradient; features have length 1, a
    gradient at most 1.5. `quiet`, `least_rate`: without products a step times the noise on a
    weight's mean gradient is at most `quiet`, and a step at least the root of (d + 1) c times
    `least_rate`. `longest`: no step is longer. `stretch`: noise is for so many times the share
    that a subject may pay, as few pay all of it.
    """

    steps: int
    clip: float
    quiet: float
    least_rate: float
    longest: float
    stretch: float = 1.0

    def noise(self, share: float, trainings: int = 1) -> float:
        """Return the noise scale of a step in clipping bounds, where training may take `share`.

        `share`: zCDP that a subject pays at most. `trainings`: where it is one of several nothing
        stops a subject at its part, so the noise fits it.
        """
        return math.sqrt(self.steps / (2 * (self.stretch if trainings == 1 else 1.0) * share))


PLAIN = TrainingPlan(steps=40, clip=0.7, quiet=0.042, least_rate=0.5, longest=64.0)
"""Of a model of features, and of their products."""

OF_COMPONENTS = TrainingPlan(
    steps=120, clip=0.5, quiet=0.014, least_rate=0.0, longest=128.0, stretch=1.5
)
"""Of a model of components of a kernel."""

RATE = 2.0
"""Step on the mean gradient, at most: times the root of (d + 1) c."""

MOMENTUM = 0.9

TRIAL = 10
"""So many short steps show whether products stand out from noise."""

SHORT = 0.25
"""Length of a short step, over that of a long one."""


class Descent:
    """Weights that follow noisy gradients; public.

    With products among the features the first steps are short. Long ones are for what products
    add: later steps are as long as these stand out from their noise, and never shorter.

    - `features`: what the weights are for.
    - `shares`, float64 (c,): declared class shares: every row has them at first.
    - `rows`, float32 (m, D): public integer rows.
    - `deviation`: standard deviation of the noise on each entry of a mean gradient.

    `weights`, float64 (D, c): as they are now. `plan`: how many gradients, and how clipped.
    """

    def __init__(
        self, features: ModelFeatures, shares: Floats, rows: IntegerRows, deviation: float
    ) -> None:
        self.weights = started(shares, features.width)
        self.plan = training_plan(features)
        self._features, self._rows, self._deviation = features, rows, deviation
        self._longest = longest_step(features, len(shares), deviation)
        self._rate = self._longest * (SHORT if features.with_products else 1.0)
        self._rates: list[float] = []
        self._velocity, self._total = (np.zeros_like(self.weights) for _ in range(2))
        self._averaged = 0

    def step(self, gradient: Floats) -> None:
        """Follow a mean gradient, float64 (D, c), with its noise."""
        if len(self._rates) in (TRIAL // 2, self.plan.steps // 2):
            self._total, self._averaged = np.zeros_like(self.weights), 0
        self._velocity = MOMENTUM * self._velocity + gradient
        self.weights = self.weights - self._rate * self._velocity
        self._rates.append(self._rate)
        self._total, self._averaged = self._total + self.weights, self._averaged + 1
        if self._features.with_products and len(self._rates) == TRIAL:
            self._rate = self._longest * max(SHORT, product_factor(*self._estimates()))

    def finished(self) -> Floats:
        """Return the mean of the later half of all weights, products shrunk, float64 (D, c)."""
        return shrunk(*self._estimates())

    def _estimates(self) -> tuple[Floats, ModelFeatures, IntegerRows, Floats, WeightNoise]:
        weights = self._total / self._averaged
        scores = scores_of(self._rows, whole_weights(weights), self._features.unit)
        noise = WeightNoise(self._deviation, tuple(self._rates), MOMENTUM, self._averaged)
        return weights, self._features, self._rows, softmax(scores), noise


def training_plan(features: ModelFeatures) -> TrainingPlan:
    """Return how a model of these features is trained."""
    return PLAIN if features.kernel is None else OF_COMPONENTS


def longest_step(features: ModelFeatures, n_classes: int, deviation: float) -> float:
    """Return the step on a mean gradient whose entries have noise of this standard deviation."""
    plan, n_features = training_plan(features), features.width - 1
    root = math.sqrt(
        ((features.n_features if features.with_products else n_features) + 1) * n_classes
    )
    longest = min(plan.longest, RATE * root)
    if features.with_products:  # how loud it is shows in what is found
        return longest
    return min(longest, max(plan.least_rate * root, plan.quiet / deviation))


def started(shares: Floats, width: int) -> Floats:
    """Return the first weights, float64 (D, c): every row has the declared class shares."""
    weights = np.zeros((width, len(shares)))
    weights[-1] = (np.log(shares) - np.log(shares).mean()) / BIAS
    return weights
