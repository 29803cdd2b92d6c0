"""What is asked of a plan for numbers or several labels, and what it may expect.

Everything here is public. Expected errors are those that answers themselves would state: the same
code reads them off noise-free sums of neighbours who all say one thing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vicinal.planning._plan import IndKNNPlan
from vicinal.planning._plan_choice import PlanChoice, PlanRequest
from vicinal.targets import ExpectedError, VectorTarget, declared_target


@dataclass(frozen=True)
class VectorPlanRequest(PlanRequest):
    """What is asked of a plan whose records carry vectors, and its neighbours tell two kinds apart.

    `target`: the estimator's parameters that say what records carry: `bounds` or
    `labels` with what belongs to it.
    """

    target: Mapping[str, Any] = field(default_factory=dict)

    def settings(self) -> IndKNNPlan:
        """Return the checked plan; raise InvalidInput for what an estimator refuses."""
        target = declared_target(self.target)
        return IndKNNPlan.of_target(target, {**self.target, **self._shared})


def expected_errors(choice: PlanChoice) -> list[ExpectedError]:
    """Return what the noise of a plan does to typical answers, from public facts.

    How unlike each other neighbours are, and how unlike the query, comes on top.
    """
    target = choice.request.settings().target
    assert isinstance(target, VectorTarget)  # noqa: S101 (narrows the type)
    weight = choice.n_neighbors * math.sqrt(choice.usage.weight)
    return target.expected_errors(weight, np.array([choice.noise]))
