"""Databases of a ledger: the same guarantees of SQLite and PostgreSQL."""

import sqlite3

import pytest

import store_tools as tools
from vicinal.errors import InvalidInput, MissingExtra, StorageFailed
from vicinal.ledger import postgres
from vicinal.ledger.postgres import PostgresDatabase
from vicinal.ledger.sqlite import SQLiteDatabase
from vicinal.ledger.tables import TABLES, Tables


@pytest.fixture(params=["sqlite", "postgres"])
def database(request, tmp_path, postgres_url):
    if request.param == "sqlite":
        database = SQLiteDatabase(tmp_path / "ledger.db", create=True)
    else:
        database = PostgresDatabase(postgres_url())
    yield database
    database.close()


def test_a_database_has_the_tables_that_are_declared(database):
    database.create_tables()
    assert database.read_columns() == {table.name: table.columns for table in TABLES}
    for table in TABLES:
        assert database.read_rows(table) == []


def test_a_transaction_is_all_or_nothing(database):
    database.create_tables()

    def broken():
        with database.transaction():
            database.put("one", "1")
            raise KeyError

    with pytest.raises(KeyError):
        broken()
    assert database.get("one") is None
    with database.transaction():
        database.put("one", "1")
        database.put("one", "2")
    assert database.get("one") == "2"


def test_values_come_back_as_they_were(database):
    database.create_tables()
    row = (2**63 - 1, 3, -(2**63), "0" * 400, b"\0<id:s>\xff" * 9000, b"")
    database.insert(Tables.CHARGES, [row])
    assert database.read("SELECT * FROM charges") == [row]
    assert isinstance(database.read("SELECT units FROM charges")[0][0], bytes)


def test_after_a_failure_everything_is_refused(database):
    database.create_tables()
    with pytest.raises(StorageFailed, match="refused a write"):
        database.read("SELECT nothing FROM nowhere")
    assert database.failed
    with pytest.raises(StorageFailed, match="failed before"):
        database.get("schema")
    with pytest.raises(StorageFailed), database.transaction():
        pytest.fail("a failed database starts no transaction")


def test_errors_repeat_no_values(database):
    database.create_tables()
    row = (b"canary-anna", 1, 5)
    database.insert(Tables.DEPARTED, [row])
    with pytest.raises(StorageFailed) as caught:
        database.insert(Tables.DEPARTED, [row])
    assert "canary" not in str(caught.value)


def test_one_connection_at_a_time_holds_the_lock_of_a_server(postgres_url):
    url = postgres_url()
    first, second = PostgresDatabase(url), PostgresDatabase(url)
    assert first.lock()
    assert not second.lock()
    first.close()
    assert second.lock(), "a closed connection holds no lock"
    second.close()


def test_a_server_that_is_not_there_is_said_so():
    pytest.importorskip("psycopg")
    with pytest.raises(StorageFailed):
        PostgresDatabase("postgresql:///nobody")


def test_without_psycopg_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"vicinal\[postgres\]"):
        postgres.PostgresDatabase("postgresql:///x")


def test_a_database_is_not_made_by_looking_for_it(tmp_path):
    with pytest.raises(InvalidInput, match="no database"):
        SQLiteDatabase(tmp_path / "ledger.db")
    assert not (tmp_path / "ledger.db").exists()


@pytest.mark.parametrize("read_only", [False, True])
def test_a_database_that_is_exchanged_while_it_is_opened_is_refused(
    tmp_path, monkeypatch, read_only
):
    for name in ("ledger", "other"):
        SQLiteDatabase(tmp_path / name, create=True).close()
    connect = sqlite3.connect

    def exchange(*arguments, **options):
        (tmp_path / "other").replace(tmp_path / "ledger")
        return connect(*arguments, **options)

    monkeypatch.setattr(sqlite3, "connect", exchange)
    with pytest.raises(StorageFailed, match="was replaced while it was opened"):
        SQLiteDatabase(tmp_path / "ledger", read_only=read_only)


def test_scrubbing_leaves_nothing_deleted_in_any_file(tmp_path):
    database = SQLiteDatabase(tmp_path / "ledger.db", create=True)
    database.create_tables()
    rows = [(i, 0, b"", b"canary-%d" % i) for i in range(5000)]
    with database.transaction():
        database.insert(Tables.SUBJECT_PAGES, rows)
    assert tools.files_with(tmp_path, b"canary-4")
    database.delete(Tables.SUBJECT_PAGES, "page >= 10")
    assert tools.files_with(tmp_path, b"canary-4999"), "the log still holds the deleted row"
    database.scrub()
    assert not tools.files_with(tmp_path, b"canary-4999")
    assert tools.files_with(tmp_path, b"canary-9")
    database.close()


def test_scrubbing_says_so_when_a_reader_is_in_the_way(tmp_path):
    database = SQLiteDatabase(tmp_path / "ledger.db", create=True)
    database.create_tables()
    reader = SQLiteDatabase(tmp_path / "ledger.db")
    reader._connection.execute("BEGIN")
    reader.get("schema")
    database._connection.execute("PRAGMA busy_timeout = 50")
    with pytest.raises(StorageFailed):
        database.scrub()
    assert database.failed
    reader.close()
    database.close()


def test_a_change_that_fails_leaves_the_log_as_it_was_kept(tmp_path):
    database = SQLiteDatabase(tmp_path / "ledger.db", create=True)
    (before,) = database._connection.execute("PRAGMA wal_autocheckpoint")
    assert before != (0,)

    def fail():
        assert list(database._connection.execute("PRAGMA wal_autocheckpoint")) == [(0,)]
        raise KeyError

    with pytest.raises(KeyError), database.delay_log_writes():
        fail()
    assert list(database._connection.execute("PRAGMA wal_autocheckpoint")) == [before]
    database.close()
