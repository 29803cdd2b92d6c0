"""The measuring of searches: what is compared is the same work, and the command tells it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks import goals
from benchmarks.rivals import float32_works
from vicinal.cli import _bench
from vicinal.cli._main import app
from vicinal.reports import _search_benchmark as speed


def test_medians_are_those_of_works_run_in_turn(monkeypatch):
    clock = iter(np.cumsum([0.0, *[1.0] * 200]))
    monkeypatch.setattr(speed.time, "perf_counter", lambda: float(next(clock)))
    turns = []
    works = {"a": lambda: turns.append("a"), "b": lambda: turns.append("b")}
    assert speed.interleaved(works, 3) == {"a": 1.0, "b": 1.0}
    assert "".join(turns) == "aabb" + "ab" * 3


def test_the_exponent_is_the_slope():
    assert speed.exponent([10, 100, 1000], [3e-3, 3e-2, 3e-1]) == pytest.approx(1.0)
    assert speed.exponent([10, 1000], [1.0, 10.0]) == pytest.approx(0.5)


def test_all_indexes_of_a_bench_hold_the_same_records():
    made = speed.SearchBenchmark(speed.BenchmarkData(3000, 20, 0.01), 30, hashing=(3,))
    assert {len(index) for index in made.indexes.values()} == {3000}
    recalls = made.recalls()
    assert recalls["exact"] == 1
    assert 0.8 < recalls["centroids"] <= 1
    assert 0 < recalls["hashing 3"] < 1
    hits = [near.rows for near in made.indexes["exact"].parts(made.queries, made.thresholds)]
    assert 10 < sum(map(len, hits)) / 30 < 90


def test_data_are_the_same_every_time():
    data = speed.BenchmarkData(500, 8)
    for one, two in zip(data.batches(), data.batches(), strict=True):
        np.testing.assert_array_equal(one, two)


def test_what_others_offer_finds_what_we_find():
    """Fails if a rival is asked for another radius, which would make its time mean nothing."""
    works = float32_works(speed.BenchmarkData(2000, 16, 0.01), 40)
    ours = sum(map(len, [works["float32 exact"]().rows]))
    _, theirs = works["scikit-learn radius"]()
    assert sum(map(len, theirs)) == pytest.approx(ours, rel=0.4)


def test_the_command_prints_every_method_and_draws(tmp_path, monkeypatch):
    monkeypatch.setattr(_bench, "SHORT_SIZES", ((600, 12), (1200, 12)))
    monkeypatch.setattr(_bench, "SHORT_BLOCKS", (1, 5))
    monkeypatch.setattr(speed, "_LEAST_SECONDS", 0)
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


def test_the_table_for_people_names_the_engine_and_ratios():
    rows = [
        {
            "n": 10,
            "d": 2,
            "block": 1,
            "ms": {"int8 product": 2.0, "exact": 3.0},
            "recall": {"exact": 1.0},
        }
    ]
    text = _bench._text({"engine": "vnni", "threads": 2, "rows": rows, "growth": {"exact": 1.01}})
    assert "vnni" in text
    assert "1.50 x  1.000" in text
    assert "1.01" in text


def test_the_goals_of_private_knn_are_measured_on_other_people_each_time():
    figures = list(goals.private_knn(short=True))
    assert [figure.most for figure in figures] == [0.2, 0.2]
