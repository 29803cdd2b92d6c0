"""A store's folder: its files, its identity, and the locations of its ledger and witness.

Everywhere in this module `path` is the folder of a store, and `witness` the declared path of its
rollback guard, or None for a witness beside the folder.
"""

import errno
import os
import re
import shutil
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from vicinal import checks
from vicinal.declared_sizes import iterate_chunks, iterate_extents
from vicinal.errors import InvalidInput, PrivacyRefused, StorageFailed, StoreDamaged
from vicinal.ledger.database import Database
from vicinal.ledger.files import (
    PRIVATE_FOLDER,
    create_file,
    replace_file,
    translate_os_errors,
    write_whole,
)
from vicinal.ledger.postgres import PostgresDatabase, choose_server
from vicinal.ledger.rollback_guard import WitnessState, check_path_free, default_witness_path
from vicinal.ledger.sealed_files import read_sealed, write_sealed
from vicinal.ledger.sqlite import SQLiteDatabase
from vicinal.mechanisms.noise_sources import fresh_key

LEDGER = "ledger.db"  # file of an SQLite ledger
RECORDS = "records"  # folder of the record files
KEY = "key"  # file of the key of all keyed hashes
CONFIG = "store.json"  # file with identity, ledger and witness; a folder without it is no store

SOCKET = "service"
"""Unix socket in the folder, on which a service that has the store open answers local processes."""

FORMAT = 1  # version of the format of `store.json` and of the folder
_COPY_CHUNK_BYTES = 1 << 24  # bytes of a file in memory at a time while it is copied
SQLITE = "sqlite"  # kind of a ledger that is an SQLite file in the folder


@dataclass(frozen=True, slots=True)
class Folder:
    """Location and identity of a store.

    - `path`: its folder.
    - `identity`: its id, 32 hexadecimal digits.
    - `ledger`: "sqlite", or the URL of a PostgreSQL database.
    - `witness`: rollback guard, a file outside the folder with the id of the last commit, by which
      an old copy of the folder is recognized.
    """

    path: Path
    identity: str
    ledger: str
    witness: Path

    @classmethod
    def create(cls, path: Path, ledger: str | None, witness: Path | None) -> Self:
        """Create the folder of a new store, with a new id and a new key.

        `ledger`: None or "sqlite", or the URL of a PostgreSQL database. Raises InvalidInput if
        `path` or `witness` is in use, or `ledger` is no valid URL or has a password.
        """
        witness_path = choose_witness_path(path, witness)
        if ledger not in (None, SQLITE):
            choose_server(ledger)
        create_new_folder(path)
        replace_file(path / KEY, fresh_key(), owner=os.geteuid())
        return cls(path, fresh_key(16).hex(), ledger or SQLITE, witness_path)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the folder of an existing store at `path`, as its `store.json` describes it.

        Raises InvalidInput if there is no store. Raises PrivacyRefused if it is a backup.
        """
        config = read_config(path)
        if config["backup"]:
            raise PrivacyRefused(
                f"{path} is a backup, which does not know what was charged since. Restore it into "
                "a store with: vicinal restore"
            )
        witness = Path(config["witness"])
        if not witness.is_absolute():
            witness = path.absolute().parent / witness.name
        return cls(path, config["id"], config["ledger"], witness)

    def save(self) -> None:
        """Write `store.json`, which makes the folder a store.

        A witness beside the folder is written as a relative path, so that both can be moved.
        """
        is_beside = self.witness == default_witness_path(self.path)
        witness = f"../{self.witness.name}" if is_beside else str(self.witness)
        write_config(self.path, self.identity, self.ledger, witness, backup=False)

    def discard(self) -> None:
        """Remove the folder and the witness of a new store after an error during its creation."""
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(StorageFailed, InvalidInput):  # another store may have one there
            if WitnessState.read(self.witness).identity.hex() == self.identity:
                self.witness.unlink()

    def connect(self, *, create: bool = False) -> Database:
        """Return a connection to the ledger's database.

        `create`: create the database if it does not exist; else an SQLite file, which must exist,
        is not written before :meth:`Database.recover`.
        """
        if self.ledger == SQLITE:
            return SQLiteDatabase(self.path / LEDGER, create=create, read_only=not create)
        return PostgresDatabase(self.ledger, create=create)

    def read_owner(self) -> int:
        """Return the user id of the owner of the folder, who gets the files that root creates."""
        with translate_os_errors(self.path):
            return self.path.stat().st_uid

    def read_key(self) -> bytes:
        """Return the secret key of all keyed hashes of the store, from its file."""
        with translate_os_errors(self.path / KEY):
            return (self.path / KEY).read_bytes()


def choose_witness_path(path: Path, witness: Path | None) -> Path:
    """Return the path of a new store's witness; raise InvalidInput if it, or the store, exists."""
    check_new_folder(path)
    witness_path = resolve_witness_path(path, witness)
    check_path_free(witness_path)
    return witness_path


def resolve_witness_path(path: Path, witness: Path | None) -> Path:
    """Return the path of a store's witness; raise InvalidInput if it is in the store's folder."""
    witness_path = default_witness_path(path) if witness is None else witness.absolute()
    if witness_path.resolve().is_relative_to(path.resolve()):
        raise InvalidInput(
            "The 'witness' parameter must be outside the store's folder, best on another disk: "
            "whoever puts the folder back would put it back, too."
        )
    return witness_path


def check_path(name: str, value: object) -> Path:
    """Return `value`, text or a path object of text, as a Path, or raise InvalidInput."""
    location = os.fspath(value) if isinstance(value, os.PathLike) else value
    return Path(checks.check_instance(name, location, str, "a path, as text or pathlib.Path"))


def check_new_folder(path: Path) -> None:
    """Raise InvalidInput unless `path` does not exist, or is an empty folder of this user."""
    with translate_os_errors(path):
        if not os.path.lexists(path):
            return
        status = path.lstat()
        is_own_folder = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
        if any((path / name).exists() for name in (CONFIG, "cluster.json")):
            raise InvalidInput(
                f"{path} must be a new folder, and a store is there already. Name another folder, "
                "or add records to the store with: vicinal add"
            )
        if not is_own_folder or any(path.iterdir()):
            raise InvalidInput(
                f"{path} must be a new folder, or an empty one that belongs to you and is not a "
                "link. If an interrupted command left it, it holds no store.json, "
                "shard.json or cluster.json, and you can delete it."
            )


def create_new_folder(path: Path) -> None:
    """Create an empty folder that only this user may enter.

    Raises InvalidInput unless `path` does not exist, or is an empty folder of this user.
    """
    check_new_folder(path)
    create_private_folder(path)
    # Again: an existing empty folder may have been writable for other users until now.
    check_new_folder(path)


def create_private_folder(path: Path) -> None:
    """Create a folder that only this user may enter, or restrict an existing one, for any umask.

    Raises InvalidInput if the folder is another user's; StorageFailed if it is a link.
    """
    with translate_os_errors(path):
        path.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if os.fstat(descriptor).st_uid != os.geteuid():
                raise InvalidInput(f"{path} is another user's folder. Name one that is yours.")
            os.fchmod(descriptor, PRIVATE_FOLDER)
        finally:
            os.close(descriptor)


def refuse_links(folder: Path) -> None:
    """Raise InvalidInput if a folder, its records, or an entry of them is a link or special file.

    `folder`: folder of a store or a cluster. Through a link, another user who created the folder
    could make this process read or overwrite a file of this user. The socket of a service is
    permitted.
    """
    for directory in (folder, folder / RECORDS):
        with translate_os_errors(directory):
            entries = directory.iterdir() if directory.is_dir() else ()
            for path in (directory, *entries):
                is_service_socket = path == folder / SOCKET and path.is_socket()
                is_regular = path.is_file() or path.is_dir() or not path.exists()
                if path.is_symlink() or not (is_regular or is_service_socket):
                    raise InvalidInput(
                        f"{path} is a link, or not a regular file. A store keeps everything in its "
                        "folder. If it is yours, put what the link leads to there, or name that."
                    )


def read_config(path: Path) -> dict[str, Any]:
    """Return the fields of `store.json` in the folder `path` of a store or a backup, by name.

    Raises InvalidInput if the file is missing or has another format; StoreDamaged if it was changed
    or damaged.
    """
    kinds = {"id": str, "ledger": str, "witness": str, "backup": bool}
    config = read_sealed(path / CONFIG, FORMAT, kinds, f"There is no store at {path}.")
    if re.fullmatch("[0-9a-f]{32}", config["id"]) is None:
        raise StoreDamaged(f"{path / CONFIG} was changed or damaged. Restore a backup.")
    return config


def write_config(path: Path, identity: str, ledger: str, witness: str, *, backup: bool) -> None:
    """Write `store.json` into the folder `path` of a store, or of a `backup`.

    `identity`, `ledger`, `witness`: the store's id, kind or URL of its ledger, and path of its
    witness, as texts.
    """
    fields = {"id": identity, "ledger": ledger, "witness": witness, "backup": backup}
    write_sealed(path / CONFIG, FORMAT, fields)


def copy_file(source: Path, target: Path) -> None:
    """Copy the file `source` of a store durably to `target`, a new file; links are refused.

    Holes of a sparse file stay holes: such a file may declare more than the disk holds.
    """
    source_flags = os.O_RDONLY | os.O_NOFOLLOW
    with (
        translate_os_errors(source),
        translate_os_errors(target),
        os.fdopen(os.open(source, source_flags), "rb") as source_file,
    ):
        source_descriptor = source_file.fileno()
        size = os.fstat(source_descriptor).st_size
        n_stored = sum(end - start for start, end in iterate_extents(source_descriptor, 0, size))
        if n_stored > shutil.disk_usage(target.parent).free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
        descriptor = create_file(target, os.O_WRONLY | os.O_EXCL)
        with os.fdopen(descriptor, "wb"):
            os.ftruncate(descriptor, size)
            for offset, chunk in iterate_chunks(source_descriptor, _COPY_CHUNK_BYTES):
                write_whole(descriptor, chunk, offset)
            os.fsync(descriptor)
