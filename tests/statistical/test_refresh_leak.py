"""Two worlds of a model that a store trains again: both trainings lose what the victim paid.

As in test_private_model_leak.py: at the weights of world A, sums are taken with the victim and
without, and their difference under the noise of a step is the zCDP that leaves.
"""

import numpy as np
import pytest

from made_up import clouds, trains_free
from vicinal.accounting import UNITS
from vicinal.errors import PrivacyRefused
from vicinal.ledger import StoredAccount
from vicinal.linear import STEPS, ModelFeatures
from vicinal.mechanisms import (
    DeltaSlackAccountant,
    GradientRelease,
    IndividualGradient,
    SubjectRows,
    randomness,
)
from vicinal.store import Store

pytestmark = pytest.mark.statistical

N, D, CLASSES, VICTIM = 300, 5, 3, 17
X, Y = clouds(0, N, D)
R, _ = clouds(1, 80, D)


def store_of(path):
    return Store.init(
        path, X, Y, np.arange(N), classes=range(CLASSES), public=R, epsilon=4.0, n_queries=50,
        n_records=N, model_share=0.8, model_refreshes=1, simulation_seed=7,
    )  # fmt: skip


def without_victim(store, release, weights, remaining):
    """Return the sums of a step in the world without the victim; others have the same budgets."""
    stay = np.arange(N) != VICTIM
    kernel = store.schema.kernel_of(None)
    public, integers = (kernel.encode(rows).astype(np.float32) for rows in (R, X[stay]))
    features = ModelFeatures.of(public, lifted=kernel.lifts)
    rows, slots = features.rows(integers), np.arange(N - 1, dtype=np.int32)
    people = SubjectRows(rows, Y[stay].astype(np.int32), slots, N - 1)
    made = release.mechanism
    twin = IndividualGradient(
        people, CLASSES, made.unit, made.clip, release.noise, 1.0, made._budget, randomness(0),
        DeltaSlackAccountant(1e-5, needed=False),
    )  # fmt: skip
    mirrored = GradientRelease(twin, release.scale, release.rate)
    return mirrored.collect(weights, remaining[stay].copy())[0]


def loss_and_price(path, patch, control=None):
    """Return the zCDP that both trainings lose about the victim, and what the victim paid."""
    steps, honest = [], GradientRelease.collect

    def watched(self, weights, remaining):
        before = remaining.copy()
        sums, spent = honest(self, weights, remaining)
        steps.append((self, weights.copy(), before, sums.copy()))
        return sums, spent

    patch.setattr(GradientRelease, "collect", watched)
    with store_of(path) as store:
        if control is not None:
            control(patch)
        store.refresh_model()
        patch.setattr(GradientRelease, "collect", honest)
        account = store._parts.ledger.audiences["default"].account
        slot = store._parts.ledger.slot_table.slot_of[VICTIM]
        paid = (UNITS - int(account.durable[slot])) / UNITS
        loss = 0.0
        for release, weights, before, sums in steps:
            other = without_victim(store, release, weights, before)
            loss += np.square((sums - other).astype(float)).sum() / (2 * release.scale**2)
    assert len(steps) == 2 * STEPS
    return loss, paid * steps[0][0].mechanism._budget


def charges_nobody(patch):
    """Have the refresh charge a copy, and tell nobody what it took."""
    trains_free(patch)
    patch.setattr(StoredAccount, "note_charged_total", lambda *_: None)


def test_both_trainings_lose_what_the_victim_paid(tmp_path, monkeypatch):
    loss, paid = loss_and_price(tmp_path / "store", monkeypatch)
    assert 0 < loss <= paid * (1 + 1e-9)
    assert paid <= loss * (1 + 1e-3)


def test_one_training_of_several_takes_no_more_than_its_part(tmp_path, monkeypatch):
    """Nothing stops a subject there, so noise must not be for more than the part."""
    monkeypatch.setattr("vicinal.linear._descent.MOST_CLIP", 0.25)  # so that gradients are cut
    with store_of(tmp_path / "store") as store:
        durable = store._parts.ledger.audiences["default"].account.durable
        assert 0.2 * UNITS < (UNITS - durable).max() <= 0.4 * UNITS


def test_a_refresh_that_charges_nobody_is_caught(tmp_path, monkeypatch):
    loss, paid = loss_and_price(tmp_path / "store", monkeypatch, charges_nobody)
    assert loss > 1.2 * paid


def test_a_refresh_on_a_copy_of_the_budgets_is_refused(tmp_path, monkeypatch):
    with pytest.raises(PrivacyRefused, match="do not add up"):
        loss_and_price(tmp_path / "store", monkeypatch, trains_free)
