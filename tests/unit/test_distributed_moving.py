"""Rebalancing: who moves takes records and budgets along, once, whatever happens on the way."""

from __future__ import annotations

import numpy as np
import pytest

import shard_tools
import store_tools as tools
from vicinal.distributed import ShardKeeper, move
from vicinal.distributed.folders import ShardFolder, shard_paths
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.ledger.sqlite import SQLiteDatabase
from vicinal.store.opening import open_folder

MOVERS = [f"person-{number}" for number in range(0, 60, 3)]


@pytest.fixture
def path(tmp_path):
    """Return a cluster that has answered a little."""
    path = shard_tools.clustered(tmp_path, 2, simulation_seed=7)
    with shard_tools.local(path) as cluster:
        cluster.predict(tools.Q[:6])
    return path


def people(path, number):
    keeper = ShardKeeper.open(shard_paths(path, 2)[number])
    try:
        return set(keeper._parts.book.roll.slot_of)
    finally:
        keeper.close()


def check_moved(path, before):
    """Everybody is where they were sent, with their budgets, and nothing is left behind."""
    assert set(MOVERS) <= people(path, 1)
    assert shard_tools.budgets(path) == before
    keeper = ShardKeeper.open(shard_paths(path, 2)[0])
    database = keeper._parts.database
    assert database.execute("SELECT hash FROM departed") == []
    assert not database.get("parcel")
    keeper.close()


def answers_like_a_store(path, tmp_path):
    with shard_tools.local(path) as cluster, tools.make(tmp_path / "twin") as store:
        cluster.predict(tools.Q[6:30])
        store.predict(tools.Q[:6])
        store.predict(tools.Q[6:30])
        expected = {person: tools.units(store, person) for person in set(tools.PEOPLE)}
    assert shard_tools.budgets(path) == expected


def test_who_moves_keeps_the_budget_and_goes_on_being_charged(path, tmp_path):
    before, there = shard_tools.budgets(path), people(path, 0) & set(MOVERS)
    assert move(path, dict.fromkeys(MOVERS, 1)) == len(there) > 0
    check_moved(path, before)
    assert move(path, dict.fromkeys(MOVERS, 1)) == 0
    answers_like_a_store(path, tmp_path)


def test_there_and_back_again_changes_nothing(path):
    before, first = shard_tools.budgets(path), people(path, 0)
    move(path, dict.fromkeys(MOVERS, 1))
    move(path, {person: 0 for person in MOVERS if person in first})
    assert people(path, 0) == first
    assert shard_tools.budgets(path) == before


def check_closed(path):
    """Nobody answers from a cluster some of whose people are on their way."""
    for folder in shard_paths(path, 2):
        parts = open_folder(ShardFolder.read(folder).folder)
        pending = parts.database.get("parcel")
        parts.resources.close()
        if pending:
            with pytest.raises(InvalidInput, match="broken off"):
                ShardKeeper.open(folder)


@pytest.mark.parametrize("last", range(1, 14))
def test_a_move_that_was_broken_off_is_finished(path, tmp_path, monkeypatch, last):
    """Fails if a death between any two commits loses somebody, or a budget, or doubles either."""
    before = shard_tools.budgets(path)
    commits = []
    real = SQLiteDatabase._commit

    def counted(self):
        commits.append(1)
        if len(commits) == last:
            raise KeyboardInterrupt
        real(self)

    with monkeypatch.context() as patch:
        patch.setattr(SQLiteDatabase, "_commit", counted)
        try:
            move(path, dict.fromkeys(MOVERS, 1))
        except KeyboardInterrupt:
            assert len(commits) == last
            check_closed(path)
    move(path, dict.fromkeys(MOVERS, 1))
    check_moved(path, before)
    answers_like_a_store(path, tmp_path)


def test_a_block_without_an_answer_starts_anew_after_a_move(path, tmp_path):
    """Fails if somebody's kept votes on one shard meet their new ones on another."""
    cluster = shard_tools.local(path)
    cluster._book.commit = None
    with pytest.raises(TypeError):
        cluster.predict(tools.Q[6:9])
    cluster.close()
    move(path, dict.fromkeys(MOVERS, 1))
    with shard_tools.local(path) as again:
        keepers = [link.shard._open() for link in again._links]
        assert [len(keeper._carried) for keeper in keepers] == [0, 0]
        reply = again.predict(tools.Q[6:9])
    assert reply.charged == 3
    assert tmp_path.exists()


def test_nobody_moves_while_the_cluster_is_open_or_to_nowhere(path):
    before = shard_tools.budgets(path)
    with shard_tools.local(path), pytest.raises(PrivacyRefused, match="open"):
        move(path, dict.fromkeys(MOVERS, 1))
    for nowhere in (2, -1, 0.5):
        with pytest.raises(InvalidInput, match="'where'"):
            move(path, {MOVERS[0]: nowhere})
    assert move(path, {"nobody": 1}) == 0
    assert shard_tools.budgets(path) == before
    np.testing.assert_equal(len(before), 150)
