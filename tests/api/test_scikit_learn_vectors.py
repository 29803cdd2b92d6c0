"""scikit-learn's own checks of estimators with vectors, every exception with its reason."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from vicinal import IndKNNRegressor
from vicinal.errors import PrivacyRefused

NOISE = "answers carry fresh noise, so two calls or two fits never agree exactly"
COPIES = "a fitted estimator refuses to be copied: every copy could spend the same budgets again"
SPENT = "predict counts its answers, since it spends what was planned for them"
TEXTS = "the check fits numbers, and a record of keywords is a text"
TABLE = "the check fits a column, and several labels are a table of 0 and 1"
EXCEPTIONS = {
    "check_pipeline_consistency": NOISE,
    "check_methods_sample_order_invariance": NOISE,
    "check_methods_subset_invariance": NOISE,
    "check_estimators_pickle": COPIES,
    "check_dict_unchanged": SPENT,
}
SHARED = {
    "epsilon": 50.0, "min_similarity": 0.3, "neighbor_count": "private",
    "noise_multiplier": 0.3, "kernel": "rbf", "bandwidth": 1.5, "norm_bound": 20.0,
    "n_records": 100, "n_queries": 400, "simulation_seed": 0,
}  # fmt: skip


class DeclaredBounds(IndKNNRegressor):
    """The checks fit many numbers; their bounds are declared wide enough for all."""


def estimators():
    return [DeclaredBounds((-400.0, 400.0), **SHARED)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("checked", "check"),
    [pair for each in estimators() for pair in estimator_checks_generator(each, legacy=True)],
    ids=lambda value: getattr(getattr(value, "func", value), "__name__", "estimator"),
)
def test_scikit_learn_check(checked, check):
    reason = EXCEPTIONS.get(check.func.__name__)
    if reason is None:
        check(checked)
        return
    with pytest.raises((AssertionError, PrivacyRefused)):
        check(checked)
