"""Who answers the queries of a table, and by which probabilities."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from experiments.ridge import AdaSSP
from experiments.tables.data import DELTA, TableSplit
from vicinal.accounting import zcdp_budget as budget
from vicinal.baselines import NoisySGDClassifier
from vicinal.predictors import IndKNNClassifier

Floats = npt.NDArray[np.float64]

LEAST_SQUARES = "least squares (dp-learning-ff)"
LOGISTIC = "logistic regression (diffprivlib)"
PLAIN = ("logistic regression, not private", "200-NN, not private")
NEIGHBOURS = (
    "Ind-KNN, real reference",
    "Ind-KNN, from schema",
    "Ind-KNN with model",
    "Ind-KNN with model, from schema",
)
OURS, RIVALS = NEIGHBOURS[2], ("NoisySGD", "AdaSSP", LEAST_SQUARES, LOGISTIC)
MADE_UP = {NEIGHBOURS[1]: NEIGHBOURS[0], NEIGHBOURS[3]: OURS}
"""Methods with a made-up reference, and what they are with a real one."""

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
        NEIGHBOURS[1]: lambda plan: _neighbours(plan, "from-schema"),
        NEIGHBOURS[2]: lambda plan: _neighbours(plan, "real", model_share="auto"),
        NEIGHBOURS[3]: lambda plan: _neighbours(plan, "from-schema", model_share="auto"),
        "NoisySGD": _noisy_sgd,
        "AdaSSP": _adassp,
        LEAST_SQUARES: _least_squares,
        LOGISTIC: _objective_perturbation,
    }
    return ways[name](plan)


def _records(plan: TablePlan) -> tuple[Any, Any]:
    private = plan.split.private
    return plan.split.cases[private].astype(int), plan.split.subjects[private]


def _plain(plan: TablePlan, estimator: Any) -> Floats:
    X, _, Q = plan.split.features("real", plan.seed)
    labels, _ = _records(plan)
    return np.asarray(estimator.fit(X, labels).predict_proba(Q)[:, 1])


def _neighbours(plan: TablePlan, reference: str, **options: Any) -> Floats:
    X, R, Q = plan.split.features(reference, plan.seed)
    labels, subjects = _records(plan)
    classifier = IndKNNClassifier(
        [0, 1], plan.epsilon, DELTA, plan.n_queries, class_prior=(1 - plan.prior, plan.prior),
        n_records=len(X), records_per_subject=plan.split.records_per_subject,
        simulation_seed=plan.seed, **{"model_share": 0, **options},
    )  # fmt: skip
    return classifier.fit(X, labels, subjects, R).predict_proba(Q)[:, 1]


def _noisy_sgd(plan: TablePlan) -> Floats:
    X, _, Q = plan.split.features("real", plan.seed)
    labels, subjects = _records(plan)
    classifier = NoisySGDClassifier(
        [0, 1], plan.epsilon, delta=DELTA, n_records=len(X), simulation_seed=plan.seed
    )
    return classifier.fit(X, labels, subjects).predict_proba(Q)[:, 1]


def _adassp(plan: TablePlan) -> Floats:
    """Return scores of least squares, as odds; rows are cut where 5 % of the public ones are."""
    X, R, Q = plan.split.features("real", plan.seed)
    labels, subjects = _records(plan)
    one = _a_row_each(subjects)
    bound = float(np.quantile(np.linalg.norm(R, axis=1), 0.95))
    rows, targets = X[one].astype(np.float64), 2.0 * labels[one] - 1
    linear = AdaSSP.fit(rows, targets, bound, plan.epsilon, DELTA, plan.seed)
    return _odds(linear.predict(Q))


def _objective_perturbation(plan: TablePlan) -> Floats | None:
    """Return probabilities of the rival, which keeps (epsilon, 0): one row a person, length 1."""
    models = None
    with suppress(ImportError):  # it needs scikit-learn before 1.6
        models = import_module("diffprivlib.models")
    if models is None:
        return None
    X, _, Q = plan.split.features("real", plan.seed)
    labels, subjects = _records(plan)
    one = _a_row_each(subjects)
    model = models.LogisticRegression(epsilon=plan.epsilon, data_norm=1.0, random_state=plan.seed)
    return np.asarray(model.fit(_unit(X)[one], labels[one]).predict_proba(_unit(Q))[:, 1])


def _a_row_each(subjects: Any) -> npt.NDArray[np.int64]:
    return np.asarray(np.unique(subjects, return_index=True)[1])


def _least_squares(plan: TablePlan) -> Floats | None:
    """Return scores of the rival, as odds; its noise is calibrated here, one row a person.

    A person is in three of its sums (all records, its class, that class's mean), each of which
    gets noise of `noise_multiplier` times its sensitivity: mu squared is 3 over its square.
    """
    if find_spec("dp_learning_ff") is None:
        return None
    rival = import_module("dp_learning_ff.least_squares").LeastSquaresClassifier
    X, _, Q = plan.split.features("real", plan.seed)
    labels, subjects = _records(plan)
    one = _a_row_each(subjects)
    multiplier = math.sqrt(3 / (2 * budget(plan.epsilon, DELTA, "gdp")))
    theta = rival.dp_least_squares(
        _with_bias(X[one]), labels[one], weight_alpha=1.0, reg_lambda=_RIDGE * multiplier,
        clipping_norm=1.0, noise_multiplier=multiplier, seed=plan.seed,
    )  # fmt: skip
    scores = _with_bias(Q) @ np.asarray(theta).T
    return _odds(2 * (scores[:, 1] - scores[:, 0]))


_RIDGE = 10.0
"""Times the noise: a ridge that its matrices of noise are positive with; not tuned."""


def _odds(scores: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-np.clip(2 * scores, -30, 30))))


def _with_bias(X: Any) -> Floats:
    rows = _unit(X)
    return _unit(np.hstack([rows, np.full((len(rows), 1), 0.3)]))


def _unit(X: Any) -> Floats:
    rows = np.asarray(X, dtype=np.float64)
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))
