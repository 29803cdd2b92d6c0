"""The commands of a cluster: a store is spread, answers on Ray, and is looked after as one."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from typer.testing import CliRunner

import shard_tools
import store_tools as tools
from vicinal.cli.main import app


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.output


def table(path, X, **columns):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*"abcd", *columns])
        writer.writerows(zip(*np.asarray(X).T.tolist(), *columns.values(), strict=True))
    return path


@pytest.fixture
def queries(tmp_path):
    return table(tmp_path / "queries.csv", tools.Q[:5])


@pytest.fixture
def cluster(tmp_path):
    tools.make(tmp_path / "store").close()
    told = run("shard", tmp_path / "store", "--shards", 2, "--out", tmp_path / "cluster", "--json")
    assert json.loads(told)["shards"] == 2
    return tmp_path / "cluster"


def test_a_store_that_was_spread_answers_no_more(tmp_path, cluster, queries):
    run("predict", tmp_path / "store", "--data", queries, code=3)
    run("shard", tmp_path / "store", "--out", tmp_path / "again", code=3)
    run("shard", tmp_path / "nothing", "--out", tmp_path / "again", code=2)
    run("verify", cluster)


def test_ray_answers_as_this_process_does(cluster, queries):
    """Fails if `--ray` asks other shards, or other budgets, than the plain command."""
    first = json.loads(run("predict", cluster, "--data", queries, "--json"))
    assert first["charged"] == 5
    again = json.loads(run("predict", cluster, "--data", queries, "--ray", "local", "--json"))
    assert again == {**first, "charged": 0}


def test_ray_is_for_clusters(tmp_path, queries):
    tools.make(tmp_path / "plain").close()
    told = run("predict", tmp_path / "plain", "--data", queries, "--ray", "local", code=2)
    assert "vicinal shard" in told


def test_without_ray_there_is_one_sentence(cluster, queries, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    told = run("predict", cluster, "--data", queries, "--ray", "auto", code=2)
    assert "vicinal[ray]" in told


def test_a_cluster_is_changed_and_looked_after_as_a_store(tmp_path, cluster, queries):
    more = table(
        tmp_path / "more.csv", tools.X[:4] + 0.01, y=tools.Y[:4], who=["x", "x", "y", "person-3"]
    )
    run("add", cluster, "--data", more, "--label", "y", "--subject", "who")
    assert run("erase", cluster, "--subject", "person-3", "--curator").endswith("3 records.\n")
    assert "All is well" in run("verify", cluster, "--erased", "person-3")
    assert "enrolled" in run("verify", cluster, "--erased", "x", code=2)
    run("audience", cluster, "press", "--queries", 5)
    run("allow", cluster, "anna", 2, "--audience", "press")
    assert json.loads(run("inspect", cluster, "--json"))["shards"] == 2
    assert "PRIVATE" in run("inspect", cluster, "--curator")
    assert "privacy" in run("export-guarantee", cluster)
    run("backup", cluster, tmp_path / "backup")
    cluster.rename(tmp_path / "lost")
    run("restore", tmp_path / "backup", cluster)
    run("predict", cluster, "--data", queries)
    run("verify", cluster)
