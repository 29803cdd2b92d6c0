"""The experiment `market-attributes`: exact counts, prices, marked features."""

import json

import pytest
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
