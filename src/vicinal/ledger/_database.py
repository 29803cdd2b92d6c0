"""What a ledger needs of a database: statements, all-or-nothing transactions, and forgetting.

Statements are written once, in the part of SQL that both databases understand, with ``?`` for
values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vicinal.errors import StorageFailed, StoreDamaged
from vicinal.ledger._tables import BYTES, WHOLE, Table
from vicinal.ledger._writes import Write, WriteKind, write_of

if TYPE_CHECKING:
    from vicinal.ledger._chain import Chain, ChainLink

Value = int | str | bytes | None
Row = tuple[Any, ...]

BATCH = 1 << 10
"""Rows that a scan yields at a time."""

_LINK = "INSERT INTO chain (number, clock, content, head) VALUES (?, ?, ?, ?)"


class Database(ABC):
    """One connection to one database.

    Once a statement or a commit has failed, what is on disk may be either side of it. From then on
    everything is refused: only opening the database again tells.
    """

    kind: str
    integer_type: str
    binary: str

    def __init__(self) -> None:
        self._failed = False
        self._inside = False
        self._columns: dict[str, tuple[str, ...]] = {}
        self.chain: Chain | None = None
        """Digests of all rows, once :func:`~vicinal.ledger._chain.attach` has given it some."""

    @property
    def failed(self) -> bool:
        """Whether something went wrong, so that the database must be opened again."""
        return self._failed

    def execute(self, statement: str, values: Sequence[Value] = ()) -> list[Row]:
        """Carry out one statement and return its rows.

        Raises StorageFailed if the database refuses, or has failed before.
        """
        self._check()
        write = self._written(statement)
        if write is not None and not self._inside:
            with self.transaction():
                return self.execute(statement, values)
        with self._guarded():
            if write is None:
                return self._run(statement, values)
            self._digested(write, statement, values)
        return []

    def execute_many(self, statement: str, rows: Iterable[Sequence[Value]]) -> None:
        """Carry out one statement for every row of values."""
        self._check()
        write = self._written(statement)
        if write is None:
            with self._guarded():
                self._run_many(statement, rows)
        elif not self._inside:
            with self.transaction():
                self.execute_many(statement, rows)
        elif write.condition is None:
            self._inserted(write, statement, list(rows))
        else:
            for values in rows:
                self.execute(statement, values)

    def replace_rows(
        self, statement: str, before: Sequence[Row], after: Sequence[Sequence[Value]]
    ) -> None:
        """Carry out an insertion for many rows that replace others, inside a transaction.

        `before`: the rows that they replace, which have just been read: they are not read again.
        """
        self._check()
        write = self._written(statement)
        with self._guarded():
            self._run_many(statement, after)
            if write is not None and self.chain is not None:
                new = [self._row(write, values) for values in after]
                self.chain.enter(write.table, before, new)

    def create(self, table: Table) -> None:
        """Create a table, inside a transaction."""
        types = {WHOLE: self.integer_type, BYTES: self.binary}
        with self._guarded():
            self._run(table.create.format_map(types), ())

    def scan(self, table: str) -> Iterator[list[Row]]:
        """Yield all rows of a table, in any order, a good many at a time."""
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
                link = self._link()
        except BaseException:
            self._undo()
            raise
        finally:
            self._inside = False
        with self._guarded():
            self._commit()
        if self.chain is not None and link is not None:
            self.chain.commit(link)

    def get(self, name: str) -> str | None:
        """Return a fact from the table `meta`, or None."""
        rows = self.execute("SELECT value FROM meta WHERE name = ?", (name,))
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
        self.execute(
            "INSERT INTO meta (name, value) VALUES (?, ?) "
            "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            (name, value),
        )

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that hold the database, where they can be read; else none."""
        return ()

    @abstractmethod
    def has_table(self, name: str) -> bool:
        """Tell whether there is a table of this name."""

    @abstractmethod
    def tables(self) -> list[str]:
        """Return the names of all tables."""

    @abstractmethod
    def columns(self, table: str) -> tuple[str, ...]:
        """Return the names of a table's columns, in their order."""

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

    @abstractmethod
    def _begin(self) -> None: ...

    @abstractmethod
    def _commit(self) -> None: ...

    @abstractmethod
    def _rollback(self) -> None: ...

    @abstractmethod
    def _translated(self) -> AbstractContextManager[None]:
        """Return a context that turns the driver's errors into StorageFailed."""

    def _check(self) -> None:
        if self._failed:
            raise StorageFailed(
                "The database failed before, so what it holds is not known. Open the store again."
            )

    def _written(self, statement: str) -> Write | None:
        """Return what a statement writes, if that is to be digested."""
        return None if self.chain is None else write_of(statement)

    def _digested(self, write: Write, statement: str, values: Sequence[Value]) -> None:
        """Carry out a statement, and digest the rows that it takes away and writes."""
        assert self.chain is not None  # noqa: S101 (else there is no write)
        key = tuple(write.chosen(values)) if write.keyed else None
        has_digest = key is not None and self.chain.has_digest(write.table, key)
        before = () if has_digest or write.condition is None else self._chosen(write, values)
        self._run(statement, values)
        if write.kind is WriteKind.INSERTION:
            after: Sequence[Sequence[Value]] = [self._row(write, values)]
        else:
            after = self._chosen(write, values) if write.kind is WriteKind.UPDATE else ()
        if key is None:
            self.chain.enter(write.table, before, after)
        else:
            self.chain.replace(write.table, key, before, after)

    def _chosen(self, write: Write, values: Sequence[Value]) -> list[Row]:
        """Return the rows that a statement is about to take away, or has changed."""
        query = f"SELECT * FROM {write.table} {write.condition}"  # noqa: S608 (our own statements)
        chosen: Sequence[Any] = write.chosen(values)
        return self._run(query, chosen)

    def _inserted(self, write: Write, statement: str, rows: list[Sequence[Value]]) -> None:
        """Insert new rows, and digest them."""
        assert self.chain is not None  # noqa: S101 (else there is no write)
        with self._guarded():
            self._run_many(statement, rows)
            for start in range(0, len(rows), BATCH):
                part = rows[start : start + BATCH]
                self.chain.enter(write.table, (), [self._row(write, values) for values in part])

    def _row(self, write: Write, values: Sequence[Value]) -> Sequence[Value]:
        """Return the values of an insertion as the table's columns stand."""
        columns = self._columns_of(write.table)
        if write.columns in ((), columns):
            return values
        value_of = dict(zip(write.columns, values, strict=True))
        return [value_of.get(column) for column in columns]

    def _columns_of(self, table: str) -> tuple[str, ...]:
        if table not in self._columns:
            self._columns[table] = self.columns(table)
        return self._columns[table]

    def _link(self) -> ChainLink | None:
        """Write and return the present transaction's link; None if it wrote no rows."""
        if self.chain is None or not self.chain.pending:
            return None
        rows = self._run("SELECT value FROM meta WHERE name = 'clock'", ())
        link = self.chain.next(int(rows[0][0]) if rows else 0)
        self._run(_LINK, (link.number, link.clock, link.content, link.head))
        return link

    def _undo(self) -> None:
        """Roll back; a database that cannot even do that has failed."""
        if self.chain is not None:
            self.chain.forget()
        try:
            with self._translated():
                self._rollback()
        except StorageFailed:
            self._failed = True

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Mark the connection as failed if the body does not get through."""
        try:
            with self._translated():
                yield
        except BaseException:
            self._failed = True
            raise
