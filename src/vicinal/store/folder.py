"""A store's folder: which files there are, who the store is, and where its other parts lie."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.ledger.database import Database
from vicinal.ledger.files import PRIVATE_FILE, PRIVATE_FOLDER, guarded, replace_file
from vicinal.ledger.postgres import PostgresDatabase
from vicinal.ledger.sqlite import SQLiteDatabase
from vicinal.ledger.witness import witness_beside
from vicinal.mechanisms import fresh_key

LEDGER = "ledger.db"
KEY = "key"
CONFIG = "store.json"
_FORMAT = 1
_SQLITE = "sqlite"


@dataclass(frozen=True, slots=True)
class Folder:
    """Where a store lies.

    Attributes
    ----------
    path : Path
        The folder.
    identity : str
        The store's id, in hexadecimal digits.
    ledger : str
        "sqlite", or the URL of a PostgreSQL database.
    witness : Path
        The file outside the folder that remembers how far the store had come.
    """

    path: Path
    identity: str
    ledger: str
    witness: Path

    @classmethod
    def create(cls, path: Path, ledger: str | None, witness: Path | None) -> Self:
        """Make the folder of a new store, with a new id and a new key.

        Raises
        ------
        InvalidInput
            If there is something in that place already, or the URL is none, or holds a password.
        """
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise InvalidInput(f"{path} must be a new folder, or an empty one.")
        found = witness_beside(path) if witness is None else witness.absolute()
        if found.exists():
            raise InvalidInput(f"{found} is the witness of another store. Move it away first.")
        url = _checked_url(ledger or _SQLITE)
        with guarded(path):
            path.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            path.chmod(PRIVATE_FOLDER)
        replace_file(path / KEY, fresh_key())
        return cls(path, fresh_key(16).hex(), url, found)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the folder of a store that is there.

        Raises
        ------
        InvalidInput
            If there is none.
        PrivacyRefused
            If it is a backup.
        """
        config = read_config(path)
        if config["backup"]:
            raise PrivacyRefused(
                f"{path} is a backup, which does not know what was charged since. Restore it into "
                "a store with: vicinal restore"
            )
        witness = Path(config["witness"])
        return cls(path, config["id"], config["ledger"], _resolved(path, witness))

    def save(self) -> None:
        """Write who the store is, which makes the folder a store."""
        beside = self.witness == witness_beside(self.path)
        witness = f"../{self.witness.name}" if beside else str(self.witness)
        write_config(self.path, self.identity, self.ledger, witness, backup=False)

    def discard(self) -> None:
        """Remove what :meth:`create` and those after it have made: nobody has used it yet."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.witness.unlink(missing_ok=True)

    def database(self, *, create: bool = False) -> Database:
        """Return a connection to the ledger's database."""
        if self.ledger == _SQLITE:
            return SQLiteDatabase(self.path / LEDGER, create=create)
        return PostgresDatabase(self.ledger)

    def key(self) -> bytes:
        """Return the key of the hashes of those who left."""
        with guarded(self.path / KEY):
            return (self.path / KEY).read_bytes()


def read_config(path: Path) -> dict[str, Any]:
    """Return what `store.json` says."""
    try:
        config = json.loads((path / CONFIG).read_text(encoding="utf-8"))
        known = config["format"] == _FORMAT
    except (OSError, ValueError, KeyError, TypeError):
        raise InvalidInput(f"There is no store at {path}.") from None
    if not known:
        raise InvalidInput(f"The store {path} was written by a later version of vicinal.")
    return dict(config)


def write_config(path: Path, identity: str, ledger: str, witness: str, *, backup: bool) -> None:
    """Write `store.json`."""
    config = {
        "format": _FORMAT, "id": identity, "ledger": ledger, "witness": witness, "backup": backup,
    }  # fmt: skip
    replace_file(path / CONFIG, json.dumps(config, indent=2).encode())


def copy_file(source: Path, target: Path) -> None:
    """Copy a file of a store, durably."""
    with guarded(source), guarded(target), source.open("rb") as old:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE)
        with os.fdopen(descriptor, "wb") as new:
            while chunk := old.read(1 << 24):
                new.write(chunk)
            new.flush()
            os.fsync(new.fileno())


def _resolved(path: Path, witness: Path) -> Path:
    return witness if witness.is_absolute() else path.absolute().parent / witness.name


def _checked_url(ledger: str) -> str:
    if ledger == _SQLITE:
        return ledger
    if not ledger.startswith(("postgresql://", "postgres://")):
        raise InvalidInput("The 'ledger' parameter must be 'sqlite' or a postgresql:// URL.")
    user = ledger.split("://", 1)[1].split("/", 1)[0].rpartition("@")[0]
    if ":" in user or "password=" in ledger:
        raise InvalidInput(
            "The 'ledger' URL must hold no password, as it is written to disk. Give it through "
            "PGPASSWORD or ~/.pgpass."
        )
    return ledger
