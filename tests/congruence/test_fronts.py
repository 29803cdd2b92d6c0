"""Through `fit`: what a subject contributes and pays is what it contributes and pays alone.

The same as test_alone_and_together, by the way of a user: parameters, plan, index and release are
those that the estimators make of public facts. Subjects have several records each.
"""

import warnings

import numpy as np
import pytest

from vicinal import IndKNNClassifier, IndKNNMultiLabelClassifier, IndKNNRegressor, testing
from vicinal.errors import PrivacyWarning

N, SUBJECTS, D = 120, 30, 6
rng = np.random.default_rng(3)
X, PUBLIC, QUERIES = (rng.normal(size=(size, D)) for size in (N, 150, 30))
WHO = rng.integers(0, SUBJECTS, N)
LABELS, SETS = rng.integers(0, 3, N), (rng.random((N, 40)) < 0.15).astype(int)
NUMBERS = rng.random((N, 2))
PLAN = {
    "epsilon": 1.0, "n_queries": 20, "n_records": N, "interactions": "public", "model_share": 0,
}  # fmt: skip
TARGETS = {"first": (0, 1), "second": (0, 1)}

CLASSES = {
    "classes": {}, "label alone": {"release": "label"}, "hashing": {"index": "lsh"},
    "another kernel": {"kernel": "rbf"}, "one by one": {"execution": "sequential"},
}  # fmt: skip
KINDS = {
    **{name: (IndKNNClassifier, {"classes": range(3), **own}) for name, own in CLASSES.items()},
    "several labels": (IndKNNMultiLabelClassifier, {"labels": range(40)}),
    "several labels, tau": (IndKNNMultiLabelClassifier, {"labels": range(40), "tau": 4}),
    "numbers": (IndKNNRegressor, {"bounds": TARGETS}),
}
CARRIED = {IndKNNClassifier: LABELS, IndKNNMultiLabelClassifier: SETS, IndKNNRegressor: NUMBERS}


def asked(kind, world):
    """Return the sums of two rounds of the same queries, and what each subject has left."""
    estimator, parameters = KINDS[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        seen = testing.Transcript(testing.no_noise())
        with testing.noise_from(seen):
            fitted = estimator(**parameters, **PLAN).fit(*world, public=PUBLIC)
        for _ in range(2):
            fitted.query(QUERIES)
    sums = np.concatenate([private for private, _, _ in seen.released])
    return sums, testing.remaining_budgets(fitted)


@pytest.mark.parametrize("kind", KINDS)
def test_everybody_contributes_and_pays_what_it_does_alone(kind):
    world = testing.World(X, CARRIED[KINDS[kind][0]], WHO)
    together, left = asked(kind, world)
    alone = {subject: asked(kind, world.only(subject)) for subject in sorted(left)}
    assert left == {subject: budgets[subject] for subject, (_, budgets) in alone.items()}
    np.testing.assert_array_equal(together, sum(sums for sums, _ in alone.values()))
    assert min(left.values()) < 0.9, "hardly anybody paid"


def test_without_a_subject_nothing_of_others_moves():
    kind, world = "several labels", testing.World(X, SETS, WHO)
    (with_it, left), (without, others) = (asked(kind, w) for w in (world, world.without(7)))
    assert others == {subject: share for subject, share in left.items() if subject != 7}
    alone, _ = asked(kind, world.only(7))
    np.testing.assert_array_equal(with_it - without, alone)


def test_a_refilled_budget_is_seen():
    fitted = IndKNNClassifier(range(3), **PLAN).fit(X, LABELS, WHO, public=PUBLIC)
    fitted.query(QUERIES[:5])
    assert min(testing.remaining_budgets(fitted).values()) < 1
    testing.refill_budgets(fitted)
    assert set(testing.remaining_budgets(fitted).values()) == {1.0}
