"""The database of a ledger: statements, transactions, and a hash chain over all commits.

Each commit adds a *link* to the chain: a sum of keyed digests of all rows, and a hash of the link
and its predecessor, its *head*. A whole row has the values of all columns in order. The *clock* is
a counter that grows with every block of answers, change and other release.

Statements are written once, in the part of SQL that SQLite and PostgreSQL share, with ``?`` for
values. `Value` is an int, text, bytes or None. `condition` is SQL after WHERE, with ``?`` for each
of `values`; by default it selects all rows.
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
from vicinal.ledger.tables import ALL, TABLES, Table, Tables

Value = int | str | bytes | None
Row = tuple[Any, ...]
Rows = Sequence[Sequence[Any]]
RowKey = tuple[Any, ...]

BATCH = 1 << 10
"""Number of rows that a scan yields at a time."""

GENESIS_HEAD = bytes(32)
"""Head of the chain without links."""

MIN_HASHED_BYTES = 1 << 10
"""Values of at least this many bytes enter the digest of their row by their SHA-256."""

_DIGEST_BYTES = 16
"""Length of a row's digest, and of the sum of digests."""

_MODULUS = 1 << 8 * _DIGEST_BYTES
"""Digests are summed modulo this number."""

_DOMAIN = b"vicinal chain\x01"
"""First bytes of each hashed link, so that heads differ from all other hashes."""

DECLARED_COLUMNS = {table.name: table.columns for table in TABLES}
"""Columns of each declared table, in order."""

_ROWS_DIFFER = "The ledger was changed or damaged: its rows differ."
"""Message if the sum of the rows' digests differs from the one in the last link."""


class Database(ABC):
    """One connection to one database.

    After a failed statement or commit, the disk may hold the state before it or after it. From
    then on the connection refuses everything; only opening the database again reads the state.
    """

    kind: str
    """Name of the database system."""
    integer_type: str
    """Its SQL type of 64-bit integers."""
    binary_type: str
    """Its SQL type of bytes."""
    columns_query: str
    """Its query of pairs (table, column) for all tables, views and triggers, the columns of each in
    order. One without columns has a pair with None."""
    begin_statement = "BEGIN"

    def __init__(self) -> None:
        self.failed = False
        """Whether a statement or commit failed, so that the database must be opened again."""
        self._transaction_open = False
        self.chain: Chain | None = None
        """Digests of all rows; None before :func:`attach_chain` and in databases without them."""

    def read(self, query: str, values: Sequence[Value] = ()) -> list[Row]:
        """Return the rows of a query, which must begin with SELECT; ``?`` stands for each value.

        Raises InvalidInput for another statement, as written rows must be digested. Raises
        StorageFailed if the database refuses the query or has failed before.
        """
        if not query.startswith("SELECT "):
            raise InvalidInput("The query must only read. Rows are written by their tables.")
        self._check_not_failed()
        with self._mark_failures():
            return self._run(query, values)

    def read_rows(
        self, table: Table, condition: str = ALL, values: Sequence[Value] = ()
    ) -> list[Row]:
        """Return the whole rows of a table that meet a condition."""
        return self.read(table.build_selection(condition), values)

    def iterate_matches(
        self, table: Table, column: str, values: Sequence[Value], n_values: int = 256
    ) -> Iterator[Row]:
        """Yield the whole rows of a table whose `column` has one of `values`, ordered by key.

        `n_values`: number of values in one statement; the order holds among their rows only.
        """
        for start in range(0, len(values), n_values):
            batch = values[start : start + n_values]
            marks = ", ".join("?" * len(batch))
            yield from self.read_rows(table, f"{column} IN ({marks}) ORDER BY {table.key}", batch)

    # The following methods write rows. Each passes the old and the new rows to the chain, in the
    # transaction that writes them: the open one, or else one of its own.

    def insert(self, table: Table, rows: Iterable[Sequence[Value]]) -> None:
        """Insert whole rows with primary keys that are not in the table yet.

        The digests of the rows are kept in memory if the table is declared as `remembered`.
        """
        new_rows = list(rows)
        with self._ensure_transaction():
            self._run_many(table.insertion, new_rows)
            if self.chain is not None and table.remembered:
                for row in new_rows:
                    self.chain.record_replacement(table.name, table.key_of(row), (), [row])
            elif self.chain is not None and new_rows:
                self.chain.record_changes(table.name, (), new_rows)

    def replace(self, table: Table, rows: Iterable[Sequence[Value]]) -> None:
        """Insert whole rows, each instead of the row with the same primary key, if there is one."""
        with self._ensure_transaction():
            for row in rows:
                key = table.key_of(row)
                old_rows = self._load_old_row(table, key)
                self._run(table.replacement, row)
                if self.chain is not None:
                    self.chain.record_replacement(table.name, key, old_rows, [row])

    def delete(self, table: Table, condition: str = ALL, values: Sequence[Value] = ()) -> None:
        """Delete the rows of a table that meet a condition."""
        with self._ensure_transaction():
            # Deleted rows are read only for their digests. Without a chain that is spared, as the
            # copy of a ledger may be large.
            selection = table.build_selection(condition)
            old_rows = () if self.chain is None else self._run(selection, values)
            self._run(table.build_deletion(condition), values)
            if self.chain is not None:
                self.chain.record_changes(table.name, old_rows, ())

    def delete_rows(self, table: Table, keys: Iterable[tuple[Value, ...]]) -> None:
        """Delete the rows with these primary keys, each a tuple of the key columns' values.

        A row is read first, to subtract its digest, unless the digest is in memory.
        """
        with self._ensure_transaction():
            for key in keys:
                old_rows = self._load_old_row(table, key)
                self._run(table.build_deletion(table.by_key), key)
                if self.chain is not None:
                    self.chain.record_replacement(table.name, key, old_rows, ())

    def create_tables(self) -> None:
        """Create all tables, empty, in one transaction."""
        types = {"INTEGER": self.integer_type, "BYTES": self.binary_type}
        with self.transaction(), self._mark_failures():
            for table in TABLES:
                self._run(table.creation.format_map(types), ())

    def scan(self, table: str) -> Iterator[list[Row]]:
        """Yield all rows of a table, in any order, in lists of at most :data:`BATCH` rows.

        `table`: the table's name. The rows have all columns, also undeclared ones, so that the
        digests cover them.
        """
        self._check_not_failed()
        with self._mark_failures():
            yield from self._iterate_rows(f"SELECT * FROM {table}")  # noqa: S608 (from the catalogue)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all writes of the body together; an exception undoes all of them.

        After the commit the writes survive a crash and a loss of power. Raises StorageFailed if a
        transaction is open, or if the commit fails.
        """
        self.check_no_transaction()
        try:
            self._transaction_open = True
            with self._mark_failures():
                self._begin()
            yield
            self._check_not_failed()
            with self._mark_failures():
                link = self._write_link()  # in the same transaction as the rows that it digests
                self._commit()
            if self.chain is not None and link is not None:
                self.chain.set_last_link(link)
        except BaseException:
            if self.chain is not None:
                self.chain.discard_pending()
            with suppress(StorageFailed), self._mark_failures():
                self._rollback()
            raise
        finally:
            self._transaction_open = False

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._transaction_open

    def check_no_transaction(self) -> None:
        """Raise StorageFailed, and refuse everything from then on, if a transaction is open.

        Between operations that is possible only if an exception prevented its end, for example an
        interrupt inside the standard library's code for `with`.
        """
        if self._transaction_open:
            self.failed = True
        self._check_not_failed()

    def check_committed(self) -> None:
        """Raise RuntimeError if a transaction is open, as its writes may never be durable."""
        if self._transaction_open:
            raise RuntimeError("A witness was written before its commit. Please report this bug.")

    def get(self, name: str) -> str | None:
        """Return the text that the table `meta` has under this name; None if there is none."""
        rows = self.read("SELECT value FROM meta WHERE name = ?", (name,))
        return rows[0][0] if rows else None

    def get_integer(self, name: str) -> int:
        """Return the integer that the table `meta` has under this name; 0 if there is none.

        Raises StoreDamaged if the text is not an integer.
        """
        text = self.get(name)
        try:
            return int(text or 0)
        except (ValueError, TypeError):
            raise StoreDamaged(
                "The ledger was changed or damaged: a value is not a number. Restore a backup."
            ) from None

    def put(self, name: str, value: str) -> None:
        """Write or replace the text `value` under a name in the table `meta`."""
        self.replace(Tables.META, [(name, value)])

    def open_files(self) -> dict[Path, int]:
        """Return a descriptor of each existing file of the database, by path; do not close it.

        Empty for a database on a server.
        """
        return {}

    def read_columns(self) -> dict[str, tuple[str, ...]]:
        """Return the column names of each table and view, in order, and no columns of triggers."""
        columns: dict[str, tuple[str, ...]] = {}
        for table, column in self.read(self.columns_query):
            present = columns.get(str(table), ())
            columns[str(table)] = present if column is None else (*present, str(column))
        return columns

    @abstractmethod
    def lock(self) -> bool:
        """Lock the database until this connection ends; return False if it is locked already.

        The lock keeps a second ledger from charging the same budgets.
        """

    @abstractmethod
    def recover(self) -> None:
        """Make the connection writable, and remove uncommitted writes from the disk."""

    @contextmanager
    def delay_checkpoints(self) -> Iterator[None]:
        """Return a context without checkpoints, which copy a write-ahead log to the main file.

        Its body must :meth:`scrub` the database, which makes the only copy and empties the log: so
        pages are copied once. Has no effect on a database without such a log.
        """
        yield

    @abstractmethod
    def scrub(self) -> None:
        """Rewrite the database so that no deleted value remains in free pages or logs."""

    @abstractmethod
    def find_faults(self) -> list[str]:
        """Return the messages of the database's own integrity check; empty if it passes."""

    @abstractmethod
    def close(self) -> None:
        """End the connection and discard uncommitted writes."""

    @abstractmethod
    def _run(self, statement: str, values: Sequence[Value]) -> list[Row]:
        """Execute a statement with a value for each ``?``, and return its rows."""

    @abstractmethod
    def _iterate_rows(self, statement: str) -> Iterator[list[Row]]:
        """Execute a query without values and yield its rows in lists of at most :data:`BATCH`."""

    @abstractmethod
    def _run_many(self, statement: str, rows: Iterable[Sequence[Value]]) -> None:
        """Execute a statement once for the values of each row."""

    def _begin(self) -> None:
        """Begin a transaction."""
        self._run(self.begin_statement, ())

    def _commit(self) -> None:
        """Commit the open transaction."""
        self._run("COMMIT", ())

    def _rollback(self) -> None:
        """Undo the open transaction."""
        self._run("ROLLBACK", ())

    @abstractmethod
    def _translate_errors(self) -> AbstractContextManager[None]:
        """Return a context that turns the driver's errors into StorageFailed."""

    def _check_not_failed(self) -> None:
        """Raise StorageFailed if the database has failed before."""
        if self.failed:
            raise StorageFailed(
                "The database failed before, so what it holds is not known. Open the store again."
            )

    def _load_old_row(self, table: Table, key: tuple[Value, ...]) -> Sequence[Row]:
        """Return the row with a primary key before its replacement or deletion, in a list.

        It is empty without such a row, or if none is needed, as its digest is in memory.
        """
        if self.chain is None or self.chain.has_digest(table.name, key):
            return ()
        return self._run(table.build_selection(table.by_key), key)

    @contextmanager
    def _ensure_transaction(self) -> Iterator[None]:
        """Return a context that writes rows in the open transaction, or else in a new one."""
        with nullcontext() if self._transaction_open else self.transaction():
            self._check_not_failed()
            with self._mark_failures():
                yield

    def _write_link(self) -> ChainLink | None:
        """Write and return the chain link of the open transaction; None if it wrote no rows."""
        if self.chain is None or not self.chain.has_pending:
            return None
        link = self.chain.make_link(self.get_integer("clock"))
        self._run(Tables.CHAIN.insertion, (link.number, link.clock, link.content, link.head))
        return link

    @contextmanager
    def _mark_failures(self) -> Iterator[None]:
        """Return a context that marks the connection as failed after any exception in its body."""
        try:
            with self._translate_errors():
                yield
        except BaseException:
            self.failed = True
            raise


# ----------------------------------------------------------------
# The chain of commits (docs/decisions/0042-chain-and-epochs.md). The state of the ledger is
# represented by the sum of the keyed digests of all rows. Every commit appends a link with this sum
# and a hash of all its links.


@dataclass(frozen=True, slots=True)
class ChainLink:
    """One link of the chain of commits: a row of the table `chain`.

    - `number`: index of the link in the chain.
    - `clock`: the ledger's clock at the commit, a counter that never decreases.
    - `content`: sum of the digests of all rows after the commit, 16 bytes.
    - `head`: SHA-256 of this link and the previous head, hence of the whole chain up to here.
    """

    number: int
    clock: int
    content: bytes
    head: bytes

    @classmethod
    def from_previous(cls, head: bytes, number: int, clock: int, content: bytes) -> ChainLink:
        """Return the link of this number, clock and content; `head`: that of the previous link."""
        counts = number.to_bytes(8) + clock.to_bytes(8)
        new_head = hashlib.sha256(_DOMAIN + head + counts + content).digest()
        return cls(number, clock, content, new_head)

    def is_successor_of(self, previous: ChainLink) -> bool:
        """Return whether this link follows `previous` in the chain.

        It then has the next number, and a head that contains that of `previous`.
        """
        number = previous.number + 1
        return self == ChainLink.from_previous(previous.head, number, self.clock, self.content)


_GENESIS_LINK = ChainLink(-1, 0, bytes(32), GENESIS_HEAD)
"""Replaces the link before the first one."""


class Chain:
    """The last link, and the sum of all rows' digests with the changes of the open transaction.

    `secret_key`: that of the store. Digests are keyed, so that they do not confirm a guess of an
    erased row. Digests are integers modulo 2^128. Arguments of the methods: `table`, a table's
    name; `key`, the values of a row's primary key.
    """

    def __init__(self, secret_key: bytes) -> None:
        self._key = keyed_digest(secret_key, b"digests of rows")
        self._prefixes: dict[str, bytes] = {}
        self._sum = 0
        self._pending: int | None = None  # change of the sum by the open transaction
        # Digests of rows that were inserted or replaced, by table and key.
        self._digests: dict[str, dict[RowKey, int]] = {}
        self.last = _GENESIS_LINK

    def record_changes(self, table: str, removed: Rows, added: Rows) -> None:
        """Record the whole rows that the open transaction removed from a table and added to it."""
        if removed:
            self._digests.pop(table, None)
        self._add_pending(self.sum_digests(table, [added]) - self.sum_digests(table, [removed]))

    def has_digest(self, table: str, key: RowKey) -> bool:
        """Return whether the digest of the row that the table has with this key is in memory."""
        return key in self._digests.get(table, ())

    def record_replacement(self, table: str, key: RowKey, old_rows: Rows, new_rows: Rows) -> None:
        """Record that the open transaction inserted, replaced or deleted the row of a key.

        `old_rows`, `new_rows`: lists of the old row, unless its digest is in memory, and of the new
        one; empty if there is none.
        """
        digests = self._digests.setdefault(table, {})
        old_digest = digests.pop(key, None)
        new_digest = self.sum_digests(table, [new_rows])
        if new_rows:
            digests[key] = new_digest
        if old_digest is None:
            old_digest = self.sum_digests(table, [old_rows])
        self._add_pending(new_digest - old_digest)

    def sum_digests(self, table: str, batches: Iterable[Rows]) -> int:
        """Return the sum of the keyed digests of rows of a table, modulo 2^128.

        `batches`: lists of whole rows.
        """
        if table not in self._prefixes:
            name_hash = hashlib.blake2b(table.encode(), key=self._key, digest_size=_DIGEST_BYTES)
            self._prefixes[table] = name_hash.digest()
        prefix = self._prefixes[table]
        return sum(_compute_digest(prefix, row) for rows in batches for row in rows) % _MODULUS

    def discard_pending(self) -> None:
        """Discard the changes of the open transaction, which was rolled back."""
        self._pending = None
        self._digests.clear()

    @property
    def has_pending(self) -> bool:
        """Whether the open transaction has written rows."""
        return self._pending is not None

    def make_link(self, clock: int) -> ChainLink:
        """Return the link that the open transaction will add after the last link.

        `clock`: the ledger's clock.
        """
        content = _encode_sum(self._sum + (self._pending or 0))
        return ChainLink.from_previous(self.last.head, self.last.number + 1, clock, content)

    def set_last_link(self, link: ChainLink) -> None:
        """Make `link` the last link, after its commit or after it was read from the database."""
        self._sum = int.from_bytes(link.content)
        self._pending = None
        self.last = link

    def _add_pending(self, change: int) -> None:
        """Add a sum or difference of digests, `change`, to the changes of the open transaction."""
        self._pending = (self._pending or 0) + change


def attach_chain(database: Database, key: bytes) -> Chain:
    """Return the database's chain after verifying all rows, and attach it for further writes.

    `key`: the store's secret key. Raises StoreDamaged if tables, rows or the last link differ from
    the written ones.
    """
    chain = Chain(key)
    links = list(islice(_iterate_links_backward(database, 2), 2))
    last, previous = [*links, _GENESIS_LINK, _GENESIS_LINK][:2]
    # Rows are read by column names and digested by column positions, so the names must be the
    # declared ones. Undeclared tables, views and triggers are refused with them.
    if database.read_columns() != DECLARED_COLUMNS:
        raise StoreDamaged(f"{_ROWS_DIFFER} Restore a backup.")
    # The head of a link can be computed without the key, but the clock is also a row, which the
    # keyed digests cover. So an older ledger cannot be given the clock that a witness remembers.
    content = _compute_content(database, chain)
    clock = database.get_integer("clock")
    if not links or (last.content, last.clock) != (content, clock):
        raise StoreDamaged(f"{_ROWS_DIFFER} Restore a backup.")
    if not last.is_successor_of(previous):
        raise StoreDamaged(
            "The ledger was changed or damaged: its last link differs. Restore a backup."
        )
    chain.set_last_link(last)
    database.chain = chain
    return chain


def find_chain_faults(database: Database, key: bytes) -> list[str]:
    """Return a sentence for each fault of the rows or the chain; `key`: the store's secret key."""
    links = [_GENESIS_LINK, *reversed(list(_iterate_links_backward(database)))]
    content = _compute_content(database, Chain(key))
    clock = database.get_integer("clock")
    expected = (links[-1].content, links[-1].clock, DECLARED_COLUMNS)
    faults = [] if expected == (content, clock, database.read_columns()) else [_ROWS_DIFFER]
    if not all(link.is_successor_of(previous) for previous, link in pairwise(links)):
        faults.append("The chain of commits is broken.")
    return faults


def _compute_content(database: Database, chain: Chain) -> bytes:
    """Return the sum of the digests of all rows but the links, 16 bytes: a link's `content`.

    `chain`: digests the rows with its key.
    """
    names = DECLARED_COLUMNS.keys() - {Tables.CHAIN.name}
    return _encode_sum(sum(chain.sum_digests(name, database.scan(name)) for name in names))


def _encode_sum(total: int) -> bytes:
    """Return a sum of digests modulo 2^128 as 16 bytes."""
    return (total % _MODULUS).to_bytes(_DIGEST_BYTES)


def has_commit(database: Database, clock: int, head: bytes) -> bool:
    """Return whether the chain contains a commit, given by its clock and head (32 bytes).

    It must have a link with both, and only valid links after it. Links with a smaller clock are not
    read, as the clock never decreases.
    """
    next_link: ChainLink | None = None
    for link in _iterate_links_backward(database):
        if link.clock < clock or (next_link is not None and not next_link.is_successor_of(link)):
            return False
        if (link.clock, link.head) == (clock, head):
            return True
        next_link = link
    return False


def _iterate_links_backward(database: Database, batch_size: int = 256) -> Iterator[ChainLink]:
    """Yield the chain's links, the last one first, reading `batch_size` of them at a time."""
    condition = f"number <= ? ORDER BY number DESC LIMIT {batch_size}"
    max_number = (1 << 63) - 1  # the largest integer of the database, so no link is skipped
    while rows := database.read_rows(Tables.CHAIN, condition, (max_number,)):
        yield from map(_parse_link, rows)
        max_number = rows[-1][0] - 1


def _parse_link(row: Sequence[Any]) -> ChainLink:
    """Return the link of a `row` (number, clock, content, head); StoreDamaged for other types."""
    has_counts = all(isinstance(value, int) and 0 <= value < 1 << 63 for value in row[:2])
    if not has_counts or not all(isinstance(value, bytes) for value in row[2:]):
        raise StoreDamaged(
            "The ledger was changed or damaged: a link of its chain differs. Restore a backup."
        )
    return ChainLink(*row)


def _compute_digest(prefix: bytes, row: Sequence[Any]) -> int:
    """Return the digest of a row as an integer; different rows have different encodings.

    `prefix`: the keyed digest of the table's name; it is hashed before the row.
    """
    chunks = [prefix]
    for value in row:
        value_type = type(value)  # most values are encoded here, which saves a call
        if value_type is int:
            chunks.append(b"i%d;" % value)
        elif value_type is bytes and len(value) < MIN_HASHED_BYTES:
            chunks.append(b"b%d:%b" % (len(value), value))
        else:
            chunks.append(_encode_value(value))
    encoded = b"".join(chunks)
    return int.from_bytes(hashlib.blake2b(encoded, digest_size=_DIGEST_BYTES).digest(), "little")


def _encode_value(value: Any) -> bytes:
    """Return a unique encoding of a value in a row: no other value or type has the same.

    Long bytes and texts are represented by their length and SHA-256.
    """
    if isinstance(value, int):
        return b"i%d;" % value
    if isinstance(value, bytes):
        kind, content = b"b", value
    elif isinstance(value, str):
        kind, content = b"s", value.encode("utf-8", "surrogatepass")
    else:
        # No ledger writes other types, such as floating-point numbers, so these only must differ.
        return b"n;" if value is None else b"o" + repr(value).encode() + b";"
    size = len(content)
    if size < MIN_HASHED_BYTES:
        return b"%b%d:%b" % (kind, size, content)
    return b"%b%d#%b" % (kind, size, hashlib.sha256(content).digest())
