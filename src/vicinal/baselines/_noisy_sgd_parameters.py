"""From the parameters of a NoisySGD classifier to its plan, and to trained weights."""

from __future__ import annotations

from collections.abc import Hashable

from vicinal._parameters import Integer, Real, Unless, parameter, table
from vicinal.mechanisms import (
    NoisyGradient,
    NoisySize,
    NoisyTraining,
    ReleaseCounter,
    SubjectRows,
    bernoulli_source,
    gradient_grid,
    randomness,
)
from vicinal.planning import Plan, affordable_noise, summed
from vicinal.predictors import FixedPlanParameters, FixedPlanSettings

SIZE_NOISE = 50.0
"""The noise on the number of subjects has scale 50 / epsilon: less than 1 % of the cost."""


ENOUGH_FEATURES = 1000
"""Before ``fit``, a number of features that is large enough for most."""


@table
class NoisySGDParameters(FixedPlanParameters):
    """What NoisySGD takes besides."""

    epsilon: float = parameter(
        Real(above=0),
        default=1.0,
        kw_only=False,
        doc="The guarantee for a subject; add/remove-one-subject.",
    )
    n_steps: int = parameter(
        Integer(least=1, most=10**6), default=200, doc="How many steps to train."
    )
    gamma: float = parameter(
        Real(above=0, most=1),
        default=0.1,
        doc="The probability with which each subject is in a batch.",
    )
    clip: float = parameter(
        Real(least=1e-6, most=1e6),
        default=0.5,
        doc="The clipping bound on a subject's gradient; features have length 1.",
    )
    learning_rate: float = parameter(
        Real(above=0), default=4.0, doc="Step on the clipped mean gradient, in units of `clip`."
    )
    momentum: float = parameter(
        Real(least=0, below=1),
        default=0.9,
        doc="How much of the last step is kept in the next, 0 <= momentum < 1.",
    )
    n_records: int | None = parameter(
        Unless(None, Integer(least=1)),
        default=None,
        doc="""Public number of subjects, which the mean is taken by. Without it the number is
        released once with noise, which the guarantee includes.""",
    )


class NoisySGDSettings(NoisySGDParameters, FixedPlanSettings):
    """Checked parameters of a NoisySGD classifier."""

    _name = "NoisySGD"

    @property
    def terms(self) -> Hashable:
        """What interactions that share the guarantee must have in common: all of the plan."""
        return super().terms, self.epsilon, self.delta

    @property
    def noise_multiplier(self) -> float:
        """The noise multiplier with which the plan just keeps (epsilon, delta)."""
        plan = self.together(self._releases(1.0))
        return affordable_noise(plan, self.epsilon, "sigma", release=0)

    def releases(self) -> list[Plan]:
        """Return the planned releases as in the JSON of a plan."""
        return self._releases(self.noise_multiplier)

    def _releases(self, multiplier: float) -> list[Plan]:
        steps = {"kind": "gaussian", "sigma": multiplier, "sensitivity": 1.0}
        size = {**steps, "sigma": SIZE_NOISE / self.epsilon, "gamma": 1.0, "count": 1}
        planned: Plan = {**steps, "gamma": self.gamma, "count": self.n_steps}
        return [planned, *([size] if self.n_records is None else [])]

    def draws(self, n_features: int = ENOUGH_FEATURES) -> dict[int, float]:
        """Return how many draws of noise are planned at each scale in steps."""
        weights = float(self.n_steps) * (n_features + 1) * len(self.classes)
        size = (gradient_grid(SIZE_NOISE / self.epsilon)[1], float(self.n_records is None))
        return summed([(gradient_grid(self.noise_multiplier)[1], weights), size])

    def training(self, records: SubjectRows, unit: float) -> NoisyTraining:
        """Return the planned steps on `records`, a feature of 1 being `unit` integer steps."""
        noise = randomness(self.simulation_seed)
        gradient = NoisyGradient(
            records, len(self.classes), unit, self.gamma, self.clip, self.noise_multiplier,
            ReleaseCounter(self.n_steps, "steps"), noise, bernoulli_source(self.simulation_seed),
        )  # fmt: skip
        size = self.n_records or NoisySize(SIZE_NOISE / self.epsilon, noise)
        return NoisyTraining(gradient, size, self.learning_rate, self.momentum)
