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
from vicinal.linear import ModelFeatures, PrivateModel, follow
from vicinal.neighbours import AdaptiveRadius, Cosine, Reference
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
    - `doubt`: what noise leaves in what a private model says of vectors; None where none is known.
    """

    plan: IndKNNPlan
    n_neighbors: int
    multiplier: float
    budget: float
    usage: ReferenceUsage
    doubt: float | None = None

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
        known, n = untrained_model(plan, reference), plan.size
        left = 1 - (plan.model_share or 0.0) if known is None else plan.left_by(known)
        left = left if budget_share is None else budget_share
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
        doubt = None if known is None else known.doubt
        return cls(plan, k, multiplier, left * plan.affordable(shift), usage, doubt)

    @property
    def noise(self) -> float:
        """The scale of the noise on each class, in votes."""
        return self.multiplier * math.sqrt(self.n_neighbors)

    @property
    def cost(self) -> float:
        """The share of its budget that a record pays for taking part in a question."""
        return self.usage.weight / (2 * self.noise**2 * self.budget)

    @property
    def participations(self) -> float:
        """How many questions a record is expected to take part in."""
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
        noise, weight = self.noise, self.n_neighbors * math.sqrt(self.usage.weight)
        if self.doubt is not None:
            noise = float(self.plan.loss.noise_left(noise, self.n_neighbors, self.doubt))
        return target.expected_errors(weight, np.array([noise]))


def untrained_model(plan: IndKNNPlan, reference: Reference | None) -> PrivateModel | None:
    """Return a private model of vectors before it has learnt anything; None where there is none.

    What it costs, and how far off noise leaves it, follow from public points alone: a square is as
    curved everywhere.
    """
    if not plan.model_share or plan.target.voted or reference is None:
        return None
    points = np.asarray(reference.points, dtype=np.float32)
    assert isinstance(reference.kernel, Cosine)  # noqa: S101 (a model needs it)
    features = ModelFeatures.planned(points, plan.size, lifted=reference.kernel.lifts)
    return follow(
        plan.training, features, points,
        lambda weights: (np.zeros_like(weights), plan.training.step_noise),
    )  # fmt: skip
