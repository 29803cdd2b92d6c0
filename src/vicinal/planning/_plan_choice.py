"""What a plan chooses, from public facts alone: neighbours, noise, and what a question costs.

It is the very planning that ``IndKNNClassifier.fit`` does
(:mod:`vicinal.engine._noise_schedule`), before there is a private record.
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from vicinal.engine import (
    GATE_HEADROOM,
    HEADROOM,
    TYPICAL_SPREAD,
    ReferenceUsage,
    reference_usage,
)
from vicinal.neighbours import AdaptiveRadius, Reference
from vicinal.planning._plan import IndKNNPlan
from vicinal.targets import ExpectedError, VectorTarget

LARGEST_WEIGHT = 1.0
"""Mean squared kernel weight where no public point tells it: no weight is larger."""


@dataclass(frozen=True, slots=True)
class PlanChoice:
    """What public facts make of a plan.

    - `plan`: of a declared number of records.
    - `n_neighbors`: k, records expected to take part in a question.
    - `multiplier`: sigma2; the noise on each class has scale sigma2 sqrt(k) votes.
    - `budget`: a record's part of its subject's budget for votes, in zCDP, as a planned
      contribution feels it; beside a private model, at least.
    - `usage`: how records are expected to be used, as measured on public points or assumed.
    """

    plan: IndKNNPlan
    n_neighbors: int
    multiplier: float
    budget: float
    usage: ReferenceUsage

    @classmethod
    def of(
        cls,
        plan: IndKNNPlan,
        reference: Reference | None = None,
        n_neighbors: int | None = None,
        budget_share: float | None = None,
    ) -> Self:
        """Choose; without public points kernel weights count as the largest there are.

        Beside a private model the plan is for what training is known to leave of a budget, or
        for the least that it leaves. ``fit`` plans for what it would have left public points.

        - `plan`: with a number of records.
        - `reference`: public points.
        - `n_neighbors`: k, if it is not to be chosen; the noise is made to fit it.
        - `budget_share`: the share of a budget that training leaves.
        """
        left = 1 - (plan.model_share or 0.0) if budget_share is None else budget_share
        n = plan.size
        points = n if reference is None else len(reference)
        k = n_neighbors or plan.n_neighbors or plan.neighbors(reference, left)
        k = max(k, math.ceil(n / points))
        usage = ReferenceUsage(LARGEST_WEIGHT, TYPICAL_SPREAD)
        if reference is not None:
            width = reference.points.shape[1]
            usage = reference_usage(reference, AdaptiveRadius(reference, k, n), width)
        multiplier = plan.noise_multiplier or plan.multiplier(usage, k, left)
        if plan.gated and plan.noise_multiplier is None:
            multiplier *= math.sqrt(GATE_HEADROOM / HEADROOM)
        shift = math.sqrt(usage.weight / k) / multiplier
        return cls(plan, k, multiplier, left * plan.affordable(shift), usage)

    @property
    def noise(self) -> float:
        return self.multiplier * math.sqrt(self.n_neighbors)

    @property
    def cost(self) -> float:
        """The share of its budget that a record pays for taking part in a question."""
        return self.usage.weight / (2 * self.noise**2 * self.budget)

    @property
    def participations(self) -> float:
        return self.plan.n_asked * self.n_neighbors / self.plan.size

    @property
    def lasts(self) -> int:
        """How many questions a busy record lasts for, if they fall as the public points do."""
        busy = self.usage.spread * self.n_neighbors / self.plan.size
        return math.floor(1 / (busy * self.cost))

    def expected_errors(self) -> list[ExpectedError]:
        """Return what the noise does to typical answers that are averages, from public facts.

        How unlike each other neighbours are, and how unlike the query, comes on top.
        """
        target = self.plan.target
        assert isinstance(target, VectorTarget)  # noqa: S101 (narrows the type)
        weight = self.n_neighbors * math.sqrt(self.usage.weight)
        return target.expected_errors(weight, np.array([self.noise]))
