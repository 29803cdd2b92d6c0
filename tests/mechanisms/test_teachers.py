"""PATE's teachers have disjoint subjects and always vote."""

import warnings

import numpy as np
import pytest
from scipy.stats import chisquare
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from vicinal.mechanisms.teachers import (
    FALLBACK,
    Teacher,
    assign_teachers,
    count_votes,
    derive_seed,
    train_teachers,
)
from vicinal.noise.source import fresh_key


def test_each_subject_has_one_teacher_whoever_else_is_there():
    key, ids = fresh_key(), [f"p{i}" for i in np.random.default_rng(0).integers(0, 200, 500)]
    teachers = assign_teachers(ids, key, 20)
    for subject in set(ids):
        own = np.array(ids) == subject
        assert len(set(teachers[own])) == 1
        rest = assign_teachers(np.array(ids)[~own].tolist(), key, 20)
        np.testing.assert_array_equal(rest, teachers[~own])


def test_sizes_are_balanced_and_keys_fresh():
    """Fails if some teachers get more subjects, or if two fits use the same parts."""
    sizes = np.bincount(assign_teachers(range(20_000), fresh_key(), 40), minlength=40)
    assert chisquare(sizes).pvalue > 1e-9
    first, second = (assign_teachers(range(1000), fresh_key(), 40) for _ in range(2))
    assert (first == second).mean() < 0.15


class Odd(ClassifierMixin, BaseEstimator):
    """A model that fails in the way given by `how`."""

    def __init__(self, how="fit", random_state=None):
        self.how = how
        self.random_state = random_state

    def fit(self, X, y):  # noqa: ARG002 (the interface of a model)
        warnings.warn("about private records", UserWarning, stacklevel=1)
        if self.how == "fit":
            raise ValueError("about private records")
        X[:] = 0  # must not change the records of other teachers
        return self

    def predict(self, X):
        if self.how == "predict":
            raise RuntimeError("about private records")
        wrong = {"nan": np.nan, "beyond": 99, "below": -5, "text": "x", "part": 0.5}
        if self.how == "short":
            return np.zeros(1)
        return np.full(len(X), wrong[self.how])


TRAINING_PART = np.arange(12.0).reshape(6, 2), np.array([1, 2, 1, 2, 1, 2], np.int32)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "how", ["fit", "predict", "nan", "beyond", "below", "text", "part", "short"]
)
def test_a_teacher_that_fails_votes_all_the_same(how):
    """Fails if an error, a warning or an invalid prediction of a teacher becomes visible."""
    X, labels = TRAINING_PART[0].copy(), TRAINING_PART[1].copy()
    votes = Teacher(Odd(how), X, labels, 3, 0).vote(np.zeros((4, 2)))
    np.testing.assert_array_equal(votes, [FALLBACK] * 4)
    np.testing.assert_array_equal(X, TRAINING_PART[0])


def test_every_teacher_has_one_vote():
    teachers = [Teacher(Odd(how), *TRAINING_PART, 3, 0) for how in ("fit", "predict", "nan")]
    knowing = Teacher(KNeighborsClassifier(1), *TRAINING_PART, 3, 0)
    counts = count_votes([*teachers, knowing], TRAINING_PART[0], 3)
    np.testing.assert_array_equal(counts.sum(axis=1), [4] * 6)
    np.testing.assert_array_equal(counts[:, 1:].argmax(axis=1) + 1, TRAINING_PART[1])


def test_teachers_do_not_share_randomness():
    """Fails if the training of a teacher changes the randomness of another one."""
    key = fresh_key()
    assert len({derive_seed(number, key) for number in range(50)}) == 50
    model = make_pipeline(StandardScaler(), RandomForestClassifier(3))
    state_before = np.random.get_state()[1].tolist()  # noqa: NPY002 (the state that teachers must not touch)
    teachers = [Teacher(model, *TRAINING_PART, 3, seed) for seed in (1, 1, 2)]
    state_after = np.random.get_state()[1].tolist()  # noqa: NPY002 (as above)
    assert state_after == state_before
    forests = [teacher._model[-1] for teacher in teachers]
    assert [forest.random_state for forest in forests] == [1, 1, 2]
    assert model[-1].random_state is None


def test_one_subject_moves_one_vote_between_two_classes():
    """Fails if removing a subject changes the vote of more than one teacher."""
    y = (np.arange(300) % 3).astype(np.int32)
    X = np.random.default_rng(0).normal(size=(300, 5)) + 5 * np.eye(3, 5)[y]
    ids, key = np.arange(300) // 2, b"a key"
    queries = 5 * np.random.default_rng(1).normal(size=(50, 5))

    def counts(is_enrolled):
        rows, labels, own_ids = X[is_enrolled], y[is_enrolled], ids[is_enrolled].tolist()
        teachers = train_teachers(KNeighborsClassifier(1), rows, labels, own_ids, key, 12, 3)
        return count_votes(teachers, queries, 3)

    full_result = counts(np.ones(300, dtype=bool))
    changed = 0
    for erased in range(0, 150, 10):
        moved = np.abs(full_result - counts(ids != erased))
        assert moved.max() <= 1
        assert moved.sum(axis=1).max() <= 2
        changed += moved.any()
    assert changed > 0
