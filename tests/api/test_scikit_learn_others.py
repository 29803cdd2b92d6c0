"""scikit-learn's own checks of the other estimators, every exception with its reason."""

from __future__ import annotations

import pytest
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils.estimator_checks import estimator_checks_generator

from api.test_scikit_learn import declared_classes
from vicinal import NoisySGDClassifier, PATEClassifier, PrivateKNNClassifier
from vicinal.errors import PrivacyRefused


class Declaring:
    """Declares the labels of `y` as classes, as a caller who knows them would."""

    def fit(self, X, y, subjects=None):
        """Declare for the length of the call."""
        declared = self.classes
        self.classes = declared_classes(y)
        try:
            return super().fit(X, y, subjects)
        finally:
            self.classes = declared


class DeclaringKNN(Declaring, PrivateKNNClassifier):
    """Private-kNN under test."""


class DeclaringPATE(Declaring, PATEClassifier):
    """PATE under test."""


class DeclaringSGD(Declaring, NoisySGDClassifier):
    """NoisySGD under test."""


NOISE = "answers carry fresh noise, so two calls or two fits never agree exactly"
COPIES = "a fitted classifier refuses to be copied: every copy could carry out the plan again"
TRAINED = "two classes also have a column of votes each, not a difference"
COUNTS = "predict counts its answers, since more than planned are refused"
ASKING = {
    "check_estimators_pickle": COPIES,
    # Reached after the part on three classes has passed, accuracy included.
    "check_classifiers_train": TRAINED,
    "check_classifiers_classes": TRAINED,
    "check_dict_unchanged": COUNTS,
    "check_methods_sample_order_invariance": NOISE,
    "check_methods_subset_invariance": NOISE,
}
EXCEPTIONS = {
    "PrivateKNNClassifier": ASKING,
    "PATEClassifier": ASKING,
    "NoisySGDClassifier": {
        "check_classifiers_train": TRAINED,
        "check_classifiers_classes": TRAINED,
        "check_decision_proba_consistency": TRAINED,
    },
}
ESTIMATORS = {
    "PrivateKNNClassifier": lambda: DeclaringKNN(
        classes=(0, 1), k=5, gamma=0.9, sigma_votes=0.3, n_queries=5000, simulation_seed=0
    ),
    "PATEClassifier": lambda: DeclaringPATE(
        classes=(0, 1), n_teachers=5, sigma_votes=0.3, n_queries=5000, simulation_seed=0,
        teacher=KNeighborsClassifier(1),
    ),
    "NoisySGDClassifier": lambda: DeclaringSGD(
        classes=(0, 1), epsilon=200.0, n_steps=60, gamma=0.5, n_records=100, simulation_seed=0
    ),
}  # fmt: skip


def cases():
    """Yield every estimator with each of scikit-learn's checks."""
    for name, make in ESTIMATORS.items():
        for checked, check in estimator_checks_generator(make(), legacy=True):
            yield pytest.param(name, checked, check, id=f"{name}-{check.func.__name__}")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "checked", "check"), list(cases()))
def test_scikit_learn_check(name, checked, check):
    if check.func.__name__ not in EXCEPTIONS[name]:
        check(checked)
        return
    with pytest.raises((AssertionError, PrivacyRefused)):
        check(checked)
