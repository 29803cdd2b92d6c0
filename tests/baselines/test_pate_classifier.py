"""PATE: the guarantee of the plan, and queries that do not pass the screening."""

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from vicinal.accounting import account
from vicinal.baselines.pate import PATEClassifier


def data(n=600, seed=0):
    rng = np.random.default_rng(seed)
    y = (np.arange(n) % 3).astype(np.int32)
    return rng.normal(size=(n, 5)) + 5 * np.eye(3, 5)[y], y


def classifier(**overrides):
    defaults = {"n_teachers": 20, "sigma_votes": 2.0, "n_queries": 60, "simulation_seed": 0}
    defaults |= {"teacher": KNeighborsClassifier(1)}
    return PATEClassifier(range(3), **{**defaults, **overrides})


def confident(**overrides):
    return classifier(sigma_screen=2.0, threshold=14.0, **overrides)


KINDS = [
    ({}, {"kind": "gnmax", "sigma": 40.0, "count": 900}),
    (
        {"release": "label"},
        {"kind": "gnmax", "sigma": 40.0, "count": 900, "release": "label"},
    ),
    (
        {"sigma_screen": 150.0, "threshold": 200.0},
        {"kind": "confident_gnmax", "teachers": 250, "threshold": 200.0, "sigma_screen": 150.0,
         "sigma_votes": 40.0, "count": 900},
    ),
    (
        {"sigma_screen": 150.3, "threshold": 200, "n_answers": 400},
        {"kind": "confident_gnmax", "teachers": 250, "threshold": 200.0, "sigma_screen": 150.3,
         "sigma_votes": 40.0, "answered": 400, "count": 900},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("given", "step"), KINDS)
def test_the_guarantee_is_what_vicinal_account_says(given, step):
    """Fails if the guarantee differs in the last digit from the cost of the plan."""
    estimator = PATEClassifier(range(10), **given, n_queries=900)
    stated = estimator.guarantee()
    assert stated.epsilon == account({"delta": 1e-5, "releases": [step]})["epsilon"]
    assert stated.epsilon == account(estimator.plan())["epsilon"]
    assert stated.delta == 1e-5


def test_what_does_not_pass_is_marked():
    X, y = data()
    Q, truth = data(60, seed=1)
    fitted = confident().fit(X, y)
    answers = fitted.predict(Q)
    assert (answers[answers != -1] == truth[answers != -1]).mean() > 0.9
    never_passed = confident().set_params(threshold=100.0, classes=["a", "b", "c"])
    assert all(
        label is None for label in never_passed.fit(X, np.array(["a", "b", "c"])[y]).predict(Q)
    )
    votes = confident(n_answers=5).fit(X, y).decision_function(Q)
    assert (~np.isnan(votes).any(axis=1)).sum() == 5
