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
    blocks = made.indexes["exact"].search_in_blocks(made.queries, made.thresholds)
    hits = [near.rows for near in blocks]
    assert 10 < sum(map(len, hits)) / 30 < 90


def test_what_others_offer_finds_what_we_find():
    """Fails if a rival is asked for another radius, which would make its time mean nothing."""
    works = float32_works(speed.BenchmarkData(2000, 16, 0.01), 40)
    ours = sum(map(len, [works["float32 exact"]().rows]))
    _, theirs = works["scikit-learn radius"]()
    assert sum(map(len, theirs)) == pytest.approx(ours, rel=0.4)


def test_every_part_of_a_prediction_that_is_timed_exists():
    for _, owner, name in parts.PARTS:
        assert callable(getattr(owner, name)), name
