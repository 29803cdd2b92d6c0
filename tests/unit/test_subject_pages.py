"""Subjects on disk: who comes and goes, in any order, and stores whose subjects were rows."""

from __future__ import annotations

import shutil
import sqlite3

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import store_tools as tools
from vicinal.errors import StorageFailed
from vicinal.ledger import _chain, _subject_pages
from vicinal.ledger._chain import attach, chain_faults
from vicinal.ledger._id_encoding import MOST_BYTES, framed
from vicinal.ledger._schema import STEPS, migrate
from vicinal.ledger._sqlite import SQLiteDatabase
from vicinal.ledger._subject_pages import (
    PAGE_SLOTS,
    read_framed,
    remove_subjects,
    rows_to_pages,
    write_subjects,
)
from vicinal.store import Store

KEY = bytes(32)
IDS = st.one_of(st.integers(-99, 99), st.text("ab<>% é", min_size=1, max_size=5))
CHANGES = st.dictionaries(st.integers(0, 3 * PAGE_SLOTS), st.one_of(st.none(), IDS), max_size=8)


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    database = SQLiteDatabase(tmp_path_factory.mktemp("pages") / "ledger.db", create=True)
    migrate(database)
    attach(database, KEY)
    yield database
    database.close()


@given(st.lists(CHANGES, max_size=4))
def test_what_is_read_is_what_was_written_last(database, steps):
    """Fails if a change of one slot touches another, or leaves a row of its page as it was."""
    expected = {}
    with database.transaction():
        database.execute("DELETE FROM subject_pages")
        for step in steps:
            write_subjects(database, {s: i if i is None else framed(i) for s, i in step.items()})
            expected = {s: i for s, i in {**expected, **step}.items() if i is not None}
    assert dict(read_framed(database)) == {s: framed(i) for s, i in expected.items()}
    assert chain_faults(database, KEY) == []


@pytest.mark.parametrize("together", [1, 2, 32])
def test_pages_are_the_same_however_many_are_written_at_a_time(database, monkeypatch, together):
    """Fails if a page beside a changed one is written, too, or takes over its entries."""
    monkeypatch.setattr(_subject_pages, "_TOGETHER", together)
    everybody = {slot: framed(slot) for slot in range(5 * PAGE_SLOTS)}
    gone = [3, PAGE_SLOTS + 4, 3 * PAGE_SLOTS + 5, 5 * PAGE_SLOTS - 1]  # none of page 2
    with database.transaction():
        database.execute("DELETE FROM subject_pages")
        write_subjects(database, everybody)
        between = database.execute("SELECT * FROM subject_pages WHERE page = 2")
        write_subjects(database, dict.fromkeys(gone))
    assert dict(read_framed(database)) == {s: i for s, i in everybody.items() if s not in gone}
    assert database.execute("SELECT * FROM subject_pages WHERE page = 2") == between
    assert chain_faults(database, KEY) == []


SHARES = st.sampled_from([0.003, 0.02, 0.5, 0.9, 0.999, 1.0])


@given(share=SHARES, seed=st.integers(0, 99), length=st.sampled_from([1, 40, 900]))
def test_subjects_leave_the_same_rows_whichever_way_they_are_taken_out(
    database, share, seed, length
):
    """Fails if an id is cut out of the wrong place, or rows that few are left in are not packed."""
    leaves = np.random.default_rng(seed).random(PAGE_SLOTS + 60) < share
    here = {slot: framed(f"{slot}" + "x" * length) for slot in range(PAGE_SLOTS + 60)}
    gone = {slot: who for slot, who in here.items() if leaves[slot]}
    found = []
    for take_out in (
        lambda: write_subjects(database, dict.fromkeys(gone)),
        lambda: remove_subjects(database, gone),
    ):
        with database.transaction():
            database.execute("DELETE FROM subject_pages")
            write_subjects(database, here)
            take_out()
        found.append(database.execute("SELECT * FROM subject_pages ORDER BY page, part"))
        assert chain_faults(database, KEY) == []
    assert found[0] == found[1]
    assert dict(read_framed(database)) == {s: i for s, i in here.items() if s not in gone}


def test_a_subject_is_cut_out_only_where_it_stands(database):
    """An id in another place of its row than its slot's, or in none: the slot is freed."""
    with database.transaction():
        database.execute("DELETE FROM subject_pages")
        write_subjects(database, {slot: framed(slot) for slot in range(9)})
        remove_subjects(database, {3: framed(4), 5: framed("nobody")})
    expected = {slot: framed(slot) for slot in range(9) if slot not in {3, 5}}
    assert dict(read_framed(database)) == expected
    assert chain_faults(database, KEY) == []


def test_every_id_stands_in_the_file_in_one_piece(tmp_path):
    """Fails if a row is longer than a page of the file: an erased id could not be found then."""
    database = SQLiteDatabase(tmp_path / "ledger.db", create=True)
    migrate(database)
    ids = [framed(f"{i}-" + "x" * (i * 37 % (MOST_BYTES - 20))) for i in range(300)]
    with database.transaction():
        write_subjects(database, dict(enumerate(ids)))
    database.close()
    content = (tmp_path / "ledger.db").read_bytes()
    assert all(one in content for one in ids)


def with_earlier_content(database, schema):
    """Let the last link hold what an earlier schema wrote."""
    chain, number = database.chain, database.chain.last.number
    (head,) = database.execute("SELECT head FROM chain WHERE number = ?", (number - 1,))[0]
    content = _chain._earlier_contents(database, chain)[schema == 8]
    assert content != chain.last.content, "nothing to tell the schemas apart by"
    chain.last = link = _chain.ChainLink.after(head, number, chain.last.clock, content)
    row = (link.content, link.head, number)
    database._run("UPDATE chain SET content = ?, head = ? WHERE number = ?", row)


def as_schema_nine(database):
    database.put("schema", "9")


def made_as(path, schema, undo):
    """Make a closed store of an earlier schema, with long values in it."""
    with tools.make(path) as store:
        store.erase(["person-3"])
        store.predict(tools.Q[:5])
        database = store._parts.database
        (units,) = database.execute("SELECT units FROM pages")[0]
        assert len(units) >= _chain.LONG
        with database.transaction():
            undo(database)
        with_earlier_content(database, schema)
        store._parts.mark_change()
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A closed store whose subjects are rows, as schema 8 had them, with digests."""
    return made_as(tmp_path_factory.mktemp("made") / "store", 8, tools.as_schema_eight)


@pytest.fixture
def path(made, tmp_path):
    shutil.copytree(made.parent, tmp_path / "here")
    return tmp_path / "here" / "store"


def test_a_store_whose_subjects_are_rows_opens_with_the_same_budgets(path):
    with Store.open(path) as store:
        assert store._parts.database.get("schema") == str(len(STEPS))
        assert not store._parts.database.has_table("subjects")
        assert len(store._parts.ledger.slot_table.slot_of) == 149
        assert store.predict(tools.Q[:5]).charged == 0
        assert store.erase(["person-7"]) == 2
        assert store.verify(["person-3", "person-7"])
    with Store.open(path) as store:
        assert store.verify(["person-3", "person-7"])


def test_long_values_that_were_digested_whole_are_known_and_damage_is_told(tmp_path):
    """Fails if a store of schema 9 is refused, or if any sum is taken for its."""
    path = made_as(tmp_path / "made" / "store", 9, as_schema_nine)
    shutil.copytree(path.parent, tmp_path / "copy")
    connection = sqlite3.connect(tmp_path / "copy" / "store" / "ledger.db")
    (units,) = connection.execute("SELECT units FROM pages").fetchone()
    connection.execute("UPDATE pages SET units = ?", (bytes([units[0] ^ 1]) + units[1:],))
    connection.commit()
    connection.close()
    with pytest.raises(StorageFailed, match="its rows differ"):
        Store.open(tmp_path / "copy" / "store")
    with Store.open(path) as store:
        assert store._parts.database.get("schema") == str(len(STEPS))
        assert store.predict(tools.Q[:5]).charged == 0
        assert store.verify(["person-3"])


def test_a_damaged_row_of_an_earlier_schema_is_told_and_nothing_is_written(path):
    with SQLiteDatabase(path / "ledger.db")._connection as connection:
        connection.execute("UPDATE subjects SET id = X'3c69643a73623e' WHERE slot = 0")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    before = (path / "ledger.db").read_bytes()
    with pytest.raises(StorageFailed, match="its rows differ"):
        Store.open(path)
    assert (path / "ledger.db").read_bytes() == before


def test_a_move_to_pages_that_breaks_off_has_not_begun(path, monkeypatch):
    def broken(database):
        rows_to_pages(database)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("vicinal.ledger._schema.rows_to_pages", broken)
        with pytest.raises(KeyboardInterrupt):
            Store.open(path)
    with Store.open(path) as store:
        assert store.verify(["person-3"])


def test_a_backup_whose_subjects_are_rows_is_restored_to_a_server(path, tmp_path, postgres_url):
    """Fails if a ledger is migrated without its digests on its way to another database."""
    with Store.open(path) as store:
        store.backup(tmp_path / "backup")
    database = SQLiteDatabase(tmp_path / "backup" / "ledger.db")
    attach(database, (tmp_path / "backup" / "key").read_bytes())
    with database.transaction():
        tools.as_schema_eight(database)
    database.close()
    settings = {"ledger": postgres_url(), "witness": path.with_name("store.witness")}
    with Store.restore(tmp_path / "backup", tmp_path / "new", accept_loss=True, **settings) as new:
        assert new.verify(["person-3"])
