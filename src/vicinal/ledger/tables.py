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

FORMAT = 1
"""Version of the format of all tables, their contents, and the digests of their rows."""

ALL = "1 = 1"
"""The SQL condition that selects all rows."""


_SQL_TYPES = {
    "integer": "{INTEGER} NOT NULL",
    "optional_integer": "{INTEGER}",
    "bytes": "{BYTES} NOT NULL",
    "text": "TEXT NOT NULL",
    "unique_text": "TEXT NOT NULL UNIQUE",
}
"""SQL of each type of a column; each database has its own names of 64-bit integers and of bytes."""


class Table:
    """A table, and all SQL statements that write its rows.

    The statements take whole rows or a condition. So :class:`~vicinal.ledger.database.Database`,
    which alone executes them, always has the written and the removed rows, and digests them.

    - `name`: name of the table.
    - `key`: columns of the primary key, separated by ", ".
    - `columns`: name and type (:data:`_SQL_TYPES`) of each column, separated by ", ".
    - `remembered`: whether the digest of an inserted row is kept in memory until the row is
      deleted. That avoids reading and digesting long rows that are deleted soon.

    Attributes: `columns`, names of all columns in order; `by_key`, the condition that selects a row
    by its primary key; `creation`, `insertion` and `replacement`, statements.
    """

    def __init__(self, name: str, key: str, columns: str, *, remembered: bool = False) -> None:
        type_by_column = dict(column.split() for column in columns.split(", "))
        key_columns = key.split(", ")
        self.name = name
        self.key = key
        self.columns = tuple(type_by_column)
        self.remembered = remembered
        self._key_indices = tuple(self.columns.index(column) for column in key_columns)
        self.by_key = " AND ".join(f"{column} = ?" for column in key_columns)
        typed = ", ".join(f"{column} {_SQL_TYPES[kind]}" for column, kind in type_by_column.items())
        self.creation = f"CREATE TABLE {name} ({typed}, PRIMARY KEY ({key}))"
        self._names = ", ".join(self.columns)
        marks = ", ".join("?" * len(self.columns))
        self.insertion = f"INSERT INTO {name} ({self._names}) VALUES ({marks})"  # noqa: S608 (constants)
        updates = ", ".join(
            f"{column} = excluded.{column}" for column in self.columns if column not in key_columns
        )
        self.replacement = f"{self.insertion} ON CONFLICT ({key}) DO UPDATE SET {updates}"

    def key_of(self, row: Sequence[Any]) -> tuple[Any, ...]:
        """Return the values of the primary key's columns in a whole `row`."""
        return tuple(row[index] for index in self._key_indices)

    def build_selection(self, condition: str = ALL) -> str:
        """Return the statement that reads whole rows: all, or those that meet a condition.

        `condition`: SQL after WHERE, with ``?`` for values.
        """
        return f"SELECT {self._names} FROM {self.name} WHERE {condition}"  # noqa: S608 (constants)

    def build_deletion(self, condition: str = ALL) -> str:
        """Return the statement that deletes all rows, or those that meet a condition (SQL)."""
        return f"DELETE FROM {self.name} WHERE {condition}"  # noqa: S608 (constants)


class Tables:
    """All tables of a ledger, by name."""

    META = Table("meta", "name", "name text, value text")
    DEPARTED = Table("departed", "hash, audience", "hash bytes, audience integer, units integer")
    AUDIENCES = Table(
        "audiences",
        "number",
        "number integer, name unique_text, plan text, initial_budget integer, granted integer, "
        "used integer, slack text, checkpointed text, checkpointed_queries integer",
    )
    ANALYSTS = Table(
        "analysts",
        "audience, name",
        "audience integer, name text, quota optional_integer, used integer",
    )
    PAGES = Table("pages", "audience, number", "audience integer, number integer, units bytes")
    CHARGES = Table(
        "charges",
        "seq",
        "seq integer, audience integer, queries integer, spent text, slots bytes, units bytes",
        remembered=True,
    )
    ANSWERS = Table(
        "answers",
        "seq",
        "seq integer, audience integer, version integer, digests bytes, answers bytes",
    )
    REQUESTS = Table("requests", "name", "name bytes, body bytes, seqs bytes, places bytes")
    ADDITIONS = Table("additions", "name", "name bytes, body bytes, version integer")
    SHADOWS = Table("shadows", "audience", "audience integer, shares text")
    TILES = Table("tiles", "part, number", "part text, number integer, digest bytes")
    HISTORY = Table("history", "clock", "clock integer, at text, what text, version integer")
    CARRIED = Table(
        "carried", "name, round", "name bytes, round text, turn integer, digest bytes, sums bytes"
    )
    SHARDS = Table(
        "shards",
        "number",
        "number integer, id text, link integer, clock integer, head bytes, epochs bytes",
    )
    MODELS = Table("models", "audience, part", "audience integer, part text, content text")
    FILES = Table("files", "name", "name text, digest bytes")
    CHAIN = Table("chain", "number", "number integer, clock integer, content bytes, head bytes")
    SUBJECT_PAGES = Table(
        "subject_pages", "page, part", "page integer, part integer, slots bytes, ids bytes"
    )


TABLES: tuple[Table, ...] = tuple(
    table for table in Tables.__dict__.values() if isinstance(table, Table)
)
"""All tables of a ledger."""
