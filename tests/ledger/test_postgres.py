"""PostgreSQL servers that are refused, and passwords that are never sent."""

import socket
import threading
from pathlib import Path

import pytest

import store_tools as tools
from vicinal.errors import InvalidInput, PrivacyRefused, StorageFailed
from vicinal.ledger.postgres import PostgresDatabase, choose_server
from vicinal.ledger.sealed_files import read_sealed, write_sealed
from vicinal.store import Store

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed (extra `postgres`)")


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Return the path of the chosen servers of a user with a password, who has chosen none."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PGPASSWORD", "secret")
    return tmp_path / "config" / "vicinal" / "servers"


@pytest.fixture
def stranger():
    """Yield the port of a server that requests plain-text passwords, and the messages it gets."""
    received = []

    def serve(listener):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                while message := connection.recv(4096):
                    received.append(message)
                    # TLS and GSS are requested by 8 bytes and declined. All other messages get
                    # the answer AuthenticationCleartextPassword.
                    is_encryption_request = len(message) == 8
                    connection.sendall(b"N" if is_encryption_request else b"R\0\0\0\x08\0\0\0\x03")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        yield listener.getsockname()[1], received
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_a_server_that_nobody_chose_hears_nothing(tmp_path, config, stranger):
    """Fails if a forged folder makes this user's process connect to its server."""
    port, received = stranger
    tools.make(tmp_path / "store").close()
    fields = read_sealed(
        tmp_path / "store" / "store.json", 1,
        {"id": str, "ledger": str, "witness": str, "backup": bool}, "",
    )  # fmt: skip
    url = f"postgresql://me@127.0.0.1:{port}/db"
    write_sealed(tmp_path / "store" / "store.json", 1, {**fields, "ledger": url})
    with pytest.raises(PrivacyRefused, match=f"add the line 127.0.0.1:{port} to {config}"):
        Store.open(tmp_path / "store")
    assert not received
    choose_server(url)
    choose_server(url)
    assert config.read_text() == f"127.0.0.1:{port}\n"
    with pytest.raises(StorageFailed, match="scram-sha-256"):
        Store.open(tmp_path / "store")
    assert received
    assert not any(b"secret" in message for message in received), "a password is never sent"


def test_a_chosen_server_does_not_extend_a_line_without_an_end(config):
    """Fails if both servers are lost: an editor may leave the last line without its end."""
    config.parent.mkdir(parents=True)
    config.write_text("own:5432")
    choose_server("postgresql://host:5433/db")
    assert config.read_text() == "own:5432\nhost:5433\n"


@pytest.mark.parametrize(
    "rest",
    [
        "?password=x", "?passfile=/etc/passwd", "?service=evil", "?sslkeylogfile=/tmp/x",
        "?require_auth=password", "?hostaddr=10.0.0.1", "?options=-cfsync%3Doff", "?nonsense=1",
    ],
)  # fmt: skip
def test_an_address_says_where_and_nothing_else(config, rest):
    with pytest.raises(InvalidInput, match="'ledger'"):
        choose_server(f"postgresql://host/db{rest}")
    assert not config.exists()


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
def test_a_server_that_would_lose_commits_is_refused_at_once(postgres_url, setting):
    """Fails if a commit succeeds after an operator has turned the setting off."""
    url = postgres_url()

    def set_setting(value):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"ALTER SYSTEM SET {setting} = {value}")
            connection.execute("SELECT pg_reload_conf()")
            while connection.execute(f"SHOW {setting}").fetchone() != (value,):
                pass

    database = PostgresDatabase(url)
    database.create_tables()
    database.put("epoch", "before")
    set_setting("off")
    try:
        with pytest.raises(StorageFailed, match=f"{setting} = on"):
            database.put("epoch", "after")
        database.close()
        with pytest.raises(StorageFailed, match=f"{setting} = on"):
            PostgresDatabase(url)
    finally:
        set_setting("on")
    database = PostgresDatabase(url)
    assert database.get("epoch") == "before"
    database.close()


def test_a_database_that_cannot_hold_every_id_is_refused(postgres_url):
    with psycopg.connect(postgres_url(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE latin ENCODING LATIN1 TEMPLATE template0 LOCALE 'C'")
        url = f"postgresql:///latin?host={connection.info.host}&user=tester"
    with pytest.raises(StorageFailed, match="server_encoding = UTF8"):
        PostgresDatabase(url)


@pytest.mark.parametrize(("change", "cause"), [
    ({"user": "nobody"}, "authentication failed"),
    ({"dbname": "nowhere"}, "no such database; make it with createdb"),
    ({"host": "127.0.0.1", "port": "1"}, "connection refused"),
    ({"host": "no-such-host.invalid"}, "no such host"),
    ({"host": "/no/such/folder"}, "connection refused"),
    ({"user": "walled"}, "there is no password"),
    ({"user": "walled", "password": "wrong"}, "authentication failed"),
    ({"user": "barred"}, "does not admit this user or machine"),
])  # fmt: skip
def test_a_server_that_does_not_open_says_the_cause_and_no_secret(
    postgres_url, monkeypatch, tmp_path, change, cause
):
    """Fails if the message lacks the cause, or repeats a name or password of the URL."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("PGPASSWORD", raising=False)
    with psycopg.connect(postgres_url(), autocommit=True) as connection:
        parameters = connection.info.get_parameters()
        if change.get("user") in ("walled", "barred"):
            connection.execute("DROP ROLE IF EXISTS walled, barred")
            connection.execute(
                "CREATE ROLE walled LOGIN PASSWORD 'right'; CREATE ROLE barred LOGIN"
            )
            hba = Path(connection.execute("SHOW hba_file").fetchone()[0])
            rules = hba.read_text()
            if "walled" not in rules:
                hba.write_text("local all barred reject\nlocal all walled scram-sha-256\n" + rules)
            connection.execute("SELECT pg_reload_conf()")
    if "password" in change:
        monkeypatch.setenv("PGPASSWORD", change["password"])
    options = {
        "user": parameters["user"],
        "dbname": parameters["dbname"],
        "host": parameters["host"],
        **change,
    }
    host, user, port = (options.get(name, "") for name in ("host", "user", "port"))
    url = f"postgresql:///{options['dbname']}?host={host}&user={user}" + (port and f"&port={port}")
    choose_server(url)
    with pytest.raises(StorageFailed, match=cause) as refused:
        PostgresDatabase(url)
    for secret in ("wrong", "right", user, options["dbname"]):
        assert secret not in str(refused.value).replace("this user", "")


def test_a_connection_that_is_lost_is_called_so(postgres_url):
    database = PostgresDatabase(url := postgres_url())
    database.create_tables()
    (pid,) = database.read("SELECT pg_backend_pid()")[0]
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))
    with pytest.raises(StorageFailed, match="the connection is lost"):
        database.put("epoch", "x")
