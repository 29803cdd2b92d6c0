"""A store's folder: which files there are, who the store is, and where its other parts lie."""

import os
import re
import shutil
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from vicinal.errors import InvalidInput, PrivacyRefused, StorageFailed, StoreDamaged
from vicinal.ledger.database import Database
from vicinal.ledger.files import PRIVATE_FILE, PRIVATE_FOLDER, replace_file, translate_os_errors
from vicinal.ledger.postgres import PostgresDatabase, choose_server
from vicinal.ledger.rollback_guard import WitnessState, check_free, default_witness_path
from vicinal.ledger.sealed_files import read_sealed, write_sealed
from vicinal.ledger.sqlite import SQLiteDatabase
from vicinal.mechanisms.noise_sources import fresh_key

LEDGER, RECORDS = "ledger.db", "records"
KEY = "key"
CONFIG = "store.json"
SOCKET = "service"
"""Where a service that has the store open is asked by other processes of this machine."""

FORMAT = 1
"""The format of `store.json`, and of the folder around it."""

SQLITE = "sqlite"


@dataclass(frozen=True, slots=True)
class Folder:
    """Where a store lies: its folder, its id in hexadecimal digits, its ledger and its witness.

    `ledger`: "sqlite", or the URL of a PostgreSQL database. `witness`: the file outside the folder
    that remembers how far the store had come.
    """

    path: Path
    identity: str
    ledger: str
    witness: Path

    @classmethod
    def create(cls, path: Path, ledger: str | None, witness: Path | None) -> Self:
        """Make the folder of a new store, with a new id and a new key.

        Raises InvalidInput if there is something in that place already, or the URL is none, or
        holds a password.
        """
        witness_path = free_witness(path, witness)
        if ledger not in (None, SQLITE):
            choose_server(ledger)
        new_folder(path)
        replace_file(path / KEY, fresh_key())
        return cls(path, fresh_key(16).hex(), ledger or SQLITE, witness_path)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the folder of a store that is there.

        Raises InvalidInput if there is none. Raises PrivacyRefused if it is a backup.
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
        beside = self.witness == default_witness_path(self.path)
        witness = f"../{self.witness.name}" if beside else str(self.witness)
        write_config(self.path, self.identity, self.ledger, witness, backup=False)

    def discard(self) -> None:
        """Remove what :meth:`create` and those after it have made: nobody has used it yet."""
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(StorageFailed, InvalidInput):  # another store may have made one there
            if WitnessState.read(self.witness).identity.hex() == self.identity:
                self.witness.unlink()

    def database(self, *, create: bool = False) -> Database:
        """Return a connection to the ledger's database; to read, unless it is made."""
        if self.ledger == SQLITE:
            return SQLiteDatabase(self.path / LEDGER, create=create, reading=not create)
        return PostgresDatabase(self.ledger, create=create)

    def key(self) -> bytes:
        with translate_os_errors(self.path / KEY):
            return (self.path / KEY).read_bytes()


def free_witness(path: Path, witness: Path | None) -> Path:
    """Return where a new store's witness will lie; InvalidInput if it, or the store, is there."""
    check_new(path)
    place = witness_place(path, witness)
    check_free(place)
    return place


def witness_place(path: Path, witness: Path | None) -> Path:
    """Return where the witness of a store at `path` lies; InvalidInput if that is in the store."""
    place = default_witness_path(path) if witness is None else witness.absolute()
    if place.resolve().is_relative_to(path.resolve()):
        raise InvalidInput(
            "The 'witness' parameter must be outside the store's folder, best on another disk: "
            "whoever puts the folder back would put it back, too."
        )
    return place


def check_new(path: Path) -> None:
    """Raise InvalidInput if there is anything at `path` but an empty folder of this user."""
    with translate_os_errors(path):
        if not os.path.lexists(path):
            return
        found = path.lstat()
        yours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
        if any((path / name).exists() for name in (CONFIG, "cluster.json")):
            raise InvalidInput(
                f"{path} must be a new folder, and a store is there already. Name another folder, "
                "or add records to the store with: vicinal add"
            )
        if not yours or any(path.iterdir()):
            raise InvalidInput(
                f"{path} must be a new folder, or an empty one that belongs to you and is not a "
                "link. If an interrupted command left it, it holds no store.json, "
                "shard.json or cluster.json, and you can delete it."
            )


def new_folder(path: Path) -> None:
    """Make a folder into which nobody else has put anything, or ever can; see `check_new`."""
    check_new(path)
    private_folder(path)
    check_new(path)  # others may have been let into an empty folder until now


def private_folder(path: Path) -> None:
    """Make a folder that only this user may enter, whatever the umask, if it is not there.

    Raises InvalidInput if another user's is there; StorageFailed if it is a link.
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
    """Raise InvalidInput if the folder of a store or a cluster, or anything in it, is a link.

    Whoever made the folder could have a file of this user read, copied, cut or written that way.
    """
    for place in (folder, folder / RECORDS):
        with translate_os_errors(place):
            for one in (place, *(place.iterdir() if place.is_dir() else ())):
                listens = one == folder / SOCKET and one.is_socket()
                plain = one.is_file() or one.is_dir() or not one.exists()
                if one.is_symlink() or not (plain or listens):
                    raise InvalidInput(
                        f"{one} is a link, or not a regular file. A store keeps everything in its "
                        "folder. If it is yours, put what the link leads to there, or name that."
                    )


def read_config(path: Path) -> dict[str, Any]:
    """Return what `store.json` says.

    Raises InvalidInput if it is not there, or has another format; StoreDamaged if it was changed
    or damaged.
    """
    kinds = {"id": str, "ledger": str, "witness": str, "backup": bool}
    config = read_sealed(path / CONFIG, FORMAT, kinds, f"There is no store at {path}.")
    if re.fullmatch("[0-9a-f]{32}", config["id"]) is None:
        raise StoreDamaged(f"{path / CONFIG} was changed or damaged. Restore a backup.")
    return config


def write_config(path: Path, identity: str, ledger: str, witness: str, *, backup: bool) -> None:
    fields = {"id": identity, "ledger": ledger, "witness": witness, "backup": backup}
    write_sealed(path / CONFIG, FORMAT, fields)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file of a store into a place where nothing is, durably."""
    plain = os.O_RDONLY | os.O_NOFOLLOW
    with (
        translate_os_errors(source),
        translate_os_errors(target),
        os.fdopen(os.open(source, plain), "rb") as old,
    ):
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
        with os.fdopen(descriptor, "wb") as new:
            while chunk := old.read(1 << 24):
                new.write(chunk)
            new.flush()
            os.fsync(new.fileno())
