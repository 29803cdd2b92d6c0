"""The records on disk: integer features, labels and slots, each in a file of fixed-width rows.

A file holds the first n rows and nothing else. Rows are added at its end; when some are erased,
rows from the end are copied over them, and the end is overwritten with zeros and cut off. Which n
counts, and the digests of the rows tile by tile, are in the ledger's database, whose transactions
decide whether a change has happened. So is a checksum of the slots of all enrolled records, which
follows from the operations and not from the files: an erasure that left a record behind, or took
another subject's, is found by it. The key, the public rows, map and cells have one digest each;
the extractor's model has its own in the schema.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vicinal.arrays import AnyArray, Ints32, Places
from vicinal.errors import StoreDamaged
from vicinal.ledger.database import Database
from vicinal.ledger.files import (
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    sync_folder,
    translate_os_errors,
    write_whole,
)
from vicinal.ledger.tables import Tables
from vicinal.store.folder import KEY
from vicinal.store.store_schema import MAP, PUBLIC, file_digest

RECORD_NAMES = ("features", "labels", "slots")
"""The files in the folder of records."""

TILE = 8192
"""Rows that share a digest."""

SLOT_CHECKSUM = "slot_checksum"
"""Name in the ledger's database of :func:`compute_slot_checksum` of all enrolled records."""

_CHUNK = 1 << 24
_PART = 1 << 20
"""Bytes of features in memory at a time beside the index that takes them."""


class RecordFile:
    """One file of rows of `width` numbers each; made, if it may be, where it is not there."""

    def __init__(
        self, path: Path, dtype: npt.DTypeLike, width: int, *, create: bool = True
    ) -> None:
        self.path = path
        self.dtype = np.dtype(dtype).newbyteorder("<")
        self.width = width
        self.bytes = self.dtype.itemsize * width
        with translate_os_errors(path):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT * create, PRIVATE_FILE)

    def close(self) -> None:
        os.close(self._descriptor)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def append(self, start: int, rows: AnyArray) -> None:
        flat = np.ascontiguousarray(rows, dtype=self.dtype).reshape(-1)
        with translate_os_errors(self.path):
            write_whole(self._descriptor, flat.view(np.uint8).data, start * self.bytes)
            os.fsync(self._descriptor)

    def rows(self, size: int, *, change: bool = False) -> AnyArray:
        """Return the first `size` rows as a map of the file, (size, width)."""
        if size == 0:
            return np.zeros((0, self.width), dtype=self.dtype)
        if self.size() < size * self.bytes:
            raise StoreDamaged(f"{self.path} is shorter than the store. Restore a backup.")
        mode = "r+" if change else "r"
        with translate_os_errors(self.path):
            return np.memmap(self.path, self.dtype, mode=mode, shape=(size, self.width))  # type: ignore[call-overload, no-any-return]

    def part(self, start: int, stop: int) -> AnyArray:
        """Return some rows that are there, (stop - start, width), read and not mapped.

        Pages of a map count as memory of the process as long as it lasts.
        """
        parts, at, end = [], start * self.bytes, stop * self.bytes
        with translate_os_errors(self.path):
            while at < end:
                parts.append(os.pread(self._descriptor, end - at, at))
                if not parts[-1]:
                    raise StoreDamaged(f"{self.path} is shorter than the store. Restore a backup.")
                at += len(parts[-1])
        content = parts[0] if len(parts) == 1 else b"".join(parts)
        return np.frombuffer(content, self.dtype).reshape(-1, self.width)

    def move(self, holes: Places, movers: Places, size: int) -> None:
        if len(holes):
            rows = self.rows(size, change=True)
            rows[holes] = rows[movers]
            with translate_os_errors(self.path):
                rows.flush()  # type: ignore[attr-defined]
                os.fsync(self._descriptor)

    def cut(self, size: int) -> None:
        """Overwrite everything beyond the first `size` rows with zeros, then cut it off."""
        end, start = self.size(), size * self.bytes
        with translate_os_errors(self.path):
            for at in range(start, end, _CHUNK):
                write_whole(self._descriptor, bytes(min(_CHUNK, end - at)), at)
            os.fsync(self._descriptor)
            os.ftruncate(self._descriptor, start)
            os.fsync(self._descriptor)

    def digests(self, size: int, tiles: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        for tile in tiles:
            part = self.part(tile * TILE, min((tile + 1) * TILE, size))
            yield tile, hashlib.sha256(part.data).digest()


class RecordFiles:
    """Features, labels and slots of all records, in a folder."""

    def __init__(
        self,
        folder: Path,
        dtype: npt.DTypeLike,
        n_features: int,
        target_width: int,
        *,
        create: bool = True,
    ) -> None:
        with translate_os_errors(folder):
            if create:
                folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        kinds = ((dtype, n_features), (np.int32, target_width), (np.int32, 1))
        self.features, self.labels, self.slots = (
            RecordFile(folder / name, *kind, create=create)
            for name, kind in zip(RECORD_NAMES, kinds, strict=True)
        )
        if create:
            with translate_os_errors(folder):
                sync_folder(folder)

    @property
    def parts(self) -> dict[str, RecordFile]:
        return dict(zip(RECORD_NAMES, (self.features, self.labels, self.slots), strict=True))

    def append(self, start: int, features: AnyArray, labels: AnyArray, slots: AnyArray) -> None:
        for column, rows in zip(self.parts.values(), (features, labels, slots), strict=True):
            column.append(start, rows)

    def move(self, holes: Places, movers: Places, size: int) -> None:
        for column in self.parts.values():
            column.move(holes, movers, size)

    def cut(self, size: int) -> None:
        for column in self.parts.values():
            if column.size() > size * column.bytes:
                column.cut(size)

    def reach_beyond(self, size: int) -> bool:
        return any(column.size() > size * column.bytes for column in self.parts.values())

    def features_in_parts(self, size: int | None = None) -> Iterator[AnyArray]:
        """Yield the first `size` rows; if it is left out, all that the file holds."""
        size = self.features.size() // self.features.bytes if size is None else size
        step = max(1, _PART // self.features.bytes)
        for start in range(0, size, step):
            yield self.features.part(start, min(start + step, size))

    def column(self, name: str, size: int) -> Ints32:
        return np.array(self.parts[name].rows(size)[:, 0], dtype=np.int32)

    def close(self) -> None:
        for column in self.parts.values():
            column.close()


def tiles_of(size: int) -> range:
    return range(-(-size // TILE))


def tiles_from(start: int, size: int) -> range:
    """Return the tiles that hold row `start` or later ones, of `size` rows."""
    return range(start // TILE, len(tiles_of(size)))


SMALL_FILES = (KEY, PUBLIC, MAP)
_LARGEST = 1 << 34
"""Bytes of a small file: a stranger's may have no end."""


def note_files(database: Database, folder: Path) -> None:
    noted = {name for (name,) in database.read("SELECT name FROM files")}
    new = [name for name in SMALL_FILES if name not in noted and (folder / name).is_file()]
    if new:
        database.insert(Tables.FILES, [(name, file_digest(folder / name)) for name in new])


def check_files(database: Database, folder: Path, names: Iterable[str] = SMALL_FILES) -> None:
    """Compare files with their digests.

    Raises StorageFailed if one is missing or was changed or damaged.
    """
    rows: dict[str, bytes] = dict(database.read("SELECT name, digest FROM files"))
    for path in [folder / name for name in names if name in rows]:
        whole = path.is_file() and path.stat().st_size <= _LARGEST
        if not whole or file_digest(path) != rows[path.name]:
            raise StoreDamaged(
                f"The file {path.name} is missing, changed or damaged. Restore a backup."
            )


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
    database.replace(Tables.TILES, digests)
    database.delete(Tables.TILES, "number >= ?", (len(tiles_of(size)),))
    database.put("records", str(size))


def compute_slot_checksum(slots: Ints32) -> int:
    """Return a 64-bit checksum of the slots of some records, in any order, each as often as it is.

    It adds up over records: the checksum of two sets together is the sum modulo 2^64. Different
    sets have equal checksums with a probability of about 2^-64 (SplitMix64 of Steele, Lea and Flood
    2014, which is a bijection, summed). It detects mistakes; the chain of commits detects forgery.
    """
    mixed = slots.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return int((mixed ^ (mixed >> np.uint64(31))).sum(dtype=np.uint64))


def note_added_slots(database: Database, slots: Ints32) -> None:
    """Count the records of some `slots` as enrolled, inside a transaction."""
    _change_slot_checksum(database, compute_slot_checksum(slots))


def note_erased_slots(database: Database, slots: Ints32) -> None:
    """Count the records of some `slots` as erased, inside a transaction."""
    _change_slot_checksum(database, -compute_slot_checksum(slots))


def _change_slot_checksum(database: Database, change: int) -> None:
    database.put(SLOT_CHECKSUM, str((database.number(SLOT_CHECKSUM) + change) % 2**64))


OTHER_RECORDS = "The record files hold other records than those of the enrolled subjects."


def slots_match_enrolment(database: Database, record_files: RecordFiles, size: int) -> bool:
    """Return whether the first `size` records on disk are exactly those of the enrolled subjects.

    Each subject with as many records as were added for it and not erased.
    """
    slots = record_files.column("slots", size)
    return compute_slot_checksum(slots) == database.number(SLOT_CHECKSUM)


def record_file_faults(
    database: Database, record_files: RecordFiles, size: int, *, longer: bool = False
) -> list[str]:
    """Return in words which files are not as they were committed; they may be `longer` or not."""
    return [
        f"The file {record_file.path.name} was changed or damaged: {fault}."
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
