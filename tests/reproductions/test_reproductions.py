"""Experiments `market-attributes` and `table1-cifar`: exact counts, prices, marked features."""

import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from experiments.__main__ import app as experiments
from experiments.students import attributes as wing
from vicinal.accounting import account

# Three people to train on, with 1, 2 and 3 attributes; an age is one of them.
TABLE = """split,identity,gender,age,hat
train,0001,1,2,1
train,0002,2,2,1
train,0003,2,3,2
test,0004,1,1,2
test,0005,2,4,1
"""


def run(*arguments, code=0):
    result = CliRunner().invoke(experiments, [str(part) for part in arguments])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.output


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text(TABLE)
    return path


# ---------------------------------------------------------------- market-attributes


def test_attributes_are_read_exactly_and_identities_are_not_kept(table):
    people = wing.Attributes.load(table)
    assert people.names == ("gender", "age1", "age2", "age3", "age4", "hat")
    assert people.private.sum(axis=1).tolist() == [1, 2, 3]
    assert people.public.tolist() == [
        [False, True, False, False, False, True],
        [True, False, False, False, True, False],
    ]


@pytest.mark.parametrize(
    ("tau", "people", "lost"), [(3.0, 0, 0.0), (2.0, 1, 1 / 6), (1.0, 2, 3 / 6), (1.5, 2, 2 / 6)]
)
def test_what_a_tau_clips_is_counted_exactly(table, tau, people, lost):
    clipped = wing.Clipped.by(wing.Attributes.load(table).private, tau)
    assert (clipped.people, clipped.of) == (people, 3)
    assert clipped.lost == pytest.approx(lost)


def test_the_command_prices_correctly_and_says_that_features_are_made(table, tmp_path):
    out = tmp_path / "out"
    asked = ("market-attributes", "--data", table, "--neighbors", 10)
    told = json.loads(run(*asked, "--runs", 1, "--out", out, "--json"))
    assert told["features"] == "made"
    assert told["simulation"] is True
    for point in told["points"]:
        release = {"kind": "multilabel", "tau": point["tau"], "sigma": point["sigma"]}
        sampled = {**release, "gamma": point["gamma"], "count": wing.QUERIES}
        price = account({"delta": 1e-5, "releases": [sampled]})
        assert point["epsilon"]["best"] == price["epsilon"]
    text = (out / "market-attributes.txt").read_text()
    assert "made features" in text
    assert "0.67" in text
    assert (out / "market-attributes.png").stat().st_size > 10_000


# ---------------------------------------------------------------- table1-cifar


def test_the_command_of_tables_ends_and_names_its_contenders(tmp_path):
    """On a made-up table under the name of a real one."""
    rng = np.random.default_rng(0)
    age, kids = rng.normal(30, 5, 2300), rng.random(2300)
    more = np.where(kids + (age - 30) / 20 > 0.5, "yes", "no")
    columns = {"row": np.arange(2300), "age": age, "work": rng.random(2300), "morekids": more}
    parquet.write_table(pa.table(columns), tmp_path / "Fertility.parquet")
    method = "logistic regression, not private"
    asked = ("tables", "--data", tmp_path, "--runs", 1, "--queries", 100, "--epsilon", 1)
    told = run(*asked, "--method", method, "--out", tmp_path)
    assert f"| Fertility morekids | 100 | {method} | ." in told
    (row,) = json.loads((tmp_path / "tables.json").read_text())["rows"]
    assert 0.5 < row["auc"] < 1
    assert 0 < row["auc_error"] < 0.1
    assert "one of" in run(*asked, "--method", "another", code=2)
    kept = (tmp_path / "tables.cells.jsonl").read_text()
    ours = [
        kept.replace(method, name).replace('"epsilon": null', '"epsilon": 1.0')
        for name in ("Ind-KNN with model", "NoisySGD", "Ind-KNN with model, from schema")
    ]
    elsewhere = ours[1].replace("NoisySGD", "AdaSSP").replace('"run": 0', '"run": 7')
    kept = "".join([*ours, elsewhere, ours[0].rstrip("\n")[:-9]])
    (tmp_path / "other.jsonl").write_text(kept)
    told = run(*asked, "--merge", tmp_path / "other.jsonl", "--known", "--out", tmp_path)
    assert ": +0.000 (one split) |" in told, "a line that was cut is left out"
    assert "| +0.000 (+0.000 to +0.000) |" in told, "made-up rows beside real ones"
    assert "AdaSSP" not in told, "its run was not asked for"
