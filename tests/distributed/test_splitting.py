"""A split goes through subjects as columns: what is written, and no object is kept for each."""

import shutil
import sys
import tracemalloc

import numpy as np
import pytest

import shard_tools
import store_tools as tools
from vicinal.distributed import ShardServer, move_shard, restore_cluster, split, witness_of
from vicinal.distributed._splitting import placed_subjects
from vicinal.errors import InvalidInput, StoreInUse, StoreOutdated
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
    restore_cluster(tmp_path / "backup", tmp_path / "restored", accept_loss=True)
    assert set(shard_tools.budgets(tmp_path / "restored").values()) == {0}


def test_only_the_shard_itself_moves_and_into_an_empty_place(tmp_path):
    """Fails if a move replaces anything, or makes another folder the shard."""
    path = shard_tools.clustered(tmp_path, 2)
    with shard_tools.local(path), pytest.raises(StoreInUse):
        move_shard(path, 1, tmp_path / "disk")
    for number, to, match in ((2, "disk", "shard"), (1, "cluster", "must be a new folder")):
        with pytest.raises(InvalidInput, match=match):
            move_shard(path, number, tmp_path / to)
    shutil.rmtree(path / "shard-1")
    shutil.copytree(path / "shard-0", path / "shard-1")
    with pytest.raises(StoreOutdated, match="is another shard"):
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
