"""Digests of files, kept in the ledger: what was committed is what is read.

Record files have theirs by tile, the key, the public rows, map and cells one each. The extractor's
model has its own in the schema.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from vicinal.errors import StoreDamaged
from vicinal.ledger import Database, Tables, guarded
from vicinal.store._extractors import MAP
from vicinal.store._folder import KEY
from vicinal.store._record_files import RecordFiles, tiles_of
from vicinal.store._store_schema import CELLS, PUBLIC

SMALL_FILES = (KEY, PUBLIC, MAP, CELLS)


def note_files(database: Database, folder: Path, names: Iterable[str] = SMALL_FILES) -> None:
    """Write the digests of those files that are there and have none yet."""
    noted = {name for (name,) in database.read("SELECT name FROM files")}
    new = [name for name in names if name not in noted and (folder / name).is_file()]
    if new:
        database.insert(Tables.FILES, [(name, _digest(folder / name)) for name in new])


def check_files(database: Database, folder: Path, names: Iterable[str] = SMALL_FILES) -> None:
    """Compare files with their digests.

    Raises StorageFailed if one is missing or is not what was written.
    """
    rows: dict[str, bytes] = dict(database.read("SELECT name, digest FROM files"))
    for name in names:
        if name in rows and (not (folder / name).is_file() or _digest(folder / name) != rows[name]):
            raise StoreDamaged(
                f"The file {name} is missing, or not what was written. Restore a backup."
            )


def _digest(path: Path) -> bytes:
    with guarded(path):
        return hashlib.sha256(path.read_bytes()).digest()


def write_digests(
    database: Database, record_files: RecordFiles, size: int, tiles: Iterable[int] | None = None
) -> None:
    """Write the digests of `tiles` among the first `size` records, inside a transaction."""
    listed = list(tiles_of(size) if tiles is None else tiles)
    digests = [
        (part, tile, digest)
        for part, record_file in record_files.parts.items()
        for tile, digest in record_file.digests(size, listed)
    ]
    put_digests(database, size, digests)


def put_digests(database: Database, size: int, digests: Iterable[tuple[str, int, bytes]]) -> None:
    """Write part, tile and digest of tiles among the first `size` records, in a transaction."""
    database.replace(Tables.TILES, digests)
    database.delete(Tables.TILES, "number >= ?", (len(tiles_of(size)),))
    database.put("records", str(size))


def record_file_faults(
    database: Database, record_files: RecordFiles, size: int, *, longer: bool = False
) -> list[str]:
    """Return in words which files are not as they were committed; they may be `longer` or not."""
    return [
        f"The file {record_file.path.name} is not what was written: {fault}."
        for part, record_file in record_files.parts.items()
        if (fault := _fault(database, part, record_files, size, longer))
    ]


def _fault(
    database: Database, part: str, record_files: RecordFiles, size: int, longer: bool
) -> str | None:
    record_file = record_files.parts[part]
    bytes_over = record_file.size() - size * record_file.bytes
    if bytes_over < 0 or (bytes_over > 0 and not longer):
        return "its length differs"
    rows = database.read("SELECT number, digest FROM tiles WHERE part = ?", (part,))
    digests = dict(record_file.digests(size, tiles_of(size)))
    return None if digests == dict(rows) else "its content differs"
