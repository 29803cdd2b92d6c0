"""SQLite as the ledger's database: one file, a write-ahead log, every commit on the disk."""

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from vicinal.errors import InvalidInput, StorageFailed, StoreDamaged
from vicinal.ledger.database import BATCH, Database, Row, Value, columns_by_table
from vicinal.ledger.files import PRIVATE_FILE, translate_os_errors

_DAMAGE = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "UnicodeDecodeError")
"""What SQLite says of a file that is not what it wrote."""

_SETTINGS = (
    "journal_mode = WAL",
    "synchronous = FULL",  # a commit returns when the log is on the disk
    "fullfsync = ON",  # macOS: through the drive's cache as well; elsewhere without effect
    "secure_delete = ON",  # what is deleted is overwritten with zeros
    "temp_store = MEMORY",  # no copies of records in temporary files
    "trusted_schema = OFF",
)


class SQLiteDatabase(Database):
    """A database in one file.

    - `path`: the file.
    - `create`: whether to make it if it is not there.
    - `reading`: whether to read only, until :meth:`recover`. Closed before that, it leaves its
      files as they were, byte by byte. A stranger's ledger is never written first: SQLite deletes
      the file that a journal beside it names.

    Raises InvalidInput if there is no such database.
    """

    kind = "sqlite"
    integer_type = "INTEGER"
    binary = "BLOB"
    beginning = "BEGIN IMMEDIATE"  # a reader that began to write later could be refused half-way

    def __init__(self, path: Path, *, create: bool = False, reading: bool = False) -> None:
        super().__init__()
        self._path = path
        if not create and not path.is_file():
            raise InvalidInput(f"There is no database {path}.")
        with translate_os_errors(path):
            os.close(os.open(path, os.O_RDONLY | os.O_CREAT * create, PRIVATE_FILE))
            self._before = self._log_files() if reading else None
        self._connection = self._connected("ro" if reading else "rw")

    def _connected(self, mode: str) -> sqlite3.Connection:
        """Connect; to write, so that what is written is durable, and the files private."""
        with self._guarded():
            connection = sqlite3.connect(
                f"file:{quote(str(self._path))}?mode={mode}",
                uri=True,
                isolation_level=None,
                check_same_thread=False,
            )
            for setting in _SETTINGS if mode == "rw" else ():
                connection.execute(f"PRAGMA {setting}")
        with translate_os_errors(self._path):
            for path in self.files if mode == "rw" else ():
                path.chmod(PRIVATE_FILE)
        return connection

    def _log_files(self) -> dict[Path, bytes | None]:
        """Return what reading may write: an empty log, and the log's index with its content.

        An index without a log is of no use, and keeps a reader out: it is taken away meanwhile.
        """
        log, index = (self._path.with_name(self._path.name + end) for end in ("-wal", "-shm"))
        before = {index: index.read_bytes() if index.is_file() else None}
        if not log.is_file():
            before[log] = None
            index.unlink(missing_ok=True)
        return before

    @property
    def files(self) -> tuple[Path, ...]:
        names = (self._path.name + suffix for suffix in ("", "-wal", "-shm", "-journal"))
        return tuple(path for name in names if (path := self._path.with_name(name)).is_file())

    def tables(self) -> dict[str, tuple[str, ...]]:
        # A trigger has no columns, and stands here all the same: nobody declared it.
        query = (
            "SELECT m.name, p.name FROM sqlite_master m LEFT JOIN pragma_table_info(m.name) p "
            "WHERE m.type <> 'index' AND m.name NOT LIKE 'sqlite_%' ORDER BY m.name, p.cid"
        )
        return columns_by_table(self.read(query))

    def lock(self) -> bool:
        return True  # the store's lock file does it, as only this machine has the file

    def recover(self) -> None:
        """Cut the log to nothing: behind its last commit stands what a kill broke off.

        That can be the id of somebody who was about to come back. Where another program is reading,
        the log stays until the next opening.
        """
        self._check()
        if self._before is not None:
            self._connection.close()
            self._before = None
            self._connection = self._connected("rw")
        self._pragma("wal_checkpoint(TRUNCATE)")

    def _pragma(self, setting: str) -> list[Row]:
        self._check()
        with self._guarded():
            return self._connection.execute(f"PRAGMA {setting}").fetchall()

    @contextmanager
    def scrubbed_soon(self) -> Iterator[None]:
        ((pages,),) = self._pragma("wal_autocheckpoint")
        self._pragma("wal_autocheckpoint = 0")
        try:
            yield
        finally:
            with suppress(sqlite3.Error):  # what the body raised matters more
                self._connection.execute(f"PRAGMA wal_autocheckpoint = {pages}")

    def scrub(self) -> None:
        self._check()
        with self._guarded():
            self._connection.execute("VACUUM")  # into the log, so it is cut only then
        ((busy, _, _),) = self._pragma("wal_checkpoint(TRUNCATE)")
        if busy:
            self.failed = True
            raise StorageFailed(
                "Another program is reading the database, so its log cannot be cut. Close that "
                "program and open the store again: it will finish the erasure."
            )

    def faults(self) -> list[str]:
        # The messages name tables and pages, not values.
        messages = [str(message) for (message,) in self._pragma("integrity_check")]
        return [] if messages == ["ok"] else messages

    def close(self) -> None:
        self._connection.close()
        with translate_os_errors(self._path):
            for path, content in (self._before or {}).items():  # undo what reading has written
                if content is None:
                    path.unlink(missing_ok=True)
                else:
                    path.write_bytes(content)
        self._before = None

    def _run(self, statement: str, values: Sequence[Value]) -> list[Row]:
        return self._connection.execute(statement, values).fetchall()

    def _scan(self, statement: str) -> Iterator[list[Row]]:
        cursor = self._connection.execute(statement)
        while rows := cursor.fetchmany(BATCH):
            yield rows

    def _run_many(self, statement: str, rows: Iterable[Sequence[Value]]) -> None:
        self._connection.executemany(statement, rows)

    def _rollback(self) -> None:
        if self._connection.in_transaction:
            super()._rollback()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:  # damage in names of columns, too
            name = getattr(error, "sqlite_errorname", type(error).__name__)
            if name.startswith(_DAMAGE):
                raise StoreDamaged(
                    f"The ledger's database is damaged ({name}). Restore a backup."
                ) from None
            raise StorageFailed(
                f"The ledger's database refused a write ({name}). Nothing was answered. Check "
                "the disk, then open the store again."
            ) from None
