"""What a plan chooses, from public facts alone: neighbours, noise, and what a question costs.

It is the very planning that ``IndKNNClassifier.fit`` does
(:mod:`vicinal.engine._noise_schedule`), before there is a private record.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Self

from vicinal import _checks
from vicinal._parameters import AUTO
from vicinal.engine import (
    GATE_HEADROOM,
    HEADROOM,
    TYPICAL_SPREAD,
    ReferenceUsage,
    expected_neighbors,
    fitting_neighbors,
    planned_multiplier,
    reference_usage,
)
from vicinal.linear import OF_COMPONENTS, PLAIN, has_components
from vicinal.neighbours import AdaptiveRadius, Reference
from vicinal.planning._parameter_tables import GATE
from vicinal.planning._plan import IndKNNPlan
from vicinal.targets import CLASSES, Classes

_UNKNOWN = "without public points its features are not known; fit decides"

LARGEST_WEIGHT = 1.0
"""Mean squared kernel weight where no public point tells it: no weight is larger."""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What is asked of a plan; everything in it is public.

    - `n_records`, `n_queries`, `n_classes`: declared size of the private data, answers wanted,
      classes.
    - `epsilon`, `delta`: the guarantee.
    - `release`: what leaves, "votes" or "label".
    - `gate`: whether a model of earlier answers gives those that it is sure of.
    - `model_share`: the share of a budget that trains a private model, which answers where it is
      sure; or "auto".
    - `records_per_subject`: declared mean number of records of a subject.
    - `no_model`: why "auto" gave no private model; "" where it did, or was not asked.
    - `n_features`, `n_public`: features of a record and public rows, by which a private model's
      rule goes; 0 where there are no public rows.
    """

    n_records: int
    n_queries: int
    epsilon: float
    delta: float
    n_classes: int
    release: str = "votes"
    gate: bool = False
    model_share: float | str = 0.0
    records_per_subject: float = 1.0
    no_model: str = ""
    n_features: int = 0
    n_public: int = 0

    def on(self, reference: Reference | None) -> Self:
        """Return the same with these public points, without which nothing is known of features."""
        if reference is None:
            return self
        n_public, n_features = reference.points.shape
        return replace(self, n_features=n_features, n_public=n_public)

    def with_model_by_rule(self) -> Self:
        """Return the same with the share that "auto" gives a private model, or why it gives none.

        Without public points it plans for none.
        """
        settings = replace(self, model_share=AUTO).settings()
        why = settings.why_no_model if self.n_public else _UNKNOWN
        return replace(self, model_share=settings.model_share or 0.0, no_model=why)

    @property
    def model_by_rule(self) -> float:
        """The share that "auto" gives a private model where labels leave; 0 for none."""
        wish = replace(self, release="label", gate=False, model_share=AUTO)
        return wish.settings().model_share or 0.0

    @property
    def model_steps(self) -> int:
        """How many noisy gradients train a private model."""
        many = has_components(self.n_features, self.n_public, self.n_records)
        return (OF_COMPONENTS if many else PLAIN).steps

    def settings(self) -> IndKNNPlan:
        """Return the classifier's checked settings; raise InvalidInput for what it refuses."""
        classes = range(_checks.integer("classes", self.n_classes, least=2))
        further = {
            "release": self.release,
            "reuse_predictions": GATE if self.gate else False,
            "model_share": self.model_share,
        }
        plan = IndKNNPlan.of_target(Classes.checked({CLASSES: classes}), self._shared | further)
        return plan.settled(self.n_features, self.n_public)

    @property
    def _shared(self) -> dict[str, Any]:
        """Parameters that every estimator takes."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "n_queries": self.n_queries,
            "n_records": _checks.integer("records", self.n_records, least=1),
            "records_per_subject": self.records_per_subject,
        }


@dataclass(frozen=True, slots=True)
class PlanChoice:
    """A plan: what was requested, and what public facts make of it.

    - `request`: what it is for.
    - `n_neighbors`: k, records expected to take part in a question.
    - `multiplier`: sigma2; the noise on each class has scale sigma2 sqrt(k) votes.
    - `n_asked`: questions expected to be put to private records.
    - `budget`: a record's part of its subject's budget for votes, in zCDP, as a planned
      contribution feels it; beside a private model, at least.
    - `usage`: how records are expected to be used, as measured on public points or assumed.
    """

    request: PlanRequest
    n_neighbors: int
    multiplier: float
    n_asked: int
    budget: float
    usage: ReferenceUsage

    @classmethod
    def of(
        cls,
        request: PlanRequest,
        reference: Reference | None = None,
        n_neighbors: int | None = None,
        budget_share: float | None = None,
    ) -> Self:
        """Choose; without public points kernel weights count as the largest there are.

        Beside a private model the plan is for what training is known to leave of a budget, or
        for the least that it leaves. ``fit`` plans for what it would have left public points.

        - `request`: what the plan is for.
        - `reference`: public points.
        - `n_neighbors`: k, if it is not to be chosen; the noise is made to fit it.
        - `budget_share`: the share of a budget that training leaves.

        Raises InvalidInput naming the first requested value that a classifier would refuse.
        """
        settings, n = request.settings(), request.n_records

        def affordable(shift: float = 0.0) -> float:
            known = 1 - (settings.model_share or 0.0) if budget_share is None else budget_share
            return known * settings.affordable(shift)

        points = n if reference is None else len(reference)
        k = n_neighbors or _neighbors(settings, n, reference, affordable())
        k = max(k, math.ceil(n / points))
        usage = ReferenceUsage(LARGEST_WEIGHT, TYPICAL_SPREAD)
        if reference is not None:
            width = reference.points.shape[1]
            usage = reference_usage(reference, AdaptiveRadius(reference, k, n), width)
        multiplier = planned_multiplier(usage, n, settings.n_asked, k, affordable)
        if request.gate:
            multiplier *= math.sqrt(GATE_HEADROOM / HEADROOM)
        shift = math.sqrt(usage.weight / k) / multiplier
        return cls(request, k, multiplier, settings.n_asked, affordable(shift), usage)

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
        return self.n_asked * self.n_neighbors / self.request.n_records

    @property
    def lasts(self) -> int:
        """How many questions a busy record lasts for, if they fall as the public points do."""
        busy = self.usage.spread * self.n_neighbors / self.request.n_records
        return math.floor(1 / (busy * self.cost))


def _neighbors(
    settings: IndKNNPlan, n_records: int, reference: Reference | None, budget: float
) -> int:
    plan = n_records, settings.n_asked, budget, settings.target.n_groups
    more = settings.target.neighbors_per_noise
    if reference is None:
        return expected_neighbors(*plan, n_records, per_noise=more)
    return fitting_neighbors(reference, *plan, more)
