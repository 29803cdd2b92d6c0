"""Two worlds, with and without one person evaluated: noisy tallies tell no more than they cost.

Noise is the exact one, from the system's entropy. The attacker knows everything but whether the
victim is there, and tests the released tables by their likelihood ratio.
"""

from functools import partial

import numpy as np
import pytest

from statistical.power import BROKEN_RUNS
from statistical.worlds import audit_of_sums
from vicinal.accounting import UNITS
from vicinal.mechanisms import DeltaSlackAccountant, NoisyTally, TallyPlan

pytestmark = pytest.mark.statistical

BUDGET, SHARE, DELTA = 4.2, 0.1, 1e-5
CLAIM = float(np.sqrt(2 * SHARE * BUDGET))
SIZES = (4, 6)
OTHERS = [[0, 0], [1, 1], [3, 5]]


def released(rows, present, noise):
    """Return all counts, with or without a victim of so many equal rows."""
    victim = [[2, 3]] * rows if present else []
    cells = np.array(OTHERS + victim)
    people = np.array([*range(len(OTHERS)), *[len(OTHERS)] * len(victim)])
    remaining = np.full(len(OTHERS) + 1, UNITS, dtype=np.int64)
    plan = TallyPlan(SIZES, SHARE, BUDGET, DELTA)
    tally = NoisyTally(plan, noise, DeltaSlackAccountant(1.0, needed=False))
    return np.concatenate(tally.publish(tally.collect(cells, people, remaining)))


@pytest.mark.parametrize("rows", [1, 5])
def test_a_person_shows_no_more_than_the_share_and_nearly_as_much(rows):
    found = audit_of_sums(partial(released, rows), DELTA)
    assert CLAIM / 2 < found.mu <= CLAIM


def test_an_audit_finds_a_tally_that_forgets_who_the_rows_belong_to(monkeypatch):
    """Broken control: every row counts as a subject of its own, so five rows weigh five."""
    honest = NoisyTally.collect

    def forgetful(self, cells, slots, remaining):  # noqa: ARG001 (takes the place of a method)
        return honest(self, cells, np.arange(len(cells)), np.full(len(cells), UNITS))

    monkeypatch.setattr(NoisyTally, "collect", forgetful)
    assert audit_of_sums(partial(released, 5), DELTA, BROKEN_RUNS).mu > CLAIM
