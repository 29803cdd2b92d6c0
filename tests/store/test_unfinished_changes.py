"""Every unfinished change stops a command that only reads, and is named."""

from functools import partial

import pytest

import store_tools as tools
from vicinal.distributed import Coordinator, split
from vicinal.distributed import changes as cluster_changes
from vicinal.distributed import coordinator as coordinators
from vicinal.distributed.transports import local_transports
from vicinal.errors import PrivacyRefused
from vicinal.store import Store, opening

pytestmark = pytest.mark.quick


def read_refusal(path):
    """Return the message with which a store or cluster refuses to be opened for reading."""
    is_cluster = (path / "cluster.json").exists()
    open_holder = partial(Coordinator.open, connect=local_transports) if is_cluster else Store.open
    with pytest.raises(PrivacyRefused) as refusal:
        open_holder(path, read_only=True)
    return str(refusal.value)


@pytest.fixture
def cluster(tmp_path):
    tools.make(tmp_path / "store").close()
    split(tmp_path / "store", tmp_path / "cluster", 2)
    Coordinator.open(tmp_path / "cluster", local_transports).close()
    return tmp_path / "cluster"


def test_rows_that_were_never_added_are_named(tmp_path):
    tools.make(tmp_path / "store").close()
    labels = tmp_path / "store" / "records" / "labels"
    with labels.open("ab") as file:
        file.write(bytes(4))
    pending = "Nothing was lost. To be completed: the removal of records that were not added"
    assert pending in read_refusal(tmp_path / "store")
    Store.open(tmp_path / "store").close()
    Store.open(tmp_path / "store", read_only=True).close()


def test_an_accepted_loss_is_named_without_a_comfort(tmp_path, monkeypatch):
    tools.make(tmp_path / "store").close()
    (tmp_path / "store.witness").unlink()
    with tools.broken_off(monkeypatch, opening, "_finish_interrupted"):
        Store.open(tmp_path / "store", accept_loss=True)
    message = read_refusal(tmp_path / "store")
    assert "interrupted here. To be completed: an accepted loss. This" in message
    assert "Nothing was lost" not in message


def test_a_change_of_a_cluster_whose_file_is_left_is_named(cluster, monkeypatch):
    with (
        Coordinator.open(cluster, local_transports) as opened,
        tools.broken_off(monkeypatch, cluster_changes, "wipe_file"),
    ):
        opened.add(tools.X[:2], tools.Y[:2], ["new", "other"])
    message = read_refusal(cluster)
    assert "Nothing was lost. To be completed: the removal of the file of a change." in message
    Coordinator.open(cluster, local_transports).close()
    Coordinator.open(cluster, local_transports, read_only=True).close()


def test_an_incomplete_file_of_a_change_is_named(cluster):
    """Its content is as private as that of a complete one."""
    (cluster / "coordinator" / "change.new").write_bytes(b"records")
    assert "the removal of the file of a change" in read_refusal(cluster)


def test_a_training_is_named(cluster, monkeypatch):
    monkeypatch.setattr(coordinators.training, "find_training_audience", lambda _: "any")
    assert "To be completed: the training of a model." in read_refusal(cluster)


def test_a_pending_change_without_history_is_named(tmp_path):
    class Database:
        """A database with a pending change, which its history lacks."""

        def get(self, key):
            return {cluster_changes.PENDING: "7 digest"}.get(key)

        def read(self, _, parameters):
            assert parameters == (7,)
            return []

    unfinished = cluster_changes.list_unfinished_changes(Database(), tmp_path)
    assert unfinished == ["a change of the shards"]
