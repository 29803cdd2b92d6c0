"""A split reads subjects as columns, without a Python object for each subject."""

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

N_SUBJECTS = 20_000
_ROW = 256


class Pages:
    """A table of subjects that is made as it is read."""

    def __init__(self, n_subjects):
        self.n_subjects = n_subjects

    def scan(self, table):
        assert table == "subject_pages"
        for start in range(0, self.n_subjects, _ROW):
            slots = np.arange(start, min(start + _ROW, self.n_subjects), dtype="<i4")
            ids = b"".join(frame_id(f"person-{slot}") for slot in slots.tolist())
            yield [(start // _ROW, 0, slots.tobytes(), ids)]


def choose_shard(subject):
    return int(subject[-1]) % 3


def assign_all(n_subjects=N_SUBJECTS):
    return assign_subjects(Pages(n_subjects), 3, choose_shard)


def test_everybody_goes_to_one_shard_with_a_slot_of_their_own():
    """Fails if a subject is lost, is on two shards, or has the slot of another one."""
    seen = []
    for shard, subjects in enumerate(assign_all(5_000)):
        ids = [parse_framed_id(frame + b">") for frame in bytes(subjects.ids).split(b">")[:-1]]
        assert ids == [f"person-{slot}" for slot in np.frombuffer(subjects.slots, "<i4")]
        assert all(choose_shard(subject) == shard for subject in ids)
        seen += ids
    assert len(seen) == len(set(seen)) == 5_000


def test_a_split_replaces_the_witnesses_of_no_cluster(path, tmp_path):
    """Fails if a cluster that was moved is outdated for ever by another one under its old name."""
    path.rename(tmp_path / "moved")
    tools.make(tmp_path / "other").close()
    before = tools.contents(tmp_path)
    with pytest.raises(InvalidInput, match="witnesses of another cluster"):
        split(tmp_path / "other", path, 2)
    assert tools.contents(tmp_path) == before
    with shard_tools.local(tmp_path / "moved") as cluster:
        assert cluster.predict(tools.Q[:2]).charged == 2


def measure_memory(operation):
    """Return the result of an operation, its number of remaining objects and its peak memory."""
    tracemalloc.start()
    before = sys.getallocatedblocks()
    try:
        result = operation()
        return result, sys.getallocatedblocks() - before, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_no_object_is_kept_for_each_person():
    """Fails if subjects are held as Python objects: 20,000,000 would take gigabytes."""
    assign_all(100)
    _, objects, peak_bytes = measure_memory(assign_all)
    assert objects < N_SUBJECTS / 100
    assert peak_bytes / N_SUBJECTS < 60, "bytes of memory for each person"


def test_the_count_of_objects_can_fail():
    """A dictionary of ids must exceed both limits of the previous test."""
    pages = Pages(N_SUBJECTS)
    _, objects, peak_bytes = measure_memory(
        lambda: {one: 0 for (row,) in pages.scan("subject_pages") for one in row[3].split(b">")}
    )
    assert objects > N_SUBJECTS / 2
    assert peak_bytes / N_SUBJECTS > 60
