"""Audits that ship, each carried out once: no claim is passed, every broken version is caught."""

import math

import pytest

from statistical.power import CONFIDENCE
from vicinal.audit import IndKNNAudit, all_trials, carry_out, one_run

pytestmark = [pytest.mark.statistical, pytest.mark.slow]

AUDIT = IndKNNAudit(n_classes=3, epsilon=4.0)
TRIALS = all_trials(AUDIT)

TIGHT = {"votes": 0.7, "votes-two-labels": 0.7, "pate": 0.7, "private-knn-all": 0.5, "count": 0.7}
"""Ratios that so few runs reach, where a claim is met."""

RUNS = {"private-knn-all": 40_000, "count": 20_000, "private-knn-plan": 512, "pate-plan": 512}
"""Where a broken version needs more of them, and they are cheap; or each run is a fit."""


@pytest.mark.parametrize("name", TRIALS)
def test_no_claim_is_passed_and_every_broken_version_is_caught(name):
    found = carry_out(TRIALS[name](), seconds=math.inf, runs=RUNS.get(name, 4000))
    print(f"{name}: ratio {found.ratio:.2f}, epsilon {found.epsilon_lower:.2f}")
    assert found.lower <= found.claim
    assert found.epsilon_lower <= found.epsilon_claim
    assert found.ratio >= TIGHT.get(name, 0.0)
    assert [control.name for control in found.controls if not control.caught] == []


KINDS = {
    "votes": {},
    "labels": {"release": "label"},
    "numbers": {"target": {"bounds": (-1, 3)}},
    "several labels": {"target": {"labels": range(20), "tau": 2.0}},
}


@pytest.mark.parametrize("kind", KINDS)
def test_one_interaction_gives_away_what_is_claimed_and_shows_every_fault(kind):
    audit = IndKNNAudit(2, epsilon=4.0)
    found = one_run(audit, canaries=6000, confidence=CONFIDENCE, **KINDS[kind])
    assert found.local
    assert (0.5 if kind == "labels" else 0.7) < found.ratio <= 1
    assert found.controls
    assert all(control.caught for control in found.controls)
