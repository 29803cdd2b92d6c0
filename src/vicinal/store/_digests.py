"""Digests of a store's small files, kept in the ledger: the key, the public rows, map and cells.

The extractor's model has its digest in the schema, the record files theirs by tile.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from vicinal.errors import StoreDamaged
from vicinal.ledger._database import Database
from vicinal.ledger._files import guarded
from vicinal.store._extractors import MAP
from vicinal.store._folder import KEY
from vicinal.store._indexes import CELLS
from vicinal.store._store_schema import PUBLIC

SMALL_FILES = (KEY, PUBLIC, MAP, CELLS)


def note_files(database: Database, folder: Path, names: Iterable[str] = SMALL_FILES) -> None:
    """Write the digests of those files that are there and have none yet."""
    noted = {name for (name,) in database.execute("SELECT name FROM files")}
    new = [name for name in names if name not in noted and (folder / name).is_file()]
    if new:
        database.execute_many(
            "INSERT INTO files (name, digest) VALUES (?, ?)",
            [(name, _digest(folder / name)) for name in new],
        )


def check_files(database: Database, folder: Path, names: Iterable[str] = SMALL_FILES) -> None:
    """Compare files with their digests.

    Raises StorageFailed if one is missing or is not what was written.
    """
    rows: dict[str, bytes] = dict(database.execute("SELECT name, digest FROM files"))
    for name in names:
        if name in rows and (not (folder / name).is_file() or _digest(folder / name) != rows[name]):
            raise StoreDamaged(
                f"The file {name} is missing, or not what was written. Restore a backup."
            )


def _digest(path: Path) -> bytes:
    with guarded(path):
        return hashlib.sha256(path.read_bytes()).digest()
