"""Digests of the record files, kept in the ledger: what was committed is what is read."""

from __future__ import annotations

from collections.abc import Iterable

from vicinal.ledger._database import Database
from vicinal.store._record_files import RecordFiles, tiles_of


def write_digests(
    database: Database, columns: RecordFiles, size: int, tiles: Iterable[int] | None = None
) -> None:
    """Write the digests of `tiles` among the first `size` records, inside a transaction."""
    wanted = list(tiles_of(size) if tiles is None else tiles)
    for part, column in columns.parts.items():
        database.execute_many(
            "INSERT INTO tiles (part, number, digest) VALUES (?, ?, ?) "
            "ON CONFLICT (part, number) DO UPDATE SET digest = excluded.digest",
            [(part, tile, digest) for tile, digest in column.digests(size, wanted)],
        )
    database.execute("DELETE FROM tiles WHERE number >= ?", (len(tiles_of(size)),))
    database.put("records", str(size))


def faults_of_tiles(
    database: Database, columns: RecordFiles, size: int, *, longer: bool = False
) -> list[str]:
    """Return in words which files are not as they were committed; they may be `longer` or not."""
    return [
        f"The file {column.path.name} is not what was written: {fault}."
        for part, column in columns.parts.items()
        if (fault := _fault(database, part, columns, size, longer))
    ]


def _fault(
    database: Database, part: str, columns: RecordFiles, size: int, longer: bool
) -> str | None:
    column = columns.parts[part]
    bytes_over = column.size() - size * column.bytes
    if bytes_over < 0 or (bytes_over > 0 and not longer):
        return "its length differs"
    rows = database.execute("SELECT number, digest FROM tiles WHERE part = ?", (part,))
    found = dict(column.digests(size, tiles_of(size)))
    return None if found == dict(rows) else "its content differs"
