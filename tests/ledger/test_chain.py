"""Copies, rollbacks and forks of a store are detected by the chain of commits and the witness."""

import errno
import hashlib
import os
import re
import shutil
import sqlite3
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_tools import PLAN, Q, broken_off, completed_change, left_of, make
from vicinal.errors import InvalidInput, PrivacyRefused, StorageFailed, StoreDamaged, StoreInUse
from vicinal.ledger import database as ledger_database
from vicinal.ledger.database import (
    GENESIS_HEAD,
    MIN_HASHED_BYTES,
    ChainLink,
    _compute_digest,
    attach_chain,
    find_chain_faults,
    has_commit,
)
from vicinal.ledger.ledger import Ledger
from vicinal.ledger.rollback_guard import RollbackGuard, WitnessState
from vicinal.ledger.sqlite import SQLiteDatabase
from vicinal.ledger.tables import TABLES, Tables
from vicinal.store import Store
from vicinal.store.opening import create_store
from vicinal.store.request_batch import RequestBatch
from vicinal.testing import remaining_budgets

KEY = bytes(32)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Return a folder with a closed store that has answered queries, and its witness."""
    folder = tmp_path_factory.mktemp("original")
    with make(folder / "store") as store:
        store.predict(Q[:3], idempotency_key="k")
    return folder


@pytest.fixture
def folder(original, tmp_path):
    """Return a folder with a copy of the original store and its witness."""
    shutil.copytree(original, tmp_path / "here")
    return tmp_path / "here"


def predict(path, start):
    with Store.open(path) as store:
        return store.predict(Q[start : start + 3])


def test_two_copies_that_share_a_witness_are_never_open_together(folder):
    shutil.copytree(folder / "store", folder / "copy")
    with Store.open(folder / "store"), pytest.raises(PrivacyRefused, match="witness"):
        Store.open(folder / "copy")


def test_once_one_copy_has_moved_on_the_other_is_refused(folder):
    shutil.copytree(folder / "store", folder / "copy")
    predict(folder / "copy", 3)
    with pytest.raises(PrivacyRefused, match="old copy"):
        Store.open(folder / "store")
    predict(folder / "copy", 6)


def test_a_copy_that_ran_elsewhere_is_not_swapped_back(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "elsewhere")
    predict(folder / "store", 3)
    for start in (6, 9, 12):
        predict(tmp_path / "elsewhere" / "store", start)
    shutil.rmtree(folder / "store")
    shutil.copytree(tmp_path / "elsewhere" / "store", folder / "store")
    with pytest.raises(PrivacyRefused, match="history differs"):
        Store.open(folder / "store")
    with Store.open(folder / "store", accept_loss=True) as store:
        assert not store._store.ledger.audiences["default"].account.remaining.any()
        assert store.verify()


def test_a_restored_store_retires_the_folder_it_came_from(folder):
    backup, new, witness = folder / "backup", folder / "new", folder / "store.witness"
    with Store.open(folder / "store") as store:
        store.backup(backup)
        for accept_loss in (False, True):
            with pytest.raises(StoreInUse, match="witness"):
                Store.restore(backup, new, witness=witness, accept_loss=accept_loss)
            assert not new.exists(), "the refusal left an incomplete folder"
    Store.restore(backup, new, witness=witness).close()
    with pytest.raises(PrivacyRefused, match="old copy"):
        Store.open(folder / "store")
    assert predict(new, 3).charged == 3


def test_whoever_holds_an_earlier_epoch_answers_no_more(folder):
    with Store.open(folder / "store") as store:
        # Simulates an opening by another machine, which the lock does not reach.
        content = bytearray((folder / "store.witness").read_bytes())
        content[32:48] = b"another machine."
        (folder / "store.witness").write_bytes(bytes(content))
        with pytest.raises(StorageFailed, match="opened elsewhere"):
            store.predict(Q[3:6])
        assert not store.is_consistent


def replace_by_copy(witness):
    shutil.copy(witness, witness.with_name("copy"))
    witness.with_name("copy").rename(witness)


@pytest.mark.parametrize(
    "attack",
    [
        replace_by_copy,
        Path.unlink,
        lambda witness: witness.with_name("second").hardlink_to(witness),
    ],
    ids=["replaced", "removed", "linked"],
)
def test_a_witness_that_is_not_the_file_that_was_opened_stops_the_store(folder, attack):
    """Fails if a store answers without a witness of its commits: an earlier folder would open."""
    with Store.open(folder / "store") as store:
        attack(folder / "store.witness")
        with pytest.raises(StorageFailed, match=r"store\.witness"):
            store.predict(Q[3:6])
        assert not store.is_consistent


def test_accepting_a_loss_spends_nothing_where_nothing_was_lost(folder):
    with Store.open(folder / "store") as store:
        units = left_of(store)
    with Store.open(folder / "store", accept_loss=True) as store:
        assert left_of(store) == units
        assert any(units.values())


def test_a_loss_that_was_accepted_half_way_is_good_for_one_witness(folder, monkeypatch):
    """Fails if the half-way state, put back later, opens although more was charged since."""
    shutil.copytree(folder / "store", folder / "old")
    predict(folder / "store", 3)
    shutil.rmtree(folder / "store")
    (folder / "old").rename(folder / "store")
    with broken_off(monkeypatch, "vicinal.ledger.rollback_guard.RollbackGuard.begin_epoch"):
        Store.open(folder / "store", accept_loss=True)
    shutil.copytree(folder / "store", folder / "half")
    with pytest.raises(PrivacyRefused, match="command only reads"):
        Store.open(folder / "store", read_only=True)
    with Store.open(folder / "store") as store:  # the loss is accepted: it goes on
        assert not any(remaining_budgets(store).values())
        store.open_audience("press", n_records=300, **PLAN)
        store.predict(Q[9:12], audience="press")
    shutil.rmtree(folder / "store")
    (folder / "half").rename(folder / "store")
    with pytest.raises(PrivacyRefused, match="old copy"):
        Store.open(folder / "store")


def test_a_loss_of_a_copy_that_went_another_way_erases_everybody_again(folder, tmp_path):
    """Fails if it is taken for an old copy, which contains the erasures before its clock."""
    shutil.copytree(folder, tmp_path / "elsewhere")
    with Store.open(folder / "store") as store:
        store.erase(["person-5"])
        for start in range(3, 23):
            store.predict(Q[start : start + 1])
        clock = store._store.ledger.clock
    for start in (3, 6, 9):
        predict(tmp_path / "elsewhere" / "store", start)
    shutil.rmtree(folder / "store")
    shutil.copytree(tmp_path / "elsewhere" / "store", folder / "store")
    with Store.open(folder / "store", accept_loss=True) as store:
        assert store.presence(["person-5"]).enrolled == 0
        assert store._store.ledger.clock > clock, "late blocks of the lost history come back"


def limit_disk(room, monkeypatch):
    """Limit os.pwrite to 100 bytes per call and `room` bytes in total."""
    pwrite = os.pwrite
    remaining = [room]

    def write(descriptor, content, offset):
        if not remaining[0]:
            raise OSError(errno.ENOSPC, "full")
        written = bytes(content[: min(100, remaining[0])])
        remaining[0] -= len(written)
        return pwrite(descriptor, written, offset)

    monkeypatch.setattr(os, "pwrite", write)


@pytest.mark.parametrize("room", [0, 1, 150, 368])
def test_a_witness_that_was_written_in_part_counts_none_of_it(tmp_path, monkeypatch, room):
    """Fails if an incomplete write is taken for a complete one."""
    path, erased = tmp_path / "witness", [bytes([number]) * 32 for number in range(9)]
    with closing(RollbackGuard.create(path, bytes(16))) as guard:
        before = guard.state
        with monkeypatch.context() as patch:
            limit_disk(room, patch)
            with pytest.raises(StorageFailed):
                guard.add_erased(erased, 1)
        assert WitnessState.read(path) == before
        limit_disk(1000, monkeypatch)
        guard.add_erased(erased, 1)
        assert WitnessState.read(path).erased == set(erased)


def test_a_head_counts_entries_that_are_on_the_disk(tmp_path, monkeypatch):
    """Fails if a loss of power can leave a head that counts entries which were not flushed."""
    path, lost = tmp_path / "witness", tmp_path / "lost"
    fsync = os.fsync
    pwrite = os.pwrite
    durable = [b""]

    def record_flush(descriptor):
        fsync(descriptor)
        durable[0] = path.read_bytes()

    def check_write(descriptor, content, offset):
        if offset == 0:
            lost.write_bytes(bytes(content) + durable[0][len(content) :])
            WitnessState.read(lost)
        return pwrite(descriptor, content, offset)

    with closing(RollbackGuard.create(path, bytes(16))) as guard:
        monkeypatch.setattr(os, "fsync", record_flush)
        monkeypatch.setattr(os, "pwrite", check_write)
        guard.add_erased([bytes(32)] * 9, 1)
    assert lost.exists()


def test_a_new_witness_replaces_no_other_one(folder, monkeypatch):
    """Fails if two stores created at the same time share a witness, or the second removes it."""

    def create_late(*args):
        (folder / "store.witness").rename(folder / "shared")
        return create_store(*args)

    monkeypatch.setattr("vicinal.store.store.create_store", create_late)
    before = (folder / "store.witness").read_bytes()
    with pytest.raises(InvalidInput, match="Move it away"):
        make(folder / "second", witness=folder / "shared")
    assert (folder / "shared").read_bytes() == before


@pytest.mark.parametrize("inside", ["new/witness", "new/records/witness", "there/witness", "new"])
def test_a_witness_lies_outside_its_folder(folder, inside):
    """Fails if restoring the folder can restore the witness with it."""
    with Store.open(folder / "store") as store:
        store.backup(folder / "backup")
    (folder / "there").symlink_to(folder / "new")
    with pytest.raises(InvalidInput, match="outside the store's folder"):
        make(folder / "new", witness=folder / inside)
    with pytest.raises(InvalidInput, match="outside the store's folder"):
        Store.restore(folder / "backup", folder / "new", witness=folder / inside, accept_loss=True)
    assert not (folder / "new").exists()


def test_a_witness_is_read_as_far_as_its_head_counts(tmp_path):
    """Fails if terabytes appended by an attacker are read into memory."""
    RollbackGuard.create(tmp_path / "witness", bytes(16)).close()
    before = WitnessState.read(tmp_path / "witness")
    os.truncate(tmp_path / "witness", 1 << 40)
    assert WitnessState.read(tmp_path / "witness") == before


def test_each_opening_draws_a_new_epoch(folder):
    epochs = set()
    for _ in range(3):
        with Store.open(folder / "store") as store:
            epochs.add(store._store.witness.state.epoch)
    assert len(epochs) == 3


def test_a_kill_between_commit_and_witness_is_no_loss(folder):
    before = (folder / "store.witness").read_bytes()
    predict(folder / "store", 3)
    (folder / "store.witness").write_bytes(before)
    assert predict(folder / "store", 3).charged == 0


def test_an_audience_that_was_lost_is_not_opened_again(folder):
    with Store.open(folder / "store") as store:
        store.backup(folder / "backup")
        store.open_audience("press", n_records=300, **PLAN)
    with Store.restore(
        folder / "backup", folder / "new", witness=folder / "store.witness", accept_loss=True
    ) as store:
        with pytest.raises(PrivacyRefused, match="press"):
            store.open_audience("press", n_records=300, **PLAN)
        store.open_audience("other", n_records=300, **PLAN)
    with Store.open(folder / "new") as store, pytest.raises(PrivacyRefused, match="press"):
        store.open_audience("press", n_records=300, **PLAN)


# ---------------------------------------------------------------- the ledger alone


@pytest.fixture
def ledger(tmp_path):
    database = SQLiteDatabase(tmp_path / "db", create=True)
    ledger = Ledger.create(database, KEY)
    with completed_change(ledger, "add"):
        ledger.open_audience("one", "{}")
        ledger.enroll(["anna", "ben", 7])
    database.insert(Tables.FILES, [("x", b"y")])
    yield ledger
    ledger.database.close()


def reopened(ledger, key=KEY):
    path = ledger.database._path
    ledger.database.close()
    return Ledger(SQLiteDatabase(path), key)


def test_a_ledger_knows_all_heads_that_it_had(ledger):
    heads = [(ledger.clock, ledger.head)]
    for name in ("two", "three"):
        with completed_change(ledger, "audience"):
            ledger.open_audience(name, "{}")
        heads.append((ledger.clock, ledger.head))
    assert len({head for _, head in heads}) == 3
    ledger = reopened(ledger)
    assert all(has_commit(ledger.database, *commit) for commit in heads)
    assert (ledger.clock, ledger.head) == heads[-1]
    assert not has_commit(ledger.database, ledger.clock, GENESIS_HEAD)
    assert not has_commit(ledger.database, heads[0][0], heads[1][1])


def test_links_are_read_from_the_last_one_back_and_no_further(ledger, monkeypatch):
    """Fails if an opening reads the whole chain to find the commit of the witness."""
    commit = (ledger.clock, ledger.head)
    with completed_change(ledger, "audience"):
        ledger.open_audience("two", "{}")
    parsed_rows = []
    monkeypatch.setattr(
        ledger_database, "_parse_link", lambda row: parsed_rows.append(row) or ChainLink(*row)
    )
    assert has_commit(ledger.database, *commit)
    assert len(parsed_rows) == 2


def test_charges_of_a_batch_that_breaks_off_are_in_the_witness(tmp_path, monkeypatch):
    """Fails if a copy from before the charges of a broken batch could be put back."""
    with make(tmp_path / "store") as store:

        def broken(batch, _):
            with completed_change(batch._ledger, "stands for charges that are kept"):
                pass
            raise KeyboardInterrupt

        monkeypatch.setattr(RequestBatch, "answer_requests", broken)
        with pytest.raises(KeyboardInterrupt):
            store.predict(Q[:1])
        ledger, state = store._store.ledger, store._store.witness.state
        assert (state.clock, state.head) == (ledger.clock, ledger.head)


CHANGES = {
    "ids": "UPDATE subject_pages SET ids = replace(ids, 'ben', 'bob')",
    "a slot": "UPDATE subject_pages SET slots = X'000000000200000001000000'",
    "a row less": "DELETE FROM subject_pages",
    "a row more": "INSERT INTO departed VALUES (X'00', 1, 5)",
    "a plan": "UPDATE audiences SET plan = '{ }'",
    "budgets": "UPDATE pages SET units = X'0000000000000000'",
    "a fact": "UPDATE meta SET value = '9' WHERE name = 'version'",
    "another type": "UPDATE meta SET value = X'32' WHERE name = 'version'",
    "the clock": "UPDATE meta SET value = '9' WHERE name = 'clock'",
    "a link": "UPDATE chain SET content = X'00' WHERE number = (SELECT MAX(number) FROM chain)",
    "a table": "DROP TABLE subject_pages",
    "a table that nobody declared": "CREATE TABLE foreigners (name TEXT)",
    "a trigger": "CREATE TRIGGER t AFTER INSERT ON charges BEGIN DELETE FROM charges; END",
    "columns with each other's names": [
        "ALTER TABLE charges RENAME COLUMN queries TO t",
        "ALTER TABLE charges RENAME COLUMN audience TO queries",
        "ALTER TABLE charges RENAME COLUMN t TO audience",
    ],
    "a column more": "ALTER TABLE departed ADD COLUMN x",
    "a row in another table": [  # the columns of both tables have the same types
        "INSERT INTO meta SELECT * FROM files",
        "DELETE FROM files",
    ],
    "a link behind the last": "INSERT INTO chain VALUES ((1 << 62) + 1, 0, X'00', X'00')",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_row_that_is_not_what_was_written_is_told(ledger, change):
    for statement in [change] if isinstance(change, str) else change:
        ledger.database._connection.execute(statement)
    with pytest.raises(StorageFailed, match=r"changed or damaged.*Restore a backup"):
        reopened(ledger)


def make_row(ledger, table, number):
    """Return a new row of the table with values of its column types."""
    values = {"INTEGER": 900 + number, "BLOB": bytes([number]), "TEXT": f"t{number}"}
    columns = ledger.database._connection.execute(f"PRAGMA table_info({table.name})").fetchall()
    return [values[kind] for _, _, kind, *_ in columns]


@pytest.mark.parametrize(
    "table", [table for table in TABLES if table.name != "chain"], ids=lambda t: t.name
)
def test_no_row_of_any_table_is_left_out_of_the_digests(ledger, table):
    """Fails if a row of any table can be written, changed or deleted past the ledger."""
    database, connection = ledger.database, ledger.database._connection
    row = make_row(ledger, table, 1)
    other_row = make_row(ledger, table, 2)
    database.insert(table, [row])
    attach_chain(database, KEY)
    key = table.key_of(row)
    value = f"UPDATE {table.name} SET {table.columns[-1]} = ?"  # noqa: S608 (constants)
    assert table.columns[-1] not in table.by_key
    for change in (
        (table.insertion, other_row),
        (f"{value} WHERE {table.by_key}", (other_row[-1], *key)),
        (table.build_deletion(table.by_key), key),
    ):
        connection.execute("BEGIN")
        assert connection.execute(*change).rowcount == 1
        with pytest.raises(StoreDamaged, match="its rows differ"):
            attach_chain(database, KEY)
        connection.execute("ROLLBACK")


@pytest.mark.parametrize(("back", "asked"), [(3, 7), (0, 5)])
def test_no_link_of_a_copy_that_ran_elsewhere_is_given_the_head_of_the_witness(folder, back, asked):
    """Fails if the order of links is not checked: a head needs no key, so it can be forged."""
    there = folder.with_name("there")
    shutil.copytree(folder, there)
    for start in range(1, 6):
        predict(folder / "store", 3 * start)
    seen = WitnessState.read(folder / "store.witness")
    for start in range(6, 6 + asked):
        predict(there / "store", 3 * start)
    shutil.copy(folder / "store.witness", there)
    with closing(sqlite3.connect(there / "store" / "ledger.db")) as connection:
        ((last,),) = connection.execute("SELECT MAX(number) FROM chain")
        forged = (seen.head, seen.clock, last - back)
        connection.execute("UPDATE chain SET head = ?, clock = ? WHERE number = ?", forged)
        connection.commit()
    with pytest.raises((PrivacyRefused, StorageFailed), match=r"history differs|last link differs"):
        Store.open(there / "store")


def test_an_older_ledger_is_not_brought_up_to_the_clock_of_a_witness(ledger):
    """Fails if a link with a new clock can be added to old rows, as its head needs no key."""
    connection = ledger.database._connection
    rows = connection.execute("SELECT * FROM chain ORDER BY number DESC LIMIT 1").fetchall()
    last = ChainLink(*rows[0])
    later = ChainLink.from_previous(last.head, last.number + 1, last.clock + 5, last.content)
    row = (later.number, later.clock, later.content, later.head)
    connection.execute("INSERT INTO chain VALUES (?, ?, ?, ?)", row)
    with pytest.raises(StorageFailed, match=r"changed or damaged.*Restore a backup"):
        reopened(ledger)


@pytest.mark.parametrize("size", [2, MIN_HASHED_BYTES - 1, MIN_HASHED_BYTES, 3 * MIN_HASHED_BYTES])
def test_a_digest_tells_every_byte_and_border_of_its_row(size):
    """Fails if a digest ignores bytes of a long value, or is the same for another row."""
    content = bytes(index % 251 for index in range(size))
    flipped = [content[:i] + bytes([content[i] ^ 1]) + content[i + 1 :] for i in range(size)]
    rows = [(value, b"") for value in [content, *flipped, content[1:], content + b"\0"]]
    rows += [(b"", content), (content.decode("latin-1"), b""), (content[:-1], content[-1:])]
    rows += [(hashlib.sha256(content).digest(), b"")]
    assert len({_compute_digest(b"prefix", row) for row in rows}) == len(rows)


def test_a_digest_tells_values_of_different_types():
    """Fails if a missing value equals an empty one, or a number its digits."""
    values = [None, "", b"", 0, 0.0, "0", b"0", "n", b"n;", "i0;"]
    assert len({_compute_digest(b"prefix", (value,)) for value in values}) == len(values)


def test_digests_belong_to_one_key(ledger):
    with pytest.raises(StorageFailed, match="its rows differ"):
        reopened(ledger, bytes([1]) * 32)


@pytest.mark.parametrize("changed", [{"number": 9}, {"clock": 9}, {"content": b"9"}])
def test_a_head_covers_its_link_whole(changed):
    """Fails if a part of a link can be another one under the same head."""
    link = ChainLink.from_previous(GENESIS_HEAD, 0, 5, b"content")
    parts = {"number": link.number, "clock": link.clock, "content": link.content, **changed}
    assert ChainLink.from_previous(GENESIS_HEAD, *parts.values()).head != link.head
    before = replace(link, number=-1, head=GENESIS_HEAD)
    assert link.is_successor_of(before)
    assert not replace(link, **changed).is_successor_of(before)


@pytest.mark.parametrize("column", ["clock", "content", "head"])
def test_a_link_far_back_is_compared_with_its_neighbours(ledger, column):
    """Fails if only the last links are compared, as an opening does, instead of all of them."""
    for name in ("two", "three", "four"):
        with completed_change(ledger, "audience"):
            ledger.open_audience(name, "{}")
    last = ledger.database.read("SELECT MAX(number) FROM chain")[0][0]
    value = 0 if column == "clock" else bytes(32)
    ledger.database._connection.execute(
        f"UPDATE chain SET {column} = ? WHERE number = ?",  # noqa: S608 (a constant)
        (value, last - 2),
    )
    reopened(ledger).database.close()
    ledger.database = SQLiteDatabase(ledger.database._path)
    assert find_chain_faults(ledger.database, KEY) == ["The chain of commits is broken."]


KEYS, CONTENTS = st.integers(0, 3), st.sampled_from([b"", b"short", b"long" * 400])
WRITES = st.tuples(
    st.sampled_from(["insert", "replace", "delete_rows", "delete"]),
    st.sampled_from([Tables.CHARGES, Tables.ANSWERS]),
    *(KEYS, CONTENTS, CONTENTS),
)
TRANSACTIONS = st.lists(st.tuples(st.booleans(), st.lists(WRITES, max_size=6)), max_size=6)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Yield the database of a ledger; each example continues with the rows of the previous one."""
    path = tmp_path_factory.mktemp("written") / "db"
    ledger = Ledger.create(SQLiteDatabase(path, create=True), KEY)
    yield ledger.database
    ledger.database.close()


@given(TRANSACTIONS)
def test_rows_agree_with_their_digests_after_any_writes(written, transactions):
    """Fails if a digest outlives its row, or a rollback, or counts twice.

    Digests of inserted charges are remembered until they are deleted, those of answers are not.
    """
    for undone, writes in transactions:
        with suppress(KeyError), written.transaction():
            for kind, table, key, *contents in writes:
                values = (1, 0, "5") if table is Tables.CHARGES else (1, 0)
                row = (key, *values, *contents)
                if kind == "delete_rows":
                    written.delete_rows(table, [(key,)])
                elif kind == "delete":
                    written.delete(table, "seq >= ?", (key,))
                elif kind == "replace" or written.read_rows(table, table.by_key, (key,)):
                    written.replace(table, [row])
                else:
                    written.insert(table, [row])
            if undone:
                raise KeyError
    assert find_chain_faults(written, KEY) == []


def test_a_query_only_reads(ledger):
    for statement in ("DELETE FROM departed", "INSERT INTO departed VALUES (X'00', 1, 5)"):
        with pytest.raises(InvalidInput, match="only read"):
            ledger.database.read(statement)
    assert ledger.is_consistent


WRITING = re.compile(
    r"\b(INSERT INTO|REPLACE INTO|DELETE FROM|UPDATE \w+ SET)\b|database\._(run|connection)"
)


def test_nothing_but_tables_makes_statements_that_write():
    """Fails if a module writes rows without a table, so that their digests are missing."""
    package = Path(ledger_database.__file__).parents[1]
    texts = {path: path.read_text("utf-8") for path in package.rglob("*.py")}
    assert [path.name for path, text in texts.items() if WRITING.search(text)] == ["tables.py"]


@pytest.mark.parametrize("table", ["chain", "files", "chain and files"])
def test_a_ledger_without_digests_is_refused_and_left_as_it_is(folder, table):
    """Fails if a ledger without its digests is taken for one that never had any."""
    path = folder / "store" / "ledger.db"
    connection = sqlite3.connect(path)
    for name in table.split(" and "):
        connection.execute(f"DELETE FROM {name}")  # noqa: S608 (a constant)
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StorageFailed, match="changed or damaged"):
        Store.open(folder / "store")
    assert path.read_bytes() == before
