"""PostgreSQL as the ledger's database, by URL; needs the extra `postgres`.

A store's folder names its server, and an attacker may have made the folder. So no connection is
made to a server before a user of this machine has chosen it (:func:`choose_server`). A password is
then proved by SCRAM, never sent.
"""

import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from vicinal import checks
from vicinal.errors import InvalidInput, MissingExtra, PrivacyRefused, StorageFailed
from vicinal.ledger.database import BATCH, Database, Row, Value
from vicinal.ledger.files import PRIVATE_FILE, translate_os_errors

SCHEMA = "vicinal"
"""Name of the schema that holds the tables; a database therefore holds one store."""

_URL_OPTIONS = ("host", "port", "user", "dbname", "sslmode", "sslrootcert", "connect_timeout")
"""Options that a URL may hold. It is written to disk, so a password is refused, as are options
that name files which libpq reads or writes."""

_REQUIRED_SETTINGS = {
    "fsync": "on",  # otherwise a loss of power loses commits, which refills budgets
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "server_encoding": "UTF8",  # otherwise some ids cannot be written
}
_SETTINGS_QUERY = "SELECT " + ", ".join(f"current_setting('{name}')" for name in _REQUIRED_SETTINGS)
_LOCK_KEY = 0x76696369
"""Key of the advisory lock: an arbitrary constant, the same for all stores."""
_LOCK_TIMEOUT_S = 3.0
"""Seconds to wait for the lock, as a server notices the end of another connection late."""
_LOCK_RETRY_S = 0.05
"""Seconds between two attempts to lock."""
_PLACEHOLDER = "%s"
"""Replaces ``?`` in statements for psycopg."""
_MIN_LIBPQ = 160000
"""libpq 16, the first version with the option `require_auth`."""
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
"""Patterns in messages of libpq or the server, and the cause to report instead. The original
messages are not repeated, because they quote the user and a malicious server can choose them."""


class PostgresDatabase(Database):
    """A database on a PostgreSQL server, reached through one connection.

    The advisory lock belongs to the connection, so a ledger that loses the lock has lost its
    connection, too, and can commit nothing any more.

    - `url`: ``postgresql://host/name`` with no options but :data:`_URL_OPTIONS`. libpq finds a
      password in the environment or in ``~/.pgpass``.
    - `create`: whether to create the schema if it does not exist.

    Raises MissingExtra if psycopg is not installed. Raises InvalidInput for another URL. Raises
    PrivacyRefused if no user of this machine has chosen the server, see :func:`choose_server`.
    Raises StorageFailed if the server cannot be reached, or if its settings differ from
    :data:`_REQUIRED_SETTINGS`, now or at a later commit.
    """

    kind = "postgres"
    integer_type = "BIGINT"
    binary_type = "BYTEA"
    columns_query = (
        "SELECT table_name, column_name FROM information_schema.columns "  # noqa: S608 (constant)
        f"WHERE table_schema = '{SCHEMA}' ORDER BY table_name, ordinal_position"
    )

    def __init__(self, url: str, *, create: bool = True) -> None:
        super().__init__()
        server = _parse_server(url)
        if server not in ("", *_read_chosen_servers()):
            raise PrivacyRefused(
                f"The ledger is on the server {server}, which nobody on this machine has chosen. "
                f"If you trust it, add the line {server} to {_servers_path()} and try again. If a "
                "stranger made this folder, leave it closed."
            )
        self._driver = _import_psycopg()
        # On a local socket, the server may identify users without a password.
        authentication = "scram-sha-256,none" if server[:1] in "/:" else "scram-sha-256"
        options = {"require_auth": authentication, "client_encoding": "utf8"}
        try:
            self._connection = self._driver.connect(
                url, autocommit=True, prepare_threshold=2, **options
            )
        except self._driver.Error as error:
            message = str(error)
            causes = (text for pattern, text in _CAUSES.items() if re.search(pattern, message))
            cause = next(causes, "it cannot be reached, or does not admit this user")
            raise StorageFailed(f"The ledger's server cannot be used: {cause}.") from None
        try:
            with self._mark_failures():
                for statement in (
                    *([f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}"] if create else []),
                    f"SET search_path TO {SCHEMA}",
                    "SET synchronous_commit TO on",
                    "SET client_min_messages TO warning",
                ):
                    self._connection.execute(statement)
                self._check_settings()
        except BaseException:
            self._connection.close()
            raise

    def lock(self) -> bool:
        """Take the database's advisory lock; return False if another connection keeps it.

        It waits for the lock, up to :data:`_LOCK_TIMEOUT_S` seconds.
        """
        deadline = time.monotonic() + _LOCK_TIMEOUT_S
        while not self.read("SELECT pg_try_advisory_lock(?)", (_LOCK_KEY,))[0][0]:
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOCK_RETRY_S)
        return True

    def recover(self) -> None:
        """Do nothing, because the server itself discards uncommitted transactions."""

    def scrub(self) -> None:
        """Rewrite all tables, so that no deleted value remains in their files."""
        # The server's log and its backups are outside of this connection's reach: their erasure is
        # up to the server's operator.
        for name in self.read_columns():
            with self._mark_failures():
                self._run(f"VACUUM FULL {SCHEMA}.{name}", ())

    def find_faults(self) -> list[str]:
        """Return no messages, because a server checks its own structure."""
        return []

    def close(self) -> None:
        """End the connection, after which the server undoes an open transaction."""
        self._connection.close()

    def _run(self, statement: str, values: Sequence[Value]) -> list[Row]:
        """Execute a statement with a value for each ``?``, and return its rows."""
        translated = statement.replace("?", _PLACEHOLDER)
        cursor = self._connection.execute(translated, values, binary=True)
        return cursor.fetchall() if cursor.description else []

    def _iterate_rows(self, statement: str) -> Iterator[list[Row]]:
        """Execute a query without values and yield its rows in lists of at most :data:`BATCH`."""
        with self._connection.cursor(binary=True) as cursor:
            cursor.execute(statement)
            while rows := cursor.fetchmany(BATCH):
                yield rows

    def _run_many(self, statement: str, rows: Iterable[Sequence[Value]]) -> None:
        """Execute a statement once for the values of each row."""
        with self._connection.cursor() as cursor:
            cursor.executemany(statement.replace("?", _PLACEHOLDER), rows)

    def _commit(self) -> None:
        """Commit, unless an operator has changed a required setting since the last commit."""
        self._check_settings()
        super()._commit()

    def _check_settings(self) -> None:
        """Raise StorageFailed if a setting differs from :data:`_REQUIRED_SETTINGS`."""
        (present_values,) = self._run(_SETTINGS_QUERY, ())
        pairs = zip(_REQUIRED_SETTINGS.items(), present_values, strict=True)
        wrong = [f"{name} = {required}" for (name, required), value in pairs if required != value]
        if wrong:
            raise StorageFailed(
                f"The PostgreSQL database must have {', '.join(wrong)}, or a power failure could "
                "refill budgets, or an id could change. Nothing was answered. Set it, "
                "then open the store again."
            )

    def _rollback(self) -> None:
        """Undo the open transaction; without a connection, the server has undone it."""
        if not self._connection.closed:
            super()._rollback()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise StorageFailed for an error of psycopg in a read or a write of the body.

        Its message has the type and the SQL state of the error, or says that the connection is
        lost. psycopg's own message could contain values.
        """
        try:
            yield
        except self._driver.Error as error:
            code = f"{type(error).__name__} {error.sqlstate or 'without a code'}"
            if self._connection.closed:
                code = "the connection is lost"
            raise StorageFailed(
                f"The ledger's database refused a read or write ({code}). Nothing was answered. "
                "Check the server, then open the store again."
            ) from None


def choose_server(url: str) -> None:
    """Allow connections to a database server, in the configuration file of this user.

    `url`: URL of a database on the server. Call it only if the user named that server.
    """
    server = _parse_server(url)
    if server not in ("", *_read_chosen_servers()):
        path = _servers_path()
        with translate_os_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, PRIVATE_FILE)
            with os.fdopen(descriptor, "r+", encoding="utf-8") as file:
                # An editor may have left the last line without its end.
                is_complete = file.read()[-1:] in ("", "\n")
                file.write(f"{server}\n" if is_complete else f"\n{server}\n")


def _parse_server(url: str) -> str:
    """Return the server in a PostgreSQL URL as "host:port"; "" if the environment chooses it.

    Raises InvalidInput for another text, or options that are not in :data:`_URL_OPTIONS`.
    """
    checks.check_instance("ledger", url, str, "'sqlite' or a postgresql:// URL")
    driver = _import_psycopg()
    try:
        if not url.startswith(("postgresql://", "postgres://")):
            raise driver.ProgrammingError
        options = driver.conninfo.conninfo_to_dict(url)
    except driver.ProgrammingError:
        raise InvalidInput(
            "The 'ledger' parameter must be 'sqlite' or a postgresql:// URL."
        ) from None
    refused = sorted(options.keys() - set(_URL_OPTIONS))
    if refused or ":" in options.get("user", ""):
        raise InvalidInput(
            f"The 'ledger' URL may say {', '.join(_URL_OPTIONS)}, and nothing else, because it is "
            f"written to disk. Got {', '.join(refused) or 'a password'}. Use "
            "PGPASSWORD or ~/.pgpass for a password."
        )
    is_named = "host" in options or "port" in options
    return f"{options.get('host', '')}:{options.get('port', '')}" if is_named else ""


def _servers_path() -> Path:
    """Return the path of the user's file of chosen servers, which has a "host:port" per line."""
    base = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config")
    return base.expanduser() / "vicinal" / "servers"


def _read_chosen_servers() -> list[str]:
    """Return the servers that the user has chosen, as "host:port"."""
    path = _servers_path()
    with translate_os_errors(path):
        return path.read_text(encoding="utf-8").split() if path.is_file() else []


def _import_psycopg() -> Any:
    """Return the module psycopg; raises MissingExtra without it or with an older libpq."""
    with suppress(ImportError):
        import psycopg

        if psycopg.pq.version() >= _MIN_LIBPQ:
            return psycopg
    raise MissingExtra(
        "A ledger on PostgreSQL needs psycopg with libpq 16 or later. Install it with: pip install "
        "'vicinal[postgres]'"
    )
