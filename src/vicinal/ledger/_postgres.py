"""PostgreSQL as the ledger's database, by URL; needs the extra `postgres`."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from vicinal.errors import MissingExtra, PrivacyRefused, StorageFailed
from vicinal.ledger._database import BATCH, Database, Row, Value, columns_by_table

SCHEMA = "vicinal"
"""Tables live in a schema of this name: one store a database."""

_LOCK = 0x76696369  # any number, the same for all
_PATIENCE_S = 3.0
_TABLES = (
    "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = ? "
    "ORDER BY table_name, ordinal_position"
)


class PostgresDatabase(Database):
    """A database on a PostgreSQL server, reached through one connection.

    The advisory lock belongs to the connection: whoever loses the one loses the other, and can
    commit nothing any more.

    - `url`: as libpq takes it: ``postgresql://host/name``. Keep passwords out of it: libpq finds
      them in the environment or in ``~/.pgpass``.
    - `create`: whether to make the schema if it is not there.

    Raises MissingExtra if psycopg is not installed. Raises StorageFailed if the server cannot be
    reached. Raises PrivacyRefused if the server does not flush its commits to the disk.
    """

    kind = "postgres"
    integer_type = "BIGINT"
    binary = "BYTEA"

    def __init__(self, url: str, *, create: bool = True) -> None:
        super().__init__()
        self._driver = _psycopg()
        with self._guarded():
            self._connection = self._driver.connect(url, autocommit=True, prepare_threshold=2)
            for setting in (
                *([f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}"] if create else []),
                f"SET search_path TO {SCHEMA}",
                "SET synchronous_commit TO on",
                "SET client_min_messages TO warning",
            ):
                self._connection.execute(setting)
            (flushes,) = self._connection.execute("SHOW fsync").fetchone()
        if flushes != "on":
            self._connection.close()
            raise PrivacyRefused(
                "The PostgreSQL server must flush its commits to the disk, else a loss of power "
                "refills budgets. It has fsync off. Set fsync = on, then try again."
            )

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

    def _rollback(self) -> None:
        if not self._connection.closed:
            super()._rollback()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self._driver.Error as error:
            code = getattr(error, "sqlstate", None) or type(error).__name__
            raise StorageFailed(
                f"The ledger's database does not take this ({code}). Nothing was answered. See to "
                "the server, then open the store again."
            ) from None


def _translate(statement: str) -> str:
    return statement.replace("?", "%s")


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError:
        raise MissingExtra(
            "A ledger on PostgreSQL needs psycopg. Install it with: pip install 'vicinal[postgres]'"
        ) from None
    return psycopg
