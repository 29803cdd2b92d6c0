"""PATE: the guarantee of the plan, and queries that do not pass the screening."""

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from made_up import corners
from vicinal.accounting import account
from vicinal.baselines.pate import PATEClassifier


def confident(**overrides):
    """Return a small classifier with screening."""
    return PATEClassifier(
        range(3), 20, sigma_votes=2.0, sigma_screen=2.0, threshold=14.0, n_queries=60,
        teacher=KNeighborsClassifier(1), simulation_seed=0, **overrides,
    )  # fmt: skip


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
    assert stated.delta == 1e-5


def test_what_does_not_pass_is_marked():
    X, y = corners(0, 600, d=5)
    Q, truth = corners(1, 60, d=5)
    answers = confident().fit(X, y).predict(Q)
    assert (answers[answers != -1] == truth[answers != -1]).mean() > 0.9
    votes = confident(n_answers=5).fit(X, y).decision_function(Q)
    assert (~np.isnan(votes).any(axis=1)).sum() == 5
