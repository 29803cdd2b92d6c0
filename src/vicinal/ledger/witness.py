"""A small file outside the store that remembers how far it had come.

If the store is put back to an earlier state, by a restored backup or a copied folder, its clock is
behind its witness: charges would be forgotten and budgets refilled. The witness also keeps the
keyed hashes of erased subjects, so that an old backup cannot bring them back.

The clock is written after every commit, which survives the death of the process; it is flushed to
the disk when the store is opened, changed or closed. After a loss of power the witness may be a
little behind the store, never ahead of it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self

from vicinal.errors import StorageFailed
from vicinal.ledger.files import guarded, replace_file

_MAGIC = b"vicinal witness\x01"
_CLOCK = 8
_HEAD = len(_MAGIC) + 16 + _CLOCK
_HASH = 32
_ENTRY = _HASH + _CLOCK


def witness_beside(folder: Path) -> Path:
    """Return where the witness of `folder` lies unless somebody says otherwise: beside it."""
    whole = folder.absolute()
    return whole.with_name(whole.name + ".witness")


class Witness:
    """The file, open for writing.

    Parameters
    ----------
    path : Path
        Where it lies; best on another disk than the store, and in no backup of it.
    identity : bytes or None
        The store's id, 16 bytes; None takes the witness of any.

    Raises
    ------
    StorageFailed
        If it cannot be read, is damaged, or belongs to another store.
    """

    def __init__(self, path: Path, identity: bytes | None = None) -> None:
        self._path = path
        with guarded(path):
            self._descriptor = os.open(path, os.O_RDWR)
            head = os.pread(self._descriptor, _HEAD, 0)
        expected = _MAGIC + (head[len(_MAGIC) : -_CLOCK] if identity is None else identity)
        if head[:-_CLOCK] != expected or len(head) != _HEAD:
            os.close(self._descriptor)
            raise StorageFailed(f"{path} is damaged, or is the witness of another store.")
        self.identity = head[len(_MAGIC) : -_CLOCK]
        self.clock = int.from_bytes(head[-_CLOCK:])

    @classmethod
    def create(cls, path: Path, identity: bytes, clock: int, erased: bytes = b"") -> Self:
        """Make the file, or make it anew."""
        replace_file(path, _MAGIC + identity + clock.to_bytes(_CLOCK) + erased)
        return cls(path, identity)

    @classmethod
    def clock_at(cls, path: Path) -> int:
        """Return how far the store of the witness at `path` had come."""
        witness = cls(path)
        witness.close()
        return witness.clock

    def erased_since(self, clock: int) -> set[bytes]:
        """Return the keyed hashes of everybody that was erased when the clock was past `clock`."""
        content = self.content
        entries = (content[at : at + _ENTRY] for at in range(0, len(content), _ENTRY))
        return {
            e[:_HASH] for e in entries if len(e) == _ENTRY and int.from_bytes(e[_HASH:]) > clock
        }

    @property
    def content(self) -> bytes:
        """All entries, one after the other: a keyed hash, and the clock at that time."""
        with guarded(self._path):
            size = os.fstat(self._descriptor).st_size
            return os.pread(self._descriptor, size - _HEAD, _HEAD)

    def advance(self, clock: int) -> None:
        """Remember how far the store has come; call it after the commit."""
        with guarded(self._path):
            os.pwrite(self._descriptor, clock.to_bytes(_CLOCK), _HEAD - _CLOCK)
        self.clock = clock

    def sync(self) -> None:
        """Flush to the disk."""
        with guarded(self._path):
            os.fsync(self._descriptor)

    def add_erased(self, hashes: list[bytes], clock: int) -> None:
        """Remember erased subjects, durably."""
        entries = b"".join(hashed + clock.to_bytes(_CLOCK) for hashed in hashes)
        with guarded(self._path):
            size = os.fstat(self._descriptor).st_size
            whole = _HEAD + (size - _HEAD) // _ENTRY * _ENTRY
            os.pwrite(self._descriptor, entries, whole)
            os.fsync(self._descriptor)

    def close(self) -> None:
        """Flush and close."""
        self.sync()
        os.close(self._descriptor)
