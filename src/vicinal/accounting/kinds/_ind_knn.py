"""The kind of Ind-KNN: an individual filter with a budget for every subject."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar, Self

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
from vicinal.errors import InvalidInput


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedIndKNN(PlannedRelease):
    """All queries to one Ind-KNN classifier; its budget from `B`, or from `epsilon` and `delta`."""

    kind: ClassVar[str] = "ind_knn"

    epsilon: float | None = checked(positive, None)
    delta: float | None = checked(fraction, None)
    B: float | None = checked(positive, None)
    release: str = checked(check_release, "votes")

    def complete(self, name: str, delta: float, count: int) -> Self:  # noqa: ARG002
        """Take the plan's delta for `epsilon`, unless there is one."""
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
        if self.epsilon is None or self.delta is not None:
            return self
        return dataclasses.replace(self, delta=delta)

    def budget(self) -> float:
        """Return the budget B (zCDP) of an individual filter, from B or from epsilon and delta."""
        return float(self.B) if self.B is not None else _budget.budget(*self._guarantee(), "gdp")

    def cost(self, count: int) -> Composition:
        if self.release == "label":
            return Composition.of(LabelFilter.from_epsilon(*self._guarantee()), count)
        return Composition.of(self._whole_budget(), count)

    def worst_case(self, count: int, order: float) -> list[WorstCasePair] | None:  # noqa: ARG002
        """Return a subject that spends the whole budget."""
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
        )

    def _whole_budget(self) -> SubsampledGaussian:
        return SubsampledGaussian(1 / math.sqrt(2 * self.budget()))

    def _guarantee(self) -> tuple[float, float]:
        assert self.epsilon is not None and self.delta is not None  # noqa: S101, PT018 (complete)
        return self.epsilon, self.delta
