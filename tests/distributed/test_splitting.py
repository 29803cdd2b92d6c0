"""A split goes through subjects as columns: what is written, and no object is kept for each."""

import sys
import tracemalloc

import numpy as np
import pytest

import shard_tools
import store_tools as tools
from vicinal.distributed import split
from vicinal.distributed.splitting import assign_subjects
from vicinal.errors import InvalidInput
from vicinal.ledger.id_encoding import frame_id, parse_framed_id

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
            ids = b"".join(frame_id(f"person-{slot}") for slot in slots.tolist())
            yield [(start // _ROW, 0, slots.tobytes(), ids)]


def by_number(subject):
    return int(subject[-1]) % 3


def placed(people=PEOPLE):
    return assign_subjects(Pages(people), 3, by_number)


def test_everybody_goes_to_one_shard_with_a_slot_of_their_own():
    """Fails if somebody is lost, is on two shards, or stands beside another's slot."""
    seen = []
    for shard, subjects in enumerate(placed(5_000)):
        ids = [parse_framed_id(one + b">") for one in bytes(subjects.ids).split(b">")[:-1]]
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
