"""The tables of a ledger: columns, keys, and the SQL statements derived from them.

============= ====================================================================================
meta          values by name: format, identity, schema, clock, version, sizes
departed      remaining units of erased and evaluated subjects, by keyed hash of the id and
              audience; -1 and -2 instead of an audience: see :mod:`vicinal.ledger.ledger`
audiences     plan, initial budget, number of answers, slack of the grid, charges in the pages
analysts      quota and number of answers of each analyst
pages         remaining units by slot, in arrays of thousands of subjects
charges       log of charges since the pages were last written: slots and remaining units
answers       blocks of released answers, with the digests of their queries
requests      idempotency keys of queries (digests), with the location of each answer
additions     idempotency keys of added records (digests), with a keyed digest of the records
shadows       used shares of the public reference points' virtual budgets, by audience
tiles         digests of the record files, by tile
history       changes of the data: clock, time, kind, version
carried       votes that a shard keeps until their answers are durable
shards        of a coordinator: id, number, last known link and own epochs of each shard
models        components of private models and their counts of queries, by audience
files         digests of the store's other files
chain         one link per transaction: clock, sum of the digests of all rows, head
subject_pages ids of enrolled subjects by slot, hundreds in a row
============= ====================================================================================

A budget or an id is never a row by itself: one value holds a page or a block of charges.
"""

from collections.abc import Sequence
from typing import Any

INTEGER, BYTES = "INTEGER", "BYTES"
"""Placeholders in column types for each database's name of 64-bit integers and of bytes."""

FORMAT = 1
"""Version of the format of all tables, their contents, and the digests of their rows."""

ALL = "1 = 1"
"""The SQL condition that selects all rows."""


class Table:
    """A table, and all SQL statements that write its rows.

    The statements take whole rows or a condition. So :class:`~vicinal.ledger.database.Database`,
    which alone executes them, always has the written and the removed rows, and digests them.

    - `name`: name of the table.
    - `key`: columns of the primary key.
    - `remembered`: whether the digest of an inserted row is kept in memory until the row is
      deleted. That avoids reading and digesting long rows that are deleted soon.
    - `columns`: SQL type of each column, in order.
    """

    def __init__(
        self, name: str, key: tuple[str, ...], /, *, remembered: bool = False, **columns: str
    ) -> None:
        self.name = name
        self.columns = tuple(columns)
        self.remembered = remembered
        self._key_indices = tuple(self.columns.index(column) for column in key)
        self.by_key = " AND ".join(f"{column} = ?" for column in key)
        typed = ", ".join(f"{column} {kind}" for column, kind in columns.items())
        self.creation = f"CREATE TABLE {name} ({typed}, PRIMARY KEY ({', '.join(key)}))"
        names = ", ".join(columns)
        marks = ", ".join("?" * len(columns))
        self.insertion = f"INSERT INTO {name} ({names}) VALUES ({marks})"  # noqa: S608 (constants)
        updates = ", ".join(
            f"{column} = excluded.{column}" for column in columns if column not in key
        )
        self.replacement = (
            f"{self.insertion} ON CONFLICT ({', '.join(key)}) DO UPDATE SET {updates}"
        )

    def key_of(self, row: Sequence[Any]) -> tuple[Any, ...]:
        """Return the values of the primary key's columns in a whole `row`."""
        return tuple(row[index] for index in self._key_indices)

    def build_selection(self, condition: str = ALL) -> str:
        """Return the statement that reads all whole rows, or those that meet a condition.

        `condition`: SQL after WHERE, with ``?`` for values.
        """
        return f"SELECT {', '.join(self.columns)} FROM {self.name} WHERE {condition}"  # noqa: S608 (constants)

    def build_deletion(self, condition: str = ALL) -> str:
        """Return the statement that deletes all rows, or those that meet a condition.

        `condition`: SQL after WHERE, with ``?`` for values.
        """
        return f"DELETE FROM {self.name} WHERE {condition}"  # noqa: S608 (constants)


_INTEGER = "{INTEGER} NOT NULL"
_BYTES = "{BYTES} NOT NULL"
_TEXT = "TEXT NOT NULL"


class Tables:
    """All tables of a ledger, by name."""

    META = Table("meta", ("name",), name=_TEXT, value=_TEXT)
    DEPARTED = Table(
        "departed", ("hash", "audience"), hash=_BYTES, audience=_INTEGER, units=_INTEGER
    )
    AUDIENCES = Table(
        "audiences",
        ("number",),
        number=_INTEGER,
        name=f"{_TEXT} UNIQUE",
        plan=_TEXT,
        initial_budget=_INTEGER,
        granted=_INTEGER,
        used=_INTEGER,
        slack=_TEXT,
        checkpointed=_TEXT,
        checkpointed_queries=_INTEGER,
    )
    ANALYSTS = Table(
        "analysts",
        ("audience", "name"),
        audience=_INTEGER,
        name=_TEXT,
        quota="{INTEGER}",
        used=_INTEGER,
    )
    PAGES = Table("pages", ("audience", "number"), audience=_INTEGER, number=_INTEGER, units=_BYTES)
    CHARGES = Table(
        "charges",
        ("seq",),
        remembered=True,
        seq=_INTEGER,
        audience=_INTEGER,
        queries=_INTEGER,
        spent=_TEXT,
        slots=_BYTES,
        units=_BYTES,
    )
    ANSWERS = Table(
        "answers",
        ("seq",),
        seq=_INTEGER,
        audience=_INTEGER,
        version=_INTEGER,
        digests=_BYTES,
        answers=_BYTES,
    )
    REQUESTS = Table("requests", ("name",), name=_BYTES, body=_BYTES, seqs=_BYTES, places=_BYTES)
    ADDITIONS = Table("additions", ("name",), name=_BYTES, body=_BYTES, version=_INTEGER)
    SHADOWS = Table("shadows", ("audience",), audience=_INTEGER, shares=_TEXT)
    TILES = Table("tiles", ("part", "number"), part=_TEXT, number=_INTEGER, digest=_BYTES)
    HISTORY = Table("history", ("clock",), clock=_INTEGER, at=_TEXT, what=_TEXT, version=_INTEGER)
    CARRIED = Table(
        "carried",
        ("name", "round"),
        name=_BYTES,
        round=_TEXT,
        turn=_INTEGER,
        digest=_BYTES,
        sums=_BYTES,
    )
    SHARDS = Table(
        "shards",
        ("number",),
        number=_INTEGER,
        id=_TEXT,
        link=_INTEGER,
        clock=_INTEGER,
        head=_BYTES,
        epochs=_BYTES,
    )
    MODELS = Table("models", ("audience", "part"), audience=_INTEGER, part=_TEXT, content=_TEXT)
    FILES = Table("files", ("name",), name=_TEXT, digest=_BYTES)
    CHAIN = Table(
        "chain", ("number",), number=_INTEGER, clock=_INTEGER, content=_BYTES, head=_BYTES
    )
    SUBJECT_PAGES = Table(
        "subject_pages", ("page", "part"), page=_INTEGER, part=_INTEGER, slots=_BYTES, ids=_BYTES
    )


TABLES: tuple[Table, ...] = tuple(
    table for table in Tables.__dict__.values() if isinstance(table, Table)
)
"""All tables of a ledger."""
