"""A split goes through subjects as columns: what is written, and no object is kept for each."""

import shutil
import sys
import tracemalloc

import numpy as np
import pytest

import shard_tools
import store_tools as tools
from vicinal import store as stores
from vicinal.distributed import (
    ClusterDescription,
    Coordinator,
    ShardServer,
    _splitting,
    local_transports,
    move_shard,
    restore_cluster,
    split,
    witness_of,
)
from vicinal.distributed._splitting import placed_subjects
from vicinal.errors import InvalidInput, PrivacyRefused, StorageFailed, StoreInUse, StoreOutdated
from vicinal.ledger import framed, unframed

PEOPLE = 20_000
_ROW = 256


class Pages:
    """A table of subjects that is made as it is read."""

    def __init__(self, people):
        self.people = people

    def scan(self, table):
        assert table == "subject_pages"
        for start in range(0, self.people, _ROW):
            slots = np.arange(start, min(start + _ROW, self.people), dtype="<i4")
            ids = b"".join(framed(f"person-{slot}") for slot in slots.tolist())
            yield [(start // _ROW, 0, slots.tobytes(), ids)]


def by_number(subject):
    return int(subject[-1]) % 3


def placed(people=PEOPLE):
    return placed_subjects(Pages(people), 3, by_number)


def test_everybody_goes_to_one_shard_with_a_slot_of_their_own():
    """Fails if somebody is lost, is on two shards, or stands beside another's slot."""
    seen = []
    for shard, subjects in enumerate(placed(5_000)):
        ids = [unframed(one + b">") for one in bytes(subjects.ids).split(b">")[:-1]]
        assert ids == [f"person-{slot}" for slot in np.frombuffer(subjects.slots, "<i4")]
        assert all(by_number(who) == shard for who in ids)
        seen += ids
    assert len(seen) == len(set(seen)) == 5_000


def test_a_split_replaces_the_witnesses_of_no_cluster(tmp_path):
    """Fails if a cluster that was moved is outdated for ever by another one under its old name."""
    path = shard_tools.clustered(tmp_path, 2)
    path.rename(tmp_path / "moved")
    tools.make(tmp_path / "other").close()
    before = tools.contents(tmp_path)
    with pytest.raises(InvalidInput, match="witnesses of another cluster"):
        split(tmp_path / "other", path, 2)
    assert tools.contents(tmp_path) == before
    with shard_tools.local(tmp_path / "moved") as cluster:
        assert cluster.predict(tools.Q[:2]).charged == 2


def test_a_moved_shard_goes_on_and_no_earlier_copy_of_it_does(tmp_path):
    """Fails if a shard has two homes: what stays behind, or a copy from before, is refused."""
    path, disk = shard_tools.clustered(tmp_path, 2), tmp_path / "disk"
    with shard_tools.local(path) as cluster:
        before = cluster.predict(tools.Q[:6])
    shutil.copytree(path / "shard-1", tmp_path / "copy")
    shutil.copy(witness_of(path, "shard-1"), tmp_path / "witness")
    left = shard_tools.budgets(path)
    old, new = move_shard(path, 1, disk)
    assert (old, new) == (path / "shard-1", disk / "shard-1")
    assert shard_tools.budgets(path) == left
    with shard_tools.local(path) as cluster:
        again = cluster.predict(tools.Q[:9])
        assert again.charged == 3
        assert again.labels[:6].tolist() == before.labels.tolist()
        cluster.backup(tmp_path / "backup")
    with pytest.raises(StoreOutdated, match="was moved"):
        ShardServer.open(old)
    for where in (new, old):  # also if the description from before the move is put back
        shutil.rmtree(where)
        shutil.copytree(tmp_path / "copy", where)
        shutil.copy(tmp_path / "witness", witness_of(path, "shard-1"))
        with pytest.raises(StoreOutdated, match="Shard 1 is an old copy"):
            shard_tools.local(path)
        shard_tools.resealed(path, homes={})
    with pytest.raises(PrivacyRefused, match="no witness"):
        restore_cluster(tmp_path / "backup", tmp_path / "restored")
    restored = tmp_path / "restored"
    shutil.rmtree(restored)
    restore_cluster(tmp_path / "backup", restored, accept_loss=True)
    assert set(shard_tools.budgets(restored).values()) == {0}


def test_a_backup_of_a_cluster_with_a_moved_shard_needs_the_witness_that_moved(tmp_path):
    """Fails if the witness that stayed behind lets a backup in, or the one that moved does not."""
    path = shard_tools.clustered(tmp_path, 2)
    move_shard(path, 1, tmp_path / "disk")
    with shard_tools.local(path) as cluster:
        cluster.predict(tools.Q[:3])
        cluster.backup(tmp_path / "backup")
    left = shard_tools.budgets(path)
    shutil.rmtree(path)
    with pytest.raises(PrivacyRefused, match="older than the store"):
        restore_cluster(tmp_path / "backup", path)
    shutil.rmtree(path)
    shutil.copy(tmp_path / "disk.witnesses" / "shard-1", witness_of(path, "shard-1"))
    restore_cluster(tmp_path / "backup", path)
    assert shard_tools.budgets(path) == left


def files_below(folder):
    return sorted(str(one) for one in folder.rglob("*"))


@pytest.mark.parametrize("at", ["pack", "copy_file", "free_witness", "ClusterDescription"])
def test_a_move_that_is_refused_or_fails_leaves_nothing(tmp_path, monkeypatch, at):
    """Fails if a full disk leaves half a copy, or removes what was there before."""
    path, disk = shard_tools.clustered(tmp_path, 2), tmp_path / "disk"
    disk.mkdir()
    (disk / "other").write_text("kept")
    (tmp_path / "disk.witnesses").mkdir()
    left, before = shard_tools.budgets(path), files_below(tmp_path)

    target = (ClusterDescription, "save") if at == "ClusterDescription" else (stores, at)
    with tools.broken_off(monkeypatch, *target, error=StorageFailed("The disk is full.")):
        move_shard(path, 1, disk)
    after = [one for one in files_below(tmp_path) if "disk" in one and "shard-1" in one]
    assert bool(after) == (at == "ClusterDescription")  # it may have been written, so all stays
    if after:
        with pytest.raises(InvalidInput, match="you can delete it"):
            move_shard(path, 1, disk)
        shutil.rmtree(disk / "shard-1")
        with pytest.raises(InvalidInput, match="Move it away"):
            move_shard(path, 1, disk)
        (tmp_path / "disk.witnesses" / "shard-1").unlink()
    assert [one for one in files_below(tmp_path) if "disk" in one] == [
        one for one in before if "disk" in one
    ]
    move_shard(path, 1, disk)
    assert shard_tools.budgets(path) == left


def half_moved(path, disk, monkeypatch):
    """Break a move off once it is decided; return the description of that moment."""
    with tools.broken_off(monkeypatch, _splitting, "_retire"):
        move_shard(path, 1, disk)
    return (path / "cluster.json").read_bytes()


def test_a_description_of_an_earlier_move_retires_nothing(tmp_path, monkeypatch):
    """Fails if an old cluster.json makes a copy that lags the shard, or retires the one there is.

    The first: the shard went on in its earlier folder. The second: it was moved back there.
    """
    path, disk = shard_tools.clustered(tmp_path, 2), tmp_path / "disk"
    first = (path / "cluster.json").read_bytes()
    half = half_moved(path, disk, monkeypatch)
    with pytest.raises(PrivacyRefused, match="interrupted"):
        Coordinator.open(path, local_transports, reading=True)
    (path / "cluster.json").write_bytes(first)
    with shard_tools.local(path) as cluster:
        cluster.predict(tools.Q[:6])
    left = shard_tools.budgets(path)
    (path / "cluster.json").write_bytes(half)
    with pytest.raises(StoreOutdated, match="Shard 1 is an old copy"):
        shard_tools.local(path)
    (path / "cluster.json").write_bytes(first)
    assert shard_tools.budgets(path) == left
    shutil.rmtree(disk)
    (tmp_path / "disk.witnesses" / "shard-1").unlink()

    half = half_moved(path, disk, monkeypatch)
    assert shard_tools.budgets(path) == left  # it is finished first
    (path / "shard-1").rename(tmp_path / "retired")
    witness_of(path, "shard-1").unlink()
    move_shard(path, 1, path)
    now = (path / "cluster.json").read_bytes()
    (path / "cluster.json").write_bytes(half)
    with pytest.raises(StoreOutdated, match="was moved"):
        shard_tools.local(path)
    (path / "cluster.json").write_bytes(now)
    assert shard_tools.budgets(path) == left


def test_a_lost_description_of_a_broken_move_can_be_accepted(tmp_path, monkeypatch):
    """Fails if nothing can be opened any more, or budgets are left, once a copy lags."""
    path = shard_tools.clustered(tmp_path, 2)
    first = (path / "cluster.json").read_bytes()
    half = half_moved(path, tmp_path / "disk", monkeypatch)
    (path / "cluster.json").write_bytes(first)
    with shard_tools.local(path) as cluster:
        cluster.predict(tools.Q[:6])
    (path / "cluster.json").write_bytes(half)
    Coordinator.open(path, local_transports, shard_tools.PATIENCE, accept_loss=True).close()
    assert set(shard_tools.budgets(path).values()) == {0}


def test_a_move_goes_by_real_paths_whatever_it_was_told(tmp_path, monkeypatch):
    """Fails if a relative path, or a link that is changed later, decides where a shard is."""
    shard_tools.clustered(tmp_path, 2)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.chdir(tmp_path)
    old, new = move_shard("cluster", 1, "link/disk")
    assert (old, new) == (tmp_path / "cluster" / "shard-1", tmp_path / "real/disk/shard-1")
    assert (
        new.stat().st_mode & 0o77 == (tmp_path / "real/disk.witnesses").stat().st_mode & 0o77 == 0
    )
    (tmp_path / "link").unlink()
    monkeypatch.chdir("/")
    assert len(shard_tools.budgets(tmp_path / "cluster")) == len(set(tools.PEOPLE))


def test_only_the_shard_itself_moves_and_into_an_empty_place(tmp_path):
    """Fails if a move replaces anything, or makes another folder the shard."""
    path = shard_tools.clustered(tmp_path, 2)
    with shard_tools.local(path), pytest.raises(StoreInUse):
        move_shard(path, 1, tmp_path / "disk")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "shard-1").symlink_to(tmp_path)
    for number, to, match in (
        (2, "disk", "shard"),
        (1, "cluster", "must be a new folder"),
        (1, "links", "must be a new folder"),
        (1, "cluster/shard-1", "outside"),
        (1, "cluster/shard-0/deep", "outside"),
        (1, "cluster/coordinator", "outside"),
        (1, "/", "outside"),
    ):
        with pytest.raises(InvalidInput, match=match):
            move_shard(path, number, tmp_path / to)
    (path / "shard-1").rename(tmp_path / "elsewhere")
    with pytest.raises(InvalidInput, match="There is no shard at"):
        move_shard(path, 1, tmp_path / "disk")
    shutil.copytree(path / "shard-0", path / "shard-1")
    with pytest.raises(StoreOutdated, match="is another shard"):
        move_shard(path, 1, tmp_path / "disk")
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    other = shard_tools.clustered(stranger, 2)
    shutil.copy(other / "cluster.json", path / "cluster.json")
    with pytest.raises(StoreOutdated, match="its coordinator has others"):
        move_shard(path, 0, tmp_path / "disk")
    assert not (tmp_path / "disk").exists()


def test_an_earlier_state_of_a_shard_does_not_move(tmp_path):
    path = shard_tools.clustered(tmp_path, 2)
    with shard_tools.local(path) as cluster:
        shutil.copytree(path / "shard-1", tmp_path / "copy")
        shutil.copy(witness_of(path, "shard-1"), tmp_path / "witness")
        cluster.predict(tools.Q[:6])
    shutil.rmtree(path / "shard-1")
    shutil.copytree(tmp_path / "copy", path / "shard-1")
    shutil.copy(tmp_path / "witness", witness_of(path, "shard-1"))
    with pytest.raises(StoreOutdated, match="Shard 1 is an old copy"):
        move_shard(path, 1, tmp_path / "disk")
    assert not (tmp_path / "disk").exists()


def kept_objects(work):
    """Return what `work` returns, how many objects it leaves, and most bytes at a time."""
    tracemalloc.start()
    before = sys.getallocatedblocks()
    try:
        result = work()
        return result, sys.getallocatedblocks() - before, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_no_object_is_kept_for_each_person():
    """Fails if subjects are held as Python objects: 20,000,000 would take gigabytes."""
    placed(100)
    _, objects, most = kept_objects(placed)
    assert objects < PEOPLE / 100
    assert most / PEOPLE < 60, "bytes of memory for each person"


def test_the_count_of_objects_can_fail():
    """A dict of ids is what the test before must not miss."""
    pages = Pages(PEOPLE)
    _, objects, most = kept_objects(
        lambda: {one: 0 for (row,) in pages.scan("subject_pages") for one in row[3].split(b">")}
    )
    assert objects > PEOPLE / 2
    assert most / PEOPLE > 60
