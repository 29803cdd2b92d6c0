"""Two worlds, with and without one subject: the noisy marginals tell no more than they cost.

Noise is the exact one, from the system's entropy. The attacker knows everything but whether the
victim is there, and tests the released cells by their likelihood ratio.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from statistical.power import BROKEN_RUNS
from statistical.worlds import audit_of_sums
from vicinal.mechanisms import _marginals, noisy_marginals

pytestmark = pytest.mark.statistical

COST, DELTA = 0.42, 1e-5
CLAIM = float(np.sqrt(2 * COST))
SIZES = (2, 3)
OTHERS = [[0, 0], [1, 2], [0, 1], [1, 1]]


def released(records, present, noise):
    """Return all cells, flat, of a table with or without a victim of so many equal records."""
    victim = [[1, 0]] * records if present else []
    cells = np.array(OTHERS + victim)
    slots = np.array([*range(len(OTHERS)), *[len(OTHERS)] * len(victim)])
    found = noisy_marginals(cells, SIZES, slots, COST, DELTA, noise)
    return np.concatenate([part.ravel() for part in (*found.one_way, *found.two_way.values())])


@pytest.mark.parametrize("records", [1, 5])
def test_a_subject_shows_no_more_than_its_cost_and_nearly_as_much(records):
    found = audit_of_sums(partial(released, records), DELTA)
    assert CLAIM / 2 < found.mu <= CLAIM


def test_an_audit_finds_a_mechanism_that_forgets_who_the_records_belong_to(monkeypatch):
    """Broken control: every record weighs one, so that five records weigh five."""

    def forgetful(slots, steps):
        return np.full(len(slots), steps, dtype=np.int64)

    monkeypatch.setattr(_marginals, "_weights", forgetful)
    assert audit_of_sums(partial(released, 5), DELTA, BROKEN_RUNS).mu > CLAIM
