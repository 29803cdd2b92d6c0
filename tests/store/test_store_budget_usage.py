"""The budget usage that a store reports: estimated on public points, independent of records."""

import json

import pytest
from typer.testing import CliRunner

from made_up import raising
from store_tools import PLAN, Q, R, broken_off, make, points
from vicinal.accounting.budget import UNITS
from vicinal.cli.main import app
from vicinal.engine.proxy_ledger import FULL_SHARE
from vicinal.store import Store, status


def usage(store, audience="default"):
    return store.facts()["audiences"][audience]["usage"]


def test_wear_grows_with_answers_and_not_with_replays(tmp_path):
    with make(tmp_path / "store") as store:
        assert usage(store)["mean"] == 0
        store.predict(Q[:20])
        some = usage(store)
        assert 0 < some["mean"] < some["quantiles"]["99%"] <= 1
        store.predict(Q[:20])
        assert usage(store) == some
        store.predict(Q[20:40])
        assert usage(store)["mean"] > some["mean"]


def test_the_usage_states_what_training_used(tmp_path):
    with make(tmp_path / "plain") as store:
        assert usage(store)["training"] is None
    with make(tmp_path / "store", release="votes", model_share=0.5) as store:
        trained = usage(store)
        assert 0 < trained["training"] <= 0.5
        assert trained["training"] == pytest.approx(trained["mean"], abs=1e-6)
        store.predict(Q[:30])
        answered = usage(store)
        assert answered["training"] == trained["training"] < answered["mean"]
    printed = CliRunner().invoke(app, ["inspect", str(tmp_path / "store")]).stdout
    share = f"{trained['training']:.0%}"
    assert f"on average ({share} by the latest training of the private model), " in printed
    printed = CliRunner().invoke(app, ["inspect", str(tmp_path / "plain")]).stdout
    assert "on average, " in printed


def test_wear_outlives_the_process(tmp_path):
    store = make(tmp_path / "store")
    store.predict(Q[:30])
    previous_usage = usage(store)
    store.close()
    with Store.open(tmp_path / "store") as store:
        new_usage = usage(store)
        assert new_usage["mean"] == pytest.approx(previous_usage["mean"], abs=2 / FULL_SHARE)
        assert new_usage["mean"] >= previous_usage["mean"] - 1e-12
        store.predict(Q[30:])
        assert usage(store)["mean"] > new_usage["mean"]


def test_what_is_not_released_wears_nothing(tmp_path, monkeypatch):
    with make(tmp_path / "store") as store:
        store.predict(Q[:10])
        previous_usage = usage(store)
        monkeypatch.setattr(store._store.ledger, "commit", raising(RuntimeError))
        with broken_off(
            monkeypatch, "vicinal.store.request_batch.pack_answers", error=RuntimeError
        ):
            store.predict(Q[10:30])
        assert usage(store)["mean"] == pytest.approx(previous_usage["mean"], abs=2 / FULL_SHARE)


def in_two_worlds(folder):
    """Return the reported usage of two stores of different subjects after the same queries."""
    usages = []
    for name, (size, seed) in {"a": (300, 5), "b": (40, 77)}.items():
        settings = {"classes": range(3), "public": R, "n_records": 300, **PLAN}
        with Store.init(folder / name, *points(size, seed), None, **settings) as store:
            store.predict(Q)
            usages.append(usage(store)["mean"])
    return usages


def test_wear_is_the_same_whoever_is_in_the_data(tmp_path):
    told, other = in_two_worlds(tmp_path)
    assert told == other > 0.1


def test_a_store_that_told_the_truth_would_be_caught(tmp_path, monkeypatch):
    def estimate_from_records(desk):
        return {"mean": 1 - desk.audience.account.remaining.mean() / UNITS}

    monkeypatch.setattr(status, "_estimate_budget_usage", estimate_from_records)
    told, other = in_two_worlds(tmp_path)
    assert told != other


def test_each_audience_has_its_own_wear_and_backups_keep_it(tmp_path):
    store = make(tmp_path / "store")
    store.open_audience("press", **{**PLAN, "n_records": 300})
    store.predict(Q[:30])
    assert usage(store, "press")["mean"] == 0
    told = usage(store)
    store.backup(tmp_path / "backup")
    store.close()
    Store.restore(tmp_path / "backup", tmp_path / "again", accept_loss=True).close()
    with Store.open(tmp_path / "again") as reopened:
        assert usage(reopened) is None, "nobody knows what was charged since the backup"
    with Store.open(tmp_path / "store") as store:
        assert usage(store)["mean"] == pytest.approx(told["mean"], abs=2 / FULL_SHARE)


def test_inspect_tells_it(tmp_path):
    with make(tmp_path / "store") as store:
        store.predict(Q)
        mean = usage(store)["mean"]
    output = CliRunner().invoke(app, ["inspect", str(tmp_path / "store")]).output
    assert f"{mean:.0%} on average" in output
    plain = json.loads(
        CliRunner().invoke(app, ["inspect", str(tmp_path / "store"), "--json"]).output
    )
    assert plain["audiences"]["default"]["usage"]["mean"] == pytest.approx(mean, abs=2 / FULL_SHARE)
