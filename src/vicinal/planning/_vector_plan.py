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

from vicinal import _checks
from vicinal.planning._parameter_tables import LOG
from vicinal.planning._plan_choice import PlanChoice, PlanRequest
from vicinal.planning._shared_settings import SharedSettings
from vicinal.planning._vector_settings import MultiLabelSettings, RegressorSettings
from vicinal.predictors import IndKNNEstimator, IndKNNMultiLabelClassifier, IndKNNRegressor
from vicinal.targets import LabelAnswers, NumberAnswers

_ESTIMATORS: Mapping[str, type[IndKNNEstimator[Any]]] = {
    "bounds": IndKNNRegressor,
    "labels": IndKNNMultiLabelClassifier,
}
TYPICAL = 0.75
"""Where a number's expected error is stated: this part of the way through its typical range."""


@dataclass(frozen=True)
class VectorPlanRequest(PlanRequest):
    """What is asked of a plan whose records carry vectors, and its neighbours tell two kinds apart.

    `target`: the estimator's parameters that say what records carry: `bounds` or
    `labels` with what belongs to it.
    """

    target: Mapping[str, Any] = field(default_factory=dict)

    def settings(self) -> SharedSettings:  # type: ignore[override]
        """Return the estimator's checked settings; raise InvalidInput for what it refuses."""
        (estimator_class,) = (
            estimator_class for kind, estimator_class in _ESTIMATORS.items() if kind in self.target
        )
        estimator = estimator_class(
            **self.target, epsilon=self.epsilon, delta=self.delta, n_queries=self.n_queries,
            n_records=_checks.integer("records", self.n_records, least=1),
            records_per_subject=self.records_per_subject,
        )  # fmt: skip
        settings: SharedSettings = estimator._plans.of(estimator)
        return settings


@dataclass(frozen=True, slots=True)
class ExpectedError:
    """What noise does to a typical answer: the standard error that the answer would state.

    `name`: of the number or the label. `value`: the typical answer: a number, or a share. `error`:
    its standard error, in the same units.
    """

    name: str
    value: float
    error: float


def expected_errors(choice: PlanChoice) -> list[ExpectedError]:
    """Return what the noise of a plan does to typical answers, from public facts.

    How unlike each other neighbours are, and how unlike the query, comes on top.
    """
    settings: SharedSettings = choice.request.settings()
    noise = np.array([choice.noise])
    weight = choice.n_neighbors * math.sqrt(choice.usage.weight)
    if isinstance(settings, RegressorSettings):
        usual = settings.typical_range or settings.bounds
        usual = usual.logarithms() if settings.scale == LOG else usual
        low, high = usual.low, usual.high
        y = low + TYPICAL * (high - low)
        y = np.exp(y) if settings.scale == LOG else y
        sums = weight * settings.targets(y if settings.bounds.names is None else y[None], 1).dense()
        errors = NumberAnswers.of(settings, sums, noise).errors[0]
        names = settings.bounds.names or ("number",)
        return [
            ExpectedError(*each) for each in zip(names, y.tolist(), errors.tolist(), strict=True)
        ]
    assert isinstance(settings, MultiLabelSettings)  # noqa: S101 (no other kind)
    half = np.zeros((2, len(settings.labels)), dtype=int)
    half[0, ::2] = half[1, 1::2] = 1
    sums = weight * settings.targets(half, 2).dense().mean(axis=0, keepdims=True)
    answers = LabelAnswers.of(settings, sums, noise)
    labels = zip(settings.labels.tolist(), answers.shares[0], answers.errors[0], strict=True)
    return [ExpectedError(str(name), float(share), float(e)) for name, share, e in labels]
