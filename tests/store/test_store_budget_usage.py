"""The budget usage that a store reports: estimated on public points, independent of records."""

import json

import pytest

from command_line import printed
from made_up import raising
from store_tools import PLAN, Q, R, broken_off, make, points
from vicinal.accounting.budget import UNITS
from vicinal.engine.proxy_ledger import FULL_SHARE
from vicinal.store import Store, status


def usage(store, audience="default"):
    return store.facts()["audiences"][audience]["usage"]


def test_usage_grows_with_new_answers_and_outlives_the_process(tmp_path):
    with make(tmp_path / "store") as store:
        assert usage(store)["mean"] == 0
        assert usage(store)["training"] is None
        store.predict(Q[:20])
        some = usage(store)
        assert 0 < some["mean"] < some["quantiles"]["99%"] <= 1
        store.predict(Q[:20])
        assert usage(store) == some
        store.predict(Q[20:40])
        more = usage(store)["mean"]
        assert more > some["mean"]
    assert f"{more:.0%} on average, " in printed("inspect", tmp_path / "store")
    plain = json.loads(printed("inspect", tmp_path / "store", "--json"))["audiences"]["default"][
        "usage"
    ]
    with Store.open(tmp_path / "store") as store:
        assert usage(store) == plain
        assert more - 1e-12 <= plain["mean"] <= more + 2 / FULL_SHARE
        store.predict(Q[40:])
        assert usage(store)["mean"] > plain["mean"]


def test_the_usage_states_what_training_used(tmp_path):
    with make(tmp_path / "store", release="votes", model_share=0.5) as store:
        trained = usage(store)
        assert 0 < trained["training"] <= 0.5
        assert trained["training"] == pytest.approx(trained["mean"], abs=1e-6)
        store.predict(Q[:30])
        answered = usage(store)
        assert answered["training"] == trained["training"] < answered["mean"]
    share = f"{trained['training']:.0%}"
    phrase = f"on average ({share} by the latest training of the private model), "
    assert phrase in printed("inspect", tmp_path / "store")


def test_answers_that_are_not_released_use_nothing(store, monkeypatch):
    store.predict(Q[:10])
    previous_usage = usage(store)
    monkeypatch.setattr(store._store.ledger, "commit", raising(RuntimeError))
    with broken_off(monkeypatch, "vicinal.store.request_batch.pack_answers", error=RuntimeError):
        store.predict(Q[10:30])
    assert usage(store)["mean"] == pytest.approx(previous_usage["mean"], abs=2 / FULL_SHARE)


def estimate_from_records(state):
    """Broken control: the usage is computed from the records' own budgets."""
    return {"mean": 1 - state.audience.account.remaining.mean() / UNITS}


@pytest.mark.parametrize("is_broken", [False, True])
def test_the_usage_is_the_same_whichever_subjects_are_in_the_data(tmp_path, monkeypatch, is_broken):
    if is_broken:
        monkeypatch.setattr(status, "_estimate_budget_usage", estimate_from_records)
    means = []
    for name, (size, seed) in {"a": (300, 5), "b": (40, 77)}.items():
        settings = {"classes": range(3), "public": R, "n_records": 300, **PLAN}
        with Store.init(tmp_path / name, *points(size, seed), None, **settings) as store:
            store.predict(Q)
            means.append(usage(store)["mean"])
    assert min(means) > 0.05
    assert (means[0] == means[1]) != is_broken


def test_each_audience_has_its_own_usage_and_an_accepted_loss_makes_it_unknown(tmp_path):
    with make(tmp_path / "store") as store:
        store.open_audience("press", **{**PLAN, "n_records": 300})
        store.predict(Q[:30])
        assert usage(store, "press")["mean"] == 0
        assert usage(store)["mean"] > 0
        store.backup(tmp_path / "backup")
    with Store.restore(tmp_path / "backup", tmp_path / "again", accept_loss=True) as restored:
        assert usage(restored) is None, "nobody knows what was charged since the backup"
