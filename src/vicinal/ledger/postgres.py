"""PostgreSQL as the ledger's database, by URL; needs the extra `postgres`.

A store's folder names its server, and a stranger may have made the folder. So a server is asked for
nothing, and gets no password, before a user of this machine has chosen it; and then a password is
proved (SCRAM), never sent.
"""

import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from vicinal.errors import InvalidInput, MissingExtra, PrivacyRefused, StorageFailed
from vicinal.ledger.database import BATCH, Database, Row, Value, columns_by_table
from vicinal.ledger.files import PRIVATE_FILE, translate_os_errors

SCHEMA = "vicinal"
"""Tables live in a schema of this name: one store a database."""

_IN_URL = ("host", "port", "user", "dbname", "sslmode", "sslrootcert", "connect_timeout")
_NEEDED = {
    "fsync": "on",  # else a loss of power takes commits away, and refills budgets
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "server_encoding": "UTF8",  # else not every id can be written
}
_SETTINGS = "SELECT " + ", ".join(f"current_setting('{name}')" for name in _NEEDED)
_LOCK = 0x76696369  # any number, the same for all
_PATIENCE_S = 3.0
_LIBPQ = 160000  # knows require_auth
_CAUSES = {
    "resolve host|translate host": "no such host",
    "Connection refused|No such file": "connection refused, as no server listens there",
    "timeout expired|timed out|No route|unreachable": "no answer; check its network and firewall",
    "no password supplied": "there is no password; give it through PGPASSWORD or ~/.pgpass",
    "method requirement": "it wants a password in another way than scram-sha-256, or none",
    "authentication failed|role .* does not exist|is not permitted to log in": (
        "authentication failed; check the URL's user, and PGPASSWORD or ~/.pgpass"
    ),
    "pg_hba.conf": "its pg_hba.conf does not admit this user or machine",
    "database .* does not exist": "it has no such database; make it with createdb",
    "too many|connection slots": "it has no connection left",
    "starting up|shutting down|recovery mode": "it is starting or stopping; try again",
    "certificate|SSL": "TLS fails; check sslmode and sslrootcert in the URL",
}
"""Words of libpq or of a server, and the sentence of ours for them: a stranger may have chosen
theirs, and they quote the user."""
_TABLES = (
    "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = ? "
    "ORDER BY table_name, ordinal_position"
)


class PostgresDatabase(Database):
    """A database on a PostgreSQL server, reached through one connection.

    The advisory lock belongs to the connection: whoever loses the one loses the other, and can
    commit nothing any more.

    - `url`: ``postgresql://host/name``, with nothing in it but :data:`_IN_URL`. libpq finds a
      password in the environment or in ``~/.pgpass``.
    - `create`: whether to make the schema if it is not there.

    Raises MissingExtra if psycopg is not installed. Raises InvalidInput for another URL. Raises
    PrivacyRefused if nobody has chosen the server, see :func:`choose_server`. Raises StorageFailed
    if it cannot be reached, or has other settings than :data:`_NEEDED`, now or at a later commit.
    """

    kind = "postgres"
    integer_type = "BIGINT"
    binary = "BYTEA"

    def __init__(self, url: str, *, create: bool = True) -> None:
        super().__init__()
        server = _server(url)
        if server not in ("", *_chosen_servers()):
            raise PrivacyRefused(
                f"The ledger is on the server {server}, which nobody on this machine has chosen. "
                f"If you trust it, add the line {server} to {_servers_file()} and try again. If a "
                "stranger made this folder, leave it closed."
            )
        self._driver = _psycopg()
        # A server on this machine's socket may know users without a password.
        proof = "scram-sha-256,none" if server[:1] in "/:" else "scram-sha-256"
        options = {"require_auth": proof, "client_encoding": "utf8"}
        try:
            self._connection = self._driver.connect(
                url, autocommit=True, prepare_threshold=2, **options
            )
        except self._driver.Error as error:
            causes = (ours for words, ours in _CAUSES.items() if re.search(words, str(error)))
            cause = next(causes, "it cannot be reached, or does not admit this user")
            raise StorageFailed(f"The ledger's server cannot be used: {cause}.") from None
        try:
            with self._guarded():
                for setting in (
                    *([f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}"] if create else []),
                    f"SET search_path TO {SCHEMA}",
                    "SET synchronous_commit TO on",
                    "SET client_min_messages TO warning",
                ):
                    self._connection.execute(setting)
                self._check_settings()
        except BaseException:
            self._connection.close()
            raise

    def tables(self) -> dict[str, tuple[str, ...]]:
        return columns_by_table(self.read(_TABLES, (SCHEMA,)))

    def lock(self) -> bool:
        """Take the advisory lock of this database, unless another connection has it.

        A server takes a moment to notice that a connection is gone, so this asks for a while.
        """
        end = time.monotonic() + _PATIENCE_S
        while not self.read("SELECT pg_try_advisory_lock(?)", (_LOCK,))[0][0]:
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True

    def recover(self) -> None:
        """Do nothing: what was never committed is the server's to see to."""

    def scrub(self) -> None:
        # The server's own log and backups are its operator's to see to.
        for name in self.tables():
            with self._guarded():
                self._run(f"VACUUM FULL {SCHEMA}.{name}", ())

    def faults(self) -> list[str]:
        return []  # checking its own structure is the server's business

    def close(self) -> None:
        self._connection.close()

    def _run(self, statement: str, values: Sequence[Value]) -> list[Row]:
        cursor = self._connection.execute(_translate(statement), values, binary=True)
        return cursor.fetchall() if cursor.description else []

    def _scan(self, statement: str) -> Iterator[list[Row]]:
        with self._connection.cursor(binary=True) as cursor:
            cursor.execute(statement)
            while rows := cursor.fetchmany(BATCH):
                yield rows

    def _run_many(self, statement: str, rows: Iterable[Sequence[Value]]) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(_translate(statement), rows)

    def _commit(self) -> None:
        self._check_settings()  # an operator may have changed them since the last one
        super()._commit()

    def _check_settings(self) -> None:
        (found,) = self._run(_SETTINGS, ())
        pairs = zip(_NEEDED.items(), found, strict=True)
        if lacks := [f"{name} = {value}" for (name, value), is_now in pairs if value != is_now]:
            raise StorageFailed(
                f"The PostgreSQL database must have {', '.join(lacks)}, or a power failure could "
                "refill budgets, or an id could change. Nothing was answered. Set it, "
                "then open the store again."
            )

    def _rollback(self) -> None:
        if not self._connection.closed:
            super()._rollback()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self._driver.Error as error:
            code = f"{type(error).__name__} {error.sqlstate or 'without a code'}"
            if self._connection.closed:
                code = "the connection is lost"
            raise StorageFailed(
                f"The ledger's database refused a write ({code}). Nothing was answered. Check "
                "the server, then open the store again."
            ) from None


def choose_server(url: str) -> None:
    """Note that a user of this machine has named a server: stores may have their ledgers there."""
    server = _server(url)
    if server not in ("", *_chosen_servers()):
        path = _servers_file()
        with translate_os_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, PRIVATE_FILE)
            with os.fdopen(descriptor, "w") as file:
                file.write(f"{server}\n")


def _server(url: str) -> str:
    """Return host and port of a URL, as libpq reads it; "" where the environment says which.

    Raises InvalidInput if it is no URL, or holds anything else than :data:`_IN_URL`: a password
    would be written to disk, and other options name files that libpq reads or writes.
    """
    driver = _psycopg()
    try:
        if not url.startswith(("postgresql://", "postgres://")):
            raise driver.ProgrammingError
        options = driver.conninfo.conninfo_to_dict(url)
    except driver.ProgrammingError:
        raise InvalidInput(
            "The 'ledger' parameter must be 'sqlite' or a postgresql:// URL."
        ) from None
    others = sorted(options.keys() - set(_IN_URL))
    if others or ":" in options.get("user", ""):
        raise InvalidInput(
            f"The 'ledger' URL may say {', '.join(_IN_URL)}, and nothing else, because it is "
            f"written to disk. Got {', '.join(others) or 'a password'}. Use "
            "PGPASSWORD or ~/.pgpass for a password."
        )
    named = "host" in options or "port" in options
    return f"{options.get('host', '')}:{options.get('port', '')}" if named else ""


def _servers_file() -> Path:
    base = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config")
    return base.expanduser() / "vicinal" / "servers"


def _chosen_servers() -> list[str]:
    path = _servers_file()
    with translate_os_errors(path):
        return path.read_text(encoding="utf-8").split() if path.is_file() else []


def _translate(statement: str) -> str:
    return statement.replace("?", "%s")


def _psycopg() -> Any:
    with suppress(ImportError):
        import psycopg

        if psycopg.pq.version() >= _LIBPQ:
            return psycopg
    raise MissingExtra(
        "A ledger on PostgreSQL needs psycopg with libpq 16 or later. Install it with: pip install "
        "'vicinal[postgres]'"
    )
