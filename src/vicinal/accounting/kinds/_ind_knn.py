"""The kind of Ind-KNN: an individual filter with a budget for every subject."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar, Self

from vicinal.accounting import _budget
from vicinal.accounting._certificate import WorstCasePair
from vicinal.accounting._composition import Composition
from vicinal.accounting._gaussian import SubsampledGaussian
from vicinal.accounting._label_only import LabelFilter
from vicinal.accounting.kinds._base import (
    PlannedRelease,
    check_release,
    checked,
    fraction,
    positive,
)
from vicinal.accounting.kinds._private_knn import full_step
from vicinal.accounting.kinds._training import KEEPS, steps
from vicinal.errors import InvalidInput

MODEL_STEPS = 40  # gradients of a private model, unless others are planned

_TRAINED = (
    "gradients and answers are charged in one filter, each subject for its own: what training "
    "leaves of a budget is spent on answers, and somebody who comes later spends all of it there"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedIndKNN(PlannedRelease):
    """All queries to one Ind-KNN classifier; its budget from `B`, or from `epsilon` and `delta`.

    With `model_share` a private model is trained in the same filter, by `model_steps` gradients
    that take at most this share of anybody's budget: it costs nothing beside the budget.
    """

    kind: ClassVar[str] = "ind_knn"

    epsilon: float | None = checked(positive, None)
    delta: float | None = checked(fraction, None)
    B: float | None = checked(positive, None)
    release: str = checked(check_release, "votes")
    model_share: float | None = checked(fraction, None)
    model_steps: int | None = checked(steps, None)

    def complete(self, name: str, delta: float, count: int) -> Self:  # noqa: ARG002
        if (self.epsilon is None) == (self.B is None):
            raise InvalidInput(
                f"The '{name}.epsilon' and '{name}.B' parameters: exactly one must be given."
            )
        if self.delta is not None and self.B is not None:
            raise InvalidInput(
                f"The '{name}.delta' parameter belongs to '{name}.epsilon', not to B."
            )
        if self.release == "label" and self.B is not None:
            raise InvalidInput(
                f"The '{name}.B' parameter belongs to release 'votes': labels are charged at one "
                f"Rényi order. Give '{name}.epsilon'."
            )
        if self.model_steps is not None and self.model_share is None:
            raise InvalidInput(
                f"The '{name}.model_steps' parameter belongs to '{name}.model_share'."
            )
        model = None if self.model_share is None else self.model_steps or MODEL_STEPS
        own_delta = delta if self.epsilon is not None and self.delta is None else self.delta
        return dataclasses.replace(self, delta=own_delta, model_steps=model)

    def budget(self) -> float:
        """Return the budget B (zCDP) of an individual filter, from B or from epsilon and delta."""
        if self.B is not None:
            return float(self.B)
        if self.release == "label":
            label = LabelFilter.from_epsilon(*self._guarantee())
            return label.budget / label.order
        return _budget.zcdp_budget(*self._guarantee(), "gdp")

    def parts(self, delta: float) -> list[dict[str, Any]]:
        """Return the training and what it leaves for answers, if there is a training.

        Each is an individual filter of its own part of the budget, so sqrt(2 part)-GDP; the two
        add up in one filter, whose epsilon is below the sum of theirs. Labels are charged at one
        order, at which their part is known.
        """
        if self.model_share is None or self.model_steps is None:
            return []
        trained = self.model_share * self.budget()
        return [
            {
                "part": "training",
                "steps": self.model_steps,
                "sigma": math.sqrt(self.model_steps / (2 * trained)),
                "budget_at_most": trained,
                "alone": _budget.gdp_epsilon(math.sqrt(2 * trained), delta),
            },
            {
                "part": "answers",
                "budget_at_least": self.budget() - trained,
                "alone": self.cost(1).least_epsilon(delta),
            },
        ]

    def cost(self, count: int) -> Composition:
        if self.release == "label":
            return Composition.of(LabelFilter.from_epsilon(*self._guarantee()), count)
        return Composition.of(self._whole_budget(), count)

    def worst_case(self, count: int, order: float) -> list[WorstCasePair] | None:  # noqa: ARG002
        return None if self.release == "label" else full_step(self._whole_budget(), count)

    def assumptions(self) -> tuple[str, ...]:
        return (
            (
                "Ind-KNN charges every subject individually and stops at the budget B (Feldman & "
                "Zrnic 2021; Koskela, Tobaben & Honkela 2023)"
            ),
            (
                "releases of a plan may be interleaved with Ind-KNN's queries (concurrent "
                "composition: Vadhan & Zhang 2023)"
            ),
            "the lower bound is for a subject who spends the whole budget",
            *(() if self.model_share is None else (_TRAINED, KEEPS)),
        )

    def _whole_budget(self) -> SubsampledGaussian:
        return SubsampledGaussian(1 / math.sqrt(2 * self.budget()))

    def _guarantee(self) -> tuple[float, float]:
        assert self.epsilon is not None and self.delta is not None  # noqa: S101, PT018 (complete)
        return self.epsilon, self.delta
