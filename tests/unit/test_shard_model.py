"""The cost model of scaling.md: what it must satisfy whatever the constants are."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from benchmarks.generated import Numbers, Scene
from benchmarks.shard_model import CORES, UNITS, Constants, read_out

GIVEN = Constants(
    product=1e-11, charge=3e-9, write=1e-9, block=0.01, engine=0.003, shard=0.001, commit=0.002,
    sent=4e4, received=2e4, charged=3e5, record=176.0, features=128, queries=256,
)  # fmt: skip


def test_every_constant_has_a_unit_and_stands_in_the_page():
    page = (Path(__file__).parents[2] / "docs" / "explanation" / "scaling.md").read_text()
    assert set(UNITS) == {part.name for part in dataclasses.fields(Constants)}
    assert all(f"`{name}`" in page or not unit for name, unit in UNITS.items())
    assert all(line.split()[0] in page for line in GIVEN.told())


def test_searching_is_shared_and_messages_are_not():
    assert GIVEN.search(10**8, 4, 2) == pytest.approx(GIVEN.search(10**8, 1, 2) / 4)
    assert GIVEN.search(10**8, 1, 1) == pytest.approx(1e-11 * 10**8 * 128 * 256)
    assert GIVEN.charging(10**8, 1, 4) == pytest.approx((3e-9 / 4 + 1e-9) * 10**8 + 0.002)
    assert GIVEN.charging(10**8, 2) < GIVEN.charging(10**8, 1)
    assert GIVEN.others(5) - GIVEN.others(4) == pytest.approx(0.001 + 6e4 / 1.25e9)


def test_two_blocks_under_way_hide_the_shorter_part():
    """Fails if a block is answered sooner than its search, or than all else, and its charge."""
    for machines in (1, 64, 256):
        period, charge = GIVEN.period(10**9, machines), GIVEN.charging(10**9, machines)
        parts = GIVEN.search(10**9, machines, CORES), GIVEN.others(machines)
        assert period == pytest.approx(charge + max(parts))
        assert GIVEN.latency(10**9, machines) == pytest.approx(charge + sum(parts))
    enough = GIVEN.enough(10**9)
    assert GIVEN.search(10**9, enough, CORES) <= GIVEN.others(enough)
    assert GIVEN.search(10**9, enough - 1, CORES) > GIVEN.others(enough - 1)


def test_what_does_not_fit_is_not_read_out():
    told = read_out(GIVEN)["1e+09 records"]
    fewest = GIVEN.fewest(10**9)
    assert told["machines for the memory"] == fewest > 1
    assert all(int(machines) >= fewest for machines in told["ms a query, by machines"])
    assert set(told["one block at a time"]) == set(told["ms a query, by machines"])


def test_shards_get_every_record_once():
    scene = Scene(1_000_003, 8, 7, 10)
    assert sum(map(scene.rows, range(7))) == 1_000_003
    numbers = Numbers(5)
    assert dict(numbers) == {i: i for i in range(5)}
    assert 5 not in numbers
    assert "3" not in numbers
