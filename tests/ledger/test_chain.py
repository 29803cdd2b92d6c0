"""The chain of commits: copies, rollbacks and forks of a store are noticed, and digests hold."""

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

from store_tools import PLAN, Q, broken_off, completed_change, make
from vicinal.errors import InvalidInput, PrivacyRefused, StorageFailed, StoreDamaged, StoreInUse
from vicinal.ledger import database as _chain
from vicinal.ledger.database import NO_HEAD, ChainLink, chain_faults, is_descendant
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
    """A closed store that has answered, with its witness, to be copied."""
    place = tmp_path_factory.mktemp("original")
    with make(place / "store") as store:
        store.predict(Q[:3], idempotency_key="k")
    return place


@pytest.fixture
def place(original, tmp_path):
    """A folder with a store of its own, as if it had been moved there."""
    shutil.copytree(original, tmp_path / "here")
    return tmp_path / "here"


def ask(path, start):
    with Store.open(path) as store:
        return store.predict(Q[start : start + 3])


def copied(source, target):
    shutil.copytree(source, target)


def test_two_copies_that_share_a_witness_are_never_open_together(place):
    copied(place / "store", place / "copy")
    shutil.copy(place / "store.witness", place / "kept")
    with Store.open(place / "store"):
        config = (place / "copy" / "store.json").read_text()
        assert "store.witness" in config
        with pytest.raises(PrivacyRefused, match="witness"):
            Store.open(place / "copy")


def test_once_one_copy_has_moved_on_the_other_is_refused(place):
    copied(place / "store", place / "copy")
    ask(place / "copy", 3)
    with pytest.raises(PrivacyRefused, match="old copy"):
        Store.open(place / "store")
    ask(place / "copy", 6)


def test_a_copy_that_ran_elsewhere_is_not_swapped_back(place, tmp_path):
    shutil.copytree(place, tmp_path / "elsewhere")
    ask(place / "store", 3)
    for start in (6, 9, 12):
        ask(tmp_path / "elsewhere" / "store", start)
    shutil.rmtree(place / "store")
    shutil.copytree(tmp_path / "elsewhere" / "store", place / "store")
    with pytest.raises(PrivacyRefused, match="history differs"):
        Store.open(place / "store")
    with Store.open(place / "store", accept_loss=True) as store:
        assert not store._parts.ledger.audiences["default"].account.remaining.any()
        assert store.verify()


def test_a_restored_store_retires_the_folder_it_came_from(place):
    with Store.open(place / "store") as store:
        store.backup(place / "backup")
        with pytest.raises(PrivacyRefused, match="witness"):
            Store.restore(place / "backup", place / "new", witness=place / "store.witness")
        assert not (place / "new").exists()
    Store.restore(place / "backup", place / "new", witness=place / "store.witness").close()
    with pytest.raises(PrivacyRefused, match="old copy"):
        Store.open(place / "store")
    assert ask(place / "new", 3).charged == 3


def test_whoever_holds_an_earlier_epoch_answers_no_more(place):
    with Store.open(place / "store") as store:
        before = store._parts.witness.state.epoch
        state = WitnessState.read(place / "store.witness")
        assert state.epoch == before
        # As if another machine, which the lock does not reach, had opened it.
        content = bytearray((place / "store.witness").read_bytes())
        content[32:48] = b"another machine."
        (place / "store.witness").write_bytes(bytes(content))
        with pytest.raises(StorageFailed, match="opened elsewhere"):
            store.predict(Q[3:6])
        assert not store.is_consistent


def copied_over(witness):
    shutil.copy(witness, witness.with_name("copy"))
    witness.with_name("copy").rename(witness)


@pytest.mark.parametrize(
    "attack",
    [copied_over, Path.unlink, lambda witness: witness.with_name("second").hardlink_to(witness)],
    ids=["replaced", "removed", "linked"],
)
def test_a_witness_that_is_not_the_file_that_was_opened_stops_the_store(place, attack):
    """Fails if a store answers whose commits no witness hears of: an earlier folder would open."""
    with Store.open(place / "store") as store:
        attack(place / "store.witness")
        with pytest.raises(StorageFailed, match=r"store\.witness"):
            store.predict(Q[3:6])
        assert not store.is_consistent


def test_a_loss_that_was_accepted_half_way_is_good_for_one_witness(place, monkeypatch):
    """Fails if the half-way state, put back later, opens although more was charged since."""
    copied(place / "store", place / "old")
    ask(place / "store", 3)
    shutil.rmtree(place / "store")
    (place / "old").rename(place / "store")
    with broken_off(monkeypatch, "vicinal.ledger.rollback_guard.RollbackGuard.begin"):
        Store.open(place / "store", accept_loss=True)
    copied(place / "store", place / "half")
    with pytest.raises(PrivacyRefused, match="only read cannot finish"):
        Store.open(place / "store", reading=True)
    with Store.open(place / "store") as store:  # the loss is accepted: it goes on
        assert not any(remaining_budgets(store).values())
        store.open_audience("press", n_records=300, **PLAN)
        store.predict(Q[9:12], audience="press")
    shutil.rmtree(place / "store")
    (place / "half").rename(place / "store")
    with pytest.raises(PrivacyRefused, match="old copy"):
        Store.open(place / "store")


def test_a_loss_of_a_copy_that_went_another_way_erases_everybody_again(place, tmp_path):
    """Fails if it passes for a mere old copy, which knows of the erasures before its clock."""
    shutil.copytree(place, tmp_path / "elsewhere")
    with Store.open(place / "store") as store:
        store.erase(["person-5"])
        for start in range(3, 23):
            store.predict(Q[start : start + 1])
        clock = store._parts.ledger.clock
    for start in (3, 6, 9):
        ask(tmp_path / "elsewhere" / "store", start)
    shutil.rmtree(place / "store")
    shutil.copytree(tmp_path / "elsewhere" / "store", place / "store")
    with Store.open(place / "store", accept_loss=True) as store:
        assert store.presence(["person-5"]).enrolled == 0
        assert store._parts.ledger.clock > clock, "late blocks of the lost history come back"


def disk_with(room, monkeypatch):
    """Let os.pwrite take at most 100 bytes at a time, and `room` in all."""
    pwrite, left = os.pwrite, [room]

    def write(descriptor, content, offset):
        if not left[0]:
            raise OSError(errno.ENOSPC, "full")
        taken = bytes(content[: min(100, left[0])])
        left[0] -= len(taken)
        return pwrite(descriptor, taken, offset)

    monkeypatch.setattr(os, "pwrite", write)


@pytest.mark.parametrize("room", [0, 1, 150, 368])
def test_a_witness_that_was_written_in_part_counts_none_of_it(tmp_path, monkeypatch, room):
    """Fails if a short write passes for a whole one."""
    path, erased = tmp_path / "witness", [bytes([one]) * 32 for one in range(9)]
    with closing(RollbackGuard.create(path, bytes(16))) as guard:
        before = guard.state
        with monkeypatch.context() as patch:
            disk_with(room, patch)
            with pytest.raises(StorageFailed):
                guard.add_erased(erased, 1)
        assert WitnessState.read(path) == before
        disk_with(1000, monkeypatch)
        guard.add_erased(erased, 1)
        assert WitnessState.read(path).erased == set(erased)


def test_a_head_counts_entries_that_are_on_the_disk(tmp_path, monkeypatch):
    """Fails if a loss of power can leave a head that counts entries which were not flushed."""
    path, lost = tmp_path / "witness", tmp_path / "lost"
    fsync, pwrite, durable = os.fsync, os.pwrite, [b""]

    def flushed(descriptor):
        fsync(descriptor)
        durable[0] = path.read_bytes()

    def written(descriptor, content, offset):
        if offset == 0:
            lost.write_bytes(bytes(content) + durable[0][len(content) :])
            WitnessState.read(lost)
        return pwrite(descriptor, content, offset)

    with closing(RollbackGuard.create(path, bytes(16))) as guard:
        monkeypatch.setattr(os, "fsync", flushed)
        monkeypatch.setattr(os, "pwrite", written)
        guard.add_erased([bytes(32)] * 9, 1)
    assert lost.exists()


def test_a_new_witness_replaces_no_other_one(place, monkeypatch):
    """Fails if two stores that are made at one time get one witness, or the second removes it."""

    def late(*args):
        (place / "store.witness").rename(place / "shared")
        return create_store(*args)

    monkeypatch.setattr("vicinal.store.store.create_store", late)
    before = (place / "store.witness").read_bytes()
    with pytest.raises(InvalidInput, match="Move it away"):
        make(place / "second", witness=place / "shared")
    assert (place / "shared").read_bytes() == before


def test_a_restore_beside_the_open_store_makes_nothing(place):
    """Fails if it is refused only once the folder is there: then that lies there as a half one."""
    with Store.open(place / "store") as store:
        store.backup(place / "backup")
        with pytest.raises(StoreInUse, match="witness"):
            Store.restore(
                place / "backup", place / "new", witness=place / "store.witness", accept_loss=True
            )
    assert not (place / "new").exists()


@pytest.mark.parametrize("inside", ["new/witness", "new/records/witness", "there/witness", "new"])
def test_a_witness_lies_outside_its_folder(place, inside):
    """Fails if whoever puts the folder back puts the witness back with it."""
    with Store.open(place / "store") as store:
        store.backup(place / "backup")
    (place / "there").symlink_to(place / "new")
    with pytest.raises(InvalidInput, match="outside the store's folder"):
        make(place / "new", witness=place / inside)
    with pytest.raises(InvalidInput, match="outside the store's folder"):
        Store.restore(place / "backup", place / "new", witness=place / inside, accept_loss=True)
    assert not (place / "new").exists()


def test_a_witness_is_read_as_far_as_its_head_counts(tmp_path):
    """Fails if a stranger's sparse terabyte is read into memory."""
    RollbackGuard.create(tmp_path / "witness", bytes(16)).close()
    before = WitnessState.read(tmp_path / "witness")
    os.truncate(tmp_path / "witness", 1 << 40)
    assert WitnessState.read(tmp_path / "witness") == before


def test_each_opening_draws_a_new_epoch(place):
    epochs = set()
    for _ in range(3):
        with Store.open(place / "store") as store:
            epochs.add(store._parts.witness.state.epoch)
    assert len(epochs) == 3


def test_a_kill_between_commit_and_witness_is_no_loss(place):
    before = (place / "store.witness").read_bytes()
    ask(place / "store", 3)
    (place / "store.witness").write_bytes(before)
    assert ask(place / "store", 3).charged == 0


def test_an_audience_that_was_lost_is_not_opened_again(place):
    with Store.open(place / "store") as store:
        store.backup(place / "backup")
        store.open_audience("press", epsilon=1.0, n_queries=5, n_records=300)
    with Store.restore(
        place / "backup", place / "new", witness=place / "store.witness", accept_loss=True
    ) as store:
        with pytest.raises(PrivacyRefused, match="press"):
            store.open_audience("press", epsilon=1.0, n_queries=5, n_records=300)
        store.open_audience("other", epsilon=1.0, n_queries=5, n_records=300)
    with Store.open(place / "new") as store, pytest.raises(PrivacyRefused, match="press"):
        store.open_audience("press", epsilon=1.0, n_queries=5, n_records=300)


# ---------------------------------------------------------------- the ledger alone


@pytest.fixture
def book(tmp_path):
    database = SQLiteDatabase(tmp_path / "db", create=True)
    book = Ledger.create(database, KEY)
    with completed_change(book, "add"):
        book.open_audience("one", "{}")
        book.enroll(["anna", "ben", 7])
    yield book
    book.database.close()


def reopened(book, key=KEY):
    path = book.database._path
    book.database.close()
    return Ledger(SQLiteDatabase(path), key)


def test_a_ledger_knows_all_heads_that_it_had(book):
    heads = [(book.clock, book.head)]
    for name in ("two", "three"):
        with completed_change(book, "audience"):
            book.open_audience(name, "{}")
        heads.append((book.clock, book.head))
    assert len({head for _, head in heads}) == 3
    book = reopened(book)
    assert all(is_descendant(book.database, *place) for place in heads)
    assert (book.clock, book.head) == heads[-1]
    assert not is_descendant(book.database, book.clock, NO_HEAD)
    assert not is_descendant(book.database, heads[0][0], heads[1][1])


def test_links_are_read_from_the_last_one_back_and_no_further(book, monkeypatch):
    """Fails if an opening reads the whole chain to find the witness's place in it."""
    place = book.clock, book.head
    with completed_change(book, "audience"):
        book.open_audience("two", "{}")
    read = []
    monkeypatch.setattr(_chain, "_link_of", lambda row: read.append(row) or ChainLink(*row))
    assert is_descendant(book.database, *place)
    assert len(read) == 2


def test_charges_of_a_batch_that_breaks_off_are_in_the_witness(tmp_path, monkeypatch):
    """Fails if a copy from before the charges of a broken batch could be put back."""
    with make(tmp_path / "store") as store:

        def broken(batch, _):
            with completed_change(batch._ledger, "stands for charges that are kept"):
                pass
            raise KeyboardInterrupt

        monkeypatch.setattr(RequestBatch, "run", broken)
        with pytest.raises(KeyboardInterrupt):
            store.predict(Q[:1])
        ledger, state = store._parts.ledger, store._parts.witness.state
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
    "a link behind the last": "INSERT INTO chain VALUES ((1 << 62) + 1, 0, X'00', X'00')",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_row_that_is_not_what_was_written_is_told(book, change):
    for statement in [change] if isinstance(change, str) else change:
        book.database._connection.execute(statement)
    with pytest.raises(StorageFailed, match=r"changed or damaged.*Restore a backup"):
        reopened(book)


def row_of(book, table, number):
    """Return a row that nobody else has written, of the types that the table's columns have."""
    values = {"INTEGER": 900 + number, "BLOB": bytes([number]), "TEXT": f"t{number}"}
    columns = book.database._connection.execute(f"PRAGMA table_info({table.name})").fetchall()
    return [values[kind] for _, _, kind, *_ in columns]


@pytest.mark.parametrize(
    "table", [one for one in TABLES if one.name != "chain"], ids=lambda t: t.name
)
def test_no_row_of_any_table_is_left_out_of_the_digests(book, table, tmp_path):
    """Fails if a row of any table can be written, changed or deleted past the ledger."""
    here, more = row_of(book, table, 1), row_of(book, table, 2)
    book.database.insert(table, [here])
    key = table.key_of(here)
    value = f"UPDATE {table.name} SET {table.columns[-1]} = ?"  # noqa: S608 (constants)
    assert table.columns[-1] not in table.by_key
    copies = {
        None: None,
        "more": (table.insertion, more),
        "other": (f"{value} WHERE {table.by_key}", (more[-1], *key)),
        "less": (table.deletion(table.by_key), key),
    }
    for name, change in copies.items():
        path = tmp_path / f"{name}.db"
        with closing(sqlite3.connect(path)) as connection:
            book.database._connection.backup(connection)
            if change is not None:
                assert connection.execute(*change).rowcount == 1
            connection.commit()
        with closing(SQLiteDatabase(path)) as database:
            if change is None:
                _chain.attach(database, KEY)
            else:
                with pytest.raises(StoreDamaged, match="its rows differ"):
                    _chain.attach(database, KEY)


@pytest.mark.parametrize(("back", "asked"), [(3, 7), (0, 5)])
def test_no_link_of_a_copy_that_ran_elsewhere_is_given_the_head_of_the_witness(place, back, asked):
    """Fails if links need not follow one another: heads need no key, so one is soon forged."""
    copied(place, place.with_name("there"))
    for start in range(1, 6):
        ask(place / "store", 3 * start)
    seen = WitnessState.read(place / "store.witness")
    there = place.with_name("there")
    for start in range(6, 6 + asked):
        ask(there / "store", 3 * start)
    shutil.copy(place / "store.witness", there)
    with closing(sqlite3.connect(there / "store" / "ledger.db")) as connection:
        ((last,),) = connection.execute("SELECT MAX(number) FROM chain")
        forged = (seen.head, seen.clock, last - back)
        connection.execute("UPDATE chain SET head = ?, clock = ? WHERE number = ?", forged)
        connection.commit()
    with pytest.raises((PrivacyRefused, StorageFailed), match=r"history differs|last link differs"):
        Store.open(there / "store")


def test_an_older_ledger_is_not_brought_up_to_the_clock_of_a_witness(book):
    """The head of a link needs no key: a link with today's clock is added to yesterday's rows."""
    connection = book.database._connection
    rows = connection.execute("SELECT * FROM chain ORDER BY number DESC LIMIT 1").fetchall()
    last = _chain.ChainLink(*rows[0])
    later = _chain.ChainLink.after(last.head, last.number + 1, last.clock + 5, last.content)
    connection.execute(
        "INSERT INTO chain VALUES (?, ?, ?, ?)",
        (later.number, later.clock, later.content, later.head),
    )
    with pytest.raises(StorageFailed, match=r"changed or damaged.*Restore a backup"):
        reopened(book)


@pytest.mark.parametrize("size", [2, _chain.LONG - 1, _chain.LONG, 3 * _chain.LONG])
def test_a_digest_tells_every_byte_and_border_of_its_row(size):
    """Fails if a long value enters by less than all its bytes, or may be taken for another."""
    content = bytes(place % 251 for place in range(size))
    flipped = [content[:i] + bytes([content[i] ^ 1]) + content[i + 1 :] for i in range(size)]
    rows = [(one, b"") for one in [content, *flipped, content[1:], content + b"\0"]]
    rows += [(b"", content), (content.decode("latin-1"), b""), (content[:-1], content[-1:])]
    rows += [(hashlib.sha256(content).digest(), b"")]
    assert len({_chain._digest_of(b"prefix", row) for row in rows}) == len(rows)


def test_a_digest_tells_values_of_different_types():
    """Fails if what is missing passes for empty, or a number for its digits."""
    values = [None, "", b"", 0, 0.0, "0", b"0", "n", b"n;", "i0;"]
    assert len({_chain._digest_of(b"prefix", (one,)) for one in values}) == len(values)


def test_rows_that_changed_tables_are_told(book):
    """Fails if a digest does not cover the table of its row: both tables have equal columns."""
    book.database.insert(Tables.FILES, [("x", b"y")])
    for statement in ("INSERT INTO meta SELECT * FROM files", "DELETE FROM files"):
        book.database._connection.execute(statement)
    with pytest.raises(StorageFailed, match="its rows differ"):
        reopened(book)


def test_digests_belong_to_one_key(book):
    with pytest.raises(StorageFailed, match="its rows differ"):
        reopened(book, bytes([1]) * 32)


@pytest.mark.parametrize("changed", [{"number": 9}, {"clock": 9}, {"content": b"9"}])
def test_a_head_covers_its_link_whole(changed):
    """Fails if a part of a link can be another one under the same head."""
    link = ChainLink.after(NO_HEAD, 0, 5, b"content")
    parts = {"number": link.number, "clock": link.clock, "content": link.content, **changed}
    assert ChainLink.after(NO_HEAD, *parts.values()).head != link.head
    before = replace(link, number=-1, head=NO_HEAD)
    assert link.follows(before)
    assert not replace(link, **changed).follows(before)


@pytest.mark.parametrize("column", ["clock", "content", "head"])
def test_a_link_far_back_is_compared_with_its_neighbours(book, column):
    """Fails if only the last links are: an opening reads no others, so a check of all must."""
    for name in ("two", "three", "four"):
        with completed_change(book, "audience"):
            book.open_audience(name, "{}")
    last = book.database.read("SELECT MAX(number) FROM chain")[0][0]
    value = 0 if column == "clock" else bytes(32)
    book.database._connection.execute(
        f"UPDATE chain SET {column} = ? WHERE number = ?",  # noqa: S608 (a constant)
        (value, last - 2),
    )
    reopened(book).database.close()
    book.database = SQLiteDatabase(book.database._path)
    assert chain_faults(book.database, KEY) == ["The chain of commits is broken."]


def test_every_write_is_digested_however_it_is_made(book):
    database = book.database
    database.put("one", "1")  # outside a transaction
    with database.transaction():
        database.put("one", "2")
        database.delete(Tables.DEPARTED)
        database.insert(Tables.DEPARTED, [(b"x", 1, 5), (b"y", 1, 6)])
        rows = database.rows(Tables.DEPARTED)
        database.replace(Tables.DEPARTED, [(*row[:2], 0) for row in rows])
    with suppress(KeyError), database.transaction():
        database.put("one", "3")
        raise KeyError
    with database.transaction():  # rows whose digests are known, and were taken away since
        database.put("one", "2")
        database.put("two", "1")
        database.delete(Tables.META, "name = ?", ("two",))
        database.put("two", "2")
        database.replace(Tables.META, [("two", "3")])
        database.put("two", "4")
    assert chain_faults(database, KEY) == []
    again = reopened(book)
    assert again.database.get("one") == "2"
    assert again.database.read("SELECT units FROM departed") == [(0,), (0,)]


KEYS, CONTENTS = st.integers(0, 3), st.sampled_from([b"", b"short", b"long" * 400])
CHARGED = st.tuples(KEYS, st.just(1), st.just(0), st.just("5"), CONTENTS, CONTENTS)
WRITES = st.one_of(
    st.tuples(st.just("insert"), CHARGED),
    st.tuples(st.just("replace"), CHARGED),
    st.tuples(st.just("delete_keys"), KEYS),
    st.tuples(st.just("delete"), KEYS),
)
TRANSACTIONS = st.lists(st.tuples(st.booleans(), st.lists(WRITES, max_size=6)), max_size=6)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A ledger that is written to in every order; each example goes on where one stopped."""
    path = tmp_path_factory.mktemp("written") / "db"
    ledger = Ledger.create(SQLiteDatabase(path, create=True), KEY)
    yield ledger.database
    ledger.database.close()


@given(TRANSACTIONS)
def test_rows_agree_with_their_digests_after_any_writes(written, transactions):
    """Fails if a remembered digest outlives its row, or a rollback, or counts twice."""
    for undone, writes in transactions:
        here = {row[0] for row in written.rows(Tables.CHARGES)}
        with suppress(KeyError), written.transaction():
            for kind, what in writes:
                if kind == "insert" and what[0] not in here:
                    written.insert(Tables.CHARGES, [what])
                elif kind in ("insert", "replace"):
                    written.replace(Tables.CHARGES, [what])
                elif kind == "delete_keys":
                    written.delete_keys(Tables.CHARGES, [(what,)])
                else:
                    written.delete(Tables.CHARGES, "seq >= ?", (what,))
                here = {row[0] for row in written.rows(Tables.CHARGES)}
            if undone:
                raise KeyError
    assert chain_faults(written, KEY) == []


def test_a_query_only_reads(book):
    for statement in ("DELETE FROM departed", "INSERT INTO departed VALUES (X'00', 1, 5)"):
        with pytest.raises(InvalidInput, match="only read"):
            book.database.read(statement)
    assert book.is_consistent


WRITING = re.compile(
    r"\b(INSERT INTO|REPLACE INTO|DELETE FROM|UPDATE \w+ SET)\b|database\._(run|connection)"
)


def test_nothing_but_tables_makes_statements_that_write():
    """Fails if rows are written past their table, so that their digests would be missing."""
    package = Path(_chain.__file__).parents[1]
    texts = {path: path.read_text("utf-8") for path in package.rglob("*.py")}
    assert [path.name for path, text in texts.items() if WRITING.search(text)] == ["tables.py"]


@pytest.mark.parametrize("table", ["chain", "files", "chain and files"])
def test_a_ledger_without_digests_is_refused_and_left_as_it_is(place, table):
    """Fails if a ledger whose digests were deleted is taken for one that never had any."""
    path = place / "store" / "ledger.db"
    connection = sqlite3.connect(path)
    for name in table.split(" and "):
        connection.execute(f"DELETE FROM {name}")  # noqa: S608 (a constant)
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StorageFailed, match="changed or damaged"):
        Store.open(place / "store")
    assert path.read_bytes() == before
