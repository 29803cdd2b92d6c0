"""The tables of a ledger, as the steps that led to them: a new database walks all of them.

========== =======================================================================================
meta       facts about the store, by name: identity, schema, clock, version, sizes, erasure
subjects   who stood at which slot, a row each; until schema 8
departed   keyed hashes of those who left or were evaluated, with the units left, by audience; -1
           in place of an audience: never had records here
audiences  plan, what newcomers are given, answers given, slack of the grid, sums of pages' charges
analysts   quotas and use
pages      units left, by slot, in arrays of :data:`PAGE` subjects
charges    what was charged since the pages were last written: one array of slots and of units
answers    everything that was released: one array a block, with the queries' digests
requests   idempotency keys (digests), with where their answers are
lessons    queries of those blocks that an audience's memory learns from, and which were asked
additions  idempotency keys of records that were added (digests, keyed ones of the records)
shadows    how far public points are worn that are charged as people are, audience by audience
tiles      digests of the record files, part by part
history    when the data changed, and how
carried    votes that a shard keeps until their answers are durable
partial    which shards an answer of a cluster was made without
shards     of a coordinator: id, number, and last link seen of every shard, and its own epochs
models     what a private model is made of, audience by audience, and how many queries it passed on
files      digests of the store's other files
sums       digests of all rows, summed up by table; until schema 8
chain      one link a transaction: the clock, a digest of all sums, a head that stands for all links
subject_pages  who stands at which slot, hundreds a row
========== =======================================================================================

Names of tables and columns stay what they were when they were first written, also where the code
has another word now: departed are erased subjects, lessons what answers are reused from, shadows
the usage of public points, welcome an initial budget, folded what checkpoints have summed up, tiles
the digests of record files. The name `frame` in `meta` is the store's schema.

Budgets and ids are never rows: a page or a block of charges is one value.
"""

from __future__ import annotations

from vicinal.errors import InvalidInput
from vicinal.ledger._database import Database
from vicinal.ledger._subject_pages import rows_to_pages

PAGE = 8192
"""Subjects whose units lie in one array: 64 KiB."""

STEPS = (
    """
    CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE subjects (slot WHOLE PRIMARY KEY, id BYTES NOT NULL);
    CREATE TABLE departed (
        hash BYTES NOT NULL, audience WHOLE NOT NULL, units WHOLE NOT NULL,
        PRIMARY KEY (hash, audience));
    CREATE TABLE audiences (
        number WHOLE PRIMARY KEY, name TEXT NOT NULL UNIQUE, plan TEXT NOT NULL,
        welcome WHOLE NOT NULL, granted WHOLE NOT NULL, used WHOLE NOT NULL, slack TEXT NOT NULL,
        folded TEXT NOT NULL, folded_queries WHOLE NOT NULL);
    CREATE TABLE analysts (
        audience WHOLE NOT NULL, name TEXT NOT NULL, quota WHOLE, used WHOLE NOT NULL,
        PRIMARY KEY (audience, name));
    CREATE TABLE pages (
        audience WHOLE NOT NULL, number WHOLE NOT NULL, units BYTES NOT NULL,
        PRIMARY KEY (audience, number));
    CREATE TABLE charges (
        seq WHOLE PRIMARY KEY, audience WHOLE NOT NULL, queries WHOLE NOT NULL,
        spent TEXT NOT NULL, slots BYTES NOT NULL, units BYTES NOT NULL);
    CREATE TABLE answers (
        seq WHOLE PRIMARY KEY, audience WHOLE NOT NULL, version WHOLE NOT NULL,
        digests BYTES NOT NULL, answers BYTES NOT NULL);
    CREATE TABLE requests (
        name BYTES PRIMARY KEY, body BYTES NOT NULL, seqs BYTES NOT NULL, places BYTES NOT NULL);
    CREATE TABLE tiles (
        part TEXT NOT NULL, number WHOLE NOT NULL, digest BYTES NOT NULL,
        PRIMARY KEY (part, number))
    """,
    """
    CREATE TABLE history (
        clock WHOLE PRIMARY KEY, at TEXT NOT NULL, what TEXT NOT NULL, version WHOLE NOT NULL)
    """,
    """
    CREATE TABLE lessons (
        seq WHOLE PRIMARY KEY, audience WHOLE NOT NULL, asked TEXT NOT NULL, queries TEXT NOT NULL);
    CREATE TABLE additions (
        name BYTES PRIMARY KEY, body BYTES NOT NULL, version WHOLE NOT NULL)
    """,
    """
    CREATE TABLE shadows (audience WHOLE PRIMARY KEY, shares TEXT NOT NULL)
    """,
    """
    CREATE TABLE IF NOT EXISTS carried (
        name BYTES NOT NULL, round TEXT NOT NULL, turn WHOLE NOT NULL, digest BYTES NOT NULL,
        sums BYTES NOT NULL, part BYTES NOT NULL, PRIMARY KEY (name, round));
    CREATE TABLE IF NOT EXISTS partial (seq WHOLE PRIMARY KEY, shards TEXT NOT NULL);
    CREATE TABLE files (name TEXT PRIMARY KEY, digest BYTES NOT NULL);
    CREATE TABLE sums (name TEXT PRIMARY KEY, total BYTES NOT NULL);
    CREATE TABLE chain (
        number WHOLE PRIMARY KEY, clock WHOLE NOT NULL, content BYTES NOT NULL,
        head BYTES NOT NULL)
    """,
    """
    CREATE TABLE shards (
        number WHOLE PRIMARY KEY, id TEXT NOT NULL, link WHOLE NOT NULL, clock WHOLE NOT NULL,
        head BYTES NOT NULL, epochs BYTES NOT NULL)
    """,
    "SELECT 1",  # earlier versions must not open a ledger whose ids have one form
    """
    CREATE TABLE models (
        audience WHOLE NOT NULL, part TEXT NOT NULL, content TEXT NOT NULL,
        PRIMARY KEY (audience, part))
    """,
    """
    CREATE TABLE subject_pages (
        page WHOLE NOT NULL, part WHOLE NOT NULL, slots BYTES NOT NULL, ids BYTES NOT NULL,
        PRIMARY KEY (page, part));
    DROP TABLE sums
    """,
    "SELECT 1",  # earlier versions must not open a ledger whose long values have other digests
)

_PAGED = 8
"""The step that moves subjects from rows to pages."""

DIGESTED = 5
"""The first schema whose rows have digests."""

TABLES = (
    "meta", "departed", "audiences", "analysts", "pages", "charges", "answers",
    "requests", "tiles", "history", "lessons", "additions", "shadows", "carried", "partial",
    "files", "chain", "shards", "models", "subject_pages",
)  # fmt: skip


def migrate(database: Database, steps: tuple[str, ...] = STEPS) -> None:
    """Bring a database, new or old, to the present schema, one step a transaction.

    Raises InvalidInput if the database was written by a later version of vicinal.
    """
    done = schema_version(database)
    if done > len(steps):
        raise InvalidInput(
            "The store was written by a later version of vicinal. Install that version or a newer "
            "one."
        )
    for number in range(done, len(steps)):
        with database.transaction():
            for statement in steps[number].split(";"):
                database.execute(_typed(statement, database))
            if number == _PAGED:
                rows_to_pages(database)
            database.put("schema", str(number + 1))


def schema_version(database: Database) -> int:
    """Return how many steps a database has behind it; 0 for an empty one."""
    return database.number("schema") if database.has_table("meta") else 0


def _typed(statement: str, database: Database) -> str:
    return statement.replace("WHOLE", database.integer_type).replace("BYTES", database.binary)
