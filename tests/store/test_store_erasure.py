"""Erasure removes all data; verification finds every fault; old backups refill no budget."""

import shutil
import sqlite3
import subprocess
import sys

import numpy as np
import pytest

import store_tools as tools
from store_tools import PEOPLE, Q, R, X, Y, make, points, units
from vicinal.accounting.budget import UNITS
from vicinal.errors import InvalidInput, PrivacyRefused, StorageFailed, StoreDamaged
from vicinal.ledger.sqlite import SQLiteDatabase
from vicinal.store import Store, erasure
from vicinal.store.erasure import write_erasure
from vicinal.store.record_files import OTHER_RECORDS, write_size_and_digests

CANARY = "canary-2f7a91"


def with_canary(store):
    """Add a subject with an id and features that are unique in all files; return the features."""
    features = points(3, 123)[0]
    store.add(features, [0, 1, 2], [CANARY] * 3)
    return features


READ_DATABASE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT * FROM history").fetchall()
connection.close()
"""


@pytest.mark.parametrize(
    "operate",
    [
        lambda store, _: store.verify(),
        lambda store, _: store.verify(["nobody"]),
        lambda store, _: store.erase(PEOPLE[:1]),
        lambda store, _: store.facts(curator=True),
        lambda store, folder: store.backup(folder / "backup"),
    ],
    ids=["verify", "verify an erased id", "erase", "facts", "backup"],
)
def test_another_program_that_reads_the_database_does_not_delete_its_log(store, tmp_path, operate):
    """Fails if an operation cancels SQLite's locks on the database, by closing a file of it."""
    operate(store, tmp_path)
    program = [sys.executable, "-c", READ_DATABASE, tmp_path / "store" / "ledger.db"]
    subprocess.run(program, check=True)
    store.predict(Q[:5])
    (tmp_path / "killed").mkdir()
    killed = tools.copied(tmp_path / "store", tmp_path / "killed")  # as a kill leaves it
    store.close()
    with Store.open(killed) as found:
        assert found.predict(Q[:5]).charged == 0


def encode_features(store, features):
    kernel = store._store.shard.index.kernel
    return [row.tobytes() for row in kernel.encode(features)]


def test_no_byte_of_the_erased_is_in_any_file(tmp_path, store):
    features = with_canary(store)
    store.add(*points(40, 5), [f"later-{i}" for i in range(40)])  # so that they stand in the middle
    store.predict(Q[:5])
    needles = [CANARY.encode(), *encode_features(store, features)]
    assert all(tools.files_with(tmp_path, needle) for needle in needles), "the search can find"
    assert not store.verify([CANARY])
    assert store.erase([CANARY]) == 3
    assert not any(tools.files_with(tmp_path, needle) for needle in needles)
    assert store.verify([CANARY], features)
    store.predict(Q[5:9])
    store.close()
    assert not any(tools.files_with(tmp_path, needle) for needle in needles)


def test_nobody_has_records_left_whose_records_went(store):
    """Fails if a counted number of records differs from the records: charges depend on it."""
    store.erase(["person-3", "person-4", "nobody"])
    shard = store._store.shard
    left = np.bincount(shard._slots, minlength=store._store.ledger.size)
    assert (left == 0).any()
    np.testing.assert_array_equal(shard._n_records, left)


def test_everybody_can_go_and_come_back(tmp_path, store):
    store.predict(Q[:30])
    left = units(store, "person-7")
    store.erase(PEOPLE)
    assert store.predict(Q[30:33]).charged == 3, "an empty store answers like any other"
    assert store.verify(PEOPLE)
    store.add(X, Y, PEOPLE)
    assert units(store, "person-7") == left < UNITS
    store.close()
    with Store.open(tmp_path / "store") as store:
        assert store.verify()


@pytest.mark.parametrize(
    "step", ["_overwrite_erased_rows", "_truncate_files", "scrub"], ids=["_move", "_cut", "scrub"]
)
def test_an_erasure_that_breaks_off_is_finished_at_the_next_opening(
    store, tmp_path, monkeypatch, step
):
    features = with_canary(store)
    needles = [CANARY.encode(), *encode_features(store, features)]
    owner = store._store.database if step == "scrub" else erasure
    with tools.broken_off(monkeypatch, owner, step, error=StorageFailed("injected")):
        store.erase([CANARY])
    with pytest.raises(StorageFailed, match="Open it again"):
        store.erase(["person-1"])
    store.close()
    with Store.open(tmp_path / "store") as store:
        assert not any(tools.files_with(tmp_path, needle) for needle in needles)
        assert store.verify([CANARY], features)


def test_an_erasure_that_leaves_an_id_behind_is_no_success(store, monkeypatch):
    monkeypatch.setattr(store._store.database, "scrub", lambda: None)
    with pytest.raises(StorageFailed, match="not here any more"):
        store.erase(["person-3"])
    assert not store.is_consistent


def damage(sql, *values):
    def apply(store):
        with store._store.database.transaction():
            store._store.database._run(sql, values)

    return apply


def overwrite(part, offset, content):
    def apply(store):
        path = store._store.record_files.file_of[part].path
        with path.open("r+b") as file:
            file.seek(offset)
            file.write(content)

    return apply


def forgotten_charge(store):
    store._store.ledger.audiences["default"].account.remaining[3] += 1


DAMAGES = {
    "refilled budget": (
        damage("UPDATE pages SET units = ?", np.full(150, UNITS).tobytes()),
        "differ from those on disk",
    ),
    "lost charge": (damage("DELETE FROM charges"), "differ in number"),
    "charge taken twice": (damage("UPDATE charges SET spent = spent || '0'"), "do not add up"),
    "lost answer": (damage("DELETE FROM answers"), "differ in number"),
    "charge in memory only": (forgotten_charge, "differ from those on disk"),
    "budget for nobody": (damage("DELETE FROM departed"), "do not add up"),
    "feature": (overwrite("features", 40, b"\1"), "was changed or damaged"),
    "label": (overwrite("labels", 0, b"\7"), "was changed or damaged"),
    "somebody else's record": (overwrite("slots", 0, b"\5"), "was changed or damaged"),
    "longer file": (overwrite("labels", 4 * 301, b"\0"), "length differs"),
    "id left behind": (
        damage("INSERT INTO meta (name, value) VALUES ('x', ?)", "<id:sperson-9999>"),
        "not here any more",
    ),
    "witness": (lambda store: store._store.witness.record_commit(10**6, bytes(32)), "witness"),
}


@pytest.mark.parametrize(("apply", "words"), DAMAGES.values(), ids=DAMAGES)
def test_verification_finds(store, apply, words):
    store.predict(Q[:5])
    store.erase(["person-3"])
    store.predict(Q[:5])
    assert store.verify()
    apply(store)
    found = store.verify()
    assert not found
    assert any(words in fault for fault in found.faults), found.faults


def test_verification_finds_erased_features_and_people_who_are_still_here(store):
    assert "features" in " ".join(store.verify(features=X[:1]).faults)
    assert "The 2nd of the ids that you gave is enrolled." in " ".join(
        store.verify(["nobody", "person-3"]).faults
    )


@pytest.mark.parametrize("target", [None, *tools.TARGETS])
def test_the_last_backup_brings_everything_back(tmp_path, target):
    with make(tmp_path / "store", target) as store:
        store.predict(Q[:20], idempotency_key="k")
        store.erase(["person-3"])
        reply, left = store.predict(Q[:20]), tools.remaining(store)
        carried = tools.contents(tmp_path / "store" / "records")
        store.backup(tmp_path / "backup")
    shutil.rmtree(tmp_path / "store")
    with Store.restore(tmp_path / "backup", tmp_path / "store") as restored:
        assert restored.predict(Q[:20]).to_dict() == {**reply.to_dict(), "charged": 0}
        np.testing.assert_array_equal(tools.remaining(restored), left)
        assert tools.contents(tmp_path / "store" / "records") == carried
        assert restored.verify(["person-3"])


def test_a_ledger_moves_between_databases_by_way_of_a_backup(tmp_path, store, postgres_url):
    reply = store.predict(Q[:20])
    store.backup(tmp_path / "backup")
    store.close()
    shutil.rmtree(tmp_path / "store")
    there = Store.restore(tmp_path / "backup", tmp_path / "store", ledger=postgres_url())
    with there:
        assert there.facts()["ledger"] == "postgres"
        np.testing.assert_array_equal(there.predict(Q[:20]).votes, reply.votes)
        assert there.verify()
        there.predict(Q[20:25])
        there.backup(tmp_path / "back")
    shutil.rmtree(tmp_path / "store")
    with Store.restore(tmp_path / "back", tmp_path / "store") as here:
        assert here.quota().used == 25
        assert here.verify()


def test_an_old_backup_is_refused_and_refills_nothing(tmp_path, store):
    store.predict(Q[:20])
    store.backup(tmp_path / "backup")
    store.predict(Q[20:21])
    store.close()
    shutil.move(tmp_path / "store", tmp_path / "lost")
    with pytest.raises(PrivacyRefused, match="older than the store"):
        Store.restore(tmp_path / "backup", tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_an_accepted_loss_spends_everything_and_erases_the_erased_again(tmp_path, store):
    with_canary(store)
    reply = store.predict(Q[:20], idempotency_key="k")
    store.erase(["person-9"])
    store.backup(tmp_path / "backup")
    store.erase([CANARY])
    store.close()
    shutil.move(tmp_path / "store", tmp_path / "lost")
    with Store.restore(tmp_path / "backup", tmp_path / "store", accept_loss=True) as restored:
        assert not restored._store.ledger.audiences["default"].account.remaining.any()
        assert CANARY not in restored._store.ledger.slot_table.slot_of
        assert restored.verify([CANARY, "person-9"])
        restored.add(*points(2, 8), ["new", "person-9"])
        assert units(restored, "new") == units(restored, "person-9") == 0
        replayed = restored.predict(Q[:20], idempotency_key="k")
        np.testing.assert_array_equal(replayed.votes, reply.votes)
        assert restored.predict(Q[20:24]).charged == 4, "it answers, with noise"
        restored.open_audience("later", n_records=300, **tools.PLAN)
        assert units(restored, "new", "later") == UNITS
        assert restored.verify()
    with Store.open(tmp_path / "store") as restored:
        assert restored.verify()


def test_a_backup_is_no_store_and_a_store_no_backup(tmp_path, store):
    store.backup(tmp_path / "backup")
    with pytest.raises(PrivacyRefused, match="is a backup"):
        Store.open(tmp_path / "backup")
    with pytest.raises(InvalidInput, match="not a backup"):
        Store.restore(tmp_path / "store", tmp_path / "other")
    with pytest.raises(InvalidInput, match="new folder"):
        store.backup(tmp_path / "backup")
    store.predict(Q[:1])


@pytest.mark.parametrize("place", ["{}.witness", "{}/ledger.db"])
def test_a_file_of_another_store_is_not_believed(tmp_path, place):
    make(tmp_path / "one").close()
    make(tmp_path / "two", public=R[:60]).close()
    shutil.copy(tmp_path / place.format("two"), tmp_path / place.format("one"))
    with pytest.raises(StorageFailed, match="another store"):
        Store.open(tmp_path / "one")


def test_sqlite_flushes_every_commit(store):
    connection = store._store.database._connection
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA secure_delete").fetchone() == (1,)
    assert isinstance(connection, sqlite3.Connection)


def test_an_erasure_is_not_decided_while_the_note_of_another_exists(store):
    """Fails if the note with the rows that are still to be erased is overwritten."""
    ledger, rows = store._store.ledger, np.array([0, 1])
    note = rows, np.zeros(2, np.int32), len(X), [b"h" * 32]
    with ledger.change("erase"):
        write_erasure(ledger, *note)
        with pytest.raises(StorageFailed, match="not finished"):
            write_erasure(ledger, *note)


@pytest.mark.parametrize("slot", [0, 1])
def test_records_of_other_subjects_than_those_enrolled_are_noticed(store, tmp_path, slot):
    """As after an erasure that took the wrong rows: files and digests agree with each other."""
    parts = store._store
    slots = parts.record_files.read_slots(len(X))
    changed = np.flatnonzero(slots != slot)[:1]
    parts.record_files.slots.append(int(changed[0]), np.array([slot], dtype=np.int32))
    with parts.database.transaction():
        write_size_and_digests(parts.database, parts.record_files, len(X))
    assert OTHER_RECORDS in store.verify().faults
    store.close()
    with pytest.raises(StoreDamaged, match="other records"):
        Store.open(tmp_path / "store")


def test_a_store_is_up_while_it_erases(store, monkeypatch):
    """Fails if a health check reports a closed store, and a service is killed in an erasure."""
    seen = []
    scrub = SQLiteDatabase.scrub

    def watched(database):
        seen.append(store.is_consistent)
        scrub(database)

    monkeypatch.setattr(SQLiteDatabase, "scrub", watched)
    store.erase(PEOPLE[:2])
    assert seen == [True]
