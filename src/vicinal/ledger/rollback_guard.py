"""The witness: a small file outside the store that detects rollbacks and copies of the store.

It holds the clock and head of the ledger's last known commit, which a restored backup or a copied
folder lacks: its charges would be forgotten and budgets refilled. The *clock* is the ledger's
counter of blocks of answers, changes and releases; the *head* is the last hash, 32 bytes, of its
chain of commits. A :class:`RollbackGuard` is the open witness of an open store. The witness is
locked while its store is open, so two copies with one witness are never open together. Each opening
also writes a random epoch, and a store that finds another epoch writes nothing more. The witness
also keeps the keyed hashes of erased subjects, so that an old backup cannot restore them, and
digests of audience names, so that a lost audience cannot be opened with new budgets.

Clock and head are written after every commit, never during a transaction of the ledger, and flushed
to the disk when the store is opened, changed or closed. So after a loss of power the witness may be
behind the store, never ahead. (docs/decisions/0042-chain-and-epochs.md)
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
from vicinal.ledger.files import (
    create_file,
    create_replacement,
    lock_file,
    name_replacement,
    open_descriptor,
    sync_folder,
    translate_os_errors,
    write_whole,
)
from vicinal.mechanisms.noise_sources import fresh_key

FORMAT = 1
"""Version of the witness's format: the byte after the name at the start of the file."""

_NAME = b"vicinal witness"
_MAGIC = _NAME + bytes([FORMAT])
_EPOCH_BYTES = 16
_EPOCH_OFFSET = 32
"""Offset of the epoch in the header, in bytes."""
_HEADER = struct.Struct(">16s16s16sQ32sQ32s")
"""Name and format, identity, epoch, clock, head, number of entries, SHA-256 of all entries. The
SHA-256 of these fields follows."""
_ENTRIES_OFFSET = _HEADER.size + 32
"""Offset of the first entry in the file, in bytes."""
_ENTRY = struct.Struct(">c32sQ")
"""Kind of entry; keyed hash of an erased subject's id, or digest of an audience's name; and the
ledger's clock when the entry was added."""
_MAX_ENTRIES = 1 << 26
"""Maximal number of entries that are read (2.75 GB): a forged header may count any number."""
_ERASED_KIND = b"e"  # of an entry with the keyed hash of an erased subject's id
_AUDIENCE_KIND = b"a"  # of an entry with the digest of an audience's name
_IN_USE = (
    "Another process has a store with the witness {} open: a copy of this one, or one restored "
    "from it. Two stores could spend the same budgets. Close that one first."
)


@dataclass(frozen=True, slots=True)
class WitnessState:
    """The content of a witness.

    - `identity`: the store's id, 16 bytes.
    - `epoch`: random number of the store's last opening, 16 bytes.
    - `clock`: the ledger's clock at its last known commit, a counter that never decreases.
    - `head`: the ledger's head at that commit, 32 bytes.
    - `entries`: all entries of erased subjects and audience names, concatenated.
    - `entries_digest`: SHA-256 of `entries`.
    """

    identity: bytes
    epoch: bytes
    clock: int
    head: bytes
    entries: bytes = b""
    entries_digest: bytes = hashlib.sha256().digest()

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the content of the witness at `path`, without locking it.

        Raises StorageFailed if it cannot be read, DamagedWitness if it is damaged, and InvalidInput
        if it has another format.
        """
        with translate_os_errors(path), path.open("rb") as file:
            content = file.read(_ENTRIES_OFFSET)
            if content.startswith(_NAME) and len(content) > len(_NAME):
                checks.check_file_format(path, content[len(_NAME)], FORMAT)
            header = content[: _HEADER.size].ljust(_HEADER.size, b"\0")
            magic, identity, epoch, clock, head, count, entries_digest = _HEADER.unpack(header)
            header_digest = content[_HEADER.size :]
            is_valid = (magic, header_digest) == (_MAGIC, hashlib.sha256(header).digest())
            # The file may be longer than the header counts, by entries of an interrupted write or
            # by terabytes that an attacker added.
            is_readable = is_valid and count <= _MAX_ENTRIES
            entries = file.read(count * _ENTRY.size) if is_readable else b""
        state = cls(identity, epoch, clock, head).with_entries(entries)
        has_all_entries = len(entries) == count * _ENTRY.size
        if not is_valid or not has_all_entries or state.entries_digest != entries_digest:
            raise DamagedWitness(
                f"{path} is damaged. Bring it back, or accept the loss, which spends every budget "
                "for good."
            )
        return state

    def encode_header(self) -> bytes:
        """Return the first bytes of the file, which hold the attributes except the entries.

        They fit into one sector of a disk, so a crash leaves the old or the new ones.
        """
        count = len(self.entries) // _ENTRY.size
        content = _HEADER.pack(
            _MAGIC, self.identity, self.epoch, self.clock, self.head, count, self.entries_digest
        )
        return content + hashlib.sha256(content).digest()

    def with_entries(self, entries: bytes) -> Self:
        """Return this state with other `entries`, concatenated, and with their digest."""
        return replace(self, entries=entries, entries_digest=hashlib.sha256(entries).digest())

    @property
    def erased(self) -> set[bytes]:
        """Keyed hashes of all subjects that were ever erased."""
        return self._select_digests(_ERASED_KIND)

    @property
    def audiences(self) -> set[bytes]:
        """Digests of the names of all audiences ever opened, see :func:`digest_name`."""
        return self._select_digests(_AUDIENCE_KIND)

    def _select_digests(self, kind: bytes) -> set[bytes]:
        """Return the digests in all entries of one `kind`, 32 bytes each."""
        matches = re.finditer(kind, self.entries[:: _ENTRY.size])
        offsets = (match.start() * _ENTRY.size for match in matches)
        return {_ENTRY.unpack_from(self.entries, offset)[1] for offset in offsets}


def default_witness_path(folder: Path) -> Path:
    """Return the default path of a store's witness: beside the store's folder."""
    absolute = folder.absolute()
    return absolute.with_name(absolute.name + ".witness")


def digest_name(audience: str) -> bytes:
    """Return the SHA-256 of an audience's name, 32 bytes, which the witness keeps instead of it."""
    return hashlib.sha256(audience.encode()).digest()


def check_path_free(path: Path) -> None:
    """Raise InvalidInput if any file or link is at the path of a new witness."""
    with translate_os_errors(path):
        if path.exists() or path.is_symlink():
            raise InvalidInput(f"{path} is the witness of another store. Move it away first.")


def is_witness(path: Path) -> bool:
    """Return whether the file at `path` is readable and a witness, by its first bytes.

    No output may replace it.
    """
    if not path.is_file():  # a pipe would wait for its writer
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(_NAME)) == _NAME
    except OSError:
        return False


def check_replaceable(path: Path) -> None:
    """Raise InvalidInput if a new witness at `path` would replace a file that is no witness.

    A store's folder names its witness, and a forged folder can name any file of this user.
    """
    for replaced in (path, name_replacement(path)):
        with translate_os_errors(replaced):
            # None for a link, a folder or a special file; empty if nothing is there.
            first_bytes = None if replaced.exists() or replaced.is_symlink() else b""
            if replaced.is_file() and not replaced.is_symlink():
                with replaced.open("rb") as file:
                    first_bytes = file.read(len(_NAME))
        if first_bytes not in (_NAME, b""):
            raise InvalidInput(
                f"{replaced} is not a witness, so it is not replaced. Move it away if the store is "
                "yours, and leave the store closed if a stranger made it."
            )


class RollbackGuard:
    """A witness that is locked and open for writing. Nothing is written before :meth:`begin_epoch`.

    - `path`: path of the witness, best on another disk than the store, and in no backup of it.
    - `identity`: the store's id, 16 bytes.
    - `check_committed`: function that raises an error if the ledger has an open transaction; called
      before each write. By default it does nothing, as for a journal without a ledger.
    - `accept_unwritable`: open the file read-only if this process may not write it.

    Raises StorageFailed if the file cannot be read, is damaged, or belongs to another store. Raises
    StoreInUse if another process has it open, with a copy of the same store.
    """

    def __init__(
        self,
        path: Path,
        identity: bytes,
        check_committed: Callable[[], object] = int,
        *,
        accept_unwritable: bool = False,
    ) -> None:
        self._path = path
        self._check_committed = check_committed
        self._is_flushed = True
        with translate_os_errors(path):
            self._descriptor = open_descriptor(
                path, accept_unwritable=accept_unwritable, follow_link=True
            )
        try:
            lock_file(self._descriptor, path, _IN_USE.format(path))
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
        cls,
        path: Path,
        identity: bytes,
        check_committed: Callable[[], object] = int,
        *,
        replace_existing: bool = False,
        owner: int | None = None,
    ) -> Self:
        """Create a witness and return it, locked and open for writing.

        It has a random head, so it agrees with no ledger until :meth:`begin_epoch`.
        `replace_existing`: whether to replace a witness at `path`, and to keep its owner unless it
        is root. `owner`: user id of the owner of an existing store, who gets the witness if root
        creates it, or replaces one of root, in a folder of the same owner. The other arguments are
        those of the class. Raises InvalidInput if a file is at `path`; with `replace_existing`, if
        it is no witness.
        """
        if replace_existing:
            check_replaceable(path)
        guard = cls.__new__(cls)
        guard._path = path
        guard._check_committed = check_committed
        guard._is_flushed = True
        new_path = name_replacement(path) if replace_existing else path
        guard.state = WitnessState(identity, fresh_key(_EPOCH_BYTES), 0, fresh_key())
        try:
            with translate_os_errors(path):
                if replace_existing:
                    guard._descriptor = create_replacement(path, owner=owner)
                else:
                    guard._descriptor = create_file(path, os.O_RDWR | os.O_EXCL, owner=owner)
        except StorageFailed:
            check_path_free(path)
            raise
        try:
            lock_file(guard._descriptor, path, _IN_USE.format(path))  # before it has its name
            with translate_os_errors(path):
                write_whole(guard._descriptor, guard.state.encode_header())
                os.fsync(guard._descriptor)
                new_path.replace(path)
                sync_folder(path.parent)
        except BaseException:
            new_path.unlink(missing_ok=True)
            os.close(guard._descriptor)
            raise
        return guard

    def begin_epoch(self, clock: int, head: bytes) -> None:
        """Write a new random epoch with the ledger's `clock` and `head`, and flush.

        A store that opened the witness before cannot write it any more.
        """
        epoch = fresh_key(_EPOCH_BYTES)
        self._write_header(replace(self.state, epoch=epoch, clock=clock, head=head))
        self.sync()

    def record_commit(self, clock: int, head: bytes) -> None:
        """Write the ledger's `clock` and `head` at its last commit, without a flush.

        Raises StorageFailed if the witness has another epoch: its store was opened elsewhere since.
        """
        self._check_committed()
        with translate_os_errors(self._path):
            present_epoch = os.pread(self._descriptor, _EPOCH_BYTES, _EPOCH_OFFSET)
        if present_epoch != self.state.epoch:
            raise StorageFailed(
                f"The store has been opened elsewhere with the same witness {self._path}. This "
                "copy no longer answers."
            )
        if (clock, head) != (self.state.clock, self.state.head):
            self._write_header(replace(self.state, clock=clock, head=head))

    def sync(self) -> None:
        """Flush the file to the disk, if anything was written: read-only media refuse a flush."""
        if self._is_flushed:
            return
        with translate_os_errors(self._path):
            os.fsync(self._descriptor)
        self._is_flushed = True

    def add_erased(self, hashes: Iterable[bytes], clock: int) -> None:
        """Add the keyed hashes of erased subjects, 32 bytes each, and flush."""
        self._append_entries(_ERASED_KIND, hashes, clock)

    def add_audiences(self, names: Iterable[str], clock: int) -> None:
        """Add the digests of those audience names that the witness does not have, and flush."""
        known_digests = self.state.audiences
        digests = [digest for digest in map(digest_name, names) if digest not in known_digests]
        self._append_entries(_AUDIENCE_KIND, digests, clock)

    def close(self) -> None:
        """Flush and close the file, which releases the lock even if the flush fails."""
        try:
            self.sync()
        finally:
            os.close(self._descriptor)

    def _append_entries(self, kind: bytes, digests: Iterable[bytes], clock: int) -> None:
        """Append an entry of one `kind` for each of `digests`, 32 bytes, and flush.

        `clock`: the ledger's clock, kept with each entry.
        """
        content = b"".join(_ENTRY.pack(kind, digest, clock) for digest in digests)
        if not content:
            return
        self._write_bytes(content, _ENTRIES_OFFSET + len(self.state.entries))
        self.sync()  # entries must be durable before a header that counts them
        self._write_header(self.state.with_entries(self.state.entries + content))
        self.sync()

    def _write_header(self, state: WitnessState) -> None:
        """Write the header of `state`, and keep `state` in memory.

        Raises StorageFailed if the path leads to another file than the open one.
        """
        with translate_os_errors(self._path):
            opened = os.fstat(self._descriptor)
            present = self._path.stat()
            if not os.path.samestat(opened, present) or present.st_nlink != 1:
                raise StorageFailed(
                    f"{self._path} was replaced while the store was open, or has a second name. "
                    "The store no longer answers. Remove the other name, then open it again."
                )
        self._write_bytes(state.encode_header(), 0)
        self.state = state

    def _write_bytes(self, content: bytes, offset: int) -> None:
        """Write `content` at an offset in bytes of the file, without a flush.

        An open transaction of the ledger is an error.
        """
        self._check_committed()
        self._is_flushed = False
        with translate_os_errors(self._path):
            write_whole(self._descriptor, content, offset)
