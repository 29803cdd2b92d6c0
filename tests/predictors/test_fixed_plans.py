"""Fixed plans of Private-kNN and PATE: each is executed once, and further queries are refused."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.neighbors import KNeighborsClassifier

from made_up import corners
from vicinal import NoisySGDClassifier, PATEClassifier, PrivateKNNClassifier
from vicinal.errors import InvalidInput, PrivacyRefused

RECORDS = corners(0, 400, d=5)


def private_knn(**more):
    given = {"n_neighbors": 20, "sampling_rate": 0.5, "sigma_votes": 2.0, "n_queries": 40}
    return PrivateKNNClassifier(range(3), **{**given, "simulation_seed": 0, **more})


def pate(**more):
    given = {"n_teachers": 20, "sigma_votes": 2.0, "n_queries": 40}
    given |= {"teacher": KNeighborsClassifier(1), "simulation_seed": 0}
    return PATEClassifier(range(3), **{**given, **more})


def noisy_sgd(**more):
    return NoisySGDClassifier(range(3), **{"n_steps": 2, "simulation_seed": 0, **more})


BOTH = pytest.mark.parametrize("make", [private_knn, pate])
ALL = pytest.mark.parametrize("make", [private_knn, pate, noisy_sgd])


@BOTH
def test_it_answers_rightly(make):
    Q, truth = corners(1, 40, d=5)
    assert (make().fit(*RECORDS).predict(Q) == truth).mean() > 0.9


@BOTH
def test_no_more_than_planned(make):
    X, y = RECORDS
    asking = make(n_queries=10).fit(X, y)
    with pytest.raises(PrivacyRefused, match="10 queries"):
        asking.predict(X[:11])
    assert asking.n_asked_ == 0
    asking.predict(X[:10])
    with pytest.raises(PrivacyRefused, match="0 are left"):
        asking.decision_function(X[:1])


@BOTH
def test_votes_leave_only_if_paid_for(make):
    X, y = RECORDS
    with pytest.raises(PrivacyRefused, match="only labels are paid for"):
        make(release="label").fit(X, y).decision_function(X[:1])
    assert make().fit(X, y).decision_function(X[:4]).shape == (4, 3)


@ALL
def test_simulation_repeats_and_carries_no_guarantee(make):
    X, y = RECORDS
    first, second = (make().fit(X, y).decision_function(X[:40]) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert not make().guarantee().holds
    real = [make(simulation_seed=None).fit(X, y).decision_function(X[:40]) for _ in range(2)]
    assert (real[0] != real[1]).any()


@BOTH
def test_a_fitted_classifier_cannot_be_copied(make):
    fitted = make().fit(*RECORDS)
    for make_copy in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(PrivacyRefused, match="planned answers again"):
            make_copy(fitted)
    assert clone(fitted).sigma_votes == 2.0
    pickle.dumps(make())


X0, Y0 = corners(0, 9, d=5)


@pytest.mark.parametrize(
    ("make", "X", "y", "more", "named"),
    [
        *(
            (make, *case)
            for make in (private_knn, pate, noisy_sgd)
            for case in (
                (np.full((9, 5), np.nan), Y0, {}, "NaN"), (X0, Y0[:8], {}, "'y'"),
                (X0, Y0 + 5, {}, "'y'"), (X0, Y0, {"subjects": [1, 2]}, "'subjects'"),
                (X0, Y0, {"subjects": [1.5] * 9}, "'subjects'"), (X0[:0], Y0[:0], {}, "0 sample"),
            )
        ),
        *(
            (make, X0, Y0, {"public": public}, named)
            for make in (private_knn, noisy_sgd)
            for public, named in ((X0[:, :2], "'public'"), (X0[:1], "part of the private"))
        ),
    ],
)  # fmt: skip
def test_bad_records_are_refused_and_leave_the_old_ones(make, X, y, more, named):
    estimator = make().fit(*RECORDS)
    before = vars(estimator).copy()
    with pytest.raises(InvalidInput, match=named):
        estimator.fit(X, y, **more)
    assert vars(estimator) == before


@ALL
def test_the_guarantee_is_that_of_the_plan_in_use(make):
    """Fails if parameters set after fit change what is stated, or what may leave."""
    answers = make is not noisy_sgd
    fitted = make(simulation_seed=None, **({"release": "label"} if answers else {})).fit(*RECORDS)
    stated, plan = str(fitted.guarantee()), fitted.plan()
    changes = {"sigma_votes": 1e6, "release": "votes"} if answers else {"epsilon": 0.1}
    fitted.set_params(simulation_seed=3, **changes)
    assert (str(fitted.guarantee()), fitted.plan()) == (stated, plan)
    assert fitted.guarantee().holds
    if answers:
        with pytest.raises(PrivacyRefused, match="only labels"):
            fitted.decision_function(RECORDS[0][:1])


SCREENED = {"sigma_screen": 3.0, "threshold": 2.0}
TOGETHER_EITHER_WAY = [
    ({"sigma_screen": 3.0}, "threshold"), ({"threshold": 3.0}, "threshold"),
    ({"n_answers": 3}, "n_answers"), ({"n_answers": 500, **SCREENED}, "n_answers"),
    ({"n_answers": 0, "epsilon": 3.0, "sigma_votes": "auto", **SCREENED}, "n_answers"),
    ({"epsilon": 1.0, "sigma_votes": 25.0}, "epsilon"),
    ({"classes": [0, -1, 2], **SCREENED}, "classes"),
]  # fmt: skip
TOGETHER = {
    private_knn: [
        *TOGETHER_EITHER_WAY,
        ({"tau": 2, **SCREENED}, "tau"), ({"tau": 2, "release": "label"}, "tau"),
    ],
    pate: TOGETHER_EITHER_WAY,
}  # fmt: skip


@pytest.mark.parametrize(
    ("make", "wrong", "named"), [(make, *one) for make, all_ in TOGETHER.items() for one in all_]
)
def test_parameters_that_do_not_go_together_are_named(make, wrong, named):
    estimator = make().set_params(**wrong)
    for work in (lambda: estimator.fit(X0, Y0), estimator.guarantee):
        with pytest.raises(InvalidInput, match=f"'{named}'"):
            work()
    assert not hasattr(estimator, "_release")
