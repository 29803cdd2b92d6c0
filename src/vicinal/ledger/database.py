"""What a ledger needs of a database: statements, all-or-nothing transactions, and forgetting.

Statements are written once, in the part of SQL that both databases understand, with ``?`` for
values.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from vicinal.errors import InvalidInput, StorageFailed, StoreDamaged
from vicinal.ledger.id_encoding import keyed_digest
from vicinal.ledger.tables import ALL, BYTES, TABLES, WHOLE, Table, Tables

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
        """Digests of all rows, once :func:`~vicinal.ledger.database.attach` has given it some."""

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
        self.check_closed()
        try:
            self._inside = True
            with self._guarded():
                self._begin()
            yield
            self._check()
            with self._guarded():
                link = self._link()  # with its rows: neither is ever durable without the other
                self._commit()
            if self.chain is not None and link is not None:
                self.chain.commit(link)
        except BaseException:
            if self.chain is not None:
                self.chain.forget()
            with suppress(StorageFailed), self._guarded():
                self._rollback()
            raise
        finally:
            self._inside = False

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._inside

    def check_closed(self) -> None:
        """Raise StorageFailed, and refuse everything from then on, if a transaction is open.

        Between operations one can be open only if an exception kept its end from being reached, for
        example an interrupt inside the standard library's code for `with`.
        """
        if self._inside:
            self.failed = True
        self._check()

    def check_committed(self) -> None:
        """Raise RuntimeError while a transaction is open: what it wrote may never be durable."""
        if self._inside:
            raise RuntimeError("A witness was written before its commit. Please report this bug.")

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
                "The ledger was changed or damaged: a value is not a number. Restore a backup."
            ) from None

    def put(self, name: str, value: str) -> None:
        """Write a fact to the table `meta`."""
        self.replace(Tables.META, [(name, value)])

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that hold the database, where they can be read; else none."""
        return ()

    @abstractmethod
    def tables(self) -> dict[str, tuple[str, ...]]:
        """Return the columns of all tables, in order; of what is no table, none."""

    @abstractmethod
    def lock(self) -> bool:
        """Keep all others from charging, until this connection ends; tell whether that worked."""

    @abstractmethod
    def recover(self) -> None:
        """Begin to write; remove what a crash has left of a transaction without its commit."""

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
        link = self.chain.next(self.number("clock"))
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


# ----------------------------------------------------------------
# What the ledger holds, as digests, and its history, as a chain of them.


Rows = Sequence[Sequence[Any]]
Key = tuple[Any, ...]

NO_HEAD = bytes(32)
"""The head before the first link."""

LONG = 1 << 10
"""Bytes of a value from which on its row's digest covers its SHA-256 instead."""

_DIGEST = 16
_MODULUS = 1 << 8 * _DIGEST
_DOMAIN = b"vicinal chain\x01"
DECLARED = {table.name: table.columns for table in TABLES}

_OTHER_ROWS = "The ledger was changed or damaged: its rows differ."


@dataclass(frozen=True, slots=True)
class ChainLink:
    """One link: the row of the table `chain`.

    - `number`: how many links there were before.
    - `clock`: the ledger's clock.
    - `content`: the sum.
    - `head`: digest of this link and, through the head before, of all earlier ones.
    """

    number: int
    clock: int
    content: bytes
    head: bytes

    @classmethod
    def after(cls, head: bytes, number: int, clock: int, content: bytes) -> ChainLink:
        """Return the link that follows on `head`."""
        counts = number.to_bytes(8) + clock.to_bytes(8)
        return cls(
            number, clock, content, hashlib.sha256(_DOMAIN + head + counts + content).digest()
        )

    def follows(self, before: ChainLink) -> bool:
        """Tell whether this link is the next one after another."""
        return self == ChainLink.after(before.head, before.number + 1, self.clock, self.content)


_NO_LINK = ChainLink(-1, 0, bytes(32), NO_HEAD)


class Chain:
    """The sum of all rows' digests and the last link, as of the last commit; see :func:`attach`.

    `key`: the store's secret key.
    """

    def __init__(self, key: bytes) -> None:
        self._key = keyed_digest(key, b"digests of rows")
        self._prefixes: dict[str, bytes] = {}
        self._sum = 0
        self._pending: int | None = None
        self._replaced: dict[str, dict[Key, int]] = {}
        self.last = _NO_LINK

    def enter(self, table: str, removed: Rows, added: Rows) -> None:
        """Take note of rows that a transaction takes away and writes."""
        if removed:
            self._replaced.pop(table, None)
        self._note(self.total(table, [added]) - self.total(table, [removed]))

    def has_digest(self, table: str, key: Key) -> bool:
        """Tell whether the digest of a row is known: :meth:`replace` noted it last."""
        return key in self._replaced.get(table, ())

    def replace(self, table: str, key: Key, before: Rows, after: Rows) -> None:
        """Take note of the row of a key that a transaction writes, takes away, or writes anew.

        `before`: the row of that key until now, if there is one and its digest is not known.
        `after`: the row from now on, if there is one.
        """
        digests = self._replaced.setdefault(table, {})
        old = digests.pop(key, None)
        new = self.total(table, [after])
        if after:
            digests[key] = new
        self._note(new - (self.total(table, [before]) if old is None else old))

    def total(self, table: str, batches: Iterable[Rows]) -> int:
        """Return the sum of the digests of rows, which come a good many at a time."""
        if table not in self._prefixes:
            name = hashlib.blake2b(table.encode(), key=self._key, digest_size=_DIGEST)
            self._prefixes[table] = name.digest()
        prefix = self._prefixes[table]
        return sum(_digest_of(prefix, row) for rows in batches for row in rows) % _MODULUS

    def forget(self) -> None:
        """Take note that a transaction was rolled back."""
        self._pending = None
        self._replaced.clear()

    @property
    def pending(self) -> bool:
        """Whether the present transaction has written rows."""
        return self._pending is not None

    def next(self, clock: int) -> ChainLink:
        """Return the link of the present transaction."""
        content = _content(self._sum + (self._pending or 0))
        return ChainLink.after(self.last.head, self.last.number + 1, clock, content)

    def commit(self, link: ChainLink) -> None:
        """Take note that the transaction of a link is durable; or go on from the link."""
        self._sum, self._pending, self.last = int.from_bytes(link.content), None, link

    def _note(self, change: int) -> None:
        self._pending = (self._pending or 0) + change


def columns_by_table(rows: Iterable[Row]) -> dict[str, tuple[str, ...]]:
    """Return the columns of each table, of rows (table, column), those of a table in order."""
    columns: dict[str, tuple[str, ...]] = {}
    for table, column in rows:
        columns[str(table)] = (*columns.get(str(table), ()), *([str(column)] if column else []))
    return columns


def attach(database: Database, key: bytes) -> Chain:
    """Check a database against its digests, and digest all that is written to it from now on.

    Raises StorageFailed if it holds anything else than what was written.
    """
    chain = Chain(key)
    links = list(islice(_links_backward(database, 2), 2))
    last, before = [*links, _NO_LINK, _NO_LINK][:2]
    # Rows are read by the names of their columns and digested by their places, so names must be
    # those that were declared; a table, view or trigger that nobody declared is refused with them.
    if database.tables() != DECLARED:
        raise StoreDamaged(f"{_OTHER_ROWS} Restore a backup.")
    # A link's head needs no key. That its clock is the one among the rows does: their digest is
    # keyed, so an older ledger cannot be given the clock that a witness asks for.
    content, clock = _content_of_rows(database, chain), database.number("clock")
    if not links or (last.content, last.clock) != (content, clock):
        raise StoreDamaged(f"{_OTHER_ROWS} Restore a backup.")
    if not last.follows(before):
        raise StoreDamaged(
            "The ledger was changed or damaged: its last link differs. Restore a backup."
        )
    chain.commit(last)
    database.chain = chain
    return chain


def chain_faults(database: Database, key: bytes) -> list[str]:
    """Return in words what is wrong with rows and links, all of them."""
    links = [_NO_LINK, *reversed(list(_links_backward(database)))]
    found = _content_of_rows(database, Chain(key)), database.number("clock"), database.tables()
    same = (links[-1].content, links[-1].clock, DECLARED) == found
    faults = [] if same else [_OTHER_ROWS]
    if not all(link.follows(before) for before, link in pairwise(links)):
        faults.append("The chain of commits is broken.")
    return faults


def _content_of_rows(database: Database, chain: Chain) -> bytes:
    """Return what the last link must hold."""
    names = DECLARED.keys() - {Tables.CHAIN.name}
    return _content(sum(chain.total(name, database.scan(name)) for name in names))


def _content(total: int) -> bytes:
    return (total % _MODULUS).to_bytes(_DIGEST)


def is_descendant(database: Database, clock: int, head: bytes) -> bool:
    """Tell whether the ledger was at this clock with this head once, and has gone on from there.

    It reads the links since then, by number, and no others: the clock never goes back.
    """
    later: ChainLink | None = None
    for link in _links_backward(database):
        if link.clock < clock or (later is not None and not later.follows(link)):
            return False
        if (link.clock, link.head) == (clock, head):
            return True
        later = link
    return False


def _links_backward(database: Database, batch: int = 256) -> Iterator[ChainLink]:
    """Yield all links, the last one first, without holding all of them."""
    before = f"number <= ? ORDER BY number DESC LIMIT {batch}"
    number = (1 << 63) - 1  # the largest that there can be: no link stands behind the last one
    while rows := database.rows(Tables.CHAIN, before, (number,)):
        yield from map(_link_of, rows)
        number = rows[-1][0] - 1


def _link_of(row: Sequence[Any]) -> ChainLink:
    counts = all(isinstance(value, int) and 0 <= value < 1 << 63 for value in row[:2])
    if not counts or not all(isinstance(value, bytes) for value in row[2:]):
        raise StoreDamaged(
            "The ledger was changed or damaged: a link of its chain differs. Restore a backup."
        )
    return ChainLink(*row)


def _digest_of(prefix: bytes, row: Sequence[Any]) -> int:
    """Return the digest of a row, in an encoding that no other row has."""
    parts = [prefix]
    for value in row:
        kind = type(value)  # most values, encoded without a call
        if kind is int:
            parts.append(b"i%d;" % value)
        elif kind is bytes and len(value) < LONG:
            parts.append(b"b%d:%b" % (len(value), value))
        else:
            parts.append(_value(value))
    encoded = b"".join(parts)
    return int.from_bytes(hashlib.blake2b(encoded, digest_size=_DIGEST).digest(), "little")


def _value(value: Any) -> bytes:
    if isinstance(value, bytes):
        return _sized(b"b", value)
    if isinstance(value, int):
        return b"i%d;" % value
    if isinstance(value, str):
        return _sized(b"s", value.encode("utf-8", "surrogatepass"))
    # A number with a fraction was not written here: it must differ from what was.
    return b"n;" if value is None else b"o" + repr(value).encode() + b";"


def _sized(kind: bytes, content: bytes) -> bytes:
    """Return kind and length, and the content or, if it is long, its digest."""
    size = len(content)
    if size < LONG:
        return b"%b%d:%b" % (kind, size, content)
    return b"%b%d#%b" % (kind, size, hashlib.sha256(content).digest())
