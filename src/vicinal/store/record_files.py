"""The records on disk: integer features, labels and slots, each in a file of fixed-width rows.

A file consists of n rows. New rows are appended; erased rows are overwritten with copies of rows
from the end, and the end is overwritten with zeros and cut off. The number n, and a digest of every
tile of rows, are in the ledger's database: its transactions decide whether a change has happened.
The database also has a checksum of the slots of all enrolled records, which is computed from the
operations and not from the files: it detects an erasure that missed a record, or removed one of
another subject. The key, the public rows, the map and the cells have one digest each; the digest of
the extractor's model is in the schema.
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
from vicinal.store.store_schema import MAP_FILE, PUBLIC_FILE, compute_file_digest

RECORD_NAMES = ("features", "labels", "slots")
"""Names of the files in the folder of records."""

TILE = 8192
"""Rows of a record file that share a digest."""

SLOT_CHECKSUM = "slot_checksum"
"""Name in the ledger's database of :func:`compute_slot_checksum` of all enrolled records."""

_ZEROS_CHUNK_BYTES = 1 << 24
"""Bytes overwritten with zeros at a time."""

_FEATURES_CHUNK_BYTES = 1 << 20
"""Bytes of features in memory at a time, beside the index that copies them."""


class RecordFile:
    """A file of rows of `width` numbers each; `create` makes it if it does not exist.

    `bytes`: size of a row.
    """

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
        """Return the size of the file in bytes."""
        return os.fstat(self._descriptor).st_size

    def append(self, start: int, rows: AnyArray) -> None:
        """Write rows (n, width) durably, the first of them as row number `start`."""
        flat = np.ascontiguousarray(rows, dtype=self.dtype).reshape(-1)
        with translate_os_errors(self.path):
            write_whole(self._descriptor, flat.view(np.uint8).data, start * self.bytes)
            os.fsync(self._descriptor)

    def rows(self, size: int, *, change: bool = False) -> AnyArray:
        """Return the first `size` rows, (size, width), as a memory map; writable with `change`."""
        if size == 0:
            return np.zeros((0, self.width), dtype=self.dtype)
        if self.size() < size * self.bytes:
            raise StoreDamaged(f"{self.path} is shorter than the store. Restore a backup.")
        mode = "r+" if change else "r"
        with translate_os_errors(self.path):
            return np.memmap(self.path, self.dtype, mode=mode, shape=(size, self.width))  # type: ignore[call-overload, no-any-return]

    def read_rows(self, start: int, stop: int) -> AnyArray:
        """Return a copy of the rows from `start` to before `stop`, (stop - start, width).

        Pages of a memory map would count as memory of the process as long as the map exists.
        """
        chunks = []
        offset = start * self.bytes
        end = stop * self.bytes
        with translate_os_errors(self.path):
            while offset < end:
                chunk = os.pread(self._descriptor, end - offset, offset)
                chunks.append(chunk)
                if not chunk:
                    raise StoreDamaged(f"{self.path} is shorter than the store. Restore a backup.")
                offset += len(chunk)
        content = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        return np.frombuffer(content, self.dtype).reshape(-1, self.width)

    def move(self, erased_indices: Places, moved_indices: Places, size: int) -> None:
        """Copy some of the first `size` rows over erased ones, durably."""
        if len(erased_indices):
            rows = self.rows(size, change=True)
            rows[erased_indices] = rows[moved_indices]
            with translate_os_errors(self.path):
                rows.flush()  # type: ignore[attr-defined]
                os.fsync(self._descriptor)

    def cut(self, size: int) -> None:
        """Overwrite everything beyond the first `size` rows with zeros, then cut it off."""
        end = self.size()
        start = size * self.bytes
        with translate_os_errors(self.path):
            for offset in range(start, end, _ZEROS_CHUNK_BYTES):
                zeros = bytes(min(_ZEROS_CHUNK_BYTES, end - offset))
                write_whole(self._descriptor, zeros, offset)
            os.fsync(self._descriptor)
            os.ftruncate(self._descriptor, start)
            os.fsync(self._descriptor)

    def compute_digests(self, size: int, tiles: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """Yield number and SHA-256 digest of each of some tiles of the first `size` rows."""
        for tile in tiles:
            rows = self.read_rows(tile * TILE, min((tile + 1) * TILE, size))
            yield tile, hashlib.sha256(rows.data).digest()


class RecordFiles:
    """Features, labels and slots of all records, one file each, in a folder.

    - `features`: integer features, `n_features` numbers of type `dtype` per record.
    - `labels`: class index or target vector, `target_width` int32 numbers per record.
    - `slots`: int32 index of the record's subject in the ledger's arrays.
    """

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
        features_name, labels_name, slots_name = RECORD_NAMES
        self.features = RecordFile(folder / features_name, dtype, n_features, create=create)
        self.labels = RecordFile(folder / labels_name, np.int32, target_width, create=create)
        self.slots = RecordFile(folder / slots_name, np.int32, 1, create=create)
        if create:
            with translate_os_errors(folder):
                sync_folder(folder)

    @property
    def file_of(self) -> dict[str, RecordFile]:
        """All files by name."""
        return dict(zip(RECORD_NAMES, (self.features, self.labels, self.slots), strict=True))

    def append(self, start: int, features: AnyArray, labels: AnyArray, slots: AnyArray) -> None:
        """Write records durably, the first of them as row number `start`."""
        self.features.append(start, features)
        self.labels.append(start, labels)
        self.slots.append(start, slots)

    def move(self, erased_indices: Places, moved_indices: Places, size: int) -> None:
        """Copy some of the first `size` records over erased ones, durably."""
        for record_file in self.file_of.values():
            record_file.move(erased_indices, moved_indices, size)

    def cut(self, size: int) -> None:
        """Erase everything beyond the first `size` records."""
        for record_file in self.file_of.values():
            if record_file.size() > size * record_file.bytes:
                record_file.cut(size)

    def reach_beyond(self, size: int) -> bool:
        """Return whether any file is longer than `size` records."""
        return any(
            record_file.size() > size * record_file.bytes for record_file in self.file_of.values()
        )

    def read_feature_chunks(self, size: int | None = None) -> Iterator[AnyArray]:
        """Yield the features of the first `size` records in chunks; of all records without it."""
        size = self.features.size() // self.features.bytes if size is None else size
        step = max(1, _FEATURES_CHUNK_BYTES // self.features.bytes)
        for start in range(0, size, step):
            yield self.features.read_rows(start, min(start + step, size))

    def column(self, name: str, size: int) -> Ints32:
        """Return the first number of each of `size` records, from the file "labels" or "slots"."""
        return np.array(self.file_of[name].rows(size)[:, 0], dtype=np.int32)

    def close(self) -> None:
        for record_file in self.file_of.values():
            record_file.close()


def tiles_of(size: int) -> range:
    """Return the numbers of the tiles of `size` rows."""
    return range(-(-size // TILE))


def tiles_from(start: int, size: int) -> range:
    """Return the numbers of the tiles that have row `start` or later ones, of `size` rows."""
    return range(start // TILE, len(tiles_of(size)))


SMALL_FILES = (KEY, PUBLIC_FILE, MAP_FILE)
"""Files that have one digest each, because they never change."""

_MAX_SMALL_FILE_BYTES = 1 << 34
"""Larger files are refused unread: one that was put there by another user may be endless."""


def note_files(database: Database, folder: Path) -> None:
    """Write the digests of new small files of a store's folder, inside a transaction."""
    noted = {name for (name,) in database.read("SELECT name FROM files")}
    new = [name for name in SMALL_FILES if name not in noted and (folder / name).is_file()]
    if new:
        database.insert(Tables.FILES, [(name, compute_file_digest(folder / name)) for name in new])


def check_files(database: Database, folder: Path, names: Iterable[str] = SMALL_FILES) -> None:
    """Raise StorageFailed if one of some small files is missing, changed or damaged."""
    rows: dict[str, bytes] = dict(database.read("SELECT name, digest FROM files"))
    for path in [folder / name for name in names if name in rows]:
        is_readable = path.is_file() and path.stat().st_size <= _MAX_SMALL_FILE_BYTES
        if not is_readable or compute_file_digest(path) != rows[path.name]:
            raise StoreDamaged(
                f"The file {path.name} is missing, changed or damaged. Restore a backup."
            )


def write_digests(
    database: Database, record_files: RecordFiles, size: int, tiles: Iterable[int] | None = None
) -> None:
    """Write the number of records, and the digests of some or all of their tiles.

    Call inside a transaction. `tiles`: numbers of changed tiles; None for all.
    """
    changed_tiles = list(tiles_of(size) if tiles is None else tiles)
    digests = [
        (name, tile, digest)
        for name, record_file in record_files.file_of.items()
        for tile, digest in record_file.compute_digests(size, changed_tiles)
    ]
    database.replace(Tables.TILES, digests)
    database.delete(Tables.TILES, "number >= ?", (len(tiles_of(size)),))
    database.put("records", str(size))


def compute_slot_checksum(slots: Ints32) -> int:
    """Return a 64-bit checksum of the multiset of the slots of some records.

    It is additive: the checksum of two multisets together is the sum modulo 2^64. Different
    multisets have equal checksums with a probability of about 2^-64: each slot is mixed by
    SplitMix64 (Steele, Lea and Flood 2014), a bijection, and the results are summed. The checksum
    detects mistakes; the chain of commits detects forgery.
    """
    mixed = slots.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return int((mixed ^ (mixed >> np.uint64(31))).sum(dtype=np.uint64))


def add_to_slot_checksum(database: Database, slots: Ints32) -> None:
    """Count the records of some `slots` as enrolled, inside a transaction."""
    _change_slot_checksum(database, compute_slot_checksum(slots))


def subtract_from_slot_checksum(database: Database, slots: Ints32) -> None:
    """Count the records of some `slots` as erased, inside a transaction."""
    _change_slot_checksum(database, -compute_slot_checksum(slots))


def _change_slot_checksum(database: Database, change: int) -> None:
    """Add to the stored checksum, modulo 2^64."""
    database.put(SLOT_CHECKSUM, str((database.number(SLOT_CHECKSUM) + change) % 2**64))


OTHER_RECORDS = "The record files hold other records than those of the enrolled subjects."
"""The fault of files for which :func:`slots_match_enrolment` is False."""


def slots_match_enrolment(database: Database, record_files: RecordFiles, size: int) -> bool:
    """Return whether every subject has exactly the records that were added and not erased.

    Compared are slots alone, of the first `size` records on disk.
    """
    slots = record_files.read_column("slots", size)
    return compute_slot_checksum(slots) == database.number(SLOT_CHECKSUM)


def record_file_faults(
    database: Database, record_files: RecordFiles, size: int, *, longer: bool = False
) -> list[str]:
    """Return a sentence for each file whose first `size` records differ from the committed ones.

    `longer`: allow files to be longer, as an interrupted operation leaves them.
    """
    faults = []
    for name, record_file in record_files.file_of.items():
        fault = _find_fault(database, name, record_file, size, longer=longer)
        if fault is not None:
            faults.append(f"The file {record_file.path.name} was changed or damaged: {fault}.")
    return faults


def _find_fault(
    database: Database, name: str, record_file: RecordFile, size: int, *, longer: bool
) -> str | None:
    """Return the difference of one file from its committed length and digests, or None."""
    excess_bytes = record_file.size() - size * record_file.bytes
    if excess_bytes < 0 or (excess_bytes > 0 and not longer):
        return "its length differs"
    rows = database.read("SELECT number, digest FROM tiles WHERE part = ?", (name,))
    digests = dict(record_file.compute_digests(size, tiles_of(size)))
    return None if digests == dict(rows) else "its content differs"
