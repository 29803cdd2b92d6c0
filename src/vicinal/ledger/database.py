"""What a ledger needs of a database: statements, all-or-nothing transactions, and forgetting.

Statements are written once, in the part of SQL that both databases understand, with ``?`` for
values. Three words stand for types: WHOLE (64-bit integers), BYTES and TEXT.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from vicinal.errors import StorageFailed

Value = int | str | bytes | None
Row = tuple[Any, ...]


class Database(ABC):
    """One connection to one database.

    Once a statement or a commit has failed, what is on disk may be either side of it. From then on
    everything is refused: only opening the database again tells.
    """

    kind: str
    whole: str
    binary: str

    def __init__(self) -> None:
        self._failed = False

    @property
    def failed(self) -> bool:
        """Whether something went wrong, so that the database must be opened again."""
        return self._failed

    def execute(self, statement: str, values: Sequence[Value] = ()) -> list[Row]:
        """Carry out one statement and return its rows.

        Raises
        ------
        StorageFailed
            If the database refuses, or has failed before.
        """
        self._check()
        with self._guarded():
            return self._run(statement, values)

    def execute_many(self, statement: str, rows: Iterable[Sequence[Value]]) -> None:
        """Carry out one statement for every row of values."""
        self._check()
        with self._guarded():
            self._run_many(statement, rows)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make everything in the body durable at its end, or leave no trace of it.

        When this returns, the changes survive a crash and a loss of power.
        """
        self._check()
        with self._guarded():
            self._begin()
        try:
            yield
        except BaseException:
            self._undo()
            raise
        self._check()
        with self._guarded():
            self._commit()

    def get(self, name: str) -> str | None:
        """Return a fact from the table `meta`, or None."""
        rows = self.execute("SELECT value FROM meta WHERE name = ?", (name,))
        return rows[0][0] if rows else None

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
    def lock(self) -> bool:
        """Keep all others from charging, until this connection ends; tell whether that worked."""

    @abstractmethod
    def settle(self) -> None:
        """Remove what a crash has left of a transaction that was never committed."""

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

    def _undo(self) -> None:
        """Roll back; a database that cannot even do that has failed."""
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
