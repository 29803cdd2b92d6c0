"""The measuring of searches: what is compared is the same work, and the command tells it."""

import json

import pytest
from typer.testing import CliRunner

from benchmarks.rivals import float32_works
from vicinal.cli import app
from vicinal.reports import BenchmarkData, SearchBenchmark


def test_all_indexes_of_a_bench_hold_the_same_records():
    made = SearchBenchmark(BenchmarkData(3000, 20, 0.01), 30, hashing=(3,))
    assert {len(index) for index in made.indexes.values()} == {3000}
    recalls = made.recalls()
    assert recalls["exact"] == 1
    assert 0.8 < recalls["centroids"] <= 1
    assert 0 < recalls["hashing 3"] < 1
    hits = [near.rows for near in made.indexes["exact"].parts(made.queries, made.thresholds)]
    assert 10 < sum(map(len, hits)) / 30 < 90


def test_what_others_offer_finds_what_we_find():
    """Fails if a rival is asked for another radius, which would make its time mean nothing."""
    works = float32_works(BenchmarkData(2000, 16, 0.01), 40)
    ours = sum(map(len, [works["float32 exact"]().rows]))
    _, theirs = works["scikit-learn radius"]()
    assert sum(map(len, theirs)) == pytest.approx(ours, rel=0.4)


def test_the_command_prints_every_method_and_draws(tmp_path, monkeypatch):
    monkeypatch.setattr("vicinal.cli._machine.SHORT_SIZES", ((600, 12), (1200, 12)))
    monkeypatch.setattr("vicinal.cli._machine.SHORT_BLOCKS", (1, 5))
    monkeypatch.setattr("vicinal.reports._search_benchmark._LEAST_SECONDS", 0)
    picture = tmp_path / "plot.png"
    run = CliRunner().invoke(
        app, ["bench", "--short", "--repeats", "1", "--json", "--plot", str(picture)]
    )
    assert run.exit_code == 0, run.output
    result = json.loads(run.stdout)
    assert [(row["n"], row["block"]) for row in result["rows"]] == [
        (600, 1), (600, 5), (1200, 1), (1200, 5),
    ]  # fmt: skip
    for row in result["rows"]:
        assert {"exact", "centroids", "hashing 30"} <= set(row["ms"])
        assert all(value > 0 for value in row["ms"].values())
    assert set(result["growth"]) == set(result["rows"][0]["ms"])
    assert picture.read_bytes().startswith(b"\x89PNG")
