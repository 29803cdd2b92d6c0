"""Figures of audits: how often they are wrong, how soon they catch, what a service gives away."""

import math

import numpy as np
import pytest

from experiments.audits import power, service
from experiments.audits.adversaries import Adversary, Margin
from vicinal.audit import AuditTrial, GaussianClaim, IndKNNAudit


class Shift(AuditTrial):
    """A Gaussian shift, beside a claim that may be too small."""

    mechanism, world = "shift", "anywhere"

    def __init__(self, shift, claim):
        self.shift, self.claim = shift, GaussianClaim(claim, 1e-5)
        self.rng = np.random.default_rng(2)

    def play(self, present):
        return self.rng.normal(size=1000) + self.shift * present

    def controls(self):
        return {"broken": Shift(3.0, 1.0)}


def test_small_audits_are_wrong_as_seldom_as_the_table_allows():
    makers = {"kept": lambda: Shift(1.0, 1.0), "passed": lambda: Shift(2.0, 1.0)}
    kept, passed = power.wrong(makers, audits=40, runs=100, confidence=0.9)
    assert (kept.audits, kept.allowed) == (40, pytest.approx(0.1))
    assert kept.above <= 4
    assert passed.above > 30


def test_a_broken_version_is_caught_and_timed():
    (found,) = power.caught({"shift": lambda: Shift(1.0, 1.0)}, 3, math.inf, 1 - 1e-6)
    assert (found.caught, found.audits, found.most_runs) == (3, 3, 1000)


def test_the_area_under_a_curve_is_that_of_all_pairs():
    rng = np.random.default_rng(0)
    present, absent = rng.integers(0, 9, 60).astype(float), rng.integers(0, 9, 50).astype(float)
    pairs = (present[:, None] > absent).mean() + (present[:, None] == absent).mean() / 2
    area, low, high = service.auc_interval(present, absent)
    assert area == pytest.approx(pairs)
    assert low < area < high


def test_the_interval_of_an_area_is_wrong_as_seldom_as_it_says():
    rng = np.random.default_rng(1)
    found = [service.auc_interval(*rng.normal(size=(2, 100))) for _ in range(400)]
    assert np.mean([low <= 0.5 <= high for _, low, high in found]) > 0.92
    _, low, _ = service.auc_interval(rng.normal(size=100) + 1, rng.normal(size=100))
    assert low > 0.5, "a difference is seen"


@pytest.mark.slow
def test_a_service_gives_away_no_more_than_it_claims():
    """Two worlds over HTTP, in short; `python -m experiments audit-service` has the figures."""
    seen = service.attacked(IndKNNAudit(2, 4.0), 0.0, 60, rounds=1, stores=1, confidence=1 - 1e-6)
    assert seen.lower <= seen.claim
    assert seen.universes == 60
    assert 0 <= seen.low < seen.high <= 1 or seen.auc in (0, 1)


def test_adversaries_are_named_by_what_they_choose():
    assert str(Adversary(data=True, neighbors=False, queries=True)) == "data, queries"
    assert str(Adversary(data=False, neighbors=False, queries=False)) == "nothing"


def test_a_lead_counts_for_the_class_of_the_subject():
    answers = np.array([[5.0, 2.0], [1.0, 4.0]])
    assert Margin(0).score(np.array([True, False, True]), answers).tolist() == [3, 0, -3]
    assert Margin(1).score(np.array([True, True]), answers).tolist() == [-3, 3]
