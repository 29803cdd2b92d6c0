"""SQLite as the ledger's database: one file with a write-ahead log; every commit is flushed."""

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from vicinal.errors import InvalidInput, StorageFailed, StoreDamaged
from vicinal.ledger.database import BATCH, Database, Row, Value
from vicinal.ledger.files import (
    PRIVATE_FILE,
    create_file,
    is_writable,
    replace_file,
    translate_os_errors,
)

_DAMAGE = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "UnicodeDecodeError")
"""Beginnings of the error names that mean a damaged database file."""

_SETTINGS = (
    "journal_mode = WAL",
    "synchronous = FULL",  # a commit returns when the log is on the disk
    "fullfsync = ON",  # macOS: flushes the drive's cache, too; elsewhere without effect
    "secure_delete = ON",  # deleted values are overwritten with zeros
    "temp_store = MEMORY",  # no copies of records in temporary files
    "trusted_schema = OFF",
)


_UNCHANGING = "ro&immutable=1"
"""Mode for reading where no file can be created: SQLite neither locks the file nor reads a log."""


class SQLiteDatabase(Database):
    """A database in one file.

    - `path`: the file.
    - `create`: whether to create it if it does not exist.
    - `read_only`: whether nothing is written before :meth:`recover`; if it is closed before that,
      its files stay as they were, byte by byte. A ledger of unknown origin must be verified this
      way, because SQLite deletes any file that a forged journal beside the database names.

    Raises InvalidInput if the file does not exist and `create` is false.
    """

    kind = "sqlite"
    integer_type = "INTEGER"
    binary_type = "BLOB"
    columns_query = (
        "SELECT m.name, p.name FROM sqlite_master m LEFT JOIN pragma_table_info(m.name) p "
        "WHERE m.type <> 'index' AND m.name NOT LIKE 'sqlite_%' ORDER BY m.name, p.cid"
    )
    # Takes the write lock at once: a transaction that begins by reading could be refused later.
    begin_statement = "BEGIN IMMEDIATE"

    def __init__(self, path: Path, *, create: bool = False, read_only: bool = False) -> None:
        super().__init__()
        self._path = path
        if not create and not path.is_file():
            raise InvalidInput(f"There is no database {path}.")
        with translate_os_errors(path):
            descriptor = (create_file if create else os.open)(path, os.O_RDONLY | os.O_NOFOLLOW)
        # Of the database, and of files from :meth:`open_files`. They stay open until the connection
        # has ended: if a process closes any descriptor of a file, it loses all its POSIX locks on
        # the file, and another program could then delete the log with the last commits.
        self._descriptors = [descriptor]
        self._is_read_only = read_only
        # Content of the log files before reading; empty once the database may be written.
        self._original_logs: dict[Path, bytes | None] = {}
        try:
            if read_only:
                with translate_os_errors(path):
                    self._prepare_log_files()
            mode = "ro" if is_writable(path.parent) else _UNCHANGING
            self._connection = self._connect(mode if read_only else "rw")
        except BaseException:
            self._close_files()
            raise

    def _connect(self, mode: str) -> sqlite3.Connection:
        """Return a new connection to the database file.

        `mode`: SQLite's "ro" (read-only), "rw" (writable), or :data:`_UNCHANGING` (read-only,
        without locks and log, where no file can be created). A writable connection makes commits
        durable and the database's files readable by the user only.
        """
        if mode == "rw":
            with translate_os_errors(self._path):
                self._restrict_access()
        with self._mark_failures():
            connection = sqlite3.connect(
                f"file:{quote(str(self._path))}?mode={mode}",
                uri=True,
                isolation_level=None,
                check_same_thread=False,
            )
        try:
            self._refuse_other_file()
            with self._mark_failures():
                for setting in _SETTINGS if mode == "rw" else ():
                    connection.execute(f"PRAGMA {setting}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _restrict_access(self) -> None:
        """Let only their owner access the existing files of the database, without a connection.

        SQLite gives a file that it creates the mode and the owner of the database.
        """
        os.fchmod(self._descriptors[0], PRIVATE_FILE)
        for path in self._list_files():
            if path != self._path:
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
                try:
                    os.fchmod(descriptor, PRIVATE_FILE)
                finally:
                    os.close(descriptor)

    def _refuse_other_file(self) -> None:
        """Raise StorageFailed if the database's path leads to another file than when it was opened.

        SQLite opens a file by its name, to which an account that can write to the folder may have
        moved another file since then.
        """
        with translate_os_errors(self._path):
            if not os.path.samestat(self._path.lstat(), os.fstat(self._descriptors[0])):
                raise StorageFailed(
                    f"{self._path} was replaced while it was opened. Open the store again."
                )

    def _prepare_log_files(self) -> None:
        """Save the content of the log files that a read-only connection may change, by path.

        :meth:`close` restores them; None stands for a missing file. These files are the index of
        the log and, if there is no log, the empty one that a reader creates. An index without a log
        prevents reading, so it is removed here. Nothing is saved if no file can be created; then
        StorageFailed is raised unless the log is empty.
        """
        log = self._path.with_name(self._path.name + "-wal")
        if not is_writable(self._path.parent):
            if log.is_file() and log.stat().st_size:
                raise StorageFailed(
                    f"{self._path.parent} cannot be written, and commits are still in the log of "
                    "its database. Make it writable, and run: vicinal backup"
                )
            return
        index = self._path.with_name(self._path.name + "-shm")
        self._original_logs[index] = self._read_index(index) if index.is_file() else None
        if not log.is_file():
            self._original_logs[log] = None
            index.unlink(missing_ok=True)

    def _read_index(self, path: Path) -> bytes:
        """Return the content of the log's index; raise StorageFailed if another account owns it.

        It will be written to the folder, whose owner may have linked to a file of this user.
        """
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            if os.fstat(file.fileno()).st_uid != os.fstat(self._descriptors[0]).st_uid:
                raise StorageFailed(f"{path} has another owner than the database. Remove it.")
            return file.read()

    def _list_files(self) -> list[Path]:
        """Return the paths of the existing files of the database: itself, logs and journal."""
        suffixes = ("", "-wal", "-shm", "-journal")
        paths = (self._path.with_name(self._path.name + suffix) for suffix in suffixes)
        return [path for path in paths if path.is_file()]

    def open_files(self) -> dict[Path, int]:
        """Return a descriptor of each existing file of the database, by path; do not close it."""
        descriptors = {}
        with translate_os_errors(self._path):
            for path in self._list_files():
                status = path.stat()
                opened = (d for d in self._descriptors if os.path.samestat(os.fstat(d), status))
                descriptor = next(opened, None)
                if descriptor is None:
                    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
                    self._descriptors.append(descriptor)
                descriptors[path] = descriptor
        return descriptors

    def lock(self) -> bool:
        """Return True: the file is on this machine, where the store's lock file suffices."""
        return True

    def recover(self) -> None:
        """Make the connection writable and truncate the log.

        The log may hold pages of an interrupted transaction, for example the id of a subject that
        was to be enrolled. While another program reads the database, it stays.
        """
        self._check_not_failed()
        if self._is_read_only:
            self._connection.close()
            self._is_read_only = False
            self._original_logs = {}
            self._connection = self._connect("rw")
        self._pragma("wal_checkpoint(TRUNCATE)")

    def _pragma(self, setting: str) -> list[Row]:
        """Execute a PRAGMA statement, ``name`` or ``name = value``, and return its rows."""
        self._check_not_failed()
        with self._mark_failures():
            return self._connection.execute(f"PRAGMA {setting}").fetchall()

    @contextmanager
    def delay_checkpoints(self) -> Iterator[None]:
        """Return a context in which nothing is copied from the log to the database file."""
        ((pages,),) = self._pragma("wal_autocheckpoint")
        self._pragma("wal_autocheckpoint = 0")
        try:
            yield
        finally:
            with suppress(sqlite3.Error):  # an exception of the body matters more
                self._connection.execute(f"PRAGMA wal_autocheckpoint = {pages}")

    def scrub(self) -> None:
        """Rewrite the file and empty the log, so that no deleted value remains in them."""
        self._check_not_failed()
        with self._mark_failures():
            self._connection.execute("VACUUM")  # it writes to the log, which is truncated next
        ((busy, _, _),) = self._pragma("wal_checkpoint(TRUNCATE)")
        if busy:
            self.failed = True
            raise StorageFailed(
                "Another program is reading the database, so its log cannot be cut. Close that "
                "program and open the store again: it will finish the erasure."
            )

    def find_faults(self) -> list[str]:
        """Return SQLite's messages on damage, which name tables and pages, not values."""
        messages = [str(message) for (message,) in self._pragma("integrity_check")]
        return [] if messages == ["ok"] else messages

    def close(self) -> None:
        """End the connection, and restore the log files if nothing could be written."""
        self._connection.close()
        self._close_files()

    def _close_files(self) -> None:
        """Restore the log files if nothing could be written, and close all descriptors."""
        try:
            with translate_os_errors(self._path):
                for path, content in self._original_logs.items():
                    if content is None:
                        path.unlink(missing_ok=True)
                    else:
                        owner = os.fstat(self._descriptors[0]).st_uid
                        replace_file(path, content, owner=owner)
        finally:
            self._original_logs = {}
            while self._descriptors:
                os.close(self._descriptors.pop())

    def _run(self, statement: str, values: Sequence[Value]) -> list[Row]:
        """Execute a statement with a value for each ``?``, and return its rows."""
        return self._connection.execute(statement, values).fetchall()

    def _iterate_rows(self, statement: str) -> Iterator[list[Row]]:
        """Execute a query without values and yield its rows in lists of at most :data:`BATCH`."""
        cursor = self._connection.execute(statement)
        while rows := cursor.fetchmany(BATCH):
            yield rows

    def _run_many(self, statement: str, rows: Iterable[Sequence[Value]]) -> None:
        """Execute a statement once for the values of each row."""
        self._connection.executemany(statement, rows)

    def _rollback(self) -> None:
        """Undo the open transaction, unless SQLite has already undone it."""
        if self._connection.in_transaction:
            super()._rollback()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise StoreDamaged or StorageFailed for an error of SQLite in a read or write."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            # UnicodeDecodeError: a damaged column name.
            name = getattr(error, "sqlite_errorname", type(error).__name__)
            if name.startswith(_DAMAGE):
                raise StoreDamaged(
                    f"The ledger's database is damaged ({name}). Restore a backup."
                ) from None
            raise StorageFailed(
                f"The ledger's database refused a read or write ({name}). Nothing was answered. "
                "Check the disk, then open the store again."
            ) from None
