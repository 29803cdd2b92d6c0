"""A second copy of a shard takes over without a refill; one that is behind never does.

Kills between the writes of two copies are in `tests/crash/test_copies_kill.py`.
"""

from __future__ import annotations

import shutil
from itertools import count

import numpy as np
import pytest

import shard_tools
import store_tools as tools
from vicinal.distributed import (
    Coordinator,
    MissingShardPolicy,
    ShardMissing,
    ShardServer,
    _shard_server,
    copy_shard,
    local_transports,
    promote_copy,
    restore_cluster,
)
from vicinal.distributed._cluster_backups import accept_cluster_loss
from vicinal.distributed._fan_out import CheckedTransport
from vicinal.distributed._folders import copy_path, witness_of
from vicinal.distributed._membership import ShardRecords
from vicinal.errors import (
    InvalidInput,
    PrivacyRefused,
    ShardDamaged,
    StoreDamaged,
    StoreInUse,
    StoreOutdated,
)
from vicinal.ledger import _ledger

NEW_X, NEW_Y = tools.points(40, 9)
NEW = [f"new-{i // 2}" for i in range(40)]
OTHER = {1: 2, 2: 1}
VOTES = []
"""What the cluster has answered, and then a store."""

both = pytest.mark.parametrize("lost", [1, 2])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A cluster of two shards with two copies each, that has answered once."""
    path = shard_tools.clustered(tmp_path_factory.mktemp("made"), 2, copies=2, simulation_seed=7)
    with shard_tools.local(path) as cluster:
        VOTES.append(cluster.predict(tools.Q[:6]).votes)
    return path


@pytest.fixture
def path(made, tmp_path):
    return shard_tools.transplanted(made, tmp_path / "cluster")


@pytest.fixture(scope="module")
def twin(tmp_path_factory):
    """What a store has left that was asked the same once, and then queries 6 to 12, too."""
    with tools.make(tmp_path_factory.mktemp("twin") / "store", simulation_seed=7) as store:
        VOTES.append(store.predict(tools.Q[:6]).votes)
        once = {person: tools.units(store, person) for person in set(tools.PEOPLE)}
        store.predict(tools.Q[6:12])
        twice = {person: tools.units(store, person) for person in set(tools.PEOPLE)}
    return once, twice


def left(path, copies):
    """Return what everybody has left in these copies of shards 0 and 1."""
    here = [shard_tools.budgets_of(copy_path(path, n, copy)) for n, copy in enumerate(copies)]
    return here[0] | here[1]


def heads(path, number=0):
    """Return the last link of both copies of a shard."""
    servers = [ShardServer.open(copy_path(path, number, copy)) for copy in (1, 2)]
    for server in servers:
        server.close()
    return [server._parts.ledger.last_commit for server in servers]


def lose(path, number, copy, place=None):
    """Take away a copy and its witness, or keep them at a place."""
    folder = copy_path(path, number, copy)
    if place is not None:
        shutil.copytree(folder, place / folder.name)
        shutil.copy(witness_of(path, folder.name), place / "witness")
    shutil.rmtree(folder)
    witness_of(path, folder.name).unlink()


def bring_back(path, number, copy, place, old=None):
    """Put back what was kept, in the place of this copy, if it was not that of an `old` one."""
    folder = copy_path(path, number, copy)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(place / copy_path(path, number, old or copy).name, folder)
    shard_tools.moved(folder, place / "witness", witness_of(path, folder.name))


def opened(path, connect=local_transports, policy=shard_tools.PATIENCE):
    return Coordinator.open(path, connect, policy)


# ---------------------------------------------------------------- both do the same


def test_both_copies_write_the_same_and_answer_as_a_store(path, twin, monkeypatch):
    """Fails if copies have to be made the same although nothing was away: charges follow orders."""
    monkeypatch.setattr(CheckedTransport, "align", lambda *_: pytest.fail("the copies differed"))
    monkeypatch.setattr(_ledger, "_now", map(str, count()).__next__)
    np.testing.assert_array_equal(*VOTES)
    with opened(path) as cluster:
        cluster.predict(tools.Q[6:12])
    assert left(path, (1, 1)) == left(path, (2, 2)) == twin[1]
    with opened(path) as cluster:
        cluster.add(NEW_X, NEW_Y, NEW)
        cluster.erase(["person-3", "new-4"])
        cluster.open_audience("second", epsilon=1.0, n_queries=10)
        cluster.evaluate(tools.Q[:6], tools.Y[:6], ["new-1", *(f"who-{n}" for n in range(5))])
        cluster.predict(tools.Q[12:20], audience="second")
        assert cluster.facts()["copies"] == [[1, 2], [1, 2]]
        found = cluster.verify(["person-3"])
        assert found, found.faults
    assert len(set(heads(path))) == len(set(heads(path, 1))) == 1


def test_a_copy_that_was_opened_again_goes_on_as_the_other(path, monkeypatch):
    """Fails if anything that is written follows from what happened since an opening."""
    monkeypatch.setattr(CheckedTransport, "align", lambda *_: pytest.fail("the copies differed"))
    people = [["person-3", "person-140", "person-8"], ["new-2", "person-7", "new-19", "person-90"]]
    with opened(path) as cluster:
        for turn, leaving in enumerate(people):
            cluster.erase(leaving)
            for way in cluster._transports:
                way.transports[turn].close()  # as when its process has died
            cluster.add(NEW_X, NEW_Y, NEW)
            cluster.predict(tools.Q[6 + 6 * turn : 12 + 6 * turn])
        assert cluster.verify(), cluster.verify().faults
    assert len(set(heads(path))) == len(set(heads(path, 1))) == 1


@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 60), marks=pytest.mark.soak)])
def test_whatever_happens_to_copies_they_write_the_same(tmp_path, monkeypatch, seeds):
    """Tasks at random, one copy opened again at random; the soak has 59 lives, the short form one.

    A fault that one life in ten shows is missed by the soak with probability .9^59 = .002.
    """
    monkeypatch.setattr(CheckedTransport, "align", lambda *_: pytest.fail("the copies differed"))
    for seed in seeds:
        path = shard_tools.clustered(tmp_path / str(seed), 1, copies=2, n_queries=5000)
        with opened(path) as cluster:
            rng = np.random.default_rng(seed)
            for _ in range(15):
                random_task(cluster, rng)
            assert cluster.verify(), cluster.verify().faults
        assert shard_tools.budgets_of(copy_path(path, 0, 1)) == shard_tools.budgets_of(
            copy_path(path, 0, 2)
        )


def random_task(cluster, rng):
    size = int(rng.integers(1, 30))
    X, y = tools.points(size, int(rng.integers(1 << 30)))
    who = [f"person-{i}" for i in rng.choice(200, size, replace=False)]
    tasks = {
        "ask": lambda: cluster.predict(rng.normal(size=(size, tools.D)) * 2),
        "erase": lambda: cluster.erase(who),
        "add": lambda: cluster.add(X, y, who),
        "evaluate": lambda: cluster.evaluate(X, y, who),
        "open again": cluster._transports[0].transports[rng.integers(2)].close,
    }
    tasks[rng.choice(list(tasks))]()


def test_verify_looks_at_every_copy(path):
    file = copy_path(path, 1, 2) / "records" / "labels"
    with opened(path) as cluster:
        content = bytearray(file.read_bytes())
        content[5] ^= 1
        file.write_bytes(content)
        (fault,) = (one for one in cluster.verify().faults if "content differs" in one)
    assert fault.startswith("Shard 1, copy 2")


# ---------------------------------------------------------------- one is lost


@both
def test_a_copy_takes_over_with_every_charge_and_the_lost_one_is_refused(
    path, tmp_path, twin, lost
):
    once, twice = twin
    lose(path, 0, lost, tmp_path)
    with pytest.raises(ShardDamaged, match=rf"copy {lost} of shard 0.*--shard 0 --copy {3 - lost}"):
        opened(path)
    promote_copy(path, 0, OTHER[lost])
    with opened(path) as cluster:
        assert cluster.facts()["copies"] == [[OTHER[lost]], [1, 2]]
        cluster.predict(tools.Q[6:12])
    assert left(path, (OTHER[lost], 2)) == twice
    # The lost one comes back: in its own place nobody asks it, in that of the other it is refused.
    bring_back(path, 0, lost, tmp_path)
    assert shard_tools.budgets_of(copy_path(path, 0, lost)).items() <= once.items()
    with opened(path) as cluster:
        cluster.predict(tools.Q[12:14])
    with pytest.raises(InvalidInput, match="'copy' parameter"):
        promote_copy(path, 0, lost)
    bring_back(path, 0, OTHER[lost], tmp_path, old=lost)
    with pytest.raises(StoreOutdated, match="old copy"):
        opened(path).predict(tools.Q[14:16])


@both
def test_a_copy_that_was_given_up_is_old_even_if_nothing_was_charged_since(path, tmp_path, lost):
    """Fails if both can be current: the first message of the new epoch divides them."""
    lose(path, 0, lost, tmp_path)
    promote_copy(path, 0, OTHER[lost])
    bring_back(path, 0, OTHER[lost], tmp_path, old=lost)
    with pytest.raises(StoreOutdated, match="old copy"):
        opened(path)


def stale(path, tmp_path, copy):
    """Put a copy, with its witness, back to before an answer."""
    lose(path, 0, copy, tmp_path)
    bring_back(path, 0, copy, tmp_path)
    with opened(path) as cluster:
        cluster.predict(tools.Q[6:12])
    bring_back(path, 0, copy, tmp_path)


@both
def test_a_copy_that_is_behind_is_refused_and_not_promoted(path, tmp_path, twin, lost):
    stale(path, tmp_path, lost)
    with pytest.raises(StoreOutdated, match=rf"old copy.*copy {lost} of shard 0"):
        opened(path)
    with pytest.raises(StoreOutdated, match="old copy"):
        promote_copy(path, 0, lost)
    with pytest.raises(StoreOutdated, match="old copy"):
        opened(path)
    promote_copy(path, 0, OTHER[lost])
    opened(path).close()
    assert left(path, (OTHER[lost], 1)) == twin[1]


def test_a_version_that_promotes_a_copy_that_is_behind_is_found_out(
    path, tmp_path, twin, monkeypatch
):
    """The control: without the comparison of chains budgets come back, and the test above fails."""
    stale(path, tmp_path, 2)
    monkeypatch.setattr(ShardServer, "_check", lambda *_: None)
    promote_copy(path, 0, 2)
    assert left(path, (2, 1)) != twin[1]
    assert sum(left(path, (2, 1)).values()) > sum(twin[1].values())


def test_copies_that_changed_places_are_the_same(path, twin):
    first, second = (copy_path(path, 0, copy) for copy in (1, 2))
    first.rename(path / "aside")
    second.rename(first)
    (path / "aside").rename(second)
    with opened(path) as cluster:
        cluster.predict(tools.Q[6:12])
    assert left(path, (1, 1)) == left(path, (2, 2)) == twin[1]


def test_a_copy_of_another_shard_is_refused(path):
    shutil.rmtree(copy_path(path, 0, 2))
    shutil.copytree(copy_path(path, 1, 2), copy_path(path, 0, 2))
    with pytest.raises(StoreOutdated, match=r"another shard.*copy 2 of shard 0"):
        opened(path)


def test_nothing_is_promoted_while_the_cluster_is_open(path):
    with opened(path), pytest.raises(StoreInUse):
        promote_copy(path, 0, 2)


@pytest.mark.parametrize(("shard", "copy"), [(2, 2), (-1, 2), (0, 3)])
def test_what_there_is_not_is_not_promoted(path, shard, copy):
    with pytest.raises(InvalidInput):
        promote_copy(path, shard, copy)


# ---------------------------------------------------------------- one is away for a while


@both
@pytest.mark.parametrize("again", [True, False])
def test_a_copy_that_missed_a_block_is_made_the_same(path, twin, lost, again):
    """One block is charged on one copy alone; asked again, or never, both have it in the end."""
    connect = shard_tools.Away(lost - 1, {"VoteRequest"})
    with opened(path, connect) as cluster:
        with pytest.raises(ShardMissing, match=f"copy {lost} of shard 0"):
            cluster.predict(tools.Q[6:12])
        connect.away = False
        cluster.predict(tools.Q[6:12] if again else tools.Q[12:16])
    assert len(set(heads(path))) == 1
    assert left(path, (1, 1)) == left(path, (2, 2))
    if again:
        assert left(path, (1, 1)) == twin[1]


@both
def test_the_coordinator_dies_between_two_copies(path, twin, lost):
    """Its successor knows nothing of the block that one copy has charged."""
    with pytest.raises(ShardMissing):  # noqa: SIM117
        with opened(path, shard_tools.Away(lost - 1, {"VoteRequest", "DeleteVotes"})) as cluster:
            cluster.predict(tools.Q[6:12])
    assert len(set(heads(path))) == 2
    with opened(path) as cluster:
        cluster.predict(tools.Q[6:12])
    assert len(set(heads(path))) == 1
    assert left(path, (1, 1)) == left(path, (2, 2)) == twin[1]


@both
def test_without_a_copy_its_shard_is_missing_and_its_votes_are_not_used(path, lost):
    """Fails if an answer leaves that one copy was not charged for: promoted, it would refill."""
    policy = MissingShardPolicy(answer_without=True)
    with opened(path, shard_tools.Away(lost - 1, {"VoteRequest"}), policy) as cluster:
        assert cluster.predict(tools.Q[6:12]).missing == (0,)
    promote_copy(path, 0, lost)
    with opened(path) as cluster:
        cluster.predict(tools.Q[12:14])


@both
@pytest.mark.parametrize("survivor", [1, 2])
@pytest.mark.parametrize("what", ["Erase", "Add"])
def test_a_change_that_one_copy_missed_is_finished_before_anything(path, lost, survivor, what):
    """Fails if erased people come back, or new ones are forgotten, with the copy that was away."""
    with (
        pytest.raises(ShardMissing),
        opened(path, shard_tools.Away(lost - 1, {what, f"{what}Staged"})) as cluster,
    ):
        cluster.erase(["person-3", "person-4"]) if what == "Erase" else cluster.add(
            NEW_X, NEW_Y, NEW
        )
    lose(path, 0, OTHER[survivor])
    promote_copy(path, 0, survivor)
    with opened(path) as cluster:
        gone = ["person-3", "person-4"] if what == "Erase" else []
        assert cluster.verify(gone), cluster.verify(gone).faults
        cluster.predict(tools.Q[6:12])
        assert (cluster.presence(NEW).enrolled > 0) == (what == "Add")


def test_an_erasure_waits_for_all_copies_and_a_lost_one_does_not_bring_anybody_back(path, tmp_path):
    lose(path, 0, 1, tmp_path)
    with pytest.raises(ShardDamaged):
        opened(path).erase(["person-3"])
    promote_copy(path, 0, 2)
    with opened(path) as cluster:
        cluster.erase(["person-3", "person-4"])
    bring_back(path, 0, 1, tmp_path)
    with pytest.raises(InvalidInput, match="delete it first"):
        copy_shard(path, 0)
    bring_back(path, 0, 2, tmp_path, old=1)
    with pytest.raises(StoreOutdated):
        opened(path)


def test_a_ledger_that_does_not_fit_the_records_is_not_taken_over(path):
    """Fails if a copy goes on with rows of another shard, or rows that were altered."""
    cluster = opened(path)
    way = cluster._transports[0]
    rows = way._done(0, _shard_server.tasks.ReadLedger(way.record.state)).value
    for table, wrong in {
        "tiles": rows["tiles"][1:],
        "pages": [],
        "chain": [],
        "meta": [row if row[0] != "number" else ("number", "1") for row in rows["meta"]],
    }.items():
        if rows[table] != wrong:
            altered = {**rows, table: wrong}
            with pytest.raises(StoreDamaged):
                way._done(1, _shard_server.tasks.ReplaceLedger(way.record.state, altered))
    cluster.predict(tools.Q[6:8])
    cluster.close()
    assert len(set(heads(path))) == 1


def test_copies_behind_inner_nodes_are_compared_and_made_the_same(tmp_path, monkeypatch):
    """Every copy has nodes of its own; one that missed a block is asked, and helped, directly."""
    path = shard_tools.clustered(tmp_path, 4, copies=2)
    aligned, real = [], CheckedTransport.align
    monkeypatch.setattr(
        CheckedTransport, "align", lambda *a: aligned.append(a[0].record.number) or real(*a)
    )
    away = shard_tools.Away(1, {"VoteRequest"})
    with Coordinator.open(path, away, shard_tools.PATIENCE, fan_out=2) as cluster:
        assert [len(group.nodes) for group in cluster._tree._groups] == [2, 2]
        with pytest.raises(ShardMissing, match="copy 2 of shard 0"):
            cluster.predict(tools.Q[:6])
        assert not aligned
        away.away = False
        cluster.predict(tools.Q[6:12])
        assert aligned == [0]
        cluster.predict(tools.Q[12:18])
        assert aligned == [0]
    promote_copy(path, 0, 2)
    with Coordinator.open(path, local_transports, shard_tools.PATIENCE, fan_out=2) as cluster:
        assert [len(group.nodes) for group in cluster._tree._groups] == [2]
        cluster.predict(tools.Q[18:20])
        assert cluster.verify()
    for number in (1, 2, 3):
        assert len(set(heads(path, number))) == 1


def test_copies_that_give_different_sums_are_not_believed(path, monkeypatch):
    real = ShardServer.charge_and_sum
    calls = count()

    def altered(self, request):
        return real(self, request) + (next(calls) == 1)

    monkeypatch.setitem(_shard_server._METHODS, _shard_server.VoteRequest, altered)
    with opened(path) as cluster, pytest.raises(ShardDamaged, match="different sums"):
        cluster.predict(tools.Q[6:12])


# ---------------------------------------------------------------- a new copy, backups, losses


def test_a_new_copy_is_made_and_the_first_can_be_lost_in_turn(path, twin):
    lose(path, 0, 1)
    promote_copy(path, 0, 2)
    copy_shard(path, 0)
    with opened(path) as cluster:
        cluster.predict(tools.Q[6:12])
    lose(path, 0, 2)
    promote_copy(path, 0, 1)
    opened(path).close()
    assert left(path, (1, 2)) == twin[1]
    with pytest.raises(InvalidInput, match="two copies"):
        copy_shard(path, 1)


def test_a_cluster_without_copies_gets_them(tmp_path):
    path = shard_tools.clustered(tmp_path, 1)
    copy_shard(path, 0)
    with opened(path) as cluster:
        cluster.predict(tools.Q[:6])
        assert cluster.facts()["copies"] == [[1, 2]]
    assert len(set(heads(path))) == 1


def test_no_copy_is_made_of_a_shard_that_is_behind(path, tmp_path):
    stale(path, tmp_path, 1)
    with pytest.raises(StoreOutdated):
        promote_copy(path, 0, 1)
    promote_copy(path, 0, 2)
    bring_back(path, 0, 2, tmp_path, old=1)
    shutil.rmtree(copy_path(path, 0, 1))
    with pytest.raises(PrivacyRefused, match="Copy 2 of shard 0"):
        copy_shard(path, 0)


@pytest.mark.parametrize("promoted", [False, True])
def test_a_backup_has_one_copy_and_restores_those_that_there_were(path, tmp_path, promoted):
    if promoted:
        lose(path, 0, 1)
        promote_copy(path, 0, 2)
    with opened(path) as cluster:
        cluster.backup(tmp_path / "backup")
    path.rename(tmp_path / "old")
    restore_cluster(tmp_path / "backup", path)
    with opened(path) as cluster:
        cluster.predict(tools.Q[6:12])
        assert cluster.facts()["copies"] == [[2] if promoted else [1, 2], [1, 2]]
        assert cluster.verify(), cluster.verify().faults


def test_a_loss_is_not_accepted_while_a_copy_has_lost_nothing(path):
    """Fails if everybody's budget is spent although one copy knows all charges."""
    lose(path, 0, 1)
    with pytest.raises(PrivacyRefused, match="Copy 2 of shard 0 has lost nothing"):
        Coordinator.open(path, local_transports, shard_tools.PATIENCE, accept_loss=True)
    promote_copy(path, 0, 2)
    opened(path).close()


def test_a_loss_of_both_copies_spends_everything(path, tmp_path):
    stale(path, tmp_path, 1)
    lose(path, 0, 2)
    accept_cluster_loss(path)
    with opened(path) as cluster:
        assert cluster.facts()["copies"] == [[1], [1]]
    assert set(left(path, (1, 1)).values()) == {0}


def test_the_list_of_copies_is_part_of_the_ledger(path):
    with opened(path) as cluster:
        assert [one.copies for one in ShardRecords(cluster._parts.database)] == [(1, 2), (1, 2)]
