"""A small file outside the store that remembers how far it had come, and who has it open.

It holds the ledger's clock and head. A store that is put back to an earlier state, by a restored
backup or a copied folder, has not been at that head: charges would be forgotten and budgets
refilled. So has none that was there once and went another way since: a copy that ran elsewhere.
The file is locked while the store is open, so two copies of a folder that share it are never open
together; each opening draws an epoch, and a holder that finds another one writes nothing any more.

The witness also keeps the keyed hashes of erased subjects, so that an old backup cannot bring them
back, and digests of audiences' names, so that a lost audience cannot be opened with new budgets.

It changes last: while a transaction of its ledger is open nothing can be written to it, so it never
names a clock and head before the commit that they are of is durable. They are written after every
commit, which survives the death of the process, and flushed to the disk when the store is opened,
changed or closed. After a loss of power the witness may be a little behind the store, never ahead
of it.
"""

import hashlib
import os
import re
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from vicinal import checks
from vicinal.errors import DamagedWitness, InvalidInput, StorageFailed, StoreDamaged
from vicinal.ledger.files import PRIVATE_FILE, locked, sync_folder, translate_os_errors, write_whole
from vicinal.mechanisms.noise_sources import fresh_key

FORMAT = 1
"""The witness's format: the last byte of its first words."""

_NAME = b"vicinal witness"
_MAGIC = _NAME + bytes([FORMAT])
_EPOCH = 16
_HEADER = struct.Struct(">16s16s16sQ32sQ32s")
"""Format, identity, epoch, clock, head, number of entries, and their digest; its own follows."""
_START = _HEADER.size + 32
_ENTRY = struct.Struct(">c32sQ")
"""Kind, an erased subject's keyed hash or the digest of an audience's name, and since when."""
_MOST = 1 << 26
"""Entries that are read: a stranger's head may count more than memory holds."""
_ERASED, _AUDIENCE = b"e", b"a"
_IN_USE = (
    "Another process has a store with the witness {} open: a copy of this one, or one restored "
    "from it. Two stores could spend the same budgets. Close that one first."
)


@dataclass(frozen=True, slots=True)
class WitnessState:
    """What the file says.

    - `identity`, `epoch`: who the store is, 16 bytes; who has it open, or had it last, 16 bytes.
    - `clock`: how far the store had come.
    - `head`: what its history was then.
    - `entries`: all entries, one after the other.
    - `of_entries`: their digest.
    """

    identity: bytes
    epoch: bytes
    clock: int
    head: bytes
    entries: bytes = b""
    of_entries: bytes = hashlib.sha256().digest()

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return what the file at `path` says; nothing is locked or written.

        Raises StorageFailed if it cannot be read, or is damaged; InvalidInput if it has another
        format.
        """
        with translate_os_errors(path), path.open("rb") as file:
            content = file.read(_START)
            if content.startswith(_NAME) and len(content) > len(_NAME):
                checks.file_format(path, content[len(_NAME)], FORMAT)
            head = content[: _HEADER.size].ljust(_HEADER.size, b"\0")
            magic, identity, epoch, clock, last, count, of_entries = _HEADER.unpack(head)
            known = (magic, content[_HEADER.size :]) == (_MAGIC, hashlib.sha256(head).digest())
            # Beyond the entries that the head counts a crash may have left some, or a stranger a
            # terabyte.
            entries = file.read(count * _ENTRY.size) if known and count <= _MOST else b""
        state = cls(identity, epoch, clock, last).holding(entries)
        if not known or len(entries) != count * _ENTRY.size or state.of_entries != of_entries:
            raise DamagedWitness(
                f"{path} is damaged. Bring it back, or accept the loss, which spends every budget "
                "for good."
            )
        return state

    def header(self) -> bytes:
        """Return the head of the file; it fits into one sector of a disk, so it is never torn."""
        count = len(self.entries) // _ENTRY.size
        fields = (self.identity, self.epoch, self.clock, self.head, count, self.of_entries)
        content = _HEADER.pack(_MAGIC, *fields)
        return content + hashlib.sha256(content).digest()

    def holding(self, entries: bytes) -> Self:
        """Return the same state with other entries."""
        return replace(self, entries=entries, of_entries=hashlib.sha256(entries).digest())

    @property
    def erased(self) -> set[bytes]:
        """Keyed hashes of everybody that was ever erased."""
        return self._listed(_ERASED)

    @property
    def audiences(self) -> set[bytes]:
        """Digests of the names of all audiences that there were, see :func:`name_digest`."""
        return self._listed(_AUDIENCE)

    def _listed(self, kind: bytes) -> set[bytes]:
        """Return the digests of all entries of a kind; those of subjects can be very many."""
        places = re.finditer(kind, self.entries[:: _ENTRY.size])
        return {_ENTRY.unpack_from(self.entries, at.start() * _ENTRY.size)[1] for at in places}


def default_witness_path(folder: Path) -> Path:
    """Return where the witness of `folder` lies unless somebody says otherwise: beside it."""
    absolute = folder.absolute()
    return absolute.with_name(absolute.name + ".witness")


def name_digest(audience: str) -> bytes:
    """Return what the witness keeps of an audience's name."""
    return hashlib.sha256(audience.encode()).digest()


def check_free(path: Path) -> None:
    """Raise InvalidInput if there is anything at the path of a new witness."""
    with translate_os_errors(path):
        if path.exists() or path.is_symlink():
            raise InvalidInput(f"{path} is the witness of another store. Move it away first.")


def check_witness_place(path: Path) -> None:
    """Raise InvalidInput if a new witness at `path` would replace anything that is none.

    Whoever made a store's folder can name any file of this user as its witness.
    """
    for one in (path, path.with_name(path.name + ".new")):
        with translate_os_errors(one):
            begins = None if one.exists() or one.is_symlink() else b""
            if one.is_file() and not one.is_symlink():
                with one.open("rb") as file:
                    begins = file.read(len(_NAME))
        if begins not in (_NAME, b""):
            raise InvalidInput(
                f"{one} is not a witness, so it is not replaced. Move it away if the store is "
                "yours, and leave the store closed if a stranger made it."
            )


class RollbackGuard:
    """The file, locked and open for writing; nothing is written before :meth:`begin`.

    `path`: where it lies; best on another disk than the store, and in no backup of it. `identity`:
    the store's id, 16 bytes. `check`: raises before anything is written if its ledger
    has a transaction open.

    Raises StorageFailed if it cannot be read, is damaged, or belongs to another store. Raises
    PrivacyRefused if another process has it open: a copy of the same store.
    """

    def __init__(self, path: Path, identity: bytes, check: Callable[[], object] = int) -> None:
        self._path, self._check = path, check
        with translate_os_errors(path):
            self._descriptor = os.open(path, os.O_RDWR)
        try:
            locked(self._descriptor, path, _IN_USE.format(path))
            self.state = WitnessState.read(path)
            if identity != self.state.identity:
                raise StoreDamaged(
                    f"{path} is the witness of another store. Bring back the one that belongs here."
                )
        except BaseException:
            os.close(self._descriptor)
            raise

    @classmethod
    def create(
        cls, path: Path, identity: bytes, check: Callable[[], object] = int, *, over: bool = False
    ) -> Self:
        """Make the file, and return it open; `over`: replace a witness that is of no use any more.

        Until :meth:`begin` it agrees with no ledger: its head is one that none has. Raises
        InvalidInput if there is a file already.
        """
        if over:
            check_witness_place(path)
        guard = cls.__new__(cls)
        guard._path, guard._check = path, check
        fresh = path.with_name(path.name + ".new") if over else path
        guard.state = WitnessState(identity, fresh_key(_EPOCH), 0, fresh_key())
        flags = os.O_RDWR | os.O_CREAT | (os.O_TRUNC if over else os.O_EXCL)
        try:
            with translate_os_errors(path):
                guard._descriptor = os.open(fresh, flags, PRIVATE_FILE)
        except StorageFailed:
            check_free(path)
            raise
        try:
            locked(guard._descriptor, path, _IN_USE.format(path))  # from its first moment
            with translate_os_errors(path):
                write_whole(guard._descriptor, guard.state.header())
                os.fsync(guard._descriptor)
                fresh.replace(path)
                sync_folder(path.parent)
        except BaseException:
            fresh.unlink(missing_ok=True)
            os.close(guard._descriptor)
            raise
        return guard

    def begin(self, clock: int, head: bytes) -> None:
        """Start a new epoch, durably; whoever had the witness before cannot write it any more."""
        self._write(replace(self.state, epoch=fresh_key(_EPOCH), clock=clock, head=head))
        self.sync()

    def advance(self, clock: int, head: bytes) -> None:
        """Remember how far the store has come; call it after the commit.

        Raises StorageFailed if the store was opened elsewhere since: another epoch has begun.
        """
        self._check()
        with translate_os_errors(self._path):
            present = os.pread(self._descriptor, _EPOCH, 32)
        if present != self.state.epoch:
            raise StorageFailed(
                f"The store has been opened elsewhere with the same witness {self._path}. This "
                "copy no longer answers."
            )
        if (clock, head) != (self.state.clock, self.state.head):
            self._write(replace(self.state, clock=clock, head=head))

    def sync(self) -> None:
        """Flush to the disk."""
        with translate_os_errors(self._path):
            os.fsync(self._descriptor)

    def add_erased(self, hashes: Iterable[bytes], clock: int) -> None:
        """Remember erased subjects, durably."""
        self._add(_ERASED, hashes, clock)

    def add_audiences(self, names: Iterable[str], clock: int) -> None:
        """Remember audiences, durably; those that are known already are passed over."""
        known = self.state.audiences
        self._add(_AUDIENCE, [one for one in map(name_digest, names) if one not in known], clock)

    def close(self) -> None:
        """Flush and close; the lock goes with the file, whatever the flush does."""
        try:
            self.sync()
        finally:
            os.close(self._descriptor)

    def _add(self, kind: bytes, digests: Iterable[bytes], clock: int) -> None:
        content = b"".join(_ENTRY.pack(kind, digest, clock) for digest in digests)
        if not content:
            return
        self._put(content, _START + len(self.state.entries))
        self.sync()  # the head that counts them comes after them
        self._write(self.state.holding(self.state.entries + content))
        self.sync()

    def _write(self, state: WitnessState) -> None:
        with translate_os_errors(self._path):
            held, named = os.fstat(self._descriptor), self._path.stat()
            if (held.st_dev, held.st_ino, 1) != (named.st_dev, named.st_ino, named.st_nlink):
                raise StorageFailed(
                    f"{self._path} was replaced while the store was open, or has a second name. "
                    "The store no longer answers. Remove the other name, then open it again."
                )
        self._put(state.header(), 0)
        self.state = state

    def _put(self, content: bytes, offset: int) -> None:
        self._check()
        with translate_os_errors(self._path):
            write_whole(self._descriptor, content, offset)
