"""Who answers the queries of a table, and by which probabilities."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from experiments.tables.data import DELTA, TableSplit
from vicinal.accounting._budget import budget
from vicinal.predictors import IndKNNClassifier, NoisySGDClassifier

Floats = npt.NDArray[np.float64]

SHARE = 0.1
"""Of everybody's budget, for a reference from marginals."""

LEAST_SQUARES = "least squares (dp-learning-ff)"
PLAIN = ("logistic regression, not private", "200-NN, not private")
NEIGHBOURS = (
    "Ind-KNN, real reference",
    "Ind-KNN, from marginals",
    "Ind-KNN, from schema",
    "Ind-KNN with model",
)
OURS, RIVALS = NEIGHBOURS[3], ("NoisySGD", LEAST_SQUARES)
PRIVATE = (*NEIGHBOURS, *RIVALS)


@dataclass(frozen=True)
class TablePlan:
    """What a contender is asked for."""

    split: TableSplit
    prior: float
    epsilon: float
    n_queries: int
    seed: int


def probabilities(name: str, plan: TablePlan) -> Floats | None:
    """Return the probability of a case for every query, (q,); None if a rival is not there."""
    ways: dict[str, Callable[[TablePlan], Floats | None]] = {
        PLAIN[0]: lambda plan: _plain(plan, LogisticRegression(max_iter=1000)),
        PLAIN[1]: lambda plan: _plain(plan, KNeighborsClassifier(200)),
        NEIGHBOURS[0]: lambda plan: _neighbours(plan, "real"),
        NEIGHBOURS[1]: lambda plan: _neighbours(plan, "from-marginals"),
        NEIGHBOURS[2]: lambda plan: _neighbours(plan, "from-schema"),
        NEIGHBOURS[3]: lambda plan: _neighbours(plan, "real", model_share="auto"),
        "NoisySGD": _noisy_sgd,
        LEAST_SQUARES: _least_squares,
    }
    return ways[name](plan)


def _records(plan: TablePlan) -> tuple[Any, Any]:
    private = plan.split.private
    return plan.split.cases[private].astype(int), plan.split.subjects[private]


def _plain(plan: TablePlan, estimator: Any) -> Floats:
    X, _, Q = plan.split.features("real", 0.0, plan.seed)
    labels, _ = _records(plan)
    return np.asarray(estimator.fit(X, labels).predict_proba(Q)[:, 1])


def _neighbours(plan: TablePlan, reference: str, **options: Any) -> Floats:
    whole = budget(plan.epsilon, DELTA, "gdp")
    cost = SHARE * whole if reference == "from-marginals" else 0.0
    X, R, Q = plan.split.features(reference, cost, plan.seed)
    labels, subjects = _records(plan)
    classifier = IndKNNClassifier(
        [0, 1], plan.epsilon, DELTA, plan.n_queries, class_prior=(1 - plan.prior, plan.prior),
        n_records=len(X), records_per_subject=plan.split.records_per_subject, reference_cost=cost,
        simulation_seed=plan.seed, **options,
    )  # fmt: skip
    return classifier.fit(X, labels, subjects, R).predict_proba(Q)[:, 1]


def _noisy_sgd(plan: TablePlan) -> Floats:
    X, _, Q = plan.split.features("real", 0.0, plan.seed)
    labels, subjects = _records(plan)
    classifier = NoisySGDClassifier(
        [0, 1], plan.epsilon, delta=DELTA, n_records=len(X), simulation_seed=plan.seed
    )
    return classifier.fit(X, labels, subjects).predict_proba(Q)[:, 1]


def _least_squares(plan: TablePlan) -> Floats | None:
    """Return scores of the rival, as odds; its noise is calibrated here, one row a person.

    A person is in three of its sums (all records, its class, that class's mean), each of which
    gets noise of `noise_multiplier` times its sensitivity: mu squared is 3 over its square.
    """
    if find_spec("dp_learning_ff") is None:
        return None
    rival = import_module("dp_learning_ff.least_squares").LeastSquaresClassifier
    X, _, Q = plan.split.features("real", 0.0, plan.seed)
    labels, subjects = _records(plan)
    one = np.unique(subjects, return_index=True)[1]
    multiplier = math.sqrt(3 / (2 * budget(plan.epsilon, DELTA, "gdp")))
    theta = rival.dp_least_squares(
        _with_bias(X[one]), labels[one], weight_alpha=1.0, reg_lambda=_RIDGE * multiplier,
        clipping_norm=1.0, noise_multiplier=multiplier, seed=plan.seed,
    )  # fmt: skip
    scores = _with_bias(Q) @ np.asarray(theta).T
    return np.asarray(1 / (1 + np.exp(-np.clip(4 * (scores[:, 1] - scores[:, 0]), -30, 30))))


_RIDGE = 10.0
"""Times the noise: a ridge that its matrices of noise are positive with; not tuned."""


def _with_bias(X: Any) -> Floats:
    unit = np.asarray(X, dtype=np.float64)
    unit = unit / np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), 1e-12)
    rows = np.hstack([unit, np.full((len(unit), 1), 0.3)])
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))
