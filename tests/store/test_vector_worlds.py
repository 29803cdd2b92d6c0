"""Two worlds through the door of a store of vectors, and copies of such stores.

Noise is silenced: the shift of all answers together by a subject, in noise scales, is at most the
root of twice the budget, exactly; so no attack on noisy answers gains more.
"""

import numpy as np
import pytest

import store_tools as tools
from made_up import NoNoise
from vicinal.accounting.budget import UNITS
from vicinal.errors import PrivacyRefused
from vicinal.ledger.tables import Tables
from vicinal.store import Store

PLAN = {"epsilon": 1.0, "n_queries": 60, "n_neighbors": 40, "noise_multiplier": 0.5}
targets = pytest.mark.parametrize("target", tools.TARGETS)
VICTIM = ["victim"] * 5


def open_world(path, target, *, present):
    """Return a store with or without one subject that has five records around the first query."""
    y, declared = tools.TARGETS[target]
    rows = np.argsort(np.square(tools.X - tools.Q[0]).sum(axis=1))[:5]
    indices, subject_ids = np.arange(len(y)), tools.PEOPLE
    if present:
        indices, subject_ids = np.append(indices, rows), [*subject_ids, *VICTIM]
    given = {"public": tools.R, "n_records": 300, **declared, **PLAN}
    store = Store.init(path, tools.X[indices], y[indices], subject_ids, **given)
    store._audience_states["default"].engine.votes.noise_source = NoNoise()
    return store, tools.X[rows], y[rows]


def answer_queries(path, target, damage=None, *, present):
    """Return all answers to eight requests, with an erasure and a return between them."""
    store, X, y = open_world(path, target, present=present)
    noiseless_sums = []
    with store:
        for number in range(8):
            if damage is not None and number:
                damage(store)
            if number == 4 and present:
                store.erase(["victim"])
                if damage is forget_who_left:
                    damage(store)
                store.add(X, y, VICTIM)
            # A replay shows nothing new and costs nothing, so each request is a little different.
            reply = store.predict(tools.Q[:2] + 0.05 * number)
            assert reply.charged == 2
            noiseless_sums.append(reply.sums)
        state = store._audience_states["default"]
        grid = state.engine.votes.grid
        scale = grid.convert_noise(state.noise_scale) / grid.steps  # a little more, rounded up
        return np.concatenate(noiseless_sums) / scale, 2 * state.plan.interaction_budget


def measure_shift(tmp_path, target, damage=None):
    """Return the shift of all answers by one subject, relative to the shift its budget allows."""
    sums_with, allowed = answer_queries(tmp_path / "with", target, damage, present=True)
    sums_without, _ = answer_queries(tmp_path / "without", target, damage, present=False)
    return np.square(sums_with - sums_without).sum() / allowed


def forget_who_left(store):
    """Broken control: the budgets of erased subjects are forgotten."""
    with store._store.database.transaction():
        store._store.database.delete(Tables.DEPARTED)


@targets
def test_a_person_moves_all_answers_by_no_more_than_its_budget(tmp_path, target):
    """Fails if a charge is lost on the way to the disk, or a return refills."""
    assert 0.9 < measure_shift(tmp_path, target) <= 1


@targets
def test_a_store_that_forgets_who_left_is_caught(tmp_path, target):
    assert measure_shift(tmp_path, target, forget_who_left) > 1.5


def test_budgets_that_were_put_back_are_noticed_before_an_answer_leaves(tmp_path):
    store, _, _ = open_world(tmp_path / "store", "numbers", present=True)
    with store:
        store.predict(tools.Q[:2])
        store._audience_states["default"].audience.account.remaining[:] = UNITS
        with pytest.raises(PrivacyRefused, match="do not add up"):
            store.predict(tools.Q[2:4])
