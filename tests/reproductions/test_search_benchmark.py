"""The measuring of searches: what is compared is the same work, and the table has all of it."""

import pytest

from benchmarks import parts
from benchmarks import search as speed
from benchmarks.rivals import float32_works


def test_all_indexes_of_a_bench_hold_the_same_records():
    made = speed.SearchBenchmark(speed.BenchmarkData(3000, 20, 0.01), 30, hashing=(3,))
    assert {len(index) for index in made.indexes.values()} == {3000}
    recalls = made.recalls()
    assert recalls["exact"] == 1
    assert 0 < recalls["hashing 3"] < 1
    hits = [near.rows for near in made.indexes["exact"].parts(made.queries, made.thresholds)]
    assert 10 < sum(map(len, hits)) / 30 < 90


def test_what_others_offer_finds_what_we_find():
    """Fails if a rival is asked for another radius, which would make its time mean nothing."""
    works = float32_works(speed.BenchmarkData(2000, 16, 0.01), 40)
    ours = sum(map(len, [works["float32 exact"]().rows]))
    _, theirs = works["scikit-learn radius"]()
    assert sum(map(len, theirs)) == pytest.approx(ours, rel=0.4)


def test_the_table_has_every_method(monkeypatch):
    monkeypatch.setattr(speed, "_LEAST_SECONDS", 0)
    rows = [
        row for n in (600, 1200) for row in speed.measured(speed.BenchmarkData(n, 12), (1, 5), 1)
    ]
    assert [(row["n"], row["block"]) for row in rows] == [(600, 1), (600, 5), (1200, 1), (1200, 5)]
    for row in rows:
        assert {"exact", "hashing 30"} <= set(row["ms"])
        assert all(value > 0 for value in row["ms"].values())
    assert set(speed.growth(rows)) == set(rows[0]["ms"])


def test_every_part_of_a_prediction_is_timed():
    """Fails if what is timed is the memory of the same rows, which holds no search."""
    assert {part for part, *_ in parts.PARTS} <= parts.measure(400, 8, 0.02, 2).keys()
