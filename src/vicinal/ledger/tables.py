"""The tables of a ledger: their columns and keys, once, and the statements made of them.

============= ====================================================================================
meta          facts about the store, by name: format, identity, schema, clock, version, sizes
departed      keyed hashes of those who left or were evaluated, with the units left, by audience; -1
              in place of an audience: never had records here
audiences     plan, what newcomers are given, answers given, slack of the grid, charges in pages
analysts      quotas and use
pages         units left, by slot, in arrays of thousands of subjects
charges       what was charged since the pages were last written: one array of slots and of units
answers       everything that was released: one array a block, with the queries' digests
requests      idempotency keys (digests), with where their answers are
additions     idempotency keys of records that were added (digests, keyed ones of the records)
shadows       how far public points are worn that are charged as subjects are, audience by audience
tiles         digests of the record files, part by part
history       when the data changed, and how
carried       votes that a shard keeps until their answers are durable
shards        of a coordinator: id, number, and last link seen of every shard, and its own epochs
models        what a private model is made of, audience by audience, and its counts of queries
files         digests of the store's other files
chain         one link a transaction: the clock, a digest of all rows, a head of all links
subject_pages who stands at which slot, hundreds a row
============= ====================================================================================

Budgets and ids are never rows: a page or a block of charges is one value.
"""

from collections.abc import Sequence
from typing import Any

WHOLE, BYTES = "WHOLE", "BYTES"
"""Types of columns for which each database has its own word: 64-bit integers, and bytes."""

FORMAT = 1
"""The format of all tables, of what stands in them, and of the digests over them."""

ALL = "1 = 1"


class Table:
    """A table: its name, its primary key, and the type of each column, in order.

    It makes all statements that write its rows, each from whole rows or a condition. So whoever
    carries one out (:class:`~vicinal.ledger.database.Database`, nobody else) knows the rows that
    it writes and takes away, and digests them.

    `remembered`: whether the digest of a row that was inserted is kept until the row is deleted.
    For long rows that go soon: they are not read and digested once more.
    """

    def __init__(
        self, name: str, key: tuple[str, ...], /, *, remembered: bool = False, **columns: str
    ) -> None:
        self.name = name
        self.columns = tuple(columns)
        self.remembered = remembered
        self._places = tuple(self.columns.index(column) for column in key)
        self.by_key = " AND ".join(f"{column} = ?" for column in key)
        typed = ", ".join(f"{column} {kind}" for column, kind in columns.items())
        self.creation = f"CREATE TABLE {name} ({typed}, PRIMARY KEY ({', '.join(key)}))"
        names, marks = ", ".join(columns), ", ".join("?" * len(columns))
        self.insertion = f"INSERT INTO {name} ({names}) VALUES ({marks})"  # noqa: S608 (constants)
        others = ", ".join(f"{one} = excluded.{one}" for one in columns if one not in key)
        self.replacement = f"{self.insertion} ON CONFLICT ({', '.join(key)}) DO UPDATE SET {others}"

    def key_of(self, row: Sequence[Any]) -> tuple[Any, ...]:
        """Return the primary key of a row."""
        return tuple(row[place] for place in self._places)

    def selection(self, condition: str = ALL) -> str:
        """Return the statement that reads whole rows."""
        return f"SELECT {', '.join(self.columns)} FROM {self.name} WHERE {condition}"  # noqa: S608 (constants)

    def deletion(self, condition: str = ALL) -> str:
        """Return the statement that deletes the rows that :meth:`selection` reads."""
        return f"DELETE FROM {self.name} WHERE {condition}"  # noqa: S608 (constants)


_WHOLE, _BYTES, _TEXT = "{WHOLE} NOT NULL", "{BYTES} NOT NULL", "TEXT NOT NULL"


class Tables:
    """All tables of a ledger, by name."""

    META = Table("meta", ("name",), name=_TEXT, value=_TEXT)
    DEPARTED = Table("departed", ("hash", "audience"), hash=_BYTES, audience=_WHOLE, units=_WHOLE)
    AUDIENCES = Table(
        "audiences", ("number",), number=_WHOLE, name=f"{_TEXT} UNIQUE", plan=_TEXT,
        initial_budget=_WHOLE, granted=_WHOLE, used=_WHOLE, slack=_TEXT, checkpointed=_TEXT,
        checkpointed_queries=_WHOLE,
    )  # fmt: skip
    ANALYSTS = Table(
        "analysts", ("audience", "name"), audience=_WHOLE, name=_TEXT, quota="{WHOLE}", used=_WHOLE
    )
    PAGES = Table("pages", ("audience", "number"), audience=_WHOLE, number=_WHOLE, units=_BYTES)
    CHARGES = Table(
        "charges", ("seq",), remembered=True, seq=_WHOLE, audience=_WHOLE, queries=_WHOLE,
        spent=_TEXT, slots=_BYTES, units=_BYTES,
    )  # fmt: skip
    ANSWERS = Table(
        "answers", ("seq",), seq=_WHOLE, audience=_WHOLE, version=_WHOLE, digests=_BYTES,
        answers=_BYTES,
    )  # fmt: skip
    REQUESTS = Table("requests", ("name",), name=_BYTES, body=_BYTES, seqs=_BYTES, places=_BYTES)
    ADDITIONS = Table("additions", ("name",), name=_BYTES, body=_BYTES, version=_WHOLE)
    SHADOWS = Table("shadows", ("audience",), audience=_WHOLE, shares=_TEXT)
    TILES = Table("tiles", ("part", "number"), part=_TEXT, number=_WHOLE, digest=_BYTES)
    HISTORY = Table("history", ("clock",), clock=_WHOLE, at=_TEXT, what=_TEXT, version=_WHOLE)
    CARRIED = Table(
        "carried", ("name", "round"), name=_BYTES, round=_TEXT, turn=_WHOLE, digest=_BYTES,
        sums=_BYTES,
    )  # fmt: skip
    SHARDS = Table(
        "shards", ("number",), number=_WHOLE, id=_TEXT, link=_WHOLE, clock=_WHOLE, head=_BYTES,
        epochs=_BYTES,
    )  # fmt: skip
    MODELS = Table("models", ("audience", "part"), audience=_WHOLE, part=_TEXT, content=_TEXT)
    FILES = Table("files", ("name",), name=_TEXT, digest=_BYTES)
    CHAIN = Table("chain", ("number",), number=_WHOLE, clock=_WHOLE, content=_BYTES, head=_BYTES)
    SUBJECT_PAGES = Table(
        "subject_pages", ("page", "part"), page=_WHOLE, part=_WHOLE, slots=_BYTES, ids=_BYTES
    )


TABLES: tuple[Table, ...] = tuple(one for one in Tables.__dict__.values() if isinstance(one, Table))
"""All of them."""
