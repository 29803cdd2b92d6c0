"""Databases of a ledger: the same guarantees of SQLite and PostgreSQL."""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

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
    with suppress(KeyError), database.transaction():
        database.put("one", "1")
        raise KeyError
    assert database.get("one") is None
    with database.transaction():
        database.put("one", "1")
        database.put("one", "2")
    assert database.get("one") == "2"


def test_rows_of_many_values_are_all_found_ordered_by_key(database):
    """Fails if an erased subject among many is not found: it would get a second budget."""
    database.create_tables()
    hashes = [number.to_bytes(32, "big") for number in range(600)]
    rows = [(hashed, audience, 7) for hashed in hashes for audience in (1, -2)]
    database.insert(Tables.DEPARTED, rows)
    found = list(database.iterate_matches(Tables.DEPARTED, "hash", [*hashes, b"unknown"]))
    assert found == sorted(rows)


def test_values_come_back_as_they_were(database):
    database.create_tables()
    row = (2**63 - 1, 3, -(2**63), "0" * 400, b"\0<id:s>\xff" * 9000, b"")
    database.insert(Tables.CHARGES, [row])
    assert database.read("SELECT * FROM charges") == [row]
    assert isinstance(database.read("SELECT units FROM charges")[0][0], bytes)


def test_after_a_failure_everything_is_refused(database):
    database.create_tables()
    with pytest.raises(StorageFailed, match="refused a read or write"):
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


def test_one_connection_at_a_time_holds_the_lock_of_a_server(postgres_url, monkeypatch):
    url = postgres_url()
    first, second = PostgresDatabase(url), PostgresDatabase(url)
    assert first.lock()
    with monkeypatch.context() as patch:
        patch.setattr(postgres, "_LOCK_TIMEOUT_S", 0.1)
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


@pytest.mark.parametrize("step", ["open", "read", "recover"])
@pytest.mark.parametrize("by_link", [False, True])
def test_a_database_that_is_exchanged_while_it_is_opened_is_refused(
    tmp_path, monkeypatch, step, by_link
):
    """The refusal also leaves the log files and the process as they were."""
    path, other = tmp_path / "ledger", tmp_path / "other"
    SQLiteDatabase(path, create=True).close()
    original = path.read_bytes()
    index = tmp_path / "ledger-shm"
    index.write_bytes(b"an index without a log")
    n_descriptors = len(list(Path("/dev/fd").iterdir()))
    connect = sqlite3.connect

    def exchange(*arguments, **options):
        if by_link:
            path.symlink_to(path.replace(other))
        else:
            path.unlink()
            path.write_bytes(original)  # may get the inode of the file that is gone
        return connect(*arguments, **options)

    database = SQLiteDatabase(path, read_only=True) if step == "recover" else None
    monkeypatch.setattr(sqlite3, "connect", exchange)
    with (
        pytest.raises(StorageFailed, match="was replaced while it was opened"),
        closing(database or SQLiteDatabase(path, read_only=step == "read")) as opened,
    ):
        opened.recover()
    if step == "read":
        assert index.read_bytes() == b"an index without a log"
    assert len(list(Path("/dev/fd").iterdir())) == n_descriptors


def test_a_writable_database_is_for_its_owner_alone(tmp_path):
    """Also its log, as a killed process leaves it and a copy with other modes."""
    (tmp_path / "copy").mkdir()
    with closing(SQLiteDatabase(tmp_path / "ledger", create=True)) as database:
        database.create_tables()
        for path in tmp_path.glob("ledger*"):
            (tmp_path / "copy" / path.name).write_bytes(path.read_bytes())
    copies = list((tmp_path / "copy").iterdir())
    for path in copies:
        path.chmod(0o644)
    with closing(SQLiteDatabase(tmp_path / "copy" / "ledger")):
        assert {path.name for path in copies} == {"ledger", "ledger-wal", "ledger-shm"}
        assert {path.stat().st_mode & 0o777 for path in copies} == {0o600}


def test_the_files_of_a_database_are_opened_once(tmp_path):
    n_descriptors = len(list(Path("/dev/fd").iterdir()))
    database = SQLiteDatabase(tmp_path / "ledger", create=True)
    database.create_tables()
    descriptors = database.open_files()
    assert {path.name for path in descriptors} == {"ledger", "ledger-wal", "ledger-shm"}
    assert database.open_files() == descriptors
    database.close()
    assert len(list(Path("/dev/fd").iterdir())) == n_descriptors


@pytest.mark.parametrize("read_only", [False, True])
def test_a_link_to_a_database_is_refused(tmp_path, read_only):
    SQLiteDatabase(tmp_path / "other", create=True).close()
    (tmp_path / "ledger").symlink_to(tmp_path / "other")
    with pytest.raises(StorageFailed, match="symbolic links"):
        SQLiteDatabase(tmp_path / "ledger", read_only=read_only)


def test_a_link_in_place_of_a_log_file_is_not_followed(tmp_path):
    """Else the folder's owner could let root read, restrict or overwrite files."""
    SQLiteDatabase(tmp_path / "ledger", create=True).close()
    index, journal = tmp_path / "ledger-shm", tmp_path / "ledger-journal"
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    secret.chmod(0o644)
    index.symlink_to(secret)
    with pytest.raises(StorageFailed, match="symbolic links"):
        SQLiteDatabase(tmp_path / "ledger", read_only=True)
    index.unlink()
    index.write_bytes(b"an index without a log")
    database = SQLiteDatabase(tmp_path / "ledger", read_only=True)
    assert database.read_columns() == {}
    index.unlink(missing_ok=True)
    index.symlink_to(secret)
    database.close()
    assert index.read_bytes() == b"an index without a log"
    journal.symlink_to(secret)
    with pytest.raises(StorageFailed, match="symbolic links"):
        SQLiteDatabase(tmp_path / "ledger")
    assert secret.read_bytes() == b"secret"
    assert secret.stat().st_mode & 0o777 == 0o644


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
    with suppress(KeyError), database.delay_checkpoints():
        assert list(database._connection.execute("PRAGMA wal_autocheckpoint")) == [(0,)]
        raise KeyError
    assert list(database._connection.execute("PRAGMA wal_autocheckpoint")) == [before]
    database.close()
