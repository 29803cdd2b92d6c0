"""What a ledger needs of a database: statements, all-or-nothing transactions, and forgetting.

Statements are written once, in the part of SQL that both databases understand, with ``?`` for
values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vicinal.errors import InvalidInput, StorageFailed, StoreDamaged
from vicinal.ledger._tables import ALL, BYTES, TABLES, WHOLE, Table, Tables

if TYPE_CHECKING:
    from vicinal.ledger._chain import Chain, ChainLink

Value = int | str | bytes | None
Row = tuple[Any, ...]

BATCH = 1 << 10
"""Rows that a scan yields at a time."""


class Database(ABC):
    """One connection to one database.

    Once a statement or a commit has failed, what is on disk may be either side of it. From then on
    everything is refused: only opening the database again tells.
    """

    kind: str
    integer_type: str
    binary: str
    beginning = "BEGIN"

    def __init__(self) -> None:
        self.failed = False
        """Whether something went wrong, so that the database must be opened again."""
        self._inside = False
        self.chain: Chain | None = None
        """Digests of all rows, once :func:`~vicinal.ledger._chain.attach` has given it some."""

    def read(self, query: str, values: Sequence[Value] = ()) -> list[Row]:
        """Return the rows of a query, which begins with SELECT: nothing is written here.

        Raises StorageFailed if the database refuses, or has failed before.
        """
        if not query.startswith("SELECT "):
            raise InvalidInput("The query must only read. Rows are written by their tables.")
        self._check()
        with self._guarded():
            return self._run(query, values)

    def rows(self, table: Table, condition: str = ALL, values: Sequence[Value] = ()) -> list[Row]:
        """Return whole rows of a table: those that a condition chooses, or all."""
        return self.read(table.selection(condition), values)

    # What writes rows. Each method knows the rows before and after, and digests both in the
    # transaction that writes them: its own, where none is open.

    def insert(self, table: Table, rows: Iterable[Sequence[Value]]) -> None:
        """Insert whole rows whose keys are new."""
        listed = list(rows)
        with self._writing():
            self._run_many(table.insertion, listed)
            if self.chain is not None and table.remembered:
                for row in listed:
                    self.chain.replace(table.name, table.key_of(row), (), [row])
            elif self.chain is not None and listed:
                self.chain.enter(table.name, (), listed)

    def replace(self, table: Table, rows: Iterable[Sequence[Value]]) -> None:
        """Insert whole rows, each in the place of the one that has its key, if there is one."""
        with self._writing():
            for row in rows:
                key = table.key_of(row)
                before = self._row_of(table, key)
                self._run(table.replacement, row)
                if self.chain is not None:
                    self.chain.replace(table.name, key, before, [row])

    def delete(self, table: Table, condition: str = ALL, values: Sequence[Value] = ()) -> None:
        """Delete the rows that a condition chooses, or all."""
        with self._writing():
            # Without a chain nobody asks what went, and a copy of a ledger may be large.
            before = () if self.chain is None else self._run(table.selection(condition), values)
            self._run(table.deletion(condition), values)
            if self.chain is not None:
                self.chain.enter(table.name, before, ())

    def delete_keys(self, table: Table, keys: Iterable[tuple[Value, ...]]) -> None:
        """Delete the rows of some keys; one whose digest is remembered is not read."""
        with self._writing():
            for key in keys:
                before = self._row_of(table, key)
                self._run(table.deletion(table.by_key), key)
                if self.chain is not None:
                    self.chain.replace(table.name, key, before, ())

    def create_tables(self) -> None:
        """Create all tables, empty, in one transaction."""
        types = {WHOLE: self.integer_type, BYTES: self.binary}
        with self.transaction(), self._guarded():
            for table in TABLES:
                self._run(table.creation.format_map(types), ())

    def scan(self, table: str) -> Iterator[list[Row]]:
        """Yield all rows of a table, in any order, a good many at a time.

        With all columns that are there: what does not belong there must be digested, too.
        """
        self._check()
        with self._guarded():
            yield from self._scan(f"SELECT * FROM {table}")  # noqa: S608 (from the catalogue)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make everything in the body durable at its end, or leave no trace of it.

        When this returns, the changes survive a crash and a loss of power.
        """
        self._check()
        with self._guarded():
            self._begin()
        self._inside = True
        try:
            yield
            self._check()
            with self._guarded():
                link = self._link()  # with its rows: neither is ever durable without the other
        except BaseException:
            if self.chain is not None:
                self.chain.forget()
            with suppress(StorageFailed), self._guarded():
                self._rollback()
            raise
        finally:
            self._inside = False
        with self._guarded():
            self._commit()
        if self.chain is not None and link is not None:
            self.chain.commit(link)

    def get(self, name: str) -> str | None:
        """Return a fact from the table `meta`, or None."""
        rows = self.read("SELECT value FROM meta WHERE name = ?", (name,))
        return rows[0][0] if rows else None

    def number(self, name: str) -> int:
        """Return a whole number from the table `meta`; 0 if it is not there.

        Raises StorageFailed if something else stands there.
        """
        text = self.get(name)
        try:
            return int(text or 0)
        except (ValueError, TypeError):
            raise StoreDamaged(
                "The ledger is not what was written: a number is none. Restore a backup."
            ) from None

    def put(self, name: str, value: str) -> None:
        """Write a fact to the table `meta`."""
        self.replace(Tables.META, [(name, value)])

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that hold the database, where they can be read; else none."""
        return ()

    @abstractmethod
    def tables(self) -> list[str]:
        """Return the names of all tables."""

    @abstractmethod
    def lock(self) -> bool:
        """Keep all others from charging, until this connection ends; tell whether that worked."""

    @abstractmethod
    def recover(self) -> None:
        """Begin to write; remove what a crash has left of a transaction without its commit."""

    def shorten_log(self) -> None:  # noqa: B027 (a server does it by itself)
        """Do now what a commit would have to do once the log of writes is long."""

    @contextmanager
    def scrubbed_soon(self) -> Iterator[None]:
        """Write less in the body, at whose end everything is rewritten by :meth:`scrub`."""
        yield

    @abstractmethod
    def scrub(self) -> None:
        """Rewrite everything, so that nothing deleted is left in free pages or logs."""

    @abstractmethod
    def faults(self) -> list[str]:
        """Return what the database's own check of its structure finds."""

    @abstractmethod
    def close(self) -> None:
        """End the connection; what was not committed is gone."""

    @abstractmethod
    def _run(self, statement: str, values: Sequence[Value]) -> list[Row]: ...

    @abstractmethod
    def _scan(self, statement: str) -> Iterator[list[Row]]: ...

    @abstractmethod
    def _run_many(self, statement: str, rows: Iterable[Sequence[Value]]) -> None: ...

    def _begin(self) -> None:
        self._run(self.beginning, ())

    def _commit(self) -> None:
        self._run("COMMIT", ())

    def _rollback(self) -> None:
        self._run("ROLLBACK", ())

    @abstractmethod
    def _translated(self) -> AbstractContextManager[None]:
        """Return a context that turns the driver's errors into StorageFailed."""

    def _check(self) -> None:
        if self.failed:
            raise StorageFailed(
                "The database failed before, so what it holds is not known. Open the store again."
            )

    def _row_of(self, table: Table, key: tuple[Value, ...]) -> Sequence[Row]:
        """Return the row that has a key now, unless its digest is known."""
        if self.chain is None or self.chain.has_digest(table.name, key):
            return ()
        return self._run(table.selection(table.by_key), key)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Let the body write rows: inside the transaction that is open, or in its own."""
        with nullcontext() if self._inside else self.transaction():
            self._check()
            with self._guarded():
                yield

    def _link(self) -> ChainLink | None:
        """Write and return the present transaction's link; None if it wrote no rows."""
        if self.chain is None or not self.chain.pending:
            return None
        rows = self._run("SELECT value FROM meta WHERE name = 'clock'", ())
        link = self.chain.next(int(rows[0][0]) if rows else 0)
        self._run(Tables.CHAIN.insertion, (link.number, link.clock, link.content, link.head))
        return link

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Mark the connection as failed if the body does not get through."""
        try:
            with self._translated():
                yield
        except BaseException:
            self.failed = True
            raise
