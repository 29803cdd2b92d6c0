"""Audits of estimators with vectors: two worlds, and broken versions that are caught.

Noise is the exact one, from the system's entropy, in every audit here.
"""

import numpy as np
import pytest

from statistical.power import BROKEN_RUNS, RUNS, UNIVERSES
from statistical.test_two_worlds import (
    BUDGET,
    DELTA,
    EPSILON,
    Case,
    check_leak,
    claim_beside,
    halve_the_noise,
)
from statistical.worlds import charge_only, universes
from vicinal import IndKNNMultiLabelClassifier, IndKNNRegressor
from vicinal.mechanisms import VoteRelease
from vicinal.planning import IndKNNPlan

pytestmark = [pytest.mark.statistical, pytest.mark.slow]

LASTS = 2.5
"""Queries that a victim's budget lasts for."""


class VectorCase(Case):
    """A case whose estimator is given as a class under "estimator"."""

    def make(self):
        given = dict(self.parameters)
        return given.pop("estimator")(**given)


def vector_case(victim, others, rounds=4, **estimator):
    """Return a case in which a victim's budget lasts for `LASTS` queries of what it adds."""
    made = estimator["estimator"](**{k: v for k, v in estimator.items() if k != "estimator"})
    vectors = IndKNNPlan.of(made).target.encode([y for _, y in victim], len(victim)).dense()
    length = np.linalg.norm(np.array([cosine for cosine, _ in victim]) @ vectors)
    neighbors = 4
    parameters = {
        "epsilon": EPSILON, "delta": DELTA, "n_queries": 10_000, "n_neighbors": neighbors,
        "n_records": neighbors * UNIVERSES,
        "noise_multiplier": length * np.sqrt(LASTS / (2 * BUDGET) / neighbors), **estimator,
    }  # fmt: skip
    return VectorCase(parameters, universes(victim, others, rounds=rounds))


def numbers(rounds=4):
    """Three records with numbers on both sides of the middle."""
    victim = [(1.0, 3.0), (0.98, 2.5), (0.95, -0.5)]
    return vector_case(victim, [(0.9, 1.0)] * 2, rounds, estimator=IndKNNRegressor, bounds=(-1, 3))


def numbers_asked_often():
    return numbers(rounds=10)


def label_sets():
    """Two records with several labels, of which they share one."""
    victim = [(1.0, [1, 1, 0]), (0.97, [0, 1, 1])]
    others = [(0.9, [0, 0, 1]), (0.9, [1, 0, 0])]
    return vector_case(victim, others, estimator=IndKNNMultiLabelClassifier, labels=["a", "b", "c"])


@pytest.mark.parametrize("case", [numbers, label_sets])
def test_sums_leak_no_more_than_claimed_and_nearly_that(case):
    """Fails if an attack gains more than the budget allows; or too little to be a test at all."""
    check_leak(case(), RUNS)


def charge_records_one_by_one(patch):
    """Three records that point the same way pay as if each had come alone: a third."""
    charge_only(patch, VoteRelease, lambda cost: cost // 3)


def charge_only_the_weight(patch):
    """What a record says is free: the length of (a, b z) is taken to be a."""
    charge_only(patch, VoteRelease, lambda cost: cost // 4)


@pytest.mark.parametrize(
    ("break_it", "case"),
    [
        pytest.param(halve_the_noise, numbers, id="noise halved"),
        pytest.param(halve_the_noise, label_sets, id="noise on labels halved"),
        pytest.param(charge_records_one_by_one, numbers_asked_often, id="records one by one"),
        pytest.param(charge_only_the_weight, numbers_asked_often, id="only the weight"),
    ],
)
def test_a_broken_version_is_caught(break_it, case, monkeypatch):
    case = case()
    break_it(monkeypatch)
    measured = case.measured(BROKEN_RUNS)
    assert measured.mu > claim_beside(measured, case)
