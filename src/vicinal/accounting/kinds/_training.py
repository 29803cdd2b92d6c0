"""The kind of a linear model that is trained by noisy gradients, beside all other releases."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from vicinal import _checks
from vicinal.accounting._certificate import WorstCasePair
from vicinal.accounting._composition import MAX_COUNT, Composition
from vicinal.accounting._gaussian import SubsampledGaussian
from vicinal.accounting.kinds._base import (
    KNOWN_COINS,
    POISSON,
    PlannedRelease,
    check_that,
    checked,
    rate,
    scale,
)
from vicinal.accounting.kinds._private_knn import full_step
from vicinal.errors import InvalidInput

MOST_STEPS = 10**6
steps = check_that("a number of gradients", _checks.integer, least=1, most=MOST_STEPS)

KEEPS = (
    "a trained model keeps what it has learnt of subjects who leave, and holds nothing of those "
    "who come later"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedTraining(PlannedRelease):
    """Noisy gradients that train a model once, such as NoisySGD; `count` trainings.

    `sigma` is the noise on every coordinate, over the clipping bound. With gamma = 1 all subjects
    are in all batches. A training inside Ind-KNN's own filter is an `ind_knn` with `model_share`
    instead: the filter has paid for it.
    """

    kind: ClassVar[str] = "training"

    steps: int = checked(steps)
    sigma: float = checked(scale)
    gamma: float = checked(rate, 1.0)

    def complete(self, name: str, delta: float, count: int) -> PlannedTraining:  # noqa: ARG002
        if count * self.steps > MAX_COUNT:
            raise InvalidInput(
                f"The '{name}.steps' parameter must be at most {MAX_COUNT // count} for {count} "
                f"trainings. Got {self.steps}."
            )
        return self

    def cost(self, count: int) -> Composition:
        return Composition.of(self._gradient(), count * self.steps)

    def worst_case(self, count: int, order: float) -> list[WorstCasePair] | None:  # noqa: ARG002
        return full_step(self._gradient(), count * self.steps)

    def assumptions(self) -> tuple[str, ...]:
        sampled = (POISSON, KNOWN_COINS) if self.gamma < 1 else ()
        return (
            (
                "the gradient of a subject, summed over its records, is clipped to one bound, and "
                "sigma is the noise over that bound"
            ),
            KEEPS,
            *sampled,
        )

    def _gradient(self) -> SubsampledGaussian:
        return SubsampledGaussian(self.sigma, self.gamma)
