"""Two worlds of PATE at few people: the exact law of what leaves, and what a person changes.

Teachers say what most of their people say, so the law of the labels can be written down: who has
which teacher is enumerated, and each label is a threshold of a normal margin. (1) What the
estimator returns has that law. (2) Over *all* small data sets, the law with a person and without
are no further apart than the accounting says. Broken mechanisms fail (1), broken claims (2).
"""

from copy import copy
from functools import partial
from itertools import product

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binom
from sklearn.base import BaseEstimator, ClassifierMixin

from statistical.power import P_VALUE
from statistical.small_data import ORDERS, law_p, worst_over_all_data
from vicinal.accounting import Plan
from vicinal.baselines import PATEClassifier
from vicinal.mechanisms.planned_releases import NoisyMax
from vicinal.mechanisms.teachers import assign_teachers

pytestmark = pytest.mark.statistical

FITS = 450
"""Estimators that are fitted: each broken mechanism passes with probability below 1e-6."""

ANSWERS = 3
SIGMA = 0.7


class Majority(ClassifierMixin, BaseEstimator):
    """Says what most of its records say, 0 at a tie."""

    def fit(self, X, y):  # noqa: ARG002
        self.label_ = int(2 * y.sum() > len(y))
        return self

    def predict(self, X):
        return np.full(len(X), self.label_)


def says(labels):
    """Return what a teacher with these people says; 0 without any."""
    return int(2 * sum(labels) > len(labels))


def law(labels, teachers):
    """Return the chances of 0 .. ANSWERS labels 0, over everybody's teacher and all noise."""
    total = np.zeros(ANSWERS + 1)
    for parts in product(range(teachers), repeat=len(labels)):
        votes = [
            says([y for y, part in zip(labels, parts, strict=True) if part == teacher])
            for teacher in range(teachers)
        ]
        first = ndtr((teachers - 2 * sum(votes)) / (np.sqrt(2) * SIGMA))
        total += binom.pmf(np.arange(ANSWERS + 1), ANSWERS, first)
    return total / teachers ** len(labels)


def ask(labels, teachers, ids=None):
    """Return how often each number of labels 0 came of `ANSWERS` queries, over many fits."""
    found = np.zeros(ANSWERS + 1)
    places, y = np.zeros((len(labels), 1)), np.array(labels)
    for _ in range(FITS):
        estimator = PATEClassifier(
            range(2), teachers, sigma_votes=SIGMA, teacher=Majority(), n_queries=ANSWERS,
            release="label",
        ).fit(places, y, ids)  # fmt: skip
        found[(estimator.predict(np.zeros((ANSWERS, 1))) == 0).sum()] += 1
    return found


@pytest.mark.parametrize(
    ("labels", "teachers"), [((1, 1, 0, 1), 1), ((1, 1, 0, 1), 2), ((1, 0), 3)]
)
def test_labels_have_the_exact_law(labels, teachers):
    assert law_p(ask(labels, teachers), law(labels, teachers)) > P_VALUE


MANY = (1, 1, 1, 0, 1), ("one", "one", "one", "b", "one")


def test_a_person_with_many_records_has_one_teacher():
    """Fails if records of one person go to several teachers, as `by_record` below lets them."""
    found = ask(MANY[0], 3, MANY[1])
    # With all four records at one teacher, who then says 1 whoever else is there.
    assert law_p(found, law((1, 1, 1, 1, 0), 3)) < P_VALUE
    assert law_p(found, law_of_a_person_of_four()) > P_VALUE


def law_of_a_person_of_four():
    """Return the law of one person with four records 1, and another with one record 0.

    Whichever teacher has the four says 1, also in the other's company; both others say 0.
    """
    first = ndtr(1 / (np.sqrt(2) * SIGMA))
    return binom.pmf(np.arange(ANSWERS + 1), ANSWERS, first)


def quieter(patch):
    """Draw half of the noise."""
    honest = NoisyMax.publish

    def publish(self, votes):
        half = copy(self)
        half.scale = self.scale // 2
        return honest(half, votes)

    patch.setattr(NoisyMax, "publish", publish)


def equal_parts(patch):
    """Cut a random order into parts of equal size, as is usual; cuts move when a subject leaves."""
    rng = np.random.default_rng(0)

    def cut(ids, key, n_teachers):  # noqa: ARG001 (takes the place of a function)
        return rng.permutation(len(ids)) % n_teachers

    patch.setattr("vicinal.mechanisms.teachers.assign_teachers", cut)


def one_teacher(patch):
    """Give everybody the same teacher."""
    patch.setattr(
        "vicinal.mechanisms.teachers.assign_teachers",
        lambda ids, *_: np.zeros(len(ids), dtype=np.int64),
    )


BROKEN = {
    "too little noise": (quieter, 1),
    "parts of equal size": (equal_parts, 2),
    "one teacher for all": (one_teacher, 2),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_mechanism_is_caught(monkeypatch, broken):
    breaks, teachers = BROKEN[broken]
    breaks(monkeypatch)
    assert law_p(ask((1, 1, 0, 1), teachers), law((1, 1, 0, 1), teachers)) < P_VALUE


def test_teachers_by_record_are_caught(monkeypatch):
    honest = assign_teachers

    def by_record(ids, key, n_teachers):
        return honest(list(range(len(ids))), key, n_teachers)

    monkeypatch.setattr("vicinal.mechanisms.teachers.assign_teachers", by_record)
    assert law_p(ask(MANY[0], 3, MANY[1]), law_of_a_person_of_four()) < P_VALUE


def claimed(sensitivity=1.0):
    """Return the RDP that the accounting says of `ANSWERS` labels; the argument makes it wrong."""
    release = {"kind": "gnmax", "sigma": SIGMA / sensitivity, "count": ANSWERS, "release": "label"}
    return Plan.from_dict({"delta": 1e-5, "releases": [release]}).composition().rdp(ORDERS)


@pytest.mark.parametrize("teachers", [1, 2, 3])
def test_no_data_set_leaks_more_than_is_claimed(teachers):
    assert (worst_over_all_data(partial(law, teachers=teachers)) <= claimed()).all()


def test_the_claim_is_not_idle_and_a_wrong_one_is_caught():
    """With one teacher a person decides its vote: the claim's worst case, but for a margin."""
    assert worst_over_all_data(partial(law, teachers=1))[0] >= 0.4 * claimed()[0]
    assert (worst_over_all_data(partial(law, teachers=1)) > claimed(sensitivity=0.5)).any()
