"""scikit-learn's own checks of the estimators, every exception with its reason."""

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils.estimator_checks import estimator_checks_generator

from vicinal import (
    IndKNNClassifier,
    IndKNNRegressor,
    NoisySGDClassifier,
    PATEClassifier,
    PrivateKNNClassifier,
)
from vicinal.errors import PrivacyRefused

NOISE = "answers carry fresh noise, so two calls or two fits never agree exactly"
COPIES = "a fitted estimator refuses to be copied: every copy could spend the same budgets again"
COUNTS = "predict counts its answers, since it spends what was planned for them"
# Reached after the part on three classes has passed, accuracy included.
TWO = "two classes also have a column of votes each, not a difference"
ASKING = {
    "check_estimators_pickle": COPIES,
    "check_dict_unchanged": COUNTS,
    "check_methods_sample_order_invariance": NOISE,
    "check_methods_subset_invariance": NOISE,
}
PLANNED = {**ASKING, "check_classifiers_train": TWO, "check_classifiers_classes": TWO}
EXCEPTIONS = {
    "IndKNNClassifier": {
        **ASKING,
        "check_classifiers_classes": NOISE,
        "check_decision_proba_consistency": NOISE,
        "check_classifiers_train": TWO,
    },
    "IndKNNRegressor": {**ASKING, "check_pipeline_consistency": NOISE},
    "PrivateKNNClassifier": PLANNED,
    "PATEClassifier": PLANNED,
    "NoisySGDClassifier": {
        "check_classifiers_train": TWO,
        "check_classifiers_classes": TWO,
        "check_decision_proba_consistency": TWO,
    },
}


class Declaring:
    """The checks fit many label sets; declares each, as a caller who knows them would."""

    def fit(self, X, y, subjects=None, **more):
        """Declare the labels of `y` as classes for the length of the call."""
        declared = self.classes
        self.classes = declared_classes(y)
        try:
            return super().fit(X, y, subjects, **more)
        finally:
            self.classes = declared


class DeclaringIndKNN(Declaring, IndKNNClassifier):
    """Ind-KNN under test."""


class DeclaringKNN(Declaring, PrivateKNNClassifier):
    """Private-kNN under test."""


class DeclaringPATE(Declaring, PATEClassifier):
    """PATE under test."""


class DeclaringSGD(Declaring, NoisySGDClassifier):
    """NoisySGD under test."""


class DeclaredBounds(IndKNNRegressor):
    """The checks fit many numbers; their bounds are declared wide enough for all."""


def declared_classes(y):
    """Return the names in `y` and one more, or two names that fit nothing."""
    column = np.asarray(y).ravel()
    if column.dtype.kind == "O" and all(isinstance(name, int) for name in column):
        column = column.astype(int)
    if column.dtype.kind == "f" and not (column % 1).any():
        column = column.astype(int)
    if column.dtype.kind in "iu" and len(column):
        return np.union1d(column, [column.max() + 1])
    if column.dtype.kind in "UO" and all(isinstance(name, str) for name in column):
        return np.union1d(column.astype(str), ["another"])
    return np.arange(2)


INDIVIDUAL = {
    "epsilon": 50.0, "min_similarity": 0.3, "neighbor_count": "private", "noise_multiplier": 0.3,
    "kernel": "rbf", "bandwidth": 1.5, "norm_bound": 20.0, "n_records": 100, "n_queries": 400,
    "simulation_seed": 0,
}  # fmt: skip
ESTIMATORS = {
    "IndKNNClassifier": DeclaringIndKNN((0, 1), **INDIVIDUAL),
    "IndKNNRegressor": DeclaredBounds((-400.0, 400.0), **INDIVIDUAL),
    "PrivateKNNClassifier": DeclaringKNN(
        classes=(0, 1), k=5, gamma=0.9, sigma_votes=0.3, n_queries=5000, simulation_seed=0
    ),
    "PATEClassifier": DeclaringPATE(
        classes=(0, 1), n_teachers=5, sigma_votes=0.3, n_queries=5000, simulation_seed=0,
        teacher=KNeighborsClassifier(1),
    ),
    "NoisySGDClassifier": DeclaringSGD(
        classes=(0, 1), epsilon=200.0, n_steps=60, gamma=0.5, n_records=100, simulation_seed=0
    ),
}  # fmt: skip


def cases():
    """Yield every estimator with each of scikit-learn's checks."""
    for name, estimator in ESTIMATORS.items():
        for checked, check in estimator_checks_generator(estimator, legacy=True):
            yield pytest.param(name, checked, check, id=f"{name}-{check.func.__name__}")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "checked", "check"), list(cases()))
def test_scikit_learn_check(name, checked, check):
    if check.func.__name__ not in EXCEPTIONS[name]:
        check(checked)
        return
    with pytest.raises((AssertionError, PrivacyRefused)):
        check(checked)
