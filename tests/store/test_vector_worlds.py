"""Two worlds through the door of a store of vectors, and copies of such stores.

Noise is silenced: what a person moves in all answers together, in noise scales, is at most the root
of twice the budget, exactly; so no attack on noisy answers gains more.
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


def opened(path, target, *, present):
    """Return a store with or without one person, who has five records around the first query."""
    y, declared = tools.TARGETS[target]
    rows = np.argsort(np.square(tools.X - tools.Q[0]).sum(axis=1))[:5]
    X, people = tools.X, tools.PEOPLE
    if present:
        X, y, people = np.vstack([X, X[rows]]), np.concatenate([y, y[rows]]), [*people, *VICTIM]
    store = Store.init(path, X, y, people, public=tools.R, n_records=300, **declared, **PLAN)
    store._audience_states["default"].engine.votes.noise = NoNoise()
    return store, tools.X[rows], tools.TARGETS[target][0][rows]


def sums(path, target, damage=None, *, present):
    """Return all answers to eight requests, with an erasure and a return between them."""
    store, X, y = opened(path, target, present=present)
    found = []
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
            found.append(reply.sums)
        state = store._audience_states["default"]
        grid = state.engine.votes.grid
        scale = grid.scale(state.noise_scale) / grid.steps  # a little more, rounded up
        return np.concatenate(found) / scale, 2 * state.settings.spendable


def moved(tmp_path, target, damage=None):
    """Return by how much of what its budget allows a person moved all answers together."""
    there, allowed = sums(tmp_path / "with", target, damage, present=True)
    gone, _ = sums(tmp_path / "without", target, damage, present=False)
    return np.square(there - gone).sum() / allowed


def forget_who_left(store):
    """Broken: whoever left is forgotten."""
    with store._parts.database.transaction():
        store._parts.database.delete(Tables.DEPARTED)


@targets
def test_a_person_moves_all_answers_by_no_more_than_its_budget(tmp_path, target):
    """Fails if a charge is lost on the way to the disk, or a return refills."""
    assert 0.9 < moved(tmp_path, target) <= 1


@targets
def test_a_store_that_forgets_who_left_is_caught(tmp_path, target):
    assert moved(tmp_path, target, forget_who_left) > 1.5


def test_budgets_that_were_put_back_are_noticed_before_an_answer_leaves(tmp_path):
    store, _, _ = opened(tmp_path / "store", "numbers", present=True)
    with store:
        store.predict(tools.Q[:2])
        store._audience_states["default"].audience.account.remaining[:] = UNITS
        with pytest.raises(PrivacyRefused, match="do not add up"):
            store.predict(tools.Q[2:4])
