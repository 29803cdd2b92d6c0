"""The records on disk: integer features, labels and slots, each in a file of fixed-width rows.

A slot is the number by which the ledger knows a record's subject.
A file consists of n rows. New rows are appended; erased rows are overwritten with copies of rows
from the end, and the end is overwritten with zeros and truncated. The number n, and a digest of
every tile of rows, are in the ledger's database, whose transactions decide whether a change has
happened. The database also has a checksum of the slots of all enrolled records, computed from the
operations and not from the files: it detects an erasure that missed a record, or removed one of
another subject. The key, the public rows and the extractor's map have one digest each; the digest
of the extractor's model is in the schema.

Everywhere in this module `size` is the number n of rows or records, all indices of rows are below
it, and `tiles` are numbers of tiles (blocks of :data:`TILE` rows, the last one shorter), from 0.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vicinal.arrays import AnyArray, Indices, Ints32
from vicinal.errors import StoreDamaged
from vicinal.ledger.database import Database
from vicinal.ledger.files import (
    PRIVATE_FOLDER,
    open_descriptor,
    overwrite_with_zeros,
    sync_folder,
    translate_os_errors,
    write_whole,
)
from vicinal.ledger.tables import Tables
from vicinal.store.folder import KEY
from vicinal.store.store_schema import MAP_FILE, PUBLIC_FILE, StoreSchema, compute_file_digest

RECORD_NAMES = ("features", "labels", "slots")  # names of the files in the folder of records
TILE = 8192  # rows of a record file that share a digest

SLOT_CHECKSUM = "slot_checksum"
"""Name in the ledger's database of :func:`compute_slot_checksum` of all enrolled records."""

_FEATURES_CHUNK_BYTES = 1 << 20
"""Bytes of features in memory at a time, beside the index that copies them."""


class RecordFile:
    """A file of rows of `width` numbers of type `dtype` each, little-endian.

    `create`: create the file if it does not exist. `accept_unwritable`: also accept a file that
    this process may not write. `row_bytes`: size of a row.
    """

    def __init__(
        self,
        path: Path,
        dtype: npt.DTypeLike,
        width: int,
        *,
        create: bool = True,
        accept_unwritable: bool = False,
    ) -> None:
        self.path = path
        self.dtype = np.dtype(dtype).newbyteorder("<")
        self.width = width
        self.row_bytes = self.dtype.itemsize * width
        with translate_os_errors(path):
            self._descriptor = open_descriptor(
                path, create=create, accept_unwritable=accept_unwritable
            )

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def count_bytes(self) -> int:
        """Return the size of the file in bytes."""
        return os.fstat(self._descriptor).st_size

    def append(self, start: int, rows: AnyArray) -> None:
        """Write `rows` (n, width) durably, the first as row `start` of the file."""
        flat = np.ascontiguousarray(rows, dtype=self.dtype).reshape(-1)
        with translate_os_errors(self.path):
            write_whole(self._descriptor, flat.view(np.uint8).data, start * self.row_bytes)
            os.fsync(self._descriptor)

    def map_rows(self, size: int, *, writable: bool = False) -> AnyArray:
        """Return a memory map of the first `size` rows, (size, width), read-only by default."""
        if size == 0:
            return np.zeros((0, self.width), dtype=self.dtype)
        if self.count_bytes() < size * self.row_bytes:
            raise StoreDamaged(f"{self.path} is shorter than the store. Restore a backup.")
        mode = "r+" if writable else "r"
        # By the descriptor, as the name may lead to another file by now.
        with (
            translate_os_errors(self.path),
            os.fdopen(os.dup(self._descriptor), "r+b" if writable else "rb") as file,
        ):
            return np.memmap(file, self.dtype, mode=mode, shape=(size, self.width))  # type: ignore[call-overload, no-any-return]

    def read_rows(self, start: int, stop: int) -> AnyArray:
        """Return a copy of the rows from `start` to before `stop`, (stop - start, width).

        Unlike the pages of a memory map, it occupies memory only as long as it is used.
        """
        chunks = []
        offset = start * self.row_bytes
        end = stop * self.row_bytes
        with translate_os_errors(self.path):
            while offset < end:
                chunk = os.pread(self._descriptor, end - offset, offset)
                chunks.append(chunk)
                if not chunk:
                    raise StoreDamaged(f"{self.path} is shorter than the store. Restore a backup.")
                offset += len(chunk)
        content = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        return np.frombuffer(content, self.dtype).reshape(-1, self.width)

    def copy_over_erased(self, erased_indices: Indices, moved_indices: Indices, size: int) -> None:
        """Copy the rows at `moved_indices` over those at `erased_indices`, int64 (m,), durably.

        `size`: number of rows before the erasure.
        """
        if len(erased_indices):
            rows = self.map_rows(size, writable=True)
            rows[erased_indices] = rows[moved_indices]
            with translate_os_errors(self.path):
                rows.flush()  # type: ignore[attr-defined]
                os.fsync(self._descriptor)

    def truncate(self, size: int) -> None:
        """Overwrite everything beyond the first `size` rows with zeros, then truncate the file."""
        start = size * self.row_bytes
        with translate_os_errors(self.path):
            overwrite_with_zeros(self._descriptor, start)
            os.ftruncate(self._descriptor, start)
            os.fsync(self._descriptor)

    def compute_digests(self, size: int, tiles: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """Yield number and SHA-256 digest of each of `tiles`."""
        for tile in tiles:
            rows = self.read_rows(tile * TILE, min((tile + 1) * TILE, size))
            yield tile, hashlib.sha256(rows.data).digest()


class RecordFiles:
    """Features, labels and slots of all records, one file each, in the folder of records.

    - `features`: integer features, (n, `schema.width`).
    - `labels`: class index or target vector, int32 (n, `schema.target.row_width`).
    - `slots`: int32 index of the record's subject in the ledger's arrays, (n, 1).
    - `file_of`: the three files by name.

    `create`: create the folder and the files if they do not exist. `accept_unwritable`: also accept
    files that this process may not write.
    """

    def __init__(
        self,
        folder: Path,
        schema: StoreSchema,
        *,
        create: bool = False,
        accept_unwritable: bool = False,
    ) -> None:
        with translate_os_errors(folder):
            if create:
                folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        features_name, labels_name, slots_name = RECORD_NAMES
        modes = {"create": create, "accept_unwritable": accept_unwritable}
        dtype = schema.precision.dtype
        target_width = schema.target.row_width
        self.features = RecordFile(folder / features_name, dtype, schema.width, **modes)
        self.labels = RecordFile(folder / labels_name, np.int32, target_width, **modes)
        self.slots = RecordFile(folder / slots_name, np.int32, 1, **modes)
        self.file_of = {file.path.name: file for file in (self.features, self.labels, self.slots)}
        if create:
            with translate_os_errors(folder):
                sync_folder(folder)

    def append(self, start: int, features: AnyArray, labels: AnyArray, slots: AnyArray) -> None:
        """Write records durably, the first as row `start` of each file.

        `features`, `labels`, `slots`: the rows of each file, of the file's width and type.
        """
        self.features.append(start, features)
        self.labels.append(start, labels)
        self.slots.append(start, slots)

    def copy_over_erased(self, erased_indices: Indices, moved_indices: Indices, size: int) -> None:
        """Run :meth:`RecordFile.copy_over_erased` for every file."""
        for record_file in self.file_of.values():
            record_file.copy_over_erased(erased_indices, moved_indices, size)

    def truncate(self, size: int) -> None:
        """Overwrite everything beyond the first `size` records with zeros, and truncate files."""
        for record_file in self.file_of.values():
            if record_file.count_bytes() > size * record_file.row_bytes:
                record_file.truncate(size)

    def are_longer_than(self, size: int) -> bool:
        """Return whether any file is longer than `size` records."""
        return any(
            record_file.count_bytes() > size * record_file.row_bytes
            for record_file in self.file_of.values()
        )

    def read_feature_chunks(self, size: int | None = None) -> Iterator[AnyArray]:
        """Yield the features of the first `size` records in chunks; None: all rows of the file."""
        size = self.features.count_bytes() // self.features.row_bytes if size is None else size
        step = max(1, _FEATURES_CHUNK_BYTES // self.features.row_bytes)
        for start in range(0, size, step):
            yield self.features.read_rows(start, min(start + step, size))

    def read_slots(self, size: int) -> Ints32:
        """Return the slots of the subjects of the first `size` records, int32 (size,)."""
        return np.array(self.slots.map_rows(size)[:, 0], dtype=np.int32)

    def close(self) -> None:
        """Close all files."""
        for record_file in self.file_of.values():
            record_file.close()


def list_tiles(size: int, start: int = 0) -> range:
    """Return the numbers of the tiles of `size` rows that contain row `start` or later rows."""
    return range(start // TILE, -(-size // TILE))


SMALL_FILES = (KEY, PUBLIC_FILE, MAP_FILE)
"""Files in a store's folder that never change, and so have one digest each."""

_MAX_SMALL_FILE_BYTES = 1 << 34
"""Larger files are refused unread: one that was put there by another user may be endless."""


def write_file_digests(database: Database, folder: Path) -> None:
    """Write the digests of the small files of a new store's `folder`, within a transaction."""
    names = [name for name in SMALL_FILES if (folder / name).is_file()]
    database.insert(Tables.FILES, [(name, compute_file_digest(folder / name)) for name in names])


def check_file_digests(
    database: Database, folder: Path, names: Iterable[str] = SMALL_FILES
) -> None:
    """Raise StoreDamaged if a small file with a digest is missing, changed or damaged.

    `folder`: that of the store. `names`: names of the files to check.
    """
    rows: dict[str, bytes] = dict(database.read("SELECT name, digest FROM files"))
    for path in [folder / name for name in names if name in rows]:
        is_readable = path.is_file() and path.stat().st_size <= _MAX_SMALL_FILE_BYTES
        if not is_readable or compute_file_digest(path) != rows[path.name]:
            raise StoreDamaged(
                f"The file {path.name} is missing, changed or damaged. Restore a backup."
            )


def write_size_and_digests(
    database: Database, record_files: RecordFiles, size: int, tiles: Iterable[int] | None = None
) -> None:
    """Write `size` and the digests of changed `tiles` (None: all) within a ledger transaction."""
    changed_tiles = list(list_tiles(size) if tiles is None else tiles)
    digests = [
        (name, tile, digest)
        for name, record_file in record_files.file_of.items()
        for tile, digest in record_file.compute_digests(size, changed_tiles)
    ]
    database.replace(Tables.TILES, digests)
    database.delete(Tables.TILES, "number >= ?", (len(list_tiles(size)),))
    database.put("records", str(size))


def compute_slot_checksum(slots: Ints32) -> int:
    """Return a 64-bit checksum of the multiset of some records' slots, int32 (n,).

    It is additive: the checksum of two multisets together is the sum modulo 2^64. Different
    multisets have equal checksums with a probability of about 2^-64: each slot is mixed by
    SplitMix64 (Steele, Lea and Flood 2014), a bijection, and the results are summed. The checksum
    detects mistakes; the chain of commits detects forgery.
    """
    mixed = slots.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return int((mixed ^ (mixed >> np.uint64(31))).sum(dtype=np.uint64))


def update_slot_checksum(database: Database, slots: Ints32, *, erased: bool = False) -> None:
    """Add records to the stored checksum of enrolled records, or remove records if `erased`.

    Call it within a transaction. `slots`, int32 (n,): slot of each record's subject.
    """
    change = compute_slot_checksum(slots)
    change = -change if erased else change
    database.put(SLOT_CHECKSUM, str((database.get_integer(SLOT_CHECKSUM) + change) % 2**64))


OTHER_RECORDS = "The record files hold other records than those of the enrolled subjects."
"""Sentence on record files for which :func:`slots_match_enrolment` is False."""


def slots_match_enrolment(database: Database, record_files: RecordFiles, size: int) -> bool:
    """Return whether every subject has the number of records that were added and not erased.

    The slots of the first `size` records on disk are compared with the stored checksum.
    """
    slots = record_files.read_slots(size)
    return compute_slot_checksum(slots) == database.get_integer(SLOT_CHECKSUM)


def find_file_faults(
    database: Database, record_files: RecordFiles, size: int, *, allow_excess: bool = False
) -> list[str]:
    """Return a sentence for each record file that differs from its committed length or digests.

    `allow_excess`: allow rows beyond the committed ones, which an interrupted operation leaves.
    """
    faults = []
    for name, record_file in record_files.file_of.items():
        excess_bytes = record_file.count_bytes() - size * record_file.row_bytes
        if excess_bytes < 0 or (excess_bytes > 0 and not allow_excess):
            fault = "its length differs"
        else:
            rows = database.read("SELECT number, digest FROM tiles WHERE part = ?", (name,))
            if dict(record_file.compute_digests(size, list_tiles(size))) == dict(rows):
                continue
            fault = "its content differs"
        faults.append(f"The file {record_file.path.name} was changed or damaged: {fault}.")
    return faults
